"""The status of a Queue: built from what was seen and decided, and written only when it says something new.

Figures that move all the time count as news only every ten seconds, and the noisy ones only if they moved by more
than a tenth or to or from zero (OP-103). Everything else is written at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from dockwork_operator.constants import Condition
from dockwork_operator.decide.memory import Interrupted, Rates
from dockwork_operator.decide.plan import Event, EventType
from dockwork_operator.decide.scaling import Load, Policy
from dockwork_operator.decide.seen import ConditionSeen, SampleSeen, ServerSeen
from dockwork_operator.models import queues as api
from dockwork_operator.models.conditions import StatusCondition

HISTORY = 20
PACE = timedelta(seconds=10)
MOVED = 0.10

#: Below these paths a change waits for the pace and must be large.
NOISY = (
    ("depth",),
    ("workers", "busy"),
    ("workers", "podStartMillis"),
    ("redis", "memoryPercent"),
)

#: Below these paths a change waits for the pace, then counts however small it is.
PACED = (
    ("workers", "ready"),
    ("workers", "quiesced"),
    ("workers", "terminating"),
    ("workers", "slots"),
    ("scaling", "lastDecision"),
    ("scaling", "history"),
    ("rollout", "interrupted"),
    ("stranded",),
    ("conditions", "message"),
)


# --- parts -------------------------------------------------------------------------------------------------


def read_status(raw: Mapping[str, Any]) -> api.QueueStatus:
    """The status that is stored; what cannot be read (an older or newer operator's) counts as none."""
    try:
        return api.QueueStatus.model_validate(raw)
    except ValidationError:
        return api.QueueStatus()


def depth_of(sample: SampleSeen) -> api.DepthStatus:
    """Jobs by state."""
    return api.DepthStatus(
        waiting=sample.ready + sample.prioritized + sample.due,
        ready=sample.ready,
        prioritized=sample.prioritized,
        delayed=sample.delayed,
        due_soon=sample.due_soon,
        active=sample.active,
        parked=sample.parked,
        dead=sample.dead,
        oldest_seconds=sample.oldest_ms // 1000,
        bytes=sample.bytes,
    )


def redis_of(
    server: ServerSeen | None, sample: SampleSeen | None, before: api.RedisStatus | None
) -> api.RedisStatus | None:
    """The server as it was last seen."""
    if server is not None:
        return api.RedisStatus(
            version=server.version,
            run_id=(sample.run_id if sample is not None else "") or server.run_id,
            policy=server.policy,
            memory_percent=server.memory_percent,
        )
    if sample is not None and sample.run_id:
        return (before or api.RedisStatus()).model_copy(update={"run_id": sample.run_id})
    return before


def in_force(mode: str, policy: Policy) -> api.ScalingInForce:
    """The scaling settings, with what was absent filled in."""
    return api.ScalingInForce(
        mode=mode,
        min=policy.least,
        max=policy.most,
        drain_target_seconds=round(policy.target_s),
        utilization_percent=round(policy.utilization * 100),
        window_seconds=round(policy.window.total_seconds()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Decided:
    """A scaling decision and what it was made from; `before` is None for the first one."""

    before: int | None
    raw: int
    to: int
    reason: str
    message: str
    load: Load | None
    rates: Rates


def scaling_of(
    decided: Decided,
    effective: api.ScalingInForce,
    before: api.ScalingStatus | None,
    stale: bool,
    now: datetime,
) -> api.ScalingStatus:
    """The decision, and the last ones in which the number or the reason changed."""
    before = before or api.ScalingStatus()
    last = before.last_decision
    origin = decided.before if decided.before is not None else 0
    news = last is None or decided.to != origin or decided.reason != last.reason
    if not news:
        return before.model_copy(update={"effective": effective, "wanted": decided.to, "stale": stale})
    decision = api.ScaleDecision(
        at=now.replace(microsecond=0),
        from_=origin,
        raw=decided.raw,
        to=decided.to,
        reason=decided.reason,
        message=decided.message,
        waiting=decided.load.waiting if decided.load is not None else 0,
        active=decided.load.active if decided.load is not None else 0,
        oldest_seconds=int(decided.load.oldest_s) if decided.load is not None else 0,
        service_millis=round(decided.rates.service_s * 1000),
        arrivals_per_minute=round(decided.rates.arrivals * 60),
    )
    return api.ScalingStatus(
        effective=effective,
        wanted=decided.to,
        last_decision=decision,
        history=(*before.history, decision)[-HISTORY:],
        stale=stale,
    )


def interrupted_of(interrupted: Interrupted) -> api.Interrupted:
    """Counts since the Queue was first seen."""
    return api.Interrupted(requeued=interrupted.requeued, killed=interrupted.killed)


# --- is it news? -------------------------------------------------------------------------------------------


def is_news(
    old: Mapping[str, Any], new: Mapping[str, Any], written_at: datetime | None, now: datetime
) -> bool:
    """`new` must be written over `old`."""
    rested = written_at is None or now - written_at >= PACE
    for path, before, after in _changes(_comparable(old), _comparable(new), ()):
        if _below(path, NOISY):
            if rested and has_moved(before, after):
                return True
        elif _below(path, PACED):
            if rested:
                return True
        else:
            return True
    return False


def has_moved(before: Any, after: Any) -> bool:
    """By more than a tenth, or to or from zero."""
    old, new = before or 0, after or 0
    if not isinstance(old, int | float) or not isinstance(new, int | float):
        return bool(old != new)
    if old == 0 or new == 0:
        return old != new
    return abs(new - old) > MOVED * abs(old)


def _comparable(status: Mapping[str, Any]) -> dict[str, Any]:
    """Conditions by type, so that the texts of each can be told from its state."""
    conditions = status.get("conditions") or ()
    by_type = {c["type"]: {k: v for k, v in c.items() if k not in {"type", "message"}} for c in conditions}
    texts = {c["type"]: c.get("message", "") for c in conditions}
    return {**status, "conditions": {"message": texts, **by_type}}


def _changes(old: Any, new: Any, path: tuple[str, ...]) -> Iterable[tuple[tuple[str, ...], Any, Any]]:
    """Leaves that differ, lists as a whole. What only `old` has (an unset field in a merge patch) stays."""
    if isinstance(new, Mapping):
        before = old if isinstance(old, Mapping) else {}
        names = set(new) | (set(before) if path == ("conditions",) else set())
        for name in sorted(names):
            yield from _changes(before.get(name), new.get(name), (*path, name))
    elif old != new and not (old is None and not new):
        yield path, old, new


def _below(path: tuple[str, ...], prefixes: Iterable[tuple[str, ...]]) -> bool:
    return any(path[: len(prefix)] == prefix for prefix in prefixes)


# --- events ------------------------------------------------------------------------------------------------

#: (condition, status, reason or any) -> the event that this transition is.
TRANSITIONS: Mapping[tuple[Condition, str], tuple[str, EventType]] = {
    (Condition.ACCEPTED, "False"): ("Rejected", EventType.WARNING),
    (Condition.REDIS_REACHABLE, "False"): ("RedisUnreachable", EventType.WARNING),
    (Condition.REDIS_SAFE, "False"): ("RedisUnsafe", EventType.WARNING),
    (Condition.STRANDED_JOBS, "True"): ("JobsStranded", EventType.WARNING),
    (Condition.PAUSED, "True"): ("Paused", EventType.NORMAL),
}

#: As above, but only where the condition said the opposite before.
RETURNS: Mapping[tuple[Condition, str], tuple[str, str]] = {
    (Condition.REDIS_REACHABLE, "True"): ("RedisRecovered", "Redis can be read again"),
    (Condition.PAUSED, "False"): ("Resumed", "claims go on"),
}

#: Reasons of Degraded=True that have an event of their own.
DEGRADATIONS: Mapping[str, str] = {
    "CrashLoop": "WorkerCrashLooping",
    "PodsCannotStart": "PodsCannotStart",
    "NameConflict": "NameConflict",
    "ReplicasContested": "ReplicasContested",
}


def transitions(before: Mapping[str, ConditionSeen], after: Iterable[StatusCondition]) -> tuple[Event, ...]:
    """One event per transition of a condition, in the order of the conditions."""
    events = []
    for new in after:
        old = before.get(new.type)
        worse = new.type == Condition.DEGRADED and old is not None and old.reason != new.reason
        if old is not None and old.status == new.status and not worse:
            continue
        key = (Condition(new.type), new.status)
        if key in TRANSITIONS:
            name, kind = TRANSITIONS[key]
            events.append(Event(reason=name, message=new.message or new.reason, type=kind))
        elif key in RETURNS and old is not None:
            name, message = RETURNS[key]
            events.append(Event(reason=name, message=message))
        elif key == (Condition.DEGRADED, "True") and new.reason in DEGRADATIONS:
            name = DEGRADATIONS[new.reason]
            events.append(Event(reason=name, message=new.message, type=EventType.WARNING))
    return tuple(events)
