"""Calls that only look: one job, the jobs of a state, a queue's counts. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dockwork.core.keys import QueueKeys
from dockwork.core.states import State
from dockwork.errors import require
from dockwork.store.calls import Call
from dockwork.store.protocol import Event, Failure, JobView, QueueStats
from dockwork.store.texts import decode_failure

#: Jobs in one page of a list.
LONGEST_PAGE = 500

_COUNTED = (
    State.READY,
    State.PRIORITIZED,
    State.DELAYED,
    State.ACTIVE,
    State.PARKED,
    State.COMPLETED,
    State.FAILED,
    State.DEAD,
    State.EXPIRED,
    State.CANCELLED,
)


#: What bars jobs that are due and wait, in the order of the scripts' replies.
THROTTLES = ("paused", "rate", "concurrency", "key")


def to_map(flat: Sequence[bytes]) -> dict[str, bytes]:
    """A HGETALL reply."""
    pairs = iter(flat)
    return {name.decode(): value for name, value in zip(pairs, pairs, strict=True)}


def to_counts(flat: Sequence[bytes]) -> dict[str, int]:
    """A HGETALL reply whose values are whole numbers."""
    return {name: int(value) for name, value in to_map(flat).items()}


def get(keys: QueueKeys, job_id: str, *, digest: bool = False) -> Call[JobView | None]:
    """One job, or None; with its digest if that is wanted."""

    def decode(reply: list[Any]) -> JobView | None:
        jobs = _jobs(reply)
        return jobs[0] if jobs else None

    return Call("get", keys, [job_id, int(digest)], decode, [job_id], reads=True)


def list_jobs(keys: QueueKeys, state: State, offset: int, limit: int) -> Call[list[JobView]]:
    """A page of the jobs in `state`: waiting and running in their order, ended ones newest first."""
    require(1 <= limit <= LONGEST_PAGE, "limit", expected=f"1 to {LONGEST_PAGE}", got=limit)
    require(offset >= 0, "offset", expected="0 or more", got=offset)
    return Call("list", keys, [state.value, offset, limit], _jobs, reads=True)


def _jobs(reply: list[Any]) -> list[JobView]:
    paused = bool(reply[1])
    return [_job(row, paused) for row in reply[2:]]


def _job(row: list[Any], paused: bool) -> JobView:
    job_id, record_reply, envelope, outputs_reply, *digest = row
    record, outputs = to_map(record_reply), to_map(outputs_reply)
    state = State(record["s"].decode())
    if paused and state in (State.READY, State.PRIORITIZED):
        state = State.PAUSED
    created_ms = int(record["c"])
    number = _numbers(record)
    return JobView(
        id=job_id.decode(),
        type=record["n"].decode(),
        state=state,
        envelope=envelope or b"",
        seq=number("q") or 0,
        priority=number("p") or 0,
        created_ms=created_ms,
        due_ms=number("d") or created_ms,
        scheduled_for_ms=number("sf"),
        expires_ms=number("x"),
        started_ms=number("t"),
        ended_ms=number("h"),
        attempts=number("f") or 0,
        deliveries=number("v") or 0,
        interruptions=number("i") or 0,
        owner=record.get("w", b"").decode(),
        epoch=number("e") or 0,
        reason=_reason(record, outputs),
        result=outputs.get("result"),
        result_dropped=int(outputs.get("dropped", 0)),
        progress=outputs.get("progress"),
        checkpoint=outputs.get("checkpoint"),
        log=tuple(outputs["log"].decode("utf-8", "replace").split("\n")) if "log" in outputs else (),
        failures=_failures(outputs, number("f") or 0),
        revision=number("rv") or 0,
        digest=digest[0].decode() if digest else "",
        sealed=record.get("z", b"").decode(),
        exit=outputs.get("exit", b"").decode("utf-8", "replace"),
    )


def _numbers(record: Mapping[str, bytes]) -> Any:
    def number(name: str) -> int | None:
        return int(record[name]) if name in record else None

    return number


def _reason(record: Mapping[str, bytes], outputs: Mapping[str, bytes]) -> str:
    reason = record.get("rs", b"").decode("utf-8", "replace")
    if reason == "max_deliveries" and "exit" in outputs:
        return f"{reason}: {outputs['exit'].decode('utf-8', 'replace')}"
    return reason


def _failures(outputs: Mapping[str, bytes], attempts: int) -> tuple[Failure, ...]:
    """The last five failures, oldest first: a ring of e0..e4 by the attempt's number."""
    kept = [f"e{attempt % 5}" for attempt in range(max(1, attempts - 4), attempts + 1)]
    return tuple(decode_failure(outputs[name]) for name in kept if name in outputs)


def stats(keys: QueueKeys) -> Call[QueueStats]:
    """Counts per state, totals and flags."""

    def decode(reply: list[Any]) -> QueueStats:
        _, counts, paused, closed, size, oldest, revision, totals, parked, throttled = reply
        by_state = dict(zip(_COUNTED, counts, strict=True))
        if paused:
            # Paused is computed: those jobs stay where they are.
            by_state[State.PAUSED] = by_state[State.READY] + by_state[State.PRIORITIZED]
            by_state[State.READY] = by_state[State.PRIORITIZED] = 0
        return QueueStats(
            counts=by_state,
            totals=to_counts(totals),
            paused=bool(paused),
            closed=bool(closed),
            bytes=int(size),
            oldest_wait_ms=int(oldest),
            parked_types=to_counts(parked),
            throttled=dict(zip(THROTTLES, map(int, throttled), strict=True)),
            config_revision=int(revision),
        )

    return Call("stats", keys, [], decode, reads=True)


def read_event(entry: Sequence[Any], queue: str = "", gap_from: str = "") -> Event:
    """An entry of the event stream."""
    entry_id, flat = entry
    fields = {name: value.decode("utf-8", "replace") for name, value in to_map(flat).items()}
    return Event(
        id=entry_id.decode(),
        name=fields.pop("name"),
        ids=tuple(fields.pop("ids").split()),
        reason=fields.pop("reason", ""),
        data=fields,
        queue=queue,
        gap_from=gap_from,
    )
