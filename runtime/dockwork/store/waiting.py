"""Workers that wait: one blocking connection per queue, in BZPOPMIN on its wake markers.

A pop that its waiter left behind stays under way and serves the next wait. A marker that comes when nobody waits
is put back, so that it wakes another process (RT-094 is the worker's side of the same rule).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import redis.exceptions as redis_errors

from dockwork.core.keys import QueueKeys
from dockwork.errors import DockworkError, OutcomeUnknown, StoreUnavailable
from dockwork.store.connections import Asks, Pace, Wire, pack, too_late
from dockwork.store.connectors import Connector
from dockwork.store.listening import LATE_S, open_paced
from dockwork.store.protocol import Wake
from dockwork.store.refusals import Redirected

#: How long a store that is closed still gives markers back; a renewal posts again what is lost.
GIVE_BACK_S = 1.0


class _Waiter:
    """The blocking connection of one queue and the pop that is under way on it."""

    def __init__(self) -> None:
        self.wire: Wire | None = None
        self.pop: asyncio.Future[Any] | None = None
        self.opening = asyncio.Lock()
        self.watchers = 0


class Waiters:
    """All waits of one store."""

    def __init__(
        self, connector: Connector, pace: Pace, asks: Callable[[QueueKeys], Awaitable[Asks]]
    ) -> None:
        self._connector = connector
        self._pace = pace
        self._asks = asks
        self._waiters: dict[str, _Waiter] = {}
        self._giving_back: set[asyncio.Task[None]] = set()
        self._closed = False

    async def wait(self, keys: QueueKeys, timeout_s: float) -> Wake | None:
        """Block until a marker comes (the wake) or the time is over (None). Raises StoreUnavailable."""
        waiter = self._waiters.setdefault(keys.wake, _Waiter())
        waiter.watchers += 1
        try:
            pop = await self._pop(waiter, keys, timeout_s)
            done, _ = await asyncio.wait({pop}, timeout=timeout_s)
        finally:
            waiter.watchers -= 1
        if not done:
            return None
        if waiter.pop is pop:
            waiter.pop = None
        try:
            popped = pop.result()
        except OutcomeUnknown as error:
            # A marker may be lost with the connection; a renewal posts it again within one beat (RT-097).
            raise StoreUnavailable(f"the blocking connection was lost: {error}") from error
        except redis_errors.RedisError as error:
            raise self._refused(waiter, error) from error
        return None if popped is None else Wake(due_ms=int(float(popped[2])))

    async def _pop(self, waiter: _Waiter, keys: QueueKeys, timeout_s: float) -> asyncio.Future[Any]:
        async with waiter.opening:
            if waiter.pop is not None and not waiter.pop.done():
                return waiter.pop
            if waiter.wire is None or not waiter.wire.alive:
                waiter.wire = await self._open(waiter.wire, keys)
            span = max(0.01, timeout_s)
            command = pack(["BZPOPMIN", keys.wake, f"{span:.3f}"])
            pop = waiter.wire.send(command, timeout_s=span + LATE_S)
            pop.add_done_callback(lambda done: self._popped(waiter, keys, done))
            waiter.pop = pop
            return pop

    async def _open(self, old: Wire | None, keys: QueueKeys) -> Wire:
        if old is not None:
            await old.close()
        wire = await open_paced(self._connector.for_key(keys.wake), self._pace)
        if self._closed:
            raise await too_late(wire)
        return wire

    def _refused(self, waiter: _Waiter, error: redis_errors.RedisError) -> DockworkError:
        assert waiter.wire is not None
        meaning = waiter.wire.refusal("BZPOPMIN", error)
        if isinstance(meaning, Redirected):
            # The slot went to another node: the next wait connects there.
            waiter.wire.abandon()
        return meaning

    def _popped(self, waiter: _Waiter, keys: QueueKeys, pop: asyncio.Future[Any]) -> None:
        if waiter.watchers or pop.cancelled() or pop.exception() is not None or pop.result() is None:
            return
        waiter.pop = None
        _, member, score = pop.result()
        task = asyncio.get_running_loop().create_task(self._give_back(keys, member, score))
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _give_back(self, keys: QueueKeys, member: bytes, score: bytes) -> None:
        try:
            wire = await self._asks(keys)
            await wire.command("ZADD", keys.wake, score, member)
        except DockworkError:
            # Redis is away: a renewal posts the marker again once it is back.
            return

    async def close(self) -> None:
        """Close the blocking connections; what they popped is given back first, in at most `GIVE_BACK_S`."""
        self._closed = True
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters.values():
            if waiter.wire is not None:
                await waiter.wire.close()
        if self._giving_back:
            _, late = await asyncio.wait(self._giving_back, timeout=GIVE_BACK_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
