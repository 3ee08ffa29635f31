"""Many workers on a queue, a slow Redis, order over restarts, and figures that stay true."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from dockwork.core.keys import QueueKeys
from dockwork.core.states import State
from dockwork.store.protocol import Owner
from dockwork.store.redis import RedisStore
from support.redis_proxy import RedisProxy
from support.redis_server import RedisServer
from support.waiting import until_async
from support.workers import NAME, QUEUE, Process, World

SHORT_LEASE_S = 2.0


@pytest.mark.full
@pytest.mark.covers("FM-14")
async def test_a_redis_that_answers_after_300_ms_ends_no_living_lease(
    server: RedisServer, world: World, tmp_path: Path
) -> None:
    assert server.socket is not None
    async with RedisProxy(server.socket) as proxy:
        proxy.delay_s = 0.3
        # The proxy answers on this loop, so nothing here may block it.
        worker = Process(proxy.url, tmp_path, lease=SHORT_LEASE_S)
        worker.start()
        with worker:
            job = await world.declared("until_file", path=str(tmp_path / "go"))
            view = await world.until(job, State.PROCESSING, within=25)
            over = view.started_ms + 2.5 * SHORT_LEASE_S * 1000
            await until_async(lambda: world.has_passed(int(over)), within=15)
            (tmp_path / "go").touch()
            view = await world.until(job, State.COMPLETED, within=10)

    totals = (await world.store.stats(NAME)).totals
    assert (view.deliveries, view.attempts) == (1, 0)
    assert "interrupted:lease_expired" not in totals


@pytest.mark.full
@pytest.mark.covers("FM-18")
async def test_a_block_longer_than_the_client_librarys_own_5_s_is_not_cut(world: World) -> None:
    began = time.monotonic()

    assert await world.store.wait(NAME, 6.5) is None

    assert 6.4 < time.monotonic() - began < 9
    await world.declared("quick", n=1)
    assert await world.store.wait(NAME, 1) is not None


@pytest.mark.full
@pytest.mark.covers("FM-28")
@pytest.mark.parametrize("workers", [40, 100])
async def test_so_many_workers_on_one_queue_all_live_and_share_the_work(world: World, workers: int) -> None:
    ran: Counter[int] = Counter()

    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> None:
        ran[n] += 1

    async def drain(count: int, jobs: range) -> float:
        """Seconds that `count` workers need for so many jobs."""
        fleet = [world.worker(slots=1) for _ in range(count)]
        await asyncio.gather(*[each.__aenter__() for each in fleet])
        began = time.monotonic()
        await world.app.enqueue_many([quick.item(n=n) for n in jobs], returning="counts")
        await until_async(lambda: _value(len(ran) >= jobs.stop), within=60)
        took = time.monotonic() - began
        await asyncio.gather(*[each.__aexit__(None, None, None) for each in fleet])
        return took

    few = await drain(10, range(2000))
    many = await drain(workers, range(2000, 4000))

    assert set(ran.values()) == {1}
    assert (await world.store.stats(NAME)).totals["completed"] == 4000
    assert many < few * 5 + 1, f"{workers} workers took {many:.1f} s where 10 took {few:.1f} s"


@pytest.mark.covers("FM-46", "RT-071")
async def test_jobs_leave_in_their_order_over_a_restart_and_a_put_back(tmp_path: Path) -> None:
    with RedisServer(aof=True) as server:
        world = World(server.url)
        store, ann = RedisStore(server.url), Owner(pod="pod", boot="00000000000000aa")
        ids = [await world.declared("quick", n=n) for n in range(12)]
        taken = (await store.claim(NAME, ann, number=1, slots=5)).claims
        assert [claim.job_id for claim in taken] == ids[:5]
        await store.requeue(
            NAME, ann, [claim.lease for claim in (taken[3], taken[1], taken[4], taken[0], taken[2])]
        )

        await store.close()
        server.kill()
        server.start()

        again = await _claim_all(store, ann)
        assert again == ids
        await world.close()
        await store.close()


async def _claim_all(store: RedisStore, owner: Owner) -> list[str]:
    found: list[str] = []

    async def some() -> bool:
        claimed = await store.claim(NAME, owner, number=2 + len(found), slots=5)
        found.extend(claim.job_id for claim in claimed.claims)
        return len(found) >= 12

    await until_async(some, within=10)
    return found


@pytest.mark.covers("FM-60", "RT-230")
async def test_figures_are_the_indexes_after_a_kill_and_no_prefetch_hides_work(
    world: World, tmp_path: Path
) -> None:
    with Process(world.url, tmp_path):
        for n in range(30):
            await world.declared("quick", n=n)
        slow = [await world.declared("until_file", path=str(tmp_path / "never")) for _ in range(20)]
        await world.until(slow[0], State.PROCESSING)
        await until_async(lambda: _are_active(world, 4), within=5)
        # Four slots: four are leased, and all others may be taken by anybody.
        assert (await world.store.stats(NAME)).counts[State.READY] == 16

    counts = (await world.store.stats(NAME)).counts
    told = {state.value: count for state, count in counts.items() if count}
    assert told == await _records(world.url)


async def _are_active(world: World, count: int) -> bool:
    return (await world.store.stats(NAME)).counts[State.ACTIVE] == count


async def _records(url: str) -> dict[str, int]:
    """Jobs by the state that their own records say; who processes is one of the active."""
    client: Any = redis.Redis.from_url(url)
    keys = list(client.scan_iter(match=f"{QueueKeys(NAME).records}*", count=1000))
    found = Counter(client.hget(key, "s").decode() for key in keys)
    client.close()
    found["active"] += found.pop("processing", 0)
    return dict(found)


async def _value(value: bool) -> bool:
    return value
