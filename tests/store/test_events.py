"""What a queue tells: its events in each mode, gaps, the cap on their bytes, and the errors it keeps."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from dockwork.core.states import State
from dockwork.errors import AccessDenied, InvalidValue
from dockwork.store.protocol import ErrorReport, Event, EventMode, EventOptions, Failure, Outcome, Settlement
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_world import ANN, QUEUE, RedisWorld, World, a_beat, a_failure, a_job


async def many_events(world: World, number: int, first: int = 0) -> None:
    """As many entries of the stream, in order: calls of one connection are carried out as they were sent."""
    jobs = [a_job(f"job-{at:04}", priority=1) for at in range(first, first + number)]
    for start in range(0, number, 50):
        await asyncio.gather(*[world.enqueue(job) for job in jobs[start : start + 50]])


async def fill(redis: RedisWorld, number: int) -> None:
    """The stream as if that much had happened."""
    script = "for n = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'name', 'ready', 'ids', 'x' .. n) end"
    await redis.redis.eval(script, 1, redis.keys.events, number)


async def ids_of(world: World, since: str = "0") -> list[str]:
    return [event.ids[0] for event in await world.store.events(world.queue, since, block_s=0)]


@pytest.mark.covers("RT-140")
async def test_events_are_kept_unless_somebody_says_otherwise(world: World) -> None:
    await world.enqueue("a")

    (event,) = await world.store.events(world.queue, "0", block_s=0)

    assert (event.name, event.ids, event.queue, event.gap_from) == ("ready", ("a",), "mail", "")
    assert abs(event.at_ms - await world.store.ping()) < 10_000
    assert await world.store.event_options(world.queue) == EventOptions()
    assert await world.store.last_event(world.queue) == event.id


@pytest.mark.covers("RT-140")
async def test_a_queue_whose_events_are_off_keeps_none(world: World) -> None:
    await world.enqueue("a")
    await world.store.set_events(world.queue, EventOptions(mode=EventMode.OFF, max_bytes=1000))

    await world.enqueue("b")
    claim = await world.claim_one()
    await world.end(claim, Outcome.COMPLETED)
    await world.store.set_paused(world.queue, expected=False, wanted=True)
    await world.store.set_paused(world.queue, expected=True, wanted=False)

    assert await world.events() == []
    assert await world.store.last_event(world.queue) == "0-0"
    assert await world.store.event_options(world.queue) == EventOptions(mode=EventMode.OFF, max_bytes=1000)
    await world.store.set_events(world.queue, EventOptions())
    await world.enqueue("c")
    assert await world.events() == [("ready", ("c",), "")]


@pytest.mark.covers("RT-140")
async def test_a_queue_may_publish_its_events_instead(world: World) -> None:
    await world.store.set_events(world.queue, EventOptions(mode=EventMode.PUBSUB))
    async with aclosing(world.store.published(world.queue)) as messages:  # type: ignore[type-var]
        assert await anext(messages) is None  # it listens
        await world.enqueue("a", "b")
        claim = await world.claim_one()
        await world.end(claim, Outcome.FAILED, reason="no\nmoney", failure=a_failure())
        await world.store.set_paused(world.queue, expected=False, wanted=True)
        await world.store.set_paused(world.queue, expected=True, wanted=False)

        heard = [await asyncio.wait_for(anext(messages), 10) for _ in range(5)]

    assert heard == [
        Event(id="", name="ready", ids=("a", "b"), queue="mail"),
        Event(id="", name="active", ids=("a",), queue="mail"),
        Event(id="", name="processing", ids=("a",), queue="mail"),
        Event(id="", name="failed", ids=("a",), reason="no money", queue="mail"),
        Event(id="", name="resumed", ids=(), data={"count": "1", "seq": "2"}, queue="mail"),
    ]
    assert await world.events() == []


async def test_the_operators_options_say_nothing_of_events(world: World) -> None:
    from dockwork.store.protocol import OwnerRecord, QueueConfig

    said = EventOptions(mode=EventMode.OFF, max_bytes=0)
    await world.store.set_events(world.queue, said)
    owner = OwnerRecord(operator="o", namespace="shop", name="mail", uid="u")
    await world.store.configure(world.queue, QueueConfig(generation=1, max_depth=5), owner)

    assert await world.store.event_options(world.queue) == said
    await world.store.set_events(world.queue, EventOptions(max_bytes=5000))
    assert await world.store.event_options(world.queue) == EventOptions(max_bytes=5000)
    assert (await world.store.config(world.queue)).max_depth == 5


@pytest.mark.covers("RT-018")
async def test_a_reader_is_told_where_the_stream_was_trimmed(world: World) -> None:
    await many_events(world, 150)
    read = await world.store.events(world.queue, "0", block_s=0)
    await world.store.set_events(world.queue, EventOptions(max_bytes=1))
    await world.store.renew(world.queue, [], a_beat())
    kept = await ids_of(world)
    assert kept == [f"job-{at:04}" for at in range(50, 150)]

    from_first = await world.store.events(world.queue, read[10].id, block_s=0)
    from_kept = await world.store.events(world.queue, read[60].id, block_s=0)
    from_start = await world.store.events(world.queue, "0", block_s=0)

    assert [event.gap_from for event in from_first] == [read[10].id] + [""] * 99
    assert from_first[0].ids == ("job-0050",)
    assert {event.gap_from for event in (*from_kept, *from_start)} == {""}
    assert from_kept[0].ids == ("job-0061",)


@pytest.mark.covers("RT-018")
async def test_a_reader_that_waits_misses_nothing_and_sees_no_gap(world: World) -> None:
    await world.enqueue("a")
    (first,) = await world.store.events(world.queue, "0", block_s=0)
    reading = asyncio.create_task(world.store.events(world.queue, first.id, block_s=10))
    await asyncio.sleep(0)  # noqa: TID251
    await world.enqueue("b", a_job("c", priority=2))

    found = await reading

    assert {(event.name, event.gap_from) for event in found} <= {("ready", ""), ("prioritized", "")}
    last = await world.store.last_event(world.queue)
    assert await world.store.events(world.queue, last, block_s=0) == []
    with pytest.raises(InvalidValue, match="since: expected an event's id, 0 or \\$, got 'yesterday'"):
        await world.store.events(world.queue, "yesterday", block_s=0)


@pytest.mark.covers("RT-141")
async def test_the_stream_is_held_to_its_bytes_by_one_look_in_ten_seconds(world: World) -> None:
    await world.store.set_events(world.queue, EventOptions(max_bytes=4000))
    await many_events(world, 300)
    await world.store.renew(world.queue, [], a_beat())
    assert len(await ids_of(world)) == 100  # never fewer

    await world.store.set_events(world.queue, EventOptions(max_bytes=9_000))
    await many_events(world, 200, first=300)
    await world.store.renew(world.queue, [], a_beat())  # somebody has looked a moment ago
    assert len(await ids_of(world)) == 300
    await world.advance(11)
    await world.store.renew(world.queue, [], a_beat())

    kept = await ids_of(world)
    assert 100 < len(kept) < 300
    assert kept[-1] == "job-0499"


@pytest.mark.covers("RT-141")
async def test_without_a_cap_nothing_is_cut_and_a_look_of_the_operator_cuts_too(world: World) -> None:
    await world.store.set_events(world.queue, EventOptions(max_bytes=0))
    await many_events(world, 150)
    await world.store.sample(world.queue, horizon_ms=0)
    assert len(await ids_of(world)) == 150

    await world.store.set_events(world.queue, EventOptions(max_bytes=10))
    await world.advance(11)
    await world.store.sample(world.queue, horizon_ms=0)

    assert len(await ids_of(world)) == 100


@pytest.mark.covers("RT-141")
async def test_the_bytes_are_those_that_redis_measures(redis: RedisWorld) -> None:
    await redis.store.set_events(redis.queue, EventOptions(max_bytes=400_000))
    await fill(redis, 20_000)
    before = await redis.redis.memory_usage(redis.keys.events, samples=0)
    await redis.store.renew(redis.queue, [], a_beat())

    after = await redis.redis.memory_usage(redis.keys.events, samples=0)

    assert before > 450_000
    assert 320_000 < after <= 370_000


@pytest.mark.covers("RT-141")
async def test_about_fifty_thousand_entries_are_kept_in_any_case(redis: RedisWorld) -> None:
    await redis.store.set_events(redis.queue, EventOptions(max_bytes=0))
    await fill(redis, 50_300)

    await redis.enqueue("a")

    assert 50_000 <= await redis.redis.xlen(redis.keys.events) <= 50_100


@pytest.mark.covers("RT-143")
async def test_failed_runs_are_kept_as_reports_and_counted_by_type(world: World) -> None:
    await world.enqueue("a", "b", a_job("c", type="u"), a_job("d", type="u"))
    a, b, c, d = (await world.claim(4)).claims
    await world.settle(
        Settlement(lease=a.lease, outcome=Outcome.RETRY, reason="retry", failure=a_failure("first")),
        Settlement(lease=b.lease, outcome=Outcome.DEAD, reason="attempts", failure=a_failure("second")),
        Settlement(lease=c.lease, outcome=Outcome.FAILED, reason="no", failure=a_failure("third")),
        Settlement(lease=d.lease, outcome=Outcome.COMPLETED, result=b"1"),
    )

    found = await world.store.errors(world.queue, limit=2)

    last, before = found.recent
    assert last == ErrorReport(
        queue="mail",
        type="u",
        id="c",
        attempt=1,
        outcome="failed",
        error_class="ValueError",
        message="third",
        trace="Traceback",
        worker="w",
        at_ms=last.at_ms,
    )
    assert (before.id, before.outcome, before.message) == ("b", "dead", "second")
    figures = {kind: (f.completed, f.retried, f.failed, f.dead) for kind, f in found.by_type.items()}
    assert figures == {"t": (0, 1, 0, 1), "u": (1, 0, 1, 0)}
    assert {kind: f.errors for kind, f in found.by_type.items()} == {"t": 2, "u": 1}
    assert (await world.store.errors(world.queue, limit=0)).recent == ()
    with pytest.raises(InvalidValue, match="limit: expected 0 to 200, got 201"):
        await world.store.errors(world.queue, limit=201)


@pytest.mark.covers("RT-143")
async def test_two_hundred_reports_are_kept_each_of_four_ki_at_most(world: World) -> None:
    long = Failure(error_class="E" * 400, message="m" * 5000, trace="\x00" * 9000, worker="w", at_ms=1)
    for batch in range(3):
        await world.enqueue(*[a_job(f"j{batch}-{at}") for at in range(80)])
        claims = (await world.claim(80)).claims
        await world.settle(
            *[Settlement(lease=one.lease, outcome=Outcome.DEAD, failure=long) for one in claims]
        )

    found = await world.store.errors(world.queue, limit=200)

    assert len(found.recent) == 200
    assert found.recent[0].id == "j2-79"
    assert found.recent[-1].id == "j0-40"
    assert found.by_type["t"].dead == 240
    if isinstance(world, RedisWorld):
        sizes = [len(report) for report in await world.redis.lrange(world.keys.errors, 0, -1)]
        assert max(sizes) <= 4096


@pytest.mark.covers("RT-143", "RT-134")
async def test_a_job_whose_worker_was_lost_too_often_is_reported_by_nobody_but_the_queue(
    world: World,
) -> None:
    await world.enqueue(a_job("a", max_deliveries=1))
    await world.claim_one()
    await world.lose_leases()
    await world.store.reap(world.queue)

    (report,) = (await world.store.errors(world.queue)).recent

    assert await world.ids(State.DEAD) == ["a"]
    assert (report.id, report.outcome, report.error_class, report.worker) == (
        "a",
        "dead",
        "WorkerLost",
        str(ANN),
    )
    assert report.message == "deliveries used: lease_expired"
    assert (await world.store.errors(world.queue)).by_type["t"].dead == 1


@pytest.mark.covers("RT-034")
async def test_a_jobs_number_is_in_the_range_of_the_resume_that_freed_it(world: World) -> None:
    await world.enqueue("a", "b")
    await world.store.set_paused(world.queue, expected=False, wanted=True)
    await world.store.set_paused(world.queue, expected=True, wanted=False)
    await world.enqueue("c")

    numbers = [(await world.get(job_id)).seq for job_id in ("a", "b", "c")]

    resumed = next(e for e in await world.store.events(world.queue, "0", block_s=0) if e.name == "resumed")
    assert numbers == [1, 2, 3]
    assert resumed.data["seq"] == "2"


@pytest.mark.covers("RT-140", "RT-191")
async def test_a_login_that_may_not_publish_moves_jobs_all_the_same(server: RedisServer) -> None:
    server.flush()
    server.raw("ACL", "SETUSER", "quiet", "on", ">secret", "~dw:*", "+@all", "resetchannels")
    store = RedisStore(f"unix://quiet:secret@{server.socket}")
    try:
        await store.set_events(QUEUE, EventOptions(mode=EventMode.PUBSUB))
        (admission,) = await store.enqueue(QUEUE, [a_job("a")])
        assert admission.state is State.READY
        with pytest.raises(AccessDenied):
            await asyncio.wait_for(anext(store.published(QUEUE)), 10)
    finally:
        await store.close()
        server.raw("ACL", "DELUSER", "quiet")
