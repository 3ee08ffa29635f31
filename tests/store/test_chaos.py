"""A small run of `make chaos`: the tool itself, with all its blows, on a few hundred jobs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = ["--jobs=300", "--rate=60", "--workers=2", "--slots=10", "--lease=1", "--patience=30"]
BLOWS = ["--worker-every=1.5", "--redis-every=3", "--roll-every=1"]


@pytest.mark.covers("RT-244")
def test_kills_and_rolls_lose_nothing_and_repeat_only_what_a_killed_worker_ran(tmp_path: Path) -> None:
    path = os.pathsep.join((str(ROOT / "bench"), str(ROOT / "tests")))
    command = [sys.executable, str(ROOT / "bench" / "chaos.py"), *SMALL, *BLOWS, "--seed=7"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=110
    )

    last = done.stdout.splitlines()[-1]
    said = dict(word.split("=") for word in last.split()[1:])
    assert done.returncode == 0, f"{last}\n{done.stderr[-3000:]}"
    assert (said["seed"], said["jobs"], said["lost"], said["foreign"]) == ("7", "300", "0", "0")
    assert (said["completed"], said["counted"], said["odd_exits"]) == ("300", "300", "0")
    assert all(int(said[blow]) > 0 for blow in ("workers_killed", "redis_killed", "rolled")), last
