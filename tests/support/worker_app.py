"""The app that worker tests run, in this process or as ``dockwork worker support.worker_app:app``.

Each handler leaves a receipt: a line in the file that RECEIPTS names, appended in one write, so that receipts of
several processes and of a killed one all count.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
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


@app.job(queue=QUEUE, retries=0)
async def stops_the_loop() -> None:
    asyncio.get_running_loop().stop()


@app.job(queue=QUEUE, retries=0)
async def exits_in_a_task() -> None:
    async def exit_now() -> None:
        sys.exit(9)

    await asyncio.create_task(exit_now())


@app.job(queue=QUEUE, isolation="process")
def in_child(n: int) -> list[int]:
    """Where it ran, and how often a job ran there."""
    receipt(f"in_child {n} {os.getpid()}")
    return [n, os.getpid(), threading.get_ident() == threading.main_thread().ident]


@app.job(queue=QUEUE, isolation="process")
async def on_childs_loop(ctx: Context, n: int) -> list[int]:
    """Everything that a context does, from there."""
    ctx.log("began", n=n)
    await ctx.progress({"at": n})
    await ctx.checkpoint(n)
    await ctx.progress({"at": n + 1})
    return [n, os.getpid()]


@app.job(queue=QUEUE, isolation="process", retries=0)
async def meddles_in_child(what: str) -> None:
    """Ends what it finds on its event loop."""
    if what == "tasks":
        for task in asyncio.all_tasks():
            task.cancel()
    elif what == "loop":
        asyncio.get_running_loop().stop()
    else:
        ending = asyncio.create_task(_exits())
        await asyncio.wait([ending])


async def _exits() -> None:
    sys.exit(3)


@app.job(queue=QUEUE, isolation="process", retries=1, backoff=Backoff.fixed(0.01))
def fails_in_child(ctx: Context, message: str) -> None:
    ctx.sync.checkpoint(ctx.job.attempt)
    raise LookupError(f"{message} {ctx.job.attempt} {ctx.saved}")


@app.job(queue=QUEUE, isolation="process", max_deliveries=2)
def ends_its_child(how: str) -> None:
    receipt(f"ends_its_child {how}")
    if how == "exit 0":
        os._exit(0)
    if how == "segfault":
        import ctypes

        ctypes.string_at(0)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(queue=QUEUE, isolation="process")
def waits_in_child(ctx: Context, path: str) -> str:
    """A system call until it is interrupted, or somebody makes a file."""
    receipt(f"waits_in_child began {os.getpid()}")
    try:
        until(lambda: Path(path).exists(), within=60)
    except BaseException as error:
        receipt(f"waits_in_child {ctx.stop_reason} {type(error).__name__}")
        raise
    return "ended"


@app.job(queue=QUEUE, isolation="process")
async def waits_on_childs_loop(ctx: Context) -> None:
    receipt(f"waits_on_childs_loop began {os.getpid()}")
    try:
        await asyncio.Event().wait()
    except BaseException as error:
        receipt(f"waits_on_childs_loop {ctx.stop_reason} {type(error).__name__}")
        raise


@app.job(queue=QUEUE, isolation="process", retries=0)
def deaf_in_child() -> None:
    """It holds the interpreter in one C call: no thread and no signal handler of its process runs meanwhile."""
    import ctypes

    receipt(f"deaf_in_child began {os.getpid()}")
    ctypes.PyDLL(None).sleep(300)


@app.job(queue=QUEUE, isolation="process")
def holds_the_interpreter(seconds: int) -> str:
    import ctypes

    receipt("holds_the_interpreter began")
    ctypes.PyDLL(None).sleep(seconds)
    receipt("holds_the_interpreter ended")
    return "ended"


@app.job(queue=QUEUE, isolation="process")
def starts_a_program(path: str) -> int:
    """A program of its own that would run for long."""
    program = subprocess.Popen(["sleep", "300"])
    receipt(f"starts_a_program {program.pid}")
    until(lambda: Path(path).exists(), within=60)
    return program.pid


def _exists(path: str):  # type: ignore[no-untyped-def]
    async def ask() -> bool:
        return Path(path).exists()  # noqa: ASYNC240

    return ask


def _asked(ctx: Context):  # type: ignore[no-untyped-def]
    async def ask() -> bool:
        return ctx.should_stop

    return ask
