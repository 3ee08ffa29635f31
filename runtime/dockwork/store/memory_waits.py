"""Waiting on a store in memory: an asyncio future that any thread may resolve."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiter(Generic[T]):
    """One coroutine that waits on its own loop. What it was given stays with it, so that nothing is lost."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self.given: list[T] = []

    def give(self, value: T) -> bool:
        """Hand `value` over and wake the waiter, from any thread. Answers False if its loop is closed."""
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:
            return False
        self.given.append(value)
        return True

    def _resolve(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    async def wait(self, timeout_s: float) -> None:
        """Return when something was given or the time is over."""
        await asyncio.wait({self._done}, timeout=timeout_s)


class Inbox(Generic[T]):
    """What one reader has not read yet, of wakes or of published events."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._values: asyncio.Queue[T] = asyncio.Queue()

    def put(self, value: T) -> None:
        try:
            self._loop.call_soon_threadsafe(self._values.put_nowait, value)
        except RuntimeError:
            return  # its loop is closed, and so is the reader

    async def read(self) -> AsyncIterator[T]:
        while True:
            yield await self._values.get()
