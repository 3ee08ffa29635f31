"""The worker's own tasks: a handler that cancels whatever it finds on the event loop does not end the worker.

Handlers share the loop with the worker, and `asyncio.all_tasks` shows them all tasks. One that cancels them
("clean up before the end") fails with an error that says so; what it had cancelled by then goes on or back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from dockwork.errors import DockworkError, Interrupted
from dockwork.worker.runs import CURRENT, Run

T = TypeVar("T")

#: What a handler cancelled besides the worker's tasks hears of it within so many turns of the loop.
TURNS = 16


class NotYours(DockworkError, RuntimeError):
    """A handler tried to end what is the worker's."""


class _Meddling:
    """A handler has just tried to cancel a task of the worker's on this loop."""

    def __init__(self, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self.run = run
        self._loop = loop
        self._turns = TURNS
        _MEDDLING[loop] = self
        loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turns -= 1
        if self._turns:
            self._loop.call_soon(self._turn)
        elif _MEDDLING.get(self._loop) is self:
            del _MEDDLING[self._loop]


_MEDDLING: dict[asyncio.AbstractEventLoop, _Meddling] = {}


class Kept(asyncio.Task[Any]):
    """A task that only the worker, and who runs it, can cancel."""

    def __init__(self, work: Coroutine[Any, Any, Any], **more: Any) -> None:
        self._maker = CURRENT.get()
        super().__init__(work, **more)

    def cancel(self, msg: Any | None = None) -> bool:
        run = _handler_that_calls()
        # In a test a handler's enqueue may run the next job by itself, with a lane that is its own.
        if run is None or run is self._maker:
            return super().cancel(msg)
        if asyncio._get_running_loop() is self.get_loop():
            _Meddling(run, self.get_loop())
        raise NotYours("a handler may cancel the tasks that it made, not those of its worker")


def keep(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """`work` as a task of the worker's."""
    task: asyncio.Task[T] = Kept(work, loop=asyncio.get_running_loop(), name=name)
    return task


def was_meddled(run: Run | None = None) -> bool:
    """Whether a cancellation that comes now is some handler's doing, and not that of `run` itself."""
    meddling = _MEDDLING.get(asyncio.get_running_loop())
    return meddling is not None and (run is None or meddling.run is not run)


def spare(error: BaseException, run: Run) -> BaseException:
    """`error`, or for a run that another's handler cancelled, what puts its job back uncharged."""
    if isinstance(error, asyncio.CancelledError) and run.stop_reason is None and was_meddled(run):
        return Interrupted("another job's handler cancelled it")
    return error


async def outlast(future: asyncio.Future[T]) -> T:
    """The result of `future`, though a handler cancels the task that waits for it."""
    while True:
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if future.done() or task is None or not was_meddled():
                raise
            task.uncancel()


def _handler_that_calls() -> Run | None:
    run = CURRENT.get()
    if run is None:
        return None
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return run  # in a thread
    # Tasks and timers of ours may begin in a handler's context; its own code runs in a task that is not ours.
    return None if task is None or isinstance(task, Kept) else run
