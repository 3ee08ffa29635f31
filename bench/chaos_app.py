"""The app that `bench/chaos.py` kills: its handlers take a while, some fail once, and each leaves receipts."""

from __future__ import annotations

import asyncio
import os
import time
from datetime import timedelta

from benchkit.receipts import Receipts
from dockwork import App, Backoff, Context, Keep
from dockwork.settings import environ_settings
from dockwork.store.redis import RedisStore

QUEUE = "chaos"
#: More kills than a job meets, so that none is given up for sharing its worker with others that are killed.
MOST_DELIVERIES = 100


class Planned(Exception):
    """A first attempt that fails because the plan says so."""


def make_store() -> RedisStore:
    """As the app would make it, but with a lease that may be shorter than a queue's."""
    lease = timedelta(seconds=float(os.environ["CHAOS_LEASE"]))
    return RedisStore(environ_settings().redis, lease=lease)


app = App("chaos", store=make_store)


def declare(partitions: int) -> None:
    """Say what the queue is; the driver says it again with its own number of partitions."""
    # Everything that ended is kept: an id that came twice would be a new job once the first is forgotten.
    keep = Keep(age=timedelta(hours=6), count=2_000_000)
    app.queue(QUEUE, max_deliveries=MOST_DELIVERIES, max_bytes="8Gi", keep=keep, partitions=partitions)


declare(int(os.environ.get("CHAOS_PARTITIONS", "1")))
receipts = Receipts(os.environ.get("CHAOS_RECEIPTS", os.devnull), os.environ.get("CHAOS_WORKER", "?"))


@app.job(queue=QUEUE, retries=1, backoff=Backoff.fixed(1))
async def step(ctx: Context, ms: int, fail_once: bool = False) -> int:
    """Takes `ms` on the loop."""
    receipts.write("B", ctx.job.id, ctx.job.attempt)
    await asyncio.sleep(ms / 1000)
    return _end(ctx, ms, fail_once)


@app.job(queue=QUEUE, retries=1, backoff=Backoff.fixed(1))
def step_in_thread(ctx: Context, ms: int, fail_once: bool = False) -> int:
    """Takes `ms` in a thread."""
    receipts.write("B", ctx.job.id, ctx.job.attempt)
    time.sleep(ms / 1000)
    return _end(ctx, ms, fail_once)


@app.job(queue=QUEUE, retries=1, backoff=Backoff.fixed(1), concurrency_key="account", per_key=2)
async def step_of_account(ctx: Context, account: int, ms: int, fail_once: bool = False) -> int:
    """As `step`, but at most two of an account at once: the others are held."""
    receipts.write("B", ctx.job.id, ctx.job.attempt)
    await asyncio.sleep(ms / 1000)
    return _end(ctx, ms, fail_once)


def _end(ctx: Context, ms: int, fail_once: bool) -> int:
    if fail_once and ctx.job.attempt == 1:
        receipts.write("F", ctx.job.id, ctx.job.attempt)
        raise Planned(f"the first attempt of {ctx.job.id} fails")
    receipts.write("E", ctx.job.id, ctx.job.attempt)
    return ms
