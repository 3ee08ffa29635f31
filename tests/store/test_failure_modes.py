"""What queues do wrong in production, where no worker is needed to try it: crashes midway, races, herds, delays."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dockwork import App, Keep
from dockwork.core.states import State
from dockwork.store.protocol import Acted, JobChange, JobKeys, Outcome, QueueConfig
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_process import kill_midway, start
from support.store_world import ANN, RedisWorld, a_failure, a_job
from support.waiting import until_async

#: The full tier takes its time.
FULL = bool(os.environ.get("DOCKWORK_TEST_FULL"))
CLIENTS = 10


async def enqueue_many(world: RedisWorld, count: int, **more: Any) -> None:
    await world.store.enqueue(world.queue, [a_job(f"j{n}", **more) for n in range(count)])


async def lease_all(world: RedisWorld, count: int) -> None:
    """Claim `count` jobs and let every lease be over. It is a long one: a slow start looks like no outage then."""
    await world.store.configure(world.queue, QueueConfig(lease_ms=600_000), None)
    await enqueue_many(world, count)
    for _ in range(0, count, 500):
        assert len((await world.claim(500)).claims) in (500, count % 500)
    await world.store.reap(world.queue)  # begins the wait of a store that is new to the server
    leases = await world.redis.zrange(world.keys.lease, 0, -1)
    for first in range(0, len(leases), 1000):
        await world.redis.zadd(world.keys.lease, dict.fromkeys(leases[first : first + 1000], 1))
    await world.redis.hset(world.keys.meta, mapping={"reap_after": "0", "seen": await world.store.ping()})


async def running(world: RedisWorld) -> int:
    return int(await world.redis.zcard(world.keys.lease))


@pytest.mark.covers("FM-08")
async def test_whoever_reaps_is_killed_midway_and_the_next_one_reaps_at_once(
    redis: RedisWorld, server: RedisServer
) -> None:
    count = 10_000 if FULL else 1_000
    await lease_all(redis, count)
    await asyncio.to_thread(kill_midway, start(server.url, "reap"))
    assert await running(redis) == count - 100

    returned, _ = await redis.store.reap(redis.queue)

    assert returned == count - 100
    assert await running(redis) == 0
    assert (await redis.store.stats(redis.queue)).counts[State.READY] == count


@pytest.mark.covers("FM-09")
async def test_many_leases_end_at_once_and_no_call_is_held_up(redis: RedisWorld) -> None:
    count = 10_000 if FULL else 3_000
    await lease_all(redis, count)
    await redis.redis.config_set("slowlog-log-slower-than", 50_000)
    await redis.redis.slowlog_reset()
    reaping = asyncio.ensure_future(redis.store.reap(redis.queue))
    others = 0
    while not reaping.done():
        await redis.store.renew(redis.queue, [], None)
        await redis.enqueue(f"other{others}")
        others += 1

    assert await reaping == (count, 0)
    # Of a hundred calls a busy machine may interrupt one or the other: most are quick.
    slow = await redis.redis.slowlog_get(128)
    assert len(slow) <= count // 1000
    assert others > 10


@pytest.mark.covers("FM-38")
@pytest.mark.timeout(600 if FULL else 120)
async def test_a_herd_falls_due_before_ten_processes_and_each_job_runs_once(
    redis: RedisWorld, server: RedisServer
) -> None:
    count, processes = (10_000, 10) if FULL else (1_000, 2)
    await enqueue_many(redis, count, due_in_ms=1_500, keep=Keep.none.encode())
    workers = [start(server.url, "drain", str(number)) for number in range(processes)]
    outputs = await asyncio.gather(*[asyncio.to_thread(one.communicate) for one in workers])

    ran = Counter(job_id for out, _ in outputs for job_id in out.split())
    assert [one.returncode for one in workers] == [0] * processes
    assert set(ran.values()) == {1}
    assert len(ran) == count


@pytest.mark.covers("FM-39")
async def test_delays_survive_a_restart_and_what_fell_due_meanwhile_runs() -> None:
    with RedisServer(aof=True) as server:
        world = RedisWorld(RedisStore(server.url), server.url)
        await world.enqueue(
            a_job("soon", due_in_ms=30), a_job("later", due_in_ms=60_000), a_job("much", due_in_ms=3_600_000)
        )
        claim_before = (await world.claim(5)).claims
        server.kill()
        await world.close()
        server.start()
        world = RedisWorld(RedisStore(server.url), server.url)
        try:
            await world.advance(600)

            claims = [*claim_before, *(await world.claim(5)).claims]

            assert {claim.job_id for claim in claims} == {"soon", "later"}
            assert {(claim.attempts, claim.deliveries) for claim in claims} == {(0, 1)}
            assert await world.ids(State.DELAYED) == ["much"]
        finally:
            await world.close()


@pytest.mark.covers("FM-40")
async def test_delays_of_a_millisecond_of_49_and_of_ten_years(redis: RedisWorld) -> None:
    ten_years = 3652 * 24 * 3600 * 1000
    spans = {"one": 1, "some": 49, "long": ten_years}
    await redis.enqueue(*[a_job(name, due_in_ms=span) for name, span in spans.items()])
    started: dict[str, int] = {}

    async def both() -> bool:
        claimed = await redis.claim(5)
        started.update({claim.job_id: claimed.now_ms - claim.created_ms for claim in claimed.claims})
        for claim in claimed.claims:
            await redis.end(claim, Outcome.COMPLETED)
        return len(started) == 2

    await until_async(both, every=0.001)

    assert started["one"] >= 1
    assert started["some"] >= 49
    view = await redis.get("long")
    assert (view.state, view.due_ms - view.created_ms) == (State.DELAYED, ten_years)
    await redis.advance(ten_years / 1000)
    assert (await redis.claim_one()).job_id == "long"


@pytest.mark.covers("FM-47")
async def test_a_job_is_retried_though_nobody_configured_a_backoff(server: RedisServer) -> None:
    server.flush()
    app = App("shop", redis=server.url)
    failed: list[int] = []

    @app.job(queue="mail")
    async def flaky() -> None:
        failed.append(1)
        if len(failed) < 3:
            raise ValueError("not yet")

    worker = app.worker(trap_signals=False)
    working = asyncio.create_task(worker.run())
    job = await flaky.enqueue()

    async def is_over() -> bool:
        # The wait is random, up to 1 s and then 2 s; nobody has to sit through it.
        await job.promote()
        return await job.state() is State.COMPLETED

    try:
        await until_async(is_over)
    finally:
        await worker.shutdown()
        await working
        await app.close()

    assert len(failed) == 3


@pytest.mark.covers("FM-51")
async def test_every_bulk_call_takes_ten_thousand(redis: RedisWorld, server: RedisServer) -> None:
    count = 10_000 if FULL else 3_000
    app = App("shop", namespace="shop", redis=server.url)

    @app.job(queue="mail")
    def send(n: int) -> None: ...

    items = (send.options(delay=3600, expires=60, id=f"j{n}").item(n) for n in range(count))
    assert (await app.enqueue_many(items, returning="counts")).accepted == count
    ids = [f"j{n}" for n in range(count)]
    assert await app.promote("mail", *ids) == count
    expiries = await redis.redis.zrange(redis.keys.expiry, 0, -1)
    for first in range(0, count, 1000):
        await redis.redis.zadd(redis.keys.expiry, dict.fromkeys(expiries[first : first + 1000], 1))
    assert await redis.store.expire(redis.queue) == count
    plan = await app.plan_redrive("mail", state="expired")
    assert plan.count == count
    assert (await app.redrive_all(plan)).ok == count
    assert (await app.obliterate("mail", confirm="mail")).deleted == count
    await app.close()


async def race(world: RedisWorld, url: str, call: Callable[[RedisStore], Awaitable[Any]]) -> list[Any]:
    """The answers of ten clients, each with a connection of its own, that ask at the same moment."""
    stores = [RedisStore(url) for _ in range(CLIENTS)]
    try:
        await asyncio.gather(*[store.ping() for store in stores])
        return list(await asyncio.gather(*[call(store) for store in stores]))
    finally:
        await asyncio.gather(*[store.close() for store in stores])


@pytest.mark.covers("FM-56", "RT-070")
async def test_ten_clients_race_and_each_condition_holds_once(redis: RedisWorld, server: RedisServer) -> None:
    queue, url = redis.queue, server.url
    await redis.enqueue("dead")
    await redis.end(await redis.claim_one(), Outcome.DEAD, failure=a_failure())
    await redis.enqueue(a_job("later", due_in_ms=60_000), "waits")
    seen = await redis.store.get(queue, "dead", digest=True)
    assert seen is not None

    paused = await race(redis, url, lambda s: s.set_paused(queue, expected=False, wanted=True))
    resumed = await race(redis, url, lambda s: s.set_paused(queue, expected=True, wanted=False))
    promoted = await race(redis, url, lambda s: s.promote(queue, ["later"]))
    redriven = await race(redis, url, lambda s: s.redrive(queue, [("dead", seen.digest)]))
    edited = await race(redis, url, lambda s: s.edit(queue, "waits", 0, JobChange(priority=-1)))
    cancelled = await race(redis, url, lambda s: s.cancel(queue, "waits"))
    unique = await race(redis, url, lambda s: s.enqueue(queue, [a_job("new", keys=JobKeys(unique="ab"))]))

    assert (paused.count(True), resumed.count(True)) == (1, 1)
    assert sorted(promoted) == [0] * 9 + [1]
    assert Counter(said for (said,) in redriven) == {Acted.OK: 1, Acted.CONFLICTED: 9}
    assert Counter(edited) == {Acted.OK: 1, Acted.CONFLICTED: 9}
    assert Counter(cancelled) == {"cancelled": 1, "too_late": 9}
    assert Counter(one.outcome for (one,) in unique) == {"accepted": 1, "duplicate": 9}


@pytest.mark.covers("FM-57")
@pytest.mark.timeout(1800 if FULL else 120)
async def test_an_obliteration_that_is_killed_midway_is_resumed_and_leaves_nothing(
    redis: RedisWorld, server: RedisServer
) -> None:
    count = 1_000_000 if FULL else 5_000
    await redis.store.configure(redis.queue, QueueConfig(max_depth=2 * count), None)
    for first in range(0, count, 5_000):
        jobs = [a_job(f"j{n}", envelope=b"{}") for n in range(first, first + 5_000)]
        await redis.store.enqueue(redis.queue, jobs)
    await redis.claim(100, owner=ANN)
    await redis.enqueue(
        a_job("u", keys=JobKeys(unique="ab", idempotency="cd", digest="ef", idempotency_ttl_ms=60_000))
    )
    await asyncio.to_thread(kill_midway, start(server.url, "obliterate", "mine"))
    assert await redis.redis.hget(redis.keys.meta, "obliterated") == b"500"
    assert (await redis.enqueue("x"))[0].reason == "closed"

    at = await redis.store.obliterate(redis.queue, "other")
    assert at.conflicted
    while not at.done:
        at = await redis.store.obliterate(redis.queue, at.token)

    assert at.deleted == count + 1
    # The last word lives a minute more, for those who listen.
    assert await redis.redis.keys("*") == [redis.keys.events.encode()]
    assert 0 < await redis.redis.pttl(redis.keys.events) <= 60_000
