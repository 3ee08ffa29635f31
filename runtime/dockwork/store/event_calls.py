"""Calls about what a queue tells: where its events go, and the errors it keeps. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dockwork.core.keys import QueueKeys
from dockwork.core.partitions import CURSOR
from dockwork.errors import require
from dockwork.store.calls import Call
from dockwork.store.protocol import ErrorReport, Event, EventMode, EventOptions, QueueErrors, TypeFigures
from dockwork.store.texts import decode_failure
from dockwork.store.views import to_map

#: Error reports that a queue keeps.
REPORTS = 200
#: The fields of meta that `read_options` reads.
OPTION_FIELDS = ("ev", "evmax")
#: What the stream may weigh where nobody says otherwise.
STREAM_BYTES = 64 * 1024 * 1024

#: By the letter of a settlement.
_OUTCOMES = {"c": "completed", "r": "retry", "z": "snooze", "f": "failed", "d": "dead", "x": "cancelled"}


#: Before every entry there can be.
FIRST_EVENT = "0-0"


def check_since(text: str) -> str:
    """An entry's id in full, or ``$``. Raises InvalidValue."""
    if text == "$":
        return text
    if CURSOR.match(text):
        return text
    ms, _, number = text.partition("-")
    fits = ms.isdecimal() and (number or "0").isdecimal()
    require(fits, "since", expected="an event's id, 0 or $", got=text)
    return f"{int(ms)}-{int(number or 0)}"


def set_events(keys: QueueKeys, options: EventOptions) -> Call[None]:
    """Say where the events of a queue go; another mode than the stream deletes the stream."""
    mode = "" if options.mode is EventMode.STREAM else options.mode.value
    size = "" if options.max_bytes is None else options.max_bytes
    return Call("set_events", keys, [mode, size], lambda reply: None)


def read_options(values: Sequence[bytes | None]) -> EventOptions:
    """The options in the fields `OPTION_FIELDS` of meta."""
    mode, size = values
    return EventOptions(
        mode=EventMode.STREAM if mode is None else EventMode(mode.decode()),
        max_bytes=None if size is None else int(size),
    )


def errors(keys: QueueKeys, limit: int) -> Call[QueueErrors]:
    """The last `limit` error reports, and the figures of every job type."""

    def decode(reply: list[Any]) -> QueueErrors:
        return QueueErrors(
            recent=tuple(read_report(keys.name.queue, stored) for stored in reply[2:]),
            by_type=read_figures({name: int(number) for name, number in to_map(reply[1]).items()}),
        )

    require(0 <= limit <= REPORTS, "limit", expected=f"0 to {REPORTS}", got=limit)
    return Call("errors", keys, [limit], decode, reads=True)


def read_report(queue: str, stored: bytes) -> ErrorReport:
    """A stored report: attempt, outcome, job, time and type in a line, then the failure."""
    head, _, failure = stored.partition(b"\n")
    attempt, outcome, job_id, at_ms, kind = head.decode().split(" ", 4)
    told = decode_failure(failure)
    return ErrorReport(
        queue=queue,
        type=kind,
        id=job_id,
        attempt=int(attempt),
        outcome=_OUTCOMES[outcome],
        error_class=told.error_class,
        message=told.message,
        trace=told.trace,
        worker=told.worker,
        at_ms=int(at_ms),
    )


def read_figures(stored: dict[str, int]) -> dict[str, TypeFigures]:
    """Figures per job type from fields ``<type>|<letter>``."""
    by_type: dict[str, dict[str, int]] = {}
    for name, number in stored.items():
        kind, _, letter = name.rpartition("|")
        by_type.setdefault(kind, {})[letter] = number
    return {
        kind: TypeFigures(
            completed=figures.get("c", 0),
            retried=figures.get("r", 0),
            failed=figures.get("f", 0),
            dead=figures.get("d", 0),
            run_ms=figures.get("t", 0),
        )
        for kind, figures in sorted(by_type.items())
    }


def read_message(queue: str, data: bytes) -> Event:
    """A published event: name, ids and reason, then fields and values, a line each. It has no id to go back to."""
    name, ids, reason, *rest = data.decode("utf-8", "replace").split("\n")
    return Event(
        id="",
        name=name,
        ids=tuple(ids.split()),
        reason=reason,
        data=dict(zip(rest[::2], rest[1::2], strict=True)),
        queue=queue,
    )
