"""What a queue in memory tells: where its events go, the cap on their bytes, its errors."""

from __future__ import annotations

from collections.abc import Sequence

from dockwork.store.event_calls import REPORTS, STREAM_BYTES, read_figures, read_report
from dockwork.store.memory_queue import MemoryQueue, Turn, event_id
from dockwork.store.protocol import Event, EventMode, EventOptions, QueueErrors

_CHECKED_EVERY_MS = 10_000
_FEWEST = 100
#: What an entry weighs besides its texts, about.
_ENTRY_BYTES = 40
EVENTS_AT_ONCE = 1000


def set_events(queue: MemoryQueue, options: EventOptions) -> None:
    """Say where the events go; what no longer is kept is deleted."""
    queue.event_options = options
    if options.mode is not EventMode.STREAM:
        queue.events.clear()


def events_after(queue: MemoryQueue, since: tuple[int, int]) -> list[Event]:
    """Entries after `since`, the first of them marked if that one is gone: so may be what followed it."""
    found: list[Event] = []
    gap_from = "" if since == (0, 0) else "{}-{}".format(*since)
    for event in reversed(queue.events):
        if event_id(event.id) <= since:
            gap_from = "" if event_id(event.id) == since else gap_from
            break
        found.append(event)
    found = found[::-1][:EVENTS_AT_ONCE]
    if found and gap_from:
        found[0] = _with_gap(found[0], gap_from)
    return found


def _with_gap(event: Event, gap_from: str) -> Event:
    return Event(
        id=event.id,
        name=event.name,
        ids=event.ids,
        reason=event.reason,
        data=event.data,
        queue=event.queue,
        gap_from=gap_from,
    )


def cap_events(turn: Turn) -> None:
    """Hold the events to their bytes: looked at each 10 s, cut to 90 % of the cap, never under 100 entries."""
    queue, limit = turn.queue, turn.queue.event_options.max_bytes
    if len(queue.events) <= _FEWEST or turn.ms - queue.events_checked < _CHECKED_EVERY_MS:
        return
    queue.events_checked = turn.ms
    limit = STREAM_BYTES if limit is None else limit
    size = sum(map(_size_of, queue.events)) if limit else 0
    if size > limit:
        keep = max(int(len(queue.events) * (limit / size) * 0.9), _FEWEST)
        while len(queue.events) > keep:
            queue.events.popleft()


def _size_of(event: Event) -> int:
    return _ENTRY_BYTES + len(event.name) + len(event.reason) + sum(len(job_id) + 1 for job_id in event.ids)


def errors(queue: MemoryQueue, limit: int) -> QueueErrors:
    """The last error reports, and the figures of every job type."""
    reports: Sequence[bytes] = list(queue.reports)[: min(limit, REPORTS)]
    return QueueErrors(
        recent=tuple(read_report(queue.keys.name.queue, report) for report in reports),
        by_type=read_figures(dict(queue.type_figures)),
    )
