"""What the comparison reports of its runs; no figure's size is tested, only that it is there and means what it says."""

from __future__ import annotations

from typing import Any

import pytest

from benchkit.peers import all_peers
from benchkit.stages import tally
from benchkit.summary import percentiles, ratios, summarise


def drained(jobs_per_s: int, worker_us: float, **more: Any) -> dict[str, Any]:
    return {
        "jobs_per_s": jobs_per_s,
        "worker_us": worker_us,
        "redis_us": 20.0,
        "lost": 0,
        "duplicated": 0,
        **more,
    }


def a_run(peer: str, workload: str, **figures: Any) -> dict[str, Any]:
    return {"peer": peer, "workload": workload, "figures": figures}


@pytest.mark.covers("RT-241")
def test_repeats_become_medians_with_their_span_and_losses_add_up() -> None:
    runs = [
        a_run("p", "C", **drained(rate, 10.0, lost=lost)) for rate, lost in ((300, 0), (100, 2), (200, 1))
    ]
    assert summarise(runs)["p"]["C"] == {
        "runs": 3,
        "jobs_per_s": 200,
        "jobs_per_s_min": 100,
        "jobs_per_s_max": 300,
        "worker_us": 10.0,
        "redis_us": 20.0,
        "lost": 3,
        "duplicated": 0,
    }


@pytest.mark.covers("RT-241")
def test_delays_of_all_repeats_give_their_percentiles() -> None:
    runs = [a_run("p", "D", delays_ms=[float(ms) for ms in range(first, first + 50)]) for first in (1, 51)]
    assert summarise(runs)["p"]["D"] == {"runs": 2, "ran": 100, "p50_ms": 50.0, "p99_ms": 99.0}
    assert percentiles([]) == {"ran": 0, "p50_ms": None, "p99_ms": None}


@pytest.mark.covers("RT-241")
def test_a_job_without_receipt_is_lost_and_one_with_two_is_a_duplicate() -> None:
    assert tally([0, 2, 2, 3, 3, 3], 5) == {"lost": 2, "duplicated": 3}


@pytest.mark.covers("RT-241")
def test_a_recovery_that_did_not_come_is_told_as_none() -> None:
    assert summarise([a_run("p", "G", seconds=None, waited=95.0)])["p"]["G"]["seconds"] is None


@pytest.mark.covers("RT-241")
def test_ratios_take_the_best_python_peer_and_bullmq_on_its_own_retention() -> None:
    summary = {
        "dockwork": {"C": drained(40_000, 10.0), "D": {"p50_ms": 1.0}},
        "dockwork, none kept": {"C": drained(50_000, 10.0)},
        "slow": {"C": drained(1_000, 500.0), "D": {"p50_ms": 2.0}},
        "fast": {"C": drained(4_000, 280.0), "D": {"p50_ms": 9.0}},
        "bullmq": {"C": drained(10_000, 70.0)},
    }
    kinds = {"dockwork": "dockwork", "slow": "python", "fast": "python", "bullmq": "node"}
    assert ratios(summary, kinds) == {
        "C": {"fast": {"jobs_per_s": 10.0, "cpu": 10.0}, "bullmq": {"jobs_per_s": 4.0, "cpu": 3.0}},
        "C, none kept": {
            "fast": {"jobs_per_s": 12.5, "cpu": 10.0},
            "bullmq": {"jobs_per_s": 5.0, "cpu": 3.0},
        },
        "D": {"slow": {"p50": 2.0}},
    }


def test_each_peer_says_what_it_is_set_to_and_what_that_guarantees() -> None:
    peers = all_peers()
    assert len({peer.name for peer in peers}) == len(peers)
    assert all(peer.version and peer.settings and peer.guarantee for peer in peers)
