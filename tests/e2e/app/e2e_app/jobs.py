"""Job types that behave well, and some that do not."""

from __future__ import annotations

import asyncio
import os
import time

from dockwork import App, Backoff
from e2e_app import receipts

app = App("e2e")


@app.job(name="work")
async def work(run: str, key: str, seconds: float = 0.0) -> str:
    """Take `seconds` on the loop and leave a receipt."""
    await asyncio.to_thread(receipts.begin, run, key)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(receipts.end, run, key)
    return key


@app.job(name="thread")
def thread(run: str, key: str, seconds: float = 0.0) -> str:
    """The same in a thread."""
    receipts.begin(run, key)
    time.sleep(seconds)
    receipts.end(run, key)
    return key


@app.job(name="raises", retries=2, backoff=Backoff.fixed(0.2))
async def raises(run: str, key: str) -> None:
    await asyncio.to_thread(receipts.begin, run, key)
    raise RuntimeError("this handler always fails")


@app.job(name="hangs", retries=0, timeout=2)
async def hangs(run: str, key: str) -> None:
    await asyncio.to_thread(receipts.begin, run, key)
    await asyncio.Event().wait()


@app.job(name="exits")
async def exits(run: str, key: str) -> None:
    await asyncio.to_thread(receipts.begin, run, key)
    os._exit(9)


if os.environ.get("APP_VERSION", "1") != "1":

    @app.job(name="newer")
    async def newer(run: str, key: str) -> None:
        """Only the second release knows this type."""
        await asyncio.to_thread(receipts.end, run, key)
