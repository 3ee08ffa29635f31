"""Unique and idempotency keys, and jobs that repeat: the same on every store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dockwork.core.states import State
from dockwork.core.unique import key_hash
from dockwork.store.protocol import (
    Admission,
    Admitted,
    JobKeys,
    NewJob,
    OnConflict,
    Outcome,
    QueueConfig,
    Settlement,
)
from support.store_world import BOB, RedisWorld, World, a_failure, a_job

LOCK = key_hash("order-7")
KEEP, REPLACE, DEBOUNCE, REJECT = OnConflict


def locked(job_id: str, conflict: OnConflict = KEEP, **more: Any) -> NewJob:
    keys = {"unique": LOCK, "on_conflict": conflict}
    keys |= {name: more.pop(name) for name in ("until", "ttl_ms", "unique") if name in more}
    return a_job(job_id, keys=JobKeys(**keys), **more)


def keyed(job_id: str, digest: str = "aa", ttl_ms: int = 60_000, **more: Any) -> NewJob:
    keys = JobKeys(idempotency=key_hash("k"), idempotency_ttl_ms=ttl_ms, digest=digest)
    return a_job(job_id, keys=keys, **more)


def known(job_id: str, state: State | None, reason: str = "") -> Admission:
    return Admission(id=job_id, outcome=Admitted.DUPLICATE, state=state, reason=reason)


def refused(job_id: str, reason: str, holder: str) -> Admission:
    return Admission(id=job_id, outcome=Admitted.REJECTED, reason=reason, holder=holder)


@pytest.mark.covers("RT-009")
async def test_a_unique_key_keeps_the_job_that_is_there(world: World) -> None:
    await world.enqueue(locked("a"))

    got = await world.enqueue(locked("b"), a_job("c"), locked("d", REJECT))

    assert got == [
        known("a", State.READY),
        Admission(id="c", outcome=Admitted.ACCEPTED, state=State.READY),
        refused("d", "unique", "a"),
    ]
    assert await world.ids(State.READY) == ["a", "c"]
    assert (await world.totals())["rejected:unique"] == 1


@pytest.mark.covers("RT-009")
async def test_a_key_twice_in_one_call_is_a_duplicate(world: World) -> None:
    got = await world.enqueue(locked("a"), locked("b"), locked("c", REJECT), locked("d", DEBOUNCE))

    assert got[1:] == [
        known("a", State.READY),
        refused("c", "unique", "a"),
        known("a", State.READY, "debounced"),
    ]
    assert await world.ids(State.READY) == ["a"]


@pytest.mark.covers("RT-009", "FM-52")
@pytest.mark.parametrize("ending", ["complete", "discard", "cancel", "expire", "bury"])
async def test_a_lock_until_finish_is_free_when_its_job_has_ended(world: World, ending: str) -> None:
    await world.enqueue(locked("a", max_deliveries=1, expires_in_ms=5000 if ending == "expire" else None))
    if ending == "cancel":
        await world.store.cancel(world.queue, "a")
    elif ending == "expire":
        await world.advance(6)
        await world.store.expire(world.queue)
    else:
        claim = await world.claim_one()
        assert (await world.enqueue(locked("b")))[0] == known("a", State.ACTIVE)
        assert (await world.enqueue(locked("b", REPLACE)))[0] == refused("b", "unique", "a")
        if ending == "bury":
            await world.lose_leases()
            await world.store.reap(world.queue)
        else:
            await world.end(claim, Outcome.COMPLETED if ending == "complete" else Outcome.FAILED)

    got = await world.enqueue(locked("b"))

    assert got == [Admission(id="b", outcome=Admitted.ACCEPTED, state=State.READY)]


@pytest.mark.covers("RT-009")
async def test_a_lock_until_start_is_free_once_its_job_was_claimed(world: World) -> None:
    await world.enqueue(locked("a", until="start"))
    assert (await world.enqueue(locked("b", until="start")))[0] == known("a", State.READY)
    claim = await world.claim_one()

    assert (await world.enqueue(locked("b", until="start")))[0].outcome is Admitted.ACCEPTED
    await world.end(claim, Outcome.RETRY, failure=a_failure())
    assert (await world.enqueue(locked("c", until="start")))[0] == known("b", State.READY)


@pytest.mark.covers("RT-009")
async def test_a_lock_by_time_ends_by_time_alone(world: World) -> None:
    await world.enqueue(locked("a", until="ttl", ttl_ms=60_000, keep="none"))
    await world.end(await world.claim_one(), Outcome.COMPLETED)

    assert (await world.enqueue(locked("b", until="ttl", ttl_ms=60_000)))[0] == known("a", None)
    await world.advance(61)
    assert (await world.enqueue(locked("b", until="ttl", ttl_ms=60_000)))[0].outcome is Admitted.ACCEPTED


@pytest.mark.covers("RT-009")
async def test_replace_gives_the_waiting_job_new_arguments_at_its_place(world: World) -> None:
    await world.enqueue(locked("a", expires_in_ms=90_000), a_job("b"))
    new = replace(locked("x", REPLACE), envelope=b'{"n":2}', timeout_ms=5000)

    got = await world.enqueue(new)

    assert got == [known("a", State.READY, "replaced")]
    view = await world.get("a")
    assert (view.envelope, view.expires_ms) == (b'{"n":2}', None)
    assert await world.ids(State.READY) == ["a", "b"]
    claim = await world.claim_one()
    assert (claim.job_id, claim.envelope, claim.timeout_ms) == ("a", b'{"n":2}', 5000)
    stats = await world.store.stats(world.queue)
    assert stats.bytes == len(b'{"n":2}') + len(a_job("b").envelope)
    assert (stats.totals["enqueued"], stats.totals["replaced"]) == (2, 1)
    assert ("ready", ("a",), "replaced") in await world.events()


@pytest.mark.covers("RT-009")
async def test_replace_keeps_when_the_job_is_due(world: World) -> None:
    await world.enqueue(locked("a", due_in_ms=60_000))
    due = (await world.get("a")).due_ms

    got = await world.enqueue(locked("x", REPLACE))

    assert got == [known("a", State.DELAYED, "replaced")]
    assert (await world.get("a")).due_ms == due


@pytest.mark.covers("RT-009")
async def test_debounce_begins_the_delay_anew_with_the_new_arguments(world: World) -> None:
    await world.enqueue(locked("a", DEBOUNCE, due_in_ms=60_000))
    await world.advance(50)
    new = replace(locked("x", DEBOUNCE, due_in_ms=60_000), envelope=b"{}")

    assert await world.enqueue(new) == [known("a", State.DELAYED, "debounced")]
    await world.advance(50)
    assert (await world.claim(1)).claims == ()
    await world.advance(11)
    claim = await world.claim_one()
    assert (claim.job_id, claim.envelope) == ("a", b"{}")


@pytest.mark.covers("RT-009")
async def test_new_arguments_forget_what_the_old_ones_did(world: World) -> None:
    await world.enqueue(locked("a"))
    claim = await world.claim_one()
    await world.store.checkpoint(world.queue, claim.lease, b"3")
    await world.end(claim, Outcome.RETRY, delay_ms=60_000, failure=a_failure())

    await world.enqueue(locked("x", DEBOUNCE))

    again = await world.claim_one()
    assert (again.job_id, again.attempts, again.deliveries, again.checkpoint) == ("a", 0, 1, None)
    assert again.lease.epoch > claim.lease.epoch


@pytest.mark.covers("RT-009")
async def test_a_full_queue_still_lets_a_waiting_job_take_new_arguments(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(max_depth=1), None)
    await world.enqueue(locked("a"))

    assert (await world.enqueue(locked("x", REPLACE)))[0] == known("a", State.READY, "replaced")
    assert (await world.enqueue(a_job("b")))[0].reason == "depth"


@pytest.mark.covers("RT-008")
async def test_an_idempotency_key_answers_its_first_admission_for_its_time(world: World) -> None:
    await world.enqueue(keyed("a", keep="none"))
    assert (await world.enqueue(keyed("b")))[0] == known("a", State.READY)
    await world.end(await world.claim_one(), Outcome.COMPLETED)

    assert (await world.enqueue(keyed("b")))[0] == known("a", None)
    assert (await world.enqueue(keyed("b", digest="bb")))[0] == refused("b", "key_reuse", "a")
    await world.advance(61)
    assert (await world.enqueue(keyed("b", digest="bb")))[0].outcome is Admitted.ACCEPTED


@pytest.mark.covers("RT-008")
async def test_an_idempotency_key_twice_in_one_call(world: World) -> None:
    got = await world.enqueue(keyed("a"), keyed("b"), keyed("c", digest="bb"))

    assert got[1:] == [known("a", State.READY), refused("c", "key_reuse", "a")]
    assert await world.ids(State.READY) == ["a"]


@pytest.mark.covers("RT-008")
async def test_a_refused_job_uses_up_no_key(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(closed=True), None)
    assert (await world.enqueue(keyed("a"), locked("b")))[1].reason == "closed"
    await world.store.configure(world.queue, QueueConfig(), None)

    got = await world.enqueue(keyed("c", digest="bb"), locked("d"))

    assert [one.outcome for one in got] == [Admitted.ACCEPTED, Admitted.ACCEPTED]


@pytest.mark.covers("RT-013", "FM-44")
async def test_a_job_repeats_until_its_times_are_over_whatever_its_retries_are(world: World) -> None:
    await world.enqueue(a_job("a", repeat=3, max_attempts=1))
    now = await world.store.ping()
    for repeated in range(2):
        claim = await world.claim_one()
        assert (claim.repeated, claim.attempts, claim.deliveries) == (repeated, 0, 1)
        # The first run succeeds, the second has used its retries up: both are followed by another.
        outcome, failure = (Outcome.COMPLETED, None) if repeated == 0 else (Outcome.DEAD, a_failure())
        await world.settle(
            Settlement(lease=claim.lease, outcome=outcome, failure=failure, result=b"1", next_due_ms=now)
        )
        assert (await world.get("a")).state is State.READY  # due at once, and promoted in the same call
    claim = await world.claim_one()
    assert claim.repeated == 2
    await world.settle(Settlement(lease=claim.lease, outcome=Outcome.COMPLETED, next_due_ms=now))

    assert (await world.get("a")).state is State.COMPLETED
    names = [(name, reason) for name, _, reason in await world.events()]
    assert names.count(("delayed", "repeat")) == 2
    assert (await world.totals())["repeated"] == 2


@pytest.mark.covers("RT-013")
async def test_a_repeat_without_an_end_waits_for_its_time_and_ends_by_cancel(world: World) -> None:
    await world.enqueue(a_job("a", repeat=0))
    for _ in range(6):
        claim = await world.claim_one()
        due = await world.store.ping() + 30_000
        await world.settle(Settlement(lease=claim.lease, outcome=Outcome.COMPLETED, next_due_ms=due))
        assert (await world.claim(1)).claims == ()
        await world.advance(31)

    assert await world.store.cancel(world.queue, "a") == "cancelled"


@pytest.mark.covers("RT-009", "RT-013")
async def test_a_job_that_repeats_keeps_its_lock_between_its_runs(world: World) -> None:
    await world.enqueue(locked("a", repeat=2))
    claim = await world.claim_one()
    now = await world.store.ping()
    await world.settle(Settlement(lease=claim.lease, outcome=Outcome.COMPLETED, next_due_ms=now))

    assert (await world.enqueue(locked("b")))[0] == known("a", State.READY)


@pytest.mark.covers("RT-009", "FM-52")
async def test_a_lock_whose_job_is_gone_is_void(redis: RedisWorld) -> None:
    await redis.enqueue(locked("a"))
    await redis.redis.delete(redis.keys.record("a"))

    assert (await redis.enqueue(locked("b")))[0].outcome is Admitted.ACCEPTED


@pytest.mark.covers("RT-009", "RT-008")
async def test_keys_in_redis_end_with_what_they_are_for(redis: RedisWorld) -> None:
    await redis.enqueue(locked("a"), keyed("b", ttl_ms=86_400_000))
    left = await redis.redis.pttl(redis.keys.idempotency + key_hash("k"))
    claims = (await redis.claim(2, owner=BOB)).claims
    await redis.settle(
        *[Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in claims], owner=BOB
    )

    assert 86_000_000 < left <= 86_400_000
    assert await redis.redis.exists(redis.keys.unique + LOCK) == 0


async def test_jobs_without_keys_go_through_the_plain_script(redis: RedisWorld) -> None:
    await redis.redis.config_resetstat()
    await redis.enqueue(a_job("a", repeat=2))
    claim = await redis.claim_one()
    await redis.end(claim, Outcome.COMPLETED)

    stats = await redis.redis.info("commandstats")
    assert "cmdstat_set" not in stats
    assert "cmdstat_get" not in stats or stats["cmdstat_get"]["calls"] <= 2  # the cold flag
