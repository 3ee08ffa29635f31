"""The ledger in memory and the one on Redis say the same, whatever is done to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from dockwork.core.cron import Calendar, parse_schedule, tzdata_version
from dockwork.core.states import State
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import Outcome, Owner, QueueConfig, Settlement, Store
from support.cron_world import QUEUE, CronWorld, an_entry, cron_world
from support.redis_server import RedisServer

OWNER = Owner(pod="pod-1", boot="boot-1")
MOST_JOBS = 6
NOW_MS = 1_777_636_800_000  # 2026-05-01T12:00Z

# Instants lie 5 s beside every limit (now, a minute, a deadline), so that the time a call takes changes nothing.
OFFSETS = [-3605.0, -305.0, -125.0, -65.0, -55.0, -25.0, -15.0, -5.0, 3600.0, 7200.0]


def a_memory(now_ms: int) -> MemoryStore:
    return MemoryStore(start=datetime.fromtimestamp(now_ms / 1000, UTC))


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


async def put(world: CronWorld, memory: MemoryStore, step: Sequence[Any], uid: str) -> list[Any]:
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


async def finish(world: CronWorld, memory: MemoryStore, number: int) -> None:
    for store in (world.store, memory):
        claimed = await store.claim(QUEUE, OWNER, number=number, slots=MOST_JOBS)
        ended = [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in claimed.claims]
        await store.settle(QUEUE, OWNER, ended, number=number + 1)


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


async def jobs_of(store: Store) -> dict[str, tuple[State, int | None]]:
    """Where each job is, and the tick that it stands for."""
    views = [view for state in State for view in await store.list(QUEUE, state, limit=500)]
    return {view.id: (view.state, view.scheduled_for_ms) for view in views}


async def entered(store: Store) -> list[tuple[str, tuple[str, ...], str]]:
    return [(event.name, event.ids, event.reason) for event in await store.events(QUEUE, "0", block_s=0)]


async def test_a_schedule_that_waits_for_its_plan_keeps_nobody_awake() -> None:
    memory = a_memory(NOW_MS)
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
        memory = a_memory(world.began_ms)
        for store in (world.store, memory):
            await store.configure(QUEUE, QueueConfig(max_depth=MOST_JOBS), None)
        for number, step in enumerate(steps):
            memory.advance((await world.store.ping() - await memory.ping()) / 1000)
            uid = "ab"[number % 2]
            stores = (world.store, memory)
            match step[0]:
                case "put":
                    answers = await put(world, memory, step, uid)
                case "tick":
                    answers = [sorted(await s.tick(QUEUE), key=lambda t: (t.uid, t.at_ms)) for s in stores]
                case "finish":
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
            assert await jobs_of(world.store) == await jobs_of(memory), step
            assert await entered(world.store) == await entered(memory), step
