"""A worker that is told to end before it has begun: the signal comes while the command still imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

#: The process sends itself a signal when the first of the heavy imports begins.
TOLD_AT_ITS_START = """
import os, signal, sys

def hear(event, arguments):
    if event == "import" and arguments[0] == "dockwork.cli":
        print("told to end", flush=True)
        os.kill(os.getpid(), signal.{signal})

sys.addaudithook(hear)
"""


def script() -> str:
    """What the installed command `dockwork` does."""
    declared = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    module, function = declared["project"]["scripts"]["dockwork"].split(":")
    return f"from {module} import {function}; {function}()"


def run(folder: Path, told: str, *command: str) -> tuple[int, str]:
    """The exit code and the output of Python with `command`, and with the hook."""
    (folder / "sitecustomize.py").write_text(TOLD_AT_ITS_START.format(signal=told))
    environ = {**os.environ, "PYTHONPATH": str(folder), "DOCKWORK_REDIS_URL": f"unix://{folder}/nobody"}
    done = subprocess.run(
        [sys.executable, *command], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.covers("RT-117")
@pytest.mark.parametrize("told", ["SIGTERM", "SIGINT"])
def test_a_worker_told_to_end_while_it_imports_ends_at_once_with_0(tmp_path: Path, told: str) -> None:
    for command in (("-c", script()), ("-m", "dockwork")):
        assert run(tmp_path, told, *command, "worker", "shop.jobs:app") == (0, "told to end\n")


def test_other_commands_end_by_the_signal(tmp_path: Path) -> None:
    assert run(tmp_path, "SIGTERM", "-c", script(), "queues") == (-signal.SIGTERM, "told to end\n")
