"""Runs the jobs of a store in memory on the caller's loop, by the parts that a worker is made of.

The executor and the lane are a worker's own, so that arguments, contexts, timeouts, retries and middlewares do here
what they do in production. Left out is what a server needs: renewal, heartbeats, waiting, probes, signals.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Awaitable, Sequence
from datetime import datetime

from dockwork.core.jobs import StopReason
from dockwork.core.keys import QueueName
from dockwork.registry import Registry
from dockwork.store.protocol import Owner, Settlement, Store
from dockwork.worker.executor import Executor, Middleware
from dockwork.worker.lane import Lane
from dockwork.worker.reconnect import Link
from dockwork.worker.runs import Run
from dockwork.worker.threads import Threads
from dockwork.worker.worker import known_types


class _Noting:
    """A lane's runner that remembers which jobs began, and stops the claims after `most` of them."""

    def __init__(self, lane: Lane, executor: Executor, most: int) -> None:
        self._lane = lane
        self._executor = executor
        self._most = most
        self.began: list[str] = []

    def look(self) -> None:
        self._executor.look()

    def begin(self, run: Run) -> None:
        self.began.append(run.lease.job_id)
        if len(self.began) >= self._most:
            self._lane.stop_claiming()
        self._executor.begin(run)

    def stop(self, run: Run, reason: StopReason) -> None:
        self._executor.stop(run, reason)

    def fail_plainly(self, run: Run, message: str) -> Settlement | None:
        return self._executor.fail_plainly(run, message)

    def close(self) -> None:
        self._executor.close()


class Pass:
    """One pass over one queue, under an owner of its own: a job that enqueues may begin another meanwhile."""

    drain_deadline: datetime | None = None

    def __init__(self, store: Store, registry: Registry, middlewares: Sequence[Middleware]) -> None:
        self.store = store
        self.owner = Owner(pod="testing", boot=secrets.token_hex(8))
        self.link = Link()
        self.known = known_types({name: job_type.schema_hash for name, job_type in registry.items()})
        self._registry = registry
        self._middlewares = tuple(middlewares)
        self._owned: set[asyncio.Future[None]] = set()

    async def run(self, name: QueueName, most: int) -> list[str]:
        """Run what is due, one job after the other, until nothing is or `most` began: their ids, a run each."""
        lane = Lane(name, 1, self, await self.store.config(name), lease_s=math.inf)
        threads = Threads()
        executor = Executor(
            lane, self._registry, threads, worker=str(self.owner), middlewares=self._middlewares
        )
        runner = lane.runner = _Noting(lane, executor, most)
        try:
            lane.hunger()
            await lane.quiet.wait()
            while self._owned:
                await asyncio.gather(*self._owned)
        finally:
            lane.stop_claiming()
            await lane.close()
            runner.close()
            threads.close()
        return runner.began

    def own(self, work: Awaitable[None]) -> None:
        """Carry out `work` in the background; the pass does not end before it."""
        task = asyncio.ensure_future(work)
        self._owned.add(task)
        task.add_done_callback(self._owned.discard)

    def stuck(self, lane: Lane) -> None:
        """A handler ignores its hard timeout: nothing else can run."""
        lane.stop_claiming()
