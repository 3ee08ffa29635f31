"""The reconcile of a Queue: observe, decide, apply. The same for every trigger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from dockwork_operator.apply.carry_out import Hands, carry_out, failure_of
from dockwork_operator.decide.manifests import RedisDefaults
from dockwork_operator.decide.memory import REFUSED_FOR, Memory, remember, seed_memory, untried
from dockwork_operator.decide.plan import Applied, ApplyFailure, FailureKind, Plan
from dockwork_operator.decide.queue import decide_queue
from dockwork_operator.decide.seen import OperatorSeen, QueueSeen, SecretState
from dockwork_operator.errors import KubeError
from dockwork_operator.kube.cache import Cache
from dockwork_operator.kube.client import KubeClient, Object
from dockwork_operator.kube.events import About, EventWriter
from dockwork_operator.kube.limits import RateLimit
from dockwork_operator.kube.resources import QUEUES, ObjectKey
from dockwork_operator.logs import EventLog
from dockwork_operator.loop.figures import changes, count_all, show_queue
from dockwork_operator.loop.pace import Pace
from dockwork_operator.loop.wakes import Wakes
from dockwork_operator.metrics import Metrics
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue, Scaling, parse_queue
from dockwork_operator.observe.queues import QueueObserver, redis_name, sample_request

log = EventLog(__name__)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What every reconcile works with."""

    kube: KubeClient
    cache: Cache
    wakes: Wakes
    pace: Pace
    status_pace: Pace
    events: EventWriter
    metrics: Metrics
    status_limit: RateLimit
    now: Callable[[], datetime]


#: Seconds between two looks for a Secret that is not there.
SECRET_EVERY = 5.0


class StatusWriter:
    """One PATCH of /status, at most ten per second together; what it returned is in the cache before its event.

    A status that was refused or failed waits by a pace of its own, and holds no action back.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def may_write(self, key: ObjectKey, generation: int) -> bool:
        """Whether it is time; a new generation does not wait."""
        return self._parts.status_pace.may_act(key, generation)

    def try_again(self, key: ObjectKey, generation: int, failure: ApplyFailure) -> None:
        """Book the next write. There is nothing to show before: showing is what failed."""
        if failure.retry_after is None:
            failure = replace(failure, retry_after=REFUSED_FOR.get(failure.kind))
        wait = self._parts.status_pace.failed(key, generation, failure)
        if wait > 0.0:
            self._parts.wakes.put_later(key, wait)
        else:
            self._parts.wakes.put(key)

    async def write(self, key: ObjectKey, uid: str, status: Mapping[str, Any]) -> None:
        """Raises KubeError."""
        parts = self._parts
        await parts.status_limit.take()
        # The uid is a precondition: a new object of the same name gets no old status.
        patch = {"metadata": {"uid": uid}, "status": dict(status)}
        written = await parts.kube.merge(key.resource, key.namespace, key.name, patch, subresource="status")
        parts.status_pace.went_well(key)
        parts.cache.put(key.resource, written)
        for other in parts.cache.concerned(key.resource, written):
            if other != key:
                parts.wakes.put(other)
        parts.metrics.status_writes.labels(key.resource.kind).inc()


class QueueReconciler:
    """Reconciles Queues and remembers, per object, what decisions need from the last time.

    lease_uid    the identity of this installation towards Redis
    """

    def __init__(
        self,
        parts: Parts,
        observer: QueueObserver,
        *,
        defaults: RedisDefaults,
        lease_uid: Callable[[], str],
        max_rollouts: int,
    ) -> None:
        self._parts = parts
        self._observer = observer
        self._status = StatusWriter(parts)
        self._defaults = defaults
        self._lease_uid = lease_uid
        self._max_rollouts = max_rollouts
        self._memories: dict[ObjectKey, tuple[str, Memory]] = {}
        self._rolling: set[ObjectKey] = set()
        self._left: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> None:
        """Raises KubeError and NotLeading; everything else that can go wrong is in the plan or in the pace."""
        parts = self._parts
        raw = parts.cache.get(QUEUES, key.namespace, key.name)
        if raw is None:
            self.forget(key)
            return
        uid, now = str(raw["metadata"]["uid"]), parts.now()
        queue = parse_queue(raw)
        memory = self._recall(key, uid, raw, queue, now)
        sound = queue if isinstance(queue, Queue) else None
        world = await self._observer.observe(key, raw, sound, memory, self._operator(key))
        plan = decide_queue(queue, world.seen, memory, now)
        # What failed is shown, and not tried again yet.
        held = not parts.pace.may_act(key, world.seen.generation)
        hands = Hands(
            kube=parts.kube,
            cache=parts.cache,
            namespace=key.namespace,
            queue=redis_name(sound) if sound is not None else None,
            store=world.link.store if world.link is not None else None,
        )
        applied = await carry_out(() if held else plan.actions, hands)
        if applied.failure is None:
            applied = await self._report(key, uid, plan, applied)
        memory = (untried if held else remember)(plan, applied, parts.now())
        self._memories[key] = (uid, memory)
        self._note(key, world.seen, plan, applied, memory)
        if sound is not None and world.link is not None:
            world.link.ask(key, sample_request(sound, world.seen, memory))
        self._again(key, world.seen, plan, applied, held=held)

    def forget(self, key: ObjectKey) -> None:
        """The object is gone, and with it everything that was kept for it."""
        self._memories.pop(key, None)
        self._rolling.discard(key)
        self._left.pop(key, None)
        self._observer.forget(key)
        self._parts.pace.forget(key)
        self._parts.status_pace.forget(key)
        self._parts.wakes.forget(key)
        self._parts.metrics.forget(key.namespace, key.name)

    def forget_all(self) -> None:
        """Start as a new process would: after the Lease was gained, another may have acted meanwhile."""
        self._memories.clear()

    def _recall(self, key: ObjectKey, uid: str, raw: Object, queue: Queue | Refused, now: datetime) -> Memory:
        known = self._memories.get(key)
        if known is not None and known[0] == uid:
            return known[1]
        scaling = queue.spec.scaling if isinstance(queue, Queue) else Scaling()
        return seed_memory(raw.get("status") or {}, scaling.expected_duration, now)

    def _operator(self, key: ObjectKey) -> OperatorSeen:
        return OperatorSeen(
            lease_uid=self._lease_uid(),
            redis=self._defaults,
            rollouts=len(self._rolling - {key}),
            max_rollouts=self._max_rollouts,
        )

    async def _report(self, key: ObjectKey, uid: str, plan: Plan, applied: Applied) -> Applied:
        """The status, then the events: no event tells what the status does not show."""
        if plan.status is not None:
            if not self._status.may_write(key, plan.generation):
                return applied
            try:
                await self._status.write(key, uid, plan.status)
            except KubeError as error:
                return Applied(done=applied.done, failure=failure_of(error))
            applied = Applied(done=applied.done, status_written=True)
        about = About(resource=QUEUES, namespace=key.namespace, name=key.name, uid=uid)
        for event in plan.events:
            if event.of is not None and event.of not in applied.done:
                continue
            await self._parts.events.write(
                about, reason=event.reason, message=event.message, warning=event.type == "Warning"
            )
        return applied

    def _note(self, key: ObjectKey, seen: QueueSeen, plan: Plan, applied: Applied, memory: Memory) -> None:
        """Log lines and figures of what was done."""
        for line in changes(applied.done):
            log.info(line.event, object=str(key), generation=seen.generation, **line.pairs)
        if plan.left_to and self._left.get(key) != plan.left_to:
            words = f"another installation ({plan.left_to}) looks after this Queue"
            log.warning("left_alone", object=str(key), error=words)
        self._left[key] = plan.left_to
        if applied.failure is not None and not plan.left_to:
            log_failure(key, seen.generation, applied.failure)
        status = plan.status if plan.status is not None else seen.status
        rolling = (status.get("rollout") or {}).get("state") == "Progressing"
        (self._rolling.add if rolling else self._rolling.discard)(key)
        count_all(self._parts.metrics, key, plan, applied)
        show_queue(self._parts.metrics, key, status, seen, memory)

    def _again(self, key: ObjectKey, seen: QueueSeen, plan: Plan, applied: Applied, *, held: bool) -> None:
        parts = self._parts
        failure = applied.failure
        if failure is not None and is_of_status(failure):
            self._status.try_again(key, seen.generation, failure)
            return
        if failure is not None and failure.kind in REFUSED_FOR and len(applied.done) < len(plan.actions):
            # The next plan leaves out what was refused: the rest does not wait for it.
            parts.wakes.put(key)
            parts.wakes.put_later(key, REFUSED_FOR[failure.kind].total_seconds())
            return
        if failure is not None:
            try_again(parts, key, seen.generation, failure)
            return
        if not held:
            parts.pace.went_well(key)
        if changes(applied.done):
            parts.wakes.put(key)
        if plan.requeue_after is not None:
            parts.wakes.put_later(key, plan.requeue_after.total_seconds())
        if seen.secret.state is not SecretState.FOUND:
            # Secrets are in no watch: what is missing is asked for again.
            parts.wakes.put_later(key, SECRET_EVERY)


def try_again(parts: Parts, key: ObjectKey, generation: int, failure: ApplyFailure) -> None:
    """Book the next try, and before it a look that only shows the failure in the status."""
    wait = parts.pace.failed(key, generation, failure)
    if wait > 0.0:
        parts.wakes.put_later(key, wait)
        parts.wakes.put(key)
    elif failure.kind is FailureKind.CONFLICT:
        parts.wakes.put(key)


def is_of_status(failure: ApplyFailure) -> bool:
    """It was the status that could not be written; the actions before it were done."""
    return failure.resource.endswith("/status")


def log_failure(key: ObjectKey, generation: int, failure: ApplyFailure) -> None:
    """A conflict is nothing to worry about: somebody wrote first, and the next look sees it."""
    (log.debug if failure.kind is FailureKind.CONFLICT else log.warning)(
        "apply_failed",
        object=str(key),
        generation=generation,
        reason=str(failure.kind),
        verb=failure.verb,
        resource=failure.resource,
        error=failure.message,
    )
