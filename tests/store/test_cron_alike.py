"""The ledger in memory and the one on Redis say the same, whatever is done to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dockwork.core.cron import Calendar, parse_schedule, tzdata_version
from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.store.cron_memory import CronMemory
from dockwork.store.protocol import Admission, Admitted, NewJob, Outcome, Owner, Settlement
from support.cron_world import QUEUE, CronWorld, an_entry, cron_world
from support.redis_server import RedisServer

OWNER = Owner(pod="pod-1", boot="boot-1")
MOST_JOBS = 6
NOW_MS = 1_777_636_800_000  # 2026-05-01T12:00Z

# Instants lie 5 s beside every limit (now, a minute, a deadline), so that the time a call takes changes nothing.
OFFSETS = [-3605.0, -305.0, -125.0, -65.0, -55.0, -25.0, -15.0, -5.0, 3600.0, 7200.0]


class Memory(CronMemory):
    """Schedules in memory, over a queue of `MOST_JOBS` jobs that never moves by itself."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self.now_ms = now_ms
        self.jobs: dict[str, State] = {}

    def _now_ms(self) -> int:
        return self.now_ms

    def _state_of(self, queue: QueueName, job_id: str) -> State | None:
        return self.jobs.get(job_id)

    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> list[Admission]:
        (job,) = jobs
        if sum(state in (State.READY, State.DELAYED) for state in self.jobs.values()) >= MOST_JOBS:
            return [Admission(id=job.id, outcome=Admitted.REJECTED, reason="depth")]
        is_later = job.due_at_ms is not None and job.due_at_ms > self.now_ms
        self.jobs[job.id] = State.DELAYED if is_later else State.READY
        return [Admission(id=job.id, outcome=Admitted.ACCEPTED)]


calendars = st.sampled_from(["@hourly", "0 0 * * *"])
entries = st.fixed_dictionaries(
    {
        "calendar": calendars,
        "missed_run_policy": st.sampled_from(["Skip", "Latest", "All"]),
        "max_catch_up": st.integers(1, 3),
        "concurrency_policy": st.sampled_from(["Allow", "Allow", "Forbid"]),
        "suspended": st.sampled_from([False, False, False, True]),
        "starting_deadline_ms": st.sampled_from([None, 20_000, 120_000]),
        "max_pending": st.sampled_from([None, None, 1, 2]),
        "max_runs": st.sampled_from([None, None, 2]),
        "jitter_ms": st.sampled_from([0, 0, 7_200_000]),
        "every_ms": st.sampled_from([None, None, None, 86_400_000]),
    }
)
puts = st.tuples(
    st.just("put"), entries, st.sets(st.sampled_from(OFFSETS)), st.sampled_from([None, -4000.0, -200.0, -30.0]),
    st.integers(1, 3), st.booleans(),
)  # fmt: skip
others = st.sampled_from(
    [("tick",), ("tick",), ("tick",), ("finish",), ("suspend",), ("unplan",), ("refill",)]
)
steps = st.lists(st.one_of(puts, others), min_size=3, max_size=12)


async def put(world: CronWorld, memory: Memory, step: Sequence[Any], uid: str) -> list[Any]:
    _, fields, offsets, since, generation, reset = step
    calendar = Calendar(schedule=parse_schedule(fields["calendar"]))
    entry = an_entry(
        uid=uid, schedule=calendar.hash, tzdata=tzdata_version(), **{**fields, "calendar": calendar.to_json()}
    )
    instants = [world.second(at) for at in sorted(offsets)]
    more = {
        "generation": generation,
        "reset": reset,
        "decided_ms": None if since is None else world.second(since),
    }
    return [await store.plan(QUEUE, entry, instants, **more) for store in (world.store, memory)]


async def finish(world: CronWorld, memory: Memory, number: int) -> None:
    claimed = await world.store.claim(QUEUE, OWNER, number=number, slots=MOST_JOBS)
    ended = [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in claimed.claims]
    await world.store.settle(QUEUE, OWNER, ended, number=number + 1)
    for claim in claimed.claims:
        memory.jobs[claim.job_id] = State.COMPLETED


async def said(store: Any, world: CronWorld) -> list[dict[str, Any]]:
    """States without what is the time of a call: those times are after the beginning."""
    found = []
    for state in sorted(await store.cron_states(QUEUE), key=lambda state: state.uid):
        fields = asdict(state)
        for name in ("now_ms", "refreshed_ms"):
            del fields[name]
        for name in ("cursor_ms", "last_planned_ms"):
            fields[name] = "now" if world.began_ms <= fields[name] < world.second(600) else fields[name]
        for name in ("last", "last_missed", "last_skipped"):
            fields[name].pop("decided", None)
        found.append(fields)
    return found


async def test_a_schedule_that_waits_for_its_plan_keeps_nobody_awake() -> None:
    memory = Memory(NOW_MS)
    calendar = Calendar(schedule=parse_schedule("@hourly"))
    entry = an_entry(schedule=calendar.hash, calendar=calendar.to_json(), tzdata=tzdata_version())
    long_ago = NOW_MS - 10 * 3_600_000
    await memory.plan(QUEUE, entry, [long_ago], generation=1, reset=False, decided_ms=long_ago - 1)

    assert await memory.tick(QUEUE) == []
    assert memory._next_tick_ms(QUEUE) is None

    assert await memory.refill(QUEUE) == [entry.uid]
    assert memory._next_tick_ms(QUEUE) == long_ago
    assert [tick.outcome for tick in await memory.tick(QUEUE)] == ["missed"] * 10 + ["fired"]
    assert memory._next_tick_ms(QUEUE) == NOW_MS + 3_600_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@pytest.mark.covers("OP-252", "OP-258", "OP-259", "RT-019")
# Shrinking would take minutes: an example is a dozen round trips.
@settings(
    deadline=None,
    max_examples=60,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps)
async def test_both_ledgers_decide_alike(url: str, steps: Sequence[Sequence[Any]]) -> None:
    async with cron_world(url) as world:
        memory = Memory(world.began_ms)
        await world.redis.hset(world.keys.meta, "max_depth", MOST_JOBS)
        for number, step in enumerate(steps):
            memory.now_ms = await world.store.ping()
            uid = "ab"[number % 2]
            stores = (world.store, memory)
            match step[0]:
                case "put":
                    answers = await put(world, memory, step, uid)
                case "tick":
                    answers = [sorted(await s.tick(QUEUE), key=lambda t: (t.uid, t.at_ms)) for s in stores]
                case "finish":
                    # A claim ticks first, here as there.
                    await memory.tick(QUEUE)
                    await finish(world, memory, 2 * number + 1)
                    answers = []
                case "suspend":
                    answers = [await s.suspend(QUEUE, uid) for s in stores]
                case "unplan":
                    answers = [await s.unplan(QUEUE, uid) for s in stores]
                case _:
                    answers = [sorted(await s.refill(QUEUE)) for s in stores]
            assert answers[:1] == answers[1:], step
            assert await said(world.store, world) == await said(memory, world), step
