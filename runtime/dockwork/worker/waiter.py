"""Waits for wake markers: one blocking call, and only while a slot is free and the last claim came back short.

A partition, whose slots are others' too, waits all the same: nobody else would tell it that work has come.
"""

from __future__ import annotations

import asyncio

from dockwork.errors import ScriptFailed, UnknownReply
from dockwork.worker.lane import Lane
from dockwork.worker.logs import get_logger
from dockwork.worker.reconnect import LOST

log = get_logger("waiter")

#: Seconds of one blocking call; its end proves that this connection still lives.
BLOCK_S = 15.0
#: The same where the lease is so long that renewals are too rare to tell that Redis answers: they come at a third of
#: it, and readiness wants an answer each 10 s.
BLOCK_ALONE_S = 8.0
LONG_LEASE_S = 24.0


class Waiter:
    """Pops markers for one lane. After full claims it would only pop the scripts' own (2.65 reads a call, measured)."""

    def __init__(self, lane: Lane) -> None:
        self.name = f"waiter-{lane.name.tag}"
        self._lane = lane

    async def run_once(self) -> None:
        lane = self._lane
        await lane.short.wait()
        if lane.places is None and not lane.free:
            # A slot that frees settles, and that call claims; its reply says whether to wait again.
            lane.short.clear()
            return
        try:
            block_s = BLOCK_ALONE_S if lane.lease_s > LONG_LEASE_S else BLOCK_S
            wake = await lane.store.wait(lane.name, block_s)
        except LOST as error:
            await lane.link.pause(error)
            lane.hunger()  # a marker may have been lost with the connection
            return
        except (ScriptFailed, UnknownReply) as error:
            log.error("wait_failed", error=str(error), queue=lane.name.queue)
            await lane.link.pause(error)
            return
        lane.link.answered()
        lane.passed()
        if wake is not None:
            lane.woken(wake.due_ms)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.run_once()
