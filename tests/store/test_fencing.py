"""Stale owners change nothing, and a lost reply is asked for again."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from dockwork.core.states import State
from dockwork.errors import DockworkError
from dockwork.store.protocol import Lease, Outcome, Put, Settlement, Verdict
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_world import ANN, BOB, RedisWorld, World, a_beat
from support.waiting import until_async


async def a_stale_lease(world: World) -> Lease:
    """ANN held job ``a`` once; BOB has it now."""
    await world.enqueue("a")
    stale = (await world.claim_one(ANN)).lease
    await world.store.requeue(world.queue, ANN, [stale])
    await world.claim_one(BOB)
    return stale


@pytest.mark.covers("RT-067", "RT-100")
async def test_a_stale_epoch_changes_nothing_and_is_told_lost(redis: RedisWorld) -> None:
    stale = await a_stale_lease(redis)
    store, queue = redis.store, redis.queue
    before = await redis.dump()

    assert (await store.renew(queue, [stale], None)).verdicts == (Verdict.LOST,)
    assert await store.start(queue, [stale]) == [Verdict.LOST]
    assert await store.requeue(queue, ANN, [stale], put=Put.FRONT) == [Verdict.LOST]
    assert await store.progress(queue, stale, b"1") is Verdict.LOST
    assert await store.log(queue, stale, ["late"]) is Verdict.LOST
    assert await store.checkpoint(queue, stale, b"1") is Verdict.LOST

    after = await redis.dump()
    # A renewal tells the queue which server it saw; nothing else may differ.
    for dump in (before, after):
        dump[redis.keys.meta] = {
            k: v for k, v in dump[redis.keys.meta].items() if k not in (b"run_id", b"reap_after", b"seen")
        }
    assert after == before


@pytest.mark.covers("RT-067", "RT-100")
@pytest.mark.parametrize("outcome", list(Outcome))
async def test_a_stale_settle_of_any_outcome_changes_nothing(redis: RedisWorld, outcome: Outcome) -> None:
    stale = await a_stale_lease(redis)
    before = await redis.dump()

    settled = await redis.end(stale, outcome, delay_ms=5, reason="r", result=b"1", park_type="t")

    after = await redis.dump()
    assert settled.verdicts == (Verdict.LOST,)
    after.pop(redis.keys.receipt(str(ANN)))
    before.pop(redis.keys.receipt(str(ANN)), None)
    assert after == before


@pytest.mark.covers("RT-045")
async def test_a_new_claims_epoch_is_higher_than_any_before(redis: RedisWorld) -> None:
    await redis.enqueue("a")
    first = await redis.claim_one()
    # A failover lost the clock's lead: the record's epoch lies in the future.
    future = first.lease.epoch + 10**12
    await redis.redis.hset(redis.keys.record("a"), "e", str(future))
    await redis.store.requeue(redis.queue, ANN, [Lease(job_id="a", epoch=future)])

    assert (await redis.claim_one()).lease.epoch == future + 1


@pytest.mark.covers("RT-045")
async def test_an_epoch_is_the_time_in_microseconds(world: World) -> None:
    await world.enqueue("a")
    before = await world.store.ping()
    epoch = (await world.claim_one()).lease.epoch
    after = await world.store.ping()

    assert before * 1000 <= epoch < (after + 1) * 1000


@pytest.mark.covers("RT-066")
async def test_a_settle_asked_again_answers_the_same_and_does_nothing(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b", "c")
    claims = (await redis.claim(2)).claims
    settlements = [
        Settlement(lease=claims[0].lease, outcome=Outcome.COMPLETED),
        Settlement(lease=Lease(job_id="b", epoch=1), outcome=Outcome.COMPLETED),
    ]
    number = redis.number()

    async def ask() -> object:
        return await redis.store.settle(redis.queue, ANN, settlements, number=number, claim_next=2)

    first = await ask()
    before = await redis.dump()
    again = await ask()

    assert (again.verdicts, again.claimed.claims) == (first.verdicts, first.claimed.claims)  # type: ignore[attr-defined]
    assert first.verdicts == (Verdict.OK, Verdict.LOST)  # type: ignore[attr-defined]
    assert [claim.job_id for claim in first.claimed.claims] == ["c"]  # type: ignore[attr-defined]
    assert await redis.dump() == before


@pytest.mark.covers("RT-066")
async def test_a_claim_asked_again_hands_over_the_same_jobs(world: World) -> None:
    await world.enqueue("a", "b", "c")
    number = world.number()

    first = await world.store.claim(world.queue, ANN, number=number, slots=2)
    again = await world.store.claim(world.queue, ANN, number=number, slots=2)

    assert again.claims == first.claims
    assert await world.ids(State.READY) == ["c"]


@pytest.mark.covers("RT-066")
async def test_a_receipt_leaves_out_what_was_taken_back_since(world: World) -> None:
    await world.enqueue("a", "b")
    number = world.number()
    first = await world.store.claim(world.queue, ANN, number=number, slots=2)
    await world.store.requeue(world.queue, ANN, [first.claims[0].lease])

    again = await world.store.claim(world.queue, ANN, number=number, slots=2)

    assert again.claims == first.claims[1:]


@pytest.mark.covers("RT-066")
async def test_sixteen_receipts_an_owner_are_kept_for_ten_minutes(redis: RedisWorld) -> None:
    await redis.enqueue(*[f"j{n}" for n in range(20)])
    for _ in range(20):
        await redis.claim_one()

    key = redis.keys.receipt(str(ANN))
    kept = sorted(int(stored.split(b";")[0]) for stored in await redis.redis.hvals(key))

    assert kept == list(range(5, 21))
    assert 590_000 < await redis.redis.pttl(key) <= 600_000


@pytest.mark.covers("RT-067")
async def test_the_same_delivery_twice_in_one_settle_counts_once(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()
    ended = Settlement(lease=claim.lease, outcome=Outcome.COMPLETED)

    settled = await world.settle(ended, ended)

    assert settled.verdicts == (Verdict.OK, Verdict.LOST)
    assert (await world.totals())["completed"] == 1


async def test_an_overdue_lease_is_still_held_until_it_is_reaped(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()
    await world.advance(60)

    assert (await world.store.renew(world.queue, [claim.lease], a_beat())).verdicts == (Verdict.OK,)
    assert await world.store.reap(world.queue) == (0, 0)


@pytest.mark.covers("RT-068")
async def test_after_a_new_run_id_reaping_waits_one_lease(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b")
    living, _ = (await redis.claim(2)).claims
    await redis.lose_leases()
    # As after a restart: leases long over, and a server that nobody saw before.
    await redis.redis.hset(redis.keys.meta, "run_id", "another")

    assert await redis.store.reap(redis.queue) == (0, 0)
    assert (await redis.claim(5, owner=BOB)).claims == ()
    renewal = await redis.store.renew(redis.queue, [living.lease], a_beat())
    assert renewal.verdicts == (Verdict.OK,)
    await redis.advance(14)
    assert await redis.store.reap(redis.queue) == (0, 0)
    await redis.advance(1.1)
    await redis.store.renew(redis.queue, [living.lease], a_beat())
    assert await redis.store.reap(redis.queue) == (1, 0)
    assert await redis.ids(State.READY) == ["b"]


@pytest.mark.covers("RT-068")
@pytest.mark.parametrize("first", ["claim", "reap", "sample", "renew"])
async def test_after_a_silence_of_all_reaping_waits_one_lease_whoever_is_heard_first(
    world: World, first: str
) -> None:
    store, queue = world.store, world.queue
    await world.enqueue("a", "b")
    living, other = (await world.claim(2)).claims
    await store.renew(queue, [living.lease, other.lease], a_beat())
    await world.fall_silent(20)

    match first:
        case "claim":
            assert (await world.claim(5, owner=BOB)).claims == ()
        case "reap":
            assert await store.reap(queue) == (0, 0)
        case "sample":
            assert (await store.sample(queue, horizon_ms=0)).active == 2
        case _:
            await store.renew(queue, [], a_beat(BOB))
    await world.advance(14)
    assert await store.reap(queue) == (0, 0)
    assert (await store.renew(queue, [living.lease], a_beat())).verdicts == (Verdict.OK,)
    await world.advance(2)

    assert await store.reap(queue) == (1, 0)
    assert (await world.get("a")).deliveries == 1
    assert await world.ids(State.READY) == ["b"]


@pytest.mark.covers("RT-068")
async def test_a_lease_waits_for_one_silence_only(world: World) -> None:
    await world.enqueue("a")
    await world.claim_one()
    await world.fall_silent(20)
    assert await world.store.reap(world.queue) == (0, 0)

    await world.fall_silent(20)

    assert await world.store.reap(world.queue) == (1, 0)


@pytest.mark.covers("RT-068", "RT-120")
@pytest.mark.parametrize("heard", ["sample", "renew"])
async def test_what_a_dead_worker_held_is_taken_at_once_where_somebody_else_was_heard(
    world: World, heard: str
) -> None:
    store, queue = world.store, world.queue
    await world.enqueue("a")
    await world.claim_one()
    for _ in range(8):
        await world.fall_silent(2)
        if heard == "sample":
            await store.sample(queue, horizon_ms=0)
        else:
            await store.renew(queue, [], a_beat(BOB))

    assert await store.reap(queue) == (1, 0)


async def test_to_look_at_a_queue_that_is_not_there_leaves_nothing_behind(redis: RedisWorld) -> None:
    await redis.store.sample(redis.queue, horizon_ms=0)

    assert await redis.dump() == {}


@pytest.mark.covers("RT-068")
@pytest.mark.parametrize("fault", ["answers nothing", "refuses writes"])
async def test_a_redis_that_was_away_longer_than_a_lease_gives_living_owners_the_time_to_renew(
    fault: str,
) -> None:
    with RedisServer() as server:
        world = RedisWorld(RedisStore(server.url, lease=timedelta(seconds=1)), server.url)
        await world.enqueue("a", "b")
        claims = (await world.claim(2)).claims
        leases = [claim.lease for claim in claims]
        await world.store.renew(world.queue, leases, a_beat())

        async def over() -> bool:
            return asyncio.get_running_loop().time() > ends

        ends = asyncio.get_running_loop().time() + 1.5
        if fault == "answers nothing":
            server.hang()
            await until_async(over)
            reaped = asyncio.ensure_future(world.store.reap(world.queue))
            server.resume()
            assert await reaped == (0, 0)
        else:
            server.raw("CONFIG", "SET", "min-replicas-to-write", "1")
            with pytest.raises(DockworkError):
                await world.store.renew(world.queue, leases, a_beat())
            await until_async(over)
            assert (await world.store.sample(world.queue, horizon_ms=0)).active == 2
            server.raw("CONFIG", "SET", "min-replicas-to-write", "0")
            assert await world.store.reap(world.queue) == (0, 0)

        renewal = await world.store.renew(world.queue, leases, a_beat())
        assert renewal.verdicts == (Verdict.OK,) * 2
        assert [(await world.get(lease.job_id)).deliveries for lease in leases] == [1, 1]
        await world.close()
