"""What the other tests of this tier show on Redis alone or by the way: the same on every store."""

from __future__ import annotations

import pytest

from dockwork.core.states import State
from dockwork.store.protocol import CronEntry, Outcome, Settlement
from support.store_world import BOB, World, a_job


@pytest.mark.covers("RT-019", "RT-129")
async def test_parked_jobs_of_one_type_are_claimed_together_in_their_order(world: World) -> None:
    await world.enqueue("a", "b", "c")
    claims = (await world.claim(3)).claims
    await world.settle(
        *[
            Settlement(lease=claim.lease, outcome=Outcome.PARKED, park_type="t@h")
            for claim in reversed(claims)
        ]
    )
    assert (await world.store.stats(world.queue)).parked_types == {"t@h": 3}

    claimed = await world.claim(2, owner=BOB, known=["t@h"])

    assert ([claim.job_id for claim in claimed.claims], claimed.more, claimed.parked) == (
        ["a", "b"],
        True,
        True,
    )
    assert (await world.store.stats(world.queue)).parked_types == {"t@h": 1}
    assert await world.ids(State.PARKED) == ["c"]
    assert (await world.claim(1, known=["other"])).parked is False
    last = await world.claim(1, owner=BOB, known=["t@h"])
    assert ([claim.job_id for claim in last.claims], last.parked) == (["c"], False)


@pytest.mark.covers("RT-019")
async def test_a_last_run_without_a_result_leaves_none_of_an_earlier_one(world: World) -> None:
    await world.enqueue(a_job("a", repeat=2))
    await world.end(await world.claim_one(), Outcome.COMPLETED, result=b"1", next_due_ms=0)
    assert (await world.get("a")).result == b"1"

    await world.end(await world.claim_one(), Outcome.COMPLETED, next_due_ms=0)

    ended = await world.get("a")
    assert (ended.state, ended.result) == (State.COMPLETED, None)


@pytest.mark.covers("RT-019", "OP-250")
async def test_a_claim_lets_due_schedules_tick_first(world: World) -> None:
    now = await world.store.ping()
    entry = CronEntry(uid="u", schedule_hash="s", job=a_job("tick"))
    instants = [now - 20_000, now - 10_000, now + 3_600_000]
    await world.store.plan(world.queue, entry, instants, generation=1, reset=False, decided_ms=now - 30_000)

    claimed = await world.claim(5)

    assert [claim.scheduled_for_ms for claim in claimed.claims] == instants[:2]
    assert claimed.next_at_ms is not None
    (state,) = await world.store.cron_states(world.queue)
    assert (state.runs, state.next_ms) == (2, instants[2])
    assert state.active == tuple(claim.job_id for claim in claimed.claims)
    assert (await world.events())[0] == ("ready", state.active, "")
    assert (await world.claim(5)).claims == ()
