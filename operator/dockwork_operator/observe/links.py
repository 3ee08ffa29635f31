"""One connection pool and one round of samples per distinct Redis: one that hangs delays its own Queues only."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from urllib.parse import urlsplit

from dockwork.errors import (
    AccessDenied,
    DockworkError,
    InvalidUrl,
    OutcomeUnknown,
    SchemaMismatch,
    ScriptFailed,
    StoreUnavailable,
    UnknownReply,
)
from dockwork.settings import RedisSettings
from dockwork.store.protocol import Sample, SampleRequest, Store
from dockwork.store.redis import RedisStore
from dockwork_operator.decide.seen import (
    OwnerSeen,
    RedisFailure,
    RedisSeen,
    SampleSeen,
    ServerSeen,
    WorkerSeen,
)
from dockwork_operator.kube.resources import ObjectKey
from dockwork_operator.logs import EventLog
from dockwork_operator.metrics import Metrics
from dockwork_operator.observe.secrets import RedisTarget

log = EventLog(__name__)

#: Seconds for one round of samples, whatever hangs.
ROUND_LIMIT = 2.0
#: Seconds for which a failure is believed for Queues that were never looked at.
FAILED_FOR = 4.0
#: Seconds for which the cause of a failure is believed while the store gives no newer one.
CAUSE_FOR = 15.0
#: Steps of a call; each is within the limit of a round.
PATIENCE = timedelta(seconds=ROUND_LIMIT)
#: Seconds between two looks at version, policy and memory.
SERVER_EVERY = 300.0
#: Seconds after which a Redis that no Queue uses any more is closed.
UNUSED_FOR = 60.0
OLDEST_REDIS = (6, 2)
OLDEST_VALKEY = (7, 2)

_BY_CAUSE = {
    "connect": RedisFailure.CONNECT_FAILED,
    "tls": RedisFailure.TLS_FAILED,
    "timeout": RedisFailure.TIMEOUT,
    "loading": RedisFailure.LOADING,
    "read_only": RedisFailure.READ_ONLY,
}


class RedisLink:
    """One Redis, the Queues that live on it, and what the last look at each of them gave."""

    def __init__(self, target: RedisTarget, metrics: Metrics, now_ms: Callable[[], int]) -> None:
        self.target = target
        self.name = address(target.url)
        self._metrics = metrics
        self._now_ms = now_ms
        self._requests: dict[ObjectKey, SampleRequest] = {}
        self._looks: dict[ObjectKey, RedisSeen] = {}
        self._failed_at = self._cause_at = float("-inf")
        self._failure = RedisSeen(asked=False)
        self._server: ServerSeen | None = None
        self._server_at = float("-inf")
        self._ca_file = _ca_file(target.ca)
        settings = RedisSettings(
            url=target.url,
            pool_size=4,
            pool_timeout=PATIENCE,
            connect_timeout=PATIENCE,
            command_timeout=PATIENCE,
        )
        self.store: Store = RedisStore(settings, ca_file=self._ca_file, client_name="dockwork-operator")
        self.unused_since: float | None = None

    async def close(self) -> None:
        with contextlib.suppress(DockworkError, asyncio.CancelledError):
            await self.store.close()
        if self._ca_file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._ca_file)
        for metric in (self._metrics.redis_up, self._metrics.redis_seconds, self._metrics.clock_skew):
            metric.remove_by_labels({"redis": self.name})

    def ask(self, key: ObjectKey, request: SampleRequest) -> None:
        """What each round is to ask about `key` from now on."""
        self._requests[key] = request
        self.unused_since = None

    def forget(self, key: ObjectKey) -> None:
        self._requests.pop(key, None)
        self._looks.pop(key, None)

    @property
    def keys(self) -> tuple[ObjectKey, ...]:
        return tuple(self._requests)

    def key_of(self, queue: object) -> ObjectKey | None:
        """The Queue resource of a Redis queue."""
        return next((key for key, request in self._requests.items() if request.queue == queue), None)

    def last(self, key: ObjectKey) -> RedisSeen | None:
        return self._looks.get(key)

    def failed_lately(self) -> RedisSeen | None:
        """The failure of the last look, if it is only seconds old."""
        return self._failure if asyncio.get_running_loop().time() - self._failed_at < FAILED_FOR else None

    async def first_or_last(self, key: ObjectKey) -> RedisSeen:
        """What the last look at `key` gave; the first look is made here, unless this Redis failed just now.

        Reconciles never wait for a round: a Redis that hangs would take all their places from other Queues.
        """
        if key not in self._looks:
            if (failure := self.failed_lately()) is not None:
                return failure
            await self.look(key)
        return self._looks.get(key) or self._failure

    async def round(self) -> tuple[ObjectKey, ...]:
        """Sample every Queue in one pipeline; the keys that were looked at, also when Redis did not answer."""
        return await self._look(dict(self._requests))

    async def look(self, key: ObjectKey) -> None:
        """Sample one Queue now."""
        await self._look({key: self._requests[key]})

    async def _look(self, requests: Mapping[ObjectKey, SampleRequest]) -> tuple[ObjectKey, ...]:
        loop = asyncio.get_running_loop()
        began, began_ms = loop.time(), self._now_ms()
        try:
            async with asyncio.timeout(ROUND_LIMIT):
                await self._look_at_server(began)
                answers = await self.store.samples(list(requests.values()))
        except (DockworkError, TimeoutError) as error:
            self._failed(requests, error, loop.time())
            return tuple(requests)
        self._failed_at = self._cause_at = float("-inf")
        self._metrics.redis_up.labels(self.name).set(1)
        self._metrics.redis_seconds.labels(self.name).observe(loop.time() - began)
        ended_ms = self._now_ms()
        for key, answer in zip(requests, answers, strict=True):
            self._looks[key] = self._seen(answer, began_ms, ended_ms)
        return tuple(requests)

    def _failed(self, requests: Mapping[ObjectKey, SampleRequest], error: BaseException, at: float) -> None:
        seen = failure_of(error, self.name)
        if isinstance(error, TimeoutError) and at - self._cause_at < CAUSE_FOR:
            # The store waits before it connects again: the cause is still the one that was told.
            seen = self._failure
        elif not isinstance(error, TimeoutError):
            self._cause_at = at
        self._metrics.redis_up.labels(self.name).set(0)
        self._server_at = float("-inf")  # it may be another server when it answers again
        self._failed_at, self._failure = at, seen
        for key in requests:
            self._looks[key] = seen

    async def _look_at_server(self, now: float) -> None:
        if now - self._server_at >= SERVER_EVERY:
            await self.store.ping()
            self._server = server_seen(await self.store.server())
            self._server_at = now

    def _seen(self, answer: Sample | DockworkError, began_ms: int, ended_ms: int) -> RedisSeen:
        if isinstance(answer, DockworkError):
            return failure_of(answer, self.name)
        if self._server is not None and answer.run_id != self._server.run_id:
            self._server_at = float("-inf")
        skew = skew_ms(answer.time_ms, began_ms, ended_ms)
        self._metrics.clock_skew.labels(self.name).set(skew / 1000)
        return RedisSeen(sample=sample_seen(answer), server=self._server, skew_ms=skew)


class RedisLinks:
    """All Redis servers in use."""

    def __init__(self, metrics: Metrics, now_ms: Callable[[], int]) -> None:
        self._metrics = metrics
        self._now_ms = now_ms
        self._links: dict[RedisTarget, RedisLink] = {}
        self._of: dict[ObjectKey, RedisLink] = {}
        #: Called with each new link, so that its loop of rounds starts.
        self.opened: Callable[[RedisLink], None] = lambda link: None

    def __iter__(self) -> Iterator[RedisLink]:
        return iter(tuple(self._links.values()))

    def link(self, key: ObjectKey, target: RedisTarget) -> RedisLink:
        """The link of `target`, from now on also the one of `key`; it connects at the first look. Raises InvalidUrl."""
        link = self._links.get(target)
        if link is None:
            link = RedisLink(target, self._metrics, self._now_ms)
            self._links[target] = link
            self.opened(link)
        if (old := self._of.get(key)) is not link:
            self._leave(key, old)
            self._of[key] = link
        return link

    def of(self, key: ObjectKey) -> RedisLink | None:
        return self._of.get(key)

    def forget(self, key: ObjectKey) -> None:
        self._leave(key, self._of.pop(key, None))

    async def close_unused(self) -> None:
        now = asyncio.get_running_loop().time()
        for target, link in list(self._links.items()):
            if link.unused_since is not None and now - link.unused_since >= UNUSED_FOR:
                del self._links[target]
                await link.close()

    async def close(self) -> None:
        for link in self._links.values():
            await link.close()
        self._links.clear()

    @staticmethod
    def _leave(key: ObjectKey, link: RedisLink | None) -> None:
        if link is not None:
            link.forget(key)
            if not link.keys:
                link.unused_since = asyncio.get_running_loop().time()


def skew_ms(time_ms: int, began_ms: int, ended_ms: int) -> int:
    """How far Redis TIME lies outside of the look that read it, by our clock; within it, nothing can be said."""
    return min(time_ms - began_ms, 0) or max(time_ms - ended_ms, 0)


def failure_of(error: BaseException, name: str) -> RedisSeen:
    """Why Redis could not be read, as a condition says it."""
    match error:
        case AccessDenied():
            reason = (
                RedisFailure.SCRIPTS_REFUSED if "may not do this" in str(error) else RedisFailure.AUTH_FAILED
            )
        case StoreUnavailable():
            reason = _BY_CAUSE.get(error.why, RedisFailure.CONNECT_FAILED)
        case OutcomeUnknown() | TimeoutError():
            reason = RedisFailure.TIMEOUT
        case SchemaMismatch() | ScriptFailed() | UnknownReply():
            reason = RedisFailure.SCRIPTS_REFUSED
        case InvalidUrl():
            reason = RedisFailure.CONNECT_FAILED
        case _:
            reason = RedisFailure.CONNECT_FAILED
    words = str(error) or "no answer within 2 s"
    return RedisSeen(failure=reason, message=f"{name}: {words}")


def sample_seen(sample: Sample) -> SampleSeen:
    """A store's sample as decisions know it."""
    owner = sample.owner
    return SampleSeen(
        time_ms=sample.time_ms,
        run_id=sample.run_id,
        entered=sample.entered,
        finished=sample.finished,
        ready=sample.ready,
        prioritized=sample.prioritized,
        delayed=sample.delayed,
        due=sample.due,
        due_soon=sample.due_soon,
        active=sample.active,
        throttled=sample.throttled,
        throttled_by=sample.throttled_by,
        concurrency=sample.concurrency,
        starts_per_s=None if sample.rate is None else sample.rate.count * 1000 / sample.rate.per_ms,
        parked=sample.parked,
        dead=sample.dead,
        bytes=sample.bytes,
        oldest_ms=sample.oldest_ms,
        paused=sample.paused,
        held=sample.held,
        closed=sample.closed,
        template_known=sample.template_known,
        loading=sample.loading,
        owner=None
        if owner is None
        else OwnerSeen(operator=owner.operator, namespace=owner.namespace, name=owner.name, uid=owner.uid),
        config_generation=sample.config_generation,
        parked_types=sample.parked_types,
        parked_first=sample.parked_first,
        totals=sample.totals,
        sealed=sample.sealed,
        workers=tuple(
            WorkerSeen(
                owner=beat.owner,
                pod=beat.pod,
                slots=beat.slots,
                busy=beat.busy,
                template_hash=beat.template_hash,
                protocol=beat.protocol,
                state=str(beat.state),
                quiesce_token=beat.quiesce_token,
                longest_rest_ms=beat.longest_rest_ms,
                mean_elapsed_ms=beat.mean_elapsed_ms,
                schemas=beat.schemas,
                beat_ms=beat.beat_ms,
            )
            for beat in sample.workers
        ),
        quiesced=sample.quiesced,
        leased=sample.leased,
    )


def server_seen(facts: Mapping[str, object]) -> ServerSeen:
    """What `Store.server` says, judged: is it new enough, how full is it."""
    used, most = _whole(facts.get("used_memory")), _whole(facts.get("maxmemory"))
    valkey = bool(facts.get("valkey_version"))
    version = str(facts.get("valkey_version") or facts.get("version") or "")
    oldest = OLDEST_VALKEY if valkey else OLDEST_REDIS
    too_old = ""
    if version and _numbers(version) < oldest:
        product = "Valkey" if valkey else "Redis"
        too_old = f"{product} {version} is too old: {'.'.join(map(str, oldest))} or newer is needed"
    return ServerSeen(
        version=version,
        run_id=str(facts.get("run_id") or ""),
        policy=str(facts.get("policy") or ""),
        memory_percent=round(100 * used / most) if most else 0,
        too_old=too_old,
    )


def address(url: str) -> str:
    """Host and port of a Redis URL, for messages and metrics: nothing that could be a credential."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "unix":
            return f"unix:{parts.path}"
        return f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else "redis"
    except ValueError:
        return "redis"


def _whole(value: object) -> int:
    return (
        value if isinstance(value, int) else int(value) if isinstance(value, str) and value.isdigit() else 0
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _ca_file(pem: str) -> str | None:
    """The certificate as a file: the TLS library reads nothing else."""
    if not pem:
        return None
    handle, path = tempfile.mkstemp(prefix="dockwork-ca-", suffix=".pem")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(pem)
    return path
