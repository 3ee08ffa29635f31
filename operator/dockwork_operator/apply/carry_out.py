"""Actions become requests: one function each, in the plan's order, and the first failure stops the rest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_never

from dockwork.core.keys import QueueName
from dockwork.errors import DockworkError
from dockwork.store.protocol import OwnerRecord, QueueConfig, Store
from dockwork_operator.decide.plan import (
    Action,
    Applied,
    ApplyChild,
    ApplyFailure,
    Configure,
    DeleteChild,
    DeletionCost,
    FailureKind,
    QueueSettings,
    Quiesce,
    Scale,
    Unquiesce,
    Upkeep,
)
from dockwork_operator.decide.seen import DELETION_COST
from dockwork_operator.errors import (
    Busy,
    Conflict,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    NotLeading,
    Rejected,
)
from dockwork_operator.kube.cache import Cache
from dockwork_operator.kube.client import KubeClient
from dockwork_operator.kube.resources import BY_KIND, DEPLOYMENTS, PODS

#: Seconds for what one action asks of Redis: one that hangs must not hold up other Queues.
STORE_LIMIT = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Hands:
    """What actions on one Queue work with. Without a store (its Redis is unknown) no plan asks for Redis."""

    kube: KubeClient
    cache: Cache
    namespace: str
    queue: QueueName | None = None
    store: Store | None = None


class _OwnedByAnother(Exception):
    """The owner record in Redis names another Queue."""


async def carry_out(actions: Sequence[Action], hands: Hands) -> Applied:
    """Do `actions` in order. Never raises for what the API server or Redis answers; NotLeading passes."""
    done: list[Action] = []
    for action in actions:
        try:
            await _perform(action, hands)
        except NotLeading:
            raise
        except KubeError as error:
            return Applied(done=tuple(done), failure=failure_of(error))
        except _OwnedByAnother as error:
            return Applied(done=tuple(done), failure=ApplyFailure(kind=FailureKind.OWNED, message=str(error)))
        except (DockworkError, TimeoutError) as error:
            failure = ApplyFailure(kind=FailureKind.REDIS, message=str(error) or "no answer within 2 s")
            return Applied(done=tuple(done), failure=failure)
        done.append(action)
    return Applied(done=tuple(done))


async def _perform(action: Action, hands: Hands) -> None:
    match action:
        case Configure() | Unquiesce() | Quiesce() | Upkeep():
            async with asyncio.timeout(STORE_LIMIT):
                await _perform_on_redis(action, *_redis(hands))
        case ApplyChild():
            resource = BY_KIND[action.kind]
            body = dict(action.manifest)
            hands.cache.put(resource, await hands.kube.apply(resource, hands.namespace, body))
        case Scale():
            await _scale(action, hands)
        case DeletionCost():
            await _set_cost(action, hands)
        case DeleteChild():
            await delete_child(action, hands.kube, hands.namespace)
        case _:
            assert_never(action)


async def _perform_on_redis(
    action: Configure | Unquiesce | Quiesce | Upkeep, store: Store, queue: QueueName
) -> None:
    match action:
        case Configure():
            await _configure(action, store, queue)
        case Unquiesce():
            await store.unquiesce(queue, action.pods)
        case Quiesce():
            await store.quiesce(queue, action.requests)
        case Upkeep():
            await _keep_up(action, store, queue)
        case _:
            assert_never(action)


async def _configure(action: Configure, store: Store, queue: QueueName) -> None:
    owner = action.owner
    record = OwnerRecord(operator=owner.operator, namespace=owner.namespace, name=owner.name, uid=owner.uid)
    other = await store.configure(queue, queue_config(action.settings), record)
    if other is not None and (other.operator, other.uid) != (record.operator, record.uid):
        raise _OwnedByAnother(
            f"the Redis queue {queue} belongs to Queue {other.namespace}/{other.name}; nothing was written"
        )


def queue_config(settings: QueueSettings) -> QueueConfig:
    """The operator's part of the queue's configuration, as the store takes it."""
    return QueueConfig(
        generation=settings.generation,
        held=settings.held,
        closed=settings.closed,
        timeout_ms=settings.timeout_ms,
        max_timeout_ms=settings.max_timeout_ms,
        max_attempts=settings.max_attempts,
        max_deliveries=settings.max_deliveries,
        backoff=settings.backoff,
        max_depth=settings.max_depth,
        max_bytes=settings.max_bytes,
        max_payload=settings.max_payload,
        keep=dict(settings.keep),
    )


async def _scale(action: Scale, hands: Hands) -> None:
    """A scale-down goes by the version that the decision saw; else the one read just before, if it still agrees."""
    version = action.resource_version
    if version is None:
        scale = await hands.kube.get_scale(DEPLOYMENTS, hands.namespace, action.name)
        version = str(scale["metadata"]["resourceVersion"])
        # At 0 the field is not there at all.
        found = (scale.get("spec") or {}).get("replicas") or 0
        if found != action.seen:
            raise Conflict(
                f"replicas are {found}, the decision saw {action.seen}",
                verb="update",
                resource="deployments.apps/scale",
                where=f"{hands.namespace}/{action.name}",
            )
    await hands.kube.put_scale(DEPLOYMENTS, hands.namespace, action.name, action.to, resource_version=version)
    # The answer is a Scale; the cache keeps Deployments, and the next decision must see its own write.
    hands.cache.put(DEPLOYMENTS, await hands.kube.get(DEPLOYMENTS, hands.namespace, action.name))


async def _set_cost(action: DeletionCost, hands: Hands) -> None:
    cost = None if action.cost is None else str(action.cost)
    patch = {"metadata": {"uid": action.uid, "annotations": {DELETION_COST: cost}}}
    hands.cache.put(PODS, await hands.kube.merge(PODS, hands.namespace, action.pod, patch))


async def delete_child(action: DeleteChild, kube: KubeClient, namespace: str) -> None:
    """Delete the object if it is still the one that was meant; one that is gone is as wanted."""
    with contextlib.suppress(NotFound):
        await kube.delete(BY_KIND[action.kind], namespace, action.name, uid=action.uid)


async def _keep_up(action: Upkeep, store: Store, queue: QueueName) -> None:
    if action.promote:
        await store.promote(queue)
    if action.reap:
        await store.reap(queue)
    if action.expire:
        await store.expire(queue)
    if action.trim:
        await store.trim(queue)


def _redis(hands: Hands) -> tuple[Store, QueueName]:
    if hands.store is None or hands.queue is None:
        raise NoRedis("no Redis is known for this Queue")
    return hands.store, hands.queue


class NoRedis(DockworkError):
    """An action on Redis was planned while none is known."""


def failure_of(error: KubeError) -> ApplyFailure:
    """What a refused request means for the next reconcile (OP-101)."""
    retry_after: timedelta | None = None
    match error:
        case NotFound() | Conflict() | Gone():
            kind = FailureKind.CONFLICT
        case Forbidden():
            kind = FailureKind.FORBIDDEN
        case Rejected():
            kind = FailureKind.REJECTED
        case Busy():
            kind = FailureKind.BUSY
            retry_after = timedelta(seconds=error.retry_after) if error.retry_after else None
        case _:
            kind = FailureKind.BUSY
    return ApplyFailure(
        kind=kind, message=error.words, verb=error.verb, resource=error.resource, retry_after=retry_after
    )
