"""SAQ on Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import kit
from saq import Queue

queue = Queue.from_url(kit.URL)
LONG = {"timeout": 120, "retries": 2}


async def noop(ctx: Any, *, n: int, body: str) -> None:
    kit.receipt(n)


async def hold(ctx: Any, *, n: int) -> None:
    kit.receipt(n)
    await asyncio.sleep(kit.HOLD_S)


settings = {"queue": queue, "functions": [noop, hold], "concurrency": 50}


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    await queue.connect()
    yield
    await queue.disconnect()


async def put(n: int) -> None:
    await queue.enqueue("noop", n=n, body=kit.BODY, ttl=-1)


async def put_at(n: int, at: float) -> None:
    await queue.enqueue("noop", n=n, body=kit.BODY, ttl=-1, scheduled=at)


async def put_hold() -> None:
    await queue.enqueue("hold", n=kit.HELD, **LONG)


if __name__ == "__main__":
    kit.main_async(put, put_at, put_hold, opened=opened)
