"""What a job costs, counted and not timed (RT-242): calls on the wire, commands in Redis, work and objects in Python.

The figures stand in ``costs.json``; one that rises by more than 10 % fails. After a change that is worth its price,
``COSTS=write`` writes them anew: the difference is then there to be reviewed.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dockwork import App
from dockwork.store import calls
from dockwork.store.calls import Claimant
from dockwork.store.connections import pack_call
from dockwork.store.protocol import Claim, NewJob, Outcome, Settlement
from support.store_world import ANN, RedisWorld, a_job

T = TypeVar("T")
PINNED = Path(__file__).parent / "costs.json"
BATCH = 64
JOBS = 8 * BATCH


def check(found: dict[str, float]) -> None:
    """Hold `found` against what is pinned."""
    pinned: dict[str, float] = json.loads(PINNED.read_text())
    if os.environ.get("COSTS") == "write":
        PINNED.write_text(json.dumps(dict(sorted({**pinned, **found}.items())), indent=2) + "\n")
        return
    risen = {
        name: (pinned.get(name), value)
        for name, value in found.items()
        if value > pinned.get(name, 0.0) * 1.1
    }
    assert not risen, f"dearer than pinned by more than 10 % (pinned, now): {risen}"


def new_jobs(count: int = JOBS) -> list[NewJob]:
    return [a_job(f"job-{n:06d}", envelope=b"%1024d" % n) for n in range(count)]


async def commands(redis: RedisWorld) -> dict[str, int]:
    stats = await redis.redis.info("commandstats")
    return {name.removeprefix("cmdstat_"): value["calls"] for name, value in stats.items()}


async def spent(redis: RedisWorld, prefix: str, jobs: int, calls_made: int) -> dict[str, float]:
    """What Redis did since the last look, which this is too."""
    found = await commands(redis)
    await redis.redis.config_resetstat()
    sent = found.get("evalsha", 0)
    inside = sum(found.values()) - sent - sum(found.get(own, 0) for own in ("info", "config|resetstat"))
    return {
        f"{prefix}: commands in Redis, a job": inside / jobs,
        f"{prefix}: calls, a batch": sent / calls_made,
    }


def settlement(claim: Claim) -> Settlement:
    return Settlement(lease=claim.lease, outcome=Outcome.COMPLETED, started_ms=1)


@pytest.mark.covers("RT-242", "RT-062")
async def test_round_trips_and_commands_per_job_do_not_rise(redis: RedisWorld) -> None:
    await redis.enqueue("first")
    await redis.end(await redis.claim_one(), Outcome.COMPLETED)
    await redis.store.promote(redis.queue)  # its script is there, whichever test comes first
    await redis.redis.config_resetstat()

    await redis.enqueue(*new_jobs())
    found = await spent(redis, "admit", JOBS, 2)

    for n in range(20):
        await redis.enqueue(a_job(f"lone-{n}"))
    found |= await spent(redis, "admit alone", 20, 20)

    claimed = (await redis.claim(BATCH)).claims
    await redis.redis.config_resetstat()
    for _ in range(JOBS // BATCH):
        settled = await redis.settle(*[settlement(claim) for claim in claimed], claim_next=BATCH)
        claimed = settled.claimed.claims
    found |= await spent(redis, "settle and claim", JOBS, JOBS // BATCH)
    assert (await redis.totals())["completed"] == JOBS + 1

    await redis.enqueue(*[a_job(f"later-{n}", due_in_ms=60_000) for n in range(200)])
    await redis.advance(61)
    await redis.redis.config_resetstat()
    assert await redis.store.promote(redis.queue) == 200
    found |= await spent(redis, "promote", 200, 2)

    check(found)


def measured(prefix: str, count: int, work: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """What `work` gives; and, a job, the functions that it calls and the memory blocks that what it made takes."""
    work()  # caches are filled, code is specialised
    calls_made = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls_made
        calls_made += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    try:
        before = sys.getallocatedblocks()
        kept = work()
        blocks = sys.getallocatedblocks() - before
        sys.setprofile(seen)
        work()
        sys.setprofile(None)
    finally:
        gc.enable()
    return kept, {
        f"{prefix}: blocks, a job": blocks / count,
        f"{prefix}: functions called, a job": calls_made / count,
    }


@pytest.mark.covers("RT-242")
async def test_objects_and_calls_in_python_per_job_do_not_rise(redis: RedisWorld) -> None:
    app = App("costs")

    @app.job()
    async def noop(n: int, body: str) -> None: ...

    items, found = measured("make an item", 256, lambda: [noop.item(n=n, body="x" * 960) for n in range(256)])
    new, more = measured("make a job", 256, lambda: [item.new_job(lambda: "0" * 26) for item in items])
    found |= more
    _, more = measured("admit", 256, lambda: pack_call(calls.enqueue(redis.keys, new)))
    found |= more

    await redis.enqueue(*new_jobs(BATCH))
    who = Claimant(ANN, 1, BATCH, "")
    call = calls.claim(redis.keys, who)
    reply = await redis.redis.execute_command("EVALSHA", *await loaded(redis, call))
    claimed, more = measured("read claims", BATCH, lambda: call.read(reply))
    found |= more
    assert len(claimed.claims) == BATCH
    ended = [settlement(claim) for claim in claimed.claims]
    _, more = measured("settle", BATCH, lambda: pack_call(calls.settle(redis.keys, who, ended)))
    found |= more
    ids = [claim.job_id for claim in claimed.claims]
    _, more = measured("promote", BATCH, lambda: pack_call(calls.promote(redis.keys, ids)))
    found |= more

    check(found)


async def loaded(redis: RedisWorld, call: calls.Call[Any]) -> list[Any]:
    from dockwork.store.scripts import script

    sha = await redis.redis.script_load(script(call.script).text)
    return [sha, len(call.key_values), *call.key_values, *call.args]
