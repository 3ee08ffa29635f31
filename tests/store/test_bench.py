"""A small run of `make bench` and what it reports; times are looked at by people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATH = os.pathsep.join(str(ROOT / part) for part in ("bench", "tests", "runtime"))
DRAINED = {
    "jobs",
    "jobs_per_s",
    "worker_us",
    "redis_us",
    "commands",
    "reads",
    "rss_mib",
    "lost",
    "duplicated",
}


@pytest.mark.covers("RT-241")
def test_a_run_reports_rates_cpu_memory_and_an_exact_delivery(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "bench" / "compare.py"),
        "--quick",
        "--repeats=1",
        "--peers=dockwork",
    ]
    done = subprocess.run(
        [*command, "--only=AC", f"--out={tmp_path}"],
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        timeout=110,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert {"cpus", "model", "redis", "redis_settings", "load_before", "quick"} <= said["conditions"].keys()
    for peer in ("dockwork", "dockwork, none kept"):
        stored, ran = said["summary"][peer]["A"], said["summary"][peer]["C"]
        assert {"jobs_per_s", "client_us", "redis_us", "memory_bytes"} <= stored.keys()
        assert ran.keys() >= DRAINED
        assert (ran["jobs"], ran["finished"], ran["lost"], ran["duplicated"]) == (2000, True, 0, 0)
    (written,) = tmp_path.glob("*/compare.json")
    assert len(json.loads(written.read_text())["runs"]) == 4


#: A Cluster takes seconds to start: only the long run of the tests has it.
SIDES = "3,1" if os.environ.get("DOCKWORK_TEST_FULL") else "1"


@pytest.mark.covers("RT-241")
def test_a_million_in_small_finds_every_receipt_behind_tls_with_the_aof_synced_always(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "bench" / "million.py"), "--jobs=1000", f"--primaries={SIDES}"]
    done = subprocess.run(
        [*command, "--producers=1", "--workers=1", f"--out={tmp_path}"],
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        timeout=110,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert [str(side["primaries"]) for side in said["sides"]] == SIDES.split(",")
    for side in said["sides"]:
        counts = [side[name] for name in ("jobs", "accepted", "completed", "lost", "duplicated")]
        assert counts == [1000, 1000, 1000, 0, 0]
        assert {"seconds", "jobs_per_s", "producer_us", "worker_us", "redis_us", "rss_mib"} <= side.keys()
    assert list(tmp_path.glob("*/million.json"))
