"""What a chaos run reckons from its receipts: it must see a loss, and a run that no kill explains."""

from __future__ import annotations

from pathlib import Path

import pytest

import chaos
from benchkit.receipts import Receipts, RunSeen, read_receipts
from benchkit.reckoning import Delivery, reckon
from dockwork.core.states import State
from dockwork.store.protocol import QueueStats


def a_run(
    worker: str, began: float, ended: float | None = None, *, attempt: int = 1, failed: bool = False
) -> RunSeen:
    return RunSeen(job="a", attempt=attempt, worker=worker, began=began, ended=ended, failed=failed)


@pytest.mark.covers("RT-244")
@pytest.mark.parametrize(
    ("runs", "killed", "outages"),
    [
        ([a_run("w1", 1, 2)], {}, []),
        ([a_run("w1", 1), a_run("w2", 9, 10)], {"w1": 1.5}, []),
        ([a_run("w1", 1, 2), a_run("w2", 9, 10)], {"w1": 2.1}, []),
        ([a_run("w1", 1, 2), a_run("w2", 20, 21)], {"w1": 12}, [(1.9, 11.5)]),
        ([a_run("w1", 1, 2, failed=True), a_run("w1", 3, 4, attempt=2)], {}, []),
    ],
    ids=["once", "killed in it", "killed right after it", "killed after an outage", "a second attempt"],
)
def test_these_runs_break_no_promise(
    runs: list[RunSeen], killed: dict[str, float], outages: list[tuple[float, float]]
) -> None:
    assert reckon(["a"], runs, killed, outages).holds


@pytest.mark.covers("RT-244")
@pytest.mark.parametrize(
    ("runs", "killed"),
    [
        ([a_run("w1", 1, 2), a_run("w2", 3, 4)], {}),
        ([a_run("w1", 1), a_run("w2", 3, 4)], {"w2": 9.0}),
        ([a_run("w1", 1, 2), a_run("w2", 20, 21)], {"w1": 12.0}),
    ],
    ids=["nobody was killed", "another was killed", "killed long after its end"],
)
def test_these_runs_are_foreign_duplicates(runs: list[RunSeen], killed: dict[str, float]) -> None:
    assert reckon(["a"], runs, killed) == Delivery(jobs=1, lost=(), again=1, foreign=("a",))


@pytest.mark.covers("RT-244")
@pytest.mark.parametrize(
    "runs",
    [[], [a_run("w1", 1)], [a_run("w1", 1, 2, failed=True)]],
    ids=["never ran", "killed in it", "only failed"],
)
def test_these_runs_are_a_loss(runs: list[RunSeen]) -> None:
    assert reckon(["a"], runs, {"w1": 1.5}).lost == ("a",)


def test_receipts_of_a_killed_process_are_read_too(tmp_path: Path) -> None:
    first, second = (Receipts(tmp_path / "r", worker) for worker in ("w1", "w2"))
    first.write("B", "a", 1)
    second.write("B", "a", 1)
    second.write("E", "a", 1)
    runs = read_receipts(tmp_path / "r")
    assert [(run.worker, run.ended is None) for run in runs] == [("w1", True), ("w2", False)]


@pytest.mark.covers("RT-244")
@pytest.mark.parametrize(
    ("lost", "foreign", "completed", "counted", "fails"),
    [(0, 0, 9, 9, False), (1, 0, 9, 9, True), (0, 1, 9, 9, True), (0, 0, 8, 9, True), (0, 0, 9, 10, True)],
)
def test_a_run_fails_on_a_loss_a_foreign_duplicate_or_a_wrong_count(
    lost: int, foreign: int, completed: int, counted: int, fails: bool
) -> None:
    plan, *_ = chaos.plan_of(["--seed", "7"])
    delivery = Delivery(jobs=9, lost=("a",) * lost, again=foreign, foreign=("b",) * foreign)
    stats = QueueStats(counts={State.COMPLETED: completed}, totals={"completed": counted})
    said = chaos.figures(plan, delivery, stats, chaos.Blows(), 1.0)
    assert (said["seed"], said["jobs"], chaos.fails(said)) == (7, 9, fails)


def test_a_seed_gives_the_same_jobs() -> None:
    plans = [chaos.plan_of(["--seed", str(seed), "--jobs", "50"])[0] for seed in (7, 7, 8)]
    loads = [[item.envelope for batch in chaos.batches(plan, 20) for item in batch] for plan in plans]
    assert loads[0] == loads[1] != loads[2]
