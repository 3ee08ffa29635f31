"""The part of the Redis store that keeps schedules: plans, ticks, the ledger."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.store import cron_calls
from dockwork.store.calls import Call
from dockwork.store.cron_plans import Refilled
from dockwork.store.protocol import CronEntry, CronState, Ticked

R = TypeVar("R")


class CronStore(Refilled):
    """Schedules in Redis. `RedisStore` is one; it sends the calls."""

    @abstractmethod
    async def _run(self, call: Call[R]) -> R:
        """Send `call` and read its answer."""

    @abstractmethod
    async def enter(self, queue: QueueName) -> None:
        """Enter the queue in its namespace's list."""

    async def plan(
        self,
        queue: QueueName,
        entry: CronEntry,
        instants_ms: Sequence[int],
        *,
        generation: int,
        reset: bool,
        from_ms: int = 0,
        decided_ms: int | None = None,
        left_out: int = 0,
    ) -> str:
        await self.enter(queue)
        return await self._run(
            cron_calls.plan(
                QueueKeys(queue),
                entry,
                instants_ms,
                generation=generation,
                reset=reset,
                from_ms=from_ms,
                decided_ms=decided_ms,
                left_out=left_out,
            )
        )

    async def suspend(self, queue: QueueName, uid: str) -> str:
        return await self._run(cron_calls.suspend(QueueKeys(queue), uid))

    async def resume(self, queue: QueueName, uid: str) -> str:
        return await self._run(cron_calls.resume(QueueKeys(queue), uid))

    async def unplan(self, queue: QueueName, uid: str) -> bool:
        return await self._run(cron_calls.unplan(QueueKeys(queue), uid))

    async def tick(self, queue: QueueName, uid: str | None = None, *, by: str = "worker") -> list[Ticked]:
        keys, ticked = QueueKeys(queue), list[Ticked]()
        more = True
        while more:
            found, more = await self._run(cron_calls.tick(keys, uid, by))
            ticked += found
            # On a full Redis the same ones fail again and again.
            more = more and all(one.outcome != "failed" for one in found)
        return ticked

    async def cron_states(self, queue: QueueName, uids: Sequence[str] | None = None) -> list[CronState]:
        return await self._run(cron_calls.cron_states(QueueKeys(queue), uids))

    async def _extend(
        self, queue: QueueName, state: CronState, instants_ms: Sequence[int], *, from_ms: int, left_out: int
    ) -> str:
        call = cron_calls.refill(QueueKeys(queue), state, instants_ms, from_ms=from_ms, left_out=left_out)
        return await self._run(call)
