"""Dockwork's side of the comparison."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import kit

from dockwork import App, Keep

KEEP = {"none": Keep.none}.get(os.environ.get("BENCH_KEEP", ""))

app = App("bench")


@app.job(queue="bench", keep=KEEP)
async def noop(n: int, body: str) -> None:
    kit.receipt(n)


@app.job(queue="bench", keep=KEEP)
async def nap(n: int, body: str) -> None:
    """5 to 50 ms, by the job's number."""
    kit.receipt(n)
    await asyncio.sleep(0.005 + (n * 7919 % 1000) * 0.000045)


@app.job(queue="bench")
async def hold(n: int) -> None:
    kit.receipt(n)
    await asyncio.sleep(kit.HOLD_S)


JOB = nap if os.environ.get("BENCH_NAP") else noop


@asynccontextmanager
async def opened() -> AsyncIterator[None]:
    try:
        yield
    finally:
        await app.close()


async def put(n: int) -> None:
    await JOB.enqueue(n=n, body=kit.BODY)


async def put_at(n: int, at: float) -> None:
    await JOB.enqueue_at(datetime.fromtimestamp(at, UTC), n=n, body=kit.BODY)


async def put_many(numbers: Sequence[int]) -> None:
    counts = await app.enqueue_many([JOB.item(n=n, body=kit.BODY) for n in numbers], returning="counts")
    if counts.accepted != len(numbers):
        raise SystemExit(f"of {len(numbers)} jobs {counts} were admitted")


if __name__ == "__main__":
    kit.main_async(put, put_at, lambda: hold.enqueue(n=kit.HELD), opened=opened, put_many=put_many)
