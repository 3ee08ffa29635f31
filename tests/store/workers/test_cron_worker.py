"""Schedules with real workers and no operator: ticks in time, each runs once, and plans that go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime

import pytest

from dockwork import Context
from dockwork.core.codec import Envelope, seal
from dockwork.core.cron import Calendar, parse_schedule, tzdata_version
from dockwork.store.protocol import CronEntry, NewJob
from dockwork.worker import upkeep
from support.waiting import until_async
from support.workers import NAME, QUEUE, World

UID = "0b5e"


def an_entry(calendar: Calendar | None = None) -> CronEntry:
    job = NewJob(id="tick", type="beat", envelope=seal(Envelope(type="beat")))
    return CronEntry(
        uid=UID, schedule_hash=calendar.hash if calendar else "a", job=job, tzdata=tzdata_version(),
        calendar=calendar.to_json() if calendar else "",
    )  # fmt: skip


@pytest.mark.covers("OP-250", "OP-251")
async def test_idle_workers_run_each_tick_once_and_in_time(world: World) -> None:
    runs: list[tuple[datetime | None, int]] = []

    def declare(app: object) -> None:
        @app.job(queue=QUEUE, name="beat")  # type: ignore[attr-defined]
        async def beat(ctx: Context) -> None:
            runs.append((ctx.job.scheduled_for, await world.store.ping()))

    second = world.an_app()
    for app in (world.app, second):
        declare(app)
    async with world.worker(), world.worker(second):
        now = await world.store.ping()
        instants = [now + 300 + 150 * n for n in range(20)]
        await world.store.plan(NAME, an_entry(), instants, generation=1, reset=False)

        async def all_ran() -> bool:
            return len(runs) >= len(instants)

        # Somebody else ticks as well, as an operator does.
        ticking = asyncio.ensure_future(tick_until(world, instants[-1]))
        await until_async(all_ran, within=20)
        await ticking
        (state,) = await world.store.cron_states(NAME)
    await second.close()

    due = [round(scheduled.timestamp() * 1000) for scheduled, _ in runs if scheduled is not None]
    assert Counter(due) == Counter(instants)
    # Milliseconds on a quiet machine (3 to 6 were seen); the bound is loose for a busy one.
    assert max(ran - at for at, (_, ran) in zip(due, runs, strict=True)) < 5_000
    assert (state.runs, state.missed, state.skipped) == (20, 0, 0)


async def tick_until(world: World, last_ms: int) -> None:
    while await world.store.ping() <= last_ms:
        await world.store.tick(NAME, by="operator")


@pytest.mark.covers("OP-251")
async def test_a_running_worker_plans_on_while_no_operator_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "EVERY_S", 0.2)
    calendar = Calendar(schedule=parse_schedule("@daily"))
    now = await world.store.ping()
    await world.store.plan(NAME, an_entry(calendar), [], generation=1, reset=False, from_ms=now - 1_000)

    async def is_planned() -> bool:
        (state,) = await world.store.cron_states(NAME)
        return state.planned >= 63 and state.next_ms is not None

    async with world.worker():
        await until_async(is_planned, within=10)
