"""What ended jobs leave behind, and for how long."""

from __future__ import annotations

import json

import pytest

from dockwork.core.states import State
from dockwork.store.protocol import EventMode, EventOptions, Outcome, QueueConfig, Settlement
from support.store_world import RedisWorld, World, a_job


async def complete(world: World, *names: str, keep: str | None = None, result: bytes | None = None) -> None:
    """Jobs of these names run to their end, a millisecond apart, in this order."""
    for name in names:
        await world.enqueue(a_job(name, keep=keep))
        await world.end(await world.claim_one(), Outcome.COMPLETED, result=result)


async def fail(world: World, *names: str) -> None:
    for name in names:
        await world.enqueue(name)
        await world.end(await world.claim_one(), Outcome.DEAD)


@pytest.mark.covers("RT-137", "FM-49")
async def test_a_count_keeps_the_newest(world: World) -> None:
    await world.store.configure(
        world.queue, QueueConfig(keep={"completed_count": 2, "failed_count": 1}), None
    )

    await complete(world, "a", "b", "c")
    await fail(world, "x", "y")
    await world.store.trim(world.queue)

    assert await world.ids(State.COMPLETED) == ["c", "b"]
    assert await world.ids(State.DEAD) == ["y"]
    assert await world.store.get(world.queue, "a") is None
    assert await world.store.get(world.queue, "x") is None


@pytest.mark.covers("RT-137")
async def test_an_age_drops_what_is_older(world: World) -> None:
    keep = {"completed_age_ms": 60_000, "failed_age_ms": 120_000}
    await world.store.configure(world.queue, QueueConfig(keep=keep), None)
    await complete(world, "a")
    await fail(world, "x")
    await world.advance(90)
    await complete(world, "b")

    assert await world.store.trim(world.queue) == 1
    assert await world.ids(State.COMPLETED) == ["b"]
    await world.advance(40)
    assert await world.store.trim(world.queue) == 1
    assert await world.ids(State.DEAD) == []


@pytest.mark.covers("RT-137", "FM-49")
async def test_bytes_hold_for_all_ended_jobs_together_and_the_oldest_go_first(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(keep={"bytes": 2500}), None)
    await complete(world, "a", result=b"r" * 1000)
    await world.enqueue(a_job("x", envelope=b"e" * 1000))
    await world.end(await world.claim_one(), Outcome.DEAD)
    await complete(world, "b", result=b"r" * 1000)

    assert await world.store.trim(world.queue) == 1

    assert await world.store.get(world.queue, "a") is None
    assert await world.ids(State.COMPLETED) == ["b"]
    assert await world.ids(State.DEAD) == ["x"]


@pytest.mark.covers("RT-137")
async def test_keep_none_deletes_in_the_settle(redis: RedisWorld) -> None:
    await complete(redis, "a", keep="none", result=b"1")

    assert await redis.store.get(redis.queue, "a") is None
    assert not [key async for key in redis.redis.scan_iter(match="*:[jdo]:*")]
    assert (await redis.events())[-1] == ("completed", ("a",), "")
    assert (await redis.totals())["completed"] == 1


@pytest.mark.covers("RT-137")
async def test_a_queue_that_keeps_no_completed_job_deletes_them_in_the_settle(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(keep={"completed_count": 0}), None)

    await complete(world, "a")

    assert await world.store.get(world.queue, "a") is None


@pytest.mark.covers("RT-137")
async def test_keep_forever_outlives_age_and_count_and_yields_to_bytes(world: World) -> None:
    keep = {"completed_age_ms": 60_000, "completed_count": 2}
    await world.store.configure(world.queue, QueueConfig(keep=keep), None)
    await complete(world, "ever", keep="forever", result=b"r" * 100)
    await complete(world, "a", "b", "c")
    assert sorted(await world.ids(State.COMPLETED)) == ["b", "c", "ever"]
    await world.advance(10_000)
    await world.store.trim(world.queue)

    assert await world.ids(State.COMPLETED) == ["ever"]
    await world.store.configure(world.queue, QueueConfig(keep={"bytes": 10}), None)
    await world.store.trim(world.queue)
    assert await world.ids(State.COMPLETED) == []


@pytest.mark.covers("RT-137")
async def test_a_job_types_own_age_and_count_hold_beside_the_queues(world: World) -> None:
    await complete(world, "short", keep="1000,,")
    await complete(world, "long", keep="9000000,,")
    await complete(world, "plain")
    await world.advance(2)
    await world.store.trim(world.queue)
    assert sorted(await world.ids(State.COMPLETED)) == ["long", "plain"]
    await world.advance(4000)
    await world.store.trim(world.queue)
    assert await world.ids(State.COMPLETED) == ["long"]


@pytest.mark.covers("RT-137")
async def test_a_job_types_own_count_and_bytes_hold_when_its_jobs_complete(world: World) -> None:
    await complete(world, "one", keep=",1,")
    await world.advance(2)
    await complete(world, "two", keep=",1,")
    assert await world.ids(State.COMPLETED) == ["two"]

    await complete(world, "three", keep=",,1500", result=b"r" * 1000)
    await world.advance(2)  # which of two that end in the same millisecond is the older is not said
    await complete(world, "four", keep=",,1500", result=b"r" * 1000)
    assert await world.ids(State.COMPLETED) == ["four"]


@pytest.mark.covers("RT-137")
async def test_no_limit_keeps_everything(world: World) -> None:
    keep = {"completed_age_ms": -1, "completed_count": -1, "bytes": -1}
    await world.store.configure(world.queue, QueueConfig(keep=keep), None)
    await complete(world, "a")
    await world.advance(10**6)

    assert await world.store.trim(world.queue) == 0
    assert await world.ids(State.COMPLETED) == ["a"]


@pytest.mark.covers("RT-137")
async def test_what_goes_leaves_nothing_behind(redis: RedisWorld) -> None:
    await redis.store.configure(
        redis.queue, QueueConfig(keep={"completed_age_ms": 1000, "failed_age_ms": 1000}), None
    )
    for outcome in (Outcome.COMPLETED, Outcome.DEAD, Outcome.FAILED, Outcome.CANCELLED):
        await redis.enqueue(f"j{outcome}")
        claim = await redis.claim_one()
        await redis.store.checkpoint(redis.queue, claim.lease, b"1")
        await redis.settle(Settlement(lease=claim.lease, outcome=outcome, result=b"2"))
    await redis.enqueue(a_job("late", expires_in_ms=1))
    await redis.advance(1)
    await redis.store.expire(redis.queue)
    await redis.advance(2)

    assert await redis.store.trim(redis.queue) == 5

    left = [key.decode() async for key in redis.redis.scan_iter()]
    assert not [key for key in left if ":j:" in key or ":d:" in key or ":o:" in key]
    meta = await redis.redis.hmget(redis.keys.meta, "bytes", "kept", "keptc")
    assert [int(value or 0) for value in meta] == [0, 0, 0]


@pytest.mark.covers("FM-49")
async def test_very_many_jobs_leave_memory_where_it_was(redis: RedisWorld) -> None:
    await redis.store.configure(redis.queue, QueueConfig(keep={"completed_count": 100}), None)
    await redis.store.set_events(redis.queue, EventOptions(mode=EventMode.OFF))

    async def run_jobs(first: int, count: int) -> int:
        """Run so many, of which each tenth dies; the memory that Redis uses then."""
        for start in range(first, first + count, 200):
            await redis.enqueue(*[a_job(f"j{n:06}") for n in range(start, start + 200)])
            claims = (await redis.claim(200)).claims
            ends = [Outcome.DEAD if n % 10 == 0 else Outcome.COMPLETED for n in range(200)]
            pairs = zip(claims, ends, strict=True)
            await redis.settle(
                *[Settlement(lease=c.lease, outcome=end, result=b"1" * 500) for c, end in pairs]
            )
        await redis.store.configure(
            redis.queue, QueueConfig(keep={"completed_count": 100, "failed_count": 50}), None
        )
        await redis.store.trim(redis.queue)
        found = await redis.redis.info("memory")
        return int(found["used_memory_dataset"])

    before = await run_jobs(0, 1000)
    after = await run_jobs(1000, 4000)

    assert after - before <= before * 0.1
    assert len(await redis.store.list(redis.queue, State.COMPLETED, limit=500)) == 100
    assert len(await redis.store.list(redis.queue, State.DEAD, limit=500)) == 50


@pytest.mark.covers("RT-041")
async def test_a_job_costs_its_envelope_and_at_most_400_bytes(redis: RedisWorld) -> None:
    """Bytes by MEMORY USAGE, of 1,000 jobs of 1 KiB: the record, and its share of the index."""
    names = [f"01J{n:023d}" for n in range(1000)]
    envelope = json.dumps({"args": {"data": "x" * 1000}}).encode()
    await redis.enqueue(*[a_job(name, type="mail.send", envelope=envelope) for name in names])

    async def usage(key: str) -> int:
        found = await redis.redis.memory_usage(key, samples=0)
        return int(found or 0)

    waiting = await usage(redis.keys.record(names[5])) + await usage(redis.keys.ready) / 1000
    for _ in range(10):
        claims = (await redis.claim(100)).claims
        await redis.settle(*[Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in claims])
    kept = await usage(redis.keys.record(names[5])) + await usage(redis.keys.completed) / 1000

    assert not await redis.redis.exists(redis.keys.envelope(names[5]))
    assert waiting <= 400
    assert kept <= 400
