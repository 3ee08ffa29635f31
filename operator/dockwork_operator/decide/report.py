"""What a reconcile says: the status from what was seen and decided, and the events of what is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from dockwork_operator.constants import Condition
from dockwork_operator.decide import pods as pod_facts
from dockwork_operator.decide.children import ADOPTED, TEMPLATE, Household
from dockwork_operator.decide.conditions import Situation, conditions_of, shown_state
from dockwork_operator.decide.memory import Memory
from dockwork_operator.decide.names import pod_selector
from dockwork_operator.decide.plan import Action, ApplyChild, Count, Event, EventType, Plan, Scale
from dockwork_operator.decide.rollout import RolloutSeen, State, Stranded
from dockwork_operator.decide.seen import PodSeen, QueueSeen, conditions_seen
from dockwork_operator.decide.sizing import Size, policy_of
from dockwork_operator.decide.status import (
    Decided,
    depth_of,
    in_force,
    interrupted_of,
    is_news,
    redis_of,
    scaling_of,
    transitions,
)
from dockwork_operator.decide.victims import STALE_AFTER_MS
from dockwork_operator.models import queues as api


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """All that was seen and decided about a Queue that may act.

    memory     with everything but what `remember` adds
    stored     the status as it stands
    pods       those that have not ended
    """

    house: Household
    pods: tuple[PodSeen, ...]
    rollout: RolloutSeen
    state: State
    size: Size
    stranded: Stranded
    memory: Memory
    stored: api.QueueStatus
    now: datetime

    @property
    def seen(self) -> QueueSeen:
        return self.house.seen

    @property
    def replicas_ignored(self) -> int | None:
        """`spec.replicas` if it is set and nobody heeds it."""
        spec = self.house.queue.spec
        return spec.replicas if spec.scaling.mode == "Auto" else None


def stored_status(seen: QueueSeen, memory: Memory) -> Mapping[str, Any]:
    """The status as it stands: our own last write may not have come back yet."""
    return memory.status if memory.status is not None else seen.status


def situation(seen: QueueSeen, memory: Memory, now: datetime, **facts: Any) -> Situation:
    """What the conditions depend on: `facts` and what is the same in every situation."""
    return Situation(
        now=now,
        generation=seen.generation,
        redis=seen.redis,
        server=seen.redis.server,
        failure=memory.failure,
        before=conditions_seen(stored_status(seen, memory).get("conditions")),
        **facts,
    )


def finish(
    status: api.QueueStatus,
    seen: QueueSeen,
    memory: Memory,
    now: datetime,
    *,
    actions: tuple[Action, ...] = (),
    events: tuple[Event, ...] = (),
    counts: tuple[Count, ...] = (),
    requeue: timedelta | None = None,
) -> Plan:
    """The plan, with the status only if it is news and with the events of its conditions."""
    old, new = stored_status(seen, memory), status.wire()
    return Plan(
        actions=actions,
        status=new if is_news(old, new, memory.status_written_at, now) else None,
        events=events + transitions(conditions_seen(old.get("conditions")), status.conditions),
        counts=counts,
        requeue_after=requeue,
        memory=memory,
        generation=seen.generation,
    )


# --- events ------------------------------------------------------------------------------------------------


def events_of(outcome: Outcome, actions: tuple[Action, ...]) -> tuple[Event, ...]:
    """What is done and what happened; the conditions' own transitions are told by `finish`."""
    told = [event for action in actions if (event := _event_of(outcome, action)) is not None]
    house, stored = outcome.house, outcome.stored
    template = house.declared.template_hash
    was_rolling = stored.rollout is not None and stored.rollout.state == State.PROGRESSING
    now = _situation_of(outcome)
    if was_rolling and now.tried and shown_state(now) is State.COMPLETE and not house.creating:
        told.append(Event(reason="RolloutPromoted", message=f"all pods are of template {template}"))
    for name in outcome.size.moves.wrong:
        message = f"pod {name} was ended in place of a drained one; its jobs go back"
        told.append(Event(reason="WrongVictim", message=message, type=EventType.WARNING))
    ignored = outcome.replicas_ignored
    if ignored is not None and stored.observed_generation != outcome.seen.generation:
        message = f"spec.replicas ({ignored}) is ignored: scaling.mode is Auto"
        told.append(Event(reason="ReplicasIgnored", message=message))
    # The record was ours, and is not known to be: it is written again in this plan.
    if (
        outcome.seen.redis.sample is not None
        and outcome.memory.configured is not None
        and not outcome.memory.owned
    ):
        message = "Redis restarted or lost our record: no scale-down and no rollout for 60 s"
        told.append(Event(reason="RedisDataLost", message=message, type=EventType.WARNING))
    return tuple(told)


def _event_of(outcome: Outcome, action: Action) -> Event | None:
    match action:
        case Scale(to=to, seen=seen) if not outcome.house.creating and to != seen:
            name = "ScaledUp" if to > seen else "ScaledDown"
            message = f"from {seen} to {to} pods: {outcome.size.because}"
            return Event(reason=name, message=message, of=action)
        case ApplyChild(reason=reason) if reason == ADOPTED:
            message = f"{action.kind} {action.name} is this Queue's now"
            return Event(reason="Adopted", message=message, of=action)
        case ApplyChild(reason=reason) if reason == TEMPLATE:
            message = f"template {outcome.house.declared.template_hash} replaces the old one"
            return Event(reason="RolloutStarted", message=message, of=action)
        case _:
            return None


# --- status ------------------------------------------------------------------------------------------------


def status_of(outcome: Outcome) -> api.QueueStatus:
    """The status of a Queue that may act. What Redis does not say now stays as it was said last."""
    house, stored, size, sample = outcome.house, outcome.stored, outcome.size, outcome.seen.redis.sample
    mode, policy = house.queue.spec.scaling.mode, policy_of(house.queue.spec)
    situation_ = _situation_of(outcome)
    decided = Decided(
        before=stored.scaling.wanted if stored.scaling is not None else None,
        raw=size.wanted.raw,
        to=size.wanted.to,
        reason=size.reason,
        message=size.because,
        load=size.load,
        rates=outcome.memory.rates,
    )
    return api.QueueStatus(
        observed_generation=outcome.seen.generation,
        selector=pod_selector(house.queue.ref.name),
        conditions=conditions_of(situation_),
        redis=redis_of(outcome.seen.redis.server, sample, stored.redis),
        depth=depth_of(sample) if sample is not None else stored.depth,
        workers=_workers(outcome),
        scaling=scaling_of(decided, in_force(mode, policy), stored.scaling, sample is None, outcome.now),
        rollout=_rollout(outcome, shown_state(situation_)),
        stranded=_stranded(outcome),
    )


def _situation_of(outcome: Outcome) -> Situation:
    house, size, sample = outcome.house, outcome.size, outcome.seen.redis.sample
    failing = house.deployment.conditions.get("ReplicaFailure") if house.deployment is not None else None
    before = conditions_seen(stored_status(outcome.seen, outcome.memory).get("conditions"))
    return situation(
        outcome.seen,
        outcome.memory,
        outcome.now,
        creating=house.creating,
        conflict="; ".join(house.conflicts),
        contested=size.is_contested,
        unready_for=pod_facts.age(outcome.memory.not_ready_since, outcome.now),
        tried=pod_facts.has_been_ready(
            outcome.pods, house.declared.template_hash, outcome.stored, before.get(Condition.READY)
        ),
        troubles=pod_facts.troubles(outcome.pods),
        crash_loop=pod_facts.crash_loop(outcome.pods),
        cannot_start=pod_facts.cannot_start(outcome.pods, house.declared.template_hash),
        # Pod Security, quota and admission refuse pods, not the apply: the Deployment says so.
        replica_failure=failing.message if failing is not None and failing.status == "True" else "",
        rollout=outcome.rollout,
        state=outcome.state,
        mode=house.queue.spec.scaling.mode,
        replicas_ignored=outcome.replicas_ignored,
        scaling=size.wanted.reason,
        most=house.queue.spec.scaling.max_replicas,
        paused=sample.paused if sample is not None else False,
        stranded=outcome.stranded,
    )


def _workers(outcome: Outcome) -> api.WorkersStatus:
    sample, down = outcome.seen.redis.sample, outcome.memory.scale_down
    staying = [pod for pod in outcome.pods if not pod.terminating]
    victims = down.victims if down is not None else ()
    old = outcome.stored.workers or api.WorkersStatus()
    slots, busy = old.slots, old.busy
    if sample is not None:
        beating = [w for w in sample.workers if sample.time_ms - w.beat_ms <= STALE_AFTER_MS]
        slots, busy = sum(w.slots for w in beating), sum(w.busy for w in beating)
    return api.WorkersStatus(
        replicas=len(staying),
        ready=sum(pod.ready for pod in staying),
        quiesced=sum(pod.uid in victims for pod in staying),
        terminating=outcome.rollout.terminating,
        slots=slots,
        busy=busy,
        grace_seconds=outcome.house.declared.grace_seconds,
        pod_start_millis=round(outcome.memory.pod_start_s * 1000),
    )


def _rollout(outcome: Outcome, state: State) -> api.RolloutStatus:
    old = outcome.stored.rollout or api.RolloutStatus()
    begins = state is State.PROGRESSING and old.state != State.PROGRESSING
    return api.RolloutStatus(
        state=state,
        stable_hash=outcome.house.declared.template_hash,
        started_at=outcome.now.replace(microsecond=0) if begins else old.started_at,
        interrupted=interrupted_of(outcome.memory.interrupted),
    )


def _stranded(outcome: Outcome) -> api.StrandedStatus:
    if outcome.seen.redis.sample is None:
        return outcome.stored.stranded or api.StrandedStatus()
    found = outcome.stranded
    if not found.holds(outcome.now):
        return api.StrandedStatus()
    return api.StrandedStatus(count=found.count, first_job_id=found.first, types=found.types)
