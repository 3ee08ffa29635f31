"""One schedule and many processes that tick it, some of which die or fail at it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dockwork.store.protocol import Outcome, Owner, Settlement
from dockwork.store.redis import RedisStore
from support.cron_world import UID, CronWorld, an_entry, cron_world
from support.redis_server import RedisServer
from support.waiting import until_async

FULL = bool(os.environ.get("DOCKWORK_TEST_FULL"))
TESTS = Path(__file__).parents[1]

#: A process that claims, and so ticks, from the plan on until nothing is left of the schedule, without a pause.
TICKER = """
import asyncio, sys
from dockwork.store.protocol import Owner
from dockwork.store.redis import RedisStore
from support.cron_world import QUEUE, UID

async def main():
    store, number = RedisStore(sys.argv[1]), 0
    print("up", flush=True)
    while True:
        states = await store.cron_states(QUEUE, [UID])
        if not states:
            continue  # not planned yet
        if states[0].next_ms is None:
            break
        number += 1
        await store.claim(QUEUE, Owner(pod=sys.argv[2], boot="b"), number=number, slots=2)
    await store.close()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@pytest.fixture
async def world(url: str) -> AsyncIterator[CronWorld]:
    async with cron_world(url) as world:
        yield world


async def tick_to_the_end(world: CronWorld, pod: str) -> list[str]:
    """What one worker got by claims that tick, until the schedule has no instant left and no job is claimable."""
    store, number, got = RedisStore(world.url), 0, list[str]()
    owner = Owner(pod=pod, boot="b")
    try:
        while True:
            last = (await world.state()).next_ms is None
            number += 1
            claimed = await store.claim(world.queue, owner, number=number, slots=4)
            got += [claim.job_id for claim in claimed.claims]
            done = [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in claimed.claims]
            if done:
                number += 1
                await store.settle(world.queue, owner, done, number=number)
            elif last:
                return got
    finally:
        await store.close()


@pytest.mark.covers("FM-41")
async def test_twenty_workers_of_one_schedule_run_one_job_per_instant(world: CronWorld) -> None:
    instants = [n / 50 for n in range(5, 105)]
    await world.plan(instants)

    got = await asyncio.gather(*(tick_to_the_end(world, f"pod-{n}") for n in range(20)))

    expected = [world.job_id(at) for at in instants]
    assert sorted(job for each in got for job in each) == sorted(expected)
    assert sorted(await world.fired()) == sorted(expected)
    state = await world.state()
    assert (state.runs, state.missed, state.skipped) == (len(instants), 0, 0)


@pytest.mark.covers("FM-41")
async def test_every_instant_makes_one_job_in_however_many_processes(world: CronWorld) -> None:
    count, crowd = (1_000, 20) if FULL else (50, 2)
    processes = start_tickers(world.url, crowd)
    try:
        for process in processes:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "up\n"
        instants = [n / 50 for n in range(1, count + 1)]
        began = await world.store.ping()
        world.began_ms = began + 500
        await world.plan(instants)
        for process in processes:
            assert await asyncio.to_thread(process.wait, 120) == 0
    finally:
        end(processes)
    expected = [world.job_id(at) for at in instants]
    assert await world.jobs() == sorted(expected)
    assert (await world.state()).runs == count


def start_tickers(url: str, count: int) -> list[subprocess.Popen[str]]:
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    return [
        subprocess.Popen(
            [sys.executable, "-c", TICKER, url, f"pod-{n}"], env=environ, stdout=subprocess.PIPE, text=True
        )
        for n in range(count)
    ]


def end(processes: list[subprocess.Popen[str]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.covers("FM-42")
async def test_tickers_that_are_killed_leave_their_instants_to_others(world: CronWorld) -> None:
    instants = [n / 20 for n in range(20, 60)]
    await world.plan(instants)
    processes = start_tickers(world.url, 2)
    try:

        async def ticking() -> bool:
            return (await world.state()).runs >= 3

        await until_async(ticking, within=20, what="they tick")
        for process in processes:
            process.kill()  # in the middle of a claim: they make one after the other
    finally:
        end(processes)
    while (await world.state()).next_ms is not None:
        await world.store.tick(world.queue)

    assert await world.jobs() == sorted(world.job_id(at) for at in instants)
    assert (await world.state()).runs == len(instants)


@pytest.mark.covers("FM-42")
async def test_a_job_that_hangs_and_a_schedule_that_fails_keep_no_other_from_its_tick(
    world: CronWorld,
) -> None:
    await world.plan([-3, 60], since=-10)
    owner = Owner(pod="hung", boot="b")
    hung = await world.store.claim(world.queue, owner, number=1, slots=1)  # and it never settles
    await world.plan([-2, 60], an_entry(uid="broken"), since=-10)
    await world.redis.hset(world.keys.cron, "broken:entry", "{")
    await world.plan([-1, 60], an_entry(uid="other"), since=-10)

    claimed = await world.store.claim(world.queue, Owner(pod="well", boot="b"), number=1, slots=5)

    assert [one.job_id for one in hung.claims] == [world.job_id(-3, UID)]
    assert [one.job_id for one in claimed.claims] == [world.job_id(-1, "other")]
