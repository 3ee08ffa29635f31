"""Any mix of calls leaves each job in exactly the one index that its state names (RT-030)."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dockwork.core.states import ENDED, State
from dockwork.store.protocol import (
    JobChange,
    JobKeys,
    Lease,
    OnConflict,
    Outcome,
    Owner,
    Put,
    QueueConfig,
    RateLimit,
    RevokeCause,
    Settlement,
)
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_checks import holds
from support.store_world import ANN, BOB, RedisWorld, a_beat, a_failure, a_job

JOBS = [f"j{n}" for n in range(6)]
OWNERS = [ANN, BOB]
LIMITS = [
    QueueConfig(),
    QueueConfig(per_key=2),
    QueueConfig(concurrency=1),
    QueueConfig(concurrency=3, per_key=3),
    QueueConfig(rate=RateLimit(2, 1000)),
    QueueConfig(rate=RateLimit(3, 60_000), concurrency=2),
]
LOCKS = [("start", OnConflict.REPLACE), ("finish", OnConflict.DEBOUNCE), ("ttl", OnConflict.KEEP)]

steps = st.one_of(
    st.tuples(
        st.just("enqueue"),
        st.sampled_from(JOBS),
        st.integers(-2, 2),
        st.sampled_from([0, 0, 1000, 60_000]),
        st.sampled_from([None, 500, 5000]),
        st.sampled_from([None, "none", "forever", "1000,1,10"]),
        st.sampled_from([None, None, "k", "l"]),
        st.sampled_from([None, None, 2]),
        st.sampled_from(
            [None, None, *[JobKeys(unique="ab", until=u, ttl_ms=900, on_conflict=c) for u, c in LOCKS]]
        ),
    ),
    st.tuples(st.just("redrive"), st.sampled_from(JOBS)),
    st.tuples(st.just("edit"), st.sampled_from(JOBS), st.integers(-2, 2), st.sampled_from([None, 0, 900])),
    st.tuples(st.just("force_cancel"), st.sampled_from(JOBS)),
    st.tuples(st.just("purge"), st.sampled_from(sorted(ENDED))),
    st.tuples(st.just("limit"), st.sampled_from(LIMITS)),
    st.tuples(
        st.just("claim"), st.sampled_from(OWNERS), st.integers(0, 4), st.sampled_from([(), ("t",), ("t@h",)])
    ),
    st.tuples(
        st.just("settle"),
        st.sampled_from(OWNERS),
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from(list(Outcome)), st.booleans()), max_size=3),
        st.integers(0, 3),
    ),
    st.tuples(st.just("start"), st.integers(0, 3)),
    st.tuples(st.just("renew"), st.integers(0, 3)),
    st.tuples(st.just("requeue"), st.integers(0, 3), st.sampled_from(list(Put))),
    st.tuples(st.just("child_died"), st.integers(0, 3)),
    st.tuples(st.just("outputs"), st.integers(0, 3)),
    st.tuples(st.just("promote"), st.sampled_from([None, *JOBS])),
    st.tuples(st.just("cancel"), st.sampled_from(JOBS)),
    st.tuples(st.just("revoke"), st.sampled_from(OWNERS), st.sampled_from(list(RevokeCause))),
    st.tuples(st.just("pause"), st.booleans()),
    st.tuples(st.just("advance"), st.sampled_from([0.6, 2.0, 20.0, 90.0, 4000.0])),
    st.tuples(st.sampled_from(["reap", "expire", "trim", "lose_record"])),
)


class Mixer:
    """Plays steps on a queue, and remembers the leases that were handed out, stale ones included."""

    def __init__(self, world: RedisWorld) -> None:
        self.world = world
        self.store = world.store
        self.queue = world.queue
        self.leases: list[Lease] = []
        self.limits = QueueConfig()

    def lease(self, back: int) -> Lease:
        return self.leases[-1 - back] if back < len(self.leases) else Lease(job_id="j0", epoch=1)

    async def play(self, step: tuple[Any, ...]) -> None:
        await getattr(self, step[0])(*step[1:])

    async def enqueue(
        self,
        job: str,
        priority: int,
        due: int,
        expires: int | None,
        keep: str | None,
        key: str | None,
        per_key: int | None,
        keys: JobKeys | None,
    ) -> None:
        await self.world.enqueue(
            a_job(
                job,
                priority=priority,
                due_in_ms=due,
                expires_in_ms=expires,
                keep=keep,
                max_deliveries=2,
                concurrency_key=key,
                per_key=per_key,
                keys=keys,
                repeat=3 if job in ("j0", "j1") else None,
            )
        )

    async def redrive(self, job: str) -> None:
        await self.store.redrive(self.queue, [(job, "")])

    async def edit(self, job: str, priority: int, due: int | None) -> None:
        view = await self.store.get(self.queue, job)
        change = JobChange(envelope=b"[1]", priority=priority, due_in_ms=due)
        await self.store.edit(self.queue, job, 0 if view is None else view.revision, change)

    async def force_cancel(self, job: str) -> None:
        await self.store.cancel(self.queue, job, force=True)

    async def purge(self, state: State) -> None:
        await self.store.purge(self.queue, await self.store.count_purge(self.queue, state))

    async def limit(self, config: QueueConfig) -> None:
        self.limits = config
        await self.store.configure(self.queue, config, None)

    async def claim(self, owner: Owner, slots: int, known: tuple[str, ...]) -> None:
        claimed = await self.world.claim(slots, owner, known)
        self.leases += [claim.lease for claim in claimed.claims]

    async def settle(self, owner: Owner, ends: list[tuple[int, Outcome, bool]], claim_next: int) -> None:
        settlements = [
            Settlement(
                lease=self.lease(back),
                outcome=outcome,
                delay_ms=800,
                park_type="t@h",
                failure=a_failure() if failed else None,
                result=b"12345" if failed else None,
                next_due_ms=0 if failed else None,
            )
            for back, outcome, failed in ends
        ]
        settled = await self.world.settle(*settlements, owner=owner, claim_next=claim_next)
        self.leases += [claim.lease for claim in settled.claimed.claims]

    async def start(self, back: int) -> None:
        await self.store.start(self.queue, [self.lease(back)])

    async def renew(self, back: int) -> None:
        await self.store.renew(self.queue, [self.lease(back)], a_beat())

    async def requeue(self, back: int, put: Put) -> None:
        await self.store.requeue(self.queue, ANN, [self.lease(back)], put=put)

    async def child_died(self, back: int) -> None:
        await self.store.child_died(self.queue, [(self.lease(back), "signal 11 (SIGSEGV)")])

    async def outputs(self, back: int) -> None:
        await self.store.progress(self.queue, self.lease(back), b"1")
        await self.store.checkpoint(self.queue, self.lease(back), b"2")
        await self.store.log(self.queue, self.lease(back), ["3"])

    async def promote(self, job: str | None) -> None:
        await self.store.promote(self.queue, None if job is None else [job])

    async def cancel(self, job: str) -> None:
        await self.store.cancel(self.queue, job)

    async def revoke(self, owner: Owner, cause: RevokeCause) -> None:
        await self.store.revoke(self.queue, str(owner), cause, "exit")

    async def pause(self, wanted: bool) -> None:
        await self.store.set_paused(self.queue, expected=not wanted, wanted=wanted)

    async def advance(self, seconds: float) -> None:
        await self.world.advance(seconds)

    async def reap(self) -> None:
        await self.store.reap(self.queue)

    async def expire(self) -> None:
        await self.store.expire(self.queue)

    async def trim(self) -> None:
        await self.store.trim(self.queue)

    async def lose_record(self) -> None:
        """The failure of RT-073: an id in `ready` whose record is gone."""
        await self.world.redis.zadd(self.world.keys.ready, {"ghost": 1})


@pytest.mark.covers("RT-030", "RT-073", "RT-153")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=st.lists(steps, min_size=1, max_size=25))
def test_any_mix_of_calls_leaves_each_job_in_exactly_one_index(
    server: RedisServer, plan: list[tuple[Any, ...]]
) -> None:
    async def run() -> None:
        server.flush()
        world = RedisWorld(RedisStore(server.url), server.url)
        mixer = Mixer(world)
        try:
            for step in plan:
                await mixer.play(step)
                await holds(world)
        finally:
            await world.close()

    # Not asyncio.run: it would put away the loop that the plugin keeps for the other tests.
    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(run())


@pytest.mark.covers("RT-073")
async def test_an_id_without_a_record_is_removed_and_counted_and_the_claim_goes_on(redis: RedisWorld) -> None:
    await redis.redis.zadd(redis.keys.ready, {"ghost": 0, "ghost2": 0.5})
    await redis.enqueue("a", "b")

    claimed = await redis.claim(2)

    assert [claim.job_id for claim in claimed.claims] == ["a", "b"]
    assert (await redis.totals())["orphans"] == 2
    await holds(redis)
