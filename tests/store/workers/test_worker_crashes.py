"""Workers that die, hang or are robbed: processes of their own on a real Redis."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from dockwork.core.states import State
from support.redis_server import free_port
from support.waiting import until, until_async
from support.workers import NAME, Process, World, probe

LEASE = 1.5
CONTAINER = {"DOCKWORK_POD_UID": "pod-1", "DOCKWORK_CONTAINER": "worker"}


@pytest.mark.covers("RT-120", "FM-01")
async def test_what_a_killed_worker_ran_runs_again_when_its_leases_end(world: World, tmp_path: Path) -> None:
    release = tmp_path / "release"
    slots = {"DOCKWORK_QUEUES": "work=100"}
    ids = [await world.declared("until_file", path=str(release)) for _ in range(100)]
    with Process(world.url, tmp_path, name="first", lease=LEASE, environ=slots) as first:
        first.until_receipt("until_file began", count=100)
        with Process(world.url, tmp_path, name="second", lease=LEASE, environ=slots) as second:
            first.kill()
            killed_ms = await world.store.ping()
            release.touch()
            views = [await world.until(job_id, State.COMPLETED, within=10) for job_id in ids]
            second.signal(signal.SIGTERM)
            assert second.wait() == 0

    assert [(view.deliveries, view.attempts) for view in views] == [(2, 0)] * 100
    assert [
        late for view in views if (late := (view.started_ms or 0) - killed_ms) >= (LEASE + 1) * 1000
    ] == []


@pytest.mark.covers("RT-120", "FM-06")
async def test_a_second_worker_takes_nothing_that_runs(world: World, tmp_path: Path) -> None:
    release = tmp_path / "release"
    ids = [await world.declared("until_file", path=str(release)) for _ in range(3)]
    with Process(world.url, tmp_path, name="first", lease=LEASE, environ=CONTAINER) as first:
        first.until_receipt("until_file began", count=3)
        # Another container of the same pod: a neighbour, not a successor.
        other = {"DOCKWORK_POD_UID": "pod-1", "DOCKWORK_CONTAINER": "canary"}
        with Process(world.url, tmp_path, name="second", lease=LEASE, environ=other) as second:
            quick = await world.declared("quick", n=1)
            await world.until(quick, State.COMPLETED)
            began = await world.store.ping()
            await until_async(lambda: world.has_passed(began + int(LEASE * 2000)))
            release.touch()
            views = [await world.until(job_id, State.COMPLETED) for job_id in ids]
            second.signal(signal.SIGTERM)
            assert second.wait() == 0

    assert [view.deliveries for view in views] == [1, 1, 1]
    assert first.receipts().count("until_file began") == 3


@pytest.mark.covers("RT-120", "FM-12")
async def test_a_process_in_the_same_container_takes_over_at_once(world: World, tmp_path: Path) -> None:
    release = tmp_path / "release"
    job = await world.declared("until_file", path=str(release))
    with Process(world.url, tmp_path, name="first", lease=60, environ=CONTAINER) as first:
        first.until_receipt("until_file began")
        first.kill()
    with Process(world.url, tmp_path, name="second", lease=60, environ=CONTAINER) as second:
        second.until_receipt("until_file began", count=2, within=10)
        release.touch()
        view = await world.until(job, State.COMPLETED)
        assert '"event": "predecessor_died"' in second.log()

    assert (view.deliveries, view.attempts) == (2, 0), "a death by itself counts a delivery"


@pytest.mark.covers("RT-134", "FM-11")
async def test_a_job_that_kills_its_worker_is_buried_and_the_rest_is_unharmed(
    world: World, tmp_path: Path
) -> None:
    poison = await world.declared("kills_its_worker")
    codes = []
    for number in range(2):
        worker = Process(world.url, tmp_path, name=f"w{number}", lease=60, environ=CONTAINER)
        with worker.start():
            codes.append(worker.wait())
    with Process(world.url, tmp_path, name="last", lease=60, environ=CONTAINER) as worker:
        view = await world.until(poison, State.DEAD)
        quick = await world.declared("quick", n=1)
        await world.until(quick, State.COMPLETED)

    assert codes == [3, 3]
    assert view.reason.startswith("max_deliveries")
    assert worker.receipts().count("kills_its_worker began") == 2


@pytest.mark.covers("RT-099", "RT-103", "RT-124", "FM-03")
async def test_a_handler_that_blocks_the_loop_for_three_leases_keeps_its_job(
    world: World, tmp_path: Path
) -> None:
    port = free_port()
    environ = {"DOCKWORK_PROBE_ADDR": f"127.0.0.1:{port}"}
    with (
        Process(world.url, tmp_path, name="first", lease=LEASE, environ=environ) as first,
        Process(world.url, tmp_path, name="second", lease=LEASE) as second,
    ):
        second.signal(signal.SIGSTOP)
        job = await world.declared("block_loop", seconds=3 * LEASE + 0.5)
        first.until_receipt("block_loop began")
        assert probe(port, "/livez") == (200, "ok\n")
        until(lambda: probe(port, "/readyz")[0] == 503, within=LEASE)
        assert "the event loop lags" in probe(port, "/readyz")[1]
        second.signal(signal.SIGCONT)
        view = await world.until(job, State.COMPLETED, within=15)
        until(lambda: probe(port, "/readyz") == (200, "ok\n"), within=5)
        blocked = [json.loads(line) for line in first.log().splitlines() if '"loop_blocked"' in line]

    assert view.deliveries == 1
    assert first.receipts().count("block_loop began") == 1
    assert len(blocked) == 1
    assert "threading.Event().wait(seconds)" in blocked[0]["data"]["frame"]


@pytest.mark.covers("RT-103", "FM-04")
async def test_a_job_of_several_leases_runs_once(world: World, tmp_path: Path) -> None:
    release = tmp_path / "release"
    job = await world.declared("thread_until_file", path=str(release))
    with (
        Process(world.url, tmp_path, name="first", lease=0.5) as first,
        Process(world.url, tmp_path, name="second", lease=0.5),
    ):
        first.until_receipt("thread_until_file began")
        began = await world.store.ping()
        await until_async(lambda: world.has_passed(began + 5000))
        release.touch()
        view = await world.until(job, State.COMPLETED)

    assert view.deliveries == 1


@pytest.mark.covers("RT-067", "RT-100", "FM-05")
async def test_a_worker_that_slept_over_its_leases_changes_nothing(world: World, tmp_path: Path) -> None:
    release = tmp_path / "release"
    job = await world.declared("until_file", path=str(release))
    with Process(world.url, tmp_path, name="first", lease=LEASE) as first:
        first.until_receipt("until_file began")
        first.signal(signal.SIGSTOP)
        with Process(world.url, tmp_path, name="second", lease=LEASE) as second:
            second.until_receipt("until_file began", count=2, within=10)
            release.touch()
            view = await world.until(job, State.COMPLETED)
            second.signal(signal.SIGTERM)
            assert second.wait() == 0
        first.signal(signal.SIGCONT)
        until(lambda: "lease_lost" in first.log() or "outcome_dropped" in first.log(), within=10)
        quick = await world.declared("quick", n=1)
        await world.until(quick, State.COMPLETED)

    after = await world.view(job)
    assert (view.deliveries, after) == (2, view)
    assert (await world.store.stats(NAME)).totals["completed"] == 2


@pytest.mark.covers("RT-097", "FM-37")
async def test_a_marker_lost_with_its_holder_is_posted_again_within_a_beat(
    world: World, tmp_path: Path
) -> None:
    with Process(world.url, tmp_path, lease=LEASE) as worker:
        worker.until_running()
        async with world_redis(world) as redis:
            job = await world.declared("quick", n=1)
            await world.until(job, State.COMPLETED)
            # The job is there and its markers are not, as after a worker that popped them and died.
            worker.signal(signal.SIGSTOP)
            job = await world.declared("quick", n=2)
            await redis.delete(f"dw:{{{NAME.tag}}}:wake")
            worker.signal(signal.SIGCONT)
            await world.until(job, State.COMPLETED, within=LEASE + 2)


def world_redis(world: World):  # type: ignore[no-untyped-def]
    from redis.asyncio import Redis

    return Redis.from_url(world.url)
