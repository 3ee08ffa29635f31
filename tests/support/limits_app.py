"""The app of the tests that hold limits over processes: ``dockwork worker support.limits_app:app``."""

from __future__ import annotations

import asyncio
import os

from dockwork import App, Context
from support.worker_app import QUEUE, make_store, receipt

app = App("limits-tests", store=make_store)


@app.job(queue=QUEUE)
async def brief(n: int) -> None:
    """Leaves a receipt at its begin and its end: what, number, account, process."""
    await _work(n, "none")


@app.job(queue=QUEUE, concurrency_key="account")
async def by_account(account: int, n: int) -> None:
    await _work(n, str(account))


@app.job(queue=QUEUE, isolation="process", retries=0)
async def saves_in_child(ctx: Context, size: int) -> None:
    await ctx.progress("p" * size)
    await ctx.checkpoint("c" * size)


async def _work(n: int, account: str) -> None:
    receipt(f"began {n} {account} {os.getpid()}")
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0.005)
    receipt(f"ended {n} {account} {os.getpid()}")
