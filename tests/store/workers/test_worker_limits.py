"""Limits over worker processes, and options that change while workers run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from dockwork import App, Context, Rate, TimedOut
from dockwork.core.states import State
from dockwork.store.protocol import Event, OwnerRecord, QueueConfig, RateLimit
from dockwork.store.redis import RedisStore
from support.limits_app import app as declared
from support.waiting import until, until_async
from support.workers import NAME, QUEUE, Process, World

FULL = bool(os.environ.get("DOCKWORK_TEST_FULL"))
WORKERS = 10 if FULL else 2
JOBS = 10_000 if FULL else 240
ACCOUNTS = 9
SLOTS = 4
RATE = RateLimit(1500, 1000) if FULL else RateLimit(100, 500)
CONCURRENCY = 25 if FULL else 5
LEASE = 1.5


async def enqueue(world: World, items: Sequence[Any]) -> None:
    for first in range(0, len(items), 1000):
        await world.app.enqueue_many(items[first : first + 1000])


async def ended(world: World, count: int) -> None:
    async def ask() -> bool:
        return (await world.store.stats(NAME)).totals.get("completed", 0) >= count

    await until_async(ask, within=120 if FULL else 40, what=f"{count} jobs completed")


async def all_events(world: World) -> list[Event]:
    found: list[Event] = []
    since = "0"
    while events := await world.store.events(NAME, since, block_s=0):
        found += events
        since = events[-1].id
    return found


def processes(stack: ExitStack, world: World, folder: Path) -> list[Process]:
    workers = [
        Process(world.url, folder, name=f"w{n}", lease=LEASE, target="support.limits_app:app")
        for n in range(WORKERS)
    ]
    for worker in workers:
        stack.callback(worker.__exit__)
        worker.start()
    for worker in workers:
        worker.until_log("worker_runs", within=120 if FULL else 30)
    return workers


@pytest.mark.covers("RT-150", "RT-152", "RT-153", "RT-090", "FM-48")
@pytest.mark.timeout(300)
async def test_rate_concurrency_keys_and_slots_hold_over_processes_and_a_crash(
    world: World, tmp_path: Path
) -> None:
    limits = QueueConfig(rate=RATE, concurrency=CONCURRENCY, keep={"completed_count": 20_000})
    await world.store.configure(NAME, limits, None)
    brief, keyed = declared.registry["brief"], declared.registry["by_account"]
    items = [brief.item(n=n) if n % 4 else keyed.item(account=n % ACCOUNTS, n=n) for n in range(1, JOBS + 1)]
    with ExitStack() as stack:
        workers = processes(stack, world, tmp_path)
        await enqueue(world, items)
        await ended(world, JOBS // 3)
        workers[0].kill()
        await ended(world, JOBS)

    check_events(await all_events(world))
    receipts = [line.split() for line in workers[0].receipts()]
    done = Counter(n for what, n, _, _ in receipts if what == "ended")
    assert len(done) == JOBS
    assert sum(done.values()) - JOBS <= SLOTS, "only what the killed worker held ran twice"
    # What the killed worker had begun is never said to have ended.
    lost = lost_of(receipts, str(workers[0].pid))
    by_process: Counter[str] = Counter()
    by_account: Counter[str] = Counter()
    for what, _, account, pid in receipts:
        step = 1 if what == "began" else -1
        by_process[pid] += step
        assert by_process[pid] <= SLOTS
        if account != "none":
            by_account[account] += step
            assert by_account[account] <= 1 + lost[account]


def lost_of(receipts: Sequence[Sequence[str]], killed: str) -> Counter[str]:
    """How many jobs of each account the killed worker had begun and not ended."""
    found: Counter[str] = Counter()
    for what, _, account, pid in receipts:
        if pid == killed:
            found[account] += 1 if what == "began" else -1
    return found


def check_events(events: Sequence[Event]) -> None:
    """No window has too many starts; never do more run than may, and all places were used."""
    starts = sorted(at for event in events if event.name == "active" for at in [event.at_ms] * len(event.ids))
    pairs = zip(starts, starts[RATE.count :], strict=False)
    assert [later - first for first, later in pairs if later - first < RATE.per_ms] == []
    running, most = 0, 0
    for event in events:
        running += len(event.ids) * {"active": 1, "completed": -1, "stalled": -1}.get(event.name, 0)
        most = max(most, running)
    assert most == CONCURRENCY


@pytest.mark.covers("RT-150", "RT-151")
async def test_a_throttled_worker_sleeps_until_the_next_start_and_then_uses_the_rate(world: World) -> None:
    app, per_ms, count = world.an_app(), 400, 8

    @app.job(queue=QUEUE)
    async def nothing() -> None: ...

    await world.store.configure(NAME, QueueConfig(rate=RateLimit(count, per_ms)), None)
    await app.enqueue_many([nothing.item() for _ in range(count * 4)])
    async with world.worker(app, slots=16):
        await ended(world, count * 4)
        calls = (await world.store.stats(NAME)).totals
    await app.close()

    starts = [
        at
        for event in await all_events(world)
        if event.name == "active"
        for at in [event.at_ms] * len(event.ids)
    ]
    assert starts[-1] - starts[0] >= 3 * per_ms
    # Three more fillings, each a hundredth late by the buckets; the rest is this machine's.
    assert starts[-1] - starts[0] <= 3 * per_ms * 1.02 + 250
    assert calls["claimed"] == count * 4


@pytest.mark.covers("RT-151")
async def test_a_throttled_worker_asks_for_nothing_until_its_time(world: World) -> None:
    app = world.an_app()

    @app.job(queue=QUEUE)
    async def nothing() -> None: ...

    async def calls() -> int:
        return int((await redis.info("commandstats"))["cmdstat_evalsha"]["calls"])

    redis: Redis = Redis.from_url(world.url, retry=Retry(NoBackoff(), 0), socket_timeout=30)
    await world.store.configure(NAME, QueueConfig(rate=RateLimit(1, 60_000)), None)
    await app.enqueue_many([nothing.item() for _ in range(20)])
    async with world.worker(app, slots=16):
        await ended(world, 1)
        now = await world.store.ping()
        await until_async(lambda: world.has_passed(now + 500))
        before = await calls()
        await nothing.enqueue()
        await until_async(lambda: world.has_passed(now + 2000))
        asked = await calls() - before
    await app.close()
    await redis.aclose()

    # The enqueue, its producer's one look, and perhaps a beat: no claim every so often, and none for the new job.
    assert asked <= 4


@pytest.mark.covers("RT-157", "RT-001")
async def test_options_that_change_reach_a_running_worker_without_a_restart(world: World) -> None:
    world.lease = timedelta(seconds=LEASE)
    app = world.an_app()

    @app.job(queue=QUEUE)
    async def nothing() -> None: ...

    async with world.worker(app) as worker:
        (lane,) = worker.lanes
        assert lane.config.timeout_ms is None
        other: App = world.an_app()
        other.queue(QUEUE, timeout=7, concurrency=3, rate=Rate(500))
        assert (await other.configure(QUEUE)).outcome == "written"
        await other.close()

        async def heard() -> bool:
            return lane.config.timeout_ms == 7000

        # A beat is a third of the lease; the rest is this machine's.
        await until_async(heard, within=LEASE / 3 + 2, what="the worker has the new options")
    await app.close()


@pytest.mark.covers("RT-157", "RT-001")
async def test_a_worker_writes_its_codes_options_but_not_over_a_queue_objects(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def an_app() -> App:
        app = App("tests", store=lambda: RedisStore(world.redis), defaults={"retries": 2, "per_key": 4})
        app.queue(QUEUE, max_depth=50, concurrency=9)
        app.job(queue=QUEUE)(_nothing)
        return app

    async with world.worker(an_app()):
        free = await world.store.config(NAME)
    owner = OwnerRecord(operator="o", namespace="shop", name="mail", uid="u")
    await world.store.configure(NAME, QueueConfig(generation=1, max_depth=5), owner)
    async with world.worker(an_app()):
        owned = await world.store.config(NAME)

    assert (free.max_depth, free.max_attempts, free.concurrency, free.per_key) == (50, 3, 9, 4)
    assert (owned.max_depth, owned.max_attempts, owned.concurrency, owned.per_key) == (5, None, 9, 4)
    assert caplog.text.count("the Queue resource's options stand") == 1


async def _nothing() -> None: ...


@pytest.mark.covers("RT-001", "RT-138", "RT-106")
async def test_a_queues_sizes_and_its_hard_timeout_beat_the_defaults(world: World, tmp_path: Path) -> None:
    app = world.an_app()
    app.queue(QUEUE, max_result="100Ki", max_checkpoint=300, max_progress=256, hard_after=0.3)

    @app.job(queue=QUEUE, retries=0)
    async def large(ctx: Context, size: int) -> str:
        await ctx.progress("p" * 1000)
        await ctx.checkpoint("c" * (size // 1000))
        return "r" * size

    @app.job(queue=QUEUE, retries=0, timeout=0.1)
    def deaf(path: str) -> None:
        while not Path(
            path
        ).exists():  # no lock of its own, no sleep: an injected exception does not reach it
            try:
                until(lambda: Path(path).exists(), within=5)
            except TimedOut:
                continue

    fits, dropped, refused = [await large.enqueue(size=size) for size in (90_000, 110_000, 400_000)]
    release = tmp_path / "release"
    async with world.worker(app):
        whole = await world.until(fits.id, State.COMPLETED)
        cut = await world.until(dropped.id, State.COMPLETED)
        bad = await world.until(refused.id, State.DEAD)
        stuck = await deaf.enqueue(path=str(release))
        late = await world.until(stuck.id, State.DEAD, within=5)
        release.touch()
    await app.close()

    assert whole.result is not None
    assert (len(whole.result), cut.result, cut.result_dropped) == (90_002, None, 110_002)
    assert whole.progress is not None
    assert len(whole.progress) <= 256
    assert bad.failures[0].message == "checkpoint: 402 bytes are more than the limit of 300"
    assert "went on for 0.3 s after its timeout of 0.1 s" in late.failures[0].message


@pytest.mark.covers("RT-001", "RT-104")
async def test_a_queues_sizes_hold_in_child_processes_too(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKWORK_REDIS_URL", world.url)
    monkeypatch.setenv("RECEIPTS", str(tmp_path / "receipts"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    await world.store.configure(NAME, QueueConfig(max_checkpoint=300, max_progress=256), None)
    item = declared.registry["saves_in_child"].item(size=500)

    async with world.worker(declared):
        job = await world.app.submit(item)
        view = await world.until(job.id, State.DEAD, within=20)

    assert view.failures[0].message == "checkpoint: 502 bytes are more than the limit of 300"
    assert view.progress is not None
    assert len(view.progress) <= 256


@pytest.mark.covers("RT-001")
async def test_a_timeout_above_the_queues_most_is_refused_with_both_numbers(world: World) -> None:
    from dockwork import InvalidValue

    await world.store.configure(NAME, QueueConfig(max_timeout_ms=5000), None)

    @world.app.job(queue=QUEUE, timeout=8)
    async def long() -> None: ...

    with pytest.raises(InvalidValue, match=r"timeout: expected at most 5000 ms.*got 8000"):
        await long.enqueue()
    job = await long.options(timeout=4).enqueue()
    assert await job.state() is State.READY
