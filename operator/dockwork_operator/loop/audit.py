"""The caches held against the API server, so that a watch that silently missed something is found out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta

from dockwork_operator.constants import LABEL_QUEUE
from dockwork_operator.errors import KubeError, NotFound
from dockwork_operator.kube.cache import Cache
from dockwork_operator.kube.client import KubeClient, Object
from dockwork_operator.kube.resources import LABELLED, WATCHED, Resource
from dockwork_operator.logs import EventLog
from dockwork_operator.loop.health import Health
from dockwork_operator.metrics import Metrics

log = EventLog(__name__)

#: Seconds that a watch gets to deliver what a list showed already.
GRACE = 5.0

Namespaces = Callable[[], Sequence[str | None]]
Feed = Callable[[Resource, str | None, Object], None]
Name = tuple[str, str]


class Audit:
    """Compares names and versions of each watched resource; a difference that lasts is fed in and counted.

    namespaces   those watched now; (None,) in cluster mode
    feed         takes (resource, event type, object), as a watch would
    """

    def __init__(
        self,
        kube: KubeClient,
        cache: Cache,
        *,
        namespaces: Namespaces,
        feed: Feed,
        every: timedelta,
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._namespaces = namespaces
        self._feed = feed
        self._every = every.total_seconds()
        self._health = health
        self._metrics = metrics
        self.grace = GRACE

    async def fill(self) -> None:
        """Put everything there is into the caches, once, before anything is decided."""
        for resource in WATCHED:
            for namespace in self._namespaces():
                await self.fill_from(resource, namespace)

    async def fill_from(self, resource: Resource, namespace: str | None) -> None:
        for raw in await self._kube.list_all(resource, namespace, labels=_labels(resource)):
            self._feed(resource, None, raw)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await stop.wait()
                    return
            await self.run_once()

    async def run_once(self, *, judged: bool = True) -> int:
        """How many objects the caches had wrong; `judged`: liveness depends on it."""
        wrong = 0
        for resource in WATCHED:
            try:
                found = await self._differences(resource)
            except KubeError as error:
                log.warning("audit_failed", resource=str(resource), error=str(error))
                continue
            wrong += found
            if judged:
                self._health.audited(resource, stale=found > 0)
        return wrong

    async def _differences(self, resource: Resource) -> int:
        wrong = 0
        for namespace in self._namespaces():
            listed = await self._kube.list_all(
                resource, namespace, labels=_labels(resource), metadata_only=True
            )
            versions = {_name(raw): raw["metadata"] for raw in listed}
            suspects = self._suspects(resource, namespace, versions)
            if suspects:
                # The list may simply be ahead of the watch.
                await asyncio.sleep(self.grace)
                suspects &= self._suspects(resource, namespace, versions)
            for name in sorted(suspects):
                wrong += await self._mend(resource, name)
        return wrong

    def _suspects(self, resource: Resource, namespace: str | None, listed: dict[Name, Object]) -> set[Name]:
        """Names that only one side has, and objects whose cached version is older than the listed one."""
        known = self._cache.versions(resource, namespace)
        lost = {
            name
            for name, meta in listed.items()
            if name not in known
            or known[name][0] != meta.get("uid")
            or _number(known[name][1]) < _number(meta.get("resourceVersion"))
        }
        return lost | (known.keys() - listed.keys())

    async def _mend(self, resource: Resource, name: Name) -> int:
        known = self._cache.get(resource, *name)
        try:
            raw: Object | None = await self._kube.get(resource, *name)
        except NotFound:
            raw = None
        if (
            raw is not None
            and resource in LABELLED
            and LABEL_QUEUE not in (raw["metadata"].get("labels") or {})
        ):
            raw = None
        if raw is None and known is None:
            return 0
        if raw is not None and known is not None and _version(raw) == _version(known):
            return 0
        log.warning("watch_missed", resource=str(resource), object="/".join(name))
        self._metrics.watch_stale.labels(str(resource)).inc()
        if raw is not None:
            self._feed(resource, "MODIFIED", raw)
        elif known is not None:
            self._feed(resource, "DELETED", known)
        return 1


def _labels(resource: Resource) -> str:
    return LABEL_QUEUE if resource in LABELLED else ""


def _name(raw: Object) -> Name:
    return str(raw["metadata"].get("namespace") or ""), str(raw["metadata"]["name"])


def _version(raw: Object) -> tuple[str, str]:
    return str(raw["metadata"].get("uid")), str(raw["metadata"].get("resourceVersion"))


def _number(version: object) -> int:
    return int(version) if isinstance(version, str) and version.isdigit() else 0
