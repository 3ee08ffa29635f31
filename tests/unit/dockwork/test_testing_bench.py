"""`App.testing`: an application's own tests, without Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from dockwork import App, Backoff, Context, InvalidValue, Retry, State


@pytest.fixture
def done() -> list[Any]:
    return []


@pytest.fixture
def app(done: list[Any]) -> App:
    """An app whose Redis nobody could reach."""
    app = App("shop", redis="redis://nowhere.invalid:1", namespace="shop")

    @app.job(queue="mail", name="welcome")
    async def welcome(ctx: Context, to: str) -> str:
        done.append(("welcome", to, ctx.job.attempt))
        if to == "flaky" and ctx.job.attempt == 1:
            raise Retry(after=30)
        return f"hello {to}"

    @app.job(queue="accounts", name="sign_up", retries=1, backoff=Backoff.fixed(60))
    def sign_up(to: str) -> None:
        done.append(("sign_up", to))
        if to == "broken":
            raise ValueError("no such domain")
        app.registry["welcome"].sync.enqueue(to)

    return app


@pytest.mark.covers("RT-019")
async def test_manual_jobs_wait_until_they_are_run(app: App, done: list[Any]) -> None:
    async with app.testing() as t:
        ref = await app.registry["sign_up"].enqueue("ann")

        assert [job.state for job in t.jobs("accounts")] == [State.READY]
        assert done == []
        await t.run_all()

        assert done == [("sign_up", "ann"), ("welcome", "ann", 1)]
        assert await ref.state() is State.COMPLETED
        assert [job.result for job in t.jobs("mail", state="completed")] == ["hello ann"]
        t.assert_enqueued(app.registry["welcome"], to="ann")
    app.sync.close()


@pytest.mark.covers("RT-019")
async def test_inline_an_enqueue_runs_the_job_and_what_that_enqueues(app: App, done: list[Any]) -> None:
    async with app.testing("inline"):
        ref = await app.registry["sign_up"].enqueue("ann")

        assert done == [("sign_up", "ann"), ("welcome", "ann", 1)]
        assert await ref.result(timeout=0) is None
        assert app.registry["welcome"].sync.enqueue("bob").result(timeout=0) == "hello bob"
    app.sync.close()


@pytest.mark.covers("RT-019")
async def test_time_passes_only_by_advance(app: App, done: list[Any]) -> None:
    async with app.testing() as t:
        began = t.now
        await app.registry["welcome"].enqueue_in(60, "late")
        await app.registry["welcome"].enqueue("flaky")
        await t.run_all()
        assert done == [("welcome", "flaky", 1)]

        await t.advance(timedelta(seconds=30))
        await t.run_all()
        assert done[1:] == [("welcome", "flaky", 2)]

        await t.advance(30)
        await t.run_all()
        assert done[2:] == [("welcome", "late", 1)]
        assert t.now - began == timedelta(minutes=1)


async def test_a_handler_that_fails_is_retried_and_then_dead(app: App, done: list[Any]) -> None:
    async with app.testing("inline") as t:
        await app.registry["sign_up"].enqueue("broken")
        assert [job.state for job in t.jobs("accounts")] == [State.DELAYED]

        await t.advance(60)

        (dead,) = t.jobs("accounts", state="dead")
        assert (dead.attempts, done) == (2, [("sign_up", "broken")] * 2)
        assert dead.failures[-1].message == "no such domain"


async def test_what_was_enqueued_is_found_by_its_arguments(app: App) -> None:
    async with app.testing() as t:
        welcome = app.registry["welcome"]
        ref = await welcome.enqueue("ann")

        assert t.assert_enqueued(welcome, to="ann") == ref.id
        with pytest.raises(
            AssertionError, match=r'no job welcome with \{"to": "bob"\}; there are: \{"to": "ann"\}'
        ):
            t.assert_enqueued(welcome, to="bob")


async def test_each_block_begins_empty_and_the_app_is_as_before(app: App) -> None:
    before = app.make_store
    async with app.testing() as t:
        await app.registry["welcome"].enqueue("ann")
        assert len(t.jobs("mail")) == 1
    async with app.testing() as t:
        assert t.jobs("mail") == []
        assert await app.queues() == []
    assert "MemoryStore" not in type(before()).__mro__[0].__name__
    with pytest.raises(InvalidValue, match="mode: expected inline or manual"):
        async with app.testing("eager"):  # type: ignore[arg-type]
            pass


async def test_the_apps_lifespan_is_around_the_runs(app: App) -> None:
    seen: list[str] = []

    @app.lifespan
    @asynccontextmanager
    async def resources(_: App) -> AsyncIterator[None]:
        seen.append("open")
        yield
        seen.append("closed")

    async with app.testing("inline"):
        await app.registry["welcome"].enqueue("ann")

    assert seen == ["open", "closed"]
