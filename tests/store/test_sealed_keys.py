"""What seals which job, at the stores' own level: alike on Redis, Valkey, a Cluster and in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dockwork.core.states import State
from dockwork.store.protocol import (
    Acted,
    JobKeys,
    Lease,
    NewJob,
    OnConflict,
    Outcome,
    Reseal,
    Resealed,
    Resealing,
)
from support.store_world import ANN, RedisWorld, World, a_failure, a_job

TEXT = "dwe1:{}:" + "A" * 40


def whole(key: str) -> bytes:
    """A checkpoint or a result that is sealed by `key`."""
    return json.dumps(TEXT.format(key)).encode()


async def counts(world: World) -> dict[str, int]:
    return dict(await world.store.key_ids(world.queue))


async def seals(world: World, job_id: str = "a") -> str:
    return (await world.get(job_id)).sealed


@pytest.mark.covers("RT-182")
async def test_new_jobs_count_once_per_key_and_known_ones_not_again(world: World) -> None:
    await world.enqueue(
        a_job("a", sealed="k1"), a_job("b", sealed="k1"), a_job("c"), a_job("d", sealed="k1,k2")
    )
    await world.enqueue(a_job("a", sealed="k9"))

    assert await counts(world) == {"k1": 3, "k2": 1}
    assert [await seals(world, one) for one in "abcd"] == ["ak1", "ak1", "", "ak1,ak2"]


@pytest.mark.covers("RT-182", "RT-173")
async def test_each_part_of_a_job_has_its_key_through_retry_checkpoint_and_result(world: World) -> None:
    await world.enqueue(a_job("a", sealed="k1"))
    claim = await world.claim_one()
    await world.store.checkpoint(world.queue, claim.lease, whole("k2"))
    assert (await seals(world), await counts(world)) == ("ak1,ck2", {"k1": 1, "k2": 1})

    again = Resealed("ak3,ck3", b'{"new":1}', whole("k3"))
    await world.end(claim, Outcome.RETRY, failure=a_failure(), resealed=again)
    view = await world.get("a")
    assert (view.sealed, view.envelope, view.checkpoint) == ("ak3,ck3", b'{"new":1}', whole("k3"))
    assert view.revision == 1
    assert await counts(world) == {"k3": 1}
    assert (await world.store.stats(world.queue)).bytes == len(b'{"new":1}')

    await world.store.promote(world.queue, ["a"])
    claim = await world.claim_one()
    assert (claim.envelope, claim.checkpoint) == (b'{"new":1}', whole("k3"))
    await world.store.checkpoint(world.queue, claim.lease, b"7")
    assert await seals(world) == "ak3"
    await world.end(claim, Outcome.COMPLETED, result=whole("k4"), resealed=Resealed("rk4"))
    assert (await seals(world), await counts(world)) == ("rk4", {"k4": 1})


@pytest.mark.covers("RT-182")
@pytest.mark.parametrize("outcome", [Outcome.DEAD, Outcome.FAILED, Outcome.CANCELLED, Outcome.SNOOZE])
async def test_what_stays_keeps_its_key_and_what_is_withheld_loses_it(world: World, outcome: Outcome) -> None:
    await world.enqueue(a_job("a", sealed="k1"), a_job("b", sealed="k1"))
    first, second = (await world.claim()).claims
    await world.end(first, outcome, delay_ms=60_000)
    await world.end(second, outcome, delay_ms=60_000, resealed=Resealed("a", b"{}"))

    assert [await seals(world, one) for one in "ab"] == ["ak1", ""]
    assert (await world.get("b")).envelope == b"{}"
    assert await counts(world) == {"k1": 1}
    assert not (await world.store.repair(world.queue)).counters


@pytest.mark.covers("RT-182")
async def test_what_goes_takes_its_count_along(world: World) -> None:
    await world.enqueue(
        a_job("gone", sealed="k1", keep="none"), a_job("kept", sealed="k1"), a_job("old", sealed="k1")
    )
    for claim in (await world.claim()).claims:
        sealed = Resealed("rk1") if claim.job_id == "gone" else None
        await world.end(claim, Outcome.COMPLETED, result=whole("k1") if sealed else b"1", resealed=sealed)
    assert await counts(world) == {}

    await world.enqueue(a_job("dead", sealed="k1"))
    await world.end(await world.claim_one(), Outcome.DEAD)
    assert await counts(world) == {"k1": 1}
    await world.advance(8 * 24 * 3600)
    await world.store.trim(world.queue)
    assert await counts(world) == {}


@pytest.mark.covers("RT-182")
async def test_a_job_that_takes_anothers_place_brings_its_own_key(world: World) -> None:
    def keyed(job_id: str, key: str) -> NewJob:
        keys = JobKeys(unique="0" * 32, until="finish", on_conflict=OnConflict.REPLACE)
        return a_job(job_id, sealed=key, keys=keys)

    await world.enqueue(keyed("a", "k1"))
    await world.enqueue(keyed("b", "k2"))

    assert (await seals(world, "a"), await counts(world)) == ("ak2", {"k2": 1})


@pytest.mark.covers("RT-183")
async def test_reseal_needs_the_job_as_it_was_read(world: World) -> None:
    await world.enqueue(a_job("a", sealed="k1"), a_job("run", sealed="k1"), a_job("z", type="plain"))
    running = (await world.claim(2)).claims
    await world.store.requeue(world.queue, ANN, [Lease("a", running[0].lease.epoch)])
    page = await world.store.sealed(world.queue, State.READY, offset=0, key="k2", types=["plain"])
    assert [(job.id, job.type) for job in page.jobs] == [("a", "t"), ("z", "plain")]
    assert page.looked == 2
    digests = {job.id: job.digest for job in page.jobs}

    def change(job_id: str, digest: str) -> Reseal:
        return Reseal(id=job_id, digest=digest, keys="ak2", envelope=b'{"longer":"than before"}')

    asked = [change("a", digests["a"]), change("a", digests["a"]), change("run", "x"), change("no", "x")]
    said = await world.store.reseal(world.queue, asked)

    assert said == [Resealing.OK, Resealing.CONFLICTED, Resealing.RUNNING, Resealing.MISSING]
    assert (await world.get("a")).revision == 1
    assert await counts(world) == {"k1": 1, "k2": 1}
    assert not (await world.store.repair(world.queue)).counters


@pytest.mark.covers("RT-173")
async def test_a_redrive_writes_what_it_is_given_in_the_same_step(world: World) -> None:
    await world.enqueue(a_job("a", sealed="k1"))
    claim = await world.claim_one()
    await world.store.checkpoint(world.queue, claim.lease, whole("k1"))
    await world.end(claim, Outcome.DEAD)
    fresh = {"a": Resealed("ak2,ck2", b'{"fresh":1}', whole("k2"))}

    assert await world.store.redrive(world.queue, [("a", "0" * 40)], fresh) == [Acted.CONFLICTED]
    assert await counts(world) == {"k1": 1}
    assert await world.store.redrive(world.queue, [("a", "")], fresh) == [Acted.OK]

    view = await world.get("a")
    assert (view.state, view.envelope, view.checkpoint) == (State.READY, b'{"fresh":1}', whole("k2"))
    assert (view.sealed, await counts(world)) == ("ak2,ck2", {"k2": 1})
    assert (await world.store.stats(world.queue)).bytes == len(b'{"fresh":1}')


@pytest.mark.covers("RT-171")
async def test_jobs_without_sealed_values_leave_no_trace_of_keys(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b", a_job("c", priority=3))
    for claim in (await redis.claim()).claims:
        await redis.end(claim, Outcome.COMPLETED, result=b"1")

    kept: dict[str, Any] = await redis.dump()
    assert redis.keys.key_ids not in kept
    assert all(b"z" not in value for value in kept.values() if isinstance(value, dict))
