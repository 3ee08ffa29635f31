"""The tasks that take keys from the queue and reconcile them: 20 at once, never two on the same key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping

from dockwork_operator.apply.carry_out import failure_of
from dockwork_operator.errors import KubeError, NotLeading
from dockwork_operator.kube.resources import ObjectKey, Resource
from dockwork_operator.logs import EventLog
from dockwork_operator.loop.pace import Pace
from dockwork_operator.loop.wakes import Wakes
from dockwork_operator.metrics import Metrics

log = EventLog(__name__)

AT_ONCE = 20

Reconcile = Callable[[ObjectKey], Awaitable[None]]


class Workers:
    """Runs the reconcile of each key's kind while this replica leads; a follower's keys are dropped.

    Nothing is lost by that: with the Lease comes a wake for every object.
    """

    def __init__(
        self,
        wakes: Wakes,
        pace: Pace,
        metrics: Metrics,
        *,
        reconcilers: Mapping[Resource, Reconcile],
        leading: Callable[[], bool],
    ) -> None:
        self._wakes = wakes
        self._pace = pace
        self._metrics = metrics
        self._reconcilers = reconcilers
        self._leading = leading
        self._blocked: dict[ObjectKey, float] = {}
        self._ending = False
        self._idle = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(AT_ONCE):
                group.create_task(self._work(), name=f"reconcile {number}")

    async def finish(self, within: float) -> None:
        """Take no more keys; return when none is being worked on, or after `within` seconds."""
        self._ending = True
        self._idle.clear()
        if self._wakes.busy:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._idle.wait()

    async def _work(self) -> None:
        while not self._ending:
            key = await self._wakes.take()
            self._metrics.keys_waiting.set(len(self._wakes))
            try:
                if self._leading() and not self._is_blocked(key):
                    await self.run_once(key)
            finally:
                self._wakes.done(key)
                if not self._wakes.busy:
                    self._idle.set()

    async def run_once(self, key: ObjectKey) -> None:
        """One reconcile. An error of our own is counted, traced once and backed off; it never ends a task."""
        kind = key.resource.kind
        try:
            with self._metrics.reconcile_seconds.labels(kind).time():
                await self._reconcilers[key.resource](key)
        except NotLeading as error:
            log.debug("not_leading", object=str(key), error=str(error))
        except KubeError as error:
            # A read without which nothing can be decided: the API server is away, or slow.
            self._metrics.reconcile_errors.labels(kind, type(error).__name__).inc()
            log.warning("observe_failed", object=str(key), error=str(error))
            self._block(key, self._pace.failed(key, 0, failure_of(error)))
        except Exception as error:
            self._metrics.reconcile_errors.labels(kind, type(error).__name__).inc()
            log.failure("reconcile_failed", error, object=str(key))
            self._block(key, self._pace.failed(key, 0, None))

    def _block(self, key: ObjectKey, seconds: float) -> None:
        self._blocked[key] = asyncio.get_running_loop().time() + seconds
        self._wakes.put_later(key, seconds)

    def _is_blocked(self, key: ObjectKey) -> bool:
        until = self._blocked.get(key)
        if until is None:
            return False
        # A timer of the loop may ring a moment early.
        if asyncio.get_running_loop().time() + 0.01 >= until:
            del self._blocked[key]
            return False
        return True
