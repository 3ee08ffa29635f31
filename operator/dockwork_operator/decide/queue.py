"""One reconcile of a Queue, decided: from what was seen to what is to be done.

The order is the spec's: may this Queue act at all (secret, spec, owner record); then its Redis configuration, its
child objects, its pods; then what the status says about all that. docs/architecture.md draws the walk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from dockwork_operator.constants import ANNOTATION_ADOPTABLE_BY, Reason, ScaleReason
from dockwork_operator.decide import pods as pod_facts
from dockwork_operator.decide import scaling
from dockwork_operator.decide.conditions import RECOVERING, NotAccepted, Situation, conditions_of
from dockwork_operator.decide.drift import has_drifted, marked
from dockwork_operator.decide.manifests import Children, render_children
from dockwork_operator.decide.memory import Memory, subject_of, subject_of_child
from dockwork_operator.decide.names import pod_selector, selector_labels, worker_name
from dockwork_operator.decide.plan import (
    Action,
    ApplyChild,
    Configure,
    Count,
    DeleteChild,
    DeletionCost,
    Event,
    EventType,
    FailureKind,
    Plan,
    QueueSettings,
    Quiesce,
    Scale,
    Unquiesce,
    Upkeep,
)
from dockwork_operator.decide.rollout import (
    State,
    Stranded,
    count_interrupted,
    must_pause,
    see_rollout,
    see_stranded,
)
from dockwork_operator.decide.seen import (
    ChildSeen,
    DeploymentSeen,
    OwnerSeen,
    PodSeen,
    QueueSeen,
    SampleSeen,
    SecretState,
    conditions_seen,
)
from dockwork_operator.decide.status import (
    Decided,
    depth_of,
    in_force,
    interrupted_of,
    is_news,
    read_status,
    redis_of,
    scaling_of,
    transitions,
)
from dockwork_operator.decide.victims import STALE_AFTER_MS, Fleet, Moves, move
from dockwork_operator.models import queues as api
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue, QueueSpec

#: The owner record lives 5 minutes and may be taken over after 15 s without renewal.
RENEW_OWNER = timedelta(seconds=10)

#: After data may have been lost nothing shrinks and nothing rolls for so long (OP-148).
FREEZE = timedelta(seconds=60)

CONTESTS, CONTEST_SPAN, CONTEST_PAUSE = 3, timedelta(minutes=5), timedelta(minutes=1)

#: An own write may take so long to come back, by the watch or with a sample.
SETTLING = timedelta(seconds=5)

TRIM_EVERY = timedelta(seconds=60)
WRONG_VICTIMS = "dockwork_scale_down_wrong_victim_total"
_SOON = timedelta(seconds=2)


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
    children = render_children(queue, seen.operator.redis)
    if isinstance(children, Refused):
        return _refuse(NotAccepted(reason=children.reason, message=children.message), seen, memory, now)
    memory = _look(memory, seen, now)
    if memory.blocked and memory.blocked_generation != seen.generation:
        memory = replace(memory, blocked={})
    refused = _barred(queue, seen, memory)
    if refused is not None:
        retry = (_configure(queue, seen, now),) if _may_become_ours(queue, seen, memory, now) else ()
        return _refuse(refused, seen, memory, now, retry)
    if not memory.redis_reached:
        return _wait_for_redis(queue, seen, memory, now)
    return _Reconcile(queue, children, seen, memory, now).plan()


def _look(memory: Memory, seen: QueueSeen, now: datetime) -> Memory:
    """The memory with what this look adds: contact, data loss, pod starts, unready pods."""
    redis, sample = seen.redis, seen.redis.sample
    start_s, started = pod_facts.measure_starts(
        seen.pods, memory.started_pods, memory.pod_start_s, memory.since
    )
    replicas = seen.deployment.replicas if seen.deployment is not None else 0
    memory = replace(
        memory,
        pod_start_s=start_s,
        started_pods=started,
        not_ready_since=pod_facts.unready_since(
            seen.pods, replicas, sample is not None, memory.not_ready_since, now
        ),
    )
    if sample is None:
        lost = memory.redis_lost_since or now
        frozen = now + FREEZE if redis.failure in RECOVERING else memory.frozen_until
        return replace(memory, redis_lost_since=lost, frozen_until=frozen)
    if _lost_data(memory, sample) or sample.loading:
        memory = replace(memory, frozen_until=now + FREEZE, owned=False)
    return replace(
        memory,
        redis_reached=True,
        redis_lost_since=None,
        run_id=sample.run_id or memory.run_id,
        looked_ms=sample.time_ms,
    )


def _lost_data(memory: Memory, sample: SampleSeen) -> bool:
    """Another server answers, or our own record is gone: what was counted may not be there."""
    other_server = bool(memory.run_id and sample.run_id and sample.run_id != memory.run_id)
    return other_server or (memory.owned and sample.owner is None and shows_our_write(memory, sample))


def shows_our_write(memory: Memory, sample: SampleSeen) -> bool:
    """The sample was taken after our last write to Redis; one that was under way then may not have it."""
    return sample.time_ms > memory.configured_ms + SETTLING // timedelta(milliseconds=1)


def _barred(queue: Queue, seen: QueueSeen, memory: Memory) -> NotAccepted | None:
    """Why this Queue may not act although its spec is sound."""
    if seen.secret.state is not SecretState.FOUND:
        return NotAccepted(reason=seen.secret.state, message=seen.secret.message)
    server, sample = seen.redis.server, seen.redis.sample
    if server is not None and server.too_old:
        return NotAccepted(reason=Reason.REDIS_UNSUPPORTED, message=server.too_old)
    if sample is not None and sample.owner is not None and not is_ours(queue, sample.owner, seen):
        return NotAccepted(reason=Reason.QUEUE_CONFLICT, message=_conflict(queue, str(sample.owner)))
    failure = memory.failure
    if failure is not None and failure.kind is FailureKind.OWNED and not memory.owned:
        return NotAccepted(reason=Reason.QUEUE_CONFLICT, message=failure.message)
    return None


def _conflict(queue: Queue, owner: str) -> str:
    return (
        f"the Redis queue {queue.redis_namespace}/{queue.redis_queue} belongs to Queue {owner}; "
        "nothing is written to it"
    )


def is_ours(queue: Queue, owner: OwnerSeen, seen: QueueSeen) -> bool:
    """The record is of this object, or of one of this operator with the same name (made anew)."""
    if owner.operator != seen.operator.lease_uid:
        return False
    return owner.uid == queue.uid or (owner.namespace, owner.name) == (queue.ref.namespace, queue.ref.name)


def _may_become_ours(queue: Queue, seen: QueueSeen, memory: Memory, now: datetime) -> bool:
    """A reinstalled operator takes over by the same uid after 15 s, anyone when the record is gone; ask again."""
    sample = seen.redis.sample
    if sample is None or seen.secret.state is not SecretState.FOUND:
        return False
    if sample.owner is not None and sample.owner.uid != queue.uid and not is_ours(queue, sample.owner, seen):
        return False
    server = seen.redis.server
    due = memory.failed_at is None or now - memory.failed_at >= _SOON
    return due and not (server is not None and server.too_old)


# --- without workers ---------------------------------------------------------------------------------------


def _refuse(
    why: NotAccepted, seen: QueueSeen, memory: Memory, now: datetime, retry: tuple[Action, ...] = ()
) -> Plan:
    """Nothing is touched: children over which a bad spec came stay as they were (OP-106)."""
    situation = _situation(seen, memory, now, refused=why)
    before = read_status(_stored(seen, memory))
    status = before.model_copy(
        update={"observed_generation": seen.generation, "conditions": conditions_of(situation)}
    )
    return _finish(status, seen, replace(memory, scale_down=None), now, actions=retry, requeue=FREEZE / 2)


def _wait_for_redis(queue: Queue, seen: QueueSeen, memory: Memory, now: datetime) -> Plan:
    """Before the first contact nobody knows whose Redis queue it is: no worker is made."""
    before = read_status(_stored(seen, memory))
    status = before.model_copy(
        update={
            "observed_generation": seen.generation,
            "selector": pod_selector(queue.ref.name),
            "conditions": conditions_of(_situation(seen, memory, now, reached=False)),
        }
    )
    return _finish(status, seen, memory, now, requeue=_SOON)


def _stored(seen: QueueSeen, memory: Memory) -> Mapping[str, Any]:
    """The status as it stands: our own last write may not have come back yet."""
    return memory.status if memory.status is not None else seen.status


def _situation(seen: QueueSeen, memory: Memory, now: datetime, **facts: Any) -> Situation:
    return Situation(
        now=now,
        generation=seen.generation,
        redis=seen.redis,
        server=seen.redis.server,
        failure=memory.failure,
        before=conditions_seen(_stored(seen, memory).get("conditions")),
        **facts,
    )


def _finish(
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
    """The plan, with the status only if it is news and with the events that go with it."""
    old, new = _stored(seen, memory), status.wire()
    events += transitions(conditions_seen(old.get("conditions")), status.conditions)
    return Plan(
        actions=actions,
        status=new if is_news(old, new, memory.status_written_at, now) else None,
        events=events,
        counts=counts,
        requeue_after=requeue,
        memory=memory,
        generation=seen.generation,
    )


# --- what the runtime reads --------------------------------------------------------------------------------


def settings_of(spec: QueueSpec, generation: int) -> QueueSettings:
    """The part of the spec that is in force in Redis, without a new pod (OP-027)."""
    jobs, limits = spec.jobs, spec.limits
    backoff: dict[str, Any] = {"kind": jobs.backoff.kind.lower(), "base_ms": _ms(jobs.backoff.base)}
    backoff |= {"max_ms": _ms(jobs.backoff.max), "jitter_percent": jobs.backoff.jitter_percent}
    return QueueSettings(
        generation=generation,
        timeout_ms=_ms(jobs.timeout),
        max_timeout_ms=_ms(jobs.longest),
        max_attempts=jobs.max_attempts,
        max_deliveries=jobs.max_deliveries,
        backoff=json.dumps(backoff, separators=(",", ":")),
        max_depth=limits.depth,
        max_bytes=limits.bytes,
        max_payload=limits.payload_bytes,
    )


def _ms(span: timedelta) -> int:
    return round(span / timedelta(milliseconds=1))


def _configure(queue: Queue, seen: QueueSeen, now: datetime) -> Configure:
    owner = OwnerSeen(
        operator=seen.operator.lease_uid,
        namespace=queue.ref.namespace,
        name=queue.ref.name,
        uid=queue.uid,
    )
    return Configure(
        settings=settings_of(queue.spec, queue.generation), owner=owner, reason="take the Redis queue"
    )


# --- a Queue that may act ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pods:
    """What is to happen to the number of pods, and how it came about."""

    wanted: scaling.Wanted
    load: scaling.Load | None
    moves: Moves
    reason: ScaleReason
    contested: bool


class _Reconcile:
    """One reconcile of one Queue that may act: its inputs, and a method per step."""

    def __init__(
        self, queue: Queue, children: Children, seen: QueueSeen, memory: Memory, now: datetime
    ) -> None:
        self.queue, self.children, self.seen, self.memory, self.now = queue, children, seen, memory, now
        self.sample = seen.redis.sample
        self.pods = tuple(pod for pod in seen.pods if not pod.ended)
        self.conflicts: list[str] = []
        self.events: list[Event] = []
        self.deployment = self._own_deployment()
        self.rollout = see_rollout(self.deployment, self.pods, children.template_hash)
        self.frozen = memory.frozen_until is not None and now < memory.frozen_until

    def plan(self) -> Plan:
        held = self._is_held()
        pods = self._size()
        interrupted, counts = count_interrupted(
            self.memory, self.seen.pods, self.sample, self.children.template_hash
        )
        stranded = self._stranded()
        self.memory = replace(
            interrupted,
            rates=pods.wanted.rates,
            window=pods.wanted.window or self.memory.window,
            wanted=pods.wanted.to,
            scale_down=pods.moves.down,
            stranded_since=stranded.since if self.sample is not None else self.memory.stranded_since,
        )
        actions = (
            *self._redis_config(),
            *self._upkeep(),
            *self._children(pods, held),
            *self._ordered(pods),
            *self._garbage(),
        )
        actions = self._unblocked(actions)
        self._tell(actions, pods, held)
        if pods.moves.wrong:
            counts += (Count(metric=WRONG_VICTIMS, by=len(pods.moves.wrong)),)
        return _finish(
            self._status(pods, held, stranded),
            self.seen,
            self.memory,
            self.now,
            actions=actions,
            events=tuple(self.events),
            counts=counts,
            requeue=_SOON if pods.moves.down is not None or self.sample is None else None,
        )

    def _unblocked(self, actions: tuple[Action, ...]) -> tuple[Action, ...]:
        """Without what the API server refused a short while ago: the rest must not wait for it (OP-101)."""
        blocked = {name for name, until in self.memory.blocked.items() if self.now < until}
        if subject_of_child("Deployment", worker_name(self.queue.ref.name)) in blocked and self._creating():
            # A creation is its steps together, or nothing.
            actions = tuple(a for a in actions if not isinstance(a, Scale))
        return tuple(a for a in actions if subject_of(a) not in blocked)

    # --- Redis -------------------------------------------------------------------------------------------

    def _redis_config(self) -> tuple[Action, ...]:
        """Write what the runtime reads when it changed or is not there; renew the owner record in time."""
        memory, sample = self.memory, self.sample
        if sample is None:
            return ()
        action = _configure(self.queue, self.seen, self.now)
        if memory.configured != action.settings:
            return (replace(action, reason="the settings changed"),)
        is_there = sample.owner is not None and sample.config_generation == action.settings.generation
        if not is_there and shows_our_write(memory, sample):
            return (replace(action, reason="Redis does not have the settings"),)
        if memory.configured_at is None or self.now - memory.configured_at >= RENEW_OWNER:
            return (replace(action, reason="renew the owner record"),)
        return ()

    def _upkeep(self) -> tuple[Action, ...]:
        """What workers do for a queue, while there is none (OP-146)."""
        sample = self.sample
        if sample is None or any(sample.time_ms - w.beat_ms <= STALE_AFTER_MS for w in sample.workers):
            return ()
        if sample.delayed or sample.active or sample.ready or sample.prioritized or sample.parked:
            return (Upkeep(reason="no worker beats"),)
        last = self.memory.upkeep_at
        if last is not None and self.now - last < TRIM_EVERY:
            return ()
        self.memory = replace(self.memory, upkeep_at=self.now)
        return (Upkeep(promote=False, reap=False, expire=False, reason="no worker beats"),)

    def _stranded(self) -> Stranded:
        if self.sample is None:
            return Stranded()
        return see_stranded(self.sample, self.rollout.rolling, self.memory.stranded_since, self.now)

    # --- children ----------------------------------------------------------------------------------------

    def _own_deployment(self) -> DeploymentSeen | None:
        """The Deployment if it is ours; another's, or one that is being deleted, is none (and a conflict)."""
        found = self.seen.deployment
        if found is None or found.child.deleting:
            return None
        if found.child.owner_uid == self.queue.uid:
            return found
        if self._may_adopt(found.child, selector=True):
            return found
        return None

    def _may_adopt(self, child: ChildSeen, *, selector: bool = False) -> bool:
        """Its owner handed it over, and it selects what we select (OP-078); else it is a conflict."""
        name = f"{child.kind} {child.name}"
        if child.owner_uid and child.owner_uid != self.queue.uid:
            self._conflict(f"{name} belongs to {child.owner}; it is left alone")
            return False
        if child.annotations.get(ANNOTATION_ADOPTABLE_BY) != self.queue.ref.name:
            self._conflict(
                f"{name} exists and is not this Queue's; it is left alone. To hand it over, annotate it with "
                f"{ANNOTATION_ADOPTABLE_BY}={self.queue.ref.name}"
            )
            return False
        selects = ((child.live.get("spec") or {}).get("selector") or {}).get("matchLabels")
        if selector and selects != selector_labels(self.queue.ref.name):
            self._conflict(f"{name} has another selector, which cannot be changed: it cannot be adopted")
            return False
        return True

    def _conflict(self, message: str) -> None:
        if message not in self.conflicts:
            self.conflicts.append(message)

    def _is_held(self) -> bool:
        """The new template must wait: data may be lost, or an operator upgrade rolls enough Queues already."""
        live = self.deployment
        if live is None or not live.begun or live.template_hash == self.children.template_hash:
            return False
        upgrade = _stored(self.seen, self.memory).get("observedGeneration") == self.seen.generation
        crowded = upgrade and self.seen.operator.rollouts >= self.seen.operator.max_rollouts
        return self.frozen or crowded

    def _children(self, pods: _Pods, held: bool) -> tuple[Action, ...]:
        actions: list[Action] = [*self._deployment(pods, held)]
        for manifest in (self.children.pdb, self.children.network_policy):
            if manifest is not None:
                actions += self._plain_child(manifest)
        return tuple(actions)

    def _deployment(self, pods: _Pods, held: bool) -> tuple[Action, ...]:
        manifest, live = self.children.deployment, self.deployment
        wanted = marked(manifest)
        if live is None:
            if self.seen.deployment is not None:
                return ()  # somebody else's, or on its way out
            return self._create(wanted, pods.wanted.to)
        if not live.begun and live.child.owner_uid == self.queue.uid:
            # A process before this one was interrupted between the steps of a creation.
            scale = _first_scale(live, pods.wanted.to)
            return (*scale, ApplyChild(manifest=wanted, reason="creation goes on"))
        if held:
            return ()
        if self._must_pause(pods):
            wanted = marked({**manifest, "spec": {**manifest["spec"], "paused": True}})
        if live.child.owner_uid != self.queue.uid:
            return (ApplyChild(manifest=wanted, reason="adopted"),)
        if has_drifted(wanted, live.child.live):
            return (ApplyChild(manifest=wanted, reason=self._why(live)),)
        return ()

    def _create(self, manifest: Mapping[str, Any], to: int) -> tuple[Action, ...]:
        """Unset replicas become 1, but a paused Deployment makes no pod: so an idle Queue starts none (OP-074)."""
        name = worker_name(self.queue.ref.name)
        bare = self.children.deployment
        paused = marked({**bare, "spec": {**bare["spec"], "paused": True}})
        scale = (Scale(name=name, to=to, seen=1, reason="created"),) if to != 1 else ()
        return (
            ApplyChild(manifest=paused, reason="created, without pods"),
            *scale,
            ApplyChild(manifest=manifest, reason="created"),
        )

    def _must_pause(self, pods: _Pods) -> bool:
        rolling = self.queue.spec.rollout.rolling_update
        return must_pause(self.rollout, rolling.max_terminating, pods.wanted.to) or (
            self.frozen and self.rollout.rolling
        )

    def _why(self, live: DeploymentSeen) -> str:
        if live.template_hash != self.children.template_hash:
            return "the template changed"
        return "differs from what is declared"

    def _plain_child(self, manifest: Mapping[str, Any]) -> list[Action]:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        wanted = marked(manifest)
        live = next((c for c in self.seen.children if (c.kind, c.name) == (kind, name)), None)
        if live is None:
            return [ApplyChild(manifest=wanted, reason="created")]
        if live.deleting:
            return []
        if live.owner_uid != self.queue.uid:
            adopted = self._may_adopt(live)
            return [ApplyChild(manifest=wanted, reason="adopted")] if adopted else []
        if has_drifted(wanted, live.live):
            return [ApplyChild(manifest=wanted, reason="differs from what is declared")]
        return []

    def _garbage(self) -> tuple[Action, ...]:
        """Objects of ours that are not declared any more; a Deployment only when its pods have drained (OP-079)."""
        declared = [self.children.deployment, self.children.pdb, self.children.network_policy]
        names = {(m["kind"], m["metadata"]["name"]) for m in declared if m is not None}
        return tuple(
            DeleteChild(kind=c.kind, name=c.name, uid=c.uid, reason="not declared any more")
            for c in self.seen.children
            if c.owner_uid == self.queue.uid
            and not c.deleting
            and (c.kind, c.name) not in names
            and not (c.kind == "Deployment" and (c.live.get("status") or {}).get("replicas"))
        )

    # --- pods --------------------------------------------------------------------------------------------

    def _size(self) -> _Pods:
        current = self._current()
        load = self._load(current) if self.sample is not None else None
        wanted = self._wanted(load, current)
        fleet = self._fleet()
        if fleet is None:
            return _Pods(wanted, load, Moves(), wanted.reason, False)
        if self.frozen and wanted.to < fleet.replicas:
            wanted = replace(wanted, to=fleet.replicas, reason=ScaleReason.HELD)
        contested = self._note_contest(fleet)
        moves = move(fleet, wanted.to, self.memory.scale_down, wanted.reason, self.now)
        if contested and self.memory.asked_at is not None and self.now - self.memory.asked_at < CONTEST_PAUSE:
            moves = replace(moves, actions=tuple(a for a in moves.actions if not isinstance(a, Scale)))
        reason = moves.waits if moves.waits is not None else wanted.reason
        return _Pods(wanted, load, moves, reason, contested)

    def _current(self) -> int:
        """Replicas that were last asked for: ours, else what the Deployment has."""
        if self.queue.spec.scaling.mode == "Auto" and self.memory.asked is not None:
            return self.memory.asked
        return self.deployment.replicas if self.deployment is not None and self.deployment.begun else 0

    def _wanted(self, load: scaling.Load | None, current: int) -> scaling.Wanted:
        spec, memory = self.queue.spec.scaling, self.memory
        policy = policy_of(self.queue.spec)
        if spec.mode == "External":
            asked = self.queue.spec.replicas
            return scaling.external(
                spec.min_replicas if self._creating() and asked is None else asked, current, memory.rates
            )
        if load is None:
            lost_for = self.now - (memory.redis_lost_since or self.now)
            return scaling.blind(current, lost_for, _fallback_of(spec), memory.rates, policy.most)
        warm = self.now - memory.since >= policy.window
        return scaling.tick(load, memory.rates, policy, memory.window, warm, self.now)

    def _load(self, current: int) -> scaling.Load:
        sample = self.sample
        assert sample is not None
        staying = [pod for pod in self.pods if not pod.terminating]
        leaving = sum(sample.leased.get(pod.uid, 0) for pod in self.pods if pod.terminating)
        return load_of(sample, staying, leaving, current)

    def _fleet(self) -> Fleet | None:
        live, sample = self.deployment, self.sample
        if live is None or not live.begun:
            return None
        workers: dict[str, tuple[Any, ...]] = {}
        for worker in sample.workers if sample is not None else ():
            workers[worker.pod] = (*workers.get(worker.pod, ()), worker)
        return Fleet(
            deployment=live.child.name,
            replicas=live.replicas,
            resource_version=live.child.resource_version,
            pods=self.pods,
            workers=workers,
            leased=sample.leased if sample is not None else {},
            quiesced=sample.quiesced if sample is not None else {},
            rolling=self.rollout.two_live,
            readable=sample is not None,
            time_ms=sample.time_ms if sample is not None else 0,
        )

    def _note_contest(self, fleet: Fleet) -> bool:
        """Others write the replicas too: three times in five minutes is a contest (OP-077)."""
        memory, now = self.memory, self.now
        kept = tuple(at for at in memory.contested if now - at < CONTEST_SPAN)
        asked_at = memory.asked_at
        differs = memory.asked is not None and fleet.replicas != memory.asked
        settled = asked_at is not None and now - asked_at >= SETTLING
        counted = asked_at is not None and any(at >= asked_at for at in kept)
        if differs and settled and not counted:
            kept = (*kept, now)
        self.memory = replace(memory, contested=kept)
        return len(kept) >= CONTESTS

    def _ordered(self, pods: _Pods) -> tuple[Action, ...]:
        """Un-quiesce, scale, quiesce, cost; and nothing for a Redis that cannot be read."""
        order: tuple[type, ...] = (Unquiesce, Scale, Quiesce, DeletionCost)
        actions: Iterable[Action] = pods.moves.actions
        if self.sample is None:
            actions = (a for a in actions if not isinstance(a, Quiesce | Unquiesce))
        return tuple(sorted(actions, key=lambda action: order.index(type(action))))

    # --- what is said ------------------------------------------------------------------------------------

    def _state(self, held: bool) -> State:
        if held:
            return State.HELD
        if self.rollout.overdue:
            return State.STALLED
        applied = self.deployment is not None and self.deployment.template_hash == self.children.template_hash
        return State.PROGRESSING if self.rollout.rolling or not applied else State.COMPLETE

    def _creating(self) -> bool:
        return self.deployment is None or not self.deployment.begun

    def _tell(self, actions: tuple[Action, ...], pods: _Pods, held: bool) -> None:
        """Events of what is done; those of conditions come from their transitions."""
        for action in actions:
            if isinstance(action, Scale) and not self._creating() and action.to != action.seen:
                name = "ScaledUp" if action.to > action.seen else "ScaledDown"
                self._event(name, f"from {action.seen} to {action.to} pods: {_because(pods)}", of=action)
            if isinstance(action, ApplyChild) and action.reason == "adopted":
                self._event("Adopted", f"{action.kind} {action.name} is this Queue's now", of=action)
            if isinstance(action, ApplyChild) and action.reason == "the template changed":
                message = f"template {self.children.template_hash} replaces the old one"
                self._event("RolloutStarted", message, of=action)
        before = read_status(_stored(self.seen, self.memory))
        was = before.rollout.state if before.rollout is not None else ""
        if was == State.PROGRESSING and self._state(held) is State.COMPLETE and not self._creating():
            self._event("RolloutPromoted", f"all pods are of template {self.children.template_hash}")
        for name in pods.moves.wrong:
            message = f"pod {name} was ended in place of a drained one; its jobs go back"
            self._event("WrongVictim", message, EventType.WARNING)
        ignored = self._ignored()
        if ignored is not None and before.observed_generation != self.seen.generation:
            self._event("ReplicasIgnored", f"spec.replicas ({ignored}) is ignored: scaling.mode is Auto")
        sample, memory = self.sample, self.memory
        if sample is not None and memory.configured is not None and not memory.owned:
            self._event(
                "RedisDataLost",
                "Redis restarted or lost our record: no scale-down and no rollout for 60 s",
                EventType.WARNING,
            )

    def _event(
        self, reason: str, message: str, kind: EventType = EventType.NORMAL, of: Action | None = None
    ) -> None:
        self.events.append(Event(reason=reason, message=message, type=kind, of=of))

    def _ignored(self) -> int | None:
        """`spec.replicas` if it is set and nobody heeds it."""
        return self.queue.spec.replicas if self.queue.spec.scaling.mode == "Auto" else None

    def _status(self, pods: _Pods, held: bool, stranded: Stranded) -> api.QueueStatus:
        seen, memory, sample = self.seen, self.memory, self.sample
        before = read_status(_stored(seen, memory))
        state = self._state(held) if not self._creating() else State.COMPLETE
        mode = self.queue.spec.scaling.mode
        policy = policy_of(self.queue.spec)
        situation = _situation(
            seen,
            memory,
            self.now,
            creating=self._creating(),
            conflict="; ".join(self.conflicts),
            contested=pods.contested,
            unready_for=pod_facts.age(memory.not_ready_since, self.now),
            troubles=pod_facts.troubles(self.pods),
            crash_loop=pod_facts.crash_loop(self.pods),
            replica_failure=self._replica_failure(),
            rollout=self.rollout,
            state=state,
            mode=mode,
            replicas_ignored=self._ignored(),
            scaling=pods.wanted.reason,
            raw=pods.wanted.raw,
            most=policy.most,
            paused=sample.paused if sample is not None else False,
            stranded=stranded,
        )
        decided = Decided(
            before=before.scaling.wanted if before.scaling is not None else None,
            raw=pods.wanted.raw,
            to=pods.wanted.to,
            reason=pods.reason,
            message=_because(pods),
            load=pods.load,
            rates=memory.rates,
        )
        return api.QueueStatus(
            observed_generation=seen.generation,
            selector=pod_selector(self.queue.ref.name),
            conditions=conditions_of(situation),
            redis=redis_of(seen.redis.server, sample, before.redis),
            depth=depth_of(sample) if sample is not None else before.depth,
            workers=self._workers(before),
            scaling=scaling_of(decided, in_force(mode, policy), before.scaling, sample is None, self.now),
            rollout=self._rollout_status(before, state),
            stranded=self._stranded_status(before, stranded),
        )

    def _replica_failure(self) -> str:
        """Pod Security, quota and admission refuse pods, not the apply: the Deployment says so."""
        live = self.deployment
        failure = live.conditions.get("ReplicaFailure") if live is not None else None
        return failure.message if failure is not None and failure.status == "True" else ""

    def _workers(self, before: api.QueueStatus) -> api.WorkersStatus:
        sample = self.sample
        staying = [pod for pod in self.pods if not pod.terminating]
        old = before.workers or api.WorkersStatus()
        down = self.memory.scale_down
        beating = (
            [w for w in sample.workers if sample.time_ms - w.beat_ms <= STALE_AFTER_MS]
            if sample is not None
            else []
        )
        return api.WorkersStatus(
            replicas=len(staying),
            ready=sum(pod.ready for pod in staying),
            quiesced=sum(pod.uid in down.victims for pod in staying) if down is not None else 0,
            terminating=self.rollout.terminating,
            slots=sum(w.slots for w in beating) if sample is not None else old.slots,
            busy=sum(w.busy for w in beating) if sample is not None else old.busy,
            grace_seconds=self.children.grace_seconds,
            pod_start_millis=round(self.memory.pod_start_s * 1000),
        )

    def _rollout_status(self, before: api.QueueStatus, state: State) -> api.RolloutStatus:
        old = before.rollout or api.RolloutStatus()
        started = old.started_at
        if state is State.PROGRESSING and old.state != State.PROGRESSING:
            started = self.now.replace(microsecond=0)
        return api.RolloutStatus(
            state=state,
            stable_hash=self.children.template_hash,
            started_at=started,
            interrupted=interrupted_of(self.memory.interrupted),
        )

    def _stranded_status(self, before: api.QueueStatus, stranded: Stranded) -> api.StrandedStatus:
        if self.sample is None:
            return before.stranded or api.StrandedStatus()
        if not stranded.holds(self.now):
            return api.StrandedStatus()
        return api.StrandedStatus(count=stranded.count, first_job_id=stranded.first, types=stranded.types)


def _first_scale(live: DeploymentSeen, to: int) -> tuple[Action, ...]:
    if live.replicas == to:
        return ()
    return (Scale(name=live.child.name, to=to, seen=live.replicas, reason="created"),)


def _because(pods: _Pods) -> str:
    """The decision in a sentence."""
    if pods.load is None:
        return f"{pods.reason}: {pods.wanted.to} pods wanted"
    return (
        f"{pods.reason}: {pods.load.waiting} jobs wait, {pods.load.active} run, "
        f"{pods.wanted.rates.service_s:.3g} s each; the formula says {pods.wanted.raw}"
    )


def _fallback_of(spec: api.Scaling) -> scaling.Fallback | None:
    if spec.fallback is None:
        return None
    return scaling.Fallback(replicas=spec.fallback.replicas, after=spec.fallback.after)


def policy_of(spec: QueueSpec) -> scaling.Policy:
    """The scaling settings in force."""
    return scaling.Policy(
        slots=spec.worker.slots,
        target_s=spec.scaling.drain_within.total_seconds(),
        utilization=spec.scaling.utilization_percent / 100,
        window=scaling.BALANCED.window,
        max_wait_s=spec.scaling.rescue_after.total_seconds(),
        longest_s=spec.jobs.longest.total_seconds(),
        least=spec.scaling.min_replicas,
        most=spec.scaling.max_replicas,
    )


def load_of(sample: SampleSeen, staying: Iterable[PodSeen], leaving: int, current: int) -> scaling.Load:
    """A sample and its pods as the scaling loop sees them.

    leaving    leases that terminating pods still hold
    """
    staying = tuple(staying)
    busy = sum(w.busy for w in sample.workers)
    elapsed = sum(w.busy * w.mean_elapsed_ms for w in sample.workers)
    unregistered = not staying and sample.parked > 0 and not sample.template_known
    return scaling.Load(
        time_ms=sample.time_ms,
        run_id=sample.run_id,
        entered=sample.entered,
        finished=sample.finished,
        claimable=sample.ready + sample.prioritized,
        due_soon=sample.due_soon,
        throttled=sample.throttled,
        oldest_s=sample.oldest_ms / 1000,
        active=sample.active,
        busy=max(sample.active - leaving, 0),
        mean_elapsed_s=elapsed / busy / 1000 if busy else 0.0,
        unregistered=int(unregistered),
        paused=sample.paused or sample.held,
        current=current,
        ready_pods=sum(pod.ready and pod.uid not in sample.quiesced for pod in staying),
    )
