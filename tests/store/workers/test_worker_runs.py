"""Runs of one worker in this process, on a real Redis: outcomes, timeouts, the context, parking, slots."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockwork import Backoff, Context, Discard, Retry, Snooze, Unrecoverable
from dockwork.core.jobs import StopReason
from dockwork.core.states import State
from dockwork.store.protocol import NewJob, Outcome, Owner, QueueConfig, Settlement
from dockwork.worker import executor
from dockwork.worker.runs import CURRENT, Run
from support.waiting import until, until_async
from support.workers import NAME, QUEUE, World


@pytest.mark.covers("RT-104")
async def test_async_handlers_run_on_the_loop_and_functions_in_threads(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def on_loop(a: int, b: list[str]) -> str:
        return threading.current_thread().name + b[a]

    @world.app.job(queue=QUEUE)
    def in_thread(a: int) -> list[str]:
        return [threading.current_thread().name, str(a)]

    first = await on_loop.enqueue(a=1, b=["x", "y"])
    second = await in_thread.enqueue(a=2)
    async with world.worker():
        assert await first.result(timeout=10) == "MainThready"
        assert await second.result(timeout=10) == ["dockwork-slot-1", "2"]
    assert world.code == 0


async def test_each_job_has_a_context_of_its_own(world: World) -> None:
    seen: ContextVar[str] = ContextVar("seen", default="clean")

    @world.app.job(queue=QUEUE)
    async def on_loop() -> str:
        found = seen.get()
        seen.set("dirty")
        return found

    @world.app.job(queue=QUEUE)
    def in_thread() -> str:
        found = seen.get()
        seen.set("dirty")
        return found

    async with world.worker(slots=1):
        for job_type in (on_loop, in_thread):
            for _ in range(3):
                job = await job_type.enqueue()
                assert await job.result(timeout=10) == "clean"
    # Waiting already, each is claimed by the call that settles the one before.
    jobs = [await on_loop.enqueue() for _ in range(3)]
    async with world.worker(slots=1):
        assert [await job.result(timeout=10) for job in jobs] == ["clean"] * 3


async def test_an_ordinary_job_is_gone_when_it_is_settled_without_the_collector(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def quiet() -> None:
        return

    @world.app.job(queue=QUEUE, retries=0)
    async def fails(ctx: Context) -> None:
        raise ValueError("no")

    async with world.worker():
        jobs = [await quiet.enqueue() for _ in range(20)]
        gc.collect()
        gc.disable()
        try:
            jobs += [await quiet.enqueue() for _ in range(20)]
            for job in jobs:
                await world.until(job.id, State.COMPLETED)
            await world.until((await fails.enqueue()).id, State.DEAD)
            left = [one for one in gc.get_objects() if isinstance(one, Run)]
        finally:
            gc.enable()
    assert len(left) <= 2  # the loop may still hold the last step of the last ones


@pytest.mark.parametrize("wish", ["header", "priority", "timeout", "result", "no wish"])
async def test_a_job_that_is_not_quite_ordinary_runs_as_it_says(world: World, wish: str) -> None:
    seen: list[Any] = []
    options: dict[str, Any] = {
        "header": {"headers": {"tenant": "blue"}},
        "priority": {"priority": 5},
        "timeout": {"timeout": 3.0},
    }.get(wish, {})

    @world.app.job(queue=QUEUE)
    async def add(a: int, b: int = 2) -> Any:
        run = CURRENT.get()
        assert run is not None
        seen.append((a + b, dict(run.headers), run.timeout_s))
        return a + b if wish == "result" else None

    job = await add.options(**options).enqueue(1)
    async with world.worker():
        view = await world.until(job.id, State.COMPLETED)

    headers = {"tenant": "blue"} if wish == "header" else {}
    assert seen[-1] == (3, headers, 3.0 if wish == "timeout" else 300.0)
    assert view.result == (b"3" if wish == "result" else None)


@pytest.mark.covers("RT-132", "RT-133")
async def test_a_job_that_fails_is_retried_and_ends_dead_with_its_last_failures(world: World) -> None:
    runs: list[int] = []

    @world.app.job(queue=QUEUE, retries=6, backoff=Backoff.fixed(0.001))
    async def fails(ctx: Context) -> None:
        runs.append(ctx.job.attempt)
        raise ValueError(f"attempt {ctx.job.attempt}")

    job = await fails.enqueue()
    async with world.worker() as worker:
        view = await world.until(job.id, State.DEAD)

    assert runs == [1, 2, 3, 4, 5, 6, 7]
    assert (view.attempts, view.deliveries) == (7, 7)
    assert [failure.message for failure in view.failures] == [f"attempt {n}" for n in (3, 4, 5, 6, 7)]
    last = view.failures[-1]
    assert last.error_class == "ValueError"
    assert 'raise ValueError(f"attempt {ctx.job.attempt}")' in last.trace
    assert last.worker == str(worker.owner)
    assert view.created_ms <= last.at_ms <= (view.ended_ms or 0)


@pytest.mark.covers("RT-133")
async def test_what_a_handler_raises_decides_the_jobs_state(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def raises(what: str) -> None:
        raise {
            "discard": Discard("not wanted"),
            "bury": Unrecoverable("never"),
            "retry": Retry(after=600),
            "snooze": Snooze(600),
        }[what]

    @world.app.job(queue=QUEUE, retries=0, dead_letter=False)
    async def no_dead_letter() -> None:
        raise ValueError("no")

    ids = {what: (await raises.enqueue(what=what)).id for what in ("discard", "bury", "retry", "snooze")}
    last = await no_dead_letter.enqueue()
    async with world.worker():
        assert (await world.until(ids["discard"], State.FAILED)).reason == "not wanted"
        assert (await world.until(ids["bury"], State.DEAD)).reason == "never"
        assert (await world.until(last.id, State.FAILED)).failures[0].message == "no"
        retried = await world.until(ids["retry"], State.DELAYED)
        snoozed = await world.until(ids["snooze"], State.DELAYED)

    assert (retried.attempts, retried.deliveries) == (1, 1)
    assert (snoozed.attempts, snoozed.deliveries) == (0, 0)
    assert 599_000 < retried.due_ms - retried.created_ms < 660_000


@pytest.mark.covers("RT-138")
async def test_a_result_over_its_cap_completes_the_job_without_it(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def large(size: int) -> str:
        return "x" * size

    fits, does_not = await large.enqueue(size=60_000), await large.enqueue(size=70_000)
    async with world.worker():
        fit = await world.until(fits.id, State.COMPLETED)
        dropped = await world.until(does_not.id, State.COMPLETED)

    assert len(fit.result or b"") == 60_002
    assert (dropped.result, dropped.result_dropped) == (None, 70_002)


async def test_a_result_that_json_cannot_carry_is_dead_at_once(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def odd() -> Any:
        return object()

    job = await odd.enqueue()
    async with world.worker():
        view = await world.until(job.id, State.DEAD)

    assert view.deliveries == 1
    assert "a value that JSON can carry" in view.failures[0].message


@pytest.mark.covers("RT-105", "FM-50")
async def test_a_timeout_stops_async_and_thread_handlers_and_is_a_failed_attempt(world: World) -> None:
    told: list[Any] = []

    @world.app.job(queue=QUEUE, timeout=0.1, retries=0)
    async def slow(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.stop_reason)

    @world.app.job(queue=QUEUE, timeout=0.1, retries=0)
    def slow_in_thread(ctx: Context) -> None:
        try:
            while True:
                pass
        finally:
            told.append(ctx.stop_reason)

    @world.app.job(queue=QUEUE, timeout=0.1, retries=0)
    def polite_in_thread(ctx: Context) -> str:
        until(lambda: ctx.should_stop)
        return "stopped by itself"

    jobs = [await slow.enqueue(), await slow_in_thread.enqueue()]
    polite = await polite_in_thread.enqueue()
    async with world.worker():
        for job in jobs:
            view = await world.until(job.id, State.DEAD)
            assert view.failures[0].error_class == "dockwork.errors.TimedOut"
            assert view.failures[0].message == "the run took longer than its timeout of 0.1 s"
        await world.until(polite.id, State.COMPLETED, State.DEAD)

    assert told == [StopReason.TIMEOUT, StopReason.TIMEOUT]


@pytest.mark.covers("RT-106", "FM-50")
async def test_handlers_that_ignore_the_hard_timeout_are_settled_and_end_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "HARD_AFTER_S", 0.2)
    release, begun = threading.Event(), threading.Semaphore(0)

    @world.app.job(queue=QUEUE, timeout=0.1, retries=0)
    def stuck() -> None:
        begun.release()
        release.wait(30)

    @world.app.job(queue=QUEUE)
    async def quick() -> str:
        return "still here"

    try:
        async with world.worker(slots=4) as worker:
            first = await stuck.enqueue()
            view = await world.until(first.id, State.DEAD)
            assert "went on for 0.2 s after its timeout of 0.1 s" in view.failures[0].message
            (lane,) = worker.lanes
            # A claim that is under way holds its places for a moment.
            taken = "its slot stays taken"
            await until_async(lambda: _value((lane.busy, lane.free) == (1, 3)), what=taken)
            assert await (await quick.enqueue()).result(timeout=10) == "still here"
            assert not worker.drain.begun

            second = await stuck.enqueue()
            await world.until(second.id, State.DEAD)
            await until_async(lambda: _value(worker.drain.begun), what="half the slots are stuck: it drains")
    finally:
        release.set()
    assert world.code == 70


@pytest.mark.covers("RT-016")
async def test_the_context_knows_the_job_and_its_deadline(world: World) -> None:
    seen: dict[str, Any] = {}

    @world.app.job(queue=QUEUE, timeout=30)
    async def look(ctx: Context, n: int) -> None:
        seen.update(job=ctx.job, left=ctx.deadline - datetime.now(UTC), stop=ctx.should_stop)  # noqa: TID251

    job = await look.options(headers={"traceparent": "00-1"}).enqueue(3)
    async with world.worker():
        await world.until(job.id, State.COMPLETED)

    info = seen["job"]
    assert (info.id, info.type, info.queue) == (job.id, "look", QUEUE)
    assert (info.attempt, info.delivery, info.scheduled_for) == (1, 1, None)
    assert dict(info.headers) == {"traceparent": "00-1"}
    assert timedelta(seconds=25) < seen["left"] <= timedelta(seconds=30)
    assert seen["stop"] is False


@pytest.mark.covers("RT-016")
async def test_a_drain_asks_handlers_to_stop_and_shortens_their_deadline(world: World) -> None:
    seen: dict[str, Any] = {}

    @world.app.job(queue=QUEUE, timeout=300)
    async def polite(ctx: Context) -> str:
        seen["begun"] = True

        async def asked() -> bool:
            return ctx.should_stop

        await until_async(asked, within=30)
        seen.update(reason=ctx.stop_reason, left=ctx.deadline - datetime.now(UTC))  # noqa: TID251
        return "in time"

    job = await polite.enqueue()
    async with world.worker():
        until_begun = until_async(lambda: _value(seen.get("begun")))
        await until_begun
    assert seen["reason"] is StopReason.DRAIN
    assert seen["left"] <= timedelta(seconds=5)
    assert (await world.view(job.id)).state is State.COMPLETED
    assert world.code == 0


@pytest.mark.covers("RT-015")
async def test_a_checkpoint_is_what_the_next_run_has_and_goes_with_completion(world: World) -> None:
    saved: list[Any] = []

    @world.app.job(queue=QUEUE, backoff=Backoff.fixed(0.001))
    async def resumes(ctx: Context) -> None:
        saved.append(ctx.saved)
        if ctx.saved is None:
            await ctx.checkpoint({"page": 3})
            raise ValueError("later")

    @world.app.job(queue=QUEUE, backoff=Backoff.fixed(0.001))
    def resumes_in_thread(ctx: Context) -> None:
        saved.append(ctx.saved)
        if ctx.saved is None:
            ctx.sync.checkpoint([1, 2])
            raise ValueError("later")

    async with world.worker():
        for job_type in (resumes, resumes_in_thread):
            job = await job_type.enqueue()
            view = await world.until(job.id, State.COMPLETED)
            assert view.checkpoint is None

    assert saved == [None, {"page": 3}, None, [1, 2]]


@pytest.mark.covers("RT-015", "RT-138")
async def test_a_checkpoint_over_its_cap_is_refused(world: World) -> None:
    @world.app.job(queue=QUEUE, retries=0)
    async def too_much(ctx: Context) -> None:
        await ctx.checkpoint("x" * 70_000)

    job = await too_much.enqueue()
    async with world.worker():
        view = await world.until(job.id, State.DEAD)

    assert view.failures[0].message == "checkpoint: 70002 bytes are more than the limit of 65536"


@pytest.mark.covers("RT-014")
async def test_progress_is_written_at_most_each_200_ms_and_the_last_value_always(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def counts(ctx: Context) -> None:
        for n in range(1000):
            await ctx.progress(n)
            ctx.log("step", n=n)
            if n % 100 == 0:
                await asyncio.sleep(0.01)  # noqa: TID251

    @world.app.job(queue=QUEUE)
    def counts_in_thread(ctx: Context) -> None:
        for n in range(1000):
            ctx.sync.progress({"done": n})

    first, second = await counts.enqueue(), await counts_in_thread.enqueue()
    async with world.worker():
        one = await world.until(first.id, State.COMPLETED)
        other = await world.until(second.id, State.COMPLETED)

    assert json.loads(one.progress or b"") == 999
    assert json.loads(other.progress or b"") == {"done": 999}
    written = [ids for name, ids in await world.events() if name == "progress" and first.id in ids]
    assert len(written) <= 4, "a run of about 100 ms"
    lines = [json.loads(line) for line in one.log]
    assert 0 < len(lines) <= 100
    assert (lines[-1]["msg"], lines[-1]["n"]) == ("step", 999)


@pytest.mark.covers("RT-032")
async def test_a_job_that_ends_before_its_start_was_sent_shows_every_state_in_order(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def quick() -> None:
        return

    job = await quick.enqueue()
    async with world.worker():
        view = await world.until(job.id, State.COMPLETED)

    assert [name for name, ids in await world.events() if job.id in ids] == [
        "ready",
        "active",
        "processing",
        "completed",
    ]
    assert view.created_ms <= (view.started_ms or 0) <= (view.ended_ms or 0)


@pytest.mark.covers("RT-032")
async def test_a_job_that_runs_for_a_while_shows_as_processing(world: World) -> None:
    release = asyncio.Event()

    @world.app.job(queue=QUEUE)
    async def waits() -> None:
        await release.wait()

    job = await waits.enqueue()
    async with world.worker():
        await world.until(job.id, State.PROCESSING)
        release.set()
        await world.until(job.id, State.COMPLETED)


@pytest.mark.covers("RT-129", "FM-54")
async def test_an_unknown_type_is_parked_until_a_worker_knows_it(world: World) -> None:
    job = await world.app.enqueue("later", {"n": 1}, queue=QUEUE)

    @world.app.job(queue=QUEUE)
    async def known() -> None:
        return

    other = await known.enqueue()
    async with world.worker():
        parked = await world.until(job.id, State.PARKED)
        await world.until(other.id, State.COMPLETED)
        assert (parked.attempts, parked.deliveries) == (0, 0)

        newer = world.an_app()

        @newer.job(queue=QUEUE)
        async def later(n: int) -> int:
            return n + 1

        async with world.worker(newer):
            view = await world.until(job.id, State.COMPLETED)
            await world.until((await known.enqueue()).id, State.COMPLETED)
    assert view.result == b"2"
    assert (view.attempts, view.deliveries) == (0, 1)
    events = [name for name, ids in await world.events() if job.id in ids]
    assert events == ["ready", "active", "parked", "active", "processing", "completed"]  # never to and fro


@pytest.mark.covers("RT-129", "FM-54")
async def test_parked_jobs_come_back_as_fast_as_they_run_not_so_many_a_second(world: World) -> None:
    jobs = await world.app.enqueue_many([world.app.item("later", {"n": n}, queue=QUEUE) for n in range(100)])
    async with world.worker():
        for job in jobs:
            await world.until(job.id, State.PARKED)
    newer = world.an_app()

    @newer.job(queue=QUEUE)
    async def later(n: int) -> None: ...

    async with world.worker(newer, slots=2):
        # At two a second, as many as there are slots, it would take most of a minute.
        async with asyncio.timeout(15):
            for job in jobs:
                await world.until(job.id, State.COMPLETED, within=15)


@pytest.mark.covers("RT-129")
async def test_arguments_of_another_schema_are_parked_and_wrong_ones_of_ours_are_dead(world: World) -> None:
    newer = world.an_app()

    @newer.job(queue=QUEUE, name="mail")
    async def mail_v2(to: str, urgent: bool) -> str:
        return f"{to} {urgent}"

    @world.app.job(queue=QUEUE, name="mail")
    async def mail_v1(to: str) -> str:
        return to

    from_newer = await mail_v2.enqueue(to="ann", urgent=True)
    broken = b'{"v":1,"type":"mail","args":{"to":7},"headers":{},"schema":"%s","opts":{}}'
    bad = NewJob(id="bad", type="mail", envelope=broken % mail_v1.schema_hash.encode())
    await world.store.enqueue(NAME, [bad])
    async with world.worker():
        await world.until(from_newer.id, State.PARKED)
        dead = await world.until("bad", State.DEAD)
        async with world.worker(newer):
            view = await world.until(from_newer.id, State.COMPLETED)
    await newer.close()

    assert dead.reason == "invalid_args"
    assert "to" in dead.failures[0].message
    assert view.result == b'"ann True"'


@pytest.mark.covers("RT-135", "FM-58")
async def test_an_unreadable_envelope_is_dead_with_its_bytes_and_its_batch_goes_on(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> int:
        return n

    jobs = [await quick.enqueue(n=1)]
    await world.store.enqueue(NAME, [NewJob(id="broken", type="quick", envelope=b"{broken")])
    jobs.append(await quick.enqueue(n=2))
    async with world.worker():
        dead = await world.until("broken", State.DEAD)
        for job in jobs:
            await world.until(job.id, State.COMPLETED)

    assert (dead.reason, dead.envelope) == ("undecodable", b"{broken")


@pytest.mark.covers("RT-090", "RT-093")
async def test_ten_thousand_quick_jobs_run_exactly_once_and_never_over_the_slots(world: World) -> None:
    ran: list[int] = []
    at_once: list[int] = []
    running = 0

    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0)  # noqa: TID251
        running -= 1
        ran.append(n)

    counts = await world.app.enqueue_many([quick.item(n=n) for n in range(10_000)], returning="counts")
    assert counts.accepted == 10_000
    async with world.worker(slots=80):
        await until_async(lambda: _value(len(ran) >= 10_000), within=60)

    assert sorted(ran) == list(range(10_000))
    assert max(at_once) <= 80
    stats = await world.store.stats(NAME)
    assert stats.totals["completed"] == 10_000


async def test_one_slot_runs_jobs_in_their_order(world: World) -> None:
    ran: list[int] = []

    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> None:
        ran.append(n)

    await world.app.enqueue_many([quick.item(n=n) for n in range(200)])
    async with world.worker(slots=1):
        await until_async(lambda: _value(len(ran) >= 200), within=30)

    assert ran == list(range(200))


@pytest.mark.covers("RT-108", "FM-53")
@pytest.mark.parametrize("force", [False, True])
async def test_a_cancel_reaches_async_and_thread_handlers(world: World, force: bool) -> None:
    told: list[Any] = []

    @world.app.job(queue=QUEUE)
    async def waits(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.stop_reason)

    @world.app.job(queue=QUEUE)
    def spins(ctx: Context) -> None:
        try:
            while True:
                pass
        finally:
            told.append(ctx.stop_reason)

    async with world.worker():
        for job_type in (waits, spins):
            job = await job_type.enqueue()
            await world.until(job.id, State.PROCESSING)
            asked = await world.store.ping()
            if force:
                # The record ends at once, whatever the handler does; it is told that nothing of it counts.
                assert await job.cancel(force=True) == "cancelled"
                assert (await world.view(job.id)).state is State.CANCELLED
                await until_async(_more(told), within=2)
                assert await world.store.ping() - asked < 1_000
                view = await world.view(job.id)
            else:
                assert await job.cancel() == "flagged"
                view = await world.until(job.id, State.CANCELLED, within=2)
                assert (view.ended_ms or 0) - asked < 1_000
            assert (view.state, view.attempts) == (State.CANCELLED, 0)

    assert told == [StopReason.LOST if force else StopReason.CANCEL] * 2


@pytest.mark.covers("RT-095")
async def test_a_delayed_job_runs_when_it_is_due(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def quick() -> None:
        return

    async with world.worker():
        job = await quick.enqueue_in(0.3)
        view = await world.until(job.id, State.COMPLETED)

    late_ms = (view.started_ms or 0) - view.due_ms
    assert 0 <= late_ms < 150


@pytest.mark.covers("RT-122")
async def test_a_quiesced_worker_finishes_says_so_and_claims_again_when_it_is_undone(world: World) -> None:
    release = asyncio.Event()

    @world.app.job(queue=QUEUE)
    async def waits() -> None:
        await release.wait()

    first = await waits.enqueue()
    async with world.worker(pod_uid="pod-1", probe_addr="127.0.0.1:0") as worker:
        await world.until(first.id, State.PROCESSING)
        assert await world.store.quiesce(NAME, {"pod-1": "token-1"}) == {"pod-1": 1}
        second = await waits.enqueue()
        await until_async(_beat(world, state="Quiesced", quiesce_token="", busy=1), within=5)
        release.set()
        await world.until(first.id, State.COMPLETED)
        await until_async(_beat(world, state="Quiesced", quiesce_token="token-1", busy=0), within=5)
        assert (await world.view(second.id)).state is State.READY
        assert worker.look().lanes[0].quiesced

        await world.store.unquiesce(NAME, ["pod-1"])
        await world.until(second.id, State.COMPLETED)
        await until_async(_beat(world, state="Running", quiesce_token="", busy=0), within=10)


@pytest.mark.covers("RT-121")
async def test_a_heartbeat_says_who_works_on_what(world: World) -> None:
    release = asyncio.Event()

    @world.app.job(queue=QUEUE)
    async def waits() -> None:
        await release.wait()

    job = await waits.enqueue()
    async with world.worker(
        slots=3, pod_uid="pod-1", pod_name="mail-abc", container="worker", template_hash="hash-1"
    ) as worker:
        await world.until(job.id, State.PROCESSING)
        await world.store.quiesce(NAME, {"pod-1": "t"})  # its nudge makes the next beat come at once
        await until_async(_beat(world, busy=1), within=5)
        sample = await world.store.sample(NAME, horizon_ms=0, template_hash="hash-1")
        release.set()

    (beat,) = sample.workers
    assert beat.owner == str(worker.owner)
    assert beat.owner.startswith("pod-1/")
    assert len(beat.owner.removeprefix("pod-1/")) == 16
    assert (beat.pod, beat.pod_name, beat.container) == ("pod-1", "mail-abc", "worker")
    assert (beat.template_hash, beat.slots, beat.busy) == ("hash-1", 3, 1)
    assert dict(beat.schemas) == {"waits": waits.schema_hash}
    assert [job_id for job_id, _, _ in beat.jobs] == [job.id]
    assert beat.rss_bytes > 10_000_000
    assert sample.template_known
    after = await world.store.sample(NAME, horizon_ms=0)
    assert after.workers == (), "the last beat takes it off the list"


async def test_a_change_of_the_queues_options_reaches_a_running_worker(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def slow() -> None:
        await asyncio.Event().wait()

    async with world.worker():
        config = QueueConfig(
            generation=2, timeout_ms=100, max_attempts=2, backoff=Backoff.fixed(0.001).to_json()
        )
        assert await world.store.configure(NAME, config, None) is None
        await (await slow.enqueue()).state()
        job = await slow.enqueue()
        view = await world.until(job.id, State.DEAD)

    assert view.attempts == 2


@pytest.mark.covers("RT-136")
async def test_an_expired_job_never_runs(world: World) -> None:
    ran: list[int] = []

    @world.app.job(queue=QUEUE)
    async def quick(n: int) -> None:
        ran.append(n)

    await world.store.set_paused(NAME, expected=False, wanted=True)
    late = await quick.options(expires=0.05).enqueue(n=1)
    in_time = await quick.enqueue(n=2)
    created = (await world.view(late.id)).created_ms
    await until_async(lambda: world.has_passed(created + 60))
    await world.store.set_paused(NAME, expected=True, wanted=False)
    async with world.worker():
        await world.until(in_time.id, State.COMPLETED)
        await world.until(late.id, State.EXPIRED)

    assert ran == [2]


@pytest.mark.covers("RT-113", "RT-117", "FM-30")
async def test_shutdown_may_be_called_from_ten_threads_and_the_first_says_so(world: World) -> None:
    answers: list[bool] = []
    async with world.worker() as worker:
        threads = [
            threading.Thread(target=lambda: answers.append(asyncio.run(worker.shutdown(5))))
            for _ in range(10)
        ]
        for thread in threads:
            thread.start()
        await until_async(lambda: _value(len(answers) == 10))
        for thread in threads:
            thread.join()

    assert sorted(answers) == [False] * 9 + [True]
    assert await worker.shutdown() is False
    with pytest.raises(ValueError, match="a worker that never ran"):
        await worker.run()
    assert world.code == 0


@pytest.mark.covers("RT-111", "RT-118")
async def test_a_shutdown_without_any_time_still_puts_back_what_runs(world: World) -> None:
    @world.app.job(queue=QUEUE)
    async def waits() -> None:
        await asyncio.Event().wait()

    job = await waits.enqueue()
    async with world.worker() as worker:
        await world.until(job.id, State.PROCESSING)
        await worker.shutdown(0)
        assert await job.state() is State.READY

    assert world.code == 0


@pytest.mark.covers("RT-100")
async def test_a_run_whose_lease_was_taken_is_cancelled_and_counts_for_nothing(world: World) -> None:
    told: list[Any] = []

    @world.app.job(queue=QUEUE)
    async def waits(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append(ctx.stop_reason)

    world.lease = timedelta(seconds=1)
    job = await waits.enqueue()
    async with world.worker(slots=1) as worker:
        view = await world.until(job.id, State.PROCESSING)
        await world.store.set_paused(NAME, expected=False, wanted=True)
        lease = worker.lanes[0].runs[job.id].lease
        await world.store.requeue(NAME, worker.owner, [lease])
        await until_async(lambda: _value(bool(told)))
        settlement = Settlement(lease=lease, outcome=Outcome.COMPLETED)
        await world.store.settle(NAME, Owner(pod="x", boot="y"), [settlement], number=1)

    view = await world.view(job.id)
    assert told == [StopReason.LOST]
    assert (view.state, view.attempts, view.deliveries) == (State.PAUSED, 0, 0)
    assert worker.lanes[0].tally.lost == 1


def _more(told: list[Any]) -> Any:
    """Asks whether there is more in `told` than now."""
    count = len(told)
    return lambda: _value(len(told) > count)


async def _value(value: Any) -> Any:
    return value


def _beat(world: World, **wanted: Any) -> Any:
    async def ask() -> bool:
        sample = await world.store.sample(NAME, horizon_ms=0)
        return any(
            all(getattr(beat, name) == value for name, value in wanted.items()) for beat in sample.workers
        )

    return ask


@pytest.mark.covers("RT-118")
async def test_a_defect_in_an_actor_puts_back_what_runs_and_says_70(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    @world.app.job(queue=QUEUE)
    async def waits() -> None:
        await asyncio.Event().wait()

    async def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    async with world.worker(timeout=1.2) as worker:
        job = await waits.enqueue()
        await world.until(job.id, State.PROCESSING)
        monkeypatch.setattr(worker.store, "wait", broken)
        await (
            await world.app.enqueue("unknown", {}, queue=QUEUE)
        ).state()  # its marker ends the wait under way
        await until_async(lambda: _value(worker.drain.begun))

    view = await world.view(job.id)
    assert (view.state, view.attempts, view.deliveries) == (State.READY, 0, 0)
    assert (world.code, worker.drain.reason) == (70, "defect")
