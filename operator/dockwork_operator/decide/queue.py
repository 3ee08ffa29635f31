"""One reconcile of a Queue, decided: from what was seen to what is to be done.

The order is the spec's: may this Queue act at all (spec, secret, owner record); then its Redis configuration, its
child objects, its pods; then what status and events say about all that. docs/architecture.md draws the walk.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from dockwork_operator.decide.children import Household, garbage, household, keep_children
from dockwork_operator.decide.conditions import NotAccepted, conditions_of
from dockwork_operator.decide.contact import (
    ASK_AGAIN,
    FREEZE,
    ask_for_it,
    bar,
    keep_configured,
    keep_up,
    look,
    other_installation,
)
from dockwork_operator.decide.manifests import Children, render_children
from dockwork_operator.decide.memory import Memory, subject_of
from dockwork_operator.decide.names import pod_selector
from dockwork_operator.decide.plan import Action, Count, Plan
from dockwork_operator.decide.report import (
    Outcome,
    events_of,
    finish,
    situation,
    status_of,
    stored_status,
)
from dockwork_operator.decide.rollout import (
    RolloutSeen,
    State,
    Stranded,
    count_interrupted,
    must_pause,
    see_rollout,
    see_stranded,
)
from dockwork_operator.decide.seen import QueueSeen
from dockwork_operator.decide.sizing import size
from dockwork_operator.decide.status import read_status
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue

WRONG_VICTIMS = "dockwork_scale_down_wrong_victim_total"


# --- before: what to ask Redis -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How the next sample of a Queue is to be asked for; the arguments of the store's `sample`."""

    horizon_ms: int
    template_hash: str
    cold: bool


def sampling(queue: Queue, seen: QueueSeen, memory: Memory) -> Sampling:
    """Due work counts as far ahead as a pod takes to start and a backlog to clear; a queue that wants no pod is
    cold: its first claimable job wakes the operator."""
    target = queue.spec.scaling.drain_within
    return Sampling(
        horizon_ms=round((memory.pod_start_s + target.total_seconds()) * 1000),
        template_hash=seen.deployment.template_hash if seen.deployment is not None else "",
        cold=queue.spec.scaling.mode == "Auto" and memory.wanted == 0,
    )


# --- the decision ------------------------------------------------------------------------------------------


def decide_queue(queue: Queue | Refused, seen: QueueSeen, memory: Memory, now: datetime) -> Plan:
    """What must be done so that the world is as the Queue declares, and what its status then says."""
    if seen.deleting:
        # Retain: pods drain by garbage collection, the data stays, the owner record expires (OP-030).
        return Plan(memory=memory)
    if isinstance(queue, Refused):
        return _refuse(NotAccepted(reason=queue.reason, message=queue.message), seen, memory, now)
    declared = render_children(queue, seen.operator.redis)
    if isinstance(declared, Refused):
        return _refuse(NotAccepted(reason=declared.reason, message=declared.message), seen, memory, now)
    memory = look(memory, seen, now)
    left_to = other_installation(queue, seen)
    if left_to:
        # Its status is the other's too; only that one's silence makes the Queue ours.
        ask = ask_for_it(queue, seen, memory, now)
        memory = replace(memory, scale_down=None, owned=False)
        return Plan(actions=ask, memory=memory, generation=seen.generation, left_to=left_to)
    barred = bar(queue, seen, memory)
    if barred is not None:
        return _refuse(barred, seen, memory, now, ask_for_it(queue, seen, memory, now))
    if not memory.redis_reached:
        return _wait_for_redis(queue, seen, memory, now)
    return _act(household(queue, declared, seen), memory, now)


def _refuse(
    why: NotAccepted, seen: QueueSeen, memory: Memory, now: datetime, actions: tuple[Action, ...] = ()
) -> Plan:
    """Nothing is touched: children over which a bad spec came stay as they were (OP-106)."""
    status = read_status(stored_status(seen, memory)).model_copy(
        update={
            "observed_generation": seen.generation,
            "conditions": conditions_of(situation(seen, memory, now, refused=why)),
        }
    )
    memory = replace(memory, scale_down=None)
    return finish(status, seen, memory, now, actions=actions, requeue=FREEZE / 2)


def _wait_for_redis(queue: Queue, seen: QueueSeen, memory: Memory, now: datetime) -> Plan:
    """Before the first contact nobody knows whose Redis queue it is: no worker is made."""
    status = read_status(stored_status(seen, memory)).model_copy(
        update={
            "observed_generation": seen.generation,
            "selector": pod_selector(queue.ref.name),
            "conditions": conditions_of(situation(seen, memory, now, reached=False)),
        }
    )
    return finish(status, seen, memory, now, requeue=ASK_AGAIN)


def _act(house: Household, memory: Memory, now: datetime) -> Plan:
    """The plan of a Queue that may act."""
    seen, declared, sample = house.seen, house.declared, house.seen.redis.sample
    pods = tuple(pod for pod in seen.pods if not pod.ended)
    rollout = see_rollout(house.deployment, pods, declared.template_hash)
    held = _is_held(house, memory, now)
    sized = size(house, pods, rollout, memory, now)
    paused = _must_pause(house, rollout, sized.wanted.to, memory, now)
    kept = keep_children(house, memory, sized.wanted.to, held=held, paused=paused, now=now)
    stranded = (
        see_stranded(sample, rollout.rolling, memory.stranded_since, now)
        if sample is not None
        else Stranded()
    )
    memory, counts = count_interrupted(memory, seen.pods, sample, declared.template_hash)
    memory = replace(
        memory,
        rates=sized.wanted.rates,
        window=sized.wanted.window or memory.window,
        wanted=sized.wanted.to,
        scale_down=sized.moves.down,
        contested=sized.contested,
        agreed=kept.agreed,
        stranded_since=stranded.since if sample is not None else memory.stranded_since,
    )
    actions = (
        *keep_configured(house.queue, seen, memory, now),
        *keep_up(seen, memory, now),
        *kept.actions,
        *(action for action in sized.moves.actions if not memory.is_blocked(subject_of(action), now)),
        *(action for action in garbage(house) if not memory.is_blocked(subject_of(action), now)),
    )
    outcome = Outcome(
        house=house,
        pods=pods,
        rollout=rollout,
        state=_state(house, declared, rollout, held),
        size=sized,
        stranded=stranded,
        memory=memory,
        stored=read_status(stored_status(seen, memory)),
        now=now,
    )
    if sized.moves.wrong:
        counts += (Count(metric=WRONG_VICTIMS, by=len(sized.moves.wrong)),)
    return finish(
        status_of(outcome),
        seen,
        memory,
        now,
        actions=actions,
        events=events_of(outcome, actions),
        counts=counts,
        requeue=ASK_AGAIN if sized.moves.down is not None or sample is None else None,
    )


def _is_frozen(memory: Memory, now: datetime) -> bool:
    return memory.frozen_until is not None and now < memory.frozen_until


def _is_held(house: Household, memory: Memory, now: datetime) -> bool:
    """A new template must wait: data may be lost, or an operator upgrade rolls enough Queues already (OP-200)."""
    live = house.deployment
    if live is None or not live.begun or live.template_hash == house.declared.template_hash:
        return False
    by_upgrade = stored_status(house.seen, memory).get("observedGeneration") == house.seen.generation
    crowded = house.seen.operator.rollouts >= house.seen.operator.max_rollouts
    return _is_frozen(memory, now) or (by_upgrade and crowded)


def _must_pause(house: Household, rollout: RolloutSeen, wanted: int, memory: Memory, now: datetime) -> bool:
    """A rollout that runs must wait: for pods that end, or because data may be lost."""
    most = house.queue.spec.rollout.rolling_update.max_terminating
    return must_pause(rollout, most, wanted) or (rollout.rolling and _is_frozen(memory, now))


def _state(house: Household, declared: Children, rollout: RolloutSeen, held: bool) -> State:
    if held:
        return State.HELD
    if house.creating or house.deployment is None:
        return State.COMPLETE
    if rollout.overdue:
        return State.STALLED
    is_applied = house.deployment.template_hash == declared.template_hash
    return State.COMPLETE if is_applied and not rollout.rolling else State.PROGRESSING
