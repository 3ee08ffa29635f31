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

from dockwork_operator.decide.plan import (
    Applied,
    ApplyFailure,
    Configure,
    FailureKind,
    Plan,
    QueueSettings,
    Scale,
    Unquiesce,
)
from dockwork_operator.decide.seen import OwnerSeen, read_time

POD_START_SEED_S = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """The smoothed figures of the scaling loop and the counters they are taken from.

    arrivals    L, jobs per second, 15 s
    active      A, jobs leased, 60 s
    finishes    X, jobs per second, 60 s
    service_s   S, seconds per job
    time_ms     Redis TIME of the sample that they include, 0 = none yet
    """

    service_s: float
    arrivals: float = 0.0
    active: float = 0.0
    finishes: float = 0.0
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
class Drained:
    """The counts of a worker process that were already added up."""

    requeued: int = 0
    lost: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Interrupted:
    """Jobs that a stop of their pod interrupted since this Queue was first seen (OP-223)."""

    requeued: int = 0
    killed: int = 0


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
    started_pods      pods whose start was measured already
    ends_seen         (pod UID, restarts) whose container end was counted already
    not_ready_since   more pods are wanted than 0 and none has been ready since then
    status_written_at of the last status write, for the pace of fast figures
    failure           what stopped the last apply, until an apply goes through
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
    frozen_until: datetime | None = None
    configured: QueueSettings | None = None
    configured_at: datetime | None = None
    upkeep_at: datetime | None = None
    stranded_since: datetime | None = None
    not_ready_since: datetime | None = None
    drains: Mapping[str, Drained] = field(default_factory=dict)
    ends_seen: frozenset[tuple[str, int]] = frozenset()
    leased: Mapping[str, int] = field(default_factory=dict)
    interrupted: Interrupted = Interrupted()
    status_written_at: datetime | None = None
    failure: ApplyFailure | None = None
    failed_at: datetime | None = None
    failures: int = 0
    #: What the plan wants remembered of an action that it contains, if it is carried out.
    wanted: int | None = None


def seed_memory(status: Mapping[str, Any], expected: timedelta, now: datetime) -> Memory:
    """The memory of a process that has just begun, with what the status still knows.

    expected   seed of the service time: `spec.scaling.expectedDuration`
    """
    scaling = status.get("scaling") or {}
    last = scaling.get("lastDecision") or {}
    service_ms = last.get("serviceMillis") or 0
    per_minute = last.get("arrivalsPerMinute") or 0
    workers = status.get("workers") or {}
    interrupted = (status.get("rollout") or {}).get("interrupted") or {}
    run_id = (status.get("redis") or {}).get("runID") or ""
    return Memory(
        since=now,
        rates=Rates(
            service_s=service_ms / 1000 if service_ms else max(expected.total_seconds(), 0.001),
            arrivals=per_minute / 60,
        ),
        pod_start_s=(workers.get("podStartMillis") or POD_START_SEED_S * 1000) / 1000,
        redis_reached=bool(run_id),
        run_id=run_id,
        interrupted=Interrupted(
            requeued=interrupted.get("requeued") or 0, killed=interrupted.get("killed") or 0
        ),
        wanted=scaling.get("wanted"),
        stranded_since=_since(status, "StrandedJobs"),
    )


def _since(status: Mapping[str, Any], condition: str) -> datetime | None:
    for c in status.get("conditions") or ():
        if c.get("type") == condition and c.get("status") == "True":
            return read_time(c.get("lastTransitionTime"))
    return None


def remember(plan: Plan, applied: Applied, now: datetime) -> Memory:
    """The plan's memory, with what was carried out of it."""
    memory = plan.memory
    for action in applied.done:
        match action:
            case Configure(settings=settings):
                memory = replace(memory, configured=settings, configured_at=now, owned=True)
            case Scale(to=to):
                memory = replace(memory, asked=to, asked_at=now)
                down = memory.scale_down
                if down is not None and action.resource_version is not None:
                    memory = replace(memory, scale_down=replace(down, stage=Stage.SCALED, scaled_at=now))
            case Unquiesce(pods=pods):
                memory = replace(memory, scale_down=_without(memory.scale_down, pods))
            case _:
                pass
    if applied.status_written:
        memory = replace(memory, status_written_at=now)
    if applied.failure is None:
        return replace(memory, failure=None, failed_at=None, failures=0)
    conflict = applied.failure.kind is FailureKind.CONFLICT
    return replace(
        memory,
        failure=memory.failure if conflict else applied.failure,
        failed_at=now,
        failures=memory.failures + 1,
    )


def _without(down: ScaleDown | None, pods: tuple[str, ...]) -> ScaleDown | None:
    """Released pods are no victims any more; without victims there is no scale-down."""
    if down is None:
        return None
    left = tuple(v for v in down.victims if v not in pods)
    return replace(down, victims=left) if left else None


def owner_of(lease_uid: str, namespace: str, name: str, uid: str) -> OwnerSeen:
    """The owner record that this operator writes for a Queue."""
    return OwnerSeen(operator=lease_uid, namespace=namespace, name=name, uid=uid)
