"""What an app runs around its enqueues and its runs, and what it is told of failures: on Redis and in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dockwork import (
    Admitted,
    App,
    Backoff,
    Context,
    Encrypted,
    Encryption,
    ErrorReport,
    InvalidArgs,
    InvalidValue,
    Item,
    JobInfo,
    QueueFull,
    State,
)
from dockwork.core.keys import QueueName
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import QueueConfig
from support.redis_server import RedisServer
from support.waiting import until_async

MAIL = QueueName("default", "mail")
KEY = "k1:" + "ab" * 32


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture(params=["redis", "memory"])
async def app(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[App]:
    server.flush()
    store = MemoryStore(ticking=True) if request.param == "memory" else None
    made = App("shop", store=store, redis=server.url, encryption=Encryption(keys=KEY))

    @made.job(queue="mail", name="send", retries=1, backoff=Backoff.fixed(600))
    async def send(ctx: Context, to: str, times: int = 1) -> str:
        if to == "nowhere":
            raise ValueError("no such place")
        return f"{to} x {times} for {ctx.job.headers.get('tenant')}"

    async with made:
        yield made
    made.sync.close()


@asynccontextmanager
async def at_work(app: App) -> AsyncIterator[Any]:
    worker = app.worker(queues={"mail": 2}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    await until_async(lambda: _is(worker.is_running or running.done()), what="the worker runs")
    try:
        yield worker
    finally:
        await worker.shutdown(5)
        worker.exit_code = await running  # type: ignore[attr-defined]


async def stored(app: App) -> list[dict[str, Any]]:
    return [dict(job.args or {}) async for job in app.jobs("mail", state="ready")]


@pytest.mark.covers("RT-017")
async def test_an_enqueue_middleware_may_change_what_is_stored(app: App) -> None:
    seen: list[Any] = []

    @app.enqueue_middleware
    async def tenant(item: Item[Any], call_next: Any) -> None:
        seen.append(("tenant", dict(item.args), item.queue))
        admission = await call_next(item.but(headers={**item.headers, "tenant": "acme"}))
        seen.append(("stored", admission.outcome))

    @app.enqueue_middleware
    async def twice(item: Item[Any], call_next: Any) -> Any:
        seen.append(("twice", item.headers["tenant"]))
        return await call_next(item.but(args={**item.args, "times": 2}, priority=-3, id=f"id-{len(seen)}"))

    send = app.registry["send"]
    async with at_work(app):
        job = await send.options(headers={"trace": "t"}).enqueue("ann")
        assert job.id == "id-2"
        assert await job.result(10) == "ann x 2 for acme"
        info = await job.info()
        assert info is not None
        assert info.priority == -3
        assert seen == [
            ("tenant", {"to": "ann"}, "mail"),
            ("twice", "acme"),
            ("stored", Admitted.ACCEPTED),
        ]

        by_name = await app.enqueue("send", {"to": "bob"}, queue="mail")
        blocking = await asyncio.to_thread(send.sync.enqueue, "cy")
        assert await by_name.result(10) == "bob x 2 for acme"
        assert blocking.id == f"id-{len(seen) - 1}"


@pytest.mark.covers("RT-017")
async def test_an_exception_in_an_enqueue_middleware_reaches_the_caller_and_nothing_is_stored(
    app: App,
) -> None:
    class NoTenant(Exception):
        pass

    @app.enqueue_middleware
    async def tenant(item: Item[Any], call_next: Any) -> Any:
        if item.args["to"] == "nobody":
            raise NoTenant
        return await call_next(item)

    send = app.registry["send"]
    with pytest.raises(NoTenant):
        await send.enqueue("nobody")
    with pytest.raises(NoTenant):
        await app.enqueue_many([send.item("ann"), send.item("nobody"), send.item("bob")])
    with pytest.raises(NoTenant):
        await asyncio.to_thread(app.sync.enqueue_many, [send.item("nobody"), send.item("nobody")])

    assert await stored(app) == []
    assert (await app.stats("mail")).totals.get("enqueued", 0) == 0
    await app.enqueue_many([send.item("ann"), send.item("bob")])
    assert await stored(app) == [{"to": "ann"}, {"to": "bob"}]


@pytest.mark.covers("RT-017", "RT-006")
async def test_a_bulk_call_runs_the_middlewares_around_each_item_and_stores_them_together(app: App) -> None:
    at_the_same_time = 0
    most = 0

    @app.enqueue_middleware
    async def counting(item: Item[Any], call_next: Any) -> Any:
        nonlocal at_the_same_time, most
        at_the_same_time += 1
        most = max(most, at_the_same_time)
        admission = await call_next(item.but(headers={"tenant": item.args["to"]}))
        at_the_same_time -= 1
        return admission

    send = app.registry["send"]
    items = [send.options(id="same").item("ann"), send.options(id="same").item("ann"), send.item("bob")]
    admissions = await app.enqueue_many(items)
    counts = await app.enqueue_many((send.item(str(n)) for n in range(300)), returning="counts")

    assert [admission.outcome for admission in admissions] == ["accepted", "duplicate", "accepted"]
    assert counts.accepted == 300
    assert (most, at_the_same_time) == (300, 0)
    jobs = [job async for job in app.jobs("mail", state="ready", limit=2)]
    assert [job.headers for job in jobs] == [{"tenant": "ann"}, {"tenant": "bob"}]


@pytest.mark.covers("RT-017")
async def test_a_middleware_sees_what_became_of_the_enqueue(app: App) -> None:
    seen: list[Any] = []

    @app.enqueue_middleware
    async def watching(item: Item[Any], call_next: Any) -> Any:
        admission = await call_next(item)
        seen.append((admission.outcome, admission.reason))
        return admission

    await app.client.stats("mail")
    await app.client.store.configure(MAIL, QueueConfig(max_depth=1), None)
    send = app.registry["send"]
    await send.enqueue("ann")
    with pytest.raises(QueueFull):
        await send.enqueue("bob")

    assert seen == [(Admitted.ACCEPTED, ""), (Admitted.REJECTED, "depth")]


@pytest.mark.covers("RT-017")
async def test_a_middleware_that_passes_nothing_on_or_twice_is_told(app: App) -> None:
    wrong: list[str] = []

    @app.enqueue_middleware
    async def careless(item: Item[Any], call_next: Any) -> Any:
        if "twice" in wrong:
            await call_next(item)
            await call_next(item)
        elif "other" in wrong:
            await call_next({"to": "ann"})

    send = app.registry["send"]
    for mode, told in {
        "none": "enqueue middleware: expected call_next to be called, or an exception, got 'neither, for a job send'",
        "twice": "call_next: expected one call for an item, got 'a second one'",
        "other": "call_next: expected an item, got 'dict'",
    }.items():
        wrong[:] = [mode]
        with pytest.raises(InvalidValue, match=told):
            await send.enqueue("ann")
        with pytest.raises(InvalidValue, match=told):
            await app.enqueue_many([send.item("ann")])
    assert (
        await stored(app) == [{"to": "ann"}] * 2
    )  # of the calls that were made twice, what the first stored


@pytest.mark.covers("RT-017", "RT-002")
async def test_what_a_middleware_changes_is_checked_like_any_argument(app: App) -> None:
    @app.enqueue_middleware
    async def break_it(item: Item[Any], call_next: Any) -> Any:
        if item.headers:
            return await call_next(item.but(priority=1000))
        return await call_next(item.but(args={**item.args, "times": "many"}))

    send = app.registry["send"]
    with pytest.raises(InvalidArgs, match="argument times"):
        await send.enqueue("ann")
    with pytest.raises(InvalidValue, match="priority"):
        await send.options(headers={"a": "b"}).enqueue("ann")
    assert await stored(app) == []


@pytest.mark.covers("RT-017", "RT-170")
async def test_a_middleware_passes_sealed_arguments_on_and_never_sees_them(app: App) -> None:
    seen: list[Any] = []

    @app.job(queue="mail", name="secret")
    async def secret(body: Encrypted[str], to: str) -> str:
        return f"{len(body)} for {to}"

    @app.enqueue_middleware
    async def passing(item: Item[Any], call_next: Any) -> Any:
        seen.append(item.args["body"])
        return await call_next(item.but(headers={"tenant": "acme"}))

    async with at_work(app):
        job = await secret.enqueue("correct horse", "ann")
        assert await job.result(10) == "13 for ann"

    assert seen[0].startswith("dwe1:k1:")
    assert "correct" not in seen[0]


@pytest.mark.covers("RT-017")
async def test_an_exception_in_a_run_middleware_is_a_failed_attempt(app: App) -> None:
    ran: list[str] = []

    @app.middleware
    async def before(job: JobInfo, call_next: Any) -> Any:
        if job.attempt == 1 and job.headers.get("fail") == "before":
            raise LookupError("no tenant")
        answer = await call_next(job)
        ran.append(answer)
        if job.headers.get("fail") == "after":
            raise OSError("disk full")
        return answer

    send = app.registry["send"]
    async with at_work(app):
        first = await send.options(headers={"fail": "before", "tenant": "t"}).enqueue("ann")
        second = await send.options(headers={"fail": "after"}, retries=0).enqueue("bob")
        await until_async(lambda: _state(second, State.DEAD), what="the second is dead")
        await until_async(lambda: _state(first, State.DELAYED), what="the first waits for its second attempt")
        waiting = await first.info()

    assert ran == ["bob x 1 for None"]
    assert waiting is not None
    assert (waiting.attempts, waiting.failures[-1].error_class) == (1, "LookupError")
    dead = await second.info()
    assert dead is not None
    assert (dead.attempts, dead.failures[-1].message, dead.reason) == (1, "disk full", "attempts")


async def _state(ref: Any, state: State) -> bool:
    return await ref.state() is state


@pytest.mark.covers("RT-022")
async def test_failures_are_reported_and_a_report_that_fails_changes_nothing(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[ErrorReport] = []

    @app.on_error
    async def report(error: ErrorReport) -> None:
        told.append(error)

    @app.on_error
    def breaks(error: ErrorReport) -> None:
        told.append(error)
        raise RuntimeError("the reporter's own fault")

    send = app.registry["send"]
    with caplog.at_level(logging.WARNING, logger="dockwork"):
        async with at_work(app) as worker:
            bad = await send.options(retries=0).enqueue("nowhere")
            again = await send.options(id="again").enqueue("nowhere")
            good = await send.enqueue("ann")
            assert await good.result(10) == "ann x 1 for None"
            await until_async(lambda: _state(bad, State.DEAD), what="it is dead")
            await until_async(lambda: _state(again, State.DELAYED), what="it is tried again")

    assert worker.exit_code == 0
    reports = {(error.id, error.attempt): error for error in told}
    assert len(told) == 4
    assert {key: error.outcome for key, error in reports.items()} == {
        (bad.id, 1): "dead",
        ("again", 1): "retry",
    }
    error = reports[bad.id, 1]
    assert (error.type, error.queue, error.error_class, error.message) == (
        "send",
        "mail",
        "ValueError",
        "no such place",
    )
    assert 'raise ValueError("no such place")' in error.trace
    assert caplog.text.count("on error failed") == 2


@pytest.mark.covers("RT-022", "RT-179", "RT-143")
async def test_a_report_shows_nothing_of_a_sealed_argument(app: App) -> None:
    told: list[ErrorReport] = []
    app.on_error(told.append)

    @app.job(queue="mail", name="secret", retries=0)
    async def secret(body: Encrypted[str]) -> None:
        raise ValueError(f"cannot send {body!r}")

    async with at_work(app):
        job = await secret.enqueue("correct horse")
        await until_async(lambda: _state(job, State.DEAD), what="it is dead")

    (kept,) = await app.errors("mail")
    (error,) = told
    for report in (error, kept):
        assert "correct" not in f"{report.message} {report.trace}"
        assert report.message == "cannot send '[REDACTED]'"


@pytest.mark.covers("RT-022")
async def test_the_last_failures_are_reported_before_the_worker_ends(app: App) -> None:
    told: list[str] = []

    @app.on_error
    async def slowly(error: ErrorReport) -> None:
        await asyncio.sleep(0.05)  # noqa: TID251
        told.append(error.id)

    send = app.registry["send"]
    async with at_work(app):
        jobs = [await send.options(retries=0).enqueue("nowhere") for _ in range(3)]
        await until_async(lambda: _state(jobs[-1], State.DEAD), what="all are dead")

    assert sorted(told) == sorted(job.id for job in jobs)


async def test_a_lifespan_is_open_around_all_runs_of_each_worker(app: App) -> None:
    seen: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def resources(of: App) -> AsyncIterator[None]:
        seen.append(f"open {of.name}")
        await of.registry["send"].enqueue("from the start")
        yield
        seen.append("close")

    @app.middleware
    async def note(job: JobInfo, call_next: Any) -> Any:
        seen.append(await call_next(job))

    async with at_work(app):
        await until_async(lambda: _is(len(seen) == 2), what="it ran")
    async with at_work(app):
        await until_async(lambda: _is(len(seen) == 5), what="it ran again")

    once = ["open shop", "from the start x 1 for None", "close"]
    assert seen == once * 2


async def _is(value: bool) -> bool:
    return value


@pytest.mark.covers("RT-110")
async def test_a_worker_whose_lifespan_still_opens_ends_at_once_when_told(app: App) -> None:
    opening, closed = asyncio.Event(), asyncio.Event()

    @app.lifespan
    @asynccontextmanager
    async def resources(of: App) -> AsyncIterator[None]:
        try:
            opening.set()
            await asyncio.Event().wait()  # a database that never answers
            yield
        finally:
            closed.set()

    job = await app.registry["send"].enqueue("ann")
    worker = app.worker(queues={"mail": 2}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    await opening.wait()

    async with asyncio.timeout(5):
        assert await worker.shutdown(60)
        assert await running == 0
    assert closed.is_set()
    assert await job.state() is State.READY


async def test_a_lifespan_that_cannot_open_refuses_the_start_and_one_that_cannot_close_is_told(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    where = "open"

    @app.lifespan
    @asynccontextmanager
    async def resources(of: App) -> AsyncIterator[None]:
        if where == "open":
            raise ConnectionError("no database")
        yield
        raise ConnectionError("the database went away")

    job = await app.registry["send"].enqueue("ann")
    refused = app.worker(queues={"mail": 2}, trap_signals=False)
    assert await refused.run() == 3
    assert await job.state() is State.READY

    where = "close"
    async with at_work(app) as worker:
        assert await job.result(10) == "ann x 1 for None"
    assert worker.exit_code == 70
    assert "the database went away" in caplog.text
    with pytest.raises(InvalidValue, match="lifespan: expected one for an app"):
        app.lifespan(resources)


@pytest.mark.covers("FM-55")
async def test_odd_values_reach_the_handler_and_come_back_as_they_were(app: App) -> None:
    values: dict[str, Any] = {
        "list": [],
        "object": {},
        "big": 2**63,
        "small": -(2**63) - 1,
        "whole": 1.0,
        "emoji": "\N{PARTY POPPER}",
        "nul": "a\x00b",
        "nothing": None,
    }

    @app.job(queue="mail", name="echo", retries=1, backoff=Backoff.fixed(0))
    async def echo(ctx: Context, values: dict[str, Any]) -> dict[str, Any]:
        if ctx.job.attempt == 1:
            await ctx.checkpoint(values)
            raise ValueError("once more")
        assert ctx.saved == values
        return values

    async with at_work(app):
        job = await echo.enqueue(values)
        result = await job.result(10)

    assert result == values
    assert [type(result[name]) for name in values] == [type(value) for value in values.values()]
