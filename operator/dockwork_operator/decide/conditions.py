"""What holds of a Queue, as conditions: one function per type, all reading one `Situation`.

The table of OP-110 is a test. Reconciling and Stalled are there only while they are true; Ready does not follow
Redis, metrics or scaling (OP-111).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from dockwork_operator.constants import Condition, Reason, ScaleReason
from dockwork_operator.decide.plan import ApplyFailure, FailureKind
from dockwork_operator.decide.rollout import RolloutSeen, State, Stranded
from dockwork_operator.decide.seen import ConditionSeen, RedisFailure, RedisSeen, SecretState, ServerSeen
from dockwork_operator.models.conditions import StatusCondition

UNAVAILABLE_AFTER = timedelta(minutes=3)
SAFE_POLICY = "noeviction"
SAFE_MEMORY_PERCENT = 80
MOST_SKEW_MS = 1000
_LONGEST = 1024

#: What Ready says about workers; while Redis cannot be read they are all unready, which says nothing new.
BY_WORKERS = frozenset({Reason.AS_DECLARED, Reason.UNTRIED, Reason.WORKERS_UNAVAILABLE})

#: Why nobody knows where Redis is.
NO_SECRET = frozenset(SecretState) - {SecretState.FOUND}


@dataclass(frozen=True, kw_only=True, slots=True)
class NotAccepted:
    """Why the spec is not carried out; `reason` is one of Accepted=False."""

    reason: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """All that the conditions of one Queue depend on.

    creating         children are missing, or the Deployment has not begun
    reached          Redis was read at least once, ever
    unready_for      pods are wanted and none is ready, for so long
    tried            a pod of the current version is or was ready
    troubles         what the pods themselves say, such as "CrashLoopBackOff (exit code 1, Error)"
    crash_loop       a container ends again and again: which, and how
    cannot_start     a pod of the current version cannot start: which, and the kubelet's words
    replica_failure  why the cluster refuses the pods, in its words
    conflict         an object of a child's name that is not ours
    """

    now: datetime
    generation: int
    refused: NotAccepted | None = None
    creating: bool = False
    reached: bool = True
    redis: RedisSeen = field(default_factory=RedisSeen)
    server: ServerSeen | None = None
    failure: ApplyFailure | None = None
    conflict: str = ""
    contested: bool = False
    unready_for: timedelta | None = None
    tried: bool = True
    troubles: str = ""
    crash_loop: str = ""
    cannot_start: str = ""
    replica_failure: str = ""
    rollout: RolloutSeen = field(default_factory=RolloutSeen)
    state: State = State.COMPLETE
    mode: str = "Auto"
    replicas_ignored: int | None = None
    scaling: ScaleReason = ScaleReason.STEADY
    raw: int = 0
    most: int = 0
    paused: bool = False
    stranded: Stranded = field(default_factory=Stranded)
    before: Mapping[str, ConditionSeen] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """One condition before it has times."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


def conditions_of(situation: Situation) -> tuple[StatusCondition, ...]:
    """Every condition that is present, in a fixed order; a transition time moves only with the status."""
    made = []
    for kind, judge in JUDGES:
        verdict = judge(situation)
        if verdict is None:
            continue
        old = situation.before.get(kind)
        kept = old.since if old is not None and old.status == verdict.status else None
        made.append(
            StatusCondition(
                type=kind,
                status=verdict.status,
                observed_generation=situation.generation,
                last_transition_time=(kept or situation.now).replace(microsecond=0),
                reason=verdict.reason,
                message=verdict.message[:_LONGEST],
            )
        )
    return tuple(made)


def _true(reason: str, message: str = "") -> Verdict:
    return Verdict("True", reason, message)


def _false(reason: str, message: str = "") -> Verdict:
    return Verdict("False", reason, message)


def _as_before(s: Situation, kind: Condition) -> Verdict | None:
    old = s.before.get(kind)
    if old is None or old.status not in ("True", "False"):
        return None
    return Verdict("True" if old.status == "True" else "False", old.reason or Reason.NONE, old.message)


def _accepted(s: Situation) -> Verdict:
    return _true(Reason.VALID) if s.refused is None else _false(s.refused.reason, s.refused.message)


def _ready(s: Situation) -> Verdict:
    if s.refused is not None:
        return _false(Reason.NOT_ACCEPTED, "the spec is not carried out; what runs was left as it is")
    if not s.reached:
        return _false(
            Reason.FIRST_CONTACT, "Redis was not reached yet; workers are made after the first contact"
        )
    if s.conflict and s.creating:
        return _false(Reason.APPLY_FAILED, s.conflict)
    if s.failure is not None and s.failure.kind is FailureKind.REJECTED:
        return _false(Reason.APPLY_FAILED, s.failure.message)
    if s.failure is not None and s.failure.kind is FailureKind.FORBIDDEN:
        return _ready_as_before(s) or _false(Reason.APPLY_FAILED, s.failure.message)
    if s.creating:
        return _false(Reason.WORKERS_UNAVAILABLE, "the worker Deployment is being made")
    told = _ready_as_before(s)
    if s.unready_for is not None and s.redis.sample is None and told and told.reason in BY_WORKERS:
        return told
    if s.unready_for is not None and s.unready_for >= UNAVAILABLE_AFTER:
        minutes = int(UNAVAILABLE_AFTER.total_seconds() // 60)
        return _false(
            Reason.WORKERS_UNAVAILABLE, f"no worker pod has been ready for {minutes} min{_because(s)}"
        )
    if s.unready_for is not None and not s.tried:
        return _false(Reason.WORKERS_UNAVAILABLE, _not_yet(s))
    return _true(Reason.AS_DECLARED) if s.tried else _untried(s)


def _ready_as_before(s: Situation) -> Verdict | None:
    """AsDeclared is durable proof that a version had ready pods: it never passes over to the next one."""
    told = _as_before(s, Condition.READY)
    return _untried(s) if told and told.reason == Reason.AS_DECLARED and not s.tried else told


def _untried(s: Situation) -> Verdict:
    meanwhile = "; the old pods go on" if s.rollout.rolling else ", and none had to be"
    return _true(Reason.UNTRIED, f"no pod of this version has been ready yet{meanwhile}")


def _is_starting(s: Situation) -> bool:
    """The first pods of this version are wanted and may still become ready."""
    return _lacks_first_pods(s) and s.unready_for is not None and s.unready_for < UNAVAILABLE_AFTER


def _lacks_first_pods(s: Situation) -> bool:
    """Pods of this version are wanted and there was never a ready one; without Redis nobody knows."""
    return not s.tried and s.unready_for is not None and s.redis.sample is not None


def shown_state(s: Situation) -> State:
    """status.rollout.state: a version whose pods are wanted is complete once one of them has been ready."""
    return State.PROGRESSING if s.state is State.COMPLETE and _lacks_first_pods(s) else s.state


def _not_yet(s: Situation) -> str:
    return f"no worker pod of this version has been ready yet{_because(s)}"


def _because(s: Situation) -> str:
    why = s.replica_failure or s.cannot_start or s.troubles
    return f": {why}" if why else ""


def _reconciling(s: Situation) -> Verdict | None:
    if s.refused is not None or not s.reached:
        return None
    if s.creating:
        return None if s.conflict else _true(Reason.CREATING, "the worker Deployment is being made")
    if s.state is State.PROGRESSING:
        return _true(Reason.ROLLOUT_IN_PROGRESS, s.rollout.message)
    if s.state is State.COMPLETE and _is_starting(s):
        return _true(Reason.WORKERS_UNAVAILABLE, _not_yet(s))
    return None


def _stalled(s: Situation) -> Verdict | None:
    if s.refused is not None:
        return _true(Reason.NOT_ACCEPTED, s.refused.message)
    if s.failure is not None and s.failure.kind is FailureKind.FORBIDDEN:
        return _true(Reason.FORBIDDEN, _forbidden(s.failure))
    if s.state is State.STALLED:
        return _true(Reason.PROGRESS_DEADLINE_EXCEEDED, _overdue(s))
    return None


def _overdue(s: Situation) -> str:
    old = "; the old pods go on" if s.rollout.rolling else ""
    return f"the rollout made no progress within its deadline{old}{_because(s)}"


def _forbidden(failure: ApplyFailure) -> str:
    if not failure.verb:
        return failure.message
    return f"the operator may not {failure.verb} {failure.resource}: {failure.message}"


def _progressing(s: Situation) -> Verdict | None:
    if s.refused is not None or s.creating:
        return _as_before(s, Condition.PROGRESSING)
    match s.state:
        case State.PROGRESSING:
            return _true(Reason.ROLLOUT_IN_PROGRESS, s.rollout.message)
        case State.HELD:
            return _false(Reason.HELD, "the new template waits: other rollouts or Redis come first")
        case State.STALLED:
            return _false(Reason.PROGRESS_DEADLINE_EXCEEDED, _overdue(s))
        case State.COMPLETE if _lacks_first_pods(s):
            return _true(Reason.ROLLOUT_IN_PROGRESS, _not_yet(s))
        case State.COMPLETE:
            return _false(Reason.COMPLETE)


def _degraded(s: Situation) -> Verdict:
    failure = s.failure
    if failure is not None and failure.kind is FailureKind.FORBIDDEN:
        return _true(Reason.FORBIDDEN, _forbidden(failure))
    if failure is not None and failure.kind is FailureKind.REJECTED:
        return _true(Reason.APPLY_REJECTED, failure.message)
    if s.replica_failure:
        return _true(Reason.APPLY_REJECTED, s.replica_failure)
    if s.conflict:
        return _true(Reason.NAME_CONFLICT, s.conflict)
    if s.cannot_start:
        return _true(Reason.PODS_CANNOT_START, s.cannot_start)
    if s.crash_loop:
        return _true(Reason.CRASH_LOOP, s.crash_loop)
    if s.contested:
        return _true(
            Reason.REPLICAS_CONTESTED,
            "something else writes the Deployment's replicas; scale the Queue with scaling.mode External instead",
        )
    return _false(Reason.NONE)


def _scaling_active(s: Situation) -> Verdict:
    if s.refused is not None:
        return _false(Reason.NOT_ACCEPTED)
    if s.mode == "External":
        return _true(Reason.EXTERNAL, "spec.replicas is obeyed")
    if s.scaling is ScaleReason.FALLBACK:
        return _false(Reason.FALLBACK, "Redis cannot be read; at least scaling.fallback.replicas run")
    if s.redis.sample is None:
        return _false(Reason.REDIS_UNREACHABLE, "the number of pods is held while Redis cannot be read")
    if s.replicas_ignored is not None:
        return _true(
            Reason.AUTO,
            f"spec.replicas ({s.replicas_ignored}) is ignored: scaling.mode is Auto, not External",
        )
    return _true(Reason.AUTO)


def _scaling_limited(s: Situation) -> Verdict | None:
    if s.refused is not None:
        return _as_before(s, Condition.SCALING_LIMITED)
    if s.scaling is ScaleReason.MAX_REPLICAS:
        return _true(Reason.MAX_REPLICAS, f"more pods are needed than scaling.maxReplicas ({s.most}) allows")
    if s.scaling is ScaleReason.CONCURRENCY:
        return _true(Reason.CONCURRENCY, "more pods would only wait: the queue's concurrency is used up")
    if s.scaling is ScaleReason.RATE:
        return _true(Reason.RATE, "more pods would only wait: the queue's rate lets no more jobs start")
    return _false(Reason.WITHIN_LIMITS)


def _redis_reachable(s: Situation) -> Verdict | None:
    if s.redis.sample is not None:
        return _true(Reason.CONNECTED)
    if s.refused is not None and s.refused.reason in NO_SECRET:
        return _false(s.refused.reason, s.refused.message)
    if s.redis.failure is None:
        return _as_before(s, Condition.REDIS_REACHABLE)
    return _false(s.redis.failure, s.redis.message)


def _redis_safe(s: Situation) -> Verdict | None:
    server = s.server
    if server is None or not server.version:
        return _as_before(s, Condition.REDIS_SAFE)
    if server.policy != SAFE_POLICY:
        return _false(
            Reason.EVICTION_POLICY,
            f"maxmemory-policy is {server.policy}: Redis may drop jobs when memory is short; set {SAFE_POLICY}",
        )
    if server.memory_percent > SAFE_MEMORY_PERCENT:
        return _false(
            Reason.MEMORY_HIGH, f"over {SAFE_MEMORY_PERCENT} % of maxmemory is used; enqueues fail at 100 %"
        )
    if abs(s.redis.skew_ms) > MOST_SKEW_MS:
        side = "ahead of" if s.redis.skew_ms > 0 else "behind"
        return _false(
            Reason.CLOCK_SKEW,
            f"Redis TIME is over 1 s {side} the operator's clock; Redis TIME decides when jobs and ticks are due",
        )
    return _true(Reason.SAFE)


def _paused(s: Situation) -> Verdict | None:
    if s.redis.sample is None:
        return _as_before(s, Condition.PAUSED)
    if s.paused:
        return _true(Reason.BY_HAND, "claims stop until the queue is resumed; enqueues go on")
    return _false(Reason.RUNNING)


def _stranded(s: Situation) -> Verdict | None:
    if s.redis.sample is None:
        return _as_before(s, Condition.STRANDED_JOBS)
    if s.stranded.holds(s.now):
        types = ", ".join(s.stranded.types)
        first = f"; the first is {s.stranded.first}" if s.stranded.first else ""
        return _true(Reason.UNKNOWN_TYPE, f"no live worker knows {types}{first}")
    return _false(Reason.NONE)


JUDGES = (
    (Condition.ACCEPTED, _accepted),
    (Condition.READY, _ready),
    (Condition.RECONCILING, _reconciling),
    (Condition.STALLED, _stalled),
    (Condition.PROGRESSING, _progressing),
    (Condition.DEGRADED, _degraded),
    (Condition.SCALING_ACTIVE, _scaling_active),
    (Condition.SCALING_LIMITED, _scaling_limited),
    (Condition.REDIS_REACHABLE, _redis_reachable),
    (Condition.REDIS_SAFE, _redis_safe),
    (Condition.PAUSED, _paused),
    (Condition.STRANDED_JOBS, _stranded),
)

#: Failures of a Redis that answers, but not for work now: no data is lost, and no decision may be made from it.
RECOVERING = frozenset({RedisFailure.LOADING, RedisFailure.READ_ONLY})
