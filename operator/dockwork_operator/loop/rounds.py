"""The scaling tick: every 2 s one round of samples per Redis, and between them the wakes that Redis sends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

from dockwork.errors import DockworkError
from dockwork_operator.kube.resources import ObjectKey
from dockwork_operator.logs import EventLog
from dockwork_operator.loop.health import Health
from dockwork_operator.loop.wakes import Wakes
from dockwork_operator.metrics import Metrics
from dockwork_operator.observe.links import RedisLink, RedisLinks

log = EventLog(__name__)

#: Seconds between two looks at the tasks; /livez counts on it.
LOOK_AROUND = 5.0
#: Seconds before a lost subscription to wakes is tried again. A lost wake costs one tick, no job.
WAKES_AGAIN = 1.0


class Rounds:
    """Two tasks per Redis: its rounds and its wakes. Only a leader asks Redis anything.

    One Redis that hangs holds up its own task and nobody else's.
    """

    def __init__(
        self,
        links: RedisLinks,
        wakes: Wakes,
        *,
        every: timedelta,
        leading: Callable[[], bool],
        health: Health,
        metrics: Metrics,
    ) -> None:
        self._links = links
        self._wakes = wakes
        self._every = every.total_seconds()
        self._leading = leading
        self._health = health
        self._metrics = metrics
        self._tasks: dict[RedisLink, tuple[asyncio.Task[None], ...]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Watch over the tasks of all links until `stop`; their end by an error is logged and they start again."""
        self._links.opened = self._begin
        for link in self._links:
            self._begin(link)
        try:
            while not stop.is_set():
                self._health.ticked()
                self._revive()
                await self._links.close_unused()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(self._every, LOOK_AROUND)):
                        await stop.wait()
        finally:
            for tasks in self._tasks.values():
                for task in tasks:
                    task.cancel()
            await asyncio.gather(
                *(t for tasks in self._tasks.values() for t in tasks), return_exceptions=True
            )

    async def run_once(self, link: RedisLink) -> None:
        """One round of one Redis: each of its Queues is reconciled with what it gave."""
        if not self._leading():
            return
        for key in await link.round():
            self._wakes.put(key, urgent=_has_work(link, key))

    def _begin(self, link: RedisLink) -> None:
        rounds = asyncio.create_task(self._rounds(link), name=f"rounds {link.name}")
        wakes = asyncio.create_task(self._listen(link), name=f"wakes {link.name}")
        self._tasks[link] = (rounds, wakes)

    def _revive(self) -> None:
        alive = set(self._links)
        for link, tasks in list(self._tasks.items()):
            if link not in alive:
                for task in tasks:
                    task.cancel()
                del self._tasks[link]
            elif any(task.done() for task in tasks):
                for task in tasks:
                    if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                        log.failure("rounds_failed", error, redis=link.name)
                    task.cancel()
                self._begin(link)

    async def _rounds(self, link: RedisLink) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            self._metrics.tick_lag.set(max(0.0, loop.time() - due))
            await self.run_once(link)
            # Rounds that were missed are not made up for: the next one sees all there is.
            due = max(due + self._every, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _listen(self, link: RedisLink) -> None:
        while True:
            if self._leading():
                with contextlib.suppress(DockworkError):
                    async for queue in link.store.wakes():
                        if not self._leading():
                            break
                        if (key := link.key_of(queue)) is not None:
                            await self._wake(link, key)
            await asyncio.sleep(WAKES_AGAIN)

    async def _wake(self, link: RedisLink, key: ObjectKey) -> None:
        log.debug("redis_wake", object=str(key))
        await link.look(key)
        self._wakes.put(key, urgent=True)


def _has_work(link: RedisLink, key: ObjectKey) -> bool:
    seen = link.last(key)
    sample = seen.sample if seen is not None else None
    return sample is not None and bool(sample.ready or sample.prioritized or sample.due)
