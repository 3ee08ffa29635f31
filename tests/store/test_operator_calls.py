"""What the operator says to a queue and reads from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.store.protocol import (
    Admission,
    Admitted,
    CronEntry,
    Outcome,
    OwnerRecord,
    QueueConfig,
    SampleRequest,
    WorkerState,
)
from support.store_world import ANN, BOB, RedisWorld, World, a_beat, a_job

MINE = OwnerRecord(operator="lease-1", namespace="shop", name="mail", uid="uid-1")
FULL = QueueConfig(
    generation=4,
    held=True,
    closed=True,
    timeout_ms=1000,
    max_timeout_ms=2000,
    max_attempts=3,
    max_deliveries=4,
    backoff='{"kind":"exponential","base_ms":1000,"max_ms":3600000,"jitter_percent":100}',
    max_depth=10,
    max_bytes=1000,
    max_payload=100,
    lease_ms=20_000,
    keep={"completed_age_ms": 1, "completed_count": 2, "failed_age_ms": 3, "failed_count": -1, "bytes": 5},
)


@pytest.mark.covers("OP-027")
async def test_options_come_back_as_they_were_written_with_a_revision(world: World) -> None:
    assert await world.store.config(world.queue) == QueueConfig()

    assert await world.store.configure(world.queue, FULL, MINE) is None
    assert await world.store.config(world.queue) == replace(FULL, revision=1)
    await world.store.configure(world.queue, FULL, MINE)
    assert (await world.store.config(world.queue)).revision == 1, "nothing changed"
    await world.store.configure(world.queue, QueueConfig(generation=5, max_depth=11), MINE)
    assert await world.store.config(world.queue) == QueueConfig(generation=5, max_depth=11, revision=2)


async def test_workers_learn_of_new_options_with_their_next_beat_and_claim(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(timeout_ms=5), None)

    assert (await world.store.renew(world.queue, [], a_beat())).config_revision == 1
    assert (await world.claim(1)).config_revision == 1


@pytest.mark.covers("OP-022")
async def test_a_second_queue_object_is_refused_and_writes_nothing(redis: RedisWorld) -> None:
    await redis.store.configure(redis.queue, QueueConfig(max_depth=5), MINE)
    before = await redis.dump()

    other = OwnerRecord(operator="lease-1", namespace="shop", name="post", uid="uid-2")
    assert await redis.store.configure(redis.queue, QueueConfig(max_depth=9), other) == MINE
    assert await redis.store.configure(redis.queue, QueueConfig(max_depth=9), None) == MINE

    assert await redis.dump() == before


@pytest.mark.covers("OP-022")
async def test_who_may_take_a_queue_over_and_when(world: World) -> None:
    again = replace(MINE, uid="uid-9")
    reinstalled = replace(MINE, operator="lease-2")
    stranger = OwnerRecord(operator="lease-3", namespace="else", name="where", uid="uid-3")
    configure, queue, plain = world.store.configure, world.queue, QueueConfig()
    await configure(queue, plain, MINE)

    assert await configure(queue, plain, again) is None, "the same operator, namespace and name: at once"
    await configure(queue, plain, MINE)
    assert await configure(queue, plain, reinstalled) == MINE, "another operator: not while it is renewed"
    await world.advance(16)
    assert await configure(queue, plain, stranger) == MINE
    assert await configure(queue, plain, reinstalled) is None, "the same uid after 15 s without renewal"
    await world.advance(299)
    assert await configure(queue, plain, stranger) == reinstalled
    await configure(queue, plain, reinstalled)
    await world.advance(301)
    assert await configure(queue, plain, stranger) is None, "anybody after the record has expired"


async def test_limits_refuse_what_exceeds_them_and_say_by_how_much(world: World) -> None:
    limits = QueueConfig(max_depth=2, max_payload=40, max_timeout_ms=1000)
    await world.store.configure(world.queue, limits, MINE)

    admitted = await world.enqueue(
        "a", a_job("large", envelope=b"x" * 41), a_job("long", timeout_ms=1001), "b", "c"
    )

    rejected = Admitted.REJECTED
    assert admitted == [
        Admission(id="a", outcome=Admitted.ACCEPTED, state=State.READY),
        Admission(id="large", outcome=rejected, reason="payload", current=41, limit=40),
        Admission(id="long", outcome=rejected, reason="timeout", current=1001, limit=1000),
        Admission(id="b", outcome=Admitted.ACCEPTED, state=State.READY),
        Admission(id="c", outcome=rejected, reason="depth", current=2, limit=2),
    ]
    totals = await world.totals()
    assert [totals[f"rejected:{reason}"] for reason in ("payload", "timeout", "depth")] == [1, 1, 1]
    await world.enqueue(a_job("large", envelope=b"x" * 41), "c")
    totals = await world.totals()
    assert [totals[f"rejected:{reason}"] for reason in ("payload", "depth")] == [2, 2], (
        "all of a call refused"
    )


async def test_depth_and_bytes_count_jobs_that_have_not_ended(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(max_depth=3, max_bytes=30), None)
    ten = b"0123456789"
    await world.enqueue(a_job("a", envelope=ten), a_job("b", envelope=ten, due_in_ms=9000))
    claim = await world.claim_one()
    (parks,) = await world.enqueue(a_job("c", envelope=ten))
    refused = await world.enqueue(a_job("d", envelope=ten))
    await world.end(claim, Outcome.COMPLETED)
    accepted = await world.enqueue(a_job("d", envelope=ten))

    assert parks.outcome is Admitted.ACCEPTED
    assert [one.reason for one in refused] == ["depth"]
    assert [one.outcome for one in accepted] == [Admitted.ACCEPTED]
    await world.store.configure(world.queue, QueueConfig(max_bytes=30), None)
    (full,) = await world.enqueue(a_job("e", envelope=ten))
    assert (full.reason, full.current, full.limit) == ("bytes", 30, 30)


async def test_a_closed_queue_takes_nothing_and_goes_on_with_what_it_has(world: World) -> None:
    await world.enqueue("a")
    await world.store.configure(world.queue, QueueConfig(closed=True), None)

    (refused,) = await world.enqueue("b")

    assert (refused.outcome, refused.reason) == (Admitted.REJECTED, "closed")
    assert (await world.claim_one()).job_id == "a"


async def test_a_held_queue_hands_nothing_out(world: World) -> None:
    await world.enqueue("a")
    await world.store.configure(world.queue, QueueConfig(held=True), None)

    assert (await world.claim(1)).refused == "held"
    assert (await world.store.sample(world.queue, horizon_ms=0)).held


async def test_the_queues_lease_length_holds_for_claims_and_renewals(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(lease_ms=60_000), None)
    await world.enqueue("a")
    claim = await world.claim_one()

    renewal = await world.store.renew(world.queue, [claim.lease], a_beat())

    assert renewal.expires_ms - renewal.now_ms == 60_000


async def test_the_queues_max_deliveries_bury(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(max_deliveries=1), None)
    await world.enqueue("a")
    await world.claim_one()
    await world.lose_leases()

    assert await world.store.reap(world.queue) == (0, 1)


@pytest.mark.covers("OP-143", "OP-146", "OP-148")
async def test_a_sample_shows_the_queue(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(generation=7), MINE)
    await world.store.register(world.queue, "hash-1", {"t": ("abc", b"{}")})
    await world.enqueue(
        "a", "b", "dies", a_job("p", priority=3), a_job("soon", due_in_ms=20_000), a_job("far", due_in_ms=90_000),
        a_job("parks", priority=-2),
    )  # fmt: skip
    await world.end(await world.claim_one(), Outcome.PARKED, park_type="x")
    first, second, third = (await world.claim(3)).claims
    await world.end(third, Outcome.DEAD)
    await world.store.renew(
        world.queue,
        [first.lease, second.lease],
        a_beat(ANN, busy=2, jobs=(("a", 1, 2),), schemas={"t": "abc"}),
    )
    await world.store.quiesce(world.queue, {BOB.pod: "tok"})
    await world.advance(10)

    sample = await world.store.sample(world.queue, horizon_ms=15_000, template_hash="hash-1")

    assert (sample.ready, sample.prioritized, sample.delayed, sample.active) == (0, 1, 2, 2)
    assert (sample.due, sample.due_soon, sample.parked, sample.dead) == (0, 1, 1, 1)
    assert (sample.entered, sample.finished) == (5, 1)
    assert 10_000 <= sample.oldest_ms < 20_000
    assert sample.bytes == sum(len(a_job(name).envelope) for name in ("a", "b", "p", "soon", "far", "parks"))
    assert (sample.paused, sample.held, sample.closed) == (False, False, False)
    assert (sample.owner, sample.config_generation) == (MINE, 7)
    assert (sample.template_known, sample.parked_types, sample.parked_first) == (True, {"x": 1}, "parks")
    assert (sample.quiesced, sample.leased) == ({BOB.pod: "tok"}, {ANN.pod: 2})
    (beat,) = sample.workers
    assert replace(beat, beat_ms=0) == a_beat(ANN, busy=2, jobs=(("a", 1, 2),), schemas={"t": "abc"})
    assert 10_000 <= sample.time_ms - beat.beat_ms < 15_000
    assert not (await world.store.sample(world.queue, horizon_ms=0, template_hash="other")).template_known


@pytest.mark.covers("OP-143")
async def test_entered_counts_whatever_becomes_claimable_and_finished_every_end_of_a_run(
    world: World,
) -> None:
    await world.enqueue("a", a_job("later", due_in_ms=1000))  # 1 entered
    await world.store.requeue(world.queue, ANN, [(await world.claim_one()).lease])  # put back: 2
    await world.end(await world.claim_one(), Outcome.RETRY, delay_ms=1000)  # finished 1
    await world.advance(2)
    await world.store.promote(world.queue)  # retry and delayed: 4
    for claim in (await world.claim(2)).claims:
        await world.end(claim, Outcome.COMPLETED)  # finished 3

    sample = await world.store.sample(world.queue, horizon_ms=0)

    assert (sample.entered, sample.finished) == (4, 3)


async def test_samples_of_many_queues_come_in_order(world: World) -> None:
    await world.enqueue("a")
    nothing = QueueName("shop", "nothing")

    first, second, third = await world.store.samples(
        [SampleRequest(queue=name, horizon_ms=0) for name in (nothing, world.queue, nothing)]
    )

    assert [getattr(sample, "ready", None) for sample in (first, second, third)] == [0, 1, 0]


async def test_a_queue_whose_data_is_broken_has_its_error_and_the_others_their_sample(
    redis: RedisWorld,
) -> None:
    broken = QueueName("shop", "broken")
    await redis.redis.set("dw:{shop/broken}:ready", "not a sorted set")
    await redis.enqueue("a")

    bad, good = await redis.store.samples(
        [SampleRequest(queue=name, horizon_ms=0) for name in (broken, redis.queue)]
    )

    assert "WRONGTYPE" in str(bad)
    assert getattr(good, "ready", None) == 1


@pytest.mark.covers("OP-146")
async def test_ticks_due_within_the_horizon_count_as_due_soon(world: World) -> None:
    entry = CronEntry(uid="u1", schedule_hash="s", job=a_job("tick"))
    now = await world.store.ping()
    await world.store.plan(world.queue, entry, [now + 30_000, now + 60_000], generation=1, reset=True)

    near = await world.store.sample(world.queue, horizon_ms=10_000)
    far = await world.store.sample(world.queue, horizon_ms=40_000)

    assert (near.due_soon, far.due_soon) == (0, 1)


@pytest.mark.covers("OP-160", "OP-163")
async def test_a_quiesced_pod_gets_nothing_and_the_answer_says_what_it_still_holds(world: World) -> None:
    await world.enqueue("a", "b", "c")
    claims = (await world.claim(2, owner=ANN)).claims

    assert await world.store.quiesce(world.queue, {ANN.pod: "t1", BOB.pod: "t1"}) == {ANN.pod: 2, BOB.pod: 0}

    assert (await world.store.renew(world.queue, [], a_beat(ANN))).quiesce == "t1"
    settled = await world.end(claims[0], Outcome.COMPLETED)
    assert (settled.verdicts[0], settled.claimed.claims) == ("ok", ())
    again = await world.store.settle(world.queue, ANN, [], number=world.number(), claim_next=5)
    assert (again.claimed.refused, again.claimed.claims) == ("quiesced", ())
    assert await world.store.quiesce(world.queue, {ANN.pod: "t1"}) == {ANN.pod: 1}
    await world.end(claims[1], Outcome.COMPLETED)
    assert await world.store.quiesce(world.queue, {ANN.pod: "t1"}) == {ANN.pod: 0}


@pytest.mark.covers("OP-162", "OP-164")
async def test_a_quiesce_ends_by_itself_or_by_word(world: World) -> None:
    await world.enqueue("a", "b")
    await world.store.quiesce(world.queue, {ANN.pod: "t1", BOB.pod: "t2"})

    await world.store.unquiesce(world.queue, [ANN.pod])
    assert (await world.claim(1, owner=ANN)).refused == ""
    assert (await world.claim(1, owner=BOB)).refused == "quiesced"
    await world.advance(61)
    assert (await world.claim(1, owner=BOB)).refused == ""
    assert (await world.store.renew(world.queue, [], a_beat(BOB))).quiesce == ""


async def test_a_worker_that_leaves_is_seen_no_more_and_its_figures_stay(world: World) -> None:
    await world.store.renew(world.queue, [], a_beat(ANN))
    last = a_beat(ANN, state=WorkerState.DRAINING, drained=3, requeued=2, lost=1)

    await world.store.leave(world.queue, ANN, last)

    sample = await world.store.sample(world.queue, horizon_ms=0)
    assert sample.workers == ()
    assert [sample.totals[name] for name in ("drained", "abandoned", "lost")] == [3, 2, 1]


async def test_a_silent_worker_is_forgotten_after_a_minute(world: World) -> None:
    await world.store.renew(world.queue, [], a_beat(ANN))
    await world.advance(61)
    await world.store.renew(world.queue, [], a_beat(BOB))

    await world.store.trim(world.queue)

    workers = (await world.store.sample(world.queue, horizon_ms=0)).workers
    assert [beat.owner for beat in workers] == [str(BOB)]


@pytest.mark.covers("OP-023")
async def test_the_server_tells_its_version_policy_and_memory(world: World) -> None:
    server = await world.store.server()

    assert server["policy"] == "noeviction"
    assert int(server["version"].split(".")[0]) >= 6
    assert server["used_memory"] > 0
    assert len(server["run_id"]) == 40


@pytest.mark.covers("OP-022", "OP-148")
async def test_an_owner_record_that_is_gone_shows_in_the_sample(redis: RedisWorld) -> None:
    await redis.store.configure(redis.queue, QueueConfig(), MINE)
    assert (await redis.store.sample(redis.queue, horizon_ms=0)).owner == MINE

    await redis.redis.flushall()

    assert (await redis.store.sample(redis.queue, horizon_ms=0)).owner is None
