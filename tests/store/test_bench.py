"""A small run of `make bench` and what it reports; times are looked at by people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


def last_line(program: str, *words: str) -> Any:
    """What the last line of a bench says, once it has ended well."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / program), *words],
        env={**os.environ, "PYTHONPATH": PATH},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.covers("RT-241")
def test_a_run_reports_rates_cpu_memory_and_an_exact_delivery(tmp_path: Path) -> None:
    small = ("--quick", "--repeats=1", "--peers=dockwork", "--only=AC")
    said = last_line("compare.py", *small, f"--out={tmp_path}")
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
    size = ("--jobs=1000", f"--primaries={SIDES}", "--producers=1", "--workers=1")
    said = last_line("million.py", *size, f"--out={tmp_path}")
    assert [str(side["primaries"]) for side in said["sides"]] == SIDES.split(",")
    for side in said["sides"]:
        counts = [side[name] for name in ("jobs", "accepted", "completed", "lost", "duplicated")]
        assert counts == [1000, 1000, 1000, 0, 0]
        assert {"seconds", "jobs_per_s", "producer_us", "worker_us", "redis_us", "rss_mib"} <= side.keys()
    assert list(tmp_path.glob("*/million.json"))
