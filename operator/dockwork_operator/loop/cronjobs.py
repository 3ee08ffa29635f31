"""The reconcile of a CronJob: observe, decide, apply; and the sweep of schedules whose CronJob is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from dockwork.errors import DockworkError
from dockwork_operator.apply.schedules import CronApplied, CronHands, carry_out_schedules
from dockwork_operator.decide.cron_seen import (
    CronPlan,
    CronSeen,
    PutSchedule,
    RemoveSchedule,
    SuspendSchedule,
)
from dockwork_operator.decide.plan import ApplyChild, DeleteChild
from dockwork_operator.decide.ticks import choose_orphans, decide_cronjob
from dockwork_operator.errors import KubeError
from dockwork_operator.kube.events import About
from dockwork_operator.kube.resources import CRONJOBS, QUEUES, ObjectKey
from dockwork_operator.logs import EventLog
from dockwork_operator.loop.figures import show_cronjob
from dockwork_operator.loop.queues import Parts, StatusWriter, log_failure, try_again
from dockwork_operator.models.cronjobs import CronJob, parse_cronjob
from dockwork_operator.models.objects import ObjectRef
from dockwork_operator.observe.schedules import CronObserver, Ledger

log = EventLog(__name__)

SWEEP_EVERY = 600.0
#: Seconds in which a Queue's Redis is looked at after a start.
EXPECTED_WITHIN = 0.5
#: Seconds between two looks for Queues whose ledger has become reachable.
SWEEP_LOOKS_EVERY = 2.0

Namespaces = Callable[[], Sequence[str | None]]


class CronJobReconciler:
    """Reconciles CronJobs. What it remembers is only where a schedule is, for the day its CronJob is deleted."""

    def __init__(self, parts: Parts, observer: CronObserver, *, namespaces: Namespaces) -> None:
        self._parts = parts
        self._observer = observer
        self._namespaces = namespaces
        self._status = StatusWriter(parts)
        self._written: dict[ObjectKey, tuple[str, datetime]] = {}
        self._kept_in: dict[ObjectKey, dict[str, dict[ObjectRef, Ledger]]] = {}

    async def reconcile(self, key: ObjectKey) -> None:
        """Raises KubeError and NotLeading; everything else that can go wrong is in the plan or in the pace."""
        parts = self._parts
        raw = parts.cache.get(CRONJOBS, key.namespace, key.name)
        uid = str(raw["metadata"]["uid"]) if raw is not None else ""
        await self._remove_old(key, keep=uid)
        if raw is None:
            self.forget(key)
            return
        cronjob = parse_cronjob(raw)
        sound = cronjob if isinstance(cronjob, CronJob) else None
        if sound is not None and self._observer.is_expected(key.namespace, sound.queue_name):
            parts.wakes.put_later(key, EXPECTED_WITHIN)
            return
        written_for, written_at = self._written.get(key, ("", None))
        world = await self._observer.observe(key, raw, sound, written_at if written_for == uid else None)
        self._kept_in.setdefault(key, {}).setdefault(uid, {}).update(world.ledgers)
        plan = decide_cronjob(cronjob, world.seen, parts.now())
        held = not parts.pace.may_act(key, world.seen.generation)
        hands = CronHands(
            kube=parts.kube,
            cache=parts.cache,
            namespace=key.namespace,
            ledgers={ref: (ledger.store, ledger.queue) for ref, ledger in world.ledgers.items()},
        )
        applied = await carry_out_schedules(() if held else plan.actions, hands)
        if applied.failure is None:
            applied = await self._report(key, uid, plan, applied)
        self._note(key, world.seen, plan, applied)
        self._again(key, world.seen, plan, applied, held=held)

    def forget(self, key: ObjectKey) -> None:
        self._written.pop(key, None)
        self._parts.pace.forget(key)
        self._parts.wakes.forget(key)
        self._parts.metrics.forget(key.namespace, key.name)

    async def _report(self, key: ObjectKey, uid: str, plan: CronPlan, applied: CronApplied) -> CronApplied:
        parts = self._parts
        if plan.status is not None:
            await self._status.write(key, uid, plan.status)
            self._written[key] = (uid, parts.now())
        about = About(resource=CRONJOBS, namespace=key.namespace, name=key.name, uid=uid)
        for event in plan.events:
            await parts.events.write(
                about, reason=event.reason, message=event.message, warning=event.type == "Warning"
            )
        return applied

    def _note(self, key: ObjectKey, seen: CronSeen, plan: CronPlan, applied: CronApplied) -> None:
        for action in applied.done:
            match action:
                case ApplyChild() | DeleteChild():
                    event = "applied" if isinstance(action, ApplyChild) else "deleted"
                    log.info(event, object=str(key), kind=action.kind, name=action.name, reason=action.reason)
                    self._parts.wakes.put(ObjectKey(QUEUES, key.namespace, action.name))
                case PutSchedule() | SuspendSchedule() | RemoveSchedule():
                    log.info(_word(action), object=str(key), queue=str(action.queue), reason=action.reason)
                case _:
                    pass
        for tick in applied.ticked:
            if tick.outcome != "already":
                self._parts.metrics.cron_ticks.labels(key.namespace, key.name, tick.outcome).inc()
                log.info(
                    "ticked",
                    object=str(key),
                    at_ms=tick.at_ms,
                    outcome=tick.outcome,
                    reason=tick.reason,
                    job=tick.job_id,
                )
        if applied.failure is not None:
            log_failure(key, seen.generation, applied.failure)
        show_cronjob(self._parts.metrics, key, plan.status or seen.status, seen)

    def _again(
        self, key: ObjectKey, seen: CronSeen, plan: CronPlan, applied: CronApplied, *, held: bool
    ) -> None:
        parts = self._parts
        if applied.failure is not None:
            try_again(parts, key, seen.generation, applied.failure)
            # Redis may be away for long; the next round of samples does not wake CronJobs.
            parts.wakes.put_later(key, 2.0)
            return
        if not held:
            parts.pace.went_well(key)
        if applied.done:
            parts.wakes.put(key)
        if plan.requeue_after is not None:
            parts.wakes.put_later(key, plan.requeue_after.total_seconds())

    # --- schedules whose CronJob is gone -------------------------------------------------------------------

    async def _remove_old(self, key: ObjectKey, *, keep: str) -> None:
        """Take the schedules of former objects of this name out of Redis; what fails is left to the sweep."""
        known = self._kept_in.get(key, {})
        for uid in [uid for uid in known if uid != keep]:
            for ref, last in known.pop(uid).items():
                # The Queue's Redis may have another address by now; a Queue that is gone too has the last one.
                ledger = self._observer.ledger_of(ref) or last
                with contextlib.suppress(DockworkError):
                    await ledger.store.unplan(ledger.queue, uid)
                    log.info("unplanned", object=str(key), queue=str(ref), reason="the CronJob is gone")
        if not keep:
            self._kept_in.pop(key, None)

    async def sweep(self, stop: asyncio.Event, leading: Callable[[], bool]) -> None:
        """Each Queue's ledger once it can be reached, and then each 10 minutes."""
        swept: dict[ObjectRef, float] = {}
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            if not leading():
                swept.clear()
            else:
                since = loop.time() - SWEEP_EVERY
                due = self._ledgers({ref for ref, at in swept.items() if at > since})
                try:
                    if due:
                        await self.sweep_once(due)
                    swept |= dict.fromkeys(due, loop.time())
                except (DockworkError, KubeError) as error:
                    log.warning("sweep_failed", error=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_LOOKS_EVERY):
                    await stop.wait()

    def _ledgers(self, but: set[ObjectRef]) -> dict[ObjectRef, Ledger]:
        """The ledgers that can be reached, without those of the Queues `but`."""
        refs = (_ref(raw["metadata"]) for raw in self._parts.cache.all(QUEUES))
        ledgers = ((ref, self._observer.ledger_of(ref)) for ref in refs if ref not in but)
        return {ref: ledger for ref, ledger in ledgers if ledger is not None}

    async def sweep_once(self, ledgers: Mapping[ObjectRef, Ledger]) -> int:
        """Remove schedules that operators made and whose CronJob two full lists lack; how many."""
        # Schedules that code declares have no generation: they are not ours to remove.
        found = {
            ref: [s.uid for s in await ledger.store.cron_states(ledger.queue) if s.generation > 0]
            for ref, ledger in ledgers.items()
        }
        if not any(found.values()):
            return 0
        alive_before = await self._uids()
        if all(uid in alive_before for uids in found.values() for uid in uids):
            return 0
        orphans = choose_orphans(found, await self._uids(), alive_before)
        for orphan in orphans:
            ledger = ledgers[orphan.queue]
            await ledger.store.unplan(ledger.queue, orphan.uid)
            log.info("unplanned", uid=orphan.uid, queue=str(orphan.queue), reason=orphan.reason)
        return len(orphans)

    async def _uids(self) -> frozenset[str]:
        found: set[str] = set()
        for namespace in self._namespaces():
            listed: Iterable[dict[str, dict[str, str]]] = await self._parts.kube.list_all(
                CRONJOBS, namespace, metadata_only=True
            )
            found |= {raw["metadata"]["uid"] for raw in listed}
        return frozenset(found)


def _ref(metadata: Mapping[str, str]) -> ObjectRef:
    return ObjectRef(namespace=metadata["namespace"], name=metadata["name"])


def _word(action: PutSchedule | SuspendSchedule | RemoveSchedule) -> str:
    match action:
        case PutSchedule():
            return "planned"
        case SuspendSchedule():
            return "suspended"
        case RemoveSchedule():
            return "unplanned"
