"""Whether this process still does its work: what /livez and /readyz answer. Redis enters neither."""

from __future__ import annotations

import asyncio

from dockwork_operator.kube.resources import Resource
from dockwork_operator.metrics import Metrics

#: Seconds without a scaling tick, and of lag of the event loop, after which the process is better restarted.
NO_TICK = 30.0
TOO_LATE = 10.0
#: Audits in a row in which the cache of a resource was wrong.
STALE_AUDITS = 2
LAG_EVERY = 1.0


class Health:
    """Signs of life, told by the actors, judged when a probe asks."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._ticked: float | None = None
        self._lag = 0.0
        self._lag_due = 0.0
        self._stale: dict[Resource, int] = {}
        self.filled = False

    def ticked(self) -> None:
        self._ticked = asyncio.get_running_loop().time()

    def audited(self, resource: Resource, *, stale: bool) -> None:
        self._stale[resource] = self._stale.get(resource, 0) + 1 if stale else 0

    def why_not_live(self) -> str:
        """ "" while the process works, else what fails."""
        now = asyncio.get_running_loop().time()
        if self._ticked is not None and now - self._ticked > NO_TICK:
            return f"no scaling tick for {now - self._ticked:.0f} s"
        if max(self._lag, now - self._lag_due if self._lag_due else 0.0) > TOO_LATE:
            return f"the event loop is {self._lag:.0f} s late"
        for resource, times in self._stale.items():
            if times >= STALE_AUDITS:
                return f"the watch of {resource} missed changes in {times} audits"
        return ""

    def why_not_ready(self) -> str:
        return "" if self.filled else "the caches are not filled yet"

    async def run(self, stop: asyncio.Event) -> None:
        """Measure how late the loop runs a timer."""
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            self._lag_due = loop.time() + LAG_EVERY
            try:
                async with asyncio.timeout(LAG_EVERY):
                    await stop.wait()
            except TimeoutError:
                pass
            self._lag = max(0.0, loop.time() - self._lag_due)
            self._metrics.loop_lag.set(self._lag)
