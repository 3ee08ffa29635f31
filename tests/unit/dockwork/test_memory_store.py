"""What is the store in memory's own: its clock, and waiting across loops and threads."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from dockwork.core.states import State
from dockwork.errors import InvalidValue, StoreUnavailable
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import CronEntry, Wake
from support.store_world import ANN, MemoryWorld, a_beat, a_job
from support.waiting import until_async


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(MemoryStore())


@pytest.mark.covers("RT-019")
async def test_time_stands_still_until_it_is_moved() -> None:
    begun = datetime(2027, 3, 28, 1, tzinfo=UTC)
    store = MemoryStore(start=begun)

    assert store.now() == begun == store.now()
    store.advance(90.5)
    assert (store.now() - begun).total_seconds() == 90.5
    assert await store.ping() == int(begun.timestamp() * 1000) + 90_500
    with pytest.raises(InvalidValue, match="seconds: expected 0 or more, got -1"):
        store.advance(-1)
    with pytest.raises(InvalidValue, match="start: expected a time zone"):
        MemoryStore(start=begun.replace(tzinfo=None))


async def test_a_ticking_clock_goes_on_by_itself_and_can_be_moved_too() -> None:
    begun = datetime(2027, 3, 28, 1, tzinfo=UTC)
    store = MemoryStore(start=begun, ticking=True)

    async def later() -> bool:
        return store.now() > begun

    await until_async(later, what="time passes")
    store.advance(3600)
    assert (store.now() - begun).total_seconds() >= 3600


async def test_who_waits_is_woken_when_moved_time_makes_something_due(world: MemoryWorld) -> None:
    await world.enqueue(a_job("a", due_in_ms=60_000))
    assert await world.store.wait(world.queue, 5) is not None  # the marker that tells the due time
    waiting = asyncio.create_task(world.store.wait(world.queue, 30))
    await world.advance(59)
    assert await world.store.wait(world.queue, 0.01) is None

    await world.advance(1)

    assert await asyncio.wait_for(waiting, 5) == Wake(due_ms=0)
    assert [claim.job_id for claim in (await world.claim(1)).claims] == ["a"]
    assert await world.store.wait(world.queue, 0.01) is None


async def test_who_comes_after_time_was_moved_is_told_too(world: MemoryWorld) -> None:
    entry = CronEntry(uid="u", schedule_hash="s", job=a_job("tick"))
    now = await world.store.ping()
    await world.store.plan(world.queue, entry, [now + 60_000], generation=1, reset=False)
    assert await world.store.wait(world.queue, 5) == Wake(due_ms=now + 60_000)
    await world.advance(61)

    assert await world.store.wait(world.queue, 5) == Wake(due_ms=0)
    assert [claim.scheduled_for_ms for claim in (await world.claim(1)).claims] == [now + 60_000]


@pytest.mark.covers("RT-094")
async def test_a_marker_that_came_too_late_for_its_waiter_wakes_the_next(world: MemoryWorld) -> None:
    gone = asyncio.create_task(world.store.wait(world.queue, 30))
    await asyncio.wait({gone}, timeout=0.01)

    await world.enqueue("a")  # hands the marker over; the waiter has not run since
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)

    assert gone.cancelled()
    assert await world.store.wait(world.queue, 5) == Wake(due_ms=0)


async def test_a_waiter_of_another_loop_is_woken(world: MemoryWorld) -> None:
    found: list[Wake | None] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(world.store.wait(world.queue, 30))))
    thread.start()
    await world.enqueue("a")

    await asyncio.to_thread(thread.join, 10)
    assert found == [Wake(due_ms=0)]


async def test_a_waiter_whose_loop_is_gone_keeps_no_marker(world: MemoryWorld) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(world.store.wait(world.queue, 30))
    await asyncio.to_thread(_one_turn, loop)
    task.cancel()

    await world.enqueue("a")
    await asyncio.to_thread(_end, loop, task)

    assert await world.store.wait(world.queue, 5) == Wake(due_ms=0)


def _one_turn(loop: asyncio.AbstractEventLoop) -> None:
    loop.call_soon(loop.stop)
    loop.run_forever()


def _end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Wake | None]) -> None:
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()


async def test_readers_of_events_are_woken_from_any_thread(world: MemoryWorld) -> None:
    reading = asyncio.create_task(world.store.events(world.queue, "$", block_s=30))
    await asyncio.wait({reading}, timeout=0.01)

    await asyncio.to_thread(asyncio.run, world.enqueue("a"))

    assert [event.ids for event in await asyncio.wait_for(reading, 5)] == [("a",)]


@pytest.mark.covers("OP-142")
async def test_the_first_claimable_job_of_a_cold_queue_is_told_to_every_listener(world: MemoryWorld) -> None:
    first, second = world.store.wakes(), world.store.wakes()
    await world.enqueue("warm")
    await world.store.sample(world.queue, horizon_ms=0, cold=True)
    await world.enqueue("a", "b")
    await world.enqueue("c")

    assert await anext(first) == world.queue == await anext(second)
    more = asyncio.ensure_future(anext(first))
    await asyncio.wait({more}, timeout=0.05)
    assert not more.done(), "once, not for each job"
    more.cancel()
    await asyncio.gather(more, return_exceptions=True)


async def test_closing_a_renewal_channel_ends_its_sleep(world: MemoryWorld) -> None:
    channel = world.store.renewal_channel()
    with pytest.raises(StoreUnavailable, match="the renewal connection is closed"):
        channel.renew(world.queue, [], a_beat())
    channel.connect()
    sleeping = asyncio.create_task(asyncio.to_thread(channel.wait_nudge, ANN, world.queue, 60))
    await asyncio.wait({sleeping}, timeout=0.05)

    channel.close()

    assert await asyncio.wait_for(sleeping, 5) is None


async def test_what_is_stored_outlives_close(world: MemoryWorld) -> None:
    await world.enqueue("a")
    await world.store.close()

    assert (await world.get("a")).state is State.READY
