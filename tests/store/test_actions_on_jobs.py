"""What people do to single jobs: cancel by force, redrive, edit, promote; the same on every store."""

from __future__ import annotations

import pytest

from dockwork.core.states import State
from dockwork.store.protocol import Outcome, QueueConfig, Verdict
from support.store_world import BOB, World, a_job


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
