"""How `Bench` runs jobs; `test_testing_bench` has what a test asks it for."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import subprocess
import sys
import types
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dockwork import App, Context, State
from dockwork.core.jobs import JobInfo
from dockwork.store.protocol import CronEntry, NewJob, QueueConfig

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "testing.md"


@pytest.fixture
def app() -> App:
    return App("shop", redis="redis://nowhere.invalid:1", namespace="shop")


@pytest.mark.covers("RT-019")
async def test_inline_a_handler_finds_what_it_enqueued_done(app: App) -> None:
    seen: list[str] = []

    @app.job(queue="mail")
    async def inner(name: str) -> str:
        seen.append("inner")
        return name.upper()

    @app.job(queue="mail")
    async def outer(name: str) -> str:
        seen.append("outer begins")
        result = await (await inner.enqueue(name)).result(timeout=0)
        seen.append("outer ends")
        return result

    async with app.testing("inline"):
        ref = await outer.enqueue("ann")
        assert await ref.result(timeout=0) == "ANN"

    assert seen == ["outer begins", "inner", "outer ends"]


@pytest.mark.covers("RT-019")
async def test_inline_many_at_once_all_run(app: App) -> None:
    @app.job(queue="mail")
    async def double(n: int) -> int:
        await asyncio.to_thread(lambda: None)
        return 2 * n

    async with app.testing("inline") as t:
        refs = await asyncio.gather(*[double.enqueue(n) for n in range(30)])
        assert [await ref.result(timeout=0) for ref in refs] == [2 * n for n in range(30)]
        await app.enqueue_many([double.item(n) for n in range(30)])
        assert len(t.jobs("mail", state="completed")) == 60


@pytest.mark.covers("RT-019")
async def test_runs_are_told_in_order_with_how_each_job_stands(app: App) -> None:
    @app.job(queue="mail", retries=0)
    async def fail(name: str) -> None:
        raise ValueError(name)

    @app.job(queue="mail", priority=-5)
    def urgent() -> int:
        return 1

    async with app.testing() as t:
        await fail.enqueue("late")
        await urgent.enqueue()
        await app.enqueue("elsewhere", {"x": 1}, queue="mail")
        ran = await t.run_all()

        assert [(job.type, job.state) for job in ran] == [
            ("urgent", State.COMPLETED),
            ("fail", State.DEAD),
            ("elsewhere", State.PARKED),
        ]
        assert await t.run_all() == []
        assert t.assert_enqueued("elsewhere", x=1) == t.enqueued[2].id
        with pytest.raises(AssertionError, match=r'a job fail with \{"name": "late"\} was enqueued'):
            t.assert_not_enqueued(fail, name="late")
        t.assert_not_enqueued(fail, name="later")


@pytest.mark.covers("RT-019")
async def test_a_queue_that_is_paused_held_or_empty_ends_at_once(app: App) -> None:
    @app.job(queue="mail")
    async def nothing() -> None:
        return

    async with app.testing() as t:
        await nothing.enqueue()
        (queue,) = t.store.names()
        await t.store.set_paused(queue, expected=False, wanted=True)
        assert await t.run_all() == []
        await t.store.set_paused(queue, expected=True, wanted=False)
        await t.store.configure(queue, QueueConfig(held=True), None)
        assert await t.run_all() == []
        await t.store.configure(queue, QueueConfig(), None)
        assert [job.state for job in await t.run_all()] == [State.COMPLETED]


async def test_a_job_that_enqueues_itself_without_end_is_found_out(app: App) -> None:
    @app.job(queue="mail")
    async def again() -> None:
        await again.enqueue()

    async with app.testing() as t:
        await again.enqueue()
        with pytest.raises(AssertionError, match="20 runs, and no end: does a job enqueue itself"):
            await t.run_all(most=20)


@pytest.mark.covers("RT-019")
async def test_middlewares_contexts_and_queue_options_are_those_of_production(app: App) -> None:
    seen: list[str] = []
    app.queue("mail", max_depth=1)

    @app.middleware
    async def note(job: JobInfo, call_next: Callable[[JobInfo], Awaitable[Any]]) -> Any:
        seen.append(f"{job.type} attempt {job.attempt}")
        return await call_next(job)

    @app.job(queue="mail")
    def work(ctx: Context) -> str:
        ctx.sync.progress(0.5)
        ctx.log("here", n=1)
        return ctx.job.queue

    async with app.testing() as t:
        await work.enqueue()
        (refused,) = await app.enqueue_many([work.item()])
        (job,) = await t.run_all()

    assert (refused.outcome, refused.reason) == ("rejected", "depth")
    assert (job.result, job.progress, seen) == ("mail", 0.5, ["work attempt 1"])
    assert '"msg":"here"' in job.log[0]


@pytest.mark.covers("RT-019")
async def test_ticks_of_schedules_come_with_time(app: App) -> None:
    @app.job(queue="mail")
    async def report() -> str:
        return "made"

    async with app.testing("inline") as t:
        item = report.item()
        job = NewJob(id="tick", type=item.type, envelope=item.envelope)
        entry = CronEntry(uid="u", schedule_hash="s", job=job, every_ms=60_000)
        await t.store.plan(app.client.name("mail"), entry, [], generation=1, reset=False)
        for _ in range(3):
            await t.advance(60)

        assert [job.result for job in t.jobs("mail")] == ["made"] * 3


async def test_nobody_is_told_that_a_queue_has_no_workers(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.job(queue="mail")
    async def nothing() -> None:
        return

    async with app.testing():
        await nothing.enqueue()

    assert caplog.records == []


@pytest.mark.covers("RT-019")
def test_importing_it_changes_nothing() -> None:
    program = """
import threading, dockwork, asyncio
app = dockwork.App("shop", redis="redis://nowhere.invalid:1", namespace="shop")
before = set(vars(app)), set(vars(dockwork.App)), threading.active_count(), dict(__import__("os").environ)
policy = type(asyncio.get_event_loop_policy())
import dockwork.testing
after = set(vars(app)), set(vars(dockwork.App)), threading.active_count(), dict(__import__("os").environ)
assert before == after and policy is type(asyncio.get_event_loop_policy())
print(type(app.make_store()).__name__)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "RedisStore"


@pytest.mark.covers("RT-019")
async def test_the_guides_snippets_run_from_top_to_bottom() -> None:
    module = types.ModuleType("guide")
    sys.modules["guide"] = module
    text = GUIDE.read_text()
    found = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    try:
        for block in found:
            line = text[: block.start(1)].count("\n")
            code = compile("\n" * line + block[1], str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            result = eval(code, module.__dict__)
            if inspect.isawaitable(result):
                await result
    finally:
        del sys.modules["guide"]

    assert len(found) == 5
