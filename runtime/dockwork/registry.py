"""Job types: a function under a name, with its schema and its options; and the registry that holds them.

A worker needs of this: `Registry.get(name)`, `JobType.open(envelope)`, `JobType.fn`, `.is_async`, `.timeout`,
`.dead_letter`, `.dump_result`, `Registry.retry_delay`, and `Registry.queue_configs` to configure its queues.
"""

from __future__ import annotations

import inspect
import json
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast

from dockwork import clock
from dockwork.core.codec import Envelope, Opened, seal, seal_parts
from dockwork.core.durations import LONGEST_DELAY, Span, to_ms, to_span
from dockwork.core.jobs import Keep, check_job_id, check_job_type, check_priority
from dockwork.core.keys import QueueName
from dockwork.core.limits import (
    MOST_RUNNING,
    ConcurrencyKey,
    Rate,
    check_key_text,
    check_number,
    check_per_key,
    check_rate,
)
from dockwork.core.partitions import check_partitions
from dockwork.core.repeat import Repeat, first_due_ms
from dockwork.core.retry import DEFAULT_BACKOFF, Backoff, BackoffKind, next_delay
from dockwork.core.schema import Signature, check_bindable, dump_untyped
from dockwork.core.sealed import PREFIX
from dockwork.core.sealing import RESULT, OpenedArgs, Sealing, join_keys, keys_in
from dockwork.core.sizes import parse_size
from dockwork.core.unique import (
    IDEMPOTENCY_TTL,
    LONGEST_IDEMPOTENCY_TTL,
    SHORTEST_IDEMPOTENCY_TTL,
    Unique,
    arguments_digest,
    check_key,
    key_hash,
)
from dockwork.errors import EncryptionError, InvalidValue, require
from dockwork.store.calls import CHECKPOINT_BYTES, RESULT_BYTES
from dockwork.store.partition_shares import check_shares
from dockwork.store.protocol import (
    ErrorReport,
    EventMode,
    EventOptions,
    JobKeys,
    NewJob,
    OnConflict,
    QueueConfig,
    RateLimit,
)
from dockwork.store.texts import PROGRESS_BYTES

if TYPE_CHECKING:
    from dockwork.client import JobRef
    from dockwork.keyring import KeySource
    from dockwork.schedules import Declared, ScheduleInfo
    from dockwork.sync import SyncJobRef

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger("dockwork")

#: Says how long to wait after a failed attempt: (failed attempts, the error) -> seconds or a timedelta.
CustomBackoff = Callable[[int, BaseException], Span]

#: The shortest and the longest timeout of a run.
SHORTEST_TIMEOUT = timedelta(milliseconds=10)
LONGEST_TIMEOUT = timedelta(days=365)


class ItemOptions(TypedDict, total=False):
    """What a single call may ask for, the queue aside; see `CallOptions`."""

    priority: int
    id: str
    delay: Span
    at: datetime
    expires: Span
    timeout: Span
    retries: int
    keep: Keep
    headers: Mapping[str, str]
    unique: Unique
    idempotency_key: str
    idempotency_ttl: Span
    repeat: Repeat
    concurrency_key: str
    per_key: int
    replicas: int


class Options(ItemOptions, total=False):
    """What a single call may ask for; see `CallOptions`."""

    queue: str


@dataclass(frozen=True, kw_only=True, slots=True)
class CallOptions:
    """The checked options of a call. None = as the job type says, then as the queue says.

    priority    -100..100, lower first; 0 is plain FIFO
    id          the caller's id; known already = a duplicate, and the known job stays as it is
    delay, at   when it is due: at most one of both; a time that has passed means now
    expires     counts from the due time; not started by then = never run
    retries     attempts after the first
    headers     carried along, for `ctx.job.headers`: trace and correlation ids
    unique      one job at a time for a key
    idempotency_key, idempotency_ttl    the same key with the same arguments is answered by its first job, for 24 h
                or as long as said (1 min to 7 d), also when that job is gone; other arguments raise KeyReuse
    repeat      the job runs again after each run; not together with `expires`
    concurrency_key, per_key    of the jobs of a queue with the same key so many run at once
    replicas    of Redis, 1 to 100, that shall have the job before the call returns; it waits a second at most, and
                `JobRef.replicated` says whether they had
    """

    queue: str | None = None
    priority: int | None = None
    id: str | None = None
    delay: timedelta | None = None
    at: datetime | None = None
    expires: timedelta | None = None
    timeout: timedelta | None = None
    retries: int | None = None
    keep: Keep | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    unique: Unique | None = None
    idempotency_key: str | None = None
    idempotency_ttl: timedelta | None = None
    repeat: Repeat | None = None
    concurrency_key: str | None = None
    per_key: int | None = None
    replicas: int | None = None

    def and_(self, **more: Unpack[Options]) -> CallOptions:
        """The same with `more`, checked. Raises InvalidValue naming the option."""
        if not more:
            return self
        unknown = set(more) - set(Options.__annotations__)
        if unknown:
            expected = f"one of {', '.join(Options.__annotations__)}"
            raise InvalidValue("options", expected=expected, got=", ".join(sorted(unknown)))
        checked = {name: _OPTION_CHECKS[name](value) for name, value in more.items()}
        merged = replace(self, **checked)
        both = merged.delay is not None and merged.at is not None
        require(not both, "options", expected="delay or at, not both", got="both")
        timed = merged.idempotency_ttl is not None and merged.idempotency_key is None
        require(
            not timed, "idempotency_ttl", expected="an idempotency_key beside it", got=merged.idempotency_ttl
        )
        return merged


#: A call that asks for nothing.
NOTHING_SAID = CallOptions()


class Producer(Protocol):
    """What a job type enqueues through: its app."""

    @property
    def key_source(self) -> KeySource: ...
    @property
    def registry(self) -> Registry: ...
    def submit(self, item: Item[R]) -> Coroutine[Any, Any, JobRef[R]]: ...
    def submit_sync(self, item: Item[R]) -> SyncJobRef[R]: ...
    def run_sync(self, coroutine: Callable[[], Awaitable[R]]) -> R: ...
    async def schedule(
        self, item: Item[Any], *, every: Span | None, cron: str | None, name: str | None, tz: str
    ) -> ScheduleInfo: ...


@dataclass(unsafe_hash=True, kw_only=True, slots=True)
class Item(Generic[R]):
    """One job that is not enqueued yet: its arguments are checked and sealed.

    job_type    None for a type that this process does not know
    sealed      ids of the keys that seal its arguments, as a record has them
    repeat      the rule by which the job runs again
    digest      of type and arguments, where a key needs it
    concurrency_key    that its type makes of its arguments
    expires     what its queue or its app says, where neither call nor type does
    """

    type: str
    queue: str
    envelope: bytes
    options: CallOptions
    job_type: JobType[Any, R] | None = None
    sealed: str = ""
    repeat: Repeat | None = None
    digest: str = ""
    concurrency_key: str | None = None
    expires: timedelta | None = None

    @property
    def args(self) -> Mapping[str, Any]:
        """The arguments by name, as JSON has them; sealed ones stay sealed."""
        args: dict[str, Any] = json.loads(self.envelope)["args"]
        return args

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers by name."""
        return self.options.headers

    def but(self, *, args: Mapping[str, Any] | None = None, **options: Unpack[Options]) -> Item[R]:
        """The same with other arguments (all of them, by name) or options, checked like those of a call."""
        said = self.options.and_(**options)
        queue = said.queue if "queue" in options and said.queue is not None else self.queue
        given = self.args if args is None else args
        if self.job_type is None:
            other = item_by_name(self.type, given, queue=queue, registry=Registry(), options=said)
            return replace(other, expires=None if other.repeat is not None else self.expires)
        return self.job_type.call(said).item_of(self.job_type.in_plain(given), queue=queue)

    def new_job(self, make_id: Callable[[], str]) -> NewJob:
        """The store's value, with the call's options over the job type's; `make_id` where the call has no id."""
        said, declared = self.options, self.job_type
        if (
            said is NOTHING_SAID
            and declared is not None
            and declared.mould is not None
            and self.expires is None
        ):
            return NewJob(id=make_id(), type=self.type, envelope=self.envelope, **declared.mould.asks)
        priority = _first(said.priority, declared and declared.priority) or 0
        retries = _first(said.retries, declared and declared.retries)
        expires = _first(_first(said.expires, declared and declared.expires), self.expires)
        timeout = _first(said.timeout, declared and declared.timeout)
        keep = _first(said.keep, declared and declared.keep)
        job = NewJob(
            id=said.id or make_id(),
            type=self.type,
            envelope=self.envelope,
            priority=priority,
            due_in_ms=0 if said.delay is None else to_ms(said.delay),
            due_at_ms=None if said.at is None else int(said.at.timestamp() * 1000),
            expires_in_ms=None if expires is None else to_ms(expires),
            max_attempts=None if retries is None else retries + 1,
            max_deliveries=declared.max_deliveries if declared else None,
            timeout_ms=None if timeout is None else to_ms(timeout),
            keep=None if keep is None else keep.encode(),
            sealed=self.sealed,
            concurrency_key=_first(said.concurrency_key, self.concurrency_key),
            per_key=_first(said.per_key, declared and declared.per_key),
            replicas=said.replicas or 0,
        )
        return job if self.repeat is None and not self.digest else self._one_of_a_kind(job)

    def _one_of_a_kind(self, job: NewJob) -> NewJob:
        """The same with its keys, and the time of its first run if a calendar says it."""
        said, repeat = self.options, self.repeat
        due_at_ms = job.due_at_ms
        if repeat is not None:
            none = job.expires_in_ms is None
            require(none, "expires", expected="none for a job that repeats", got=f"{job.expires_in_ms} ms")
            if said.delay is None and said.at is None:
                due_at_ms = first_due_ms(repeat, clock.now_ms())
        keys = _keys_of(said, _first(said.unique, self.job_type and self.job_type.unique), self.digest)
        return replace(job, due_at_ms=due_at_ms, keys=keys, repeat=None if repeat is None else repeat.most)


def _keys_of(said: CallOptions, unique: Unique | None, digest: str) -> JobKeys | None:
    """A job's keys as the store takes them; a unique key without a name is the digest."""
    if unique is None and said.idempotency_key is None:
        return None
    named: dict[str, Any] = {}
    if unique is not None:
        named["unique"] = digest if unique.key is None else key_hash(unique.key)
        named |= {"until": unique.until, "on_conflict": OnConflict(unique.on_conflict)}
        named["ttl_ms"] = 0 if unique.ttl is None else to_ms(to_span(unique.ttl, "unique.ttl"))
    if said.idempotency_key is not None:
        named |= {"idempotency": key_hash(said.idempotency_key), "digest": digest}
        named["idempotency_ttl_ms"] = to_ms(_first(said.idempotency_ttl, IDEMPOTENCY_TTL))
    return JobKeys(**named)


def item_by_name(
    type_: str, arguments: Mapping[str, Any], *, queue: str, registry: Registry, options: CallOptions
) -> Item[Any]:
    """An item of a type that need not be known here; if it is, the arguments are checked."""
    known = registry.get(type_)
    if known is not None:
        return known.call(options).item_of(arguments, queue=queue)
    args = dump_untyped(check_job_type(type_), arguments)
    repeat, has_keys = options.repeat, options.unique is not None or options.idempotency_key is not None
    envelope = Envelope(type=type_, args=args, headers=options.headers, options=_options_of(repeat))
    # Values that were sealed elsewhere and are passed on count with the keys that they need.
    sealed = join_keys(keys_in(arguments)) if PREFIX.encode() in args else ""
    return Item(
        type=type_,
        queue=queue,
        envelope=seal(envelope),
        options=options,
        sealed=sealed,
        repeat=repeat,
        digest=arguments_digest(type_, args) if has_keys else "",
        expires=None if repeat is not None else registry.expires_of(queue),
    )


#: What peers call it (Celery, Dramatiq, RQ, Huey, Sidekiq), for those whose fingers remember.
_ELSEWHERE = {
    "delay": "enqueue",
    "apply_async": "enqueue",
    "send": "enqueue",
    "send_with_options": "enqueue",
    "perform_async": "enqueue",
    "schedule": "enqueue_in",
    "apply": "run",
    "call_local": "run",
}


class JobType(Generic[P, R]):
    """A function that runs as a job, under a name. Made by ``@app.job``; it is not called itself.

    name            in Redis and in all messages; at most 64 bytes
    retries         attempts after the first; None = the queue's, else 3
    timeout         of one run; None = the queue's, else 5 min
    backoff         None = the queue's, else exponential from 1 s to 1 h with full jitter
    dead_letter     a job whose retries are used becomes dead; False: failed
    concurrency_key the parameters whose values say whose job it is: of the jobs of this type with equal ones
                    only `per_key` run at once, over all workers; None = the queue's, else 1
    isolation       where it runs: "loop" for async functions, "thread" for others, "process" for what asks for it
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        producer: Producer,
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
    ) -> None:
        require(inspect.isroutine(fn), "job type", expected="a function", got=type(fn).__name__)
        require(
            not inspect.isasyncgenfunction(fn) and not inspect.isgeneratorfunction(fn),
            "job type",
            expected="a function that returns, not a generator",
            got=getattr(fn, "__name__", ""),
        )
        self.fn = fn
        self.name = check_job_type(name or fn.__name__)
        check_bindable(self.name, inspect.signature(fn).parameters)
        self.queue = _check_queue(producer.registry.default_queue if queue is None else queue)
        self.priority = check_priority(priority)
        self.retries = None if retries is None else _check_count("retries", retries, 0, 10_000)
        self.backoff = backoff
        self.timeout = None if timeout is None else _check_timeout(timeout)
        self.expires = None if expires is None else _check_expires(expires)
        self.max_deliveries = (
            None if max_deliveries is None else _check_count("max_deliveries", max_deliveries, 1, 10_000)
        )
        self.dead_letter = dead_letter
        self.keep = keep
        self.unique = None if unique is None else _check_unique(unique)
        self.repeat = None if repeat is None else _check_repeat(repeat)
        self.per_key = None if per_key is None else check_per_key(per_key)
        self.concurrency_key = (
            None if concurrency_key is None else ConcurrencyKey.of(self.name, concurrency_key)
        )
        self.is_async = inspect.iscoroutinefunction(fn)
        require(isolation in (None, "process"), "isolation", expected="'process', or nothing", got=isolation)
        self.isolation: Literal["loop", "thread", "process"] = isolation or (
            "loop" if self.is_async else "thread"
        )
        self._producer = producer
        self._plain: JobCall[P, R] = JobCall(self, NOTHING_SAID)

    def __repr__(self) -> str:
        return f"<JobType {self.name}>"

    if not TYPE_CHECKING:  # a type checker shall say that a job type is not callable

        def __call__(self, *args: Any, **kwargs: Any) -> None:
            raise TypeError(f"{self.name} is a job type: use .run() here and now, or .enqueue()")

        def __getattr__(self, name: str) -> Any:
            hint = _ELSEWHERE.get(name)
            said = f"; Dockwork's word for it is .{hint}()" if hint else ""
            raise AttributeError(f"a job type has no attribute {name!r}{said}", name=name, obj=self)

    @cached_property
    def signature(self) -> Signature:
        """The schema of the parameters; built at first use, when all annotations can be resolved."""
        try:
            signature = Signature(self.name, self.fn)
        except NameError as error:
            expected = "annotations that can be resolved in the function's module"
            raise InvalidValue(f"job type {self.name}", expected=expected, got=str(error)) from None
        if self.concurrency_key is not None:
            sealed = () if signature.sealing is None else tuple(signature.sealing.fields)
            self.concurrency_key.check(signature.names, sealed)
        return signature

    @cached_property
    def mould(self) -> Mould | None:
        """For calls that ask for nothing; None where a job of this type needs more than its arguments."""
        special = (self.sealing, self.unique, self.repeat, self.concurrency_key, self.expires)
        return None if any(each is not None for each in special) else Mould.of(self)

    @property
    def context_parameter(self) -> str | None:
        """The parameter that takes the `Context`, if there is one."""
        return self.signature.context_parameter

    @property
    def json_schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        return self.signature.json_schema

    @property
    def schema_hash(self) -> str:
        """16 hex digits that change with the schema."""
        return self.signature.schema_hash

    @property
    def timeout_s(self) -> float | None:
        """The declared timeout in seconds."""
        return None if self.timeout is None else self.timeout.total_seconds()

    @property
    def sealing(self) -> Sealing | None:
        """Which values are sealed wherever they are stored; None where none is."""
        return self.signature.sealing

    @property
    def key_source(self) -> KeySource:
        """Where the keys of sealed values come from: the app's."""
        return self._producer.key_source

    def store_args(self, arguments: Mapping[str, Any]) -> tuple[bytes, str]:
        """Arguments by name as the JSON object that is stored, and the ids of the keys that seal it.

        Raises    InvalidArgs; EncryptionError where there is no key ring
        """
        signature, sealing = self.signature, self.signature.sealing
        if sealing is None:
            return signature.dump(arguments), ""
        ring = self.key_source.ring()
        args = sealing.seal_args(signature.dump(sealing.by_parameter(arguments)), ring)
        return args, ring.current if sealing.fields else ""

    def in_plain(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Arguments by name with those opened that this app sealed. Raises EncryptionError for what it cannot open."""
        sealing = self.signature.sealing
        if sealing is None:
            return arguments
        opened = sealing.open_args(arguments, self.key_source.ring(), allow_plaintext=True)
        plain: dict[str, Any] = json.loads(opened.args)
        return plain

    def key_of(self, args: bytes) -> str | None:
        """The concurrency key of a job with these stored arguments."""
        key = self.concurrency_key
        return None if key is None else key.text(args, self.signature.defaults)

    def digest(self, arguments: Mapping[str, Any]) -> str:
        """Of the type and its arguments by name; sealed ones count with a digest key only, as an HMAC."""
        signature, sealing = self.signature, self.signature.sealing
        if sealing is None:
            return arguments_digest(self.name, signature.dump(arguments))
        plain = signature.dump(sealing.by_parameter(arguments))
        return arguments_digest(self.name, sealing.digestible(plain, self.key_source.said.digest_key))

    def unsealed(self, arguments: Mapping[str, Any], stored: bytes) -> Mapping[str, Any]:
        """`arguments` by name, opened where one is the very sealed value of the `stored` ones. Raises EncryptionError.

        Any other text that looks sealed is just a text: whoever sends one must not learn what it hides.
        """
        sealing = self.signature.sealing
        if sealing is None:
            return arguments
        return sealing.unseal_same(arguments, json.loads(stored), self.key_source.ring())

    def open_sealed(self, envelope: bytes) -> tuple[Opened, OpenedArgs]:
        """`open`, for a type with sealed values. Raises EncryptionError too: no ring, or one that opens nothing."""
        keys = self.key_source
        return self.signature.open_sealed(envelope, keys.ring(), allow_plaintext=keys.allow_plaintext)

    def validate(self, arguments: bytes | Mapping[str, Any]) -> dict[str, Any]:
        """Stored arguments as what the handler gets. Raises InvalidArgs with the path."""
        return self.signature.load(arguments)

    def open(self, envelope: bytes) -> Opened:
        """An envelope with its arguments checked. Raises Undecodable or InvalidArgs; see `Signature.open`."""
        return self.signature.open(envelope)

    def dump_result(self, value: Any) -> bytes:
        """What the handler returned, as JSON."""
        return self.signature.dump_result(value)

    def load_result(self, data: bytes) -> R:
        """A stored result as the handler's return type. Raises EncryptionError if it is sealed and cannot be opened."""
        sealing = self.signature.sealing
        if sealing is not None and sealing.result and data != b"null":
            keys = self.key_source
            data, _ = sealing.open_whole(RESULT, data, keys.ring(), allow_plaintext=keys.allow_plaintext)
        result: R = self.signature.load_result(data)
        return result

    def options(self, **options: Unpack[Options]) -> JobCall[P, R]:
        """The same job type with options for the next calls: ``resize.options(priority=-10).enqueue(7)``."""
        return self._plain.options(**options)

    def call(self, options: CallOptions) -> JobCall[P, R]:
        """The same, with options that were checked before."""
        return JobCall(self, options)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobRef[R]:
        """Store a job with these arguments and return when Redis has it."""
        return await self._producer.submit(self._plain.item_of(self.signature.bind(args, kwargs)))

    async def enqueue_in(self, delay: Span, /, *args: P.args, **kwargs: P.kwargs) -> JobRef[R]:
        """Store a job that is due in `delay`: seconds or a timedelta, at most ten years."""
        return await self._plain.enqueue_in(delay, *args, **kwargs)

    async def enqueue_at(self, at: datetime, /, *args: P.args, **kwargs: P.kwargs) -> JobRef[R]:
        """Store a job that is due at an aware datetime; one that has passed means now."""
        return await self._plain.enqueue_at(at, *args, **kwargs)

    def item(self, *args: P.args, **kwargs: P.kwargs) -> Item[R]:
        """A job for `App.enqueue_many`: checked now, stored later."""
        return self._plain.item_of(self.signature.bind(args, kwargs))

    async def schedule(
        self,
        *,
        every: Span | None = None,
        cron: str | None = None,
        tz: str = "Etc/UTC",
        name: str | None = None,
        **arguments: Any,
    ) -> ScheduleInfo:
        """Store a schedule that enqueues a job with these arguments at each instant; `App.schedule` has more options.

        every     seconds or a span; or
        cron      five fields, ``@hourly`` and its like, in the zone `tz`
        name      in its queue, the job type's if not given: a second one of the same name replaces the first
        """
        return await self._plain.schedule(every=every, cron=cron, tz=tz, name=name, **arguments)

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here and now, without a store: what it returns or raises."""
        from dockwork.local import run_here

        signature = self.signature
        return await run_here(self, signature.load(signature.dump(signature.bind(args, kwargs))))

    @property
    def sync(self) -> SyncJobCall[P, R]:
        """The same calls for code that is not async: from any thread, on a connection of its own."""
        return self._plain.sync

    @property
    def producer(self) -> Producer:
        """What enqueues jobs of this type."""
        return self._producer


class Mould:
    """What all jobs of a type have in common that a call asks nothing special for: the larger part is made once.

    asks    the fields of `NewJob` that the type declares
    """

    __slots__ = ("_dump", "_head", "_tail", "asks")

    def __init__(self, job_type: JobType[Any, Any], asks: Mapping[str, Any]) -> None:
        self._dump = job_type.signature.dump
        mark = b"{}"
        whole = seal_parts(job_type.name, mark, job_type.schema_hash, {}, {})
        head, args, tail = whole.partition(b'"args":' + mark)
        self._head, self._tail = head + args[: -len(mark)], tail
        self.asks = asks

    @classmethod
    def of(cls, job_type: JobType[Any, Any]) -> Mould:
        asked = Item(
            type=job_type.name, queue="", envelope=b"", options=replace(NOTHING_SAID), job_type=job_type
        ).new_job(lambda: "")
        plain = NewJob(id="", type=job_type.name, envelope=b"")
        said = {each.name: getattr(asked, each.name) for each in fields(asked)}
        return cls(job_type, {name: value for name, value in said.items() if value != getattr(plain, name)})

    def envelope(self, arguments: Mapping[str, Any]) -> bytes:
        """The envelope of a job with these arguments. Raises InvalidArgs."""
        return b"".join((self._head, self._dump(arguments), self._tail))


@dataclass(frozen=True, slots=True)
class JobCall(Generic[P, R]):
    """A job type with the options of a call."""

    job_type: JobType[P, R]
    said: CallOptions

    def options(self, **options: Unpack[Options]) -> JobCall[P, R]:
        return JobCall(self.job_type, self.said.and_(**options))

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobRef[R]:
        return await self.job_type.producer.submit(self.item(*args, **kwargs))

    async def enqueue_in(self, delay: Span, /, *args: P.args, **kwargs: P.kwargs) -> JobRef[R]:
        return await self.options(delay=delay).enqueue(*args, **kwargs)

    async def enqueue_at(self, at: datetime, /, *args: P.args, **kwargs: P.kwargs) -> JobRef[R]:
        return await self.options(at=at).enqueue(*args, **kwargs)

    async def schedule(
        self,
        *,
        every: Span | None = None,
        cron: str | None = None,
        tz: str = "Etc/UTC",
        name: str | None = None,
        **arguments: Any,
    ) -> ScheduleInfo:
        return await self.job_type.producer.schedule(
            self.item_of(arguments), every=every, cron=cron, name=name, tz=tz
        )

    def item(self, *args: P.args, **kwargs: P.kwargs) -> Item[R]:
        return self.item_of(self.job_type.signature.bind(args, kwargs))

    def item_of(self, arguments: Mapping[str, Any], *, queue: str | None = None) -> Item[R]:
        """An item with arguments by name."""
        job_type = self.job_type
        mould = job_type.mould
        if mould is not None and self.said is NOTHING_SAID:
            chosen = queue or job_type.queue
            return Item(
                type=job_type.name,
                queue=chosen,
                envelope=mould.envelope(arguments),
                options=NOTHING_SAID,
                job_type=job_type,
                expires=job_type.producer.registry.expires_of(chosen),
            )
        args, sealed = job_type.store_args(arguments)
        said, repeat = self.said, _first(self.said.repeat, job_type.repeat)
        has_keys = said.idempotency_key is not None or _first(said.unique, job_type.unique) is not None
        options = _options_of(repeat)
        envelope = seal_parts(job_type.name, args, job_type.schema_hash, said.headers, options)
        chosen = queue or said.queue or job_type.queue
        return Item(
            type=job_type.name,
            queue=chosen,
            envelope=envelope,
            options=said,
            job_type=job_type,
            sealed=sealed,
            repeat=repeat,
            digest=job_type.digest(arguments) if has_keys else "",
            concurrency_key=job_type.key_of(args),
            expires=None if repeat is not None else job_type.producer.registry.expires_of(chosen),
        )

    @property
    def sync(self) -> SyncJobCall[P, R]:
        return SyncJobCall(self)


@dataclass(frozen=True, slots=True)
class SyncJobCall(Generic[P, R]):
    """The blocking twin of a job type: the same calls, results and errors."""

    call: JobCall[P, R]

    def options(self, **options: Unpack[Options]) -> SyncJobCall[P, R]:
        return SyncJobCall(self.call.options(**options))

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> SyncJobRef[R]:
        return self.call.job_type.producer.submit_sync(self.call.item(*args, **kwargs))

    def enqueue_in(self, delay: Span, /, *args: P.args, **kwargs: P.kwargs) -> SyncJobRef[R]:
        return self.options(delay=delay).enqueue(*args, **kwargs)

    def enqueue_at(self, at: datetime, /, *args: P.args, **kwargs: P.kwargs) -> SyncJobRef[R]:
        return self.options(at=at).enqueue(*args, **kwargs)

    def schedule(
        self,
        *,
        every: Span | None = None,
        cron: str | None = None,
        tz: str = "Etc/UTC",
        name: str | None = None,
        **arguments: Any,
    ) -> ScheduleInfo:
        call = self.call
        return call.job_type.producer.run_sync(
            lambda: call.schedule(every=every, cron=cron, tz=tz, name=name, **arguments)
        )

    def item(self, *args: P.args, **kwargs: P.kwargs) -> Item[R]:
        return self.call.item(*args, **kwargs)

    def run(self, *args: P.args, **kwargs: P.kwargs) -> R:
        job_type = self.call.job_type
        return job_type.producer.run_sync(lambda: job_type.run(*args, **kwargs))


class QueueOptions(TypedDict, total=False):
    """What code may say of a queue; see `App.queue`."""

    timeout: Span
    max_timeout: Span
    retries: int
    max_deliveries: int
    backoff: Backoff
    expires: Span
    rate: Rate
    concurrency: int
    per_key: int
    max_depth: int
    max_bytes: int | str
    max_payload: int | str
    lease: Span
    keep: Keep
    keep_failed: Keep
    keep_bytes: int | str
    max_result: int | str
    max_checkpoint: int | str
    max_progress: int | str
    hard_after: Span
    partitions: int
    events: Literal["stream", "pubsub", "off"]
    events_max_bytes: int | str


class Defaults(QueueOptions, total=False):
    """What an app may say for all its queues and job types; see `App`."""

    queue: str


#: Options of `App.queue` that are said of events; see `event_options`.
EVENT_FIELDS = frozenset({"events", "events_max_bytes"})
#: Those that no worker writes as options of the queue: they are the producers', or say how many queues there are.
_NOT_WRITTEN = EVENT_FIELDS | {"partitions", "expires"}


def event_options(options: QueueOptions) -> EventOptions | None:
    """What the options say about events, None for nothing. Raises InvalidValue naming the option."""
    if not EVENT_FIELDS & set(options):
        return None
    mode, size = options.get("events", "stream"), options.get("events_max_bytes")
    require(mode in list(EventMode), "events", expected="stream, pubsub or off", got=mode)
    return EventOptions(
        mode=EventMode(mode), max_bytes=None if size is None else parse_size(size, "events_max_bytes")
    )


def queue_config(options: QueueOptions) -> QueueConfig:
    """The checked options of a queue as the store takes them. Raises InvalidValue naming the option."""
    unknown = set(options) - set(QueueOptions.__annotations__)
    if unknown:
        expected = f"one of {', '.join(QueueOptions.__annotations__)}"
        raise InvalidValue("queue option", expected=expected, got=", ".join(sorted(unknown)))
    fields: dict[str, Any] = {}
    keep: dict[str, int] = {}
    for option, value in options.items():
        if option in _NOT_WRITTEN:
            continue
        name, checked = _QUEUE_FIELDS[option](value)
        if name == "keep":
            keep |= checked
        else:
            fields[name] = checked
    return QueueConfig(**fields, keep=keep)


class Registry(Mapping[str, JobType[Any, Any]]):
    """All job types of an app by name, its custom backoffs, and what its code says of queues."""

    def __init__(self) -> None:
        _REGISTRIES.append(weakref.ref(self, _REGISTRIES.remove))
        self._types: dict[str, JobType[Any, Any]] = {}
        self.backoffs: dict[str, CustomBackoff] = {}
        #: Called after each failed run; see `App.on_error`.
        self.error_reporters: list[Callable[[ErrorReport], Any]] = []
        #: What code says of queues' events; nobody stands above it but the environment.
        self.event_options: dict[str, EventOptions] = {}
        #: Queue-level options that code gave by `App.queue`; an operator's word in Redis stands above them.
        self.queue_configs: dict[str, QueueConfig] = {}
        #: What the app says for all its queues; `configure` beats it.
        self._defaults: QueueOptions = {}
        #: The options of `App.queue` as they were given.
        self.said: dict[str, QueueOptions] = {}
        #: Schedules that code declares, by queue and name; workers write them when they start.
        self.schedules: dict[tuple[str, str], Declared] = {}
        self.default_queue = "default"
        self._expires: dict[str, timedelta] = {}
        #: How many partitions code gave a queue.
        self.partitions: dict[str, int] = {}

    def __getitem__(self, name: str) -> JobType[Any, Any]:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    def add(self, job_type: JobType[Any, Any]) -> None:
        """Register a type. Raises InvalidValue if another function has its name."""
        known = self._types.get(job_type.name)
        if known is not None and _place(known.fn) != _place(job_type.fn):
            expected = f"a name that {_place(known.fn)} does not have yet"
            raise InvalidValue(f"job type {job_type.name}", expected=expected, got=_place(job_type.fn))
        self._types[job_type.name] = job_type

    def set_defaults(self, defaults: Defaults) -> None:
        """What counts for every queue and job type that says nothing itself. Raises InvalidValue naming the option."""
        self.default_queue = _check_queue(defaults.get("queue", "default"))
        said = {name: value for name, value in defaults.items() if name != "queue"}
        not_here = sorted(set(said) & (EVENT_FIELDS | {"partitions"}))
        require(not not_here, "defaults", expected="options of all queues", got=", ".join(not_here))
        self._defaults = cast(QueueOptions, said)
        queue_config(self._defaults)
        self.expires_of(self.default_queue)

    def configure(self, queue: str, options: QueueOptions) -> None:
        """Take over what code says of a queue, the app's defaults under it. Raises InvalidValue naming the option."""
        self.said[queue] = options
        merged: QueueOptions = {**self._defaults, **options}
        config = queue_config(merged)
        if "expires" in merged:
            self._expires[queue] = _check_expires(merged["expires"])
        if set(options) - _NOT_WRITTEN:
            self.queue_configs[queue] = config

    def config_of(self, queue: str) -> QueueConfig | None:
        """What code says of a queue that workers write, None for nothing."""
        config = self.queue_configs.get(queue)
        if config is None and set(self._defaults) - _NOT_WRITTEN:
            config = queue_config(self._defaults)
        return config

    def expires_of(self, queue: str) -> timedelta | None:
        """How long jobs of a queue wait at most, where neither call nor job type says it."""
        found = self._expires.get(queue)
        if found is None and "expires" in self._defaults:
            found = _check_expires(self._defaults["expires"])
        return found

    def split(self, queue: str, count: int) -> None:
        """Give a queue partitions. Raises InvalidValue, also for a limit of which one would get nothing."""
        check_partitions(count)
        check_shares(self.config_of(queue) or QueueConfig(), count)
        self.partitions[queue] = count

    def add_schedule(self, declared: Declared) -> None:
        """Raises InvalidValue where the queue has one of that name."""
        place = (declared.queue, declared.uid)
        new = place not in self.schedules
        require(new, "schedule name", expected="one that its queue does not have yet", got=declared.uid)
        self.schedules[place] = declared

    def check(self) -> None:
        """Build every schema now. Raises InvalidValue for a handler that cannot be one."""
        for declared in self.schedules.values():
            declared.entry(suspended=False)
        for job_type in self._types.values():
            _ = job_type.signature
            backoff = job_type.backoff
            if backoff is not None and backoff.kind is BackoffKind.CUSTOM:
                expected = f"one of the registered ones ({', '.join(self.backoffs) or 'none'})"
                known = backoff.name in self.backoffs
                require(known, f"backoff of {job_type.name}", expected=expected, got=backoff.name)

    def check_keys(self) -> None:
        """Raises EncryptionError if a type seals values and there is no key ring."""
        for job_type in self._types.values():
            if job_type.sealing is not None:
                try:
                    job_type.key_source.ring()
                except EncryptionError as error:
                    raise EncryptionError(f"{job_type.name}: {error}") from None

    def queues(self) -> tuple[str, ...]:
        """The queues that the job types name, in order."""
        return tuple(dict.fromkeys(job_type.queue for job_type in self._types.values()))

    def all_queues(self) -> tuple[str, ...]:
        """The queues that the job types name, or that code says something of."""
        return tuple(dict.fromkeys([*self.queues(), *self.queue_configs, *self.event_options]))

    def retry_delay(
        self, backoff: Backoff | None, attempts: int, spread: float, error: BaseException
    ) -> timedelta:
        """The wait after the `attempts`-th failed attempt, by `backoff` or the default.

        A custom one that is unknown or raises counts as the default, and is logged: a job is retried in any case.
        """
        if backoff is None:
            return next_delay(DEFAULT_BACKOFF, attempts, spread)
        if backoff.kind is not BackoffKind.CUSTOM:
            return next_delay(backoff, attempts, spread)
        try:
            return to_span(self.backoffs[backoff.name](attempts, error), "backoff", most=LONGEST_DELAY)
        except Exception as failure:  # the user's code: whatever it raises must not cost the job its retry
            log.warning(
                "backoff_failed", extra={"backoff": backoff.name, "error": type(failure).__qualname__}
            )
            return next_delay(DEFAULT_BACKOFF, attempts, spread)


_NO_OPTIONS: Mapping[str, Any] = {}


def _options_of(repeat: Repeat | None) -> Mapping[str, Any]:
    """What the worker reads of a job's options."""
    return _NO_OPTIONS if repeat is None else {"repeat": repeat.to_options()}


#: Every registry of this process: a child process looks for its job types by name, once it has their modules.
_REGISTRIES: list[weakref.ref[Registry]] = []


def registries() -> list[Registry]:
    """The registries of all apps in this process, the first made first."""
    return [registry for each in _REGISTRIES if (registry := each()) is not None]


def _first(said: Any, declared: Any) -> Any:
    return declared if said is None else said


def _place(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}.{fn.__qualname__}"


def _check_queue(name: str) -> str:
    return QueueName("default", name).queue


def _check_count(name: str, value: int, least: int, most: int) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    require(fits, name, expected=f"a whole number from {least} to {most}", got=value)
    return value


def _check_timeout(value: Span) -> timedelta:
    return to_span(value, "timeout", least=SHORTEST_TIMEOUT, most=LONGEST_TIMEOUT)


def _check_at(value: datetime) -> datetime:
    aware = isinstance(value, datetime) and value.tzinfo is not None and value.utcoffset() is not None
    require(aware, "at", expected="a datetime with a time zone", got=value)
    return value.astimezone(UTC)


def _check_expires(value: Span) -> timedelta:
    return to_span(value, "expires", most=LONGEST_DELAY)


def _check_headers(value: Mapping[str, str]) -> Mapping[str, str]:
    fits = isinstance(value, Mapping) and all(
        isinstance(k, str) and isinstance(v, str) for k, v in value.items()
    )
    require(fits, "headers", expected="strings by name", got=type(value).__name__)
    return dict(value)


def _check_keep(value: Keep) -> Keep:
    require(isinstance(value, Keep), "keep", expected="a Keep", got=type(value).__name__)
    return value


def _check_unique(value: Unique) -> Unique:
    require(isinstance(value, Unique), "unique", expected="a Unique", got=type(value).__name__)
    return value


def _check_repeat(value: Repeat) -> Repeat:
    require(isinstance(value, Repeat), "repeat", expected="a Repeat", got=type(value).__name__)
    return value


def _check_idempotency_ttl(value: Span) -> timedelta:
    return to_span(value, "idempotency_ttl", least=SHORTEST_IDEMPOTENCY_TTL, most=LONGEST_IDEMPOTENCY_TTL)


_OPTION_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    "queue": _check_queue,
    "priority": check_priority,
    "id": check_job_id,
    "delay": lambda value: to_span(value, "delay", most=LONGEST_DELAY),
    "at": _check_at,
    "expires": _check_expires,
    "timeout": _check_timeout,
    "retries": lambda value: _check_count("retries", value, 0, 10_000),
    "keep": _check_keep,
    "headers": _check_headers,
    "unique": _check_unique,
    "idempotency_key": lambda value: check_key(value, "idempotency_key"),
    "idempotency_ttl": _check_idempotency_ttl,
    "repeat": _check_repeat,
    "concurrency_key": check_key_text,
    "per_key": check_per_key,
    "replicas": lambda value: check_number("replicas", value, 100),
}


def _queue_backoff(value: Backoff) -> str:
    # Custom backoffs live in code, and a queue's workers need not have this code.
    fits = isinstance(value, Backoff) and value.kind is not BackoffKind.CUSTOM
    require(fits, "backoff", expected="a fixed, exponential or list Backoff", got=value)
    return value.to_json()


def _lease_ms(value: Span) -> int:
    return to_ms(to_span(value, "lease", least=timedelta(seconds=5), most=timedelta(hours=1)))


def _queue_keep(value: Keep) -> Mapping[str, int]:
    limits = _check_keep(value)
    age = -1 if limits.age is None else to_ms(limits.age)
    count = -1 if limits.count is None else limits.count
    kept = {"completed_age_ms": age, "completed_count": count}
    return kept if limits.bytes is None else {**kept, "bytes": limits.bytes}


def _queue_keep_failed(value: Keep) -> Mapping[str, int]:
    limits = _check_keep(value)
    require(
        limits.bytes is None, "keep_failed", expected="an age or a count; bytes are keep_bytes", got=value
    )
    age = -1 if limits.age is None else to_ms(limits.age)
    return {"failed_age_ms": age, "failed_count": -1 if limits.count is None else limits.count}


def _size(name: str, value: int | str, most: int) -> int:
    return _check_count(name, parse_size(value, name), 256, most)


def _hard_after_ms(value: Span) -> int:
    return to_ms(to_span(value, "hard_after", least=timedelta(milliseconds=100), most=timedelta(hours=1)))


def _rate_limit(value: Rate) -> RateLimit:
    rate = check_rate(value)
    return RateLimit(rate.count, rate.per_ms)


#: Option of `App.queue` -> (field of QueueConfig, value).
_QUEUE_FIELDS: Mapping[str, Callable[[Any], tuple[str, Any]]] = {
    "timeout": lambda value: ("timeout_ms", to_ms(_check_timeout(value))),
    "max_timeout": lambda value: ("max_timeout_ms", to_ms(_check_timeout(value))),
    "retries": lambda value: ("max_attempts", _check_count("retries", value, 0, 10_000) + 1),
    "max_deliveries": lambda value: (
        "max_deliveries",
        _check_count("max_deliveries", value, 1, 10_000),
    ),
    "backoff": lambda value: ("backoff", _queue_backoff(value)),
    "max_depth": lambda value: ("max_depth", _check_count("max_depth", value, 1, 100_000_000)),
    "max_bytes": lambda value: ("max_bytes", parse_size(value, "max_bytes")),
    "max_payload": lambda value: (
        "max_payload",
        _check_count("max_payload", parse_size(value, "max_payload"), 1, 1 << 23),
    ),
    "lease": lambda value: ("lease_ms", _lease_ms(value)),
    "keep": lambda value: ("keep", _queue_keep(value)),
    "keep_failed": lambda value: ("keep", _queue_keep_failed(value)),
    "keep_bytes": lambda value: ("keep", {"bytes": parse_size(value, "keep_bytes")}),
    "max_result": lambda value: ("max_result", _size("max_result", value, RESULT_BYTES)),
    "max_checkpoint": lambda value: ("max_checkpoint", _size("max_checkpoint", value, CHECKPOINT_BYTES)),
    "max_progress": lambda value: ("max_progress", _size("max_progress", value, PROGRESS_BYTES)),
    "hard_after": lambda value: ("hard_after_ms", _hard_after_ms(value)),
    "rate": lambda value: ("rate", _rate_limit(value)),
    "concurrency": lambda value: ("concurrency", check_number("concurrency", value, MOST_RUNNING)),
    "per_key": lambda value: ("per_key", check_per_key(value)),
}
