"""The event loop of a process or thread that does nothing but run a worker: handlers cannot end it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from dockwork.worker.kept import NotYours, keep
from dockwork.worker.logs import get_logger
from dockwork.worker.runs import CURRENT

log = get_logger("loop")

#: The exit code of a defect.
INTERNAL = 70


#: Objects made, less those gone, until the youngest are looked through; Python's own figure is 700.
YOUNG_OBJECTS = 5_000


def spare_collector() -> None:
    """For a process that runs a worker and nothing else: what was imported so far is never looked through again for
    garbage, and what jobs make less often. Before, that was a tenth of what a job that does nothing took (measured).
    A figure that somebody else set stays."""
    gc.collect()
    gc.freeze()
    if gc.get_threshold()[0] == 700:
        gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])


def run_to_end(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """The exit code of `work`. Not `asyncio.run`: it waits for tasks and threads that may never end."""
    loop = _guarded(_fastest())()
    asyncio.set_event_loop(loop)

    async def begin() -> asyncio.Task[int]:
        return keep(work(), name="worker")

    main = loop.run_until_complete(begin())
    while True:
        try:
            return loop.run_until_complete(main)
        except SystemExit as ended:
            if main.done():
                return ended.code if isinstance(ended.code, int) else INTERNAL
            log.error("exit_ignored", message="a task of a handler called sys.exit; the worker goes on")
        except Exception as error:
            if main.done():
                log.error("worker_failed", exc_info=error)
                return INTERNAL
            log.error("stop_ignored", message="something stopped the event loop; the worker goes on")


def guarded_loop() -> asyncio.AbstractEventLoop:
    """A loop of the standard library that a handler cannot stop."""
    base: Any = asyncio.SelectorEventLoop
    return _guarded(base)()


def _fastest() -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.SelectorEventLoop
    return uvloop.Loop


@cache
def _guarded(base: Any) -> type[asyncio.AbstractEventLoop]:
    class WorkerLoop(base):  # type: ignore[misc]
        def stop(self) -> None:
            if CURRENT.get() is not None:
                raise NotYours("a handler may not stop the event loop of its worker")
            super().stop()

    return WorkerLoop
