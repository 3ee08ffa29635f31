"""What a worker says of its running jobs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dockwork.core.keys import QueueName
from dockwork.store.protocol import Claim, Lease, Owner, QueueConfig, WorkerState
from dockwork.worker.heartbeat import Identity, compose_beat, estimate_rest
from dockwork.worker.lane import Lane
from dockwork.worker.metrics import LaneFigures, WorkerFigures, render
from dockwork.worker.runs import Run


def a_run(job_id: str, started_at: float, hard_at: float = 1000.0) -> Run:
    lease = Lease(job_id=job_id, epoch=1)
    claim = Claim(lease=lease, type="t", envelope=b"", attempts=0, deliveries=1, created_ms=0, due_ms=0)
    run = Run(claim, started_at, int(started_at * 1000))
    run.hard_at = hard_at
    return run


@pytest.mark.parametrize(
    ("started_at", "mean_s", "hard_at", "rest"),
    [
        (90.0, 30.0, 1000.0, 20.0),  # a third of the mean is over
        (60.0, 30.0, 1000.0, 40.0),  # it outlived the mean: as long again
        (60.0, None, 1000.0, 40.0),  # nothing known of the type
        (60.0, None, 110.0, 10.0),  # but never past its hard timeout
    ],
)
@pytest.mark.covers("RT-121")
def test_the_rest_of_a_run_by_its_types_mean(
    started_at: float, mean_s: float | None, hard_at: float, rest: float
) -> None:
    assert estimate_rest(a_run("a", started_at, hard_at), mean_s, now=100.0) == pytest.approx(rest)


@pytest.mark.covers("RT-121")
async def test_a_beat_names_the_20_longest_and_the_figures_of_all() -> None:
    tools: Any = object()
    lane = Lane(QueueName("test", "work"), 50, tools, QueueConfig(), lease_s=15)
    lane.working = {a_run(f"j{n:02}", started_at=float(n)) for n in range(40)}
    lane.mean_s["t"] = 200.0
    who = Identity(owner=Owner(pod="p", boot="b"), schemas={"t": "abc"})

    beat = compose_beat(who, lane, now=100.0, draining=True, lag_s=0.25)

    assert [job_id for job_id, _, _ in beat.jobs] == [f"j{n:02}" for n in range(20)]
    assert beat.jobs[0] == ("j00", 0, 100_000)
    assert (beat.slots, beat.busy, beat.state) == (50, 40, WorkerState.DRAINING)
    assert (beat.longest_rest_ms, beat.mean_elapsed_ms, beat.lag_ms) == (139_000, 80_500, 250)
    await asyncio.sleep(0)  # noqa: TID251


def test_the_figures_are_text_that_a_scraper_reads() -> None:
    lane = LaneFigures(
        queue="mail", slots=4, busy=1, stuck=0, lease_margin_s=9.5, settled=7, lost=1, requeued=2, abandoned=3
    )

    text = render(WorkerFigures(lag_s=0.25, reconnects=2, unknown=1, lanes=(lane,))).decode()

    for line in (
        'dockwork_worker_slots{queue="mail"} 4.0',
        'dockwork_worker_busy{queue="mail"} 1.0',
        'dockwork_lease_margin_seconds{queue="mail"} 9.5',
        'dockwork_abandoned_jobs_total{queue="mail"} 3.0',
        "dockwork_loop_lag_seconds 0.25",
        "dockwork_redis_reconnects_total 2.0",
    ):
        assert line in text.splitlines()
