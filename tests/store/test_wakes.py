"""Markers: who waits is woken, and nobody else."""

from __future__ import annotations

import asyncio

import pytest

from dockwork.core.keys import QueueName
from dockwork.store.protocol import Outcome, QueueConfig, RevokeCause, Wake
from dockwork.store.redis import RedisStore
from support.store_world import ANN, BOB, RedisWorld, World, a_beat, a_job
from support.waiting import until_async


async def markers(world: RedisWorld) -> dict[str, float]:
    """Markers that are posted now: name -> score; then they are gone."""
    found = {
        name.decode(): score
        for name, score in await world.redis.zrange(world.keys.wake, 0, -1, withscores=True)
    }
    await world.redis.delete(world.keys.wake)
    return found


def now(number: int) -> dict[str, float]:
    return {str(n): 0.0 for n in range(1, number + 1)}


@pytest.mark.covers("RT-074")
async def test_enqueue_posts_a_marker_per_job_and_eight_at_most(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b")
    assert await markers(redis) == now(2)
    await redis.enqueue(*[f"j{n}" for n in range(30)])
    assert await markers(redis) == now(8)


@pytest.mark.covers("RT-074", "RT-095")
async def test_a_new_first_due_time_posts_one_marker_that_carries_it(redis: RedisWorld) -> None:
    start = await redis.store.ping()
    await redis.enqueue(a_job("a", due_at_ms=start + 50_000), a_job("b", due_at_ms=start + 40_000))
    assert await markers(redis) == {"due": start + 40_000}
    await redis.enqueue(a_job("c", due_at_ms=start + 60_000))
    assert await markers(redis) == {}


@pytest.mark.covers("RT-074")
async def test_whatever_makes_a_job_claimable_posts_markers(redis: RedisWorld) -> None:
    store, queue = redis.store, redis.queue
    await redis.enqueue("a", "b", a_job("c", due_in_ms=1000), a_job("d", due_in_ms=900_000))
    claims = (await redis.claim(2)).claims
    await markers(redis)

    await store.requeue(queue, ANN, [claims[0].lease])
    assert await markers(redis) == now(1), "requeue"
    await store.revoke(queue, str(ANN), RevokeCause.EVICTED)
    assert await markers(redis) == now(1), "revoke"
    await store.promote(queue, ["d"])
    assert await markers(redis) == now(1), "promote by id"
    await redis.advance(2)
    await store.promote(queue)
    assert await markers(redis) == now(1), "promote due"
    await redis.claim(4)
    await redis.lose_leases()
    await markers(redis)
    await store.reap(queue)
    assert await markers(redis) == now(4), "reap"
    await store.set_paused(queue, expected=False, wanted=True)
    await redis.enqueue("e")
    assert await markers(redis) == {}, "paused"
    await store.set_paused(queue, expected=True, wanted=False)
    assert await markers(redis) == now(5), "resume"
    await store.configure(queue, QueueConfig(held=True), None)
    await redis.enqueue("f")
    assert await markers(redis) == {}, "held"
    await store.configure(queue, QueueConfig(), None)
    assert await markers(redis) == now(6), "no longer held"


@pytest.mark.covers("RT-074")
async def test_a_claim_that_leaves_work_posts_two_markers(redis: RedisWorld) -> None:
    await redis.enqueue(*[f"j{n}" for n in range(10)])
    await markers(redis)

    await redis.claim(3)
    assert await markers(redis) == now(2)
    await redis.claim(7)
    assert await markers(redis) == {}


@pytest.mark.covers("RT-074")
async def test_a_claim_refused_by_quiesce_passes_its_marker_on(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b", "c")
    await redis.store.quiesce(redis.queue, {ANN.pod: "token"})
    await markers(redis)

    refused = await redis.claim(5, owner=ANN)

    assert (refused.refused, refused.claims) == ("quiesced", ())
    assert await markers(redis) == now(3)


@pytest.mark.covers("RT-074")
async def test_lifting_a_quiesce_posts_markers(redis: RedisWorld) -> None:
    await redis.enqueue("a")
    await redis.store.quiesce(redis.queue, {ANN.pod: "token"})
    await markers(redis)

    await redis.store.unquiesce(redis.queue, [ANN.pod])

    assert await markers(redis) == now(1)


@pytest.mark.covers("RT-097")
async def test_a_renewal_posts_a_lost_marker_again(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b")
    await markers(redis)

    await redis.store.renew(redis.queue, [], a_beat(BOB))
    assert await markers(redis) == now(2)
    await redis.claim(2)
    await redis.store.renew(redis.queue, [], a_beat(BOB))
    assert await markers(redis) == {}


@pytest.mark.covers("RT-097")
async def test_a_renewal_wakes_somebody_for_a_job_that_is_overdue(redis: RedisWorld) -> None:
    await redis.enqueue(a_job("a", due_in_ms=1000))
    await redis.advance(2)
    await markers(redis)

    renewal = await redis.store.renew(redis.queue, [], a_beat(BOB))

    assert await markers(redis) == now(1)
    assert renewal.next_at_ms is not None
    assert renewal.next_at_ms <= renewal.now_ms


async def test_who_waits_gets_the_marker(world: World) -> None:
    waiting = asyncio.create_task(world.store.wait(world.queue, 10))
    await world.enqueue("a")

    assert await asyncio.wait_for(waiting, 5) == Wake(due_ms=0)


async def test_a_wait_without_a_marker_ends_in_time(world: World) -> None:
    assert await world.store.wait(world.queue, 0.05) is None


async def test_a_waiter_learns_when_the_first_job_is_due(world: World) -> None:
    due = await world.store.ping() + 50_000
    await world.enqueue(a_job("a", due_at_ms=due))

    assert await world.store.wait(world.queue, 5) == Wake(due_ms=due)


@pytest.mark.covers("RT-094")
async def test_a_marker_that_comes_when_its_waiter_has_gone_is_put_back(redis: RedisWorld) -> None:
    waiting = asyncio.create_task(redis.store.wait(redis.queue, 30))
    await until_async(lambda: blocked(redis), what="a client is blocked")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    await redis.enqueue("a")

    await until_async(lambda: redis.redis.zcard(redis.keys.wake), what="the marker is there again")


async def test_a_wait_that_was_cancelled_is_taken_up_by_the_next(redis: RedisWorld) -> None:
    waiting = asyncio.create_task(redis.store.wait(redis.queue, 30))
    await until_async(lambda: blocked(redis), what="a client is blocked")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    again = asyncio.create_task(redis.store.wait(redis.queue, 30))

    await redis.enqueue("a")

    assert await asyncio.wait_for(again, 5) == Wake(due_ms=0)


async def blocked(world: RedisWorld) -> bool:
    return bool((await world.redis.info("clients"))["blocked_clients"] == 1)


@pytest.mark.covers("RT-074", "OP-142")
async def test_the_first_claimable_job_of_a_cold_queue_publishes_once(redis: RedisWorld) -> None:
    heard: list[QueueName] = []

    async def listen() -> None:
        async for queue in redis.store.wakes():
            heard.append(queue)

    listening = asyncio.create_task(listen())
    await until_async(lambda: subscribed(redis), what="the subscription is there")
    await redis.enqueue("warm")
    await redis.claim(1)
    await redis.store.sample(redis.queue, horizon_ms=0, cold=True)

    await redis.enqueue(a_job("later", due_in_ms=50_000))
    assert await redis.redis.exists(redis.keys.cold)
    await redis.enqueue("a", "b")
    await redis.enqueue("c")
    await until_async(lambda: said(heard), what="the wake was heard")

    assert heard == [redis.queue]
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def subscribed(world: RedisWorld) -> bool:
    return bool(await world.redis.pubsub_numpat())


async def said(heard: list[QueueName]) -> bool:
    return bool(heard)


@pytest.mark.covers("RT-074")
async def test_a_login_without_the_channel_still_enqueues_into_a_cold_queue(redis: RedisWorld) -> None:
    await redis.redis.execute_command("ACL", "SETUSER", "narrow", "on", ">pw", "~*", "+@all", "resetchannels")
    await redis.store.sample(redis.queue, horizon_ms=0, cold=True)
    url = f"unix://narrow:pw@{redis.redis.connection_pool.connection_kwargs['path']}"
    narrow = RedisStore(url)

    (admission,) = await narrow.enqueue(redis.queue, [a_job("a")])

    assert admission.outcome == "accepted"
    assert (await redis.claim_one()).job_id == "a"
    await narrow.close()
    await redis.redis.execute_command("ACL", "DELUSER", "narrow")


async def test_parking_wakes_workers_that_may_know_the_type(redis: RedisWorld) -> None:
    await redis.enqueue("a")
    claim = await redis.claim_one()
    await markers(redis)

    await redis.end(claim, Outcome.PARKED, park_type="t")
    assert await markers(redis) == now(1)
    await redis.store.register(redis.queue, "hash", {"t": ("abc", b"{}")})
    assert await markers(redis) == now(1)


async def test_nudges_reach_the_renewal_thread_of_their_owner(world: World) -> None:
    channel = world.store.renewal_channel()
    await asyncio.to_thread(channel.connect)
    await world.enqueue("a")
    claim = await world.claim_one()
    await asyncio.to_thread(channel.renew, world.queue, [claim.lease], a_beat())
    await world.store.cancel(world.queue, "a")
    await world.store.quiesce(world.queue, {ANN.pod: "tok"})
    await world.store.quiesce(world.queue, {ANN.pod: "tok"})
    await world.store.unquiesce(world.queue, [ANN.pod, "unknown"])

    heard = [await asyncio.to_thread(channel.wait_nudge, ANN, world.queue, wait) for wait in (5, 5, 5, 0.05)]

    assert heard == ["cancel a", "quiesce tok", "unquiesce", None]
    await asyncio.to_thread(channel.close)
