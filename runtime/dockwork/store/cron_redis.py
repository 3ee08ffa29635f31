"""The part of the Redis store that keeps schedules: plans, ticks, the ledger."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.store import cron_calls
from dockwork.store.calls import Call
from dockwork.store.protocol import CronEntry, CronState, Ticked

R = TypeVar("R")

#: A worker continues a plan with less instants left than this (OP-251).
REFILL_BELOW = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CronStore(ABC):
    """Schedules in Redis. `RedisStore` is one; it sends the calls."""

    @abstractmethod
    async def _run(self, call: Call[R]) -> R:
        """Send `call` and read its answer."""

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

    async def unplan(self, queue: QueueName, uid: str) -> bool:
        return await self._run(cron_calls.unplan(QueueKeys(queue), uid))

    async def tick(self, queue: QueueName, uid: str | None = None, *, by: str = "worker") -> list[Ticked]:
        keys, ticked = QueueKeys(queue), list[Ticked]()
        more = True
        while more:
            found, more = await self._run(cron_calls.tick(keys, uid, by))
            ticked += found
        return ticked

    async def cron_states(self, queue: QueueName, uids: Sequence[str] | None = None) -> list[CronState]:
        return await self._run(cron_calls.cron_states(QueueKeys(queue), uids))

    async def refill(self, queue: QueueName) -> list[str]:
        states = [state for state in await self.cron_states(queue) if _runs_short(state)]
        return [state.uid for state in states if await self._refill(queue, state) == "ok"]

    async def _refill(self, queue: QueueName, state: CronState) -> str:
        # Here, because croniter costs a worker memory that it needs only where there are schedules.
        from dockwork.core.cron import Calendar, plan_ahead, tzdata_version

        # Older zone data could move instants that newer data had put right.
        if tzdata_version() < state.tzdata:
            return "stale"
        end_ms = max(state.cursor_ms, state.last_planned_ms)
        planned = plan_ahead(
            Calendar.from_json(state.calendar), _instant(end_ms), _instant(state.now_ms), known=state.planned
        )
        instants_ms = [to_ms(instant) for instant in planned.instants]
        call = cron_calls.refill(
            QueueKeys(queue), state, instants_ms, from_ms=end_ms, left_out=planned.left_out
        )
        return await self._run(call)


def _runs_short(state: CronState) -> bool:
    return (
        state.every_ms is None
        and not state.suspended
        and bool(state.calendar)
        and (state.planned < REFILL_BELOW or state.last_planned_ms < state.now_ms)
    )


def _instant(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def to_ms(instant: datetime) -> int:
    """Milliseconds since the Unix epoch."""
    return (instant - _EPOCH) // timedelta(milliseconds=1)
