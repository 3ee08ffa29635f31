"""The world around one Queue as `decide_queue` takes it: caches, a look for foreign objects, Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dockwork.core.keys import QueueName
from dockwork.errors import InvalidUrl
from dockwork.store.protocol import SampleRequest
from dockwork_operator.decide.memory import Memory
from dockwork_operator.decide.names import worker_name
from dockwork_operator.decide.queue import sampling
from dockwork_operator.decide.seen import (
    ChildSeen,
    DeploymentSeen,
    OperatorSeen,
    QueueSeen,
    RedisSeen,
    SecretSeen,
    child_seen,
    deployment_seen,
    pod_seen,
)
from dockwork_operator.errors import Forbidden, NotFound
from dockwork_operator.kube.cache import Cache
from dockwork_operator.kube.client import KubeClient, Object
from dockwork_operator.kube.resources import BUDGETS, DEPLOYMENTS, NETWORK_POLICIES, PODS, ObjectKey, Resource
from dockwork_operator.models.queues import Queue
from dockwork_operator.observe.links import RedisLink, RedisLinks, failure_of
from dockwork_operator.observe.secrets import SecretLookup

#: Seconds for which the answer "nobody has this name" or "someone else's object" is believed.
STRANGERS_FOR = 5.0

CHILDREN = (DEPLOYMENTS, BUDGETS, NETWORK_POLICIES)


@dataclass(frozen=True, slots=True)
class QueueWorld:
    """What was observed, and the link by which actions reach this Queue's Redis."""

    seen: QueueSeen
    link: RedisLink | None


class QueueObserver:
    """Gathers `QueueSeen` values. Nothing here changes anything."""

    def __init__(self, kube: KubeClient, cache: Cache, secrets: SecretLookup, links: RedisLinks) -> None:
        self._kube = kube
        self._cache = cache
        self._secrets = secrets
        self._links = links
        self._strangers: dict[tuple[Resource, str, str], tuple[float, Object | None]] = {}

    async def observe(
        self,
        key: ObjectKey,
        raw: Mapping[str, Any],
        queue: Queue | None,
        memory: Memory,
        operator: OperatorSeen,
    ) -> QueueWorld:
        """Everything about the Queue `raw`; `queue` is None when its spec was refused: Redis is left alone then.

        memory      says what to ask Redis
        Raises      KubeError when a needed read got no answer
        """
        deployment, children = await self._children(key)
        seen = QueueSeen(
            status=raw.get("status") or {},
            generation=int(raw["metadata"].get("generation") or 1),
            deleting=bool(raw["metadata"].get("deletionTimestamp")),
            deployment=deployment,
            children=children,
            pods=tuple(pod_seen(pod) for pod in self._cache.of_queue(PODS, key.namespace, key.name)),
            operator=operator,
        )
        if queue is None:
            return QueueWorld(seen, None)
        request = sample_request(queue, seen, memory)
        secret, redis, link = await self._look_at_redis(key, queue, request)
        return QueueWorld(replace(seen, secret=secret, redis=redis), link)

    def forget(self, key: ObjectKey) -> None:
        self._links.forget(key)
        name = worker_name(key.name)
        for resource in CHILDREN:
            self._strangers.pop((resource, key.namespace, name), None)

    # --- Redis ---------------------------------------------------------------------------------------------

    async def _look_at_redis(
        self, key: ObjectKey, queue: Queue, request: SampleRequest
    ) -> tuple[SecretSeen, RedisSeen, RedisLink | None]:
        found = await self._secrets.find(key.namespace, queue.spec.redis)
        if isinstance(found, SecretSeen):
            self._links.forget(key)
            return found, RedisSeen(asked=False), None
        try:
            link = self._links.link(key, found)
        except InvalidUrl as error:
            self._links.forget(key)
            self._secrets.forget(key.namespace, queue.spec.redis)
            return SecretSeen(), failure_of(error, "the Redis URL"), None
        link.ask(key, request)
        seen = await link.first_or_last(key)
        if seen.failure is not None:
            self._secrets.forget(key.namespace, queue.spec.redis)
        return SecretSeen(), seen, link

    # --- children ------------------------------------------------------------------------------------------

    async def _children(self, key: ObjectKey) -> tuple[DeploymentSeen | None, tuple[ChildSeen, ...]]:
        name = worker_name(key.name)
        deployment = await self._by_name(DEPLOYMENTS, key.namespace, name)
        others: list[ChildSeen] = []
        for resource in CHILDREN:
            named = None if resource == DEPLOYMENTS else await self._by_name(resource, key.namespace, name)
            labelled = self._cache.of_queue(resource, key.namespace, key.name)
            others += [child_seen(raw, resource.kind) for raw in labelled if raw["metadata"]["name"] != name]
            others += [child_seen(named, resource.kind)] if named is not None else []
        return deployment_seen(deployment) if deployment is not None else None, tuple(others)

    async def _by_name(self, resource: Resource, namespace: str, name: str) -> Object | None:
        """The object of a child's name: from the cache, else asked for, so that nobody's object is overwritten.

        Objects without our label are in no watch: server-side apply would take them over silently.
        """
        if (known := self._cache.get(resource, namespace, name)) is not None:
            self._strangers.pop((resource, namespace, name), None)
            return known
        slot, now = (resource, namespace, name), asyncio.get_running_loop().time()
        asked = self._strangers.get(slot)
        if asked is not None and now - asked[0] < STRANGERS_FOR:
            return asked[1]
        try:
            found = await self._kube.get(resource, namespace, name)
        except (NotFound, Forbidden):
            found = None  # a missing right shows when the object is applied, with verb and resource
        self._strangers[slot] = (now, found)
        return found


def redis_name(queue: Queue) -> QueueName:
    """The queue's name in Redis."""
    return QueueName(queue.redis_namespace, queue.redis_queue)


def sample_request(queue: Queue, seen: QueueSeen, memory: Memory) -> SampleRequest:
    """What each look at Redis is to ask about `queue`."""
    wanted = sampling(queue, seen, memory)
    return SampleRequest(
        queue=redis_name(queue),
        horizon_ms=wanted.horizon_ms,
        template_hash=wanted.template_hash,
        cold=wanted.cold,
    )
