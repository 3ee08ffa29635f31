"""Workers inside a program: several at once, in its loop or in threads, beside handlers that do not behave."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from dockwork import App, Context, JobRef, Settings, State
from dockwork.testing import MemoryStore
from dockwork.worker import signals
from dockwork.worker import worker as worker_module
from dockwork.worker.worker import Worker
from support.waiting import until, until_async

QUIET = Settings(namespace="default", trap_signals=False, drain_timeout=timedelta(seconds=5))


def an_app(name: str, store: MemoryStore) -> App:
    return App(name, store=store, namespace="default")


@asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[asyncio.Task[int]]:
    """A worker that runs in this loop, and is shut down at the end."""
    task = asyncio.create_task(worker.run())
    await until_async(lambda: value(worker.is_running or task.done()), what="the worker runs")
    try:
        yield task
    finally:
        await worker.shutdown()
        await asyncio.wait({task})


async def value(it: object) -> object:
    return it


async def until_state(ref: JobRef[object], *states: State, within: float = 10) -> None:
    await until_async(lambda: in_state(ref, states), within=within, what=f"{ref.id} is {states}")


async def in_state(ref: JobRef[object], states: tuple[State, ...]) -> bool:
    return await ref.state() in states


@pytest.mark.covers("RT-092", "RT-117")
async def test_workers_of_two_apps_share_a_loop_and_a_thread_and_stop_apart() -> None:
    store = MemoryStore()
    ran: Counter[str] = Counter()
    shop, blog = an_app("shop", store), an_app("blog", store)

    @shop.job(queue="mail")
    async def send() -> str:
        ran[threading.current_thread().name] += 1
        return "sent"

    @blog.job(queue="pages")
    async def render() -> str:
        ran[threading.current_thread().name] += 1
        return "rendered"

    here = shop.worker(settings=replace(QUIET, queues={"mail": 2}))
    there = blog.worker(settings=replace(QUIET, queues={"pages": 2}))
    beside = shop.worker(settings=replace(QUIET, queues={"mail": 1, "extra": 1}))
    handler = signal.getsignal(signal.SIGTERM)
    thread = there.start_thread()
    async with running(here) as first, running(beside) as second:
        assert await (await send.enqueue()).result(timeout=10) == "sent"
        assert await (await render.enqueue()).result(timeout=10) == "rendered"
        assert ran == {"MainThread": 1, "dockwork-worker-blog": 1}

        assert await here.shutdown() is True
        assert await first == 0
        assert not second.done()
        assert await (await send.enqueue()).result(timeout=10) == "sent"
        assert await (await render.enqueue()).result(timeout=10) == "rendered"
        assert signal.getsignal(signal.SIGTERM) is handler

        assert await there.shutdown() is True
        until(lambda: not thread.is_alive(), what="its thread has ended")
        assert await (await send.enqueue()).result(timeout=10) == "sent"
    assert second.result() == 0


@pytest.mark.covers("RT-092", "RT-116")
async def test_a_signal_reaches_every_worker_of_the_process_and_the_last_ends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore()
    apps = [an_app(name, store) for name in ("shop", "blog")]
    before = signal.getsignal(signal.SIGTERM)
    trapping = replace(QUIET, trap_signals=True)
    release = asyncio.Event()

    @apps[1].job(queue="blog")
    async def waits() -> None:
        await release.wait()

    job = await waits.enqueue()
    workers = [app.worker(settings=replace(trapping, queues={app.name: 1})) for app in apps]
    left: list[int] = []
    monkeypatch.setattr(Worker, "_leave_process", lambda worker, code: left.append(code))
    async with running(workers[0]) as first, running(workers[1]) as second:
        await until_state(job, State.PROCESSING, State.ACTIVE)
        assert signal.getsignal(signal.SIGTERM) is not before
        signal.raise_signal(signal.SIGTERM)
        assert await first == 0
        assert (left, second.done()) == ([], False), "the other one still drains"
        assert signals.any_set()
        release.set()
        assert await second == 0
    assert left == [0]
    assert signal.getsignal(signal.SIGTERM) is before
    assert await job.state() is State.COMPLETED


@pytest.mark.covers("RT-091")
async def test_shared_slots_go_to_the_queue_that_has_work_and_reserved_ones_stay_free() -> None:
    app = an_app("shop", MemoryStore())
    running_now: Counter[str] = Counter()
    most: Counter[str] = Counter()
    release = asyncio.Event()

    async def handle(queue: str) -> None:
        running_now[queue] += 1
        most[queue] = max(most[queue], running_now[queue])
        await release.wait()
        running_now[queue] -= 1

    @app.job(queue="bulk")
    async def bulk(n: int) -> None:
        await handle("bulk")

    @app.job(queue="mail")
    async def mail(n: int) -> None:
        await handle("mail")

    await app.enqueue_many([bulk.item(n) for n in range(20)])
    worker = app.worker(queues={"mail": 2, "bulk": 1}, shared=3, trap_signals=False)
    assert worker.queues == {"mail": 2, "bulk": 1}
    async with running(worker):
        await until_async(
            lambda: value(running_now["bulk"] == 4), what="its own slot and all that are shared"
        )
        await app.enqueue_many([mail.item(n) for n in range(20)])
        await until_async(lambda: value(running_now["mail"] == 2), what="the slots that nobody could take")
        release.set()
        await until_async(lambda: drained(app), within=20, what="all have run")
    assert most["mail"] <= 5
    assert most["bulk"] == 4


async def drained(app: App) -> bool:
    return all([(await app.stats(queue)).counts[State.COMPLETED] == 20 for queue in ("mail", "bulk")])


@pytest.mark.covers("RT-104", "RT-118")
async def test_a_worker_ends_in_order_after_enough_jobs_or_with_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = an_app("shop", MemoryStore())

    @app.job(queue="work")
    async def quick(n: int) -> None: ...

    await app.enqueue_many([quick.item(n) for n in range(10)])
    worker = app.worker(queues={"work": 1}, max_jobs=4, trap_signals=False)
    assert await asyncio.wait_for(worker.run(), 20) == 0
    assert worker.drain.reason == "max_jobs"
    assert 4 <= (await app.stats("work")).counts[State.COMPLETED] <= 6
    assert (await app.stats("work")).counts[State.ACTIVE] == 0

    monkeypatch.setattr(worker_module, "resident_bytes", lambda: 600 << 20)
    worker = app.worker(queues={"other": 1}, max_rss="512Mi", trap_signals=False)
    assert await asyncio.wait_for(worker.run(), 20) == 0
    assert worker.drain.reason == "max_rss"


@pytest.mark.covers("RT-110", "RT-111")
async def test_who_cancels_run_gets_the_jobs_put_back_and_the_cancellation() -> None:
    app = an_app("shop", MemoryStore())

    @app.job(queue="work")
    async def waits() -> None:
        await asyncio.Event().wait()

    job = await waits.enqueue()
    worker = app.worker(settings=replace(QUIET, queues={"work": 1}, drain_timeout=timedelta(minutes=5)))
    async with running(worker) as task:
        await until_state(job, State.PROCESSING)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(task, 10)
        assert (await job.info()).state is State.READY
        assert (await job.info()).deliveries == 0


async def test_a_handler_that_cancels_every_task_fails_and_its_worker_goes_on() -> None:
    store = MemoryStore()
    app = an_app("shop", store)
    release = threading.Event()
    began: Counter[str] = Counter()

    @app.job(queue="work")
    async def beside(ctx: Context) -> str:
        began["beside"] += 1
        await until_async(lambda: value(release.is_set()), within=30)
        return "done"

    @app.job(queue="work")
    def in_thread() -> str:
        began["in_thread"] += 1
        release.wait(30)
        return "done"

    @app.job(queue="work", retries=0)
    async def meddles() -> None:
        for task in asyncio.all_tasks():
            task.cancel()

    # In a thread of its own: on this loop the test would be among the cancelled.
    worker = app.worker(settings=replace(QUIET, queues={"work": 4}))
    thread = worker.start_thread()
    try:
        others = [await beside.enqueue(), await in_thread.enqueue()]
        await until_async(lambda: value(len(began) == 2))
        for _ in range(3):
            job = await meddles.enqueue()
            await until_state(job, State.DEAD)
            failure = (await job.info()).failures[0]
            assert failure.error_class.endswith("NotYours"), failure
        release.set()
        assert [await other.result(timeout=10) for other in others] == ["done", "done"]
        assert began["in_thread"] == 1, "its thread was waited for"
        for other in others:
            assert (await other.info()).attempts == 0
        assert not worker.drain.begun
    finally:
        await worker.shutdown()
    until(lambda: not thread.is_alive(), what="its thread has ended")


async def test_in_a_test_handlers_that_ask_for_a_process_run_in_the_tests_own() -> None:
    app = App("shop", namespace="default")

    @app.job(queue="work", isolation="process")
    def here(ctx: Context) -> int:
        return os.getpid()

    async with app.testing() as t:
        await here.enqueue()
        await t.run_all()
        assert [job.result for job in t.jobs("work", state="completed")] == [os.getpid()]
    assert await app.registry["here"].run() == os.getpid()
