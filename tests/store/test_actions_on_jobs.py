"""What people do to single jobs: cancel by force, redrive, edit, promote; the same on every store."""

from __future__ import annotations

from typing import Any

import pytest

from dockwork.core.states import State
from dockwork.errors import InvalidValue, QueueFull, SchemaMismatch, TooLarge
from dockwork.store.protocol import Acted, JobChange, JobKeys, Outcome, QueueConfig, Verdict
from support.store_world import ANN, BOB, World, a_beat, a_failure, a_job


@pytest.mark.covers("RT-108", "RT-024")
async def test_a_forced_cancel_ends_a_running_job_at_once_and_fences_its_run(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()

    assert await world.store.cancel(world.queue, "a", force=True) == "cancelled"

    view = await world.get("a")
    assert (view.state, view.reason) == (State.CANCELLED, "forced")
    assert (await world.store.renew(world.queue, [claim.lease], None)).verdicts == (Verdict.LOST,)
    assert (await world.end(claim, Outcome.COMPLETED)).verdicts == (Verdict.LOST,)
    assert (await world.get("a")).state is State.CANCELLED
    sample = await world.store.sample(world.queue, horizon_ms=0)
    assert (sample.active, dict(sample.leased)) == (0, {})
    assert await world.store.cancel(world.queue, "a", force=True) == "too_late"


@pytest.mark.covers("RT-108")
async def test_a_forced_cancel_frees_the_place_of_its_key(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(), None)
    await world.enqueue(a_job("a", concurrency_key="k"), a_job("b", concurrency_key="k"))
    await world.claim_one()
    assert (await world.claim(5, owner=BOB)).claims == ()

    await world.store.cancel(world.queue, "a", force=True)

    assert (await world.claim_one(BOB)).job_id == "b"


async def dead(world: World, job_id: str, **more: Any) -> str:
    """A dead letter of that id; its digest."""
    await world.enqueue(a_job(job_id, **more))
    claim = await world.claim_one()
    await world.store.checkpoint(world.queue, claim.lease, b"3")
    await world.end(claim, Outcome.DEAD, reason="attempts", failure=a_failure())
    return await digest(world, job_id)


async def digest(world: World, job_id: str) -> str:
    view = await world.store.get(world.queue, job_id, digest=True)
    assert view is not None
    (listed,) = [one for one in await world.store.list(world.queue, view.state) if one.id == job_id]
    assert listed.digest == view.digest
    return view.digest


async def redrive(world: World, *picks: tuple[str, str]) -> list[Acted]:
    return await world.store.redrive(world.queue, picks)


@pytest.mark.covers("RT-069", "RT-070", "RT-142")
async def test_redrive_puts_back_exactly_what_was_reviewed(world: World) -> None:
    seen = await dead(world, "a", priority=3)
    await world.enqueue("b")
    before = await world.store.stats(world.queue)

    assert await redrive(world, ("a", "0" * 40), ("a", seen), ("a", seen), ("gone", "")) == [
        Acted.CONFLICTED,
        Acted.OK,
        Acted.CONFLICTED,
        Acted.MISSING,
    ]

    view = await world.get("a")
    assert (view.state, view.attempts, view.deliveries, view.reason) == (State.PRIORITIZED, 0, 0, "")
    stats = await world.store.stats(world.queue)
    assert stats.bytes == before.bytes + len(a_job("a").envelope)
    assert ("prioritized", ("a",), "redriven") in await world.events()
    claims = (await world.claim(2)).claims
    assert [(claim.job_id, claim.checkpoint) for claim in claims] == [("b", None), ("a", b"3")]
    assert await redrive(world, ("a", "")) == [Acted.CONFLICTED]


@pytest.mark.covers("RT-069")
async def test_a_digest_changes_with_the_job_and_with_nothing_else(world: World) -> None:
    first = await dead(world, "a")
    await world.enqueue("b")
    assert await digest(world, "a") == first

    await redrive(world, ("a", first))
    claims = (await world.claim(2)).claims
    (again,) = [claim for claim in claims if claim.job_id == "a"]
    await world.end(again, Outcome.DEAD, reason="attempts")

    assert await digest(world, "a") != first


@pytest.mark.covers("RT-070", "RT-009")
async def test_redrive_takes_the_unique_key_again_or_conflicts(world: World) -> None:
    keys = JobKeys(unique="ab")
    seen = await dead(world, "a", keys=keys)
    await world.enqueue(a_job("b", keys=keys))

    assert await redrive(world, ("a", seen)) == [Acted.CONFLICTED]
    await world.end(await world.claim_one(), Outcome.COMPLETED)
    assert await redrive(world, ("a", seen)) == [Acted.OK]
    assert (await world.enqueue(a_job("c", keys=keys)))[0].id == "a"


@pytest.mark.covers("RT-070")
@pytest.mark.parametrize("ending", [State.FAILED, State.CANCELLED, State.EXPIRED])
async def test_every_bad_end_can_be_redriven_and_what_completed_cannot(world: World, ending: State) -> None:
    await world.enqueue(a_job("a", expires_in_ms=1000 if ending is State.EXPIRED else None), "b")
    if ending is State.EXPIRED:
        await world.advance(2)
        await world.store.expire(world.queue)
    elif ending is State.CANCELLED:
        await world.store.cancel(world.queue, "a")
    else:
        await world.end(await world.claim_one(), Outcome.FAILED, reason="discarded")
    await world.end(await world.claim_one(), Outcome.COMPLETED)

    assert await redrive(world, ("a", await digest(world, "a")), ("b", "")) == [Acted.OK, Acted.CONFLICTED]
    assert (await world.claim_one()).job_id == "a"


async def edit(world: World, job_id: str, revision: int, **change: Any) -> Acted:
    return await world.store.edit(world.queue, job_id, revision, JobChange(**change))


@pytest.mark.covers("RT-070")
async def test_an_edit_takes_the_revision_that_was_looked_at(world: World) -> None:
    await world.enqueue("a", "b")
    await world.claim_one()

    assert await edit(world, "b", 0, envelope=b"{}") is Acted.OK
    assert await edit(world, "b", 0, envelope=b"[]") is Acted.CONFLICTED
    assert await edit(world, "b", 1, priority=-3) is Acted.OK
    assert await edit(world, "a", 0, priority=1) is Acted.RUNNING
    assert await edit(world, "c", 0, priority=1) is Acted.MISSING

    view = await world.get("b")
    assert (view.envelope, view.priority, view.state, view.revision) == (b"{}", -3, State.PRIORITIZED, 2)
    assert (await world.store.stats(world.queue)).bytes == len(a_job("a").envelope) + 2
    assert ("prioritized", ("b",), "reprioritised") in await world.events()


@pytest.mark.covers("RT-070", "RT-012")
async def test_an_edit_of_the_due_time_moves_the_expiry_with_it(world: World) -> None:
    await world.enqueue(a_job("a", expires_in_ms=60_000))
    before = await world.get("a")
    assert before.expires_ms is not None

    assert await edit(world, "a", 0, due_in_ms=100_000) is Acted.OK

    view = await world.get("a")
    assert view.state is State.DELAYED
    assert view.expires_ms == before.expires_ms + view.due_ms - before.due_ms
    assert (await world.claim(1)).claims == ()
    assert await edit(world, "a", 1, due_at_ms=0) is Acted.OK
    assert (await world.get("a")).state is State.READY


@pytest.mark.covers("RT-070")
async def test_an_edit_keeps_a_jobs_place_and_its_parking(world: World) -> None:
    await world.enqueue("a", "b")
    claim = await world.claim_one()
    await world.end(claim, Outcome.PARKED, park_type="t@h")

    assert await edit(world, "a", 0, envelope=b"{}", priority=2) is Acted.OK
    assert await edit(world, "b", 0, envelope=b"{}") is Acted.OK

    assert (await world.get("a")).state is State.PARKED
    assert await world.ids(State.READY) == ["b"]
    claims = (await world.claim(2, known=["t@h"])).claims
    assert [(c.job_id, c.priority, c.envelope) for c in claims] == [("a", 2, b"{}"), ("b", 0, b"{}")]


@pytest.mark.covers("RT-070")
async def test_an_edit_is_refused_where_the_queue_would_refuse_the_job(world: World) -> None:
    await world.store.configure(world.queue, QueueConfig(max_payload=20, max_bytes=25), None)
    await world.enqueue("a", "b")

    with pytest.raises(TooLarge, match="job a: 21 bytes are more than the limit of 20"):
        await edit(world, "a", 0, envelope=b"x" * 21)
    with pytest.raises(QueueFull, match="bytes 30 of 25"):
        await edit(world, "a", 0, envelope=b"x" * 20)
    with pytest.raises(InvalidValue, match="change: expected something to change"):
        await edit(world, "a", 0)

    assert (await world.get("a")).revision == 0


@pytest.mark.covers("RT-070")
async def test_a_purge_deletes_what_was_counted_and_nothing_else(world: World) -> None:
    await dead(world, "a")
    await world.advance(100)
    await dead(world, "b")
    store, queue = world.store, world.queue
    now = await store.ping()

    old = await store.count_purge(queue, State.DEAD, now - 50_000)
    assert old.count == 1
    await redrive(world, ("a", ""))
    assert (await store.purge(queue, old)).conflicted
    every = await store.count_purge(queue, State.DEAD)
    part = await store.purge(queue, every)

    assert (part.deleted, part.left.count, part.conflicted) == (1, 0, False)
    assert await world.ids(State.DEAD) == []
    assert await store.get(queue, "b") is None
    assert ("obliterated", ("b",), "purged") in await world.events()
    assert (await world.get("a")).state is State.READY
    with pytest.raises(InvalidValue, match="state: expected one of cancelled, completed"):
        await store.count_purge(queue, State.READY)


@pytest.mark.covers("RT-031", "FM-57")
async def test_obliterate_closes_the_queue_and_leaves_nothing(world: World) -> None:
    await dead(world, "a")
    await world.enqueue(
        "b", a_job("c", due_in_ms=60_000), a_job("d", priority=1), a_job("e", keys=JobKeys(unique="ab"))
    )
    claim = await world.claim_one()
    store, queue = world.store, world.queue

    first = await store.obliterate(queue, "mine")
    assert (first.token, first.done) == ("mine", False)
    assert (await world.enqueue("f"))[0].reason == "closed"
    assert (await world.claim(5)).refused == "held"
    other = await store.obliterate(queue, "theirs")
    assert (other.conflicted, other.token) == (True, "mine")
    at = first
    while not at.done:
        at = await store.obliterate(queue, "mine")

    assert at.deleted == 5
    assert queue not in await store.queues(queue.namespace)
    assert (await store.obliterate(queue, "mine")).missing
    stats = await store.stats(queue)
    assert (sum(stats.counts.values()), stats.bytes, dict(stats.totals)) == (0, 0, {})
    assert [event for event in await world.events() if event[0] == "obliterated"] == [("obliterated", (), "")]
    assert (await store.renew(queue, [claim.lease], None)).verdicts == (Verdict.LOST,)
    assert (await world.enqueue("a"))[0].state is State.READY


@pytest.mark.covers("RT-044", "RT-042")
async def test_the_version_rises_only_when_every_worker_reads_it(world: World) -> None:
    store, queue = world.store, world.queue
    await store.renew(queue, [], a_beat(ANN))
    await store.renew(queue, [], a_beat(BOB, protocol=2))

    refused = await store.migrate(queue, 2)
    assert (refused.version, refused.behind) == (1, (str(ANN),))
    await store.renew(queue, [], a_beat(ANN, protocol=2))
    assert (await store.migrate(queue, 2)).version == 2

    with pytest.raises(SchemaMismatch, match="stored schema version 2; this version of dockwork reads 1"):
        await world.enqueue("a")
    assert (await store.migrate(queue, 1)).version == 2


@pytest.mark.covers("RT-024", "FM-15")
async def test_nothing_is_wrong_with_a_queue_that_works(world: World) -> None:
    await dead(world, "a")
    await world.enqueue(
        "b", a_job("c", due_in_ms=60_000), a_job("d", concurrency_key="k"), a_job("e", concurrency_key="k")
    )
    await world.claim(2)

    repaired = await world.store.repair(world.queue)

    assert (repaired.checked, repaired.fixed, repaired.busy) == (5, 0, False)
