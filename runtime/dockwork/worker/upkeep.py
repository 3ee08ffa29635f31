"""What somebody has to do for a queue now and then: promote, reap, expire, trim and tick, and plan schedules on.

A claim does the first three by itself, and knows when it is next worth asking. This loop serves what nobody
claims: a queue whose workers are all busy, or whose waiting jobs run out of time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from dockwork import clock
from dockwork.errors import ScriptFailed, UnknownReply
from dockwork.store.protocol import Ticked
from dockwork.worker.lane import Lane
from dockwork.worker.logs import get_logger
from dockwork.worker.reconnect import LOST

log = get_logger("upkeep")

#: Seconds between two passes, less up to a fifth so that workers that started together part.
EVERY_S = 60.0
#: The same while every slot is taken: no claim promotes, reaps or ticks then.
EVERY_BUSY_S = 10.0
#: A pass does at most so many rounds of one kind; more is left to the next.
ROUNDS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """What one pass did."""

    promoted: int = 0
    returned: int = 0
    buried: int = 0
    expired: int = 0
    trimmed: int = 0
    refilled: tuple[str, ...] = ()
    ticked: tuple[Ticked, ...] = ()


class Upkeep:
    """Keeps one lane's queue."""

    def __init__(self, lane: Lane) -> None:
        self.name = f"upkeep-{lane.name.tag}"
        self._lane = lane

    async def run_once(self) -> Kept:
        store, queue = self._lane.store, self._lane.name
        # Together: what is asked in one go Redis reads in one go, and mostly there is nothing to do.
        refilled, ticked, promoted, (returned, buried), expired, trimmed = await asyncio.gather(
            store.refill(queue),
            store.tick(queue),
            _repeat(lambda: store.promote(queue)),
            store.reap(queue),
            _repeat(lambda: store.expire(queue)),
            _repeat(lambda: store.trim(queue)),
        )
        if refilled:
            log.info("plans_refilled", uids=refilled, queue=queue.queue)
        for each in ticked:
            log.info("ticked", uid=each.uid, outcome=each.outcome, reason=each.reason, ticked_job=each.job_id)
        return Kept(
            promoted=promoted,
            returned=returned,
            buried=buried,
            expired=expired,
            trimmed=trimmed,
            refilled=tuple(refilled),
            ticked=tuple(ticked),
        )

    async def run(self, stop: asyncio.Event) -> None:
        while not await self._rest(stop):
            try:
                await self.run_once()
            except LOST as error:
                await self._lane.link.pause(error)
            except (ScriptFailed, UnknownReply) as error:
                log.error("upkeep_failed", error=str(error), queue=self._lane.name.queue)
            else:
                self._lane.link.answered()
                self._lane.passed()

    async def _rest(self, stop: asyncio.Event) -> bool:
        """Wait for the next pass; True when there is none."""
        every = EVERY_BUSY_S if self._lane.busy >= self._lane.slots else EVERY_S
        try:
            async with asyncio.timeout(every * (1 - 0.2 * clock.spread())):
                await stop.wait()
        except TimeoutError:
            return False
        return True


async def _repeat(call: Callable[[], Awaitable[int]]) -> int:
    """Call until nothing is left to do, the sum of what was done; bounded by `ROUNDS`."""
    total = 0
    for _ in range(ROUNDS):
        done = await call()
        total += done
        if not done:
            break
    return total
