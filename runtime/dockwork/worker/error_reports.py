"""Tells an app's `on_error` functions of failed runs: one report after the other, beside the runs."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from dockwork.store.protocol import ErrorReport
from dockwork.worker.logs import get_logger

log = get_logger("errors")

#: Reports that wait to be told; a queue whose every run fails must not fill the memory of its worker.
MOST_WAITING = 1000


class ErrorReports:
    """The reports of one lane.

    reporters    read at each report, so one that is added later hears of what comes then
    own          carries out work in the background
    """

    def __init__(
        self, reporters: Sequence[Callable[[ErrorReport], Any]], own: Callable[[Awaitable[None]], None]
    ) -> None:
        self._reporters = reporters
        self._own = own
        self._waiting: deque[ErrorReport] = deque()
        self._dropped = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, report: ErrorReport) -> None:
        """Tell `report`, soon."""
        if not self._reporters:
            return
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._waiting.append(report)
        if self._idle.is_set():
            self._idle.clear()
            self._own(self._tell())

    async def last(self, seconds: float) -> None:
        """Return when all is told, or the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            log.warning("reports_untold", reports=len(self._waiting))

    async def _tell(self) -> None:
        try:
            while self._waiting:
                report = self._waiting.popleft()
                for reporter in tuple(self._reporters):
                    await _call(reporter, report)
                if self._dropped:
                    log.warning("reports_dropped", reports=self._dropped)
                    self._dropped = 0
        finally:
            self._idle.set()


async def _call(reporter: Callable[[ErrorReport], Any], report: ErrorReport) -> None:
    try:
        if inspect.iscoroutinefunction(reporter):
            await reporter(report)
            return
        answer = await asyncio.to_thread(reporter, report)
        if inspect.isawaitable(answer):
            await answer
    except Exception as error:  # the user's code: its failure changes nothing
        log.warning("on_error_failed", reporter=_name_of(reporter), job_id=report.id, exc_info=error)


def _name_of(reporter: Callable[..., Any]) -> str:
    return getattr(reporter, "__qualname__", type(reporter).__qualname__)
