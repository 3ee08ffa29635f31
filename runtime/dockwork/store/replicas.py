"""Calls that wait until replicas have what they wrote: WAIT, on connections that nobody else's calls share.

WAIT holds up everything behind it on its connection, so each such call has one to itself. It makes the loss of a job in
a failover unlikely, not impossible: a replica that acknowledged may still not be the one that is promoted.
"""

from __future__ import annotations

import asyncio
from typing import Any

from dockwork.errors import DockworkError
from dockwork.store.calls import Call
from dockwork.store.connections import Pace, Wire, too_late
from dockwork.store.connectors import Connector
from dockwork.store.refusals import Redirected

#: How long the answer of an enqueue is held back for its replicas.
WAIT_S = 1.0
#: Pause before a call goes to another node of a Cluster, or to the same one again.
PAUSE_S = 0.02


class Replicated:
    """Such calls of one store, for one event loop."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._pace = Pace()
        self._idle: list[Wire] = []
        self._closed = False
        self._places = asyncio.Semaphore(connector.settings.pool_size)

    async def run(self, call: Call[Any], replicas: int) -> tuple[Any, bool]:
        """The answer of `call`, and whether so many replicas had it within a second.

        Raises what a call raises; once it has answered, a lost connection only means that it is not known to be met
        """
        async with self._places:
            wire, answer = await self._answered(call)
            try:
                had = await wire.command("WAIT", replicas, int(WAIT_S * 1000), timeout_s=WAIT_S + 5)
            except (DockworkError, asyncio.CancelledError) as error:
                await wire.close()
                if isinstance(error, asyncio.CancelledError):
                    raise
                return answer, False
            self._idle.append(wire)
            return answer, int(had) >= replicas

    async def _answered(self, call: Call[Any]) -> tuple[Wire, Any]:
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._connector.settings.command_timeout.total_seconds()
        while True:
            wire = await self._take(self._connector.for_key(call.keys.meta))
            try:
                return wire, await wire.call(call)
            except Redirected:
                self._idle.append(wire)
                if loop.time() >= give_up:
                    raise
                await asyncio.sleep(PAUSE_S)
            except BaseException:
                await wire.close()
                raise

    async def _take(self, connector: Connector) -> Wire:
        for wire in [one for one in self._idle if connector.at in (None, one.connector.at)]:
            self._idle.remove(wire)
            if wire.alive:
                return wire
            await wire.close()
        await self._pace.wait()
        try:
            wire = await Wire.connect(connector)
        except DockworkError as error:
            self._pace.failed(error)
            raise
        self._pace.succeeded()
        if self._closed:
            raise await too_late(wire)
        return wire

    async def close(self) -> None:
        self._closed = True
        idle, self._idle = self._idle, []
        for wire in idle:
            await wire.close()
