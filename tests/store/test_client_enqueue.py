"""Producers on a real Redis: what is stored, what is refused, what is told."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockwork import (
    Admitted,
    App,
    Context,
    Counts,
    DockworkError,
    InvalidArgs,
    InvalidValue,
    JobFailed,
    OutcomeUnknown,
    QueueClosed,
    QueueFull,
    RedisSettings,
    State,
    StoreUnavailable,
    TooLarge,
    Unrecoverable,
)
from dockwork.core.keys import QueueName
from dockwork.store.protocol import QueueConfig
from support.redis_server import RedisServer
from support.waiting import until

MAIL = QueueName("default", "mail")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
async def app(server: RedisServer) -> AsyncIterator[App]:
    server.flush()
    made = declare(App("shop", redis=server.url))
    async with made:
        yield made
    made.sync.close()


def declare(app: App) -> App:
    @app.job(queue="mail", name="send")
    async def send(ctx: Context, to: list[str], body: str = "") -> int:
        return len(to)

    @app.job(queue="mail", name="add")
    def add(a: int, b: int) -> int:
        return a + b

    @app.job(queue="mail", name="refuse", retries=0)
    async def refuse() -> None:
        raise Unrecoverable("no such customer")

    return app


async def configure(app: App, **limits: Any) -> None:
    await app.client.stats("mail")
    await app.client.store.configure(MAIL, QueueConfig(**limits), None)


@pytest.mark.covers("RT-002", "RT-006")
async def test_a_job_is_stored_with_its_arguments_by_name(app: App) -> None:
    ref = await app.registry["send"].enqueue(["a@b.c"], body="hi")

    job = await ref.info()

    assert ref.admission is Admitted.ACCEPTED
    assert job is not None
    assert (job.type, job.queue, job.state, job.args) == (
        "send",
        "mail",
        State.READY,
        {"to": ["a@b.c"], "body": "hi"},
    )


@pytest.mark.covers("RT-002")
async def test_arguments_that_do_not_fit_store_nothing(app: App) -> None:
    with pytest.raises(InvalidArgs, match="argument to"):
        await app.registry["send"].enqueue(to="a@b.c")
    with pytest.raises(InvalidArgs, match="argument b"):
        await app.enqueue("add", {"a": 1, "b": "two"}, queue="mail")

    assert await app.queues() == []


@pytest.mark.covers("RT-007")
async def test_an_id_is_a_ulid_or_the_callers(app: App) -> None:
    add = app.registry["add"]

    made = await add.enqueue(1, 2)
    chosen = await add.options(id="order:7").enqueue(1, 2)

    assert re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", made.id)
    assert chosen.id == "order:7"
    for bad in ("", "a b", "x" * 65, "a/b"):
        with pytest.raises(InvalidValue, match="id: expected 1 to 64 characters"):
            add.options(id=bad)


@pytest.mark.covers("RT-006", "RT-007")
async def test_a_known_id_gives_the_known_job(app: App) -> None:
    add = app.registry["add"].options(id="order-7")
    await add.enqueue(1, 2)

    again = await add.enqueue(3, 4)

    job = await again.info()
    assert again.admission is Admitted.DUPLICATE
    assert job is not None
    assert job.args == {"a": 1, "b": 2}


@pytest.mark.covers("RT-006")
async def test_a_single_refusal_raises_what_it_is(app: App) -> None:
    send = app.registry["send"]
    await configure(app, max_depth=1, max_payload=600, max_timeout_ms=60_000)
    await send.enqueue([])

    with pytest.raises(QueueFull) as full:
        await send.enqueue([])
    with pytest.raises(TooLarge, match=r"bytes are more than the limit of 600"):
        await send.enqueue([], body="x" * 700)
    with pytest.raises(TooLarge, match="limit of 8388608"):
        await send.enqueue([], body="x" * (9 << 20))
    with pytest.raises(InvalidValue, match=r"timeout: expected at most 60000 ms, .*, got 61000"):
        await send.options(timeout=61).enqueue([])

    assert (full.value.depth, full.value.limit) == (1, 1)
    await configure(app, closed=True)
    with pytest.raises(QueueClosed, match="mail is closed to new jobs"):
        await send.enqueue([])
    assert (await app.stats("mail")).counts[State.READY] == 1


@pytest.mark.covers("RT-006")
async def test_a_bulk_enqueue_answers_each_item_in_order_over_queues(app: App) -> None:
    add = app.registry["add"]
    await configure(app, max_depth=2)
    items = [
        add.options(id="a").item(1, 1),
        add.options(id="b", queue="other").item(1, 1),
        add.options(id="a").item(2, 2),
        app.item("unknown", {"n": 1}, queue="mail", id="c"),
        add.options(id="d").item(1, 1),
        add.options(id="e", queue="other").item(1, 1),
    ]

    found = await app.enqueue_many(items)

    assert [(a.id, a.outcome.value, a.reason) for a in found] == [
        ("a", "accepted", ""),
        ("b", "accepted", ""),
        ("a", "duplicate", ""),
        ("c", "accepted", ""),
        ("d", "rejected", "depth"),
        ("e", "accepted", ""),
    ]


@pytest.mark.covers("RT-006")
async def test_a_bulk_enqueue_of_many_returns_counts(app: App) -> None:
    add = app.registry["add"]

    found = await app.enqueue_many((add.item(n, n) for n in range(10_000)), returning="counts")

    assert found == Counts(accepted=10_000)
    assert (await app.stats("mail")).counts[State.READY] == 10_000


@pytest.mark.covers("RT-010")
async def test_priority_says_where_a_job_waits(app: App) -> None:
    add = app.registry["add"]
    refs = {p: await add.options(priority=p).enqueue(1, 1) for p in (-100, 0, 100)}

    assert {p: await ref.state() for p, ref in refs.items()} == {
        -100: State.PRIORITIZED,
        0: State.READY,
        100: State.PRIORITIZED,
    }
    for bad in (-101, 101, 1.5, True):
        with pytest.raises(InvalidValue, match="priority: expected a whole number from -100 to 100"):
            add.options(priority=bad)  # type: ignore[arg-type]


@pytest.mark.covers("RT-011")
async def test_delays_and_times_say_when_a_job_is_due(app: App) -> None:
    add = app.registry["add"]
    soon = datetime(2120, 1, 1, 10, tzinfo=UTC)

    later = await (await add.enqueue_in(timedelta(minutes=1), 1, 2)).info()
    tiny = await (await add.enqueue_in(0.0001, 1, 2)).info()
    years = await (await add.enqueue_in(timedelta(days=3650), 1, 2)).info()
    at = await (await add.enqueue_at(datetime(2035, 1, 1, tzinfo=UTC), 1, 2)).info()
    past = await (await add.enqueue_at(datetime(2001, 1, 1, tzinfo=UTC), 1, 2)).info()

    assert later is not None
    assert later.state is State.DELAYED
    assert later.due_at - later.created_at == timedelta(minutes=1)
    assert tiny is not None
    assert tiny.due_at - tiny.created_at == timedelta(milliseconds=1)
    assert years is not None
    assert years.due_at - years.created_at == timedelta(days=3650)
    assert at is not None
    assert at.due_at == datetime(2035, 1, 1, tzinfo=UTC)
    assert past is not None
    assert past.state is State.READY
    with pytest.raises(InvalidValue, match="at: expected a datetime with a time zone"):
        await add.enqueue_at(soon.replace(tzinfo=None), 1, 2)
    for bad in (-1, timedelta(days=3654), float("inf"), "60"):
        with pytest.raises(InvalidValue, match="delay: expected"):
            await add.enqueue_in(bad, 1, 2)  # type: ignore[arg-type]


@pytest.mark.covers("RT-012")
async def test_expiry_counts_from_the_due_time(app: App) -> None:
    ref = await app.registry["add"].options(delay=60, expires=30).enqueue(1, 2)

    job = await ref.info()

    assert job is not None
    assert job.expires_at is not None
    assert job.expires_at - job.due_at == timedelta(seconds=30)
    assert job.due_at - job.created_at == timedelta(seconds=60)


async def test_what_one_turn_of_the_loop_enqueues_travels_together(app: App, server: RedisServer) -> None:
    add = app.registry["add"]
    await add.enqueue(0, 0)  # connected, and the queue looked at
    before = evaluations(server)

    refs = await asyncio.gather(*(add.enqueue(n, n) for n in range(100)))

    assert evaluations(server) - before == 1
    assert len({ref.id for ref in refs}) == 100
    job = await refs[42].info()
    assert job is not None
    assert job.args == {"a": 42, "b": 42}


async def test_a_refusal_reaches_only_its_own_call(app: App) -> None:
    await configure(app, max_payload=600)
    send = app.registry["send"]

    good, bad, known = await asyncio.gather(
        send.options(id="x").enqueue([]),
        send.enqueue([], body="x" * 900),
        send.options(id="x").enqueue([]),
        return_exceptions=True,
    )

    assert isinstance(bad, TooLarge)
    assert (good.admission, known.admission) == (Admitted.ACCEPTED, Admitted.DUPLICATE)  # type: ignore[union-attr]


async def test_a_queue_that_nobody_serves_is_named_once(app: App, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "dockwork"):
        for n in range(3):
            await app.registry["add"].enqueue(n, n)
        app.registry["add"].sync.enqueue(3, 3)

    assert [r.getMessage() for r in caplog.records] == [
        "queue mail of namespace default has neither a Queue object nor workers; its jobs wait until it has"
    ]


@pytest.mark.covers("RT-004")
async def test_the_blocking_twin_works_under_a_running_loop_and_in_any_thread(app: App) -> None:
    add, send = app.registry["add"], app.registry["send"]

    here = add.sync.enqueue(1, 2)  # blocks this very loop, and still comes back
    with ThreadPoolExecutor(8) as pool:
        there = list(pool.map(lambda n: add.sync.options(priority=n).enqueue(n, n), range(20)))

    assert here.state() is State.READY
    assert len({ref.id for ref in there}) == 20
    assert app.sync.stats("mail").counts == (await app.stats("mail")).counts
    assert add.sync.enqueue_in(60, 1, 2).state() is State.DELAYED
    assert app.sync.enqueue_many([add.item(1, 1)], returning="counts") == Counts(accepted=1)
    assert {job.id for job in app.sync.jobs("mail", state="ready")} == {
        job.id async for job in app.jobs("mail", state="ready")
    }
    assert here.cancel() == "cancelled"
    assert app.sync.queues() == ["mail"]
    assert send.sync.run(["x", "y"]) == 2
    with pytest.raises(InvalidArgs, match="argument a"):
        add.sync.enqueue("one", 2)


@pytest.mark.covers("RT-004")
async def test_the_blocking_twin_has_a_connection_and_a_thread_of_its_own(
    app: App, server: RedisServer
) -> None:
    await app.registry["add"].enqueue(1, 2)
    before = connections(server)

    app.registry["add"].sync.enqueue(1, 2)

    assert connections(server) > before
    assert [t.name for t in threading.enumerate() if t.name.startswith("dockwork-sync")] == [
        "dockwork-sync-shop"
    ]
    app.sync.close()
    until(lambda: connections(server) == before, what="the twin's connections are gone")
    assert app.registry["add"].sync.enqueue(1, 2).admission is Admitted.ACCEPTED


@pytest.mark.covers("RT-005", "FM-29")
def test_objects_are_made_outside_of_a_loop_and_used_in_several(server: RedisServer) -> None:
    server.flush()
    app = declare(App("shop", redis=server.url))
    ref = app.ref("mail", "order-7")

    async def enqueue() -> None:
        async with app:
            await app.registry["add"].options(id="order-7").enqueue(1, 2)

    async def ask() -> State | None:
        async with app:
            return await ref.state()

    # In threads: `asyncio.run` here would take away the loop that the next test's plugin keeps.
    with ThreadPoolExecutor() as pool:
        pool.submit(asyncio.run, enqueue()).result()
        assert pool.submit(asyncio.run, ask()).result() is State.READY


@pytest.fixture
async def impatient(server: RedisServer) -> AsyncIterator[App]:
    """An app with an open connection, that waits half a second for a reply."""
    server.flush()
    limit = timedelta(milliseconds=500)
    settings = RedisSettings(url=server.url, command_timeout=limit, connect_timeout=limit)
    made = declare(App("shop", redis=settings))
    async with made:
        await made.registry["add"].enqueue(0, 0)
        yield made


@pytest.mark.covers("RT-197")
async def test_a_lost_reply_is_told_asked_by_id_and_never_sent_again(
    impatient: App, server: RedisServer
) -> None:
    server.hang()
    try:
        with pytest.raises(OutcomeUnknown) as lost:
            await impatient.registry["add"].options(id="one").enqueue(1, 1)
    finally:
        server.resume()

    assert lost.value.ids == ("one",)
    assert await lost.value.resolve() == [State.READY]
    assert (await impatient.stats("mail")).totals["enqueued"] == 2


@pytest.mark.covers("RT-197")
async def test_a_lost_bulk_reply_names_every_id_in_order(impatient: App, server: RedisServer) -> None:
    add = impatient.registry["add"]
    items = [add.options(id=name).item(n, n) for n, name in enumerate(("two", "three"))]
    server.hang()
    try:
        with pytest.raises(OutcomeUnknown) as lost:
            await impatient.enqueue_many(items)
    finally:
        server.resume()

    assert lost.value.ids == ("two", "three")
    assert await lost.value.resolve() == [State.READY, State.READY]


async def test_nothing_is_sent_where_no_connection_can_be_made(impatient: App, server: RedisServer) -> None:
    server.hang()
    try:
        with pytest.raises(OutcomeUnknown):
            await impatient.registry["add"].options(id="one").enqueue(1, 1)
        with pytest.raises(StoreUnavailable):
            await impatient.registry["add"].options(id="two").enqueue(2, 2)
    finally:
        server.resume()

    assert await impatient.ref("mail", "two").state() is None


async def test_a_result_is_what_the_handler_returned(app: App) -> None:
    worker = app.worker(queues={"mail": 4}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    try:
        total = await app.registry["add"].enqueue(40, 2)
        refused = await app.registry["refuse"].enqueue()
        unknown = app.ref("mail", "nobody")
        later = await app.registry["add"].enqueue_in(600, 1, 2)

        assert await total.result(timeout=10) == 42
        with pytest.raises(JobFailed, match=r"is dead: .*Unrecoverable: no such customer"):
            await refused.result(timeout=10)
        with pytest.raises(JobFailed, match="is missing"):
            await unknown.result(timeout=10)
        with pytest.raises(TimeoutError, match="is delayed after 0 s"):
            await later.result(timeout=0)
    finally:
        await worker.shutdown()
        await running


def evaluations(server: RedisServer) -> int:
    """Script calls so far."""
    said = server.raw("INFO", "commandstats").decode()
    return sum(int(n) for n in re.findall(r"cmdstat_evalsha:calls=(\d+)", said))


def connections(server: RedisServer) -> int:
    """Client connections, the one that asks aside."""
    return server.raw("CLIENT", "LIST").decode().count("id=") - 1


@pytest.mark.covers("RT-062", "RT-242")
async def test_on_an_open_connection_an_enqueue_makes_no_task_and_is_sent_again_when_its_script_was_forgotten(
    app: App, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await app.registry["add"].enqueue(0, 0)
    by_task, sent_by_task = app.client._send_by_task, list[int]()

    def noted(queue: QueueName, batch: Any) -> None:
        sent_by_task.append(len(batch.jobs))
        by_task(queue, batch)

    monkeypatch.setattr(app.client, "_send_by_task", noted)
    await app.registry["add"].enqueue(1, 1)
    await asyncio.gather(*[app.registry["add"].enqueue(n, n) for n in range(20)])
    assert sent_by_task == []

    server.raw("SCRIPT", "FLUSH")
    refs = await asyncio.gather(*[app.registry["add"].enqueue(n, n) for n in range(3)])
    assert sent_by_task == [3]
    assert [ref.admission for ref in refs] == [Admitted.ACCEPTED] * 3
    assert (await app.stats("mail")).counts[State.READY] == 25


@pytest.mark.covers("RT-060", "RT-062")
async def test_a_bulk_of_many_calls_keeps_its_order_also_when_the_scripts_are_forgotten_under_way(
    app: App, server: RedisServer
) -> None:
    await app.registry["add"].enqueue(0, 0)
    server.raw("SCRIPT", "FLUSH")
    items = [app.registry["add"].options(id=f"j{n:04}").item(n, n) for n in range(1500)]

    said = await app.enqueue_many(items)

    assert [one.id for one in said] == [f"j{n:04}" for n in range(1500)]
    stored = [job.id async for job in app.jobs("mail", state=State.READY)]
    assert stored[1:] == [f"j{n:04}" for n in range(1500)]


@pytest.mark.covers("RT-061")
async def test_an_error_of_one_of_the_calls_of_a_bulk_is_raised_and_the_rest_is_looked_at(
    app: App, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    await app.registry["add"].enqueue(0, 0)
    items = [app.registry["add"].item(n, n) for n in range(1500)]
    server.raw("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(DockworkError):
            await app.enqueue_many(items)
    finally:
        server.raw("CONFIG", "SET", "maxmemory", "0")
    assert (await app.stats("mail")).counts[State.READY] == 1
    assert "never retrieved" not in caplog.text
