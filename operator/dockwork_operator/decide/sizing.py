"""How many pods this Queue shall have now, and the next step towards that number.

`scaling` has the formula and `victims` the safe way down; here they meet the Queue: mode, minimum, a Redis that cannot
be read, data that may be lost, others who write the same replicas.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dockwork_operator.constants import ScaleReason
from dockwork_operator.decide import scaling
from dockwork_operator.decide.children import Household
from dockwork_operator.decide.contact import SETTLING
from dockwork_operator.decide.memory import Memory
from dockwork_operator.decide.plan import Action, DeletionCost, Quiesce, Scale, Unquiesce
from dockwork_operator.decide.rollout import RolloutSeen
from dockwork_operator.decide.seen import DeploymentSeen, PodSeen, SampleSeen, WorkerSeen
from dockwork_operator.decide.victims import Fleet, Moves, move
from dockwork_operator.models.queues import QueueSpec, Scaling

#: So many foreign writes within the span are a contest; then ours is written once per pause (OP-077).
CONTESTS, CONTEST_SPAN, CONTEST_PAUSE = 3, timedelta(minutes=5), timedelta(minutes=1)

_ORDER: tuple[type, ...] = (Unquiesce, Scale, Quiesce, DeletionCost)


@dataclass(frozen=True, kw_only=True, slots=True)
class Size:
    """The number of pods, how it came about, and what is done for it now.

    reason       why the Deployment has or gets the number it has: of the formula, or of what it waits for
    contested    instants of foreign writes that still count
    """

    wanted: scaling.Wanted
    reason: ScaleReason
    load: scaling.Load | None = None
    moves: Moves = field(default_factory=Moves)
    contested: tuple[datetime, ...] = ()

    @property
    def is_contested(self) -> bool:
        return len(self.contested) >= CONTESTS

    @property
    def because(self) -> str:
        """The decision in a sentence."""
        if self.load is None:
            return f"{self.reason}: {self.wanted.to} pods wanted"
        wait = "are due soon" if self.reason is ScaleReason.PREWARM else "wait"
        return (
            f"{self.reason}: {self.load.waiting} jobs {wait}, {self.load.active} run, "
            f"{self.wanted.rates.service_s:.3g} s each; the formula says {self.wanted.raw}"
        )


def size(
    house: Household, pods: tuple[PodSeen, ...], rollout: RolloutSeen, memory: Memory, now: datetime
) -> Size:
    """Decide the number, then the next step: `pods` are those that have not ended."""
    sample = house.seen.redis.sample
    current = current_replicas(house, memory)
    load = None if sample is None else load_of(sample, pods, current)
    wanted = _wanted(house, load, current, memory, now)
    live = house.deployment
    if live is None or not live.begun:
        return Size(wanted=wanted, reason=wanted.reason, load=load)
    frozen = memory.frozen_until is not None and now < memory.frozen_until
    if frozen and wanted.to < live.replicas:
        wanted = replace(wanted, to=live.replicas, reason=ScaleReason.HELD)
    fleet = fleet_of(live, pods, sample, rollout)
    moves = move(fleet, wanted.to, memory.scale_down, wanted.reason, now)
    contested = _contested(live.replicas, memory, now)
    return Size(
        wanted=wanted,
        reason=moves.waits or wanted.reason,
        load=load,
        moves=replace(moves, actions=_possible(moves.actions, sample, contested, memory, now)),
        contested=contested,
    )


def current_replicas(house: Household, memory: Memory) -> int:
    """Replicas that were last asked for: ours, else what the Deployment has, else what was wanted of it."""
    if house.queue.spec.scaling.mode == "Auto" and memory.asked is not None:
        return memory.asked
    if house.deployment is not None and house.deployment.begun:
        return house.deployment.replicas
    return memory.wanted or 0


def _wanted(
    house: Household, load: scaling.Load | None, current: int, memory: Memory, now: datetime
) -> scaling.Wanted:
    spec, policy = house.queue.spec.scaling, policy_of(house.queue.spec)
    if spec.mode == "External":
        asked = house.queue.spec.replicas
        newborn = asked is None and house.creating and memory.wanted is None
        return scaling.external(spec.min_replicas if newborn else asked, current, memory.rates)
    if load is None:
        lost_for = now - (memory.redis_lost_since or now)
        return scaling.blind(current, lost_for, _fallback_of(spec), memory.rates, policy.most)
    warm = now - memory.since >= policy.window
    return scaling.tick(load, memory.rates, policy, memory.window, warm, now)


def _contested(replicas: int, memory: Memory, now: datetime) -> tuple[datetime, ...]:
    """Foreign writes of the last minutes: each of our own writes can be overwritten once (OP-077)."""
    kept = tuple(at for at in memory.contested if now - at < CONTEST_SPAN)
    if memory.asked is None or memory.asked_at is None or replicas == memory.asked:
        return kept
    is_new = now - memory.asked_at >= SETTLING and not any(at >= memory.asked_at for at in kept)
    return (*kept, now) if is_new else kept


def _possible(
    actions: Iterable[Action],
    sample: SampleSeen | None,
    contested: tuple[datetime, ...],
    memory: Memory,
    now: datetime,
) -> tuple[Action, ...]:
    """Un-quiesce, scale, quiesce, cost; nothing for a Redis that cannot be read, a scale now and then in a contest."""
    if sample is None:
        actions = (a for a in actions if not isinstance(a, Quiesce | Unquiesce))
    if len(contested) >= CONTESTS and memory.asked_at is not None and now - memory.asked_at < CONTEST_PAUSE:
        actions = (a for a in actions if not isinstance(a, Scale))
    return tuple(sorted(actions, key=lambda action: _ORDER.index(type(action))))


# --- from spec and sample to the formula's values ----------------------------------------------------------


def policy_of(spec: QueueSpec) -> scaling.Policy:
    """The scaling settings in force."""
    return scaling.Policy(
        slots=spec.worker.slots,
        target_s=spec.scaling.drain_within.total_seconds(),
        utilization=spec.scaling.utilization_percent / 100,
        window=scaling.WINDOW,
        max_wait_s=spec.scaling.rescue_after.total_seconds(),
        longest_s=spec.jobs.longest.total_seconds(),
        least=spec.scaling.min_replicas,
        most=spec.scaling.max_replicas,
    )


def _fallback_of(spec: Scaling) -> scaling.Fallback | None:
    if spec.fallback is None:
        return None
    return scaling.Fallback(replicas=spec.fallback.replicas, after=spec.fallback.after)


def load_of(sample: SampleSeen, pods: tuple[PodSeen, ...], current: int) -> scaling.Load:
    """A sample and its pods as the scaling loop sees them."""
    staying = [pod for pod in pods if not pod.terminating]
    leaving = sum(sample.leased.get(pod.uid, 0) for pod in pods if pod.terminating)
    busy = sum(w.busy for w in sample.workers)
    elapsed_ms = sum(w.busy * w.mean_elapsed_ms for w in sample.workers)
    unregistered = not staying and sample.parked > 0 and not sample.template_known
    return scaling.Load(
        time_ms=sample.time_ms,
        run_id=sample.run_id,
        entered=sample.entered,
        finished=sample.finished,
        claimable=sample.ready + sample.prioritized,
        due_soon=sample.due_soon,
        throttled=sample.throttled,
        concurrency=sample.concurrency,
        starts_per_s=sample.starts_per_s,
        oldest_s=sample.oldest_ms / 1000,
        active=sample.active,
        busy=max(sample.active - leaving, 0),
        mean_elapsed_s=elapsed_ms / busy / 1000 if busy else 0.0,
        unregistered=int(unregistered),
        paused=sample.paused or sample.held,
        current=current,
        ready_pods=sum(pod.ready and pod.uid not in sample.quiesced for pod in staying),
    )


def fleet_of(
    live: DeploymentSeen, pods: tuple[PodSeen, ...], sample: SampleSeen | None, rollout: RolloutSeen
) -> Fleet:
    """The pods of the Deployment and what their workers hold."""
    fleet = Fleet(
        deployment=live.child.name,
        replicas=live.replicas,
        resource_version=live.child.resource_version,
        pods=pods,
        rolling=rollout.two_live,
        readable=sample is not None,
    )
    if sample is None:
        return fleet
    workers: dict[str, tuple[WorkerSeen, ...]] = {}
    for worker in sample.workers:
        workers[worker.pod] = (*workers.get(worker.pod, ()), worker)
    return replace(
        fleet, workers=workers, leased=sample.leased, quiesced=sample.quiesced, time_ms=sample.time_ms
    )
