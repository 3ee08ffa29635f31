"""What every Python peer of the comparison shares; it needs the standard library alone.

A peer is a program with five verbs: ``single N`` and ``bulk N`` store jobs 0..N-1, ``pickup N`` one each 50 ms,
``delayed N`` jobs that are due in 2 to 4 s, ``hold`` one that runs for a minute. It prints one JSON line: the seconds
and the CPU seconds of the storing alone. Its handlers append a receipt; BENCH_SENT gets, in the same form, when each
job of `pickup` was about to be sent, and when each of `delayed` is due.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0")
#: With its number a payload of 1 KiB in JSON.
BODY = "x" * 1000
#: Numbers of jobs that are not counted: one that opens the connections, and the one that holds.
WARM, HELD = 99_999_998, 99_999_999
BULK = 500
IN_FLIGHT = int(os.environ.get("BENCH_IN_FLIGHT", "50"))
EVERY_S = 0.05
HOLD_S = 60.0


def _append_to(variable: str) -> int:
    return os.open(os.environ.get(variable, os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


_RECEIPTS, _SENT = _append_to("BENCH_RECEIPTS"), _append_to("BENCH_SENT")


def receipt(n: int) -> None:
    """Append a job's number and the time, in one write of 26 bytes."""
    os.write(_RECEIPTS, b"%08d %016d\n" % (n, time.time_ns() // 1000))


def sent(n: int, at: float) -> None:
    os.write(_SENT, b"%08d %016d\n" % (n, round(at * 1e6)))


def _due_times(count: int) -> list[float]:
    dice, now = random.Random(1), time.time()
    lead, spread = (float(os.environ.get(f"BENCH_DELAY_{name}", "2")) for name in ("LEAD", "SPREAD"))
    return [now + lead + dice.uniform(0, spread) for _ in range(count)]


def _report(began: float, cpu: float) -> None:
    print(json.dumps({"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}))


PutAsync = Callable[[int], Awaitable[object]]


def main_async(
    put: PutAsync,
    put_at: Callable[[int, float], Awaitable[object]],
    hold: Callable[[], Awaitable[object]],
    *,
    opened: Callable[[], AbstractAsyncContextManager[object]] | None = None,
    put_many: Callable[[Sequence[int]], Awaitable[object]] | None = None,
) -> None:
    """Carry out the verb of the command line. put_many takes 500 numbers, or all, as suits the peer."""
    import uvloop

    uvloop.run(_verb_async(put, put_at, hold, opened or _nothing, put_many))


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


async def _verb_async(
    put: PutAsync,
    put_at: Callable[[int, float], Awaitable[object]],
    hold: Callable[[], Awaitable[object]],
    opened: Callable[[], AbstractAsyncContextManager[object]],
    put_many: Callable[[Sequence[int]], Awaitable[object]] | None,
) -> None:
    verb, count = sys.argv[1], int((sys.argv[2:] or ["0"])[0])
    async with opened():
        if verb == "hold":
            await hold()
            return
        await put(WARM)
        began, cpu = time.perf_counter(), time.process_time()
        if verb == "single":
            await _spread(put, count)
        elif verb == "bulk" and put_many is not None:
            for first in range(0, count, BULK):
                await put_many(range(first, min(first + BULK, count)))
        elif verb == "pickup":
            for n in range(count):
                await asyncio.sleep(max(0.0, began + 1 + n * EVERY_S - time.perf_counter()))
                sent(n, time.time())
                await put(n)
        elif verb == "delayed":
            due_times = _due_times(count)
            for n, due in enumerate(due_times):
                sent(n, due)
            await _spread(lambda n: put_at(n, due_times[n]), count)
        else:
            raise SystemExit(f"no verb {verb}")
        _report(began, cpu)


async def _spread(put: PutAsync, count: int) -> None:
    """`IN_FLIGHT` callers, each with one call under way at a time."""
    numbers = iter(range(count))

    async def caller() -> None:
        for n in numbers:
            await put(n)

    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))


def main_sync(
    put: Callable[[int], object],
    put_at: Callable[[int, float], object],
    hold: Callable[[], object],
    *,
    put_many: Callable[[Sequence[int]], object] | None = None,
) -> None:
    """The same for a peer that blocks: one call at a time."""
    verb, count = sys.argv[1], int((sys.argv[2:] or ["0"])[0])
    if verb == "hold":
        hold()
        return
    put(WARM)
    began, cpu = time.perf_counter(), time.process_time()
    if verb == "single":
        for n in range(count):
            put(n)
    elif verb == "bulk" and put_many is not None:
        for first in range(0, count, BULK):
            put_many(range(first, min(first + BULK, count)))
    elif verb == "pickup":
        for n in range(count):
            time.sleep(max(0.0, began + 1 + n * EVERY_S - time.perf_counter()))
            sent(n, time.time())
            put(n)
    elif verb == "delayed":
        for n, due in enumerate(_due_times(count)):
            sent(n, due)
            put_at(n, due)
    else:
        raise SystemExit(f"no verb {verb}")
    _report(began, cpu)
