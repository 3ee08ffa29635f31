"""What a worker does with its jobs when it is told to end: processes of their own on a real Redis."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from dockwork.core.states import State
from dockwork.worker.worker import Worker
from support.redis_server import RedisServer, free_port
from support.waiting import until, until_async
from support.workers import NAME, Process, World, probe


def draining(seconds: float, **more: str) -> dict[str, str]:
    return {"DOCKWORK_DRAIN_TIMEOUT": str(seconds), **more}


@pytest.mark.covers("RT-110", "RT-114", "RT-118", "FM-07", "FM-30")
async def test_a_drain_claims_nothing_finishes_what_runs_and_exits_0(world: World, tmp_path: Path) -> None:
    release = tmp_path / "release"
    port = free_port()
    environ = draining(30, DOCKWORK_PROBE_ADDR=f"127.0.0.1:{port}")
    ids = [await world.declared(kind, path=str(release)) for kind in ("until_file", "thread_until_file")]
    with Process(world.url, tmp_path, lease=1, environ=environ) as worker:
        worker.until_receipt("until_file began")
        worker.until_receipt("thread_until_file began")
        until(lambda: probe(port, "/readyz") == (200, "ok\n"))
        worker.signal(signal.SIGTERM)
        worker.until_log("draining")
        assert probe(port, "/readyz") == (503, "draining\n")
        assert probe(port, "/livez") == (200, "ok\n")
        late = await world.declared("quick", n=1)
        began = await world.store.ping()
        while (
            await world.store.ping() < began + 2500
        ):  # two leases and a half: they are renewed until the end
            assert await world.store.reap(NAME) == (0, 0)
        release.touch()
        assert worker.wait() == 0

    views = [await world.view(job_id) for job_id in ids]
    assert [(view.state, view.deliveries) for view in views] == [(State.COMPLETED, 1)] * 2
    assert (await world.view(late)).state is State.READY
    assert worker.receipts()[-1] == "down"
    sample = await world.store.sample(NAME, horizon_ms=0)
    assert (sample.workers, sample.active) == ((), 0)


@pytest.mark.parametrize(
    ("kind", "arguments", "began"),
    [
        ("until_file", {"path": "/nowhere"}, "until_file began"),
        ("thread_until_file", {"path": "/nowhere"}, "thread_until_file began"),
        ("deaf", {}, "deaf began"),
        ("deaf_in_thread", {}, "deaf_in_thread began"),
        ("block_loop", {"seconds": 60}, "block_loop began"),
    ],
    ids=["async", "thread", "async that ignores its cancellation", "thread in one C call", "blocks the loop"],
)
@pytest.mark.covers("RT-110", "RT-111", "FM-30", "FM-31")
async def test_what_still_runs_at_the_deadline_is_put_back_uncharged(
    world: World, tmp_path: Path, kind: str, arguments: dict[str, object], began: str
) -> None:
    job = await world.declared(kind, **arguments)
    with Process(world.url, tmp_path, lease=2, environ=draining(2)) as worker:
        worker.until_receipt(began)
        signalled = await world.store.ping()
        worker.signal(signal.SIGTERM)
        assert worker.wait(within=15) == 0
        took_ms = await world.store.ping() - signalled

    view = await world.view(job)
    assert (view.state, view.attempts, view.deliveries, view.owner) == (State.READY, 0, 0, "")
    assert view.interruptions == 1
    assert 900 <= took_ms < 4_000
    sample = await world.store.sample(NAME, horizon_ms=0)
    assert (sample.workers, sample.active) == ((), 0)


@pytest.mark.covers("RT-111", "RT-112")
async def test_put_back_jobs_keep_their_place_or_go_to_the_end(world: World, tmp_path: Path) -> None:
    for requeue, expected in (("front", 0), ("back", 2)):
        ids = [await world.declared("until_file", path="/nowhere")]
        environ = draining(1, DOCKWORK_DRAIN_REQUEUE=requeue, DOCKWORK_QUEUES="work=1")
        with Process(world.url, tmp_path, name=requeue, environ=environ) as worker:
            worker.until_receipt("until_file began")
            ids += [await world.declared("quick", n=n) for n in (1, 2)]
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
        waiting = [view.id for view in await world.store.list(NAME, State.READY)]
        assert waiting.index(ids[0]) == expected
        assert (await world.store.stats(NAME)).totals["interrupted:drained"] == 1
        world_server_flush(world)
        worker.receipts_file.unlink()


@pytest.mark.covers("RT-116", "FM-30")
async def test_a_second_signal_puts_back_at_once_and_a_third_is_ignored(world: World, tmp_path: Path) -> None:
    job = await world.declared("until_file", path="/nowhere")
    with Process(world.url, tmp_path, environ=draining(60)) as worker:
        worker.until_receipt("until_file began")
        signalled = await world.store.ping()
        worker.signal(signal.SIGTERM)
        worker.until_log("draining")
        worker.signal(signal.SIGINT)
        worker.signal(signal.SIGHUP)
        assert worker.wait(within=15) == 0
        assert await world.store.ping() - signalled < 10_000

    view = await world.view(job)
    assert (view.state, view.attempts, view.deliveries) == (State.READY, 0, 0)


@pytest.mark.covers("RT-015", "RT-016")
async def test_a_polite_handler_saves_its_place_and_is_put_back_at_once(world: World, tmp_path: Path) -> None:
    job = await world.declared("polite")
    with Process(world.url, tmp_path, name="first", environ=draining(60)) as worker:
        worker.until_receipt("polite began None")
        worker.signal(signal.SIGTERM)
        assert worker.wait(within=15) == 0
        assert "polite asked drain" in worker.receipts()
        assert "polite was not interrupted" not in worker.receipts()
    view = await world.view(job)
    assert (view.state, view.attempts, view.deliveries, view.checkpoint) == (State.READY, 0, 0, b"7")
    with Process(world.url, tmp_path, name="second", environ=draining(60)) as worker:
        worker.until_receipt("polite began 7")


@pytest.mark.covers("RT-118", "RT-119", "FM-33")
async def test_with_redis_down_a_drain_ends_by_its_deadline_and_says_so(tmp_path: Path) -> None:
    with RedisServer(aof=True) as server:
        world = World(server.url, lease=timedelta(seconds=2))
        job = await world.declared("until_file", path="/nowhere")
        with Process(server.url, tmp_path, lease=2, environ=draining(3)) as worker:
            worker.until_receipt("until_file began")
            server.kill()
            worker.until_log("redis_lost")
            cpu = cpu_seconds(worker.pid)
            worker.signal(signal.SIGTERM)
            until(lambda: '"draining"' in worker.log())
            spent = [cpu]

            def ended() -> bool:
                if worker.process is None or worker.process.poll() is not None:
                    return True
                spent.append(cpu_seconds(worker.pid))
                return False

            until(ended, within=15)
            assert worker.wait(within=1) == 4
            assert max(spent) - cpu < 1.5, "it waited, it did not spin"
        server.start()
        # Nobody put it back: its lease does.
        async with world.worker(slots=1, timeout=1):
            await world.until(job, State.READY, State.PARKED, within=10)
        await world.close()


@pytest.mark.covers("RT-119")
async def test_with_redis_down_an_idle_worker_does_not_use_up_its_drain() -> None:
    with RedisServer() as server:
        world = World(server.url, lease=timedelta(seconds=1))
        async with world.worker(timeout=300) as worker:
            server.kill()
            await until_async(lambda: unanswered(worker), what="a claim that Redis does not answer")
            async with asyncio.timeout(20):
                assert await worker.shutdown(300) is True
        assert world.code == 4
        await world.close()


async def unanswered(worker: Worker) -> bool:
    return not worker.lanes[0].is_quiet


@pytest.mark.covers("RT-118", "RT-193")
def test_a_start_that_cannot_succeed_is_refused_with_a_reason(tmp_path: Path) -> None:
    cases = {
        "bad url": ("not-a-url://secret@host", (), {}, 3, "redis://"),
        "no such app": ("unix:///nowhere", ("support.worker_app:nothing",), {}, 2, "expected an App"),
        "bad setting": ("unix:///nowhere", (), {"DOCKWORK_CONCURRENCY": "many"}, 3, "DOCKWORK_CONCURRENCY"),
        "address taken": (
            "unix:///nowhere",
            (),
            {"DOCKWORK_PROBE_ADDR": "192.0.2.1:1"},
            3,
            "DOCKWORK_PROBE_ADDR",
        ),
    }
    for number, (url, arguments, environ, code, words) in enumerate(cases.values()):
        target = arguments[0] if arguments else "support.worker_app:app"
        with Process(url, tmp_path, name=f"w{number}", environ=environ, target=target).start() as worker:
            assert worker.wait() == code, worker.log()
            assert words in worker.log()
            assert "secret" not in worker.log()


@pytest.mark.covers("RT-123", "RT-124")
def test_a_worker_without_redis_lives_is_not_ready_and_ends_when_told(tmp_path: Path) -> None:
    port = free_port()
    environ = draining(30, DOCKWORK_PROBE_ADDR=f"127.0.0.1:{port}")
    with Process(f"unix://{tmp_path}/nobody", tmp_path, environ=environ).start() as worker:
        worker.until_log("redis_lost")
        assert probe(port, "/livez") == (200, "ok\n")
        status, reason = probe(port, "/readyz")
        assert (status, reason.startswith("StoreUnavailable")) == (503, True)
        assert "dockwork_redis_outcome_unknown_total 0.0" in probe(port, "/metrics")[1]
        worker.signal(signal.SIGTERM)
        assert worker.wait(within=10) == 0


@pytest.mark.covers("RT-118")
async def test_a_handler_that_stops_the_loop_or_exits_in_a_task_fails_and_the_worker_goes_on(
    world: World, tmp_path: Path
) -> None:
    with Process(world.url, tmp_path) as worker:
        for name, error in (("stops_the_loop", "NotYours"), ("exits_in_a_task", "SystemExit")):
            view = await world.until(await world.declared(name), State.DEAD)
            assert view.failures[0].error_class.endswith(error)
            await world.until(await world.declared("quick", n=1), State.COMPLETED)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert '"event": "exit_ignored"' in worker.log()


@pytest.mark.covers("RT-104", "RT-118", "RT-091")
async def test_the_command_takes_shared_slots_and_ends_with_0_after_enough_jobs(
    world: World, tmp_path: Path
) -> None:
    environ = draining(30, DOCKWORK_QUEUES="")
    arguments = ("--queues", "work=0,*=2:strict", "--max-jobs", "3", "--max-rss", "4Gi")
    with Process(world.url, tmp_path, environ=environ, arguments=arguments) as worker:
        ids = [await world.declared("quick", n=n) for n in range(3)]
        assert worker.wait() == 0
        assert '"reason": "max_jobs"' in worker.log()
    assert [(await world.view(job)).state for job in ids] == [State.COMPLETED] * 3

    with Process(world.url, tmp_path, name="refused", arguments=("--max-rss", "much")).start() as worker:
        assert worker.wait() == 3
        assert "max_rss: expected bytes, such as 65536, 64Ki or 2Gi, got 'much'" in worker.log()


@pytest.mark.covers("RT-117")
async def test_without_traps_run_returns_and_no_handler_is_installed(world: World) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with world.worker():
        assert signal.getsignal(signal.SIGTERM) is before
    assert world.code == 0


def world_server_flush(world: World) -> None:
    import redis

    redis.Redis.from_url(world.url).flushall()


def cpu_seconds(pid: int) -> float:
    """With the threads that are gone; 0 for a process that ended and waits to be asked for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
