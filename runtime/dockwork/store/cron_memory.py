"""The part of the in-memory store that keeps schedules: the same rules as the scripts, in Python.

`lua/lib` says why each rule is as it is; the function names here are those of the includes.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dockwork.core.keys import QueueName
from dockwork.core.states import ENDED, WAITING, State
from dockwork.store.cron_calls import check_entry, check_instants
from dockwork.store.cron_plans import Refilled
from dockwork.store.protocol import Admission, Admitted, CronEntry, CronState, NewJob, Ticked

FRESH_MS = 60_000
STOPS_AFTER_MS = 7 * 86_400_000
KEPT_MS = 86_400_000
MOST_DUE = 2_000
MOST_LEDGER = 2_000
_REFUSALS = {
    "closed": "QueueClosed",
    "depth": "QueueFull",
    "bytes": "QueueFull",
    "payload": "TooLarge",
    "timeout": "TimeoutAboveQueueMax",
}


@dataclass(kw_only=True, slots=True)
class _Schedule:
    """What the ledger knows of one schedule."""

    entry: CronEntry
    generation: int
    cursor: int
    refreshed: int
    planned_to: int = 0
    suspended: bool = False
    lost: int = 0
    runs: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    last: dict[str, str] = field(default_factory=dict)
    last_missed: dict[str, str] = field(default_factory=dict)
    last_skipped: dict[str, str] = field(default_factory=dict)
    active: list[str] = field(default_factory=list)
    plan: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    stopped: bool = False
    short: bool = False  #: nothing is decided until the plan reaches the present again

    @property
    def every(self) -> int:
        return self.entry.every_ms or 0


@dataclass(kw_only=True, slots=True)
class _Tick:
    at: int
    fresh: bool
    run: bool
    outcome: str = ""
    reason: str = ""
    job_id: str = ""


class CronMemory(Refilled):
    """Schedules in this process' memory. `MemoryStore` is one; nothing here waits, so each call is atomic."""

    def __init__(self) -> None:
        self._schedules: dict[QueueName, dict[str, _Schedule]] = {}

    @abstractmethod
    def _now_ms(self) -> int:
        """The store's clock."""

    @abstractmethod
    def _state_of(self, queue: QueueName, job_id: str) -> State | None:
        """The state of a job, None if there is no record of it."""

    @abstractmethod
    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> list[Admission]: ...

    # --- what is sealed of them

    def scheduled_jobs(self, queue: QueueName) -> dict[str, NewJob]:
        """What each schedule's ticks enqueue, by uid."""
        return {uid: known.entry.job for uid, known in self._schedules.get(queue, {}).items()}

    def reschedule_job(self, queue: QueueName, uid: str, job: NewJob) -> None:
        """Let the ticks of a schedule enqueue another job; its times stay."""
        known = self._schedules[queue][uid]
        known.entry = replace(known.entry, job=job)

    # --- plans

    async def plan(
        self,
        queue: QueueName,
        entry: CronEntry,
        instants_ms: Sequence[int],
        *,
        generation: int,
        reset: bool,
        from_ms: int = 0,
        decided_ms: int | None = None,
        left_out: int = 0,
    ) -> str:
        check_entry(entry)
        check_instants(instants_ms)
        known, now = self._schedules.setdefault(queue, {}).get(entry.uid), self._now_ms()
        if known is not None and generation < known.generation:
            return "stale"
        is_new = known is None or known.entry.schedule_hash != entry.schedule_hash
        if known is not None and not is_new and not reset and _leaves_a_hole(known, entry, from_ms):
            return "stale"
        if known is None:
            known = _Schedule(entry=entry, generation=generation, cursor=decided_ms or now, refreshed=now)
            self._schedules[queue][entry.uid] = known
        elif is_new or (known.suspended and not entry.suspended):
            known.cursor = max(known.cursor, now)
        elif decided_ms is not None and decided_ms > known.cursor:
            known.lost = decided_ms
        known.entry, known.generation, known.refreshed = entry, generation, now
        known.suspended, known.stopped = entry.suspended, False
        if left_out and not is_new and not known.suspended:
            known.missed["Policy"] += left_out
        if is_new:
            known.plan, known.planned_to = [], 0
        elif reset:
            known.plan = known.plan[: bisect_right(known.plan, now)]
            known.planned_to = max(known.cursor, min(known.planned_to, now))
        _add(known, instants_ms)
        return "ok"

    async def _extend(
        self, queue: QueueName, state: CronState, instants_ms: Sequence[int], *, from_ms: int, left_out: int
    ) -> str:
        known = self._schedules.get(queue, {}).get(state.uid)
        if (
            known is None
            or known.entry.schedule_hash != state.schedule_hash
            or state.generation < known.generation
        ):
            return "stale"
        if _leaves_a_hole(known, known.entry, from_ms):
            return "stale"
        if left_out and not known.suspended:
            known.missed["Policy"] += left_out
        _add(known, instants_ms)
        return "ok"

    async def suspend(self, queue: QueueName, uid: str) -> str:
        known = self._schedules.get(queue, {}).get(uid)
        if known is None:
            return "stale"
        known.suspended = True
        return "ok"

    async def resume(self, queue: QueueName, uid: str) -> str:
        known = self._schedules.get(queue, {}).get(uid)
        if known is None:
            return "stale"
        if known.suspended:
            known.cursor = max(known.cursor, self._now_ms())
            known.plan = known.plan[bisect_right(known.plan, known.cursor) :]
        known.suspended = False
        return "ok"

    async def unplan(self, queue: QueueName, uid: str) -> bool:
        return self._schedules.get(queue, {}).pop(uid, None) is not None

    # --- ticks

    async def tick(self, queue: QueueName, uid: str | None = None, *, by: str = "worker") -> list[Ticked]:
        schedules, ticked = self._schedules.get(queue, {}), list[Ticked]()
        for one in _in_turn(schedules) if uid is None else [uid]:
            if one in schedules:
                ticked += await self._tick(queue, schedules[one], by)
        return ticked

    async def _tick(self, queue: QueueName, known: _Schedule, by: str) -> list[Ticked]:
        now, entry = self._now_ms(), known.entry
        silent = now - known.refreshed > STOPS_AFTER_MS and not entry.lasting
        known.stopped = known.stopped or silent
        if known.suspended or known.stopped or _is_used_up(known):
            return []
        due, older = _due_instants(known, now)
        if not due:
            return []
        chosen = _choose_ticks(known, due, now)
        if not known.every and not chosen[0].fresh and known.planned_to < now:
            known.short = True
            return []
        await self._admit_ticks(queue, known, chosen)
        if older:
            reason = _missed_reason(entry, due[0], now)
            known.missed[reason] += older
        decided = []
        for tick in chosen:
            if not tick.outcome and not _is_used_up(known):
                tick.outcome = "missed"
            if tick.outcome:
                _count_tick(known, tick, now, by)
                decided.append(tick)
        known.cursor = now if known.every else max(known.cursor, min(now, known.planned_to))
        known.plan = known.plan[bisect_right(known.plan, known.cursor) :]
        kept = now - max(entry.starting_deadline_ms or 0, KEPT_MS)
        known.made = known.made[bisect_left(known.made, kept) :][-MOST_LEDGER:]
        return [
            Ticked(uid=entry.uid, at_ms=t.at, outcome=t.outcome, reason=t.reason, job_id=t.job_id)
            for t in decided[-100:]
        ]

    async def _admit_ticks(self, queue: QueueName, known: _Schedule, chosen: Sequence[_Tick]) -> None:
        entry = known.entry
        known.active, waiting = self._unfinished(queue, known)
        jobs: list[NewJob] = []
        admitted: list[_Tick] = []
        for tick in chosen:
            if not tick.run or (entry.max_runs is not None and known.runs + len(jobs) >= entry.max_runs):
                continue
            tick.job_id = f"cron-{entry.uid}-{tick.at}"
            if self._state_of(queue, tick.job_id) is not None or tick.at in known.made:
                tick.outcome = "already"
            elif entry.concurrency_policy == "Forbid" and (known.active or jobs):
                tick.outcome, tick.reason = "skipped", "StillRunning"
            elif tick.fresh and entry.max_pending is not None and waiting + len(jobs) >= entry.max_pending:
                tick.outcome, tick.reason = "skipped", "Pending"
            else:
                jobs.append(_job_of(entry, tick))
                admitted.append(tick)
        if jobs:
            for tick, admission in zip(admitted, await self.enqueue(queue, jobs), strict=True):
                tick.outcome, tick.reason = _outcome(admission)
        for tick in chosen:
            if tick.outcome in ("fired", "already"):
                known.active.append(tick.job_id)
                if tick.at not in known.made:
                    insort(known.made, tick.at)

    def _unfinished(self, queue: QueueName, known: _Schedule) -> tuple[list[str], int]:
        states = {job_id: self._state_of(queue, job_id) for job_id in known.active}
        ids = [job_id for job_id, state in states.items() if state is not None and state not in ENDED]
        return ids, sum(states[job_id] in WAITING for job_id in ids)

    # --- looking

    async def cron_states(self, queue: QueueName, uids: Sequence[str] | None = None) -> list[CronState]:
        known = self._schedules.get(queue, {})
        wanted: Iterable[str] = known if uids is None else uids
        return [self._cron_state(queue, known[uid]) for uid in wanted if uid in known]

    def _cron_state(self, queue: QueueName, known: _Schedule) -> CronState:
        entry, now = known.entry, self._now_ms()
        active, pending = self._unfinished(queue, known)
        return CronState(
            uid=entry.uid,
            schedule_hash=entry.schedule_hash,
            cursor_ms=known.cursor,
            next_ms=_next_instant(known),
            planned=len(known.plan) - bisect_right(known.plan, max(known.cursor, now)),
            last_planned_ms=known.planned_to,
            suspended=known.suspended,
            runs=known.runs,
            missed=known.missed.total(),
            skipped=known.skipped.total(),
            active=tuple(active),
            pending=pending,
            last=dict(known.last),
            last_missed=dict(known.last_missed),
            last_skipped=dict(known.last_skipped),
            missed_by=dict(known.missed),
            skipped_by=dict(known.skipped),
            generation=known.generation,
            every_ms=entry.every_ms,
            tzdata=entry.tzdata,
            calendar=entry.calendar,
            refreshed_ms=known.refreshed,
            lost_ms=known.lost,
            now_ms=now,
        )

    def _next_tick_ms(self, queue: QueueName) -> int | None:
        """The first instant of all schedules that is not decided."""
        return min(self._filed(queue), default=None)

    def _ticks_before(self, queue: QueueName, ms: int) -> int:
        """Schedules that are due by `ms`."""
        return sum(at <= ms for at in self._filed(queue))

    def _filed(self, queue: QueueName) -> Iterator[int]:
        """The next instants of all schedules for which a tick can do something."""
        for known in self._schedules.get(queue, {}).values():
            first = _next_instant(known)
            if first is not None and not known.short:
                yield first


def _leaves_a_hole(known: _Schedule, entry: CronEntry, from_ms: int) -> bool:
    return entry.every_ms is None and from_ms > max(known.planned_to, known.cursor)


def _add(known: _Schedule, instants_ms: Sequence[int]) -> None:
    known.short = False
    known.plan = known.plan[bisect_right(known.plan, known.cursor) :]
    after = max(known.cursor, known.planned_to)
    added = [at for at in instants_ms if at > after]
    known.plan += added
    known.planned_to = added[-1] if added else known.planned_to


def _in_turn(schedules: Mapping[str, _Schedule]) -> list[str]:
    """The schedules that have a next instant, by it."""
    first = {uid: _next_instant(known) for uid, known in schedules.items()}
    return [uid for _, uid in sorted((at, uid) for uid, at in first.items() if at is not None)]


def _is_used_up(known: _Schedule) -> bool:
    return known.entry.max_runs is not None and known.runs >= known.entry.max_runs


def _next_instant(known: _Schedule) -> int | None:
    if known.suspended or known.stopped or _is_used_up(known):
        return None
    if known.every:
        first = (known.cursor // known.every + 1) * known.every
    else:
        at = bisect_right(known.plan, known.cursor)
        if at == len(known.plan):
            return None
        first = known.plan[at]
    until = known.entry.until_ms
    return None if until is not None and first > until else first


def _due_instants(known: _Schedule, now: int) -> tuple[list[int], int]:
    last = now if known.entry.until_ms is None else min(known.entry.until_ms, now)
    if known.every:
        span: Sequence[int] = range(known.cursor // known.every + 1, last // known.every + 1)
        return [n * known.every for n in span[-MOST_DUE:]], max(len(span) - MOST_DUE, 0)
    span = known.plan[bisect_right(known.plan, known.cursor) : bisect_right(known.plan, last)]
    return list(span[-MOST_DUE:]), max(len(span) - MOST_DUE, 0)


def _choose_ticks(known: _Schedule, due: Sequence[int], now: int) -> list[_Tick]:
    entry = known.entry
    deadline = entry.starting_deadline_ms
    young = FRESH_MS if deadline is None else min(FRESH_MS, deadline)
    chosen = []
    for at in due:
        fresh = now - at <= young and at > known.lost
        reason = "" if fresh else "RedisDataLost" if at <= known.lost else _missed_reason(entry, at, now)
        chosen.append(_Tick(at=at, fresh=fresh, run=fresh, reason=reason))
    rest = 0
    if entry.missed_run_policy == "All":
        rest = entry.max_catch_up
    elif entry.missed_run_policy == "Latest" and not any(tick.fresh for tick in chosen):
        rest = 1
    for tick in reversed(chosen):
        if rest and not tick.fresh and (deadline is None or now - tick.at <= deadline):
            tick.run = True
            rest -= 1
    return chosen


def _missed_reason(entry: CronEntry, at: int, now: int) -> str:
    deadline = entry.starting_deadline_ms
    return "Policy" if deadline is None or now - at <= deadline else "Deadline"


def _job_of(entry: CronEntry, tick: _Tick) -> NewJob:
    due = tick.at
    if entry.jitter_ms:
        digest = hashlib.sha1(f"{entry.uid}:{tick.at}".encode(), usedforsecurity=False).hexdigest()
        due += int(digest[:8], 16) % (entry.jitter_ms // 1000 + 1) * 1000
    return replace(entry.job, id=tick.job_id, due_at_ms=due, scheduled_for_ms=tick.at)


def _outcome(admission: Admission) -> tuple[str, str]:
    if admission.outcome is Admitted.REJECTED:
        return "skipped", _REFUSALS[admission.reason]
    return "fired", ""


def _count_tick(known: _Schedule, tick: _Tick, now: int, by: str) -> None:
    if tick.outcome in ("fired", "already"):
        tick.reason = ""
    said = {"at": str(tick.at), "decided": str(now), "reason": tick.reason}
    match tick.outcome:
        case "fired":
            known.runs += 1
        case "missed":
            known.missed[tick.reason] += 1
            known.last_missed = said
        case "skipped":
            known.skipped[tick.reason] += 1
            known.last_skipped = said
    if tick.outcome != "already":
        known.last = {**said, "id": tick.job_id, "outcome": tick.outcome, "by": by}
