"""Rate, concurrency, jobs per key, depth: what the limits let start, and what frees them (chapter 7)."""

from __future__ import annotations

from typing import Any

import pytest

from dockwork.client import raise_refusal
from dockwork.core.states import State
from dockwork.errors import InvalidValue, QueueClosed, QueueFull
from dockwork.store.protocol import (
    Claimed,
    CronEntry,
    Outcome,
    OwnerRecord,
    Put,
    QueueConfig,
    RateLimit,
    RevokeCause,
    Settlement,
    Writing,
)
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_world import ANN, BOB, RedisWorld, World, a_beat, a_job


async def limit(world: World, **limits: Any) -> None:
    """Set these limits and no others; leases last for longer than the tests' times."""
    config = QueueConfig(**{"lease_ms": 3_600_000, **limits})
    assert await world.store.configure(world.queue, config, None) is None


def ids(claimed: Claimed) -> list[str]:
    return [claim.job_id for claim in claimed.claims]


async def keyed(world: World, *names: str, key: str = "k", **more: Any) -> None:
    await world.enqueue(*[a_job(name, concurrency_key=key, **more) for name in names])


async def throttled(world: World) -> dict[str, int]:
    found = (await world.store.stats(world.queue)).throttled
    return {what: count for what, count in found.items() if count}


async def markers(world: World) -> int:
    """Pop every marker for now; how many there were."""
    found = 0
    while (wake := await world.store.wait(world.queue, 0.02)) is not None:
        found += wake.due_ms == 0
    return found


# --- rate


@pytest.mark.covers("RT-150", "RT-151")
async def test_a_rate_lets_so_many_start_and_says_when_the_next_may(world: World) -> None:
    await limit(world, rate=RateLimit(3, 60_000))
    await world.enqueue(*"abcde")

    first = await world.claim(2)
    second = await world.claim(2, owner=BOB)
    third = await world.claim(2)

    assert (ids(first), ids(second), ids(third)) == (["a", "b"], ["c"], [])
    assert (second.more, third.more) == (False, False)
    assert third.next_at_ms is not None
    assert 60_000 <= third.next_at_ms - first.now_ms <= 60_700
    assert (await world.get("d")).state is State.READY


@pytest.mark.covers("RT-150")
async def test_starts_come_free_when_they_lie_outside_the_window_and_not_before(world: World) -> None:
    await limit(world, rate=RateLimit(2, 60_000))
    await world.enqueue(*"abcdef")
    await world.claim(1)
    await world.advance(30)
    await world.claim(1)

    await world.advance(29.5)
    assert ids(await world.claim(5)) == []
    await world.advance(1.7)  # 61.2 s after the first, 31.2 s after the second
    assert ids(await world.claim(5)) == ["c"]
    await world.advance(30)
    assert ids(await world.claim(5)) == ["d"]


@pytest.mark.covers("RT-150")
async def test_a_settle_that_claims_counts_and_is_throttled_like_a_claim(world: World) -> None:
    await limit(world, rate=RateLimit(2, 60_000))
    await world.enqueue(*"abc")
    claim = await world.claim_one()

    settled = await world.settle(Settlement(lease=claim.lease, outcome=Outcome.COMPLETED), claim_next=5)

    assert ids(settled.claimed) == ["b"]
    assert settled.claimed.next_at_ms is not None
    assert await throttled(world) == {"rate": 1}


@pytest.mark.covers("RT-150", "RT-157")
async def test_a_changed_rate_counts_the_starts_of_before(world: World) -> None:
    await limit(world, rate=RateLimit(4, 60_000))
    await world.enqueue(*"abcdefgh")
    await world.claim(4)

    await limit(world, rate=RateLimit(6, 120_000))
    assert ids(await world.claim(8)) == ["e", "f"]
    await limit(world, rate=RateLimit(3, 60_000))
    assert ids(await world.claim(8)) == []
    await limit(world)
    assert ids(await world.claim(8)) == ["g", "h"]


@pytest.mark.covers("RT-151")
async def test_what_comes_while_the_rate_is_used_up_wakes_nobody_before_its_time(world: World) -> None:
    await limit(world, rate=RateLimit(1, 60_000))
    await world.enqueue("a")
    await world.claim(5)
    await markers(world)

    await world.enqueue("b")

    wake = await world.store.wait(world.queue, 0.02)
    assert wake is not None
    assert wake.due_ms > await world.store.ping() + 59_000
    await world.enqueue("c")
    assert await world.store.wait(world.queue, 0.02) is None
    renewal = await world.store.renew(world.queue, [], a_beat())
    assert renewal.next_at_ms == wake.due_ms
    assert await markers(world) == 0


@pytest.mark.covers("RT-151")
async def test_a_throttled_claim_leaves_one_marker_for_the_end_of_the_wait(world: World) -> None:
    await limit(world, rate=RateLimit(1, 60_000))
    await world.enqueue("a", "b")
    await markers(world)

    claimed = await world.claim(2)

    wake = await world.store.wait(world.queue, 0.02)
    assert wake is not None
    assert wake.due_ms == claimed.next_at_ms
    assert await world.store.wait(world.queue, 0.02) is None


# --- concurrency


@pytest.mark.covers("RT-152")
async def test_no_more_run_than_the_queue_allows_whoever_asks(world: World) -> None:
    await limit(world, concurrency=3)
    await world.enqueue(*"abcdef")

    first, second, third = await world.claim(2), await world.claim(5, owner=BOB), await world.claim(5)

    assert (ids(first), ids(second), ids(third)) == (["a", "b"], ["c"], [])
    assert not third.more
    assert await throttled(world) == {"concurrency": 3}
    settled = await world.settle(
        Settlement(lease=first.claims[0].lease, outcome=Outcome.COMPLETED), claim_next=5
    )
    assert ids(settled.claimed) == ["d"]


@pytest.mark.covers("RT-152")
async def test_a_crashed_holders_place_is_free_at_its_leases_end(world: World) -> None:
    await limit(world, concurrency=1, lease_ms=None)
    await world.enqueue(a_job("a", max_deliveries=1), "b")
    await world.claim(1)
    assert ids(await world.claim(1, owner=BOB)) == []

    await world.lose_leases()
    claimed = await world.claim(1, owner=BOB)

    assert ids(claimed) == ["b"]
    assert (await world.get("a")).state is State.DEAD


@pytest.mark.covers("RT-074", "RT-152")
@pytest.mark.parametrize("end", ["settle", "requeue", "revoke", "reap", "cancel", "child"])
async def test_a_place_that_comes_free_wakes_those_who_wait(world: World, end: str) -> None:
    await limit(world, concurrency=1, lease_ms=None)
    await world.enqueue(a_job("a", max_deliveries=1), "b")
    claim = await world.claim_one()
    await world.claim(1, owner=BOB)
    await markers(world)
    await world.enqueue("c")
    assert await markers(world) == 0, "nobody could take it"

    match end:
        case "settle":
            await world.end(claim, Outcome.COMPLETED)
        case "requeue":
            await world.store.requeue(world.queue, ANN, [claim.lease])
        case "revoke":
            await world.store.revoke(world.queue, str(ANN), RevokeCause.DIED)
        case "reap":
            await world.lose_leases()
            await world.store.reap(world.queue)
        case "cancel":
            await world.store.cancel(world.queue, "a", force=True)
        case "child":
            await world.store.child_died(world.queue, [(claim.lease, "signal 9")])

    assert await markers(world) > 0


@pytest.mark.covers("RT-074", "RT-157")
async def test_a_raised_limit_wakes_those_who_wait(world: World) -> None:
    await limit(world, concurrency=1)
    await world.enqueue(*"abc")
    await world.claim(1)
    await markers(world)

    await limit(world, concurrency=2)

    assert await markers(world) > 0
    assert ids(await world.claim(5)) == ["b"]


# --- per key


@pytest.mark.covers("RT-153")
async def test_one_job_of_a_key_runs_at_a_time_and_other_keys_do_not_wait_behind_it(world: World) -> None:
    await keyed(world, *"abc")
    await keyed(world, "x", key="other")
    await world.enqueue("free")

    claimed = await world.claim(10)

    assert ids(claimed) == ["a", "x", "free"]
    assert not claimed.more
    assert await world.ids(State.READY) == ["b", "c"]
    assert await throttled(world) == {"key": 2}
    assert ids(await world.claim(10, owner=BOB)) == []


def _settle(outcome: Outcome) -> Any:
    async def end(world: World) -> None:
        await world.end((await world.claim_one()), outcome, delay_ms=60_000, park_type="t@h")

    return end


async def _requeue_back(world: World) -> None:
    claim = await world.claim_one()
    await world.store.requeue(world.queue, ANN, [claim.lease], put=Put.BACK)


async def _revoke(world: World) -> None:
    await world.claim_one()
    await world.store.revoke(world.queue, str(ANN), RevokeCause.DIED)


async def _reap(world: World) -> None:
    await world.claim_one()
    await world.lose_leases()
    await world.store.reap(world.queue)


async def _cancel(world: World) -> None:
    await world.store.cancel(world.queue, "a")


async def _cancel_by_force(world: World) -> None:
    await world.claim_one()
    assert await world.store.cancel(world.queue, "a", force=True) == "cancelled"


async def _child_died(world: World) -> None:
    claim = await world.claim_one()
    await world.store.child_died(world.queue, [(claim.lease, "signal 9")])


async def _expire(world: World) -> None:
    await world.advance(120)
    await world.store.expire(world.queue)


async def _expire_in_a_claim(world: World) -> None:
    await world.enqueue(a_job("front", priority=-1))
    await world.advance(120)
    assert ids(await world.claim(2)) == ["front", "z"]
    await world.enqueue("z2")


FREEING = {
    **{f"settle_{outcome}": _settle(outcome) for outcome in Outcome},
    "requeue": _requeue_back,
    "revoke": _revoke,
    "reap": _reap,
    "cancel": _cancel,
    "cancel_by_force": _cancel_by_force,
    "child_died": _child_died,
    "expire": _expire,
    "expire_in_a_claim": _expire_in_a_claim,
}


@pytest.mark.covers("RT-153", "RT-074")
@pytest.mark.parametrize("how", FREEING)
async def test_whatever_frees_a_key_lets_the_first_that_waits_return_to_its_place(
    world: World, how: str
) -> None:
    await world.enqueue(a_job("a", concurrency_key="k", max_deliveries=1, expires_in_ms=60_000))
    await keyed(world, "b", "c")
    await world.enqueue(a_job("z"))
    assert await throttled(world) == {"key": 2}
    await markers(world)

    await FREEING[how](world)

    assert await markers(world) > 0
    assert await throttled(world) == {"key": 2 if how == "requeue" else 1}
    assert ids(await world.claim(2, owner=BOB)) == ["b", "z2" if how == "expire_in_a_claim" else "z"]


@pytest.mark.covers("RT-153")
async def test_a_job_that_is_put_back_in_front_keeps_its_turn_before_those_of_its_key(world: World) -> None:
    await keyed(world, *"abc")
    claim = await world.claim_one()

    await world.store.requeue(world.queue, ANN, [claim.lease], put=Put.FRONT)

    assert ids(await world.claim(5)) == ["a"]


@pytest.mark.covers("RT-153")
@pytest.mark.parametrize("how", ["requeue", "revoke", "reap"])
async def test_each_that_ends_frees_one_place_of_its_key_and_no_more(world: World, how: str) -> None:
    await keyed(world, *"abcdef", per_key=3)
    mine, theirs = await world.claim(1), await world.claim(2, owner=BOB)
    assert (ids(mine), ids(theirs)) == (["a"], ["b", "c"])

    match how:
        case "requeue":
            await world.store.requeue(world.queue, ANN, [mine.claims[0].lease])
        case "revoke":
            await world.store.revoke(world.queue, str(ANN), RevokeCause.EVICTED)
        case "reap":
            await world.store.reap(world.queue)
            await world.advance(14)
            await world.store.renew(world.queue, [claim.lease for claim in theirs.claims], None)
            await world.advance(2)
            await world.store.reap(world.queue)

    assert ids(await world.claim(5)) == ["a"]
    assert await throttled(world) == {"key": 3}


@pytest.mark.covers("RT-153")
async def test_an_urgent_job_goes_before_one_of_its_key_that_only_waits(world: World) -> None:
    await keyed(world, "a")
    await keyed(world, "urgent", priority=-5)

    claimed = await world.claim(5)

    assert ids(claimed) == ["urgent"]
    assert await throttled(world) == {"key": 1}
    assert (await world.get("a")).state is State.READY
    await world.end(claimed.claims[0], Outcome.COMPLETED)
    assert ids(await world.claim(5)) == ["a"]


@pytest.mark.covers("RT-153")
async def test_jobs_that_wait_aside_keep_priority_and_order_and_show_as_what_they_are(world: World) -> None:
    await keyed(world, "first")
    await keyed(world, "plain")
    await keyed(world, "late", priority=7)
    await keyed(world, "later", priority=9)
    await keyed(world, "plain2")

    assert await world.ids(State.READY) == ["first", "plain", "plain2"]
    assert await world.ids(State.PRIORITIZED) == ["late", "later"]
    assert await page(world, State.READY, 1, 1) == ["plain"]
    assert await page(world, State.PRIORITIZED, 1, 5) == ["later"]
    stats = await world.store.stats(world.queue)
    assert (stats.counts[State.READY], stats.counts[State.PRIORITIZED]) == (3, 2)
    order = []
    while claims := (await world.claim(5)).claims:
        order += [claim.job_id for claim in claims]
        await world.end(claims[0], Outcome.COMPLETED)
    assert order == ["first", "plain", "plain2", "late", "later"]


async def page(world: World, state: State, offset: int, limit: int) -> list[str]:
    return [view.id for view in await world.store.list(world.queue, state, offset=offset, limit=limit)]


@pytest.mark.covers("RT-153", "RT-001")
async def test_a_jobs_own_number_per_key_beats_the_queues_and_that_the_default(world: World) -> None:
    await limit(world, per_key=2)
    await keyed(world, *"abc")
    await keyed(world, *"uvwx", key="l", per_key=3)

    assert ids(await world.claim(10)) == ["a", "b", "u", "v", "w"]


@pytest.mark.covers("RT-153", "RT-157")
async def test_a_raised_number_per_key_lets_more_in_at_once(world: World) -> None:
    await keyed(world, *"abcd")
    await world.claim(10)
    await markers(world)

    await limit(world, per_key=3)

    assert await markers(world) > 0
    assert ids(await world.claim(10, owner=BOB)) == ["b", "c"]
    assert await throttled(world) == {"key": 1}


@pytest.mark.covers("RT-153")
async def test_a_parked_job_of_a_full_key_waits_aside_and_runs_when_its_key_is_free(world: World) -> None:
    await keyed(world, "a")
    claim = await world.claim_one()
    await world.end(claim, Outcome.PARKED, park_type="t@h")
    await keyed(world, "b")
    running = await world.claim_one(BOB)

    assert ids(await world.claim(5, known=["t@h"])) == []
    assert (await world.get("a")).state is State.READY
    await world.end(running, Outcome.COMPLETED)
    assert ids(await world.claim(5)) == ["a"]


@pytest.mark.covers("RT-153", "RT-154")
async def test_a_job_that_waits_aside_counts_towards_the_depth_and_can_be_cancelled(world: World) -> None:
    await limit(world, max_depth=3)
    await keyed(world, *"abc")

    (admission,) = await world.enqueue("d")

    assert (admission.reason, admission.current, admission.limit) == ("depth", 3, 3)
    with pytest.raises(QueueFull, match="depth 3 of 3"):
        raise_refusal(admission, "mail")
    assert await world.store.cancel(world.queue, "b") == "cancelled"
    await world.end(await world.claim_one(), Outcome.COMPLETED)
    assert ids(await world.claim(5)) == ["c"]


@pytest.mark.covers("RT-154")
async def test_retries_put_backs_and_freed_jobs_are_never_refused(world: World) -> None:
    await limit(world, max_depth=2)
    await world.enqueue(a_job("a", concurrency_key="k"), a_job("b", concurrency_key="k"))
    claim = await world.claim_one()
    assert [a.reason for a in await world.enqueue("c")] == ["depth"]

    await world.end(claim, Outcome.RETRY, delay_ms=0)
    await world.store.requeue(world.queue, ANN, [(await world.claim_one()).lease])

    stats = await world.store.stats(world.queue)
    assert stats.counts[State.READY] == 2


@pytest.mark.covers("RT-155")
async def test_a_queue_closed_by_hand_takes_nothing_skips_ticks_and_goes_on_with_what_it_has(
    world: World,
) -> None:
    await world.enqueue("a")
    assert await world.store.set_closed(world.queue, expected=False, wanted=True)
    assert not await world.store.set_closed(world.queue, expected=False, wanted=True)

    (admission,) = await world.enqueue("b")
    with pytest.raises(QueueClosed, match="queue mail is closed to new jobs"):
        raise_refusal(admission, "mail")
    now = await world.store.ping()
    entry = CronEntry(uid="u", schedule_hash="s", job=a_job("tick"))
    await world.store.plan(
        world.queue, entry, [now - 5_000], generation=1, reset=False, decided_ms=now - 9_000
    )
    (ticked,) = await world.store.tick(world.queue, "u")

    assert (ticked.outcome, ticked.reason) == ("skipped", "QueueClosed")
    assert (await world.store.stats(world.queue)).closed
    assert ids(await world.claim(5)) == ["a"]
    assert await world.store.set_closed(world.queue, expected=True, wanted=False)
    assert [one.state for one in await world.enqueue("b")] == [State.READY]


@pytest.mark.covers("RT-155", "RT-157")
async def test_closed_by_hand_and_closed_by_a_queue_object_are_two_flags(world: World) -> None:
    await world.store.set_closed(world.queue, expected=False, wanted=True)
    await limit(world, rate=RateLimit(5, 1000), closed=True)
    await limit(world)
    assert (await world.store.stats(world.queue)).closed, "a hand closed it, and a hand opens it"
    await limit(world, closed=True)
    assert await world.store.set_closed(world.queue, expected=True, wanted=False)
    assert (await world.store.stats(world.queue)).closed


@pytest.mark.covers("RT-157")
async def test_what_an_operator_wrote_is_its_own_when_it_is_away_but_for_limits_it_has_not(
    world: World,
) -> None:
    mine = OwnerRecord(operator="o", namespace="shop", name="mail", uid="u")
    code = QueueConfig(max_depth=9, rate=RateLimit(5, 1000), concurrency=2, per_key=3)
    configure, queue = world.store.configure, world.queue
    await configure(queue, QueueConfig(generation=3, max_depth=5), mine)
    await world.advance(301)

    assert await configure(queue, code, None) == mine, "its record is gone, its mark is not"
    assert await configure(queue, code, None, how=Writing.LIMITS) is None
    found = await world.store.config(queue)
    assert (found.max_depth, found.rate, found.concurrency, found.per_key) == (5, RateLimit(5, 1000), 2, 3)
    await configure(queue, QueueConfig(generation=4, max_depth=6), mine)
    assert (await world.store.config(queue)).concurrency == 2, "the Queue object says nothing of it"

    assert await configure(queue, QueueConfig(max_depth=7), None, how=Writing.FORCED) is None
    assert await configure(queue, code, None) == mine, "it lives, and it is its queue"
    await world.advance(301)
    assert await configure(queue, QueueConfig(max_depth=8), None, how=Writing.FORCED) is None
    assert await configure(queue, QueueConfig(max_depth=9), None) is None, "nobody's any more"


@pytest.mark.covers("RT-157")
async def test_a_pause_by_hand_lasts_whatever_an_operator_writes(world: World) -> None:
    mine = OwnerRecord(operator="o", namespace="shop", name="mail", uid="u")
    await world.enqueue("a")
    await world.store.set_paused(world.queue, expected=False, wanted=True)

    await world.store.configure(world.queue, QueueConfig(generation=1, held=True), mine)
    await world.store.configure(world.queue, QueueConfig(generation=2), mine)

    assert (await world.claim(1)).refused == "paused"


# --- what is seen


@pytest.mark.covers("RT-156")
async def test_waiting_jobs_are_split_by_what_bars_them(world: World) -> None:
    await limit(world, concurrency=1, rate=RateLimit(1, 60_000))
    await keyed(world, *"abc")
    await world.enqueue("d", "e")
    assert await throttled(world) == {"key": 2}
    assert (await world.store.stats(world.queue)).runnable == 3

    claim = await world.claim_one()
    assert await throttled(world) == {"key": 2, "concurrency": 2}
    assert (await world.store.stats(world.queue)).runnable == 0
    await world.end(claim, Outcome.COMPLETED)
    assert await throttled(world) == {"key": 1, "rate": 3}
    await world.store.set_paused(world.queue, expected=False, wanted=True)
    assert await throttled(world) == {"paused": 4}


@pytest.mark.covers("RT-156", "OP-140")
async def test_a_sample_counts_what_no_worker_may_take_within_its_horizon(world: World) -> None:
    await limit(world, rate=RateLimit(1, 60_000), concurrency=5)
    await keyed(world, *"abc")
    await world.enqueue("d")
    await world.claim(1)

    near = await world.store.sample(world.queue, horizon_ms=10_000)
    far = await world.store.sample(world.queue, horizon_ms=90_000)

    assert (near.ready, near.throttled) == (3, 3)
    assert (far.ready, far.throttled) == (3, 2)
    assert near.throttled_by == {"paused": 0, "rate": 1, "concurrency": 0, "key": 2}
    assert (near.rate, near.concurrency) == (RateLimit(1, 60_000), 5)


@pytest.mark.covers("RT-232")
async def test_figures_per_minute_are_what_happened_and_live_for_48_hours(world: World) -> None:
    await world.enqueue(*"abc", a_job("later", due_in_ms=3_600_000))
    claims = (await world.claim(2)).claims
    await world.settle(*[Settlement(lease=c.lease, outcome=Outcome.COMPLETED) for c in claims])
    await world.store.requeue(world.queue, ANN, [(await world.claim_one()).lease])

    found = await world.store.figures(world.queue, minutes=3)

    assert (sum(one.arrived for one in found), sum(one.finished for one in found)) == (4, 2)
    minutes = [one.minute_ms // 60_000 for one in found]
    assert minutes == list(range(minutes[0], minutes[0] + 3))
    assert minutes[-1] in (await world.store.ping() // 60_000, await world.store.ping() // 60_000 - 1)
    assert len(await world.store.figures(world.queue, minutes=2880)) == 2880
    with pytest.raises(InvalidValue, match="minutes: expected 1 to 2880"):
        await world.store.figures(world.queue, minutes=2881)


@pytest.mark.covers("RT-232")
async def test_an_hour_of_figures_expires_48_hours_after_its_last_minute(redis: RedisWorld) -> None:
    await redis.enqueue("a")
    (hour,) = [key async for key in redis.redis.scan_iter(match=f"{redis.keys.minutes}*")]

    assert 48 * 3600 <= await redis.redis.ttl(hour) <= 49 * 3600


@pytest.mark.covers("RT-231")
async def test_types_beyond_a_thousand_count_as_other(redis: RedisWorld) -> None:
    types = [f"t{n}" for n in range(1010)]
    await redis.redis.hset(
        redis.keys.type_stats, mapping={f"{n}|{letter}": 1 for n in range(1000) for letter in "crfdt"}
    )
    await redis.enqueue(*[a_job(name, type=name) for name in types[:5]])
    claims = (await redis.claim(5)).claims
    await redis.settle(*[Settlement(lease=c.lease, outcome=Outcome.COMPLETED) for c in claims])

    figures = await redis.redis.hgetall(redis.keys.type_stats)

    assert len(figures) <= 5001
    assert figures[b"other|c"] == b"5"
    assert figures[b"7|c"] == b"1"


@pytest.mark.covers("RT-230", "RT-231")
async def test_totals_equal_the_transitions_and_gauges_the_indexes(world: World) -> None:
    await limit(world, concurrency=4)
    await keyed(world, *"abcd", key="k")
    await world.enqueue(*"efghij", a_job("late", due_in_ms=3_600_000))
    outcomes = [Outcome.COMPLETED, Outcome.RETRY, Outcome.DEAD, Outcome.FAILED, Outcome.SNOOZE]
    before: dict[str, int] = {}
    for outcome in outcomes:
        await world.end(await world.claim_one(), outcome, delay_ms=3_600_000)
        totals = await world.totals()
        assert all(totals.get(name, 0) >= number for name, number in before.items()), "a total fell"
        before = totals
    await world.store.requeue(world.queue, ANN, [(await world.claim_one()).lease])

    totals = await world.totals()
    told = [(name, reason) for name, jobs, reason in await world.events() for _ in jobs]
    assert totals["enqueued"] == 11
    assert totals["claimed"] == sum(name == "active" for name, _ in told) == 6
    for state in ("completed", "dead", "failed"):
        assert totals[state] == sum(name == state for name, _ in told) == 1
    assert totals["retried"] == sum(reason == "retry" for _, reason in told) == 1
    assert totals["interrupted:drained"] == sum(reason == "drained" for _, reason in told) == 1
    counts = (await world.store.stats(world.queue)).counts
    assert counts == {state: len(await world.ids(state)) for state in counts} | {State.ACTIVE: 0}


@pytest.mark.covers("RT-230")
async def test_totals_outlive_a_restart_of_the_server() -> None:
    with RedisServer(aof=True) as server:
        world = RedisWorld(RedisStore(server.url), server.url)
        await world.enqueue("a", "b")
        await world.end(await world.claim_one(), Outcome.COMPLETED)
        before = await world.totals()
        await world.close()
        server.kill()
        server.start()
        world = RedisWorld(RedisStore(server.url), server.url)
        assert await world.totals() == before
        await world.close()


# --- on Redis alone


@pytest.mark.covers("RT-073", "RT-153")
async def test_a_job_aside_whose_record_is_gone_holds_nobody_up(redis: RedisWorld) -> None:
    await keyed(redis, *"abc")
    await redis.redis.delete(redis.keys.record("b"))

    await redis.end(await redis.claim_one(), Outcome.COMPLETED)

    assert ids(await redis.claim(5)) == ["c"]
    assert (await redis.totals())["orphans"] == 1


@pytest.mark.covers("RT-153")
async def test_two_thousand_jobs_of_a_full_key_do_not_hold_up_another(redis: RedisWorld) -> None:
    await keyed(redis, *[f"n{n}" for n in range(2000)])
    await redis.enqueue("z")

    assert ids(await redis.claim(2)) == ["n0", "z"]


@pytest.mark.covers("RT-061", "FM-26")
async def test_a_full_redis_finishes_the_running_work_of_a_queue_with_limits() -> None:
    with RedisServer() as server:
        world = RedisWorld(RedisStore(server.url), server.url)
        await limit(world, rate=RateLimit(50, 60_000), concurrency=5)
        await keyed(world, *"abcd")
        await keyed(world, "x", "y", key="l")
        first = (await world.claim(2)).claims
        await world.redis.config_set("maxmemory", "1")

        assert ids(await world.claim(5)) == []
        settled = await world.settle(
            *[Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in first], claim_next=1
        )
        assert ids(settled.claimed) == ["b"]
        assert await world.store.cancel(world.queue, "y") == "cancelled"
        await world.store.requeue(world.queue, ANN, [settled.claimed.claims[0].lease])
        await world.store.expire(world.queue)
        await world.store.reap(world.queue)
        assert ids(await world.claim(5)) == ["b"]
        await world.redis.config_set("maxmemory", "0")
        await world.enqueue("z")
        assert ids(await world.claim(5)) == ["z"]
        await world.close()


@pytest.mark.covers("RT-150")
async def test_a_rate_keeps_a_hundred_buckets_at_most(redis: RedisWorld) -> None:
    await limit(redis, rate=RateLimit(1_000, 60_000))
    await redis.enqueue("a")
    now = await redis.store.ping() // 600
    old = {str(now - age): 1 for age in range(1, 180)}
    await redis.redis.hset(redis.keys.rate, mapping={"w": 600, **old})

    assert ids(await redis.claim(1)) == ["a"]

    kept = await redis.redis.hgetall(redis.keys.rate)
    starts = {int(bucket): int(count) for bucket, count in kept.items() if bucket != b"w"}
    assert 100 <= len(starts) <= 102
    assert sum(starts.values()) == len(starts), "each bucket that still counts, and the start of now"


@pytest.mark.covers("RT-150")
async def test_a_clock_that_was_set_back_bars_the_rate_for_one_period_at_most(redis: RedisWorld) -> None:
    await limit(redis, rate=RateLimit(1, 60_000))
    await redis.enqueue("a", "b")
    await redis.claim(1)
    await redis.advance(-86_400)

    claimed = await redis.claim(1)
    assert claimed.next_at_ms is not None
    assert claimed.next_at_ms - claimed.now_ms <= 61_000
