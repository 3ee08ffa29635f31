"""The deadlines of all running jobs: one table on one timer. A timer per job cost 3 us each (measured)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from dockwork.worker.runs import NEVER, Run


class Deadlines:
    """Calls `soft` and then `hard` for each run that lives so long.

    runs    those that may have a deadline; who keeps them adds and drops
    next    when the timer rings; a run whose deadline is earlier must be watched
    """

    def __init__(
        self, runs: AbstractSet[Run], soft: Callable[[Run], None], hard: Callable[[Run], None]
    ) -> None:
        self._soft = soft
        self._hard = hard
        self._runs = runs
        self._passed_soft: set[Run] = set()
        self._passed_hard: set[Run] = set()  #: given up; they may go on for ever
        self._timer: asyncio.TimerHandle | None = None
        self.next = NEVER

    def watch(self, run: Run) -> None:
        if run.soft_at < self.next:
            self._arm(run.soft_at)

    def forget(self, run: Run) -> None:
        if self._passed_soft:
            self._passed_soft.discard(run)
            self._passed_hard.discard(run)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def run_once(self, now: float) -> None:
        """Act on every deadline that has passed at `now`, and wait for the next."""
        self.next = NEVER
        soft, hard = due(self._runs - self._passed_hard, self._passed_soft, now)
        for run in soft:
            self._passed_soft.add(run)
            self._soft(run)
        for run in hard:
            self._passed_soft.add(run)
            self._passed_hard.add(run)
            self._hard(run)
        following = min((self._due_at(run) for run in self._runs), default=NEVER)
        if following < NEVER:
            self._arm(following)

    def _due_at(self, run: Run) -> float:
        if run in self._passed_hard:
            return NEVER
        return run.hard_at if run in self._passed_soft else run.soft_at

    def _arm(self, at: float) -> None:
        self.close()
        self.next = at
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(at, self._fire)

    def _fire(self) -> None:
        self.run_once(asyncio.get_running_loop().time())


def due(runs: Iterable[Run], passed_soft: set[Run], now: float) -> tuple[list[Run], list[Run]]:
    """The runs whose soft, and whose hard deadline has come at `now`; a run is never in both."""
    soft = [run for run in runs if run not in passed_soft and run.soft_at <= now < run.hard_at]
    hard = [run for run in runs if run.hard_at <= now]
    return soft, hard
