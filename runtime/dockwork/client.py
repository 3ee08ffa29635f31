"""The producer's side: jobs go into the store, and one asks by id what became of them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload

from dockwork import clock
from dockwork.actions import ClientActions, Edit
from dockwork.core.codec import open_envelope
from dockwork.core.durations import Span
from dockwork.core.ids import letters, time_letters
from dockwork.core.keys import QueueName
from dockwork.core.sealing import Sealing, withheld
from dockwork.core.states import ENDED, State
from dockwork.errors import (
    DockworkError,
    InvalidValue,
    JobFailed,
    KeyReuse,
    OutcomeUnknown,
    QueueClosed,
    QueueFull,
    RoutingConflict,
    StoreUnavailable,
    TooLarge,
    Undecodable,
    UniqueConflict,
    UnknownReply,
)
from dockwork.events import Gap, Hub, Token, check_names, read_events
from dockwork.middleware import EnqueueMiddleware, around_many, around_one
from dockwork.queue_options import ClientOptions
from dockwork.registry import Item, JobType
from dockwork.reports import ErrorStats, sum_errors
from dockwork.store.event_calls import check_since
from dockwork.store.partitioned import home_of, partitioned
from dockwork.store.protocol import (
    Acted,
    Admission,
    Admitted,
    Event,
    Failure,
    JobView,
    NewJob,
    QueueErrors,
    QueueStats,
    Store,
)
from dockwork.store.sending import Begun, NotRun

R = TypeVar("R")

log = logging.getLogger("dockwork.client")

#: Items that `enqueue_many` hands to the store at a time; the store cuts them further, to what a script may take.
WINDOW = 4096

#: No queue may allow more for one job, so a larger one is refused without being sent.
LARGEST_ENVELOPE = 8 * 1024 * 1024

#: `JobRef.result` asks first after this, then ever more slowly.
FIRST_LOOK_S = 0.02
SLOWEST_LOOK_S = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """How many items of a bulk enqueue became what."""

    accepted: int = 0
    duplicate: int = 0
    rejected: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A job as it stands, for people and tools.

    args        None if the envelope cannot be read, or is no longer kept: it goes when the job completes
    result      the stored JSON value
    revision    rises with each edit, which wants the one that was looked at
    digest      changes with anything of the job; redrive wants the one that was looked at
    """

    id: str
    type: str
    queue: str
    state: State
    args: Mapping[str, Any] | None
    headers: Mapping[str, str]
    priority: int
    created_at: datetime
    due_at: datetime
    scheduled_for: datetime | None = None
    expires_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempts: int = 0
    deliveries: int = 0
    interruptions: int = 0
    owner: str = ""
    reason: str = ""
    result: Any = None
    result_dropped: int = 0
    progress: Any = None
    checkpoint: Any = None
    log: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    revision: int = 0
    digest: str = ""


@dataclass(unsafe_hash=True, slots=True)
class JobRef(Generic[R]):
    """A job by its id: cheap, made without asking anybody, and of use on any event loop.

    admission   what its enqueue was answered; None for a reference made from a name
    replicated  whether as many replicas as the call asked for had the job in time; None if it asked for none
    client      finds the client of the running loop
    """

    id: str
    queue: str
    admission: Admitted | None = None
    replicated: bool | None = None
    client: Callable[[], Client] = field(repr=False, compare=False, kw_only=True)
    job_type: JobType[Any, R] | None = field(default=None, repr=False, compare=False, kw_only=True)

    async def state(self) -> State | None:
        """Where the job is now; None if the store does not know it, or no more."""
        return await self.client().state_of(self.queue, self.id)

    async def info(self) -> Job | None:
        """Everything that the store knows of the job."""
        return await self.client().job(self.queue, self.id)

    def events(
        self, *, only: Iterable[str] | str | None = None, since: str = "$"
    ) -> AsyncGenerator[Event | Gap, None]:
        """What happens to this job, for ever; ``resumed`` too if it waits when its queue is resumed."""
        return self.client().events(self.queue, only=only, since=since, job=self.id)

    async def cancel(self, *, force: bool = False) -> Literal["cancelled", "flagged", "too_late", "missing"]:
        """Ask the job not to run: ``cancelled`` if it waited, ``flagged`` if it runs and is told within a second,
        ``too_late`` if it has ended, ``missing`` if it is not known.

        force    a running job ends as cancelled here and now; its handler is told, and the rest of its run counts not
        """
        return await self.client().cancel(self.queue, self.id, force=force)

    async def redrive(self, digest: str) -> Acted:
        """Put the ended job back if it is still as it was reviewed (`Job.digest`). Effects outside may repeat."""
        return await self.client().redrive(self.queue, self.id, digest)

    async def retry(self) -> Acted:
        """Let the job run again now: an ended one is put back, a delayed one is due. Effects outside may repeat."""
        return await self.client().retry(self.queue, self.id)

    async def promote(self) -> Acted:
        """Make the delayed job due now; ``missing`` if it is not delayed."""
        return Acted.OK if await self.client().promote(self.queue, self.id) else Acted.MISSING

    async def edit(
        self,
        revision: int,
        *,
        args: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: Span | None = None,
        at: datetime | None = None,
    ) -> Acted:
        """Change the job while it waits, if it is still at `revision` (`Job.revision`)."""
        types = {} if self.job_type is None else {self.job_type.name: self.job_type}
        change = Edit(args=args, priority=priority, delay=delay, at=at, types=types)
        return await self.client().edit(self.queue, self.id, revision, change)

    async def reprioritise(self, revision: int, priority: int) -> Acted:
        """Give the waiting job another priority, if it is still at `revision`."""
        return await self.edit(revision, priority=priority)

    async def result(self, timeout: float | None = None) -> R:
        """What the handler returned, as soon as the job has completed.

        timeout     seconds to wait, None = for ever
        Raises      JobFailed if it ended otherwise, is not known, or its result was too large to keep;
                    TimeoutError when the time is over: the job goes on
        """
        deadline = None if timeout is None else clock.monotonic() + timeout
        pause = FIRST_LOOK_S
        while True:
            view = await self.client().view(self.queue, self.id)
            if view is None:
                raise JobFailed(self.id, "missing", "no such job, or its record is no longer kept")
            if view.state in ENDED:
                return self._result_of(view)
            left = pause if deadline is None else deadline - clock.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {self.id} is {view.state} after {timeout} s")
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, SLOWEST_LOOK_S)

    def _result_of(self, view: JobView) -> R:
        if view.state is not State.COMPLETED:
            raise JobFailed(self.id, view.state, _why(view))
        if view.result_dropped:
            raise JobFailed(
                self.id, view.state, f"its result of {view.result_dropped} bytes was too large to keep"
            )
        data = b"null" if view.result is None else view.result
        job_type = self.job_type
        if job_type is None:
            # A reference by name: the result is plain JSON, unless its type seals it.
            known = self.client().types.get(view.type)
            job_type = known if known is not None and known.sealing and known.sealing.result else None
        result: R = json.loads(data) if job_type is None else job_type.load_result(data)
        return result


@dataclass(slots=True)
class _Batch:
    """What the coroutines of one turn of the loop want stored in one queue."""

    loop: asyncio.AbstractEventLoop
    jobs: list[NewJob] = field(default_factory=list)
    waiting: list[asyncio.Future[Admission]] = field(default_factory=list)


class Client(ClientActions, ClientOptions):
    """The producer's calls on one store, for one event loop.

    Calls that one turn of the loop makes for a queue travel together: a web server that enqueues for a hundred
    requests at once sends one script call.
    """

    def __init__(
        self,
        store: Store,
        namespace: str,
        *,
        owns_store: bool = True,
        finder: Callable[[], Client] | None = None,
        looked_at: set[QueueName] | None = None,
        middlewares: Sequence[EnqueueMiddleware] = (),
        queues: Callable[[], Sequence[str]] = tuple,
        partitions: Callable[[str], int | None] = lambda queue: None,
        types: Mapping[str, JobType[Any, Any]] | None = None,
    ) -> None:
        """The calls on `store`, which is opened by the first of them.

        owns_store    `close` closes the store too
        finder        the client of whichever loop runs, for references
        looked_at     queues of which it was said whether anybody serves them; an app's clients share it
        middlewares   around each enqueue; the first is outermost
        queues        whose events a subscriber gets that names none
        partitions    how many the code says that a queue has; None where it says nothing
        types         the job types that this process knows: what of theirs is sealed is shown to nobody in plain
        """
        self.store = partitioned(store, partitions)
        self.namespace = namespace
        self._owns_store = owns_store
        self.types = {} if types is None else types
        self._finder = finder or (lambda: self)
        self._opening: asyncio.Task[None] | None = None
        self._checked: dict[str, QueueName] = {}  # a name is checked once, not with each job
        self._batches: dict[QueueName, _Batch] = {}
        self._sending: set[asyncio.Future[Any]] = set()
        # A store that can sends without a task: a turn of the loop less, and no task to make.
        self._begin: Callable[[QueueName, Sequence[NewJob]], Begun | None] | None
        self._begin = getattr(self.store, "begin_enqueue", None)
        self._looked_at: set[QueueName] = set() if looked_at is None else looked_at
        self._middlewares = middlewares
        self._queues = queues
        self._hub: Hub | None = None
        self._told = False  # its readers have used the store

    @property
    def hub(self) -> Hub:
        """The subscribers of this loop."""
        if self._hub is None:
            self._told = True
            self._hub = Hub(lambda: self.store, self.name, self._queues)
        return self._hub

    async def stop_telling(self) -> list[Token]:
        """End the readers of events: those who had subscribed."""
        hub, self._hub = self._hub, None
        if hub is None:
            return []
        await hub.close()
        return hub.tokens

    async def told(self) -> None:
        """Return when subscribers have been told every event that there was at the call."""
        if self._hub is not None:
            await self._hub.told()

    def name(self, queue: str) -> QueueName:
        """`queue` in this client's namespace."""
        name = self._checked.get(queue)
        if name is None or name.namespace != self.namespace:
            name = self._checked[queue] = QueueName(self.namespace, queue)
        return name

    async def close(self) -> None:
        """End the readers of events, finish what is being sent, then close the store."""
        await self.stop_telling()
        while self._batches or self._sending:
            await asyncio.wait(self._sending) if self._sending else await asyncio.sleep(0)
        if self._owns_store:
            await self.store.close()
        self._opening, self._told = None, False

    async def enqueue(self, item: Item[R]) -> JobRef[R]:
        """Store one job. Raises QueueFull, QueueClosed, TooLarge, InvalidValue: then nothing was stored;
        OutcomeUnknown if the reply was lost."""
        if self._middlewares:
            item, admission = await around_one(self._middlewares, item, self._admit)
        else:
            admission = await self._admit(item)
        raise_refusal(admission, item.queue)
        queue = self.name(item.queue)
        if queue not in self._looked_at:
            await self._look_once(queue)
        ref = self.ref(item.queue, admission.id, admission=admission.outcome, job_type=item.job_type)
        return ref if admission.replicated is None else replace(ref, replicated=admission.replicated)

    async def _admit(self, item: Item[Any]) -> Admission:
        job = item.new_job(new_id)
        if len(job.envelope) > LARGEST_ENVELOPE:
            return _too_large(job)
        await self._open()
        return await self._join(self.name(item.queue), job)

    @overload
    async def enqueue_many(
        self, items: Iterable[Item[Any]], *, returning: Literal["admissions"] = "admissions"
    ) -> list[Admission]: ...
    @overload
    async def enqueue_many(self, items: Iterable[Item[Any]], *, returning: Literal["counts"]) -> Counts: ...
    async def enqueue_many(
        self, items: Iterable[Item[Any]], *, returning: Literal["admissions", "counts"] = "admissions"
    ) -> list[Admission] | Counts:
        """Store any number of jobs, in as few calls as the store can; a refusal is one item's, and raises nothing.

        items       an iterable that may make them one by one
        Returns     an admission per item, in order, or their counts
        Raises      OutcomeUnknown naming every id that was sent, in order
        """
        if returning not in ("admissions", "counts"):
            raise InvalidValue("returning", expected="admissions or counts", got=returning)
        await self._open()
        admissions: list[Admission] = []
        tally = dict.fromkeys(Admitted, 0)
        sent: list[tuple[QueueName, str]] = []
        for window in _windows(items):
            if self._middlewares:
                store = partial(self._admit_all, sent)
                admitted = await around_many(self._middlewares, window, store)
            else:
                admitted = await self._admit_all(sent, window)
            for admission in admitted:
                tally[admission.outcome] += 1
            if returning == "admissions":
                admissions += admitted
        for queue in {queue for queue, _ in sent}:
            if queue not in self._looked_at:
                await self._look_once(queue)
        if returning == "admissions":
            return admissions
        return Counts(
            accepted=tally[Admitted.ACCEPTED],
            duplicate=tally[Admitted.DUPLICATE],
            rejected=tally[Admitted.REJECTED],
        )

    async def _admit_all(
        self, sent: list[tuple[QueueName, str]], items: Sequence[Item[Any]]
    ) -> list[Admission]:
        """An admission per item; adds to `sent` what was sent. Raises OutcomeUnknown for all of that."""
        jobs = [(self.name(item.queue), item.new_job(new_id)) for item in items]
        sent += [(queue, job.id) for queue, job in jobs]
        try:
            return await self._store_window(jobs)
        except OutcomeUnknown as error:
            raise self._unknown(sent, str(error)) from error

    def ref(
        self,
        queue: str,
        job_id: str,
        *,
        admission: Admitted | None = None,
        job_type: JobType[Any, R] | None = None,
    ) -> JobRef[R]:
        """A job by its id, without asking anybody."""
        return JobRef(job_id, queue, admission, client=self._finder, job_type=job_type)

    async def view(self, queue: str, job_id: str) -> JobView | None:
        """The store's own view of a job."""
        await self._open()
        return await self.store.get(self.name(queue), job_id)

    def _sealing(self, type_: str) -> Sealing | None:
        job_type = self.types.get(type_)
        return None if job_type is None else job_type.sealing

    async def job(self, queue: str, job_id: str) -> Job | None:
        """A job as it stands, or None."""
        await self._open()
        view = await self.store.get(self.name(queue), job_id, digest=True)
        return None if view is None else job_of(view, queue, self._sealing(view.type))

    async def state_of(self, queue: str, job_id: str) -> State | None:
        """Where a job is, or None."""
        view = await self.view(queue, job_id)
        return None if view is None else view.state

    async def cancel(
        self, queue: str, job_id: str, *, force: bool = False
    ) -> Literal["cancelled", "flagged", "too_late", "missing"]:
        """See `JobRef.cancel`."""
        await self._open()
        answer = await self.store.cancel(self.name(queue), job_id, force=force)
        match answer:
            case "cancelled" | "flagged" | "too_late" | "missing":
                return answer
        raise UnknownReply("cancel", answer)

    async def jobs(self, queue: str, state: State, *, limit: int | None = None) -> AsyncIterator[Job]:
        """The jobs of a queue in one state, a page at a time; what moves meanwhile may be missed or seen twice."""
        await self._open()
        offset, page = 0, 200
        while limit is None or offset < limit:
            size = page if limit is None else min(page, limit - offset)
            views = await self.store.list(self.name(queue), state, offset=offset, limit=size)
            for view in views:
                yield job_of(view, queue, self._sealing(view.type))
            if not views:
                return
            offset += len(views)  # fewer than asked for where they are large

    async def stats(self, queue: str) -> QueueStats:
        """Counts per state, totals and flags of a queue."""
        await self._open()
        return await self.store.stats(self.name(queue))

    async def queues(self) -> list[str]:
        """The queues of this namespace that anybody ever used, by name."""
        await self._open()
        return sorted({name.queue for name in await self.store.queues(self.namespace)})

    async def events(
        self,
        queue: str,
        *,
        only: Iterable[str] | str | None = None,
        since: str = "$",
        job: str | None = None,
    ) -> AsyncGenerator[Event | Gap, None]:
        """What happens in a queue, or to one job of it, for ever. See `App.events`."""
        names = check_names(only)
        await self._open()
        name = self.name(queue)
        if job is not None:
            name = await home_of(self.store, name, job)
        reading = read_events(self.store, name, only=names, since=check_since(since), job=job)
        async with aclosing(reading) as events:
            async for event in events:
                yield event

    async def errors(self, queue: str, *, limit: int = 50) -> QueueErrors:
        """The last error reports of a queue, and its figures per job type."""
        await self._open()
        return await self.store.errors(self.name(queue), limit=limit)

    async def error_stats(self, *queues: str) -> ErrorStats:
        """Failed runs by queue and by job type, of all queues or of these."""
        names = queues or await self.queues()
        return sum_errors({queue: await self.errors(queue, limit=200) for queue in names})

    async def _open(self) -> None:
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.ensure_future(self.store.open())
        if not opening.done() or opening.cancelled() or opening.exception() is not None:
            try:
                await asyncio.shield(opening)
            except Exception:
                if self._opening is opening:
                    self._opening = None  # the next call tries again
                raise
        if self._hub is not None and self._hub.starting:
            await self._hub.ready()  # what this call does is told to those who subscribed before it

    def _join(self, queue: QueueName, job: NewJob) -> asyncio.Future[Admission]:
        batch = self._batches.get(queue)
        if batch is None:
            batch = self._batches[queue] = _Batch(asyncio.get_running_loop())
            batch.loop.call_soon(self._send, queue)
        reply: asyncio.Future[Admission] = batch.loop.create_future()
        batch.jobs.append(job)
        batch.waiting.append(reply)
        return reply

    def _send(self, queue: QueueName) -> None:
        batch = self._batches.pop(queue)
        begin = self._begin
        try:
            begun = None if begin is None else begin(queue, batch.jobs)
        except Exception as error:
            self._fail(queue, batch, error)
            return
        if begun is None:
            self._send_by_task(queue, batch)
        else:
            self._sending.add(begun.future)
            begun.future.add_done_callback(partial(self._answered, queue, batch, begun))

    def _send_by_task(self, queue: QueueName, batch: _Batch) -> None:
        task = batch.loop.create_task(self._store_batch(queue, batch))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    def _answered(self, queue: QueueName, batch: _Batch, begun: Begun, future: asyncio.Future[Any]) -> None:
        """Hand out what a batch was answered that was sent without a task."""
        self._sending.discard(future)
        try:
            admissions = begun.admissions()
        except NotRun:
            self._send_by_task(queue, batch)
        except Exception as error:
            self._fail(queue, batch, error)
        else:
            _hand_out(batch, admissions)

    def _fail(self, queue: QueueName, batch: _Batch, error: BaseException) -> None:
        for job, reply in zip(batch.jobs, batch.waiting, strict=True):
            if not reply.done():
                reply.set_exception(self._for_one(error, queue, job))

    async def _store_batch(self, queue: QueueName, batch: _Batch) -> None:
        """Store a batch; every outcome, good or bad, goes to the calls that wait for it."""
        try:
            admissions = await self.store.enqueue(queue, batch.jobs)
        except BaseException as error:
            self._fail(queue, batch, error)
            if not isinstance(error, Exception):
                raise
            return
        _hand_out(batch, admissions)

    def _for_one(self, error: BaseException, queue: QueueName, job: NewJob) -> BaseException:
        if isinstance(error, OutcomeUnknown):
            return self._unknown([(queue, job.id)], str(error))
        return error

    def _unknown(self, sent: Sequence[tuple[QueueName, str]], message: str) -> OutcomeUnknown:
        async def resolve() -> list[State | None]:
            views = [await self.store.get(queue, job_id) for queue, job_id in sent]
            return [None if view is None else view.state for view in views]

        return OutcomeUnknown(message, [job_id for _, job_id in sent], resolve)

    async def _store_window(self, jobs: Sequence[tuple[QueueName, NewJob]]) -> list[Admission]:
        """One admission per job, in order, though each queue is asked on its own."""
        places: dict[QueueName, list[int]] = {}
        found: dict[int, Admission] = {}
        for place, (queue, job) in enumerate(jobs):
            if len(job.envelope) > LARGEST_ENVELOPE:
                found[place] = _too_large(job)
            else:
                places.setdefault(queue, []).append(place)
        for queue, mine in places.items():
            admissions = await self.store.enqueue(queue, [jobs[place][1] for place in mine])
            found.update(zip(mine, admissions, strict=True))
        return [found[place] for place in range(len(jobs))]

    async def _look_once(self, queue: QueueName) -> None:
        """Warn, once for each queue, when nobody is there who would run its jobs. Never fails the enqueue."""
        self._looked_at.add(queue)
        try:
            sample = await self.store.sample(queue, horizon_ms=0)
        except (StoreUnavailable, OutcomeUnknown):
            self._looked_at.discard(queue)  # the next enqueue looks again
            return
        except DockworkError:
            return  # a login that may enqueue and not look
        if sample.owner is None and not sample.workers:
            log.warning(
                "queue %s of namespace %s has neither a Queue object nor workers; its jobs wait until it has",
                queue.queue,
                queue.namespace,
            )


def _hand_out(batch: _Batch, admissions: Sequence[Admission]) -> None:
    for admission, reply in zip(admissions, batch.waiting, strict=True):
        if not reply.done():
            reply.set_result(admission)


def new_id() -> str:
    """A fresh job id: a ULID of this machine's clock."""
    try:
        tail = _tails.pop()
    except IndexError:
        # Drawn and written in stock: a bulk enqueue makes 80,000 ids a second.
        drawn = letters(os.urandom(4096))
        _tails.extend([drawn[at : at + 16] for at in range(16, 4096, 16)])
        tail = drawn[:16]
    return time_letters(clock.now_ms()) + tail


#: The random ends of the next ids. A child of fork draws its own.
_tails: list[str] = []
os.register_at_fork(after_in_child=_tails.clear)


def raise_refusal(admission: Admission, queue: str) -> None:
    """Raise what a rejected admission means; an accepted or known job passes."""
    if admission.outcome is not Admitted.REJECTED:
        return
    match admission.reason:
        case "closed":
            raise QueueClosed(queue)
        case "payload":
            raise TooLarge(f"job {admission.id}", size=admission.current, limit=admission.limit)
        case "timeout":
            expected = f"at most {admission.limit} ms, the longest that queue {queue} allows"
            raise InvalidValue("timeout", expected=expected, got=admission.current)
        case "unique":
            raise UniqueConflict(queue, job_id=admission.holder)
        case "key_reuse":
            raise KeyReuse(queue, job_id=admission.holder)
        case "routing":
            expected = f"one key, as each key of a job names a partition of queue {queue}"
            raise RoutingConflict(f"keys of job {admission.id}", expected=expected, got="different ones")
        case "depth" | "bytes" as what:
            raise QueueFull(queue, what=what, current=admission.current, limit=admission.limit)
    raise UnknownReply("enqueue", admission.reason)


def job_of(view: JobView, queue: str, sealing: Sealing | None = None) -> Job:
    """The public form of a stored job; an envelope that cannot be read costs only its arguments.

    sealing    of its type: what should be sealed and is stored in plain is withheld
    """
    try:
        envelope = open_envelope(view.envelope)
        args, headers = json.loads(envelope.args), envelope.headers
    except Undecodable:
        args, headers = None, {}
    result, checkpoint = _maybe_json(view.result), _maybe_json(view.checkpoint)
    if sealing is not None:
        args = None if args is None else sealing.withhold(args)
        checkpoint = withheld(checkpoint)
        result = withheld(result) if sealing.result else result
    return Job(
        id=view.id,
        type=view.type,
        queue=queue,
        state=view.state,
        args=args,
        headers=headers,
        priority=view.priority,
        created_at=_instant(view.created_ms),
        due_at=_instant(view.due_ms or view.created_ms),
        scheduled_for=_maybe_instant(view.scheduled_for_ms),
        expires_at=_maybe_instant(view.expires_ms),
        started_at=_maybe_instant(view.started_ms),
        ended_at=_maybe_instant(view.ended_ms),
        attempts=view.attempts,
        deliveries=view.deliveries,
        interruptions=view.interruptions,
        owner=view.owner,
        reason=view.reason,
        result=result,
        result_dropped=view.result_dropped,
        progress=_maybe_json(view.progress),
        checkpoint=checkpoint,
        log=view.log,
        failures=view.failures,
        revision=view.revision,
        digest=view.digest,
    )


def _too_large(job: NewJob) -> Admission:
    size = len(job.envelope)
    return Admission(
        id=job.id, outcome=Admitted.REJECTED, reason="payload", current=size, limit=LARGEST_ENVELOPE
    )


def _windows(items: Iterable[Item[Any]]) -> Iterable[list[Item[Any]]]:
    window: list[Item[Any]] = []
    for item in items:
        window.append(item)
        if len(window) == WINDOW:
            yield window
            window = []
    if window:
        yield window


def _why(view: JobView) -> str:
    if view.failures:
        last = view.failures[-1]
        return f"{last.error_class}: {last.message}"
    return view.reason or "no reason was kept"


def _instant(ms: int) -> datetime:
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    except OverflowError:  # one such job must not make a list of them unreadable
        return (datetime.max if ms > 0 else datetime.min).replace(tzinfo=UTC)


def _maybe_instant(ms: int | None) -> datetime | None:
    return None if ms is None else _instant(ms)


def _maybe_json(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return None
