"""Limits of a queue in memory: rate, concurrency, and jobs that wait aside while their concurrency key is full.

The rules are those of `lua/lib/enter_key`, `free_keys`, `rate_buckets` and their like, which say why they are so.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dockwork.core.states import State
from dockwork.store.memory_index import Index
from dockwork.store.operator_calls import read_rate

if TYPE_CHECKING:
    from dockwork.store.memory_queue import MemoryQueue, Record, Turn

PRIORITY_STEP = 2**44
_LOOKED_AT = 1000
_LET_IN = 500


class KeyState:
    """Of the jobs with one concurrency key: how many run, and how many of the others may be claimed."""

    __slots__ = ("running", "waiting")

    def __init__(self) -> None:
        self.running = self.waiting = 0


class Limits:
    """How far the limits of one queue are used.

    throttled    until when the rate lets nothing start; `told`: the time for which a marker was posted
    """

    def __init__(self) -> None:
        self.keys: dict[str, KeyState] = {}
        self.held: dict[str, Index] = {}
        self.freed: dict[str, None] = {}
        self.starts: Counter[int] = Counter()
        self.width = 0
        self.throttled = self.told = 0

    def state_of(self, key: str) -> KeyState:
        return self.keys.setdefault(key, KeyState())

    def hold_back(self, record: Record) -> None:
        """Let a job wait aside at its own place."""
        self.held.setdefault(record.key, Index()).add(record.id, place_of(record))

    def unhold(self, record: Record) -> bool:
        """Take a job out of those that wait aside. Answers whether it was there."""
        index = self.held.get(record.key)
        if index is None or not index.remove(record.id):
            return False
        if not index:
            del self.held[record.key]
        return True

    def leave(self, record: Record, what: str) -> None:
        """A job no longer counts for its key: it was ``running`` or ``waiting``."""
        if record.key:
            state = self.state_of(record.key)
            setattr(state, what, max(getattr(state, what) - 1, 0))
            self.freed[record.key] = None

    def look_again(self) -> None:
        """Let `free_keys` look at every key for which jobs wait aside."""
        self.freed |= dict.fromkeys(sorted(self.held)[:_LOOKED_AT])

    def held_ids(self, *states: State) -> list[str]:
        """The jobs that wait aside, key by key, those of each in their order."""
        found: list[str] = []
        for key in sorted(self.held):
            index = self.held[key]
            if State.READY in states and State.PRIORITIZED in states:
                found += index.page(0, len(index))
            elif State.READY in states:
                found += index.between(0, PRIORITY_STEP - 1, len(index))
            else:
                found += index.between(None, -1, len(index)) + index.between(PRIORITY_STEP, None, len(index))
        return found


def place_of(record: Record) -> int:
    """The score of a job among the ready or the prioritized."""
    return record.priority * PRIORITY_STEP + record.seq


def limit_of(queue: MemoryQueue, record: Record) -> int:
    """How many jobs of this one's key may run."""
    return queue.number("per_key", 1) if record.per_key is None else record.per_key


def enter_key(queue: MemoryQueue, record: Record) -> bool:
    """Whether a job may wait among those that can be claimed; else it waits aside."""
    key, limits = record.key, queue.limits
    if not key:
        return True
    state = limits.state_of(key)
    if state.running + (0 if record.priority < 0 else state.waiting) < limit_of(queue, record):
        first = limits.held[key].first() if key in limits.freed and key in limits.held else None
        if first is None or first >= place_of(record):
            state.waiting += 1
            return True
    limits.hold_back(record)
    return False


def free_keys(turn: Turn) -> None:
    """Let the first jobs that wait aside return to their places, as many as each freed key has room for."""
    queue, limits = turn.queue, turn.queue.limits
    freed, limits.freed = limits.freed, {}
    for key in freed:
        moved = 0
        while key in limits.held and moved < _LET_IN:
            record = queue.records[limits.held[key].page(0, 1)[0]]
            state = limits.state_of(key)
            if state.running + state.waiting >= limit_of(queue, record):
                break
            limits.unhold(record)
            index = queue.prio if record.priority else queue.ready
            index.add(record.id, place_of(record))
            state.waiting += 1
            turn.claimable += 1
            turn.tally("entered")
            turn.tally_minute("a")
            moved += 1
        if key in limits.keys and not (limits.keys[key].running or limits.keys[key].waiting):
            del limits.keys[key]


def is_full(queue: MemoryQueue, record: Record) -> bool:
    """Whether as many jobs of this one's key run as may."""
    key = record.key
    return bool(key) and queue.limits.state_of(key).running >= limit_of(queue, record)


def start_key(queue: MemoryQueue, record: Record) -> None:
    """A job is claimed: from those that wait, unless it was parked, to those that run."""
    if record.key:
        state = queue.limits.state_of(record.key)
        state.running += 1
        if record.state is not State.PARKED:
            state.waiting = max(state.waiting - 1, 0)


def put_aside(turn: Turn, record: Record) -> None:
    """A job that a claim came to waits aside, for its key is full; one that was parked is ready from then on."""
    limits = turn.queue.limits
    if record.state is State.PARKED:
        record.state = State.PRIORITIZED if record.priority else State.READY
        record.parked_type = ""
        turn.note(record.state, record.id, "unparked")
    else:
        state = limits.state_of(record.key)
        state.waiting = max(state.waiting - 1, 0)
    limits.hold_back(record)


# --- rate and concurrency


def places_left(turn: Turn) -> int | None:
    """How many jobs the limits let a claim take now; None: as many as it likes."""
    queue, found = turn.queue, []
    if "concurrency" in queue.options:
        found.append(queue.number("concurrency", 0) - len(queue.lease))
    rate = read_rate(queue.options.get("rate", "").encode())
    if rate is not None:
        _move_buckets(queue, turn.ms, rate.per_ms)
        found.append(rate.count - queue.limits.starts.total())
    return max(min(found), 0) if found else None


def _move_buckets(queue: MemoryQueue, now_ms: int, per_ms: int) -> None:
    """Keep the starts that still count, in buckets of a hundredth of the period."""
    limits, width = queue.limits, -(-per_ms // 100)
    was, at = limits.width or width, now_ms // width
    moved: Counter[int] = Counter()
    for bucket, starts in limits.starts.items():
        now_in = bucket if was == width else ((bucket + 1) * was - 1) // width
        if (min(now_in, at) + 1) * width > now_ms - per_ms:
            moved[min(now_in, at)] += starts
    limits.starts, limits.width = moved, width


def count_starts(turn: Turn, number: int) -> int | None:
    """Enter the starts of a claim. Answers when the rate lets something start that waits now, or None."""
    queue, limits = turn.queue, turn.queue.limits
    rate = read_rate(queue.options.get("rate", "").encode())
    if rate is None:
        return None
    if number:
        limits.starts[turn.ms // limits.width] += number
    over, limits.throttled = limits.starts.total() - rate.count, 0
    for bucket in sorted(limits.starts) if over >= 0 else ():
        over -= limits.starts[bucket]
        if over < 0:
            limits.throttled = (bucket + 1) * limits.width + rate.per_ms
            break
    if limits.throttled <= turn.ms or not queue.claimable:
        return None
    _tell(queue)
    return limits.throttled


def is_barred(queue: MemoryQueue, now_ms: int) -> bool:
    """Whether the limits let nobody take what just became claimable; a rate leaves one marker for its end."""
    if "concurrency" in queue.options and len(queue.lease) >= queue.number("concurrency", 0):
        return True
    if "rate" in queue.options and queue.limits.throttled > now_ms:
        _tell(queue)
        return True
    return False


def _tell(queue: MemoryQueue) -> None:
    limits = queue.limits
    if limits.told != limits.throttled:
        queue.wake.add("rate", limits.throttled)
        limits.told = limits.throttled


def throttled_by(queue: MemoryQueue, till_ms: int) -> dict[str, int]:
    """How many jobs wait behind what; a rate that lets something start by `till_ms` bars nothing."""
    held = sum(map(len, queue.limits.held.values()))
    by = {"paused": 0, "rate": 0, "concurrency": 0, "key": held}
    if queue.paused or queue.held:
        by |= {"paused": queue.claimable + held, "key": 0}
    elif "concurrency" in queue.options and len(queue.lease) >= queue.number("concurrency", 0):
        by["concurrency"] = queue.claimable
    elif "rate" in queue.options and queue.limits.throttled > till_ms:
        by["rate"] = queue.claimable
    return by


def change_limits(turn: Turn) -> None:
    """After options were written: what a new limit may let through is looked at."""
    queue, limits = turn.queue, turn.queue.limits
    limits.throttled = limits.told = 0
    queue.wake.remove("rate")
    if "rate" not in queue.options:
        limits.starts.clear()
        limits.width = 0
    limits.look_again()
    turn.claimable = queue.claimable
