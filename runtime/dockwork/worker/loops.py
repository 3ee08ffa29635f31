"""The event loop of a process or thread that does nothing but run a worker: handlers cannot end it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any

from dockwork.worker.kept import NotYours, keep
from dockwork.worker.logs import get_logger
from dockwork.worker.runs import CURRENT

log = get_logger("loop")

#: The exit code of a defect.
INTERNAL = 70


def run_to_end(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """The exit code of `work`. Not `asyncio.run`: it waits for tasks and threads that may never end."""
    loop = _guarded()()
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


@cache
def _guarded() -> type[asyncio.AbstractEventLoop]:
    """The fastest loop there is, which a handler cannot stop."""
    try:
        import uvloop

        base: Any = uvloop.Loop
    except ImportError:
        base = asyncio.SelectorEventLoop

    class WorkerLoop(base):  # type: ignore[misc]
        def stop(self) -> None:
            if CURRENT.get() is not None:
                raise NotYours("a handler may not stop the event loop of its worker")
            super().stop()

    return WorkerLoop
