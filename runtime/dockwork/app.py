"""`App`: the name under which job types are declared, enqueued and worked on."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from dockwork import clock
from dockwork.app_actions import AppActions
from dockwork.client import Client, Counts, Job, JobRef
from dockwork.core.durations import Span
from dockwork.core.jobs import Context, Keep, check_job_id
from dockwork.core.keys import QueueName
from dockwork.core.repeat import Repeat
from dockwork.core.retry import Backoff
from dockwork.core.sizes import parse_size
from dockwork.core.slots import Shared
from dockwork.core.states import State
from dockwork.core.unique import Unique
from dockwork.errors import InvalidValue, require
from dockwork.events import Callback, Gap, Subscriptions, Token, check_names, check_queues
from dockwork.keyring import Encryption, KeySource, passing_keys
from dockwork.middleware import EnqueueMiddleware
from dockwork.queue_options import AppOptions
from dockwork.registry import (
    CallOptions,
    CustomBackoff,
    Defaults,
    Item,
    ItemOptions,
    JobType,
    QueueOptions,
    Registry,
    event_options,
    item_by_name,
)
from dockwork.reports import ErrorStats
from dockwork.resealing import ResealReport, key_counts, reseal_queues
from dockwork.schedules import AppSchedules, ScheduleOptions, declare
from dockwork.settings import OURS, RedisSettings, Settings, granted_cpus, read_paths, share_slots
from dockwork.store.protocol import (
    Admission,
    Configured,
    ErrorReport,
    Event,
    MinuteFigures,
    QueueStats,
    Store,
)
from dockwork.sync import Portal, SyncCalls, SyncJobRef

if TYPE_CHECKING:
    from dockwork.config_files import FileConfig
    from dockwork.testing.bench import Bench, Mode
    from dockwork.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
JobTypeT = TypeVar("JobTypeT", bound=JobType[Any, Any])
FnT = TypeVar("FnT", bound=Callable[..., Any])
EnqueueMiddlewareT = TypeVar("EnqueueMiddlewareT", bound=EnqueueMiddleware)
ReportT = TypeVar("ReportT", bound=Callable[[ErrorReport], Any])
CustomBackoffT = TypeVar("CustomBackoffT", bound=CustomBackoff)

#: Opens and closes what the handlers of one worker process share.
Lifespan = Callable[["App"], AbstractAsyncContextManager[None]]

log = logging.getLogger("dockwork.app")

CONFIG = f"{OURS}CONFIG"

_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")


class JobDecorator(Protocol):
    """Makes a job type of a function. A first parameter annotated `Context` is not the caller's to give."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> JobType[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]]) -> JobType[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R]) -> JobType[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R]) -> JobType[P, R]: ...


@dataclass(frozen=True)
class Queue:
    """A queue by its name: cheap, made without asking anybody."""

    name: str
    app: App

    async def stats(self) -> QueueStats:
        """Counts per state, totals and flags."""
        return await self.app.stats(self.name)

    async def figures(self, minutes: int = 60) -> list[MinuteFigures]:
        """What it did in each of the last `minutes`, the running one last; 48 hours at most."""
        return await self.app.figures(self.name, minutes)

    async def configure(self, *, force: bool = False) -> Configured:
        """Write what the code says of it now, for all workers; see `App.configure`."""
        return await self.app.configure(self.name, force=force)

    async def close_intake(self) -> bool:
        """Refuse new jobs. False: it was closed by hand already."""
        return await self.app.close_intake(self.name)

    async def open_intake(self) -> bool:
        """Take new jobs again. False: no hand had closed it."""
        return await self.app.open_intake(self.name)

    def jobs(self, *, state: State | str, limit: int | None = None) -> AsyncIterator[Job]:
        """The jobs in one state."""
        return self.app.jobs(self.name, state=state, limit=limit)

    def ref(self, job_id: str) -> JobRef[Any]:
        """A job by its id."""
        return self.app.ref(self.name, job_id)


class App(AppActions, AppOptions, AppSchedules):
    """Job types under one name, and the calls on their queues.

    name         says in logs whose worker this is
    redis        a URL or `RedisSettings`; DOCKWORK_REDIS_* variables beat it, bare REDIS_* ones do not
    namespace    DOCKWORK_NAMESPACE beats it; without either the pod's own namespace, else ``default``
    config       TOML and YAML files, the later over the earlier; DOCKWORK_CONFIG beats it. They beat code, and
                 DOCKWORK_ variables beat them. Read when settings are first needed
    store        instead of Redis: a store, or a function that makes one for each event loop
    defaults     options of `queue` that count for every queue, and ``queue``, that of job types which name none
    encryption   the keys of sealed values, and what counts for them; DOCKWORK_PAYLOAD_KEYS and the like beat its keys

    It is made without I/O and belongs to no event loop; each loop that uses it gets a connection of its own.
    """

    def __init__(
        self,
        name: str,
        *,
        redis: RedisSettings | str | None = None,
        namespace: str | None = None,
        store: Store | Callable[[], Store] | None = None,
        defaults: Defaults | None = None,
        encryption: Encryption | None = None,
        config: Sequence[str | Path] = (),
    ) -> None:
        fits = bool(_NAME.fullmatch(name))
        require(fits, "app", expected="1 to 63 characters of A-Z a-z 0-9 . _ -", got=name)
        self.name = name
        self.registry = Registry()
        if defaults:
            self.registry.set_defaults(defaults)
        self.middlewares: list[Callable[..., Awaitable[Any]]] = []
        self.enqueue_middlewares: list[EnqueueMiddleware] = []
        self._config = tuple(config)
        self._files: FileConfig | None = None
        self._redis = redis
        self._namespace = namespace
        self._store = store
        self.key_source = KeySource(encryption or Encryption(), lambda: self.settings)
        self._lifespan: Lifespan | None = None
        self.origin = ""  #: the module that a command was told to find this app in
        self._looked_at: set[QueueName] = set()
        self._subscriptions = Subscriptions()
        self._clients: dict[asyncio.AbstractEventLoop, Client] = {}
        self._portal = Portal(f"dockwork-sync-{name}")

    def __repr__(self) -> str:
        return f"<App {self.name}>"

    @cached_property
    def settings(self) -> Settings:
        """What the environment and this app's arguments say together; read at first use."""
        environ: Mapping[str, str] = os.environ
        paths = read_paths(environ[CONFIG], CONFIG) if environ.get(CONFIG) else self._config
        if paths:
            from dockwork.config_files import read_files

            self._files = read_files(paths)
            environ = self._files.environ(os.environ)
            for queue in self._files.queues:
                self.queue(queue, **self.registry.said.get(queue, {}))
        said = Settings.from_environ(environ, redis=self._redis, namespace=self._namespace)
        if environ.get(said.redis.source) and not os.environ.get(said.redis.source):
            # A file's: no variable of that name is there to be corrected.
            file_key = "redis.url_file" if said.redis.url_file else "redis.url"
            said = replace(said, redis=replace(said.redis, source=f"{file_key} of the configuration file"))
        return said

    def _declare_of_files(self) -> None:
        """The schedules of the configuration files; the job types must be known by now."""
        for said in self._files.schedules.values() if self._files is not None else ():
            job_type = self.registry.get(said.type)
            expected = f"a job type of this app ({', '.join(sorted(self.registry)) or 'none'})"
            require(job_type is not None, f"{said.place}.type", expected=expected, got=said.type)
            assert job_type is not None
            try:
                made = declare(
                    said.name,
                    job_type.queue,
                    partial(job_type.call(CallOptions()).item_of, said.args),
                    now=clock.now(),
                    every=said.every,
                    cron=said.cron,
                    options=cast(ScheduleOptions, said.options),
                )
            except InvalidValue as error:
                place = f"{said.place}: {error.field}"
                raise InvalidValue(place, expected=error.expected, got=error.got) from None
            self.registry.schedules[made.queue, made.uid] = made

    # --- declaring ---------------------------------------------------------------------------------------

    def job(
        self,
        misplaced: None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int = 0,
        retries: int | None = None,
        backoff: Backoff | None = None,
        timeout: Span | None = None,
        expires: Span | None = None,
        max_deliveries: int | None = None,
        dead_letter: bool = True,
        keep: Keep | None = None,
        isolation: Literal["process"] | None = None,
        unique: Unique | None = None,
        repeat: Repeat | None = None,
        concurrency_key: str | Sequence[str] | None = None,
        per_key: int | None = None,
    ) -> JobDecorator:
        """Declare a job type: its name is the function's unless `name` says otherwise. See `JobType`.

        Raises    TypeError for ``@app.job`` without parentheses
        """
        if misplaced is not None:
            raise TypeError("write @app.job(), with parentheses")

        def declare(fn: Callable[..., Any]) -> JobType[Any, Any]:
            job_type: JobType[Any, Any] = JobType(
                fn,
                producer=self,
                name=name,
                queue=queue,
                priority=priority,
                retries=retries,
                backoff=backoff,
                timeout=timeout,
                expires=expires,
                max_deliveries=max_deliveries,
                dead_letter=dead_letter,
                keep=keep,
                isolation=isolation,
                unique=unique,
                repeat=repeat,
                concurrency_key=concurrency_key,
                per_key=per_key,
            )
            self.registry.add(job_type)
            return job_type

        return declare

    def queue(self, name: str, **options: Unpack[QueueOptions]) -> Queue:
        """A queue by its name; with options, what counts for its jobs that say nothing themselves.

        Workers of this app write the options to Redis when they start, and all workers heed them within a beat; so
        does `configure`. Under a Queue resource its own `jobs` and `limits` stand, and these are ignored with one
        warning, but for what it does not have: rate, concurrency, per_key, and the last two lines below.

        timeout, retries, max_deliveries, backoff, expires    as for a job type
        rate           starts in any window of time, over all workers: ``Rate(100, per=60)``
        concurrency    running jobs, over all workers
        per_key        running jobs with the same concurrency key, for types that say no number; at first 1
        max_timeout    a job that asks for more is refused on enqueue
        max_depth      jobs that have not ended, at most
        max_bytes      of their payloads: a number, or text such as ``2Gi``
        max_payload    of one job, likewise, at most 8Mi
        lease          how long a claim is safe without renewal, 5 s to 1 h
        keep           how long completed jobs stay; its bytes are those of all ended jobs together
        keep_failed    how long those stay that failed, died, expired or were cancelled, by age and count
        keep_bytes     of all ended jobs together
        max_result, max_checkpoint, max_progress    bytes that a job may leave, at first 64Ki, 64Ki, 4Ki
        hard_after     from a run's timeout to the moment when it is given up, at first 10 s
        partitions     parts of the queue, 1 to 64, each with an order of its own; see the guide on Redis
        events         where its events go: ``stream`` (they can be read again), ``pubsub``, ``off``
        events_max_bytes   of the stream, 0 = no cap, at first 64Mi; 50,000 entries are the most in any case. Both
                       count under a Queue resource too, which says nothing about events
        """
        queue = Queue(QueueName("default", name).queue, self)
        if self._files is not None and name in self._files.queues:
            options = {**options, **self._files.queues[name]}
        if said := event_options(options):
            self.registry.event_options[queue.name] = said
        self.registry.configure(queue.name, options)
        if "partitions" in options:
            self.registry.split(queue.name, options["partitions"])
        return queue

    def backoff(self, name: str) -> Callable[[CustomBackoffT], CustomBackoffT]:
        """Register a function as the backoff ``Backoff.custom(name)``: (failed attempts, error) -> seconds."""

        def register(fn: CustomBackoffT) -> CustomBackoffT:
            self.registry.backoffs[name] = fn
            return fn

        return register

    def cron(
        self,
        schedule: str,
        *,
        name: str | None = None,
        args: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[JobTypeT], JobTypeT]:
        """Declare a schedule of a job type, above its ``@app.job()``: ``@app.cron("0 9 * * *", tz="Europe/Zurich")``.

        Workers of this app write it when they start; there is one job per instant, however many they are. Taken out of
        the code it goes on, until `unschedule`.

        schedule    five cron fields, ``@hourly`` and its like, or ``@every 15m``
        name        in its queue; the job type's if not given
        args        the job's arguments by name
        Raises      InvalidValue naming what is wrong
        """

        def declared(job_type: JobTypeT) -> JobTypeT:
            made = declare(
                name or job_type.name,
                job_type.queue,
                lambda: job_type.call(CallOptions()).item_of(args or {}),
                now=clock.now(),
                cron=schedule,
                options=options,
            )
            self.registry.add_schedule(made)
            return job_type

        return declared

    def middleware(self, fn: FnT) -> FnT:
        """Run ``await fn(job, call_next)`` around each run; the first added is the outermost."""
        self.middlewares.append(fn)
        return fn

    def enqueue_middleware(self, fn: EnqueueMiddlewareT) -> EnqueueMiddlewareT:
        """Run ``await fn(item, call_next)`` around each enqueue; the first added is the outermost.

        It passes on the item, or ``item.but(headers=..., args=..., priority=...)``; ``await call_next(item)`` answers
        the admission. An exception before that reaches the caller, and nothing is stored. In a bulk call it runs
        around every item. The ticks of schedules are no calls of this process, so it does not see them.
        """
        self.enqueue_middlewares.append(fn)
        return fn

    def on_error(self, fn: ReportT) -> ReportT:
        """Call ``fn(report)`` after each failed run in this app's workers, with an `ErrorReport`.

        It may be async; a plain function runs in a thread. What it raises is logged and changes nothing. Reports
        come one by one; what piles up beyond 1,000 of them is dropped. `errors` has the last ones of all workers.
        """
        self.registry.error_reporters.append(fn)
        return fn

    def lifespan(self, fn: Lifespan) -> Lifespan:
        """Enter the async context manager ``fn(app)`` once in each worker process, around all its runs."""
        require(self._lifespan is None, "lifespan", expected="one for an app", got="a second one")
        self._lifespan = fn
        return fn

    # --- producing ---------------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            for ended in [each for each in self._clients if each.is_closed()]:
                del self._clients[ended]
            client = self._clients[loop] = Client(
                self.make_store(),
                self.settings.namespace,
                owns_store=self._store is None or callable(self._store),
                finder=lambda: self.client,
                looked_at=self._looked_at,
                middlewares=self.enqueue_middlewares,
                queues=self.registry.all_queues,
                partitions=self.registry.partitions.get,
                types=self.registry,
            )
        if self._subscriptions.early:
            self._subscriptions.join(client.hub)
        return client

    def make_store(self) -> Store:
        """The store that was given, or a fresh one on this app's Redis; not opened yet."""
        if self._store is None:
            from dockwork.store.redis import RedisStore

            return RedisStore(self.settings.redis, lease=self.settings.lease)
        return self._store() if callable(self._store) else self._store

    def submit(self, item: Item[R]) -> Coroutine[Any, Any, JobRef[R]]:
        """Store one item."""
        return self.client.enqueue(item)

    def submit_sync(self, item: Item[R]) -> SyncJobRef[R]:
        """Store one item from code that is not async."""
        return self.sync.submit(item)

    def run_sync(self, call: Callable[[], Awaitable[R]]) -> R:
        """Await a call on the thread of the blocking twin."""
        return self._portal.run(call)

    async def enqueue(
        self,
        type_: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        queue: str,
        **options: Unpack[ItemOptions],
    ) -> JobRef[Any]:
        """Store a job of a type by its name, which this process need not know; arguments by name."""
        return await self.submit(self.item(type_, arguments, queue=queue, **options))

    def item(
        self,
        type_: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        queue: str,
        **options: Unpack[ItemOptions],
    ) -> Item[Any]:
        """An item of a type by its name, for `enqueue_many`."""
        said = CallOptions().and_(**options)
        return item_by_name(type_, arguments or {}, queue=queue, registry=self.registry, options=said)

    @overload
    async def enqueue_many(
        self, items: Iterable[Item[Any]], *, returning: Literal["admissions"] = "admissions"
    ) -> list[Admission]: ...
    @overload
    async def enqueue_many(self, items: Iterable[Item[Any]], *, returning: Literal["counts"]) -> Counts: ...
    async def enqueue_many(
        self, items: Iterable[Item[Any]], *, returning: Literal["admissions", "counts"] = "admissions"
    ) -> list[Admission] | Counts:
        """Store any number of jobs: an admission per item, in order, or only counts. See `Client`."""
        if returning == "counts":
            return await self.client.enqueue_many(items, returning="counts")
        return await self.client.enqueue_many(items, returning=returning)

    # --- reading -----------------------------------------------------------------------------------------

    def ref(self, queue: str, job_id: str) -> JobRef[Any]:
        """A job by its id, without asking anybody."""
        return JobRef(check_job_id(job_id), QueueName("default", queue).queue, client=lambda: self.client)

    async def jobs(self, queue: str, *, state: State | str, limit: int | None = None) -> AsyncIterator[Job]:
        """The jobs of a queue in one state; what moves meanwhile may be missed or seen twice."""
        async for job in self.client.jobs(queue, State(state), limit=limit):
            yield job

    async def stats(self, queue: str) -> QueueStats:
        """Counts per state, totals and flags of a queue."""
        return await self.client.stats(queue)

    async def queues(self) -> list[str]:
        """The queues of this app's namespace that anybody ever used."""
        return await self.client.queues()

    async def keys(self, queue: str | None = None) -> dict[str, int]:
        """Jobs of which something is sealed, per key id, of all queues or of one; a key without any can be retired."""
        return await key_counts(self.client, queue)

    async def reseal(
        self, queue: str | None = None, *, told: Callable[[ResealReport], None] = lambda report: None
    ) -> ResealReport:
        """Seal waiting and kept jobs anew with the current key, of all queues or of one; as often as you like.

        told    hears of each chunk
        Raises  EncryptionError without a key ring
        """
        return await reseal_queues(self.client, self.registry, queue, told)

    async def errors(self, queue: str, *, limit: int = 50) -> list[ErrorReport]:
        """The last failed runs of a queue, the newest first; it keeps 200."""
        return list((await self.client.errors(queue, limit=limit)).recent)

    async def error_stats(self, *queues: str) -> ErrorStats:
        """Failed runs by queue and by job type, and the kinds of the last errors; of all queues, or of these."""
        return await self.client.error_stats(*queues)

    # --- events ------------------------------------------------------------------------------------------

    def events(
        self, queue: str, *, only: Iterable[str] | str | None = None, since: str = "$", job: str | None = None
    ) -> AsyncGenerator[Event | Gap, None]:
        """What happens in a queue, for ever: ``async for e in app.events("mail", only={"completed"})``.

        only      names of events: those of the states a job enters, progress, stalled, resumed, obliterated
        since     an event's `id` to go on from, ``"0"`` for all that are kept, ``"$"`` for what comes from now on
        job       only what concerns the job of that id

        It goes on from its last event after a lost connection. Where the stream was trimmed further than that, a `Gap`
        comes instead of what is missing. A queue in mode ``pubsub`` keeps nothing to go back to, and one whose events
        are off raises InvalidValue.
        """
        return self.client.events(queue, only=only, since=since, job=job)

    def on(self, name: str, fn: Callback, *, queues: Iterable[str] | None = None) -> Token:
        """Call ``fn(event)`` for each event of that name from now on; see `on_all`."""
        return self._subscribe(fn, check_names(name), queues)

    def on_all(self, fn: Callback, *, queues: Iterable[str] | None = None) -> Token:
        """Call ``fn(event)`` for each event from now on, until `off`.

        queues     None: those that the app's job types and `App.queue` name

        `fn` may be async, and gets its events one by one, on the event loop that subscribed; where none runs, on the
        next that uses the app. It also gets a `Gap` where events are missing. What it raises is logged and changes
        nothing. All subscribers share one reader per queue.
        """
        return self._subscribe(fn, None, queues)

    def off(self, token: Token) -> None:
        """Tell a subscriber nothing more: from any thread, from the callback too."""
        self._subscriptions.remove(token)

    def tell_nobody(self) -> None:
        """Forget who subscribed before a loop used the app: in a child of a worker, which tells them itself."""
        self._subscriptions.early.clear()

    def _subscribe(self, fn: Callback, names: frozenset[str] | None, queues: Iterable[str] | None) -> Token:
        chosen = check_queues(queues)
        return self._subscriptions.add(Token(fn, names, chosen), lambda: self.client.hub)

    @cached_property
    def sync(self) -> SyncCalls:
        """The blocking twin: the same calls from any thread, on a connection of its own."""
        return SyncCalls(self._portal, lambda: self.client, self.registry, self.close)

    async def close(self) -> None:
        """Finish what this loop sends and close its connection; the next call opens another."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            self._subscriptions.leave(await client.stop_telling())
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- working -----------------------------------------------------------------------------------------

    def worker(
        self,
        *,
        queues: Mapping[str, int | None] | None = None,
        concurrency: int | None = None,
        shared: int | Shared = 0,
        trap_signals: bool | None = None,
        max_jobs: int | None = None,
        max_rss: int | str | None = None,
        max_jobs_per_child: int | None = None,
        max_rss_per_child: int | str | None = None,
        settings: Settings | None = None,
    ) -> Worker:
        """A worker for this app's job types, to be run once.

        queues        queue -> its own slots, or None for a share of `concurrency`; DOCKWORK_QUEUES beats it and
                      `shared`; without both, the queues that the job types name
        concurrency   slots in all; DOCKWORK_CONCURRENCY beats it; default: the CPUs that the cgroup grants
        shared        slots besides, for whichever queue has work; a `Shared` says by which weights, or in which order
        max_jobs, max_rss                        drain and end after so many jobs, or with so much memory, to be
                                                 started again
        max_jobs_per_child, max_rss_per_child    the same for each child process, which is replaced
        settings      instead of the environment's, and then above all else
        """
        from dockwork.worker.worker import Worker

        _ = self.settings  # first: configuration files may say something of the queues
        self._declare_of_files()
        self.registry.check()
        said = Settings(
            queues=dict(queues or {}),
            shared=shared if isinstance(shared, Shared) else Shared(slots=shared),
            concurrency=concurrency,
            max_jobs=max_jobs,
            max_rss=None if max_rss is None else parse_size(max_rss, "max_rss"),
            max_jobs_per_child=max_jobs_per_child,
            max_rss_per_child=(
                None if max_rss_per_child is None else parse_size(max_rss_per_child, "max_rss_per_child")
            ),
        )
        chosen = settings or self._worker_settings(said, trap_signals)
        served = chosen.queues or dict.fromkeys(self.registry.queues())
        require(bool(served), "queues", expected="a queue to serve: no job type names one", got="none")
        slots = (chosen.concurrency or _usual_slots(served) + chosen.shared.slots) - chosen.shared.slots
        return Worker(
            self.make_store(),
            self.registry,
            chosen,
            app_name=self.name,
            queues=share_slots(served, slots),
            shared=chosen.shared,
            lifespan=self.worker_lifespan,
            middlewares=tuple(self.middlewares),
            modules=self._modules(),
            owns_store=self._store is None or callable(self._store),
        )

    def _modules(self) -> tuple[str, ...]:
        """What a process has to import to have all of this app."""
        declared = [job_type.fn for job_type in self.registry.values()]
        found = (getattr(each, "__module__", None) for each in (*declared, *self.middlewares, self._lifespan))
        names = [self.origin, *(name for name in found if isinstance(name, str))]
        return tuple(dict.fromkeys(name for name in names if name))

    def _worker_settings(self, code: Settings, trap_signals: bool | None) -> Settings:
        """What the environment says of a worker, and where it says nothing, what the code does."""
        said = self.settings
        trap = said.trap_signals if trap_signals is None else said.trap_signals and trap_signals
        return replace(
            said,
            queues=said.queues or code.queues,
            shared=said.shared if said.queues else code.shared,
            concurrency=said.concurrency or code.concurrency,
            trap_signals=trap,
            max_jobs=said.max_jobs or code.max_jobs,
            max_rss=said.max_rss or code.max_rss,
            max_jobs_per_child=said.max_jobs_per_child or code.max_jobs_per_child,
            max_rss_per_child=said.max_rss_per_child or code.max_rss_per_child,
        )

    @asynccontextmanager
    async def testing(self, mode: Mode = "manual") -> AsyncIterator[Bench]:
        """This app on queues in memory, until the block ends: for tests, without Redis. Its lifespan is open meanwhile.

        mode    "manual": jobs wait for `Bench.run_all`; "inline": an enqueue runs the job before it returns
        """
        from dockwork.testing.bench import Bench

        bench = Bench(self.registry, self.settings.namespace, lambda: tuple(self.middlewares), mode)
        await bench.open()
        outer = self._clients.get(asyncio.get_running_loop())
        if outer is not None:
            self._subscriptions.leave(await outer.stop_telling())
        before = self._store, self._clients, self._looked_at, self.key_source
        # The bench serves every queue, so nobody needs to be told that none does.
        self._store, self._clients, self._looked_at = bench.store, {}, _Every()
        if not self.key_source.is_set:
            self.key_source = passing_keys(self.key_source.said)
        try:
            self._declare_of_files()
            await bench.declare()
            async with self.worker_lifespan():
                bench.tell = lambda: self.client.told()
                yield bench
        finally:
            self._store, self._clients, self._looked_at, self.key_source = before
            if outer is not None and self._subscriptions.early:
                self._subscriptions.join(outer.hub)

    @asynccontextmanager
    async def worker_lifespan(self) -> AsyncIterator[None]:
        """Around all runs of one process: what its handlers enqueue through, and the app's own lifespan."""
        async with AsyncExitStack() as stack:
            if asyncio.get_running_loop() not in self._clients:
                stack.push_async_callback(self.close)  # of what the handlers enqueue; another's stays open
            if self._lifespan is not None:
                await stack.enter_async_context(self._lifespan(self))
            if self._subscriptions.early:
                _ = self.client  # its loop is the first that runs: it tells those who subscribed before
            yield


class _Every(set[QueueName]):
    """Every queue there is."""

    def __contains__(self, queue: object) -> bool:
        return True


def _usual_slots(queues: Mapping[str, int | None]) -> int:
    """The sum of the numbers where all have one, else the CPUs, but a slot for each queue."""
    fixed = sum(slots for slots in queues.values() if slots is not None)
    sharing = sum(slots is None for slots in queues.values())
    return fixed if not sharing else max(granted_cpus(), fixed + sharing)
