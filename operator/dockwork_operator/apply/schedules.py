"""A CronJob's actions become calls on the ledger and requests to the API server; the first failure stops the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from dockwork.core.keys import QueueName
from dockwork.errors import DockworkError
from dockwork.store.protocol import CronEntry, NewJob, Store, Ticked
from dockwork_operator.apply.carry_out import STORE_LIMIT, NoRedis, delete_child, failure_of
from dockwork_operator.decide.cron_seen import (
    CronAction,
    PutSchedule,
    RemoveSchedule,
    ScheduleAction,
    ScheduleSettings,
    SuspendSchedule,
    TickSchedule,
)
from dockwork_operator.decide.plan import ApplyChild, ApplyFailure, DeleteChild, FailureKind
from dockwork_operator.errors import KubeError, NotLeading
from dockwork_operator.kube.cache import Cache
from dockwork_operator.kube.client import KubeClient
from dockwork_operator.kube.resources import BY_KIND
from dockwork_operator.models.objects import ObjectRef


@dataclass(frozen=True, kw_only=True, slots=True)
class CronHands:
    """What actions on one CronJob work with."""

    kube: KubeClient
    cache: Cache
    namespace: str
    ledgers: Mapping[ObjectRef, tuple[Store, QueueName]]


@dataclass(frozen=True, kw_only=True, slots=True)
class CronApplied:
    """What of a plan was carried out, the ticks that were decided, and what stopped it."""

    done: tuple[CronAction, ...] = ()
    ticked: tuple[Ticked, ...] = ()
    failure: ApplyFailure | None = None


async def carry_out_schedules(actions: Sequence[CronAction], hands: CronHands) -> CronApplied:
    """Do `actions` in order. Never raises for what the API server or Redis answers; NotLeading passes."""
    done: list[CronAction] = []
    ticked: list[Ticked] = []
    for action in actions:
        try:
            ticked += await _perform(action, hands)
        except NotLeading:
            raise
        except KubeError as error:
            return CronApplied(done=tuple(done), ticked=tuple(ticked), failure=failure_of(error))
        except (DockworkError, TimeoutError) as error:
            failure = ApplyFailure(kind=FailureKind.REDIS, message=str(error) or "no answer within 2 s")
            return CronApplied(done=tuple(done), ticked=tuple(ticked), failure=failure)
        done.append(action)
    return CronApplied(done=tuple(done), ticked=tuple(ticked))


async def _perform(action: CronAction, hands: CronHands) -> Sequence[Ticked]:
    match action:
        case ApplyChild():
            resource = BY_KIND[action.kind]
            applied = await hands.kube.apply(resource, hands.namespace, dict(action.manifest))
            hands.cache.put(resource, applied)
        case DeleteChild():
            await delete_child(action, hands.kube, hands.namespace)
        case PutSchedule() | SuspendSchedule() | TickSchedule() | RemoveSchedule():
            if action.queue not in hands.ledgers:
                raise NoRedis(f"no Redis is known for Queue {action.queue}")
            async with asyncio.timeout(STORE_LIMIT):
                return await _perform_on_ledger(action, *hands.ledgers[action.queue])
        case _:
            assert_never(action)
    return ()


async def _perform_on_ledger(action: ScheduleAction, store: Store, queue: QueueName) -> Sequence[Ticked]:
    match action:
        case PutSchedule():
            await store.plan(
                queue,
                cron_entry(action.settings),
                action.instants_ms,
                generation=action.generation,
                reset=action.reset,
                from_ms=action.from_ms,
                decided_ms=action.decided_ms,
                left_out=action.left_out,
            )
        case SuspendSchedule():
            await store.suspend(queue, action.uid)
        case TickSchedule():
            return await store.tick(queue, action.uid, by="operator")
        case RemoveSchedule():
            await store.unplan(queue, action.uid)
        case _:
            assert_never(action)
    return ()


def cron_entry(settings: ScheduleSettings) -> CronEntry:
    """A schedule as the store takes it. The job's id is the script's: one per instant."""
    job = settings.job
    return CronEntry(
        uid=settings.uid,
        schedule_hash=settings.schedule_hash,
        job=NewJob(
            id="",
            type=job.type,
            envelope=job.envelope,
            priority=job.priority,
            timeout_ms=job.timeout_ms,
            max_attempts=job.max_attempts,
            expires_in_ms=job.expires_in_ms,
        ),
        missed_run_policy=settings.missed_run_policy,
        max_catch_up=settings.max_catch_up,
        starting_deadline_ms=settings.starting_deadline_ms,
        concurrency_policy=settings.concurrency_policy,
        max_pending=settings.max_pending,
        suspended=settings.suspended,
        every_ms=settings.every_ms,
        tzdata=settings.tzdata,
        calendar=settings.calendar,
    )
