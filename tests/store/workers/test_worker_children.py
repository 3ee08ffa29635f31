"""Job types with ``isolation="process"``: where they run, how they are stopped, and what their deaths cost."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dockwork import App, InvalidValue, RedisSettings, Settings
from dockwork.core.states import State
from dockwork.worker import children, executor
from support import worker_app
from support.waiting import until, until_async
from support.workers import NAME, QUEUE, Process, World

LEASE = 1.5
PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture
def here(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """The processes' app, run by a worker of this process: only its children are processes."""
    monkeypatch.setenv("DOCKWORK_REDIS_URL", world.url)
    monkeypatch.setenv("RECEIPTS", str(tmp_path / "receipts"))
    monkeypatch.setenv("PYTHONPATH", str(Path(worker_app.__file__).parents[1]))
    return world


@pytest.fixture
def adopting() -> Iterator[None]:
    """This process inherits orphans, as PID 1 of a container does."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    yield
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def receipts() -> list[str]:
    return worker_app.receipts()


async def until_receipt(start: str) -> str:
    async def found() -> str | None:
        return next((line for line in receipts() if line.startswith(start)), None)

    line = await until_async(found, within=20, what=f"a receipt {start!r}")
    assert line is not None
    return line


async def result(world: World, job_id: str) -> Any:
    view = await world.until(job_id, State.COMPLETED, within=20)
    return json.loads(view.result or b"null")


@pytest.mark.covers("RT-104")
async def test_handlers_run_in_warm_children_with_their_context(here: World) -> None:
    async with here.worker(app=worker_app.app) as worker:
        assert worker.children is not None
        (warm,) = worker.children.pids
        n, pid, in_main = await result(here, await here.declared("in_child", n=1))
        assert (n, pid, in_main) == (1, warm, True)
        job = await here.declared("on_childs_loop", n=5)
        assert await result(here, job) == [5, warm]
        view = await here.view(job)
        assert (view.progress, view.checkpoint) == (b'{"at":6}', None)
        assert '"msg":"began","n":5' in view.log[0]
        assert receipts().count("up") == 2, "the lifespan is opened once a process"
    assert here.code == 0
    assert receipts().count("down") == 2
    assert not is_there(warm)


@pytest.mark.covers("RT-104", "RT-132", "RT-015")
async def test_what_a_handler_raises_in_a_child_is_on_the_job_as_if_raised_here(here: World) -> None:
    async with here.worker(app=worker_app.app):
        job = await here.declared("fails_in_child", message="not there")
        view = await here.until(job, State.DEAD, within=20)

    assert [failure.error_class for failure in view.failures] == ["LookupError", "LookupError"]
    # The second run has what the first one saved.
    assert [failure.message for failure in view.failures] == ["not there 1 None", "not there 2 1"]
    assert 'raise LookupError(f"{message} {ctx.job.attempt} {ctx.saved}")' in view.failures[1].trace


@pytest.mark.covers("RT-104")
async def test_a_handler_cannot_end_the_loop_of_its_child(here: World) -> None:
    async with here.worker(app=worker_app.app, slots=1):
        before = (await result(here, await here.declared("in_child", n=1)))[1]
        for what in ("tasks", "loop"):
            view = await here.until(await here.declared("meddles_in_child", what=what), State.DEAD, within=20)
            assert view.failures[-1].error_class.endswith("NotYours")
        await result(here, await here.declared("meddles_in_child", what="exit"))
        n, after = await result(here, await here.declared("on_childs_loop", n=2))
    assert (n, after) == (2, before), "the child goes on, and the next job in it pays for nothing"


@pytest.mark.covers("RT-104")
async def test_children_are_replaced_after_their_jobs_or_when_they_grow(here: World) -> None:
    async with here.worker(app=worker_app.app, slots=1, max_jobs_per_child=2):
        ids = [await here.declared("in_child", n=n) for n in range(5)]
        pids = [(await result(here, job))[1] for job in ids]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]

    async with here.worker(app=worker_app.app, slots=1, max_rss_per_child=1 << 20):
        ids = [await here.declared("in_child", n=n) for n in range(2)]
        pids = [(await result(here, job))[1] for job in ids]
    assert pids[0] != pids[1]


DEATHS = {
    "exit 0": "exit code 0",
    "segfault": "signal 11 (SIGSEGV)",
    "kill": "signal 9 (SIGKILL)",
}


@pytest.mark.covers("RT-107", "FM-36", "FM-11")
async def test_a_dead_child_costs_its_own_job_a_delivery_and_others_go_on(
    here: World, tmp_path: Path
) -> None:
    async with here.worker(app=worker_app.app, slots=3) as worker:
        beside = await here.declared("waits_in_child", path=str(tmp_path / "release"))
        await until_receipt("waits_in_child began")
        for how, exit_reason in DEATHS.items():
            poison = await here.declared("ends_its_child", how=how)
            view = await here.until(poison, State.DEAD, within=20)
            assert receipts().count(f"ends_its_child {how}") == 2
            assert (view.deliveries, view.attempts, view.interruptions) == (2, 0, 2)
            assert view.exit == exit_reason
            assert view.reason == f"max_deliveries: {exit_reason}"
        assert (await result(here, await here.declared("in_child", n=1)))[0] == 1
        (tmp_path / "release").touch()
        other = await here.until(beside, State.COMPLETED)
        assert (other.deliveries, other.attempts) == (1, 0)
        assert worker.children is not None
        assert worker.children.deaths == 2 * len(DEATHS)
    assert here.code == 0


@pytest.mark.covers("RT-105", "RT-106", "FM-50")
async def test_timeouts_interrupt_a_child_and_then_kill_it(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "HARD_AFTER_S", 0.5)
    async with here.worker(app=worker_app.app, slots=4) as worker:
        soft = [
            await here.app.submit(
                worker_app.app.registry[name].options(timeout=0.3, retries=0).item(**arguments)
            )
            for name, arguments in (("waits_in_child", {"path": "/nowhere"}), ("waits_on_childs_loop", {}))
        ]
        for job in soft:
            view = await here.until(job.id, State.DEAD, within=20)
            assert view.failures[0].message == "the run took longer than its timeout of 0.3 s"
        # It holds the interpreter, so that only the kernel can stop it.
        hard = await here.app.submit(worker_app.app.registry["deaf_in_child"].options(timeout=0.3).item())
        view = await here.until(hard.id, State.DEAD, within=20)
        pid = int((await until_receipt("deaf_in_child began")).split()[-1])
        assert view.failures[0].error_class == "dockwork.errors.TimedOut"
        assert view.failures[0].message == "the run went on for 0.5 s after its timeout of 0.3 s"
        assert not is_there(pid)
        assert (view.deliveries, view.attempts) == (1, 1)
        (lane,) = worker.lanes
        assert (lane.busy, len(lane.stuck)) == (0, 0), "its slot is free"
        assert not worker.drain.begun

    assert "waits_in_child timeout TimedOut" in receipts()
    assert "waits_on_childs_loop timeout CancelledError" in receipts()


@pytest.mark.covers("RT-108", "FM-53")
async def test_a_cancel_reaches_a_child_within_a_second(here: World) -> None:
    async with here.worker(app=worker_app.app):
        for name, arguments, error in (
            ("waits_in_child", {"path": "/nowhere"}, "Cancelled"),
            ("waits_on_childs_loop", {}, "CancelledError"),
        ):
            job = await here.declared(name, **arguments)
            await until_receipt(f"{name} began")
            asked = await here.store.ping()
            assert await here.store.cancel(NAME, job) == "flagged"
            view = await here.until(job, State.CANCELLED)
            assert (view.ended_ms or 0) - asked < 1_000
            assert f"{name} cancel {error}" in receipts()
            assert (view.attempts, view.deliveries) == (0, 1)


@pytest.mark.covers("RT-108", "RT-100", "FM-53")
async def test_a_child_that_hears_nothing_is_killed_when_its_job_is_lost_or_cancelled(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "CANCELLED_WITHIN_S", 0.3)
    monkeypatch.setattr(children, "LOST_WITHIN_S", 0.3)
    async with here.worker(app=worker_app.app):
        for force in (False, True):
            job = await here.declared("deaf_in_child")
            pid = int((await until_receipt("deaf_in_child began")).split()[-1])
            await here.store.cancel(NAME, job, force=force)
            await here.until(job, State.CANCELLED)
            await until_gone(pid)
            os.unlink(os.environ["RECEIPTS"])
        assert await result(here, await here.declared("in_child", n=1))


@pytest.mark.covers("RT-110", "RT-111", "FM-31")
async def test_a_drain_asks_children_to_stop_puts_their_jobs_back_and_leaves_none(here: World) -> None:
    async with here.worker(app=worker_app.app, timeout=1.5) as worker:
        jobs = [
            await here.declared("waits_in_child", path="/nowhere"),
            await here.declared("waits_on_childs_loop"),
            await here.declared("deaf_in_child"),
        ]
        for name in ("waits_in_child", "waits_on_childs_loop", "deaf_in_child"):
            await until_receipt(f"{name} began")
        assert worker.children is not None
        pids = worker.children.pids
        assert len(pids) == 3
    views = [await here.view(job) for job in jobs]
    assert [(view.state, view.attempts, view.deliveries) for view in views] == [(State.READY, 0, 0)] * 3
    assert [pid for pid in pids if is_there(pid)] == []
    assert "waits_in_child drain Interrupted" in receipts()
    assert here.code == 0


@pytest.mark.covers("RT-104")
async def test_what_a_handler_started_dies_with_its_child_and_is_reaped(here: World, adopting: None) -> None:
    async with here.worker(app=worker_app.app, timeout=1.2):
        job = await here.declared("starts_a_program", path="/nowhere")
        program = int((await until_receipt("starts_a_program")).split()[-1])
        assert is_there(program)
    assert (await here.view(job)).state is State.READY

    async def reaped() -> bool:
        try:
            os.kill(program, 0)  # a zombie still has its number
        except ProcessLookupError:
            return True
        return False

    await until_async(reaped, within=10, what="the program is gone, and no zombie of it stays")


@pytest.mark.covers("FM-03")
async def test_a_c_call_that_holds_the_interpreter_for_three_leases_runs_once(
    world: World, tmp_path: Path
) -> None:
    with (
        Process(world.url, tmp_path, name="first", lease=1) as first,
        Process(world.url, tmp_path, name="second", lease=1) as second,
    ):
        job = await world.declared("holds_the_interpreter", seconds=4)
        view = await world.until(job, State.COMPLETED, within=20)
        assert first.receipts().count("holds_the_interpreter began") == 1
        for worker in (first, second):
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
    assert (view.deliveries, view.attempts) == (1, 0)


@pytest.mark.covers("RT-104", "RT-120")
async def test_children_die_with_their_worker_and_ignore_signals_that_are_not_theirs(
    world: World, tmp_path: Path
) -> None:
    with Process(world.url, tmp_path, lease=LEASE) as worker:
        await world.declared("deaf_in_child")
        await world.declared("waits_in_child", path="/nowhere")
        worker.until_receipts("deaf_in_child began", "waits_in_child began")
        pids = [int(line.split()[-1]) for line in worker.receipts() if " began " in line]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pids[-1], number)
        quick = await world.declared("in_child", n=1)
        await world.until(quick, State.COMPLETED, within=20)
        assert all(is_there(pid) for pid in pids)
        worker.kill()
        until(lambda: not any(is_there(pid) for pid in pids), within=10, what="the children are gone")


@pytest.mark.covers("RT-104", "RT-118")
async def test_a_child_that_cannot_start_refuses_the_start_and_says_why(
    here: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    @here.app.job(queue=QUEUE, isolation="process")
    def only_here() -> None:
        """In no module that another process could import."""

    monkeypatch.setenv("PYTHONPATH", "")
    # This module itself is found, however the tests were started; a function inside a function never is.
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    settings = Settings(redis=RedisSettings(url=here.url), queues={QUEUE: 1}, trap_signals=False)
    worker = here.app.worker(settings=settings)
    assert await worker.run() == 3
    assert "no child process: " in caplog.messages[-1]
    assert (
        "isolation of job type only_here: expected a function that a new process finds" in caplog.messages[-1]
    )


def test_only_a_process_can_be_asked_for() -> None:
    with pytest.raises(InvalidValue, match="isolation: expected 'process', or nothing, got 'thread'"):
        App("tests").job(isolation="thread")(receipts)  # type: ignore[arg-type]


async def until_gone(pid: int) -> None:
    async def gone() -> bool:
        return not is_there(pid)

    await until_async(gone, within=10, what=f"process {pid} is gone")


def is_there(pid: int) -> bool:
    """Whether a process runs: one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
