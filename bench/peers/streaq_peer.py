"""streaq."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import kit
from streaq import Worker

worker: Any = Worker(redis_url=kit.URL, concurrency=64)


@worker.task(ttl=0, name="noop")
async def noop(n: int, body: str) -> None:
    kit.receipt(n)


@worker.task(ttl=0, name="hold", timeout=None)
async def hold(n: int) -> None:
    kit.receipt(n)
    await asyncio.sleep(kit.HOLD_S)


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    async with worker:
        yield


async def put(n: int) -> None:
    await noop.enqueue(n, kit.BODY)


async def put_at(n: int, at: float) -> None:
    await noop.enqueue(n, kit.BODY).start(schedule=datetime.fromtimestamp(at, UTC))


async def put_many(numbers: Sequence[int]) -> None:
    await worker.enqueue_many([noop.enqueue(n, kit.BODY) for n in numbers])


async def put_hold() -> None:
    await hold.enqueue(kit.HELD)


if __name__ == "__main__":
    kit.main_async(put, put_at, put_hold, opened=opened, put_many=put_many)
