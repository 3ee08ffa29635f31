"""Continuing the plans of schedules without an operator: alike in every store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from dockwork.core.keys import QueueName
from dockwork.store.protocol import CronState

#: A worker continues a plan with less instants left than this (OP-251).
REFILL_BELOW = 16
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Refilled(ABC):
    """A store whose plans can be continued from what it knows itself."""

    @abstractmethod
    async def cron_states(self, queue: QueueName, uids: Sequence[str] | None = None) -> list[CronState]: ...

    @abstractmethod
    async def _extend(
        self, queue: QueueName, state: CronState, instants_ms: Sequence[int], *, from_ms: int, left_out: int
    ) -> str:
        """Add to the plan of a known schedule and change nothing else: ``ok`` or ``stale``."""

    async def refill(self, queue: QueueName) -> list[str]:
        states = [state for state in await self.cron_states(queue) if runs_short(state)]
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
        instants_ms = [_ms(instant) for instant in planned.instants]
        return await self._extend(queue, state, instants_ms, from_ms=end_ms, left_out=planned.left_out)


def runs_short(state: CronState) -> bool:
    """Whether a worker should plan on. An interval needs no plan, and a suspended schedule has time."""
    return (
        state.every_ms is None
        and not state.suspended
        and bool(state.calendar)
        and (state.planned < REFILL_BELOW or state.last_planned_ms < state.now_ms)
    )


def _instant(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)
