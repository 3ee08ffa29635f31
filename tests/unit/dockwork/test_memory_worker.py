"""A real worker on a store in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from dockwork import (
    App,
    Backoff,
    Context,
    JobRef,
    Retry,
    Settings,
    State,
    StoreUnavailable,
    Unrecoverable,
)
from dockwork.core.keys import QueueName
from dockwork.core.states import ENDED
from dockwork.testing import MemoryStore
from dockwork.worker.worker import Worker
from support.waiting import until_async

NAME = QueueName("default", "work")


@asynccontextmanager
async def a_worker(app: App, *, slots: int = 4) -> AsyncIterator[Worker]:
    """A worker that runs, and is shut down at the end."""
    settings = Settings(
        namespace="default",
        queues={"work": slots},
        trap_signals=False,
        drain_timeout=timedelta(seconds=5),
    )
    worker = app.worker(settings=settings)
    running = asyncio.ensure_future(worker.run())

    async def runs() -> bool:
        assert not running.done()
        return worker.is_running

    await until_async(runs, what="the worker runs")
    try:
        yield worker
    finally:
        await worker.shutdown()
        assert await running == 0


async def until_state(ref: JobRef[object], *states: State) -> None:
    async def there() -> bool:
        return await ref.state() in states

    await until_async(there, what=f"{ref.id} is {' or '.join(states)}")


@pytest.mark.covers("RT-019")
async def test_a_worker_runs_jobs_of_every_kind_retries_when_time_passes_and_leaves_nothing_behind() -> None:
    store = MemoryStore()
    app = App("shop", store=store, namespace="default")
    threads = set()

    @app.job(queue="work", retries=1, backoff=Backoff.fixed(3600))
    async def fetch(ctx: Context, name: str) -> str:
        await ctx.progress(0.5)
        if ctx.job.attempt == 1 and name == "flaky":
            raise ValueError("not yet")
        return name.upper()

    @app.job(queue="work")
    def count(numbers: list[int]) -> int:
        threads.add(threading.current_thread().name)
        return sum(numbers)

    async with a_worker(app):
        ref, flaky = await fetch.enqueue(name="a"), await fetch.enqueue(name="flaky")
        later = await count.enqueue_in(7200, [1, 2])
        assert await (await count.enqueue([1, 2, 3])).result(timeout=10) == 6
        assert await ref.result(timeout=10) == "A"
        await until_state(flaky, State.DELAYED)

        store.advance(3600)
        assert await flaky.result(timeout=10) == "FLAKY"
        assert await later.state() is State.DELAYED
        store.advance(3600)
        assert await later.result(timeout=10) == 3
    await app.close()

    assert threads != {threading.main_thread().name}
    sample = await store.sample(NAME, horizon_ms=0)
    assert (sample.workers, sample.active, sample.leased) == ((), 0, {})
    assert [view.state in ENDED for view in store.snapshot(NAME)] == [True] * 4


@pytest.mark.covers("RT-019")
async def test_a_cancel_reaches_a_running_handler_at_once() -> None:
    store = MemoryStore()
    app = App("shop", store=store, namespace="default")
    began = asyncio.Event()

    @app.job(queue="work")
    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    async with a_worker(app):
        ref = await hang.enqueue()
        await asyncio.wait_for(began.wait(), 5)
        assert await ref.cancel() == "flagged"
        await until_state(ref, State.CANCELLED)
    await app.close()


@pytest.mark.covers("RT-019")
async def test_a_drain_puts_back_what_runs_and_another_worker_takes_it_up() -> None:
    app = App("shop", store=MemoryStore(), namespace="default")
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.job(queue="work")
    async def long(ctx: Context) -> str:
        if ctx.saved is None:
            await ctx.checkpoint("half")
            began.set()
            await go_on.wait()
        return f"from {ctx.saved}"

    async with a_worker(app) as worker:
        ref = await long.enqueue()
        await asyncio.wait_for(began.wait(), 5)
        await worker.shutdown(2)
        assert await ref.state() is State.READY
    async with a_worker(app):
        assert await ref.result(timeout=10) == "from half"
    (view,) = app.make_store().snapshot(NAME)  # type: ignore[attr-defined]
    assert (view.attempts, view.deliveries, view.interruptions) == (0, 1, 1)
    await app.close()


@pytest.mark.covers("RT-019")
async def test_with_a_clock_that_ticks_delays_end_by_themselves() -> None:
    app = App("shop", store=MemoryStore(ticking=True), namespace="default")

    @app.job(queue="work")
    async def nothing() -> None:
        return

    async with a_worker(app):
        ref = await nothing.enqueue_in(0.05)
        await ref.result(timeout=10)
    await app.close()


@pytest.mark.covers("RT-019")
async def test_producers_on_other_loops_and_threads_share_the_store() -> None:
    app = App("shop", store=MemoryStore(), namespace="default")

    @app.job(queue="work")
    async def double(n: int) -> int:
        return 2 * n

    async with a_worker(app):
        refs = await asyncio.gather(*[asyncio.to_thread(double.sync.enqueue, n) for n in range(20)])
        results = [await app.ref("work", ref.id).result(timeout=10) for ref in refs]
    app.sync.close()
    await app.close()

    assert results == [2 * n for n in range(20)]


class Mute(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Wordless(Unrecoverable):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307


class Endless(Retry):
    def __init__(self) -> None:
        super().__init__(1)
        self.after = float("inf")


@pytest.mark.covers("RT-132")
async def test_an_error_that_cannot_be_told_fails_its_attempt_and_frees_its_slot_at_once() -> None:
    errors: list[Exception] = [
        Mute(),
        Wordless(),
        Endless(),
        Unrecoverable("caf\udce9"),
        ValueError("caf\udce9"),
    ]
    app = App("shop", store=MemoryStore(), namespace="default")

    @app.job(queue="work", retries=1, backoff=Backoff.fixed(3600))
    async def fails(ctx: Context, which: int) -> None:
        ctx.log("caf\udce9", which=errors[which])
        raise errors[which]

    async with a_worker(app, slots=1):
        refs = [await fails.enqueue(which) for which in range(len(errors))]
        for ref in refs:
            await until_state(ref, State.DELAYED, State.DEAD)
        jobs = [await app.client.job("work", ref.id) for ref in refs]

    found = [(job.state, job.failures[-1].message, job.log[0].count("caf?")) for job in jobs if job]
    assert found == [
        (State.DELAYED, "(Mute without a text: its __str__ fails)", 1),
        (State.DEAD, "(Wordless without a text: its __str__ fails)", 1),
        (State.DELAYED, "Endless, which could not be told", 1),
        (State.DEAD, "caf?", 1),
        (State.DELAYED, "caf?", 1),
    ]
    await app.close()


def fail_where_negative(value: int) -> int:
    if value < 0:
        raise KeyError("no")
    return value


async def test_a_validator_that_breaks_fails_its_job_and_not_the_worker() -> None:
    app = App("shop", store=MemoryStore(), namespace="default")

    @app.job(queue="work", retries=0)
    async def takes(value: Annotated[int, AfterValidator(fail_where_negative)]) -> int:
        return value

    bad = await app.submit(
        replace(takes.item(1), envelope=takes.item(1).envelope.replace(b'"value":1', b'"value":-1'))
    )
    async with a_worker(app):
        await until_state(bad, State.DEAD)
        assert await (await takes.enqueue(2)).result(timeout=10) == 2
    await app.close()


async def test_a_defect_stays_the_reason_for_the_end_though_redis_is_gone_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    app = App("shop", store=store, namespace="default")

    @app.job(queue="work")
    async def ends() -> None:
        return

    async def lost(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable

    settings = Settings(
        namespace="default", queues={"work": 1}, trap_signals=False, drain_timeout=timedelta(seconds=1)
    )
    worker = app.worker(settings=settings)
    running = asyncio.ensure_future(worker.run())

    async def runs() -> bool:
        return worker.is_running

    async def claimed() -> bool:
        return bool(worker.lanes[0].runs)

    await until_async(runs, what="the worker runs")
    monkeypatch.setattr(store, "settle", lost)
    monkeypatch.setattr(store, "requeue", lost)
    await ends.enqueue()
    await until_async(claimed, what="the job is claimed")
    worker._fail(RuntimeError("a defect"))

    assert await asyncio.wait_for(running, 30) == 70
    await app.close()
