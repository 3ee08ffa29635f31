"""Medians over the repeats, percentiles over all of their samples, and the ratios between peers. Pure."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: workload -> figure -> value, of one peer
Summary = dict[str, dict[str, Any]]

#: Figures of which the sum over the repeats counts.
SUMMED = ("lost", "duplicated")


def summarise(runs: Iterable[Mapping[str, Any]]) -> dict[str, Summary]:
    """peer -> workload -> figures, of runs that each have peer, workload and figures.

    A number becomes its median, with ``<name>_min`` and ``<name>_max`` where there are several runs; delays become
    p50, p99 and how many jobs ran; lost and duplicated are summed.
    """
    grouped: dict[str, dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        grouped[run["peer"]][run["workload"]].append(run["figures"])
    return {
        peer: {workload: _one(figures) for workload, figures in by_workload.items()}
        for peer, by_workload in grouped.items()
    }


def _one(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {"runs": len(runs)}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run[name] for run in runs if run.get(name) is not None]
        if name == "delays_ms":
            summary |= percentiles([delay for delays in values for delay in delays])
        elif not values:
            summary[name] = None
        elif name in SUMMED:
            summary[name] = sum(values)
        elif isinstance(values[0], bool):
            summary[name] = all(values)
        elif isinstance(values[0], int | float):
            summary[name] = statistics.median(values)
            if len(set(values)) > 1:
                summary |= {f"{name}_min": min(values), f"{name}_max": max(values)}
        else:
            summary[name] = values[0]
    return summary


def percentiles(delays: Sequence[float]) -> dict[str, Any]:
    """p50 and p99 by nearest rank."""
    if not delays:
        return {"ran": 0, "p50_ms": None, "p99_ms": None}
    ordered = sorted(delays)
    return {
        "ran": len(ordered),
        "p50_ms": round(ordered[max(0, -(-len(ordered) // 2) - 1)], 2),
        "p99_ms": round(ordered[max(0, -(-len(ordered) * 99 // 100) - 1)], 2),
    }


def ratios(summary: Mapping[str, Summary], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Dockwork's jobs/s over those of the best Python peer and of BullMQ, per workload of throughput; and CPU.

    ``C``: Dockwork with its usual retention over the best Python peer; over BullMQ, which keeps nothing here, with
    nothing kept. A CPU ratio above 1 says how much more the peer spends on a job, worker and Redis together.
    """
    found: dict[str, Any] = {}
    python = [name for name, kind in kinds.items() if kind == "python"]
    for workload, ours in (
        ("A", "dockwork"),
        ("B", "dockwork"),
        ("C", "dockwork"),
        ("C", "dockwork, none kept"),
    ):
        mine = summary.get(ours, {}).get(workload)
        if mine is None:
            continue
        rivals = [name for name in python if workload in summary.get(name, {})]
        best = max(rivals, key=lambda name: summary[name][workload]["jobs_per_s"], default=None)
        bull = "bullmq" if workload in summary.get("bullmq", {}) else None
        label = workload if ours == "dockwork" else f"{workload}, none kept"
        found[label] = {
            rival: _ratio(mine, summary[rival][workload]) for rival in (best, bull) if rival is not None
        }
    for workload in ("D", "E"):
        mine = summary.get("dockwork", {}).get(workload)
        rivals = [
            name for name in python if summary.get(name, {}).get(workload, {}).get("p50_ms") is not None
        ]
        if mine is None or not rivals or mine["p50_ms"] is None:
            continue
        best = min(rivals, key=lambda name: summary[name][workload]["p50_ms"])
        found[workload] = {best: {"p50": round(summary[best][workload]["p50_ms"] / mine["p50_ms"], 2)}}
    return found


def _ratio(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, float]:
    return {
        "jobs_per_s": round(mine["jobs_per_s"] / theirs["jobs_per_s"], 2),
        "cpu": round(_cpu(theirs) / _cpu(mine), 2),
    }


def _cpu(figures: Mapping[str, Any]) -> float:
    return float(figures.get("worker_us", figures.get("client_us", 0)) + figures["redis_us"])
