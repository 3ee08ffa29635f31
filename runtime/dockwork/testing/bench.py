"""`Bench`: an app's queues in memory, with a clock that only the test moves and workers that only the test starts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

from pydantic_core import to_json

from dockwork.client import Job, job_of
from dockwork.core.codec import open_envelope
from dockwork.core.durations import Span, to_span
from dockwork.core.keys import QueueName
from dockwork.core.states import RUNNING, State
from dockwork.errors import InvalidValue
from dockwork.registry import JobType
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import Admission, Admitted, NewJob
from dockwork.worker.worker import Worker

T = TypeVar("T")

#: Inline: an enqueue runs the job before it returns. Manual: jobs wait for `Bench.run_all`.
Mode = Literal["inline", "manual"]

#: A worker of the app for these queues (queue -> slots).
MakeWorker = Callable[[Mapping[str, int]], Worker]

_PRESENT = RUNNING | {State.READY, State.PRIORITIZED}
#: A running job is found under either of its states.
_LISTED = tuple(state for state in State if state not in (State.PROCESSING, State.PAUSED))
_LOOK_S = 0.002
_PAGE = 500


class BenchStore(MemoryStore):
    """A store in memory that remembers what was accepted, and tells of each enqueue after it was carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[NewJob] = []
        self.enqueued: Callable[[], Coroutine[Any, Any, None]] | None = None

    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> list[Admission]:
        admissions = await super().enqueue(queue, jobs)
        said = zip(jobs, admissions, strict=True)
        self.accepted += [job for job, admission in said if admission.outcome is Admitted.ACCEPTED]
        if self.enqueued is not None:
            await self.enqueued()
        return admissions


class Bench:
    """What a test asks and does. Jobs run in a real worker, one at a time per queue."""

    def __init__(self, store: BenchStore, namespace: str, make_worker: MakeWorker, mode: Mode) -> None:
        if mode not in ("inline", "manual"):
            raise InvalidValue("mode", expected="inline or manual", got=mode)
        self.store = store
        self._namespace = namespace
        self._make_worker = make_worker
        self._mode = mode
        self._working = False
        if mode == "inline":
            store.enqueued = self.run_all

    @property
    def now(self) -> datetime:
        """The store's time, which stands still until `advance`."""
        return self.store.now()

    def jobs(self, queue: str, *, state: State | str | None = None) -> list[Job]:
        """The jobs of a queue, or those in one state."""
        states = _LISTED if state is None else (State(state),)
        return [job for each in states for job in self._in_state(queue, each)]

    def assert_enqueued(self, job_type: JobType[Any, Any], /, **arguments: Any) -> str:
        """The id of the first job of this type that was enqueued with these arguments; others may differ.

        Raises AssertionError naming what was enqueued. It counts jobs that have run, too.
        """
        wanted = json.loads(to_json(arguments))
        offered = [job for job in self.store.accepted if job.type == job_type.name]
        there = [(job.id, json.loads(open_envelope(job.envelope).args)) for job in offered]
        for job_id, args in there:
            if all(name in args and args[name] == value for name, value in wanted.items()):
                return job_id
        found = "; ".join(json.dumps(args) for _, args in there) or "none"
        raise AssertionError(f"no job {job_type.name} with {json.dumps(wanted)}; there are: {found}")

    async def advance(self, span: Span) -> None:
        """Let so much time pass at once: seconds or a timedelta. Inline, what is due then runs before it returns."""
        self.store.advance(to_span(span, "span").total_seconds())
        if self._mode == "inline":
            await self.run_all()

    async def run_all(self) -> None:
        """Run what may run now, and what that enqueues, until nothing is left. Retries wait for `advance`."""
        if self._working:
            return  # a handler's own enqueue: the worker that runs it takes that job too
        self._working = True
        try:
            await self._promote()
            while served := {queue: 1 for queue in self._queues() if self._has_work(queue)}:
                await self._serve(served)
        finally:
            self._working = False

    async def _serve(self, served: Mapping[str, int]) -> None:
        worker = self._make_worker(served)
        running = asyncio.ensure_future(worker.run())
        try:
            # Looked at, not told: work also ends by expiry, a cancel, or a type that nobody knows.
            while any(self._has_work(queue) for queue in served) and not running.done():  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
        finally:
            await worker.shutdown()
            await running

    def _in_state(self, queue: str, state: State) -> list[Job]:
        name, found = QueueName(self._namespace, queue), list[Job]()
        while len(page := _at_once(self.store.list(name, state, offset=len(found), limit=_PAGE))) == _PAGE:
            found += [job_of(view, queue) for view in page]
        return found + [job_of(view, queue) for view in page]

    async def _promote(self) -> None:
        for queue in self._queues():
            await self.store.promote(QueueName(self._namespace, queue))

    def _queues(self) -> list[str]:
        return sorted(name.queue for name in _at_once(self.store.queues(self._namespace)))

    def _has_work(self, queue: str) -> bool:
        stats = _at_once(self.store.stats(QueueName(self._namespace, queue)))
        return not stats.paused and any(stats.counts.get(state, 0) for state in _PRESENT)


def _at_once(call: Coroutine[Any, Any, T]) -> T:
    """The result of a call that never waits: those of a store in memory that only read."""
    try:
        call.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise RuntimeError("the store waited for something")
