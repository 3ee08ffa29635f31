"""taskiq with Redis streams: acknowledged after the run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import kit
from taskiq import TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker

broker = RedisStreamBroker(kit.URL)
source = ListRedisScheduleSource(kit.URL)
scheduler = TaskiqScheduler(broker, [source, LabelScheduleSource(broker)])


@broker.task(task_name="noop")
async def noop(n: int, body: str) -> None:
    kit.receipt(n)


@broker.task(task_name="hold")
async def hold(n: int) -> None:
    kit.receipt(n)
    await asyncio.sleep(kit.HOLD_S)


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    await broker.startup()
    await source.startup()
    yield
    await source.shutdown()
    await broker.shutdown()


async def put_at(n: int, at: float) -> None:
    await noop.schedule_by_time(source, datetime.fromtimestamp(at, UTC), n, kit.BODY)


if __name__ == "__main__":
    sys.modules["taskiq_peer"] = sys.modules["__main__"]
    kit.main_async(lambda n: noop.kiq(n, kit.BODY), put_at, lambda: hold.kiq(kit.HELD), opened=opened)
