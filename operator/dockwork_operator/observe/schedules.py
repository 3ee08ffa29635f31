"""The world around one CronJob as `decide_cronjob` takes it: the Queue that gets its ticks, and the ledger in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dockwork.core.keys import QueueName
from dockwork.errors import DockworkError
from dockwork.store.protocol import CronState, Store
from dockwork_operator.constants import Condition
from dockwork_operator.decide.cron_seen import CronSeen, LedgerSeen, ScheduleSeen, TargetSeen
from dockwork_operator.decide.seen import child_seen, conditions_seen
from dockwork_operator.kube.cache import Cache
from dockwork_operator.kube.client import Object
from dockwork_operator.kube.resources import QUEUES, ObjectKey
from dockwork_operator.models.cronjobs import CronJob
from dockwork_operator.models.objects import ObjectRef
from dockwork_operator.models.queues import Queue, parse_queue
from dockwork_operator.observe.links import RedisLinks, failure_of
from dockwork_operator.observe.queues import redis_name

#: Seconds for one look at a ledger.
LOOK_LIMIT = 2.0


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where the schedules of a Queue are kept."""

    store: Store
    queue: QueueName


@dataclass(frozen=True, slots=True)
class CronWorld:
    """What was observed, and the ledgers that actions may need, by Queue."""

    seen: CronSeen
    ledgers: Mapping[ObjectRef, Ledger]


class CronObserver:
    """Gathers `CronSeen` values. Nothing here changes anything."""

    def __init__(self, cache: Cache, links: RedisLinks) -> None:
        self._cache = cache
        self._links = links

    async def observe(
        self, key: ObjectKey, raw: Object, cronjob: CronJob | None, written_at: datetime | None
    ) -> CronWorld:
        """Everything about the CronJob `raw`; `cronjob` is None when its spec was refused."""
        uid = str(raw["metadata"]["uid"])
        status = raw.get("status") or {}
        before = str((status.get("queue") or {}).get("name") or "")
        name = cronjob.queue_name if cronjob is not None else before
        ledgers: dict[ObjectRef, Ledger] = {}
        target, ledger = await self._look(key.namespace, name, uid, ledgers)
        previous, previous_ledger = None, LedgerSeen()
        if before and before != name:
            previous, previous_ledger = await self._look(key.namespace, before, uid, ledgers)
        owned = self._cache.get(QUEUES, key.namespace, key.name)
        seen = CronSeen(
            status=status,
            generation=int(raw["metadata"].get("generation") or 1),
            target=target,
            ledger=ledger,
            previous=previous,
            previous_ledger=previous_ledger,
            owned=target_seen(owned) if owned is not None else None,
            written_at=written_at,
        )
        return CronWorld(seen, ledgers)

    def is_expected(self, namespace: str, name: str) -> bool:
        """The Queue was accepted once and this process has not looked at its Redis yet: it is about to."""
        raw = self._cache.get(QUEUES, namespace, name)
        if raw is None or self._links.of(ObjectKey(QUEUES, namespace, name)) is not None:
            return False
        return target_seen(raw).accepted is True

    def ledger_of(self, ref: ObjectRef) -> Ledger | None:
        """Where the schedules of the Queue `ref` are, if its Redis is known."""
        raw = self._cache.get(QUEUES, ref.namespace, ref.name)
        link = self._links.of(ObjectKey(QUEUES, ref.namespace, ref.name))
        if link is None or raw is None:
            return None
        queue = parse_queue(raw)
        if not isinstance(queue, Queue):
            return None
        return Ledger(link.store, redis_name(queue))

    async def _look(
        self, namespace: str, name: str, uid: str, ledgers: dict[ObjectRef, Ledger]
    ) -> tuple[TargetSeen | None, LedgerSeen]:
        raw = self._cache.get(QUEUES, namespace, name) if name else None
        if raw is None:
            return None, LedgerSeen()
        ref = ObjectRef(namespace=namespace, name=name)
        ledger = self.ledger_of(ref)
        if ledger is None:
            return target_seen(raw), LedgerSeen()
        ledgers[ref] = ledger
        link = self._links.of(ObjectKey(QUEUES, namespace, name))
        if link is not None and (failure := link.failed_lately()) is not None:
            return target_seen(raw), LedgerSeen(failure=failure.failure, message=failure.message)
        return target_seen(raw), await look_at_ledger(ledger, uid, link.name if link is not None else "")


async def look_at_ledger(ledger: Ledger, uid: str, name: str) -> LedgerSeen:
    """What the ledger says about the schedule `uid`."""
    try:
        async with asyncio.timeout(LOOK_LIMIT):
            states = await ledger.store.cron_states(ledger.queue, [uid])
            found = next((state for state in states if state.uid == uid), None)
            now_ms = found.now_ms if found is not None and found.now_ms else await ledger.store.ping()
    except (DockworkError, TimeoutError) as error:
        seen = failure_of(error, name)
        return LedgerSeen(failure=seen.failure, message=seen.message)
    return LedgerSeen(now_ms=now_ms, schedule=schedule_seen(found) if found is not None else None)


def target_seen(raw: Mapping[str, Any]) -> TargetSeen:
    """A Queue as its schedules see it."""
    accepted: bool | None = None
    refusal = ""
    condition = conditions_seen((raw.get("status") or {}).get("conditions")).get(Condition.ACCEPTED)
    if condition is not None and condition.observed_generation == raw["metadata"].get("generation"):
        accepted = condition.status == "True"
        refusal = "" if accepted else condition.message
    queue = parse_queue(raw)
    return TargetSeen(
        namespace=str(raw["metadata"]["namespace"]),
        child=child_seen(raw, "Queue"),
        accepted=accepted,
        refusal=refusal,
        max_timeout=queue.spec.jobs.longest if isinstance(queue, Queue) else None,
    )


def schedule_seen(state: CronState) -> ScheduleSeen:
    """A store's state of a schedule as decisions know it."""
    return ScheduleSeen(
        uid=state.uid,
        schedule_hash=state.schedule_hash,
        generation=state.generation,
        cursor_ms=state.cursor_ms,
        next_ms=state.next_ms,
        planned=state.planned,
        last_planned_ms=state.last_planned_ms,
        suspended=state.suspended,
        runs=state.runs,
        missed=state.missed,
        skipped=state.skipped,
        active=state.active,
        pending=state.pending,
        last=state.last,
        last_missed=state.last_missed,
        last_skipped=state.last_skipped,
        tzdata=state.tzdata,
        every_ms=state.every_ms,
        refreshed_ms=state.refreshed_ms,
        lost_ms=state.lost_ms,
    )
