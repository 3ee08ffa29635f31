"""`ctx`: what a running handler may ask and say."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

from dockwork import clock
from dockwork.core.jobs import JobInfo, StopReason
from dockwork.core.keys import QueueName
from dockwork.errors import Interrupted, TooLarge
from dockwork.store.protocol import QueueConfig, Store, Verdict
from dockwork.store.texts import LOG_LINES, fit_progress
from dockwork.worker.encoding import encode_json
from dockwork.worker.policies import CHECKPOINT_CAP, PROGRESS_CAP
from dockwork.worker.reconnect import LOST, Link
from dockwork.worker.runs import Phase, Run

#: Seconds between two writes of progress and log lines of one job.
WRITE_EVERY = 0.2


class Home(Protocol):
    """What a context needs of the worker around it."""

    @property
    def store(self) -> Store: ...
    @property
    def name(self) -> QueueName: ...
    @property
    def config(self) -> QueueConfig: ...
    @property
    def link(self) -> Link: ...
    @property
    def drain_deadline(self) -> datetime | None:
        """When a drain ends; None while none is under way."""
        ...

    def lose(self, run: Run) -> None:
        """The lease turned out to be lost."""
        ...

    def own(self, work: Awaitable[None]) -> None:
        """Carry out `work` in the background; its error reaches the worker."""
        ...


class RunContext:
    """The context of one run. Its methods may be called from the handler's thread too, those of `sync` only there."""

    def __init__(self, run: Run, home: Home) -> None:
        self._run = run
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._began = clock.now()
        self._lock = threading.Lock()
        self._lines: deque[str] = deque(maxlen=LOG_LINES)
        self._progress: bytes | None = None
        self._written_at = 0.0
        self._scheduled = False
        self._writing: asyncio.Task[None] | None = None

    # Made when somebody asks: most handlers want one thing of a context, or none.

    @cached_property
    def sync(self) -> ThreadContext:
        return ThreadContext(self, self._loop)

    @cached_property
    def job(self) -> JobInfo:
        claim = self._run.claim
        tick = claim.scheduled_for_ms
        return JobInfo(
            id=claim.job_id,
            type=claim.type,
            queue=self._home.name.queue,
            attempt=claim.attempts + 1,
            delivery=claim.deliveries,
            headers=dict(self._run.headers),
            scheduled_for=None if tick is None else datetime.fromtimestamp(tick / 1000, UTC),
        )

    @property
    def deadline(self) -> datetime:
        drain = self._home.drain_deadline
        own = self._began + timedelta(seconds=self._run.timeout_s)
        return own if drain is None else min(own, drain)

    @property
    def should_stop(self) -> bool:
        return self.stop_reason is not None

    @property
    def stop_reason(self) -> StopReason | None:
        if self._run.stop_reason is not None:
            return self._run.stop_reason
        return None if self._home.drain_deadline is None else StopReason.DRAIN

    @property
    def saved(self) -> Any:
        guard = self._run.guard
        checkpoint = self._run.claim.checkpoint if guard is None else guard.saved
        return None if checkpoint is None else json.loads(checkpoint)

    async def progress(self, value: Any) -> None:
        self.note_progress(value)

    async def checkpoint(self, value: Any) -> None:
        data = encode_json(value)
        if self._run.guard is not None:
            data = self._run.guard.seal_checkpoint(data)
        most = self._home.config.max_checkpoint or CHECKPOINT_CAP
        if len(data) > most:
            raise TooLarge("checkpoint", size=len(data), limit=most)
        verdict = await self._insist(
            lambda: self._home.store.checkpoint(self._home.name, self._run.lease, data)
        )
        if verdict is Verdict.LOST:
            self._home.lose(self._run)
            raise Interrupted("the lease was lost; nothing was saved")
        if self._home.drain_deadline is not None:
            raise Interrupted("the worker drains; the next run goes on from here")

    def log(self, message: str, **fields: Any) -> None:
        line = {"at": clock.now().isoformat(timespec="milliseconds"), "msg": message, **fields}
        data = encode_json(line, lenient=True)
        text = (data if self._run.guard is None else self._run.guard.json(data)).decode()
        with self._lock:
            self._lines.append(text)
        self._schedule()

    def note_progress(self, value: Any) -> None:
        """Remember `value`; from any thread. The write follows, or the settle carries it."""
        data = encode_json(value)
        if self._run.guard is not None:
            data = self._run.guard.json(data)
        data = fit_progress(data, self._home.config.max_progress or PROGRESS_CAP)
        with self._lock:
            self._progress = data
        self._schedule()

    def take_progress(self) -> bytes | None:
        """The last value that was not written yet: the settle carries it."""
        with self._lock:
            value, self._progress = self._progress, None
        return value

    @property
    def has_lines(self) -> bool:
        return bool(self._lines) or self._writing is not None

    async def flush_lines(self) -> None:
        """Write what the log still holds, within a second: the lease ends with the settle that follows."""
        if self._run.phase is not Phase.RUNNING:
            return  # put back or given up: nobody would take it
        try:
            async with asyncio.timeout(1):
                if self._writing is not None:
                    await asyncio.wait([self._writing])
                await self._write_lines()
        except (TimeoutError, *LOST):
            return

    def _schedule(self) -> None:
        with self._lock:
            if self._scheduled:
                return
            self._scheduled = True
        self._loop.call_soon_threadsafe(self._plan_write)

    def _plan_write(self) -> None:
        due_in = self._written_at + WRITE_EVERY - self._loop.time()
        if due_in > 0:
            self._loop.call_later(due_in, self._start_write)
        else:
            self._start_write()

    def _start_write(self) -> None:
        with self._lock:
            self._scheduled = False
        if self._run.over or self._run.phase is not Phase.RUNNING:
            return
        if self._writing is not None:  # a slow Redis: one write at a time, the newest value next
            self._writing.add_done_callback(lambda _: self._schedule())
            return
        self._written_at = self._loop.time()
        self._writing = self._loop.create_task(self._write(), name="write-progress")
        self._writing.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            assert error is not None
            self._home.own(_raise(error))

    async def _write(self) -> None:
        try:
            value = self.take_progress()
            if value is not None:
                await self._write_progress(value)
            await self._write_lines()
        except LOST:
            # The newest value is kept for the settle; lines that were lost are not worth a retry.
            return

    async def _write_progress(self, value: bytes) -> None:
        try:
            verdict = await self._home.store.progress(self._home.name, self._run.lease, value)
        except LOST:
            with self._lock:
                self._progress = self._progress or value
            raise
        if verdict is Verdict.LOST and not self._run.over:
            self._home.lose(self._run)

    async def _write_lines(self) -> None:
        with self._lock:
            lines = list(self._lines)
            self._lines.clear()
        if lines:
            await self._home.store.log(self._home.name, self._run.lease, lines)

    async def _insist(self, call: Callable[[], Awaitable[Verdict]]) -> Verdict:
        while True:
            try:
                verdict = await call()
            except LOST as error:
                await self._home.link.pause(error)
            else:
                self._home.link.answered()
                return verdict


class ThreadContext:
    """The waiting calls of a context, for a handler that runs in a thread."""

    def __init__(self, context: RunContext, loop: asyncio.AbstractEventLoop) -> None:
        self._context = context
        self._loop = loop

    def progress(self, value: Any) -> None:
        self._context.note_progress(value)

    def checkpoint(self, value: Any) -> None:
        asyncio.run_coroutine_threadsafe(self._context.checkpoint(value), self._loop).result()


async def _raise(error: BaseException) -> None:
    raise error
