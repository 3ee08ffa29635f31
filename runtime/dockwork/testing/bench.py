"""`Bench`: an app's queues in memory, with a clock that the test moves. `App.testing` makes one."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from pydantic_core import to_json

from dockwork.client import Job, job_of
from dockwork.core.codec import open_envelope
from dockwork.core.durations import Span, to_span
from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.errors import DockworkError, Undecodable, require
from dockwork.registry import JobType, Registry
from dockwork.schedules import put_schedule
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import Admission, Admitted, NewJob, Ticked
from dockwork.testing.runner import Pass
from dockwork.worker.executor import Middleware

#: Inline: an enqueue runs the job before it returns. Manual: jobs wait for `Bench.run_all`.
Mode = Literal["manual", "inline"]

#: Ticks enqueue while the store is locked: their jobs run later.
_IN_TICK: ContextVar[bool] = ContextVar("dockwork_testing_in_tick", default=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Enqueued:
    """A job that was accepted while the bench was open. `args` are its arguments by name, as JSON has them."""

    id: str
    type: str
    queue: str
    args: Mapping[str, Any]
    headers: Mapping[str, str]


class _BenchStore(MemoryStore):
    """Remembers what was enqueued, and runs it at once if the bench says so."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self._bench = bench

    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> list[Admission]:
        admissions = await super().enqueue(queue, jobs)
        for job, admission in zip(jobs, admissions, strict=True):
            if admission.outcome is Admitted.ACCEPTED:
                self._bench._note(queue, job)
        if self._bench.mode == "inline" and not _IN_TICK.get():
            await self._bench.run_due()
        return admissions

    async def partitions(self, queue: QueueName, wanted: int | None = None) -> int:
        return 1  # a test sees its queue as one

    async def tick(self, queue: QueueName, uid: str | None = None, *, by: str = "worker") -> list[Ticked]:
        token = _IN_TICK.set(True)
        try:
            return await super().tick(queue, uid, by=by)
        finally:
            _IN_TICK.reset(token)


class Bench:
    """What a test does with the jobs of its app. Time stands still until `advance`.

    registry, middlewares    the app's
    namespace                of its queues
    enqueued                 what was accepted, the first first, whatever became of it
    """

    def __init__(
        self, registry: Registry, namespace: str, middlewares: Callable[[], Sequence[Middleware]], mode: Mode
    ) -> None:
        require(mode in ("manual", "inline"), "mode", expected="inline or manual", got=mode)
        self.mode = mode
        self.store: MemoryStore = _BenchStore(self)
        self.enqueued: list[Enqueued] = []
        self._registry = registry
        self._namespace = namespace
        self._middlewares = middlewares
        self._envelopes: dict[tuple[str, str], bytes] = {}
        self.tell: Callable[[], Awaitable[None]] | None = None  #: tells the app's subscribers

    async def open(self) -> None:
        """Write the queues' options, as a worker of the app does at its start."""
        for queue in self._registry.all_queues():
            config = self._registry.config_of(queue)
            if config is not None:
                await self.store.configure(self._name(queue), config, None)
        for queue, options in self._registry.event_options.items():
            await self.store.set_events(self._name(queue), options)

    async def declare(self) -> None:
        """Write the schedules that code declares, as a worker does; they begin now, on the test's clock."""
        for declared in self._registry.schedules.values():
            await put_schedule(self.store, self._namespace, declared)

    @property
    def now(self) -> datetime:
        """The time of the jobs."""
        return self.store.now()

    # --- looking

    def jobs(self, queue: str, *, state: State | str | None = None) -> list[Job]:
        """The jobs of a queue, the first enqueued first; those that completed still show their arguments."""
        views = self.store.snapshot(self._name(queue))
        whole = [
            replace(view, envelope=view.envelope or self._envelopes.get((queue, view.id), b""))
            for view in views
        ]
        jobs = [(view, job_of(view, queue)) for view in whole if state is None or view.state == State(state)]
        return [replace(job, args=self._plain(view.envelope, job.args)) for view, job in jobs]

    def _plain(self, data: bytes, args: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """The arguments of a job, opened where they are sealed: a test compares what it enqueued."""
        if not args:
            return args
        job_type = self._registry.get(open_envelope(data).type)
        if job_type is None or job_type.sealing is None:
            return args
        try:
            opened: Mapping[str, Any] = json.loads(job_type.open_sealed(data)[1].args)
        except DockworkError:
            return args
        return opened

    def assert_enqueued(self, job_type: JobType[Any, Any] | str, /, **arguments: Any) -> str:
        """The id of the first job of this type that was enqueued with these arguments; others may differ.

        Raises AssertionError naming what was enqueued. It counts jobs that have run, too.
        """
        name, offered, fitting = self._find(job_type, arguments)
        if fitting:
            return fitting[0].id
        found = "; ".join(json.dumps(one.args) for one in offered) or "none"
        raise AssertionError(f"no job {name} with {_json(arguments)}; there are: {found}")

    def assert_not_enqueued(self, job_type: JobType[Any, Any] | str, /, **arguments: Any) -> None:
        """Raises AssertionError if `assert_enqueued` would find a job."""
        name, _, fitting = self._find(job_type, arguments)
        if fitting:
            found = "; ".join(json.dumps(one.args) for one in fitting)
            raise AssertionError(f"a job {name} with {_json(arguments)} was enqueued: {found}")

    def _find(
        self, job_type: JobType[Any, Any] | str, arguments: Mapping[str, Any]
    ) -> tuple[str, list[Enqueued], list[Enqueued]]:
        """The type's name, its jobs, and those of them with these arguments."""
        name = job_type if isinstance(job_type, str) else job_type.name
        wanted = json.loads(_json(arguments))
        offered = [one for one in self.enqueued if one.type == name]
        fitting = [
            one
            for one in offered
            if all(field in one.args and one.args[field] == value for field, value in wanted.items())
        ]
        return name, offered, fitting

    # --- doing

    async def advance(self, span: Span) -> None:
        """Let so much time pass at once: seconds or a timedelta. Delays end, jobs expire, old ones are deleted.

        Inline, what is due then runs before it returns.
        """
        self.store.advance(to_span(span, "span").total_seconds())
        for name in self.store.names():
            await self.store.tick(name)
            await self.store.promote(name)
            await self.store.expire(name)
            await self.store.trim(name)
        if self.mode == "inline":
            await self.run_due()
        await self.told()

    async def told(self) -> None:
        """Return when those who subscribed by ``app.on`` know all that happened; `run_all` and `advance` see to it."""
        if self.tell is not None:
            await self.tell()

    async def run_all(self, *, most: int = 100_000) -> list[Job]:
        """Run what is due in all queues, and what that enqueues, until nothing is due.

        Returns    a job per run, in order, as each stands at the end: one that failed is ``delayed`` or ``dead``,
                   with its failures; completed jobs that are not kept are left out
        Raises     AssertionError after `most` runs
        """
        ran = await self.run_due(most=most)
        await self.told()
        return ran

    async def run_due(self, *, most: int = 100_000) -> list[Job]:
        """`run_all`, without waiting for subscribers."""
        ran: list[tuple[str, str]] = []
        while found := await self._round(most - len(ran)):
            ran += found
            if len(ran) >= most:
                raise AssertionError(f"{len(ran)} runs, and no end: does a job enqueue itself?")
        known = {queue: {job.id: job for job in self.jobs(queue)} for queue, _ in ran}
        return [known[queue][job_id] for queue, job_id in ran if job_id in known[queue]]

    async def _round(self, most: int) -> list[tuple[str, str]]:
        """A pass over each queue: (queue, id) of each run."""
        ran: list[tuple[str, str]] = []
        for name in self.store.names():
            one = Pass(self.store, self._registry, self._middlewares())
            ran += [(name.queue, job_id) for job_id in await one.run(name, most)]
        return ran

    def _note(self, queue: QueueName, job: NewJob) -> None:
        self._envelopes[queue.queue, job.id] = job.envelope
        try:
            envelope = open_envelope(job.envelope)
        except Undecodable:
            return
        self.enqueued.append(
            Enqueued(
                id=job.id,
                type=envelope.type,
                queue=queue.queue,
                args=self._plain(job.envelope, json.loads(envelope.args)) or {},
                headers=envelope.headers,
            )
        )

    def _name(self, queue: str) -> QueueName:
        return QueueName(self._namespace, queue)


def _json(arguments: Mapping[str, Any]) -> str:
    """Arguments as the store has them, a value alone."""
    return json.dumps(json.loads(to_json(dict(arguments))))
