"""The charts of docs/performance.md, as SVG; each carries its conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

OURS, OURS_LIGHT = "#1f5fbf", "#8db4ea"
THEIRS, THEIRS_LIGHT = "#6b7280", "#c3c7ce"
INK, FAINT = "#1f2430", "#5b6270"


def draw_all(report: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Draw every chart whose figures are there; the text that stands for each."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "dockwork",
            "font.size": 10,
            "text.color": INK,
            "axes.labelcolor": INK,
            "xtick.color": FAINT,
            "ytick.color": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.spines.left": False,
            "axes.edgecolor": "#c3c7ce",
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    said = report["conditions"]
    foot = (
        f"{said['redis'].split(' sha=')[0]} on loopback, AOF everysec, no TLS; 1 KiB; {said['cpus']} CPUs, "
        f"load {said['load_before'][0]} to {said['load_after'][0]}; median of {said['repeats']}; {said['began'][:10]}"
    )
    charts: dict[str, Callable[[Mapping[str, Any]], tuple[Any, str]]] = {
        "throughput": _throughput,
        "cpu": _cpu,
        "enqueue": _enqueue,
        "latency": _latency,
        "crash": _crash,
    }
    texts = {}
    for name, draw in charts.items():
        figure, texts[name] = draw(report["summary"])
        figure.text(0.01, 0.01, foot, fontsize=7.5, color=FAINT)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": "bench/report.py"})
    return texts


def _axes(rows: int, title: str, subtitle: str, columns: int = 1) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    height = 1.25 + 0.33 * rows
    figure, axes = plt.subplots(1, columns, figsize=(8.2, height), sharey=True, squeeze=False)
    figure.subplots_adjust(left=0.26, right=0.96, top=1 - 0.72 / height, bottom=0.62 / height, wspace=0.12)
    figure.text(0.01, 1 - 0.26 / height, title, fontsize=12.5, fontweight="bold")
    figure.text(0.01, 1 - 0.5 / height, subtitle, fontsize=9, color=FAINT)
    for each in axes[0]:
        each.tick_params(length=0)
        each.grid(axis="x", color="#e6e8ec", linewidth=0.8)
        each.set_axisbelow(True)
    return figure, list(axes[0])


def _colour(name: str, light: bool = False) -> str:
    if name.startswith("dockwork"):
        return OURS_LIGHT if light else OURS
    return THEIRS_LIGHT if light else THEIRS


def _rows(summary: Mapping[str, Any], workload: str, figure: str, best_last: bool) -> list[tuple[str, Any]]:
    """The peers that have the figure, from the worst to the best, for bars that grow from the bottom."""
    found = [
        (name, by[workload]) for name, by in summary.items() if by.get(workload, {}).get(figure) is not None
    ]
    return sorted(found, key=lambda each: each[1][figure], reverse=not best_last)


def _bars(axes: Any, names: Sequence[str], values: Sequence[float]) -> None:
    axes.barh(range(len(names)), values, color=[_colour(name) for name in names], height=0.68)
    axes.set_yticks(range(len(names)), names)
    for at, value in enumerate(values):
        text = f"{value:,.0f}" if value else "none"
        axes.annotate(text, (value, at), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.margins(x=0.14)


def _throughput(summary: Mapping[str, Any]) -> tuple[Any, str]:
    rows = _rows(summary, "C", "jobs_per_s", best_last=True)
    figure, (axes,) = _axes(
        len(rows), "Jobs a second, one worker process", "No-op jobs, every delivery checked"
    )
    _bars(axes, [name for name, _ in rows], [each["jobs_per_s"] for _, each in rows])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure, "Jobs a second of one worker process: " + _said(rows, "jobs_per_s")


def _cpu(summary: Mapping[str, Any]) -> tuple[Any, str]:
    found = [(name, by["C"]) for name, by in summary.items() if "C" in by]
    rows = sorted(found, key=lambda each: each[1]["worker_us"] + each[1]["redis_us"], reverse=True)
    figure, (axes,) = _axes(
        len(rows),
        "CPU time of a job, in µs (logarithmic)",
        "Worker and Redis together; the lower bar is Redis alone",
    )
    for at, (name, each) in enumerate(rows):
        total = each["worker_us"] + each["redis_us"]
        axes.barh(at + 0.17, total, color=_colour(name), height=0.34)
        axes.barh(at - 0.17, each["redis_us"], color=_colour(name, light=True), height=0.34)
        text = f"{each['worker_us']:.0f} + {each['redis_us']:.0f}"
        axes.annotate(text, (total, at + 0.17), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.margins(x=0.14)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    return figure, "CPU time of a job, worker plus Redis, in microseconds: " + ", ".join(
        f"{name} {each['worker_us']:.0f} + {each['redis_us']:.0f}" for name, each in reversed(rows)
    )


def _enqueue(summary: Mapping[str, Any]) -> tuple[Any, str]:
    rows = [each for each in _rows(summary, "A", "jobs_per_s", best_last=True) if "," not in each[0]]
    figure, (single, many) = _axes(len(rows), "Jobs stored a second, one process", "", 2)
    names = [name for name, _ in rows]
    _bars(single, names, [each["jobs_per_s"] for _, each in rows])
    bulk = [summary[name].get("B", {}).get("jobs_per_s", 0) for name in names]
    _bars(many, names, bulk)
    single.set_title("single calls", fontsize=9, loc="left", color=FAINT)
    many.set_title("bulk calls of 500", fontsize=9, loc="left", color=FAINT)
    for axes in (single, many):
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g} k" if x else "0")
        axes.margins(x=0.22)
    return figure, "Jobs stored a second by single calls: " + _said(rows, "jobs_per_s")


def _latency(summary: Mapping[str, Any]) -> tuple[Any, str]:
    rows = _rows(summary, "D", "p50_ms", best_last=False)
    figure, both = _axes(len(rows), "How soon a job starts, ms (logarithmic)", "", 2)
    titles = ("idle worker: pickup, p50 ● and p99 |", "delayed job: start minus due, p50 ● and p99 |")
    for axes, workload, title in zip(both, ("D", "E"), titles, strict=True):
        for at, (name, _) in enumerate(rows):
            each = summary[name].get(workload, {})
            if each.get("p50_ms") is None:
                continue
            p50, p99 = max(each["p50_ms"], 0.05), max(each["p99_ms"], 0.05)
            axes.plot(
                [p50, p99], [at, at], color=_colour(name, light=True), linewidth=4, solid_capstyle="butt"
            )
            axes.plot(p50, at, "o", color=_colour(name), markersize=6)
            axes.plot(p99, at, "|", color=_colour(name), markersize=11, markeredgewidth=2)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_title(title, fontsize=9, loc="left", color=FAINT)
    both[0].set_yticks(range(len(rows)), [name for name, _ in rows])
    return figure, "Pickup by an idle worker, p50 in milliseconds: " + _said(rows, "p50_ms")


def _crash(summary: Mapping[str, Any]) -> tuple[Any, str]:
    found = {name: by["G"] for name, by in summary.items() if "G" in by and name != "dockwork, /metrics"}
    waited = max((each.get("waited", 0) for each in found.values()), default=0)
    rows = sorted(found.items(), key=lambda each: each[1].get("seconds") or waited + 1, reverse=True)
    figure, (axes,) = _axes(
        len(rows), "Seconds until a killed worker's job runs again", "SIGKILL, another at once"
    )
    names = [name for name, _ in rows]
    axes.barh(
        range(len(rows)),
        [each.get("seconds") or waited for _, each in rows],
        color=[_colour(name, light=each.get("seconds") is None) for name, each in rows],
        height=0.68,
    )
    for at, (_, each) in enumerate(rows):
        text = f"{each['seconds']:g}" if each.get("seconds") is not None else f"not within {waited:g} s"
        end = each.get("seconds") or waited
        axes.annotate(text, (end, at), (4, 0), textcoords="offset points", va="center", fontsize=8.5)
    axes.set_yticks(range(len(names)), names)
    axes.margins(x=0.22)
    return figure, "Seconds until the job of a killed worker runs again: " + ", ".join(
        f"{name} {each['seconds']:g}" if each.get("seconds") is not None else f"{name} not within {waited:g}"
        for name, each in reversed(rows)
    )


def _said(rows: Sequence[tuple[str, Any]], figure: str) -> str:
    return ", ".join(f"{name} {each[figure]:,}" for name, each in reversed(rows))
