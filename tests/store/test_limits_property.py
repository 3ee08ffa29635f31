"""Any mix of calls on jobs with keys: no key and no queue runs more than it may, and nothing waits for nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dockwork.core.states import State
from dockwork.store.protocol import JobChange, Lease, Outcome, Put, QueueConfig, RevokeCause, Settlement
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_checks import holds
from support.store_world import ANN, BOB, RedisWorld, a_job

CONCURRENCY = 3
KEYS = {"k": 1, "l": 2, "m": None}

jobs = st.tuples(
    st.just("enqueue"),
    st.sampled_from(list(KEYS)),
    st.sampled_from([0, 0, 0, -1, 1]),
    st.sampled_from([0, 0, 0, 5000]),
    st.sampled_from([None, None, 8000]),
)
backs = st.integers(0, 3)
steps = st.one_of(
    jobs,
    jobs,
    st.tuples(st.just("claim"), st.sampled_from([ANN, BOB]), st.integers(0, 3)),
    st.tuples(st.just("claim"), st.sampled_from([ANN, BOB]), st.integers(1, 3)),
    st.tuples(st.just("settle"), backs, st.sampled_from(list(Outcome)), st.integers(0, 2)),
    st.tuples(st.just("settle"), backs, st.just(Outcome.COMPLETED), st.integers(0, 2)),
    st.tuples(st.just("requeue"), backs, st.sampled_from(list(Put))),
    st.tuples(st.just("cancel"), backs, st.booleans()),
    st.tuples(st.just("revoke"), st.sampled_from([ANN, BOB]), st.sampled_from(list(RevokeCause))),
    st.tuples(st.just("advance"), st.sampled_from([3, 9, 20])),
    st.tuples(st.just("edit"), backs, st.sampled_from([-2, 0, 3])),
    st.tuples(st.just("redrive"), backs),
    st.tuples(st.just("promote")),
    st.tuples(st.just("expire")),
)


class Mixer:
    """Plays steps; remembers jobs and leases, stale ones included."""

    def __init__(self, world: RedisWorld) -> None:
        self.world = world
        self.jobs: list[str] = []
        self.leases: list[Lease] = []

    async def enqueue(self, key: str, priority: int, due: int, expires: int | None) -> None:
        self.jobs.append(f"{key}{len(self.jobs)}")
        await self.world.enqueue(
            a_job(
                self.jobs[-1],
                priority=priority,
                due_in_ms=due,
                expires_in_ms=expires,
                max_deliveries=3,
                concurrency_key=key,
                per_key=KEYS[key],
            )
        )

    async def claim(self, owner: Any, slots: int) -> None:
        claimed = await self.world.claim(slots, owner, ("t",))
        self.leases += [claim.lease for claim in claimed.claims]

    async def settle(self, back: int, outcome: Outcome, claim_next: int) -> None:
        if back < len(self.leases):
            ended = Settlement(lease=self.leases[-1 - back], outcome=outcome, delay_ms=800, park_type="t")
            settled = await self.world.settle(ended, claim_next=claim_next)
            self.leases += [claim.lease for claim in settled.claimed.claims]

    async def requeue(self, back: int, put: Put) -> None:
        if back < len(self.leases):
            await self.world.store.requeue(self.world.queue, ANN, [self.leases[-1 - back]], put=put)

    async def cancel(self, back: int, force: bool) -> None:
        if back < len(self.jobs):
            await self.world.store.cancel(self.world.queue, self.jobs[-1 - back], force=force)

    async def revoke(self, owner: Any, cause: RevokeCause) -> None:
        await self.world.store.revoke(self.world.queue, str(owner), cause)

    async def advance(self, seconds: float) -> None:
        await self.world.store.reap(self.world.queue)
        await self.world.advance(seconds)

    async def edit(self, back: int, priority: int) -> None:
        if back < len(self.jobs):
            view = await self.world.store.get(self.world.queue, self.jobs[-1 - back])
            assert view is not None
            change = JobChange(priority=priority)
            await self.world.store.edit(self.world.queue, view.id, view.revision, change)

    async def redrive(self, back: int) -> None:
        if back < len(self.jobs):
            await self.world.store.redrive(self.world.queue, [(self.jobs[-1 - back], "")])

    async def promote(self) -> None:
        await self.world.store.promote(self.world.queue)

    async def expire(self) -> None:
        await self.world.store.expire(self.world.queue)


async def check(world: RedisWorld) -> None:
    """Every index and count is right; limits hold; the queue's own figures say the same."""
    await holds(world)
    store, queue = world.store, world.queue
    running = [
        view.id
        for state in (State.ACTIVE, State.PROCESSING)
        for view in await store.list(queue, state, limit=100)
    ]
    assert len(running) <= CONCURRENCY
    for key, count in Counter(job_id[0] for job_id in running).items():
        assert count <= (KEYS[key] or 1), key
    stats = await store.stats(queue)
    for state in (State.READY, State.PRIORITIZED):
        assert stats.counts[state] == len(await store.list(queue, state, limit=100))
    full = len(running) == CONCURRENCY
    assert stats.runnable == 0 if full else stats.throttled["concurrency"] == 0


@pytest.mark.covers("RT-030", "RT-152", "RT-153", "RT-156")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(steps, min_size=5, max_size=40))
def test_limits_hold_and_every_job_is_in_one_index_after_any_mix_of_calls(
    server: RedisServer, plan: list[tuple[Any, ...]]
) -> None:
    async def run() -> None:
        server.flush()
        world = RedisWorld(RedisStore(server.url), server.url)
        mixer = Mixer(world)
        await world.store.configure(world.queue, QueueConfig(concurrency=CONCURRENCY), None)
        try:
            for name, *args in plan:
                await getattr(mixer, name)(*args)
                await check(world)
        finally:
            await world.close()

    # Not asyncio.run: it would put away the loop that the plugin keeps for the other tests.
    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(run())
