"""What the operator remembers of one Queue between reconciles. Losing it costs patience, never a job.

`decide_queue` returns the memory with what it saw; `remember` adds what was really done. A new process starts
with `seed_memory`, which reads the status back (OP-143): up is allowed at once, down only after a whole
window.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from dockwork_operator.constants import Condition
from dockwork_operator.decide.plan import (
    Action,
    Applied,
    ApplyChild,
    ApplyFailure,
    Configure,
    DeleteChild,
    FailureKind,
    Plan,
    QueueSettings,
    Scale,
    Unquiesce,
    Upkeep,
)
from dockwork_operator.models.queues import QueueStatus

POD_START_SEED_S = 10.0

#: How long a refused request is not repeated, unless the spec changes (OP-101).
REFUSED_FOR: Mapping[FailureKind, timedelta] = {
    FailureKind.FORBIDDEN: timedelta(minutes=5),
    FailureKind.REJECTED: timedelta(seconds=60),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """The smoothed figures of the scaling loop and the counters they are taken from.

    arrivals    L, jobs per second, 15 s
    active      A, jobs leased, 60 s
    finishes    X, jobs per second, 60 s
    service_s   S, seconds per job
    arrived_ms  Redis TIME of the last sample that saw an arrival, or of the first one of its counters
    time_ms     Redis TIME of the sample that they include, 0 = none yet
    """

    service_s: float
    arrivals: float = 0.0
    active: float = 0.0
    finishes: float = 0.0
    arrived_ms: int = 0
    time_ms: int = 0
    entered: int = 0
    finished: int = 0
    run_id: str = ""


class Stage(StrEnum):
    """Where a safe scale-down is. The costs are set in the quiesced stage, once every victim is confirmed."""

    QUIESCING = "Quiescing"
    SCALED = "Scaled"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleDown:
    """A scale-down that is under way: one at a time per Queue (OP-160 to OP-167).

    victims     pod UIDs, in the order in which they were chosen
    survivors   pod UIDs that must stay, known when the scale was written
    """

    token: str
    victims: tuple[str, ...]
    began: datetime
    stage: Stage = Stage.QUIESCING
    survivors: tuple[str, ...] = ()
    scaled_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Interrupted:
    """Jobs that a stop of their pod interrupted since this Queue was first seen (OP-223)."""

    requeued: int = 0
    killed: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreed:
    """A child that needs no apply, so that it is not compared (or applied) again and again.

    digest     of the manifest
    version    resourceVersion that was compared, "" if it was applied over `content` instead
    content    digest of what the live object declared then
    at         when it was applied
    """

    digest: str
    version: str = ""
    content: str = ""
    at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Everything that is kept for one Queue, by the UID of the object.

    since             this process began to decide for it: no scale-down before a full window
    window            (instant, raw figure) of the scaling ticks, oldest first
    asked             replicas that we last wrote, None if we wrote none
    contested         instants at which other replicas were found than we wrote, the last 5 minutes
    frozen_until      no scale-down and no rollout before (OP-148)
    redis_lost_since  no sample since then, None while it can be read
    redis_reached     it was read once, by this process or by the status
    configured        settings that were last written to Redis, and when the owner record was renewed
    owned             our owner record was written, and is there as far as we know
    looked_ms         Redis TIME of the last sample
    configured_ms     Redis TIME of the sample before the last write of settings and record
    started_pods      pods whose start was measured already
    endings           pod UID -> why it ends
    abandoned         Redis' counter of jobs put back at a worker's end, None before the first look
    leased            leases by pod UID, of the last sample
    ends_seen         (pod UID, restarts) whose container end was counted already
    not_ready_since   more pods are wanted than 0 and none has been ready since then
    status_written_at of the last status write, for the pace of fast figures
    failure           what stopped the last apply, until an apply goes through
    failures          applies that failed in a row
    blocked           what the API server refused -> when it may be tried again, unless the spec changes
    agreed            children that were compared or applied, by subject
    wanted            replicas that were decided last
    status            that this process wrote last, None if it wrote none
    """

    since: datetime
    rates: Rates
    window: tuple[tuple[datetime, int], ...] = ()
    asked: int | None = None
    asked_at: datetime | None = None
    contested: tuple[datetime, ...] = ()
    scale_down: ScaleDown | None = None
    pod_start_s: float = POD_START_SEED_S
    started_pods: frozenset[str] = frozenset()
    redis_reached: bool = False
    redis_lost_since: datetime | None = None
    run_id: str = ""
    owned: bool = False
    looked_ms: int = 0
    configured_ms: int = 0
    frozen_until: datetime | None = None
    configured: QueueSettings | None = None
    configured_at: datetime | None = None
    upkeep_at: datetime | None = None
    stranded_since: datetime | None = None
    not_ready_since: datetime | None = None
    endings: Mapping[str, str] = field(default_factory=dict)
    abandoned: int | None = None
    ends_seen: frozenset[tuple[str, int]] = frozenset()
    leased: Mapping[str, int] = field(default_factory=dict)
    interrupted: Interrupted = Interrupted()
    status_written_at: datetime | None = None
    failure: ApplyFailure | None = None
    failed_at: datetime | None = None
    failures: int = 0
    blocked: Mapping[str, datetime] = field(default_factory=dict)
    blocked_generation: int = 0
    agreed: Mapping[str, Agreed] = field(default_factory=dict)
    wanted: int | None = None
    status: Mapping[str, Any] | None = field(default=None, repr=False)

    def is_blocked(self, subject: str, now: datetime) -> bool:
        """The API server refused it a short while ago."""
        until = self.blocked.get(subject)
        return until is not None and now < until


def seed_memory(status: Mapping[str, Any], expected: timedelta, now: datetime) -> Memory:
    """The memory of a process that has just begun, with what the status still knows.

    expected   seed of the service time: `spec.scaling.expectedDuration`
    """
    try:
        read = QueueStatus.model_validate(status)
    except ValidationError:  # of another version: patience is all that is lost
        read = QueueStatus()
    last = read.scaling.last_decision if read.scaling is not None else None
    interrupted = read.rollout.interrupted if read.rollout is not None else None
    start_ms = read.workers.pod_start_millis if read.workers is not None else 0
    run_id = read.redis.run_id if read.redis is not None else ""
    return Memory(
        since=now,
        rates=Rates(
            service_s=last.service_millis / 1000
            if last is not None and last.service_millis
            else max(expected.total_seconds(), 0.001),
            arrivals=last.arrivals_per_minute / 60 if last is not None else 0.0,
        ),
        pod_start_s=start_ms / 1000 if start_ms else POD_START_SEED_S,
        redis_reached=bool(run_id),
        run_id=run_id,
        interrupted=Interrupted(requeued=interrupted.requeued, killed=interrupted.killed)
        if interrupted is not None
        else Interrupted(),
        wanted=read.scaling.wanted if read.scaling is not None else None,
        stranded_since=next(
            (
                c.last_transition_time
                for c in read.conditions
                if c.type == Condition.STRANDED_JOBS and c.status == "True"
            ),
            None,
        ),
    )


def remember(plan: Plan, applied: Applied, now: datetime) -> Memory:
    """The plan's memory, with what was carried out of it."""
    memory = plan.memory
    for action in applied.done:
        match action:
            case Configure(settings=settings):
                memory = replace(
                    memory,
                    configured=settings,
                    configured_at=now,
                    configured_ms=memory.looked_ms,
                    owned=True,
                )
            case Scale(to=to):
                memory = replace(memory, asked=to, asked_at=now)
                down = memory.scale_down
                if down is not None and action.resource_version is not None:
                    memory = replace(memory, scale_down=replace(down, stage=Stage.SCALED, scaled_at=now))
            case Upkeep():
                memory = replace(memory, upkeep_at=now)
            case Unquiesce(pods=pods):
                memory = replace(memory, scale_down=_without(memory.scale_down, pods))
            case _:
                pass
    if applied.status_written:
        memory = replace(memory, status_written_at=now, status=plan.status)
    done = {subject_of(action) for action in applied.done}
    blocked = {subject: until for subject, until in memory.blocked.items() if subject not in done}
    if applied.failure is None:
        # While something is refused its failure stays, although nobody tries for now.
        failure = memory.failure if blocked else None
        return replace(memory, failure=failure, failed_at=memory.failed_at, failures=0, blocked=blocked)
    kind = applied.failure.kind
    memory = _disagree(memory, {subject_of(action) for action in plan.actions} - done)
    if kind in REFUSED_FOR and len(applied.done) < len(plan.actions):
        blocked[subject_of(plan.actions[len(applied.done)])] = now + REFUSED_FOR[kind]
    return replace(
        memory,
        failure=memory.failure if kind is FailureKind.CONFLICT else applied.failure,
        failed_at=now,
        failures=memory.failures + 1,
        blocked=blocked,
        blocked_generation=plan.generation,
    )


def untried(plan: Plan, applied: Applied, now: datetime) -> Memory:
    """The plan's memory when its actions were held back on purpose: what failed last still stands."""
    memory = _disagree(plan.memory, {subject_of(action) for action in plan.actions})
    if not applied.status_written:
        return memory
    return replace(memory, status_written_at=now, status=plan.status)


def _disagree(memory: Memory, undone: set[str]) -> Memory:
    """What was not applied does not agree."""
    agreed = {subject: how for subject, how in memory.agreed.items() if subject not in undone}
    return replace(memory, agreed=agreed)


def subject_of(action: Action) -> str:
    """What an action is about: refused for one, it is refused for the next."""
    match action:
        case ApplyChild():
            return subject_of_child(action.kind, action.name)
        case DeleteChild(kind=kind, name=name):
            return f"delete {kind}/{name}"
        case Scale(name=name):
            return f"scale {name}"
        case _:
            return type(action).__name__


def subject_of_child(kind: str, name: str) -> str:
    """The apply of one child."""
    return f"{kind}/{name}"


def _without(down: ScaleDown | None, pods: tuple[str, ...]) -> ScaleDown | None:
    """Released pods are no victims any more; without victims there is no scale-down."""
    if down is None:
        return None
    left = tuple(v for v in down.victims if v not in pods)
    return replace(down, victims=left) if left else None
