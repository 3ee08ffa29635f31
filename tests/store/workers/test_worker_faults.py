"""What goes wrong around a worker: cuts in the middle of a call, rollouts, cancels that race the end, eviction."""

from __future__ import annotations

import asyncio
import os
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from dockwork import Context
from dockwork.core.states import State
from dockwork.errors import OutcomeUnknown, StoreUnavailable
from dockwork.store.protocol import Outcome, Owner, Settlement, Verdict
from dockwork.store.redis import RedisStore
from dockwork.store.scripts import script
from dockwork.worker import health
from support.redis_proxy import RedisProxy
from support.redis_server import RedisServer
from support.store_world import a_job
from support.waiting import until_async
from support.workers import NAME, QUEUE, World, probe

T = TypeVar("T")
ANN = Owner(pod="ann", boot="1")
FULL = bool(os.environ.get("DOCKWORK_TEST_FULL"))


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """The answer of `call`, asked again until there is one."""
    for _ in range(20):
        try:
            return await call()
        except (OutcomeUnknown, StoreUnavailable):
            continue
    raise AssertionError("no answer in 20 tries")


@pytest.mark.covers("FM-02", "RT-066")
async def test_a_claim_and_a_settle_that_are_cut_at_any_byte_lose_nothing(server: RedisServer) -> None:
    server.flush()
    direct = RedisStore(server.url)
    number = 0
    async with RedisProxy(server.socket) as proxy:
        store = RedisStore(proxy.url)

        async def one_life(cut: Callable[[str, int], None] | None, word: str, count: int) -> None:
            nonlocal number
            number += 2
            await direct.enqueue(NAME, [a_job(f"job{number}")])
            if cut is not None and word == "claim":
                cut(script("claim").sha, count)
            claimed = await insist(lambda: store.claim(NAME, ANN, number=number, slots=1))
            (claim,) = claimed.claims
            settlement = Settlement(lease=claim.lease, outcome=Outcome.COMPLETED, result=b'"done"')
            if cut is not None and word == "settle":
                cut(script("settle").sha, count)
            settled = await insist(lambda: store.settle(NAME, ANN, [settlement], number=number + 1))
            assert settled.verdicts == (Verdict.OK,)
            view = await direct.get(NAME, claim.job_id)
            assert view is not None
            assert (view.state, view.deliveries, view.result) == (State.COMPLETED, 1, b'"done"')

        lives = 0
        for word in ("claim", "settle"):
            for cut, step in ((proxy.cut_request, 1 if FULL else 151), (proxy.cut_reply, 1 if FULL else 13)):
                await one_life(cut, word, 0)
                size = proxy.request_bytes if cut == proxy.cut_request else proxy.reply_bytes
                assert size > 20
                for count in range(1, size, step):
                    await one_life(cut, word, count)
                    lives += 1
                lives += 1
        await store.close()
    totals = (await direct.stats(NAME)).totals
    assert (totals["completed"], totals["claimed"]) == (lives, lives)
    await direct.close()


@pytest.mark.covers("FM-10", "RT-111")
async def test_five_rollouts_over_one_job_do_not_make_it_fail(world: World) -> None:
    began: list[int] = []
    last = asyncio.Event()

    @world.app.job(queue=QUEUE, max_deliveries=2, retries=0)
    async def long(ctx: Context) -> str:
        began.append(ctx.job.delivery)
        await last.wait()
        return "done"

    job = await long.enqueue()
    for count in range(1, 6):
        async with world.worker() as worker:
            await until_async(lambda count=count: value(len(began) == count))  # type: ignore[misc]
            await worker.shutdown(0)
    last.set()
    async with world.worker():
        assert await job.result(timeout=10) == "done"
    view = await world.view(job.id)
    assert (view.attempts, view.deliveries, view.interruptions) == (0, 1, 5)


@pytest.mark.covers("FM-34", "RT-033")
async def test_three_workers_are_rolled_under_load_and_no_counter_is_charged(world: World) -> None:
    ended: Counter[int] = Counter()

    def declare(app: Any) -> Any:
        @app.job(queue=QUEUE, name="work", retries=0, max_deliveries=1)
        async def work(n: int) -> int:
            await work_for(0.02)
            ended[n] += 1
            return n

        return work

    ids = [declare(world.app).item(n) for n in range(300)]
    admissions = await world.app.enqueue_many(ids)

    async def roll(first: int) -> None:
        """A worker, and its successors each some jobs later."""
        for count in range(3):
            app = world.an_app()
            declare(app)
            async with world.worker(app, slots=4) as worker:
                enough = first + 40 * count
                await until_async(lambda enough=enough: value(ended.total() >= enough))  # type: ignore[misc]
                await worker.shutdown(0)

    await asyncio.gather(roll(20), roll(33), roll(46))
    async with world.worker(slots=50):
        await until_async(lambda: all_completed(world, 300), within=30)
    views = [await world.view(each.id) for each in admissions]
    assert Counter((view.state, view.attempts, view.deliveries) for view in views) == {
        (State.COMPLETED, 0, 1): 300
    }
    assert set(ended) == set(range(300))


async def all_completed(world: World, count: int) -> bool:
    return (await world.store.stats(NAME)).counts[State.COMPLETED] == count


@pytest.mark.covers("FM-32", "RT-100")
async def test_the_old_run_of_a_job_that_was_put_back_says_and_ends_without_effect(world: World) -> None:
    releases = [threading.Event(), threading.Event()]
    began: list[int] = []
    over = threading.Semaphore(0)

    def declare(app: Any, how: str) -> Any:
        @app.job(queue=QUEUE, name="stubborn", retries=0)
        def stubborn(ctx: Context) -> str:
            mine = len(began)
            began.append(mine)
            while not releases[mine].is_set():
                try:
                    releases[mine].wait(30)
                except BaseException:
                    continue  # deaf to its interruption
            ctx.log("said by", run=mine)
            ctx.sync.progress(mine)
            over.release()
            if how == "fails" and mine == 0:
                raise ValueError("the old run")
            return f"run {mine}"

        return stubborn

    for how in ("ends", "fails"):
        began.clear()
        for release in releases:
            release.clear()
        first, second = world.an_app(), world.an_app()
        job = await world.app.submit(declare(first, how).item())
        declare(second, how)
        async with world.worker(first) as worker:
            await until_async(lambda: value(len(began) == 1))
            await worker.shutdown(0)
            assert (await world.view(job.id)).state is State.READY
            async with world.worker(second):
                await until_async(lambda: value(len(began) == 2))
                before = await world.until(job.id, State.PROCESSING)
                releases[0].set()
                await asyncio.to_thread(over.acquire)
                assert await world.view(job.id) == before
                releases[1].set()
                assert await job.result(timeout=10) == "run 1"
        view = await world.view(job.id)
        assert (view.attempts, view.deliveries, view.progress) == (0, 1, b"1")
        assert ["run" in line and '"run":1' in line for line in view.log] == [True]


@pytest.mark.covers("FM-53", "RT-108")
async def test_cancels_that_race_the_end_have_one_outcome(world: World) -> None:
    dice = random.Random(7)

    @world.app.job(queue=QUEUE, retries=0)
    async def on_loop(seconds: float) -> str:
        await work_for(seconds)
        return "done"

    @world.app.job(queue=QUEUE, retries=0)
    def in_thread(seconds: float) -> str:
        threading.Event().wait(seconds)
        return "done"

    kinds = [on_loop, in_thread]
    async with world.worker(slots=20):
        admitted = await world.app.enqueue_many([kinds[n % 2].item(dice.uniform(0, 0.05)) for n in range(80)])
        delayed = [await on_loop.enqueue_in(600, 0.0) for _ in range(5)]

        async def cancel(job_id: str) -> tuple[str, str]:
            await work_for(dice.uniform(0, 0.25))
            return job_id, await world.store.cancel(NAME, job_id)

        ids = [each.id for each in (*admitted, *delayed)]
        said = dict(await asyncio.gather(*map(cancel, ids)))
        views = {job_id: await world.until(job_id, State.COMPLETED, State.CANCELLED) for job_id in ids}
    ends = Counter(
        job_id
        for name, group in await world.events()
        for job_id in group
        if name in ("completed", "cancelled")
    )
    assert ends == Counter(ids), "one end for each"
    for job_id, view in views.items():
        expected = {
            "cancelled": {State.CANCELLED},
            "too_late": {State.COMPLETED, State.CANCELLED},
            "flagged": {State.COMPLETED, State.CANCELLED},
        }
        assert view.state in expected[said[job_id]], said[job_id]
        assert (view.result is not None) == (view.state is State.COMPLETED)
    assert all(said[job.id] == "cancelled" for job in delayed)
    assert {view.state for view in views.values()} == {State.COMPLETED, State.CANCELLED}


@pytest.mark.covers("FM-13")
async def test_under_volatile_lru_and_pressure_no_lease_is_evicted_and_the_policy_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    import redis

    with RedisServer() as server:
        world = World(server.url)
        client = redis.Redis.from_url(server.url)
        release = asyncio.Event()

        @world.app.job(queue=QUEUE, retries=0)
        async def waits(n: int) -> int:
            await release.wait()
            return n

        client.config_set("maxmemory-policy", "volatile-lru")
        async with world.worker(slots=50):
            jobs = await world.app.enqueue_many([waits.item(n) for n in range(50)])
            for job in jobs:
                await world.until(job.id, State.PROCESSING)
            used = int(client.info("memory")["used_memory"])
            client.config_set("maxmemory", used + (4 << 20))
            for n in range(2_000):
                client.set(f"junk:{n}", b"x" * 8_192, ex=3_600)
            assert int(client.info("stats")["evicted_keys"]) > 500
            held = [await world.view(job.id) for job in jobs]
            assert {view.state for view in held} == {State.PROCESSING}
            release.set()
            for job in jobs:
                assert (await world.until(job.id, State.COMPLETED)).deliveries == 1
        assert any("maxmemory-policy is not noeviction" in message for message in caplog.messages)
        client.close()
        await world.close()


@pytest.mark.covers("FM-59", "RT-123")
async def test_a_claim_loop_that_hangs_fails_its_liveness_and_one_that_redis_keeps_waiting_does_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "CLAIM_PASS_WITHIN_S", 0.5)
    async with world.worker(probe_addr="127.0.0.1:0") as worker:
        port = worker.probe_port
        assert port is not None

        async def livez() -> tuple[int, str]:
            return await asyncio.to_thread(probe, port, "/livez")

        assert await livez() == (200, "ok\n")
        (lane,) = worker.lanes
        monkeypatch.setattr(lane, "passed", lambda: None)
        await until_async(lambda: dead(livez), within=15, what="the hung claim loop is noticed")
        assert "no claim for" in (await livez())[1]
        worker.link.failed(StoreUnavailable("away"))
        assert await livez() == (200, "ok\n"), "a restart would meet the same outage"
        worker.link.answered()


async def dead(livez: Callable[[], Awaitable[tuple[int, str]]]) -> bool:
    return (await livez())[0] == 503


async def value(it: T) -> T:
    return it


async def work_for(seconds: float) -> None:
    """What a job does, or somebody who comes at a moment of his own."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, done.set)
    await done.wait()
