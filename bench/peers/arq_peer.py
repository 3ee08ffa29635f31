"""arq."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import kit
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import func


async def noop(ctx: Any, n: int, body: str) -> None:
    kit.receipt(n)


async def hold(ctx: Any, n: int) -> None:
    kit.receipt(n)
    await asyncio.sleep(kit.HOLD_S)


class WorkerSettings:
    functions = [func(noop, keep_result=0), func(hold, keep_result=0)]
    redis_settings = RedisSettings.from_dsn(kit.URL)
    max_jobs = 100
    poll_delay = 0.05
    keep_result = 0


pools: list[Any] = []


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    pools.append(await create_pool(WorkerSettings.redis_settings))
    yield
    await pools[0].aclose()


async def put_at(n: int, at: float) -> None:
    await pools[0].enqueue_job("noop", n, kit.BODY, _defer_until=datetime.fromtimestamp(at, UTC))


if __name__ == "__main__":
    kit.main_async(
        lambda n: pools[0].enqueue_job("noop", n, kit.BODY),
        put_at,
        lambda: pools[0].enqueue_job("hold", kit.HELD),
        opened=opened,
    )
