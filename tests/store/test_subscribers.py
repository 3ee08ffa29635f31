"""Those who listen to an app's queues: on Redis and in memory, over lost connections and gaps."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dockwork import App, Event, Gap, InvalidValue, OutcomeUnknown, State, StoreUnavailable
from dockwork.core.keys import QueueName
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import EventMode, EventOptions, Owner, Store
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.waiting import until, until_async

MAIL = QueueName("default", "mail")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


def declare(app: App) -> App:
    @app.job(queue="mail", name="send", retries=0)
    async def send(to: str) -> str:
        if to == "nowhere":
            raise ValueError("no such place")
        return f"sent to {to}"

    return app


@pytest.fixture(params=["redis", "memory"])
async def app(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[App]:
    server.flush()
    store = MemoryStore(ticking=True) if request.param == "memory" else None
    made = declare(App("shop", store=store, redis=server.url))
    async with made:
        yield made
    made.sync.close()


@asynccontextmanager
async def at_work(app: App) -> AsyncIterator[None]:
    """A worker of the app, in this loop."""
    worker = app.worker(queues={"mail": 2}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    await until_async(lambda: _is(worker.is_running or running.done()), what="the worker runs")
    try:
        yield
    finally:
        await worker.shutdown(5)
        await running


async def send(app: App, *to: str) -> list[str]:
    return [(await app.registry["send"].enqueue(each)).id for each in to]


async def take(events: AsyncIterator[Event | Gap], number: int) -> list[Event | Gap]:
    return [await asyncio.wait_for(anext(events), 10) for _ in range(number)]


def names(events: list[Event | Gap]) -> list[str]:
    return [event.name if isinstance(event, Event) else "gap" for event in events]


@pytest.mark.covers("RT-018")
async def test_events_are_read_from_any_point_and_go_on(app: App) -> None:
    async with at_work(app):
        ok, bad = await send(app, "ann", "nowhere")
        events = app.events("mail", only={"completed", "dead"}, since="0")
        found = {event.name: event for event in await take(events, 2) if isinstance(event, Event)}
        assert {name: event.ids for name, event in found.items()} == {"completed": (ok,), "dead": (bad,)}

        (later,) = await send(app, "bob")
        (last,) = await take(events, 1)
        assert isinstance(last, Event)
        assert (last.name, last.ids, last.queue) == ("completed", (later,), "mail")
        await events.aclose()

        again = app.events("mail", since=last.id, only="ready")
        (newest,) = await send(app, "cy")
        (event,) = await take(again, 1)
        assert event.ids == (newest,)
        await again.aclose()


@pytest.mark.covers("RT-031")
async def test_only_what_can_happen_can_be_asked_for(app: App) -> None:
    expected = "expected one of active, cancelled, completed, dead, delayed, expired, failed, obliterated"
    for bad in ("finished", "paused"):
        with pytest.raises(InvalidValue, match=f"event: {expected}, .*, got '{bad}'"):
            app.on(bad, print)
        with pytest.raises(InvalidValue, match="event: "):
            await anext(app.events("mail", only={bad, "ready"}))
    with pytest.raises(InvalidValue, match="since: expected an event's id, 0 or"):
        await anext(app.events("mail", since="soon"))
    with pytest.raises(InvalidValue, match="queue"):
        app.on("ready", print, queues=["a/b"])


@pytest.mark.covers("RT-018")
async def test_subscribers_are_told_until_they_are_taken_off(app: App) -> None:
    told: list[Event | Gap] = []
    waited: list[str] = []

    async def slowly(event: Event | Gap) -> None:
        await asyncio.sleep(0)  # noqa: TID251
        assert isinstance(event, Event)
        waited.append(event.name)

    token, other = app.on("completed", told.append), app.on_all(slowly)
    async with at_work(app):
        (first,) = await send(app, "ann")
        await until_async(lambda: _is("completed" in waited), what="both are told")
        await until_async(lambda: _is(bool(told)), what="both are told")
        app.off(token)
        (second,) = await send(app, "bob")
        await until_async(lambda: _is(waited.count("completed") == 2), what="the other is told")
    app.off(other)
    app.off(other)

    assert [event.ids for event in told] == [(first,)]
    assert waited == ["ready", "active", "processing", "completed"] * 2
    assert second != first


async def _is(value: bool) -> bool:
    return value


@pytest.mark.covers("RT-018")
async def test_a_callback_that_raises_changes_nothing(app: App, caplog: pytest.LogCaptureFixture) -> None:
    told: list[str] = []

    def fails(event: Event | Gap) -> None:
        told.append("sync")
        raise ValueError("a subscriber's own fault")

    async def fails_later(event: Event | Gap) -> None:
        told.append("async")
        raise SystemExit(3)

    def takes_itself_off(event: Event | Gap) -> None:
        told.append("once")
        app.off(once)

    app.on("ready", fails)
    app.on("ready", fails_later)
    once = app.on("ready", takes_itself_off)
    app.on("ready", lambda event: told.append("well"))
    with caplog.at_level(logging.WARNING, logger="dockwork.events"):
        await send(app, "ann", "bob")
        await until_async(lambda: _is(told.count("well") == 2), what="the last is told")
        await until_async(lambda: _is(told.count("async") == 2), what="the second is told")

    assert sorted(told) == ["async"] * 2 + ["once"] + ["sync"] * 2 + ["well"] * 2
    assert caplog.text.count("a subscriber failed") == 4


@pytest.mark.covers("RT-018")
async def test_many_subscribers_share_one_reader_and_none_is_left_without_them(server: RedisServer) -> None:
    server.flush()
    store = RedisStore(server.url)
    told: list[str] = []
    async with declare(App("shop", store=store)) as app:
        tokens = [app.on("ready", lambda event: told.append(event.queue)) for _ in range(50)]
        await tokens[-1].ready()
        await send(app, "ann")
        await until_async(lambda: _is(len(told) == 50), what="all are told")

        reads = store._connected().events
        assert len(reads._busy) + len(reads._idle) == 1
        for token in tokens:
            app.off(token)
        await until_async(lambda: _is(not reads._busy), what="the reader ended")
        await send(app, "bob")
    assert len(told) == 50
    await store.close()


@pytest.mark.covers("RT-018")
async def test_a_lost_connection_costs_no_event(server: RedisServer) -> None:
    server.flush()
    told: list[tuple[str, ...]] = []
    async with declare(App("shop", redis=server.url)) as app:
        app.on("ready", lambda event: told.append(event.ids if isinstance(event, Event) else ("gap",)))
        events = app.events("mail", only={"ready"}, since="0")
        sent: list[str] = []
        read: list[tuple[str, ...]] = []
        for number in range(12):
            try:
                sent += await send(app, f"person {number}")
            except (StoreUnavailable, OutcomeUnknown):  # it was cut in between: nothing was sent
                continue
            read += [event.ids for event in await take(events, 1)]
            if number % 3 == 2:
                server.raw("CLIENT", "KILL", "TYPE", "normal")
        await until_async(lambda: _is(len(told) == len(sent)), what="all are told")
        await events.aclose()

    assert len(sent) > 4
    assert read == [(job_id,) for job_id in sent]
    assert told == read


@pytest.mark.covers("RT-018")
async def test_what_was_trimmed_while_nobody_read_is_a_gap(app: App) -> None:
    store = app.client.store
    events = app.events("mail", only={"ready"}, since="0")
    await send(app, "ann")
    (first,) = await take(events, 1)
    assert isinstance(first, Event)
    await app.enqueue_many([app.registry["send"].item("x") for _ in range(3)])
    await asyncio.gather(*[store.enqueue(MAIL, [_a_job(at)]) for at in range(150)])
    await store.set_events(MAIL, EventOptions(max_bytes=1))
    await store.renew(MAIL, [], _a_beat())
    kept = await store.events(MAIL, "0", block_s=0)

    found = await take(events, 2)

    assert found == [Gap(queue="mail", from_=first.id, to=kept[0].id), kept[0]] or (
        found[0] == Gap(queue="mail", from_=first.id, to=kept[0].id)
    )
    assert isinstance(found[1], Event)
    assert found[1].id == kept[0].id
    assert found[0].ids == ()
    await events.aclose()


def _a_job(at: int) -> Any:
    from dockwork.store.protocol import NewJob

    return NewJob(id=f"j{at}", type="send", envelope=b"{}")


def _a_beat() -> Any:
    from dockwork.store.protocol import Heartbeat

    return Heartbeat(owner="pod/boot", pod="pod", slots=1, busy=0)


@pytest.mark.covers("RT-018")
async def test_a_subscriber_gets_a_gap_after_redis_came_back_empty() -> None:
    told: list[Event | Gap] = []
    with RedisServer() as own:
        async with declare(App("shop", redis=own.url)) as app:
            token = app.on("ready", told.append)
            await send(app, "ann")
            await until_async(lambda: _is(len(told) == 1), what="the first is told")
            own.restart()

            async def sent() -> bool:
                try:
                    await send(app, "bob")
                except (StoreUnavailable, OutcomeUnknown):
                    return False
                return True

            await until_async(sent, what="Redis is back")
            await until_async(lambda: _is(len(told) >= 3), what="the gap and the next are told")
            app.off(token)

    first, gap, next_one = told[:3]
    assert isinstance(first, Event)
    assert isinstance(next_one, Event)
    assert gap == Gap(queue="mail", from_=first.id, to=next_one.id)


@pytest.mark.covers("RT-140", "RT-018")
async def test_published_events_reach_those_who_listen(app: App) -> None:
    await app.client.stats("mail")
    await app.client.store.set_events(MAIL, EventOptions(mode=EventMode.PUBSUB))
    told: list[Event | Gap] = []
    app.on("ready", told.append)

    (job_id,) = await send(app, "ann")
    await until_async(lambda: _is(bool(told)), what="it is told")

    (event,) = told
    assert isinstance(event, Event)
    assert (event.name, event.ids, event.id) == ("ready", (job_id,), "")


@pytest.mark.covers("RT-140", "RT-018")
async def test_who_listens_to_published_events_is_told_that_the_connection_was_lost(
    server: RedisServer,
) -> None:
    server.flush()
    async with declare(App("shop", redis=server.url)) as app:
        await app.client.stats("mail")
        await app.client.store.set_events(MAIL, EventOptions(mode=EventMode.PUBSUB))
        told: list[Event | Gap] = []
        await app.on_all(told.append).ready()
        server.raw("CLIENT", "KILL", "TYPE", "pubsub")
        await until_async(lambda: _is(bool(told)), what="the gap is told")
    assert told == [Gap(queue="mail", from_="", to="")]


@pytest.mark.covers("RT-140")
async def test_a_queue_whose_events_are_off_says_so_to_who_reads_them(app: App) -> None:
    await app.client.stats("mail")
    await app.client.store.set_events(MAIL, EventOptions(mode=EventMode.OFF))
    told: list[Event | Gap] = []
    app.on_all(told.append)

    await send(app, "ann")  # a subscriber waits for it, as for a queue that is not there yet
    with pytest.raises(
        InvalidValue, match="events: expected a queue whose events are not off, got 'queue mail'"
    ):
        await anext(app.events("mail"))
    assert told == []


@pytest.mark.covers("RT-140", "RT-141")
async def test_the_code_says_where_a_queues_events_go(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    app.queue("mail", events="pubsub", events_max_bytes="1Mi")
    app.queue("other", events_max_bytes=0)
    async with at_work(app):
        await send(app, "ann")
        assert await app.client.store.events(MAIL, "0", block_s=0) == []
    store = app.client.store
    assert await store.event_options(MAIL) == EventOptions(mode=EventMode.PUBSUB, max_bytes=1 << 20)
    assert (await store.config(MAIL)).max_depth is None

    monkeypatch.setenv("DOCKWORK_EVENTS_MAX_BYTES", "2Mi")
    del app.settings
    async with at_work(app):
        await send(app, "bob")
    assert await store.event_options(MAIL) == EventOptions(mode=EventMode.PUBSUB, max_bytes=2 << 20)
    for bad in ({"events": "kafka"}, {"events_max_bytes": "-1"}):
        with pytest.raises(InvalidValue, match="events"):
            app.queue("mail", **bad)  # type: ignore[arg-type]


@pytest.mark.covers("RT-018")
async def test_who_subscribes_before_a_loop_runs_is_told_on_the_first_that_uses_the_app(app: App) -> None:
    told: list[tuple[str, int]] = []

    def note(event: Event | Gap) -> None:
        assert isinstance(event, Event)
        told.append((event.name, threading.get_ident()))

    await asyncio.to_thread(app.on, "completed", note)
    async with at_work(app):
        await send(app, "ann")
        await until_async(lambda: _is(bool(told)), what="it is told")

    assert told == [("completed", threading.get_ident())]


@pytest.mark.covers("RT-018")
async def test_a_closed_app_tells_again_when_it_is_used_again(app: App) -> None:
    told: list[tuple[str, ...]] = []
    app.on("ready", lambda event: told.append(event.ids))
    await app.close()

    sent = await send(app, "ann")
    await until_async(lambda: _is(bool(told)), what="it is told")

    assert told == [(sent[0],)]


@pytest.mark.covers("RT-034")
async def test_a_subscriber_to_one_job_sees_the_resume_that_frees_it(app: App) -> None:
    store: Store = app.client.store
    await app.client.stats("mail")
    (running, waiting) = await send(app, "ann", "bob")
    (claim,) = (await store.claim(MAIL, Owner(pod="p", boot="b"), number=1, slots=1)).claims
    assert claim.job_id == running
    await store.set_paused(MAIL, expected=False, wanted=True)
    mine = app.ref("mail", waiting).events()
    others = app.ref("mail", running).events()
    both = [asyncio.ensure_future(anext(events)) for events in (mine, others)]
    await _both_read(app)

    await store.set_paused(MAIL, expected=True, wanted=False)
    await store.requeue(MAIL, Owner(pod="p", boot="b"), [claim.lease])

    first, second = [await asyncio.wait_for(each, 10) for each in both]
    assert isinstance(first, Event)
    assert isinstance(second, Event)
    assert (first.name, first.data["seq"]) == ("resumed", "2")
    assert (second.name, second.reason) == ("ready", "drained")
    for events in (mine, others):
        await events.aclose()


async def _both_read(app: App) -> None:
    """Both have looked where they stand: each asks for the newest event, then for its job, then waits."""
    inner: Any = app.client.store
    if isinstance(app._store, MemoryStore):
        queue = app._store._queue(MAIL)
        await until_async(lambda: _is(len(queue.readers) == 2), what="both wait")
    else:
        reads = inner._connected().events
        await until_async(lambda: _is(len(reads._busy) == 2), what="both wait")


@pytest.mark.covers("RT-034")
async def test_whose_number_is_in_a_resumes_range_though_older_entries_are_gone(app: App) -> None:
    store = app.client.store
    await app.client.stats("mail")
    (before,) = await send(app, "ann")
    await store.set_paused(MAIL, expected=False, wanted=True)
    await store.set_paused(MAIL, expected=True, wanted=False)
    (after,) = await send(app, "bob")
    entries = await store.events(MAIL, "0", block_s=0)
    (resumed,) = [event for event in entries if event.name == "resumed"]
    since = entries[entries.index(resumed) - 1].id  # the entry that tells of the job is not read

    mine, others = (app.ref("mail", job_id).events(since=since) for job_id in (before, after))
    (first,), (other,) = await take(mine, 1), await take(others, 1)

    assert isinstance(first, Event)
    assert isinstance(other, Event)
    assert (first.name, first.id) == ("resumed", resumed.id)
    assert (other.name, other.ids) == ("ready", (after,))
    for events in (mine, others):
        await events.aclose()


async def test_events_of_one_job_are_those_that_name_it(app: App) -> None:
    async with at_work(app):
        await send(app, "ann", "bob")
        ref = await app.registry["send"].enqueue("cy")
        events = ref.events(since="0", only={State.READY, State.COMPLETED})
        found = await take(events, 2)
        await events.aclose()
    assert names(found) == ["ready", "completed"]
    assert all(ref.id in event.ids for event in found)


@pytest.mark.covers("RT-004", "RT-018", "RT-143", "RT-024")
async def test_the_blocking_twin_reads_and_subscribes_too(app: App) -> None:
    def work() -> tuple[list[str], list[str], Any]:
        told: list[str] = []
        token = app.sync.on("dead", lambda event: told.append(threading.current_thread().name))
        job = app.registry["send"].sync.enqueue("nowhere")
        events = app.sync.events("mail", since="0", only={"ready", "dead"})
        read = [next(events), next(events)]
        events.close()  # type: ignore[attr-defined]
        until(lambda: told, what="the callback is told")
        app.sync.off(token)
        of_job = job.events(since="0")
        assert next(of_job).ids == (job.id,)
        of_job.close()  # type: ignore[attr-defined]
        return names(read), told, (app.sync.errors("mail", limit=1), app.sync.error_stats())

    async with at_work(app):
        read, told, (errors, stats) = await asyncio.to_thread(work)

    assert read == ["ready", "dead"]
    assert told == ["dockwork-sync-shop"]
    assert [(error.type, error.message) for error in errors] == [("send", "no such place")]
    assert (stats.total, stats.by_queue, stats.by_class) == (1, {"mail": 1}, {"ValueError": 1})
    assert stats == await app.error_stats("mail")


@pytest.mark.covers("RT-143")
async def test_errors_are_told_by_queue_type_and_kind(app: App) -> None:
    @app.job(queue="other", name="divide", retries=1)
    async def divide(by: int) -> float:
        return 1 / by

    worker = app.worker(queues={"mail": 1, "other": 1}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    await send(app, "nowhere", "ann")
    zero, two = await divide.options(retries=0).enqueue(0), await divide.enqueue(2)
    assert await two.result(10) == 0.5
    await until_async(lambda: _ended(zero.state()), what="the division failed")
    await worker.shutdown(5)
    await running

    stats = await app.error_stats()

    assert (stats.total, stats.by_queue) == (2, {"mail": 1, "other": 1})
    assert stats.by_class == {"ValueError": 1, "ZeroDivisionError": 1}
    told = {kind: (figures.completed, figures.dead) for kind, figures in stats.by_type.items()}
    assert told == {"send": (1, 1), "divide": (1, 1)}
    (error,) = await app.errors("other")
    assert (error.id, error.attempt, error.outcome, error.error_class) == (
        zero.id,
        1,
        "dead",
        "ZeroDivisionError",
    )
    assert "1 / by" in error.trace
    assert await app.errors("nothing") == []


async def _ended(state: Any) -> bool:
    return await state is State.DEAD


@pytest.mark.covers("RT-018", "RT-046")
async def test_a_queue_of_several_partitions_tells_as_one(app: App) -> None:
    app.queue("mail", partitions=3)
    told: list[str] = []
    app.on("ready", lambda event: told.extend(event.ids))
    events = app.events("mail", since="0", only="ready")

    sent = await send(app, *[f"person {n}" for n in range(12)])
    await until_async(lambda: _is(len(told) == 12), what="all are told")
    read = await take(events, 6)
    await events.aclose()
    last = read[-1]
    assert isinstance(last, Event)
    rest = app.events("mail", since=last.id, only="ready")
    read += await take(rest, 6)
    await rest.aclose()

    assert sorted(told) == sorted(sent)
    assert sorted(job_id for event in read for job_id in event.ids) == sorted(sent)
    assert names(read) == ["ready"] * 12
    mine = app.ref("mail", sent[0]).events(since="0")
    (first,) = await take(mine, 1)
    assert first.ids == (sent[0],)
    await mine.aclose()
