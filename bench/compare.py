"""Dockwork and its peers, in one run on one machine: `make bench`.

Each workload of each peer gets a fresh Redis on loopback (AOF everysec, rewrite off, no TLS) and 1 KiB of payload.
Every handler appends its job's number and the time to a file; what was lost and what ran twice is counted from it.
The repeats are the outer loop, so that a change of the machine meets every peer; figures are medians.

    A   single enqueues by one process, 50 calls under way where the peer is async; A1: one call under way
    B   bulk enqueues of 500
    C   one worker process drains the jobs of A; N: jobs that take 5 to 50 ms; W: 10 and 100 workers at once
    D   an idle worker, a job each 50 ms: start minus enqueue
    E   jobs due in 2 to 4 s: start minus due; E1000: 1,000 due in each second
    F   an idle worker: memory, CPU, what it asks Redis
    G   SIGKILL in a job, another worker at once: seconds until the job runs again

W runs once; F and G run once for all peers at the same time: they measure waiting, not work.
The raw runs go to bench/results/<date>/compare.json. The last line is one JSON object with medians and ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchkit.meters import machine
from benchkit.peers import BENCH, Peer, all_peers
from benchkit.summary import ratios, summarise
from benchkit.workloads import QUICK, WORKLOADS, Sizes
from support.redis_server import server_program

#: Workloads that only Dockwork runs: what they show is held against its own other figures.
OURS_ALONE = frozenset({"A1", "N", "E1000", "W"})
#: Workloads that run once, after the repeats.
ONCE = ("W", "FG")
#: Variants of Dockwork run what they differ in.
VARIANTS = {
    "dockwork, none kept": frozenset({"AC"}),
    "dockwork, /metrics": frozenset({"FG"}),
    "dockwork, container restarts": frozenset({"FG"}),
}


def main(arguments: Sequence[str] | None = None) -> int:
    said = _options(arguments)
    sizes = replace(QUICK if said.quick else Sizes(), **({"share": said.share} if said.share else {}))
    peers = [peer for peer in all_peers() if not said.peers or peer.name.split(",")[0] in said.peers]
    workloads = [name for name in WORKLOADS if not said.only or name in said.only]
    began, load = datetime.now(UTC), os.getloadavg()
    runs = list(_runs(peers, workloads, sizes, said.repeats))
    report: dict[str, Any] = {
        "conditions": {
            **machine(),
            "began": began.isoformat(timespec="seconds"),
            "seconds": round((datetime.now(UTC) - began).total_seconds()),
            "load_before": [round(each, 1) for each in load],
            "load_after": [round(each, 1) for each in os.getloadavg()],
            "redis": _version([server_program(), "--version"]),
            "redis_settings": "loopback TCP, AOF everysec, rewrite off, no TLS, a fresh server for each run",
            "python": platform.python_version(),
            "payload": "1 KiB of JSON",
            "repeats": said.repeats,
            "quick": said.quick,
        },
        "peers": [_describe(peer) for peer in peers],
        "runs": runs,
    }
    report["summary"] = summarise(run for run in runs if "figures" in run)
    report["ratios"] = ratios(report["summary"], {peer.name: peer.kind for peer in peers})
    if said.out is not None:
        _write(said.out / began.strftime("%Y-%m-%d") / "compare.json", report)
    print(json.dumps({name: report[name] for name in ("conditions", "summary", "ratios")}))
    return 1 if any(_broken(run) for run in runs if run["peer"].startswith("dockwork")) else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--only", type=_names, help=f"workloads, of {','.join(WORKLOADS)}")
    options.add_argument("--peers", type=_names, help="their names, such as dockwork,taskiq,bullmq")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument(
        "--quick", action="store_true", help="a tenth of the jobs: to try the bench, not the peers"
    )
    options.add_argument("--share", type=float, help="of each peer's number of jobs")
    options.add_argument("--out", type=Path, default=BENCH / "results", help="folder of the raw results")
    options.add_argument("--no-out", dest="out", action="store_const", const=None, help="print only")
    return options.parse_args(arguments)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _runs(
    peers: Sequence[Peer], workloads: Sequence[str], sizes: Sizes, repeats: int
) -> Iterator[dict[str, Any]]:
    for repeat in range(repeats):
        for workload in (name for name in workloads if name not in ONCE):
            for peer in peers:
                if _takes_part(peer, workload):
                    yield from _one(peer, workload, sizes, repeat)
    if "W" in workloads:
        for peer in (peer for peer in peers if _takes_part(peer, "W")):
            yield from _one(peer, "W", sizes, 0)
    if "FG" in workloads:
        taking = [peer for peer in _with_restart(peers) if _takes_part(peer, "FG")]
        with ThreadPoolExecutor(len(taking)) as pool:
            for each in pool.map(lambda peer: list(_one(peer, "FG", sizes, 0)), taking):
                yield from each


def _with_restart(peers: Iterable[Peer]) -> Iterator[Peer]:
    """And Dockwork once more, as a container that is restarted in its pod."""
    for peer in peers:
        yield peer
        if peer.name == "dockwork":
            pod = {"DOCKWORK_POD_UID": "bench-pod", "DOCKWORK_CONTAINER": "worker"}
            yield replace(peer, name="dockwork, container restarts", environ={**peer.environ, **pod})


def _takes_part(peer: Peer, workload: str) -> bool:
    if peer.name in VARIANTS:
        return workload in VARIANTS[peer.name]
    if workload in OURS_ALONE:
        return peer.kind == "dockwork"
    return peer.bulk or workload != "B"


def _one(peer: Peer, workload: str, sizes: Sizes, repeat: int) -> Iterator[dict[str, Any]]:
    began, load = time.monotonic(), os.getloadavg()[0]
    common = {"peer": peer.name, "repeat": repeat, "load": round(load, 1)}
    try:
        measured = WORKLOADS[workload](peer, sizes)
    except Exception as error:  # a peer that fails costs its own figures, not the run
        print(f"{peer.name} {workload}: {error}", file=sys.stderr, flush=True)
        yield {**common, "workload": workload, "error": str(error)[:500]}
        return
    for name, figures in measured.items():
        brief = {key: value for key, value in figures.items() if key != "delays_ms"}
        print(f"{time.monotonic() - began:6.1f} s  {peer.name} {name} {brief}", file=sys.stderr, flush=True)
        if "delays_ms" in figures:
            figures["delays_ms"] = [round(delay, 2) for delay in figures["delays_ms"]]
        yield {**common, "workload": name, "figures": figures}


def _broken(run: dict[str, Any]) -> bool:
    """Whether a run failed, lost a job or ran one twice."""
    figures = run.get("figures")
    return figures is None or bool(figures.get("lost") or figures.get("duplicated"))


def _describe(peer: Peer) -> dict[str, Any]:
    names = ("name", "version", "kind", "settings", "guarantee", "jobs")
    return {name: getattr(peer, name) for name in names}


def _version(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _write(path: Path, report: dict[str, Any]) -> None:
    """The report as JSON, each run on a line of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    runs = ",\n".join(json.dumps(run, separators=(",", ":")) for run in report["runs"])
    rest = json.dumps({**report, "runs": []}, indent=1)
    path.write_text(rest.replace('"runs": []', f'"runs": [\n{runs}\n]') + "\n")


if __name__ == "__main__":
    sys.exit(main())
