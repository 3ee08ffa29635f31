"""The blocking twin of the async calls: one thread with a loop and a connection of its own, for any thread.

It works under a running event loop too, because it never touches that loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, Unpack, overload

from dockwork.app_actions import SyncActions
from dockwork.client import Client, Counts, Job, JobRef
from dockwork.core.durations import Span
from dockwork.core.states import State
from dockwork.events import Callback, Gap, Token, check_names, check_queues
from dockwork.queue_options import SyncOptions
from dockwork.registry import CallOptions, Item, ItemOptions, Registry, item_by_name
from dockwork.reports import ErrorStats
from dockwork.resealing import ResealReport, key_counts, reseal_queues
from dockwork.schedules import SyncSchedules
from dockwork.store.protocol import Acted, Admission, Admitted, ErrorReport, Event, QueueStats

T = TypeVar("T")
R = TypeVar("R")

_END = object()


class Portal:
    """A thread with an event loop, started by the first call; calls from any thread run there one by one or together.

    After a fork the child starts its own: a thread does not survive a fork.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The thread's loop, running."""
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._start()
            assert self._loop is not None
            return self._loop

    def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of `call`, awaited on the portal's loop; blocks this thread."""
        loop = self.loop
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call on its own loop would wait for itself; await the async twin")
        future = asyncio.run_coroutine_threadsafe(_awaited(call), loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt in this thread ends the wait over there too
            raise

    @property
    def is_running(self) -> bool:
        """Whether a call was made and the thread lives."""
        return self._loop is not None and self._pid == os.getpid()

    def stop(self) -> None:
        """End the thread; the next call starts another."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _start(self) -> None:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name=self._name, daemon=True)
        thread.start()
        self._loop, self._thread, self._pid = loop, thread, os.getpid()


@dataclass(frozen=True)
class SyncJobRef(Generic[R]):
    """The blocking twin of `JobRef`."""

    ref: JobRef[R]
    portal: Portal

    @property
    def id(self) -> str:
        return self.ref.id

    @property
    def queue(self) -> str:
        return self.ref.queue

    @property
    def admission(self) -> Admitted | None:
        return self.ref.admission

    @property
    def replicated(self) -> bool | None:
        """See `JobRef.replicated`."""
        return self.ref.replicated

    def state(self) -> State | None:
        return self.portal.run(self.ref.state)

    def info(self) -> Job | None:
        return self.portal.run(self.ref.info)

    def events(self, *, only: Iterable[str] | str | None = None, since: str = "$") -> Iterator[Event | Gap]:
        names = check_names(only)
        return iterate(self.portal, lambda: self.ref.events(only=names, since=since))

    def cancel(self, *, force: bool = False) -> Literal["cancelled", "flagged", "too_late", "missing"]:
        return self.portal.run(lambda: self.ref.cancel(force=force))

    def redrive(self, digest: str) -> Acted:
        return self.portal.run(lambda: self.ref.redrive(digest))

    def retry(self) -> Acted:
        return self.portal.run(self.ref.retry)

    def promote(self) -> Acted:
        return self.portal.run(self.ref.promote)

    def edit(
        self,
        revision: int,
        *,
        args: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: Span | None = None,
        at: datetime | None = None,
    ) -> Acted:
        return self.portal.run(
            lambda: self.ref.edit(revision, args=args, priority=priority, delay=delay, at=at)
        )

    def reprioritise(self, revision: int, priority: int) -> Acted:
        return self.portal.run(lambda: self.ref.reprioritise(revision, priority))

    def result(self, timeout: float | None = None) -> R:
        return self.portal.run(lambda: self.ref.result(timeout))


class SyncCalls(SyncActions, SyncOptions, SyncSchedules):
    """The blocking twin of an app's calls."""

    def __init__(
        self,
        portal: Portal,
        client: Callable[[], Client],
        registry: Registry,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._portal = portal
        self._client = client
        self._registry = registry
        self._close = close

    def _at_client(self) -> Client:
        return self._client()

    def submit(self, item: Item[R]) -> SyncJobRef[R]:
        """Store one item."""

        async def call() -> JobRef[R]:
            return await self._client().enqueue(item)

        return SyncJobRef(self._portal.run(call), self._portal)

    def enqueue(
        self,
        type_: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        queue: str,
        **options: Unpack[ItemOptions],
    ) -> SyncJobRef[Any]:
        """Store a job of a type by its name."""
        said = CallOptions().and_(**options)
        item = item_by_name(type_, arguments or {}, queue=queue, registry=self._registry, options=said)
        return self.submit(item)

    @overload
    def enqueue_many(
        self, items: Iterable[Item[Any]], *, returning: Literal["admissions"] = "admissions"
    ) -> list[Admission]: ...
    @overload
    def enqueue_many(self, items: Iterable[Item[Any]], *, returning: Literal["counts"]) -> Counts: ...
    def enqueue_many(
        self, items: Iterable[Item[Any]], *, returning: Literal["admissions", "counts"] = "admissions"
    ) -> list[Admission] | Counts:
        """Store any number of jobs; see `Client.enqueue_many`."""
        made = list(items)  # in this thread: what makes them may hold a connection that knows no other

        async def call() -> list[Admission] | Counts:
            client = self._client()
            if returning == "counts":
                return await client.enqueue_many(made, returning="counts")
            return await client.enqueue_many(made, returning=returning)

        return self._portal.run(call)

    def ref(self, queue: str, job_id: str) -> SyncJobRef[Any]:
        """A job by its id."""

        return SyncJobRef(JobRef(job_id, queue, client=self._client), self._portal)

    def jobs(self, queue: str, *, state: State | str, limit: int | None = None) -> Iterator[Job]:
        """The jobs of a queue in one state, fetched as they are read."""
        wanted = State(state)
        return iterate(self._portal, lambda: self._client().jobs(queue, wanted, limit=limit))

    def stats(self, queue: str) -> QueueStats:
        """Counts per state, totals and flags of a queue."""

        async def call() -> QueueStats:
            return await self._client().stats(queue)

        return self._portal.run(call)

    def queues(self) -> list[str]:
        """The queues of this namespace."""

        async def call() -> list[str]:
            return await self._client().queues()

        return self._portal.run(call)

    def keys(self, queue: str | None = None) -> dict[str, int]:
        """Jobs of which something is sealed, per id of the key; see `App.keys`."""

        async def call() -> dict[str, int]:
            return await key_counts(self._client(), queue)

        return self._portal.run(call)

    def reseal(
        self, queue: str | None = None, *, told: Callable[[ResealReport], None] = lambda report: None
    ) -> ResealReport:
        """Seal waiting and kept jobs anew; see `App.reseal`."""

        async def call() -> ResealReport:
            return await reseal_queues(self._client(), self._registry, queue, told)

        return self._portal.run(call)

    def errors(self, queue: str, *, limit: int = 50) -> list[ErrorReport]:
        """The last failed runs of a queue, the newest first."""

        async def call() -> list[ErrorReport]:
            return list((await self._client().errors(queue, limit=limit)).recent)

        return self._portal.run(call)

    def error_stats(self, *queues: str) -> ErrorStats:
        """Failed runs by queue and by job type, of all queues or of these."""

        async def call() -> ErrorStats:
            return await self._client().error_stats(*queues)

        return self._portal.run(call)

    def events(
        self, queue: str, *, only: Iterable[str] | str | None = None, since: str = "$", job: str | None = None
    ) -> Iterator[Event | Gap]:
        """What happens in a queue, for ever; each step waits for the next event. See `App.events`."""
        names = check_names(only)
        return iterate(self._portal, lambda: self._client().events(queue, only=names, since=since, job=job))

    def on(self, name: str, fn: Callback, *, queues: Iterable[str] | None = None) -> Token:
        """Call ``fn(event)`` for each event of that name, on the twin's own thread."""
        return self._subscribe(Token(fn, check_names(name), check_queues(queues)))

    def on_all(self, fn: Callback, *, queues: Iterable[str] | None = None) -> Token:
        """Call ``fn(event)`` for each event from now on, on the twin's own thread, until `off`."""
        return self._subscribe(Token(fn, None, check_queues(queues)))

    def off(self, token: Token) -> None:
        """Tell a subscriber nothing more."""
        token.cancel()

    def _subscribe(self, token: Token) -> Token:
        async def call() -> None:
            self._client().hub.add(token)
            await token.ready()

        self._portal.run(call)
        return token

    def close(self) -> None:
        """Close the connection and end the thread; the next call starts again."""

        if self._portal.is_running:
            self._portal.run(self._close)
            self._portal.stop()


def iterate(portal: Portal, start: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
    """What an async iterator gives, fetched on the portal's loop as it is read."""

    async def begin() -> AsyncIterator[T]:
        return start()

    source = portal.run(begin)

    async def step() -> Any:
        return await anext(source, _END)

    async def end() -> None:
        if isinstance(source, AsyncGenerator):
            await source.aclose()

    try:
        while (value := portal.run(step)) is not _END:
            yield value
    finally:
        if portal.is_running:
            portal.run(end)


async def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
