"""Schedules that code declares: in memory on a clock that the test moves, and on a real Redis with several workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import redis.asyncio
from click.testing import CliRunner, Result

from dockwork import App, InvalidArgs, InvalidValue, clock
from dockwork.cli import main
from support.redis_server import RedisServer
from support.waiting import until_async


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(port=0) as running:
        yield running


def an_app(server: RedisServer | None = None, *, schedule: str = "*/5 * * * *", declares: bool = True) -> App:
    app = App("shop", redis=None if server is None else server.url)

    @app.job(queue="reports")
    async def report(place: str) -> None: ...

    if declares:
        app.cron(schedule, args={"place": "home"})(report)
    return app


def cli(*words: str) -> Result:
    """One command. In a thread: it runs a loop of its own, and the tests' plugin keeps this thread's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(CliRunner().invoke, main, list(words)).result()


def shown(*words: str) -> Any:
    result = cli(*words, "-o", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.covers("RT-025", "FM-41")
async def test_one_job_per_instant_however_many_workers_declare_it(server: RedisServer) -> None:
    server.flush()
    apps = [an_app(server, schedule="@every 1s") for _ in range(5)]
    workers = [app.worker(queues={"reports": 2}, trap_signals=False) for app in apps]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    try:

        async def ran() -> bool:
            found = await apps[0].schedules("reports")
            return bool(found) and found[0].runs >= 3

        await until_async(ran, within=20, what="three ticks")
    finally:
        for worker in workers:
            await worker.shutdown()
        await asyncio.gather(*running)
    (found,) = await apps[0].schedules("reports")
    done = [job async for job in apps[0].jobs("reports", state="completed")]
    waits = [job async for job in apps[0].jobs("reports", state="ready")]
    due = sorted(job.scheduled_for for job in [*done, *waits] if job.scheduled_for is not None)

    assert len(set(due)) == len(due) == found.runs
    assert all(instant.microsecond == 0 for instant in due)
    assert (found.name, found.schedule, found.missed) == ("report", "@every 1s", 0)
    for app in apps:
        await app.close()


@pytest.mark.covers("RT-061", "FM-26")
async def test_a_worker_with_schedules_starts_on_a_full_redis_and_empties_the_queue() -> None:
    with RedisServer(port=0) as full:
        app = an_app(full, schedule="@every 1h")
        job = await app.registry["report"].options().enqueue(place="here")
        raw = redis.asyncio.Redis.from_url(full.url)
        await raw.config_set("maxmemory", "1")
        worker = app.worker(queues={"reports": 2}, trap_signals=False)
        running = asyncio.create_task(worker.run())
        try:
            await job.result(timeout=15)
            assert await app.pause_schedule("report", queue="reports")
            assert [one.paused for one in await app.schedules("reports")] == [True]
        finally:
            await worker.shutdown()
            await running
            await raw.aclose()
            await app.close()


@pytest.mark.covers("RT-025", "FM-43")
async def test_a_schedule_of_a_call_fires_pauses_and_goes() -> None:
    app = an_app(declares=False)
    async with app.testing("manual") as bench:
        report = app.registry["report"]
        info = await report.schedule(every=60, name="minutely", place="away")
        assert (info.schedule, info.paused, info.runs) == ("@every 60s", False, 0)

        await bench.advance(61)
        await bench.run_all()
        (found,) = await app.schedules("reports")
        assert found.runs == 1

        assert await app.pause_schedule("minutely", queue="reports")
        await bench.advance(300)
        await bench.run_all()
        assert (await app.schedules("reports"))[0].runs == 1
        assert await app.resume_schedule("minutely", queue="reports")
        await bench.advance(61)
        await bench.run_all()
        (found,) = await app.schedules("reports")
        assert (found.runs, found.missed) == (2, 0)  # nothing was due for the past

        assert await app.unschedule("minutely", queue="reports")
        assert await app.schedules("reports") == []
        assert not await app.unschedule("minutely", queue="reports")


@pytest.mark.covers("RT-025")
async def test_what_code_declares_outlives_the_code_until_somebody_removes_it() -> None:
    app = an_app(declares=False)
    async with app.testing("manual") as bench:
        await app.schedule(app.registry["report"].item(place="home"), every=3600)

        await bench.advance(10 * 24 * 3600)
        await bench.run_all()

        (found,) = await app.schedules("reports")
        assert found.runs > 0
        before = found.runs
        await bench.advance(3601)
        await bench.run_all()
        assert (await app.schedules("reports"))[0].runs == before + 1


@pytest.mark.covers("RT-025")
async def test_declared_schedules_tick_in_a_test_on_its_clock() -> None:
    app = an_app()
    async with app.testing("manual") as bench:
        await bench.advance(601)
        await bench.run_all()
        (found,) = await app.schedules("reports")
    assert (found.name, found.runs, found.missed) == ("report", 1, 1)  # the latest of two, as after an outage


@pytest.mark.covers("RT-025")
@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"every": 60, "cron": "* * * * *"}, "schedule"),
        ({}, "schedule"),
        ({"every": 0.1}, "every"),
        ({"cron": "61 * * * *"}, "minute"),
        ({"cron": "0 0 30 2 *"}, "schedule"),
        ({"cron": "0 9 * * *", "tz": "Mars/Olympus"}, "^tz: "),
        ({"every": 60, "name": "a:b"}, "schedule name"),
        ({"every": 60, "max_catch_up": 0}, "max_catch_up"),
        ({"every": 60, "starting_deadline": 1}, "starting_deadline"),
        ({"every": 60, "concurrency_policy": "Never"}, "concurrency_policy"),
        ({"every": 60, "colour": "red"}, "schedule"),
    ],
)
async def test_a_schedule_that_cannot_be_is_refused_with_its_field(said: dict[str, Any], field: str) -> None:
    app = an_app()
    async with app.testing("manual"):
        with pytest.raises(InvalidValue, match=field):
            await app.schedule(app.registry["report"].item(place="home"), **said)
        item = app.registry["report"].options(id="mine").item(place="home")
        with pytest.raises(InvalidValue, match="unique"):
            await app.schedule(item, every=60)


@pytest.mark.covers("RT-025")
def test_two_of_one_name_in_a_queue_and_arguments_that_do_not_fit_stop_the_start() -> None:
    app = an_app()
    with pytest.raises(InvalidValue, match="schedule name"):
        app.cron("@hourly")(app.registry["report"])
    app.cron("@hourly", name="other", args={"size": 1})(app.registry["report"])
    with pytest.raises(InvalidArgs, match="size"):
        app.worker(queues={"reports": 1})


@pytest.mark.covers("RT-218")
async def test_the_command_shows_previews_pauses_and_removes(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.flush()
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    app = an_app(server)
    await app.schedule(app.registry["report"].item(place="home"), cron="0 9 * * *", tz="Europe/Zurich")
    await app.close()

    (row,) = shown("schedules")
    assert (row["queue"], row["name"], row["schedule"], row["tz"]) == (
        "reports", "report", "0 9 * * *", "Europe/Zurich",
    )  # fmt: skip
    instants = [
        datetime.fromisoformat(text) for text in shown("schedules", "reports", "report", "--next", "3")
    ]
    assert len(instants) == 3
    assert all(instant.astimezone(UTC).hour in (7, 8) for instant in instants)
    assert cli("schedules", "reports", "report", "--pause").exit_code == 0
    assert shown("schedules", "reports")[0]["paused"]
    assert "paused" in cli("schedules").output
    assert cli("schedules", "reports", "report", "--resume").exit_code == 0
    assert cli("schedules", "reports", "report", "--remove").exit_code == 0
    assert cli("schedules", "reports", "report", "--remove").exit_code == 1
    assert cli("schedules", "--remove").exit_code == 2


@pytest.mark.covers("FM-45", "RT-025")
@pytest.mark.parametrize("off", [timedelta(hours=1), timedelta(hours=-1)], ids=["ahead", "behind"])
async def test_a_worker_whose_clock_is_an_hour_off_ticks_by_the_servers(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, off: timedelta
) -> None:
    server.flush()
    true = clock.now
    monkeypatch.setattr(clock, "now", lambda: true() + off)
    monkeypatch.setattr(clock, "now_ms", lambda: round((true() + off).timestamp() * 1000))
    app = an_app(server, schedule="@every 1s")
    began = true()
    minutely = await app.schedule(
        app.registry["report"].item(place="home"), cron="* * * * *", name="minutely"
    )
    worker = app.worker(queues={"reports": 2}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    try:

        async def ran() -> bool:
            return any(one.name == "report" and one.runs >= 2 for one in await app.schedules("reports"))

        await until_async(ran, within=20, what="two ticks")
    finally:
        await worker.shutdown()
        await running
    jobs = [job async for job in app.jobs("reports", state="completed")]
    await app.close()

    assert minutely.next_at is not None
    assert began <= minutely.next_at <= began + timedelta(seconds=61)
    due = [job.scheduled_for for job in jobs if job.scheduled_for is not None]
    assert len(due) == len(jobs) >= 2
    assert all(began - timedelta(seconds=1) <= instant <= true() for instant in due)
