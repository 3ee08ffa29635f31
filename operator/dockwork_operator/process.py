"""The operator as one value: its parts built and joined, started in order, ended in order.

Order of the start: login, CRDs, access, caches filled, watches, Lease. Nothing is decided before the caches are full.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from dockwork import clock
from dockwork_operator.decide.manifests import RedisDefaults
from dockwork_operator.errors import KubeError
from dockwork_operator.handlers.watches import Scope, Watches
from dockwork_operator.kube.cache import Cache
from dockwork_operator.kube.client import KubeClient, Object
from dockwork_operator.kube.credentials import Login
from dockwork_operator.kube.events import EventWriter
from dockwork_operator.kube.lease import LeaseClient
from dockwork_operator.kube.limits import RateLimit
from dockwork_operator.kube.resources import CRONJOBS, QUEUES, WATCHED, ObjectKey, Resource
from dockwork_operator.logs import EventLog
from dockwork_operator.loop.access import Access, find_access, tell
from dockwork_operator.loop.audit import Audit
from dockwork_operator.loop.cronjobs import CronJobReconciler
from dockwork_operator.loop.health import Health
from dockwork_operator.loop.leader import Leader
from dockwork_operator.loop.pace import Pace
from dockwork_operator.loop.queues import Parts, QueueReconciler
from dockwork_operator.loop.rounds import Rounds
from dockwork_operator.loop.wakes import Wakes
from dockwork_operator.loop.workers import Workers
from dockwork_operator.metrics import Metrics
from dockwork_operator.observe.links import RedisLinks
from dockwork_operator.observe.queues import QueueObserver
from dockwork_operator.observe.schedules import CronObserver
from dockwork_operator.observe.secrets import SecretLookup
from dockwork_operator.probes import ProbeServer
from dockwork_operator.settings import Settings

log = EventLog(__name__)

STATUS_WRITES_PER_SECOND = 10.0
CRDS_EVERY = 2.0
#: Ends of all watches in so many seconds after which a new process is tried.
ENDS_AT_MOST, ENDS_WITHIN = 5, 300.0
#: Seconds that the watches get to close their connections.
WATCHES_END_WITHIN = 3.0
#: Seconds that reconciles under way get at the end: what they wrote is then also in the status.
FINISH_WITHIN = 3.0
ACCESS_EVERY = 60.0


class Operator:
    """One replica. `run` returns 0 after `stop`, 1 when it must be restarted; `failure` says why.

    now         this machine's time; what jobs depend on is Redis TIME
    ending      called once when it is told to end, or must: whoever owns the process sets a limit to it
    """

    def __init__(
        self,
        settings: Settings,
        login: Login,
        *,
        ending: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = clock.now,
    ) -> None:
        self.settings = settings
        self._now = now
        self._ending = ending
        self.failure = ""
        self._login = login
        self._stop = asyncio.Event()
        self._access: Access | None = None
        self._watches: Watches | None = None
        self._watches_wanted = asyncio.Event()
        self._ends: list[float] = []
        self.metrics = Metrics()
        self.health = Health(self.metrics)
        self.cache = Cache()
        self.wakes = Wakes()
        limit = RateLimit(settings.requests_per_second, int(settings.requests_per_second * 2))
        self.kube = KubeClient(login, limit=limit, count=self._count)
        identity = f"{settings.pod_name}-{secrets.token_hex(4)}"
        self.leader = Leader(
            LeaseClient(self.kube, settings.own_namespace, settings.lease_name),
            identity=identity,
            now=now,
            gained=self._gained,
            lost=self.fail,
        )
        self.kube.guard = self.leader.guard
        self._build(identity)
        self.probes = ProbeServer(
            self.metrics, why_not_live=self.health.why_not_live, why_not_ready=self.health.why_not_ready
        )

    def _build(self, identity: str) -> None:
        settings = self.settings
        pace = Pace(clock.spread)
        parts = Parts(
            kube=self.kube,
            cache=self.cache,
            wakes=self.wakes,
            pace=pace,
            status_pace=Pace(clock.spread),
            events=EventWriter(self.kube, reporter=identity, now=self._now),
            metrics=self.metrics,
            status_limit=RateLimit(STATUS_WRITES_PER_SECOND, int(STATUS_WRITES_PER_SECOND)),
            now=self._now,
        )
        self.links = RedisLinks(self.metrics, clock.now_ms)
        observer = QueueObserver(self.kube, self.cache, SecretLookup(self.kube, settings), self.links)
        self.queues = QueueReconciler(
            parts,
            observer,
            defaults=RedisDefaults(
                secret=settings.redis_secret, url_key=settings.redis_url_key, ca_key=settings.redis_ca_key
            ),
            lease_uid=lambda: self.leader.uid,
            max_rollouts=settings.max_concurrent_rollouts,
        )
        self.cronjobs = CronJobReconciler(
            parts, CronObserver(self.cache, self.links), namespaces=self._namespaces
        )
        reconcilers = {QUEUES: self.queues.reconcile, CRONJOBS: self.cronjobs.reconcile}
        self.workers = Workers(self.wakes, pace, self.metrics, reconcilers=reconcilers, leading=self._leading)
        self.rounds = Rounds(
            self.links,
            self.wakes,
            every=settings.tick,
            leading=self._leading,
            health=self.health,
            metrics=self.metrics,
        )
        self.audit = Audit(
            self.kube,
            self.cache,
            namespaces=self._namespaces,
            feed=self.feed,
            every=settings.audit,
            health=self.health,
            metrics=self.metrics,
        )

    def _leading(self) -> bool:
        return self.leader.fresh

    def _namespaces(self) -> Sequence[str | None]:
        return self._access.allowed if self._access is not None else ()

    # --- running -------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Everything, from the login to the release of the Lease."""
        try:
            await self.probes.start(self.settings.http_host, self.settings.http_port)
            await self.kube.open()
            if await self._prepare():
                await self._work()
        finally:
            await self._end()
        return 1 if self.failure else 0

    def stop(self) -> None:
        """End in good order."""
        if not self._stop.is_set():
            log.info("stopping")
            self._ending()
        self._stop.set()

    def fail(self, why: str) -> None:
        """End, to be started again: what this process knows or may do is not to be trusted any more."""
        if not self.failure:
            self.failure = why
            log.error("must_restart", reason=why)
        self.stop()

    async def _prepare(self) -> bool:
        """Until CRDs, access and caches are there; False when told to stop before."""
        while not self._stop.is_set():
            try:
                if await self._crds_are_there():
                    await self._find_access()
                    await self.audit.fill()
                    self.health.filled = True
                    log.info(
                        "caches_filled", queues=self.cache.count(QUEUES), cronjobs=self.cache.count(CRONJOBS)
                    )
                    return True
            except KubeError as error:
                log.warning("not_ready", error=str(error))
            await self._sleep(CRDS_EVERY)
        return False

    async def _crds_are_there(self) -> bool:
        missing = [str(resource) for resource in (QUEUES, CRONJOBS) if not await self.kube.serves(resource)]
        if missing:
            log.error(
                "CRDMissing", missing=missing, hint="install the chart dockwork-crds, or apply crds.yaml"
            )
        return not missing

    async def _work(self) -> None:
        self._watch()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.leader.run(self._stop), name="leader"),
                group.create_task(self.rounds.run(self._stop), name="rounds"),
                group.create_task(self.audit.run(self._stop), name="audit"),
                group.create_task(self.health.run(self._stop), name="health"),
                group.create_task(self._resync(), name="resync"),
                group.create_task(self._watch_over_access(), name="access"),
                group.create_task(self.cronjobs.sweep(self._stop, self._leading), name="sweep"),
            ]
            workers = group.create_task(self.workers.run(), name="workers")
            reviver = group.create_task(self._revive_watches(), name="watches")
            await self._stop.wait()
            await self.workers.finish(FINISH_WITHIN)
            workers.cancel()
            reviver.cancel()
            await asyncio.gather(*tasks)

    async def _end(self) -> None:
        if self._watches is not None:
            self._watches.stop()
        self.wakes.close()
        await self.leader.release()
        if self._watches is not None:
            await self._watches.wait_ended(WATCHES_END_WITHIN)
        await self.links.close()
        await self.kube.close()
        await self.probes.stop()

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()

    # --- triggers ------------------------------------------------------------------------------------------

    def feed(self, resource: Resource, kind: str | None, raw: Object) -> None:
        """A watch event, or what stands for one: update the cache, wake whom it concerns."""
        concerned = self.cache.concerned(resource, raw)
        changed = self.cache.remove(resource, raw) if kind == "DELETED" else self.cache.put(resource, raw)
        if changed:
            for key in (*concerned, *self.cache.concerned(resource, raw)):
                self.wakes.put(key)

    def _gained(self) -> None:
        self.metrics.leader.set(1)
        self.queues.forget_all()
        self._wake_all()

    def _wake_all(self) -> None:
        for resource in (QUEUES, CRONJOBS):
            for raw in self.cache.all(resource):
                self.wakes.put(ObjectKey(resource, raw["metadata"]["namespace"], raw["metadata"]["name"]))

    async def _resync(self) -> None:
        while not self._stop.is_set():
            await self._sleep(self.settings.resync.total_seconds())
            self._wake_all()

    # --- watches -------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """(Re)start the watches for the namespaces that may be watched now."""
        if self._watches is not None:
            self._watches.stop()
            self._watches = None
        if self._access is None or not self._access.allowed:
            return
        self._watches = Watches(
            Scope(namespaces=self._access.scope),
            login=self._login,
            identity=self.leader.identity,
            sink=self._deliver,
            ended=self._watches_ended,
        )
        self._watches.start()

    def _deliver(self, resource: Resource, kind: str | None, raw: Mapping[str, Any]) -> None:
        self.feed(resource, kind, dict(raw))

    def _watches_ended(self, error: BaseException | None) -> None:
        """kopf ends all watches when one fails: what this process sees is old from here on, until new ones run."""
        if self._stop.is_set():
            return
        now = asyncio.get_running_loop().time()
        self._ends = [at for at in self._ends if now - at < ENDS_WITHIN] + [now]
        log.error(
            "watches_ended", error=f"{type(error).__name__}: {error}" if error else "", times=len(self._ends)
        )
        if len(self._ends) >= ENDS_AT_MOST:
            self.fail(f"the watches ended {len(self._ends)} times in {ENDS_WITHIN:.0f} s")
        else:
            self._watches_wanted.set()

    async def _revive_watches(self) -> None:
        """New watches for ended ones, and an audit for what was missed between the two."""
        while not self._stop.is_set():
            await self._watches_wanted.wait()
            self._watches_wanted.clear()
            try:
                await self._renew_access()
            except KubeError as error:
                log.warning("access_unknown", error=str(error))
                await self._sleep(1.0)
                self._watches_wanted.set()
                continue
            if not self._stop.is_set():
                self._watch()
                await self.audit.run_once(judged=False)

    async def _find_access(self) -> bool:
        """Whether the namespaces that may be watched are others than before."""
        old = self._access
        new = await find_access(self.kube, self.settings)
        tell(old, new)
        self._access = new
        return old is None or old.allowed != new.allowed

    async def _watch_over_access(self) -> None:
        while not self._stop.is_set():
            await self._sleep(ACCESS_EVERY)
            if self._stop.is_set():
                return
            try:
                await self._renew_access()
            except KubeError as error:
                log.warning("access_unknown", error=str(error))

    async def _renew_access(self) -> None:
        old = self._access
        if not await self._find_access() or old is None or self._access is None:
            return
        if lost := set(old.allowed) - set(self._access.allowed):
            self.fail(f"access was lost in {', '.join(str(name) for name in lost)}")
            return
        for namespace in set(self._access.allowed) - set(old.allowed):
            for resource in WATCHED:
                await self.audit.fill_from(resource, namespace)
        self._watch()

    def _count(self, verb: str, resource: str, status: str) -> None:
        self.metrics.requests.labels(verb, resource, status).inc()
