"""Workers and a Redis that goes away, hangs, forgets its scripts, or cuts connections."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from dockwork import Context
from dockwork.core.states import State
from dockwork.errors import OutcomeUnknown, StoreUnavailable
from dockwork.store.redis import RedisStore
from dockwork.worker.reconnect import LONGEST_PAUSE_S, choose_pause
from support.redis_server import RedisServer
from support.waiting import until_async
from support.workers import NAME, QUEUE, World, probe

#: How often every connection is killed.
KILLS = 100 if os.environ.get("DOCKWORK_TEST_FULL") else 20


@pytest.fixture
async def server() -> AsyncIterator[RedisServer]:
    with RedisServer(aof=True) as server:
        yield server


@pytest.fixture
async def world(server: RedisServer) -> AsyncIterator[World]:
    world = World(server.url, lease=timedelta(seconds=3))
    yield world
    await world.close()


async def _value(value: Any) -> Any:
    return value


@pytest.mark.covers("RT-126", "RT-128", "RT-123", "RT-124")
async def test_a_restart_of_redis_loses_nothing_reruns_nothing_and_leaves_the_worker_alive(
    server: RedisServer, world: World
) -> None:
    ran: list[str] = []
    release = asyncio.Event()

    @world.app.job(queue=QUEUE)
    async def waits(n: int) -> None:
        ran.append(f"waits {n}")
        await release.wait()

    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> None:
        ran.append(f"quick {n}")

    jobs = [await waits.enqueue(n=n) for n in range(3)]
    async with world.worker(slots=4, probe_addr="127.0.0.1:0") as worker:
        port = worker.probe_port
        assert port is not None
        await until_async(lambda: _value(len(ran) == 3))
        assert await asyncio.to_thread(probe, port, "/readyz") == (200, "ok\n")

        server.kill()
        await until_async(lambda: _value(not worker.link.is_up), within=15)
        assert await asyncio.to_thread(probe, port, "/livez") == (200, "ok\n")
        worker.link.answered_at -= 11
        for lane in worker.lanes:
            lane.renewed_at -= 11
        assert await asyncio.to_thread(probe, port, "/readyz") == (503, "Redis does not answer\n")
        assert await asyncio.to_thread(probe, port, "/livez") == (200, "ok\n")

        server.start()
        back = asyncio.get_running_loop().time()
        last = await quick.enqueue(n=1)
        await world.until(last.id, State.COMPLETED)
        assert asyncio.get_running_loop().time() - back < 6
        release.set()
        views = [await world.until(job.id, State.COMPLETED) for job in jobs]
        assert await asyncio.to_thread(probe, port, "/readyz") == (200, "ok\n")

    assert [view.deliveries for view in views] == [1, 1, 1]
    assert sorted(ran) == ["quick 1", "waits 0", "waits 1", "waits 2"]
    assert world.code == 0


@pytest.mark.covers("RT-126", "RT-066", "FM-16")
async def test_connections_that_are_killed_again_and_again_cost_no_job_and_no_count(world: World) -> None:
    ran: list[int] = []

    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> None:
        await asyncio.sleep(0.001)  # noqa: TID251
        ran.append(n)

    total = 30 * KILLS
    await world.app.enqueue_many([quick.item(n=n) for n in range(total)])
    redis: Any = Redis.from_url(world.url)
    async with world.worker(slots=5):
        for round_ in range(KILLS):
            seen = len(ran)
            await redis.client_kill_filter(_type="normal", skipme=True)
            if seen < total:
                moved = until_async(lambda seen=seen: _value(len(ran) > seen), within=5)
                await moved
            if round_ % 5 == 0:
                await redis.script_flush()
        await until_async(lambda: _value(len(ran) >= total), within=30)
        await until_async(lambda: _completed(world, total), within=10)
    await redis.aclose()

    assert sorted(ran) == list(range(total))


@pytest.mark.full
@pytest.mark.covers("FM-19", "RT-128", "RT-068")
async def test_a_redis_that_is_killed_under_load_loses_no_acknowledged_job_and_reruns_few(
    server: RedisServer, world: World
) -> None:
    ran: Counter[int] = Counter()
    acknowledged: set[int] = set()
    numbers = iter(range(1_000_000))

    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> None:
        ran[n] += 1

    async def produce(until: asyncio.Event) -> None:
        while not until.is_set():
            n = next(numbers)
            try:
                await quick.enqueue(n=n)
            except (OutcomeUnknown, StoreUnavailable):
                continue
            acknowledged.add(n)

    enough = asyncio.Event()
    async with world.worker(slots=4):
        producers = [asyncio.create_task(produce(enough)) for _ in range(4)]
        for _ in range(2):
            seen = len(acknowledged)
            await until_async(lambda seen=seen: _value(len(acknowledged) > seen + 100), within=20)
            await asyncio.to_thread(server.restart)
        seen = len(acknowledged)
        await until_async(lambda: _value(len(acknowledged) > seen + 100), within=20)
        enough.set()
        await asyncio.gather(*producers)
        await until_async(lambda: _value(acknowledged <= set(ran)), within=20)

    # What ran at a kill may run again: four slots, two kills.
    assert sum(count - 1 for count in ran.values()) <= 8


@pytest.mark.covers("FM-25", "RT-126")
async def test_no_refusal_of_the_server_ends_a_worker(server: RedisServer, world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> int:
        return n

    redis: Any = Redis.from_url(world.url)
    async with world.worker() as worker:
        for number, (refuse, allow) in enumerate(REFUSALS):
            for command in refuse:
                with suppress(RedisError):
                    await redis.execute_command(*command)
            await until_async(lambda: _value(not worker.link.is_up), within=15, what=f"{refuse} is noticed")
            for command in allow:
                with suppress(RedisError):
                    await redis.execute_command(*command)
            job = await until_async(lambda number=number: _enqueue(quick), within=15)
            await world.until(job.id, State.COMPLETED, within=10)
            assert worker.is_running
    await redis.aclose()


#: What makes a server refuse calls, and what ends that.
REFUSALS: list[tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]] = [
    ([("REPLICAOF", "127.0.0.1", 1)], [("REPLICAOF", "NO", "ONE")]),
    (
        [("CONFIG", "SET", "min-replicas-to-write", 1), ("CONFIG", "SET", "min-replicas-max-lag", 10)],
        [("CONFIG", "SET", "min-replicas-to-write", 0)],
    ),
    (
        [("CONFIG", "SET", "requirepass", "x"), ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")],
        [("CONFIG", "SET", "requirepass", "")],
    ),
]


@pytest.mark.covers("RT-127", "FM-17")
async def test_a_redis_that_says_nothing_is_noticed_and_work_goes_on_afterwards(
    server: RedisServer, world: World
) -> None:
    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> int:
        return n

    async with world.worker() as worker:
        server.hang()
        try:
            await until_async(lambda: _value(not worker.link.is_up), within=25)
        finally:
            server.resume()
        job = await until_async(lambda: _enqueue(quick), within=15)
        view = await world.until(job.id, State.COMPLETED, within=10)

    assert view.deliveries == 1


@pytest.mark.covers("RT-068", "RT-127")
async def test_a_redis_frozen_for_longer_than_a_lease_reruns_nothing_and_charges_nothing(
    server: RedisServer, world: World
) -> None:
    ran: list[int] = []
    release = asyncio.Event()

    @world.app.job(queue=QUEUE)
    async def waits(n: int) -> None:
        ran.append(n)
        await release.wait()

    jobs = [await waits.enqueue(n=n) for n in range(3)]
    async with world.worker(slots=4):
        await until_async(lambda: _value(len(ran) == 3))
        neighbour = RedisStore(world.url, lease=world.lease)
        await neighbour.reap(NAME)
        server.hang()
        frozen = asyncio.get_running_loop().time()
        try:
            await until_async(lambda: _value(asyncio.get_running_loop().time() - frozen > 4))
            # On its way before the worker's own calls are answered.
            first = asyncio.ensure_future(neighbour.reap(NAME))
        finally:
            server.resume()
        assert await first == (0, 0)
        await until_async(lambda: _value(asyncio.get_running_loop().time() - frozen > 8.5), within=15)
        assert await neighbour.reap(NAME) == (0, 0)
        release.set()
        views = [await world.until(job.id, State.COMPLETED) for job in jobs]
        await neighbour.close()

    assert [view.deliveries for view in views] == [1, 1, 1]
    assert sorted(ran) == [0, 1, 2]


@pytest.mark.covers("RT-095")
async def test_a_checkpoint_waits_for_redis_and_progress_does_not(server: RedisServer, world: World) -> None:
    steps: list[str] = []
    go = asyncio.Event()

    @world.app.job(queue=QUEUE)
    async def saves(ctx: Context) -> None:
        steps.append("began")
        await go.wait()
        await ctx.progress(1)
        steps.append("progress")
        await ctx.checkpoint("here")
        steps.append("saved")

    job = await saves.enqueue()
    async with world.worker():
        await until_async(lambda: _value("began" in steps))
        server.kill()
        go.set()
        await until_async(lambda: _value("progress" in steps))
        server.start()
        view = await world.until(job.id, State.COMPLETED, within=15)

    assert steps == ["began", "progress", "saved"]
    assert (view.progress, view.deliveries) == (b"1", 1)


@pytest.mark.covers("RT-098")
async def test_an_idle_worker_sends_next_to_nothing(world: World) -> None:
    world.lease = timedelta(seconds=15)
    redis: Any = Redis.from_url(world.url)

    async def calls() -> Counter[str]:
        # What a client sends; the rest of the statistics is what scripts do.
        stats = await redis.info("commandstats")
        sent = ("evalsha", "blpop", "bzpopmin", "ping", "script|load")
        return Counter({name: stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in sent})

    async with world.worker():
        began = asyncio.get_running_loop().time()
        await until_async(lambda: _value(asyncio.get_running_loop().time() - began > 1), within=5)
        before = await calls()
        await until_async(lambda: _value(asyncio.get_running_loop().time() - began > 11), within=15)
        sent = await calls() - before
    await redis.aclose()

    # In 10 s: 2 renewals, 2 reads of nudges, 1 wait for a marker; one more of each at the edges.
    assert sent.total() <= 8, sent


@pytest.mark.covers("RT-126")
def test_the_back_off_doubles_from_50_ms_with_full_jitter() -> None:
    assert choose_pause(0, 0.999) < 0.05
    assert choose_pause(3, 0.5) == pytest.approx(0.2)
    assert choose_pause(100, 0.999) <= LONGEST_PAUSE_S <= 5
    assert choose_pause(100, 0.0) == 0.0


async def _completed(world: World, total: int) -> bool:
    return (await world.store.stats(NAME)).totals.get("completed", 0) == total


async def _enqueue(job_type: Any) -> Any:
    from dockwork.errors import DockworkError

    try:
        return await job_type.enqueue(n=1)
    except DockworkError:
        return None
