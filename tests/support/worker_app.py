"""The app that worker tests run, in this process or as ``dockwork worker support.worker_app:app``.

Each handler leaves a receipt: a line in the file that RECEIPTS names, appended in one write, so that receipts of
several processes and of a killed one all count.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from dockwork import App, Backoff, Context
from dockwork.settings import environ_settings
from dockwork.store.redis import RedisStore
from support.waiting import until, until_async

QUEUE = "work"


def make_store() -> RedisStore:
    """As the app would make it, but TEST_LEASE may be shorter than a queue's lease may be."""
    lease = os.environ.get("TEST_LEASE")
    return RedisStore(
        environ_settings().redis, lease=None if lease is None else timedelta(seconds=float(lease))
    )


app = App("worker-tests", store=make_store)


def receipt(text: str) -> None:
    """Append one line; O_APPEND makes it whole and last, whoever else writes."""
    file = os.open(os.environ["RECEIPTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{text}\n".encode())
    finally:
        os.close(file)


def receipts() -> list[str]:
    """All lines so far."""
    file = Path(os.environ["RECEIPTS"])
    return file.read_text().splitlines() if file.exists() else []


@app.lifespan
@asynccontextmanager
async def say_when(_: App) -> AsyncIterator[None]:
    receipt("up")
    yield
    receipt("down")


@app.job(queue=QUEUE)
async def quick(n: int) -> int:
    receipt(f"quick {n}")
    return n


@app.job(queue=QUEUE)
def quick_in_thread(n: int) -> int:
    receipt(f"quick_in_thread {n}")
    return n


@app.job(queue=QUEUE)
async def until_file(path: str) -> str:
    """Runs until somebody makes a file."""
    receipt("until_file began")
    await until_async(_exists(path), within=60)
    receipt("until_file ended")
    return "ended"


@app.job(queue=QUEUE)
def thread_until_file(path: str) -> str:
    receipt("thread_until_file began")
    until(lambda: Path(path).exists(), within=60)
    receipt("thread_until_file ended")
    return "ended"


@app.job(queue=QUEUE)
async def polite(ctx: Context) -> None:
    """Ends when it is asked to, after a checkpoint."""
    receipt(f"polite began {ctx.saved}")
    await until_async(_asked(ctx), within=60)
    receipt(f"polite asked {ctx.stop_reason}")
    await ctx.checkpoint(7)
    receipt("polite was not interrupted")


@app.job(queue=QUEUE)
async def deaf() -> None:
    """An async handler that ignores every cancellation."""
    receipt("deaf began")
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            receipt("deaf was cancelled")


@app.job(queue=QUEUE)
def deaf_in_thread() -> None:
    """A function in one long call that nothing can interrupt."""
    receipt("deaf_in_thread began")
    threading.Event().wait(300)
    receipt("deaf_in_thread ended")


@app.job(queue=QUEUE)
async def block_loop(seconds: float) -> None:
    """An async handler that blocks the event loop."""
    receipt("block_loop began")
    threading.Event().wait(seconds)
    receipt("block_loop ended")


@app.job(queue=QUEUE, timeout=0.2, retries=0)
async def slow() -> None:
    receipt("slow began")
    await asyncio.Event().wait()


@app.job(queue=QUEUE, timeout=0.2, retries=0)
def slow_in_thread() -> None:
    receipt("slow_in_thread began")
    while True:
        pass


@app.job(queue=QUEUE, max_deliveries=2)
async def kills_its_worker() -> None:
    receipt("kills_its_worker began")
    os._exit(3)


@app.job(queue=QUEUE)
async def ends_its_process() -> None:
    """The same, as often as its queue allows."""
    receipt("ends_its_process began")
    os._exit(3)


@app.job(queue=QUEUE, retries=1, backoff=Backoff.fixed(0.01))
async def fails(message: str) -> None:
    receipt("fails began")
    raise ValueError(message)


def _exists(path: str):  # type: ignore[no-untyped-def]
    async def ask() -> bool:
        return Path(path).exists()  # noqa: ASYNC240

    return ask


def _asked(ctx: Context):  # type: ignore[no-untyped-def]
    async def ask() -> bool:
        return ctx.should_stop

    return ask
