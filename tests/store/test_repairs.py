"""Data that somebody broke is put right: orphans of each kind, wrong indexes, counters, locks."""

from __future__ import annotations

import pytest

from dockwork.core.states import State
from dockwork.store.protocol import JobKeys, Outcome, QueueConfig
from support.store_checks import holds
from support.store_world import BOB, RedisWorld, a_job

HELD = JobKeys(unique="ab")


@pytest.mark.covers("FM-15", "RT-024")
async def test_orphans_of_each_kind_are_put_right_and_counted(redis: RedisWorld) -> None:
    await redis.enqueue(
        *"abcd", a_job("later", due_in_ms=60_000), a_job("urgent", priority=-1), a_job("locked", keys=HELD)
    )
    await redis.claim(1, owner=BOB)
    db, keys = redis.redis, redis.keys
    await db.zrem(keys.ready, "a")  # in no index
    await db.zrem(keys.delayed, "later")
    await db.zrem(keys.lease, "urgent")
    await db.zadd(keys.dead, {"b": 5})  # in a wrong one, too
    await db.delete(keys.record("c"))  # gone, but for its envelope and its place
    await db.delete(keys.envelope("d"))
    await db.zadd(keys.completed, {"ghost": 1})
    await db.zadd(keys.expiry, {"ghost2": 1})
    await db.set(keys.envelope("lost"), "x")
    await db.hset(keys.output("lost2"), "result", "1")
    await db.set(keys.unique + "cd", "fnobody")
    await db.set(keys.unique + "ef", "tnobody", px=60_000)  # by time: nobody need hold it

    found = await redis.store.repair(redis.queue)

    assert (found.no_index, found.wrong_index, found.no_envelope, found.no_record) == (3, 1, 1, 5)
    assert found.locks == 1
    assert "bytes" in found.counters
    assert await redis.ids(State.READY) == ["a", "b", "locked"]
    assert await redis.ids(State.DELAYED) == ["later"]
    assert await redis.ids(State.ACTIVE) == ["urgent"]
    view = await redis.get("d")
    assert (view.state, view.reason) == (State.DEAD, "no_envelope")
    assert not [key async for key in db.scan_iter(match=f"{keys.prefix}*lost*")]
    assert await db.exists(keys.unique + "ab", keys.unique + "ef") == 2
    await holds(redis)
    assert (await redis.store.repair(redis.queue)).fixed == 0


@pytest.mark.covers("FM-15")
async def test_counters_that_are_off_are_counted_anew(redis: RedisWorld) -> None:
    await redis.enqueue(*"ab", a_job("c", sealed="key1,key2"))
    claims = (await redis.claim(3)).claims
    await redis.end(claims[0], Outcome.PARKED, park_type="t@h")
    await redis.end(claims[1], Outcome.DEAD, reason="attempts")
    db, keys = redis.redis, redis.keys
    await db.hset(keys.meta, mapping={"bytes": 999, "kept": 5, "keptc": 7, "parked": 4})
    await db.hset(keys.leased, mapping={"pod-a": 9, "pod-gone": 2})
    await db.hset(keys.parked, mapping={"t@h": 3, "gone@h": 1})
    await db.hset(keys.key_ids, mapping={"key1": 9, "gone": 1})

    found = await redis.store.repair(redis.queue)

    assert set(found.counters) == {"bytes", "kept", "kept_completed", "parked", "leased", "sealed"}
    await holds(redis)
    assert (await redis.store.stats(redis.queue)).parked_types == {"t@h": 1}
    assert await redis.store.key_ids(redis.queue) == {"key1": 1, "key2": 1}


@pytest.mark.covers("FM-15")
async def test_no_place_of_a_key_or_of_the_queue_stays_taken(redis: RedisWorld) -> None:
    """A job of each kind of place vanishes while it runs: as if a record had been deleted by hand."""
    await redis.store.configure(redis.queue, QueueConfig(concurrency=2), None)
    await redis.enqueue(*[a_job(name, concurrency_key="k") for name in "ab"], a_job("c"), a_job("d"))
    assert [claim.job_id for claim in (await redis.claim(5)).claims] == ["a", "c"]
    for name in "ac":
        await redis.redis.delete(redis.keys.record(name), redis.keys.envelope(name))
    assert (await redis.claim(5, owner=BOB)).claims == ()

    found = await redis.store.repair(redis.queue)

    assert found.no_record == 2
    assert {"leased", "keys"} <= set(found.counters)
    assert {claim.job_id for claim in (await redis.claim(5, owner=BOB)).claims} == {"b", "d"}
