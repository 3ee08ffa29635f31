"""The plain API server that this tier and the next stand on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.apiserver import ApiServer, ApiServerError
from support.waiting import until

TESTS = Path(__file__).resolve().parents[1]


def _alive(folder: str) -> list[str]:
    """The command lines, of processes of this machine, that name `folder`."""
    lines = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = place.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in line:
            lines.append(line)
    return lines


def test_it_starts_answers_and_leaves_nothing_behind() -> None:
    with ApiServer() as server:
        folder = server.folder
        assert "default" in server.kubectl("get", "namespaces", "-o", "name")
        assert _alive(str(folder))
        refused = server.try_kubectl("auth", "can-i", "list", "pods", "--as", "somebody")
    assert (refused.returncode, refused.stdout) == (1, "no\n")
    assert _alive(str(folder)) == []
    assert not folder.exists()


def test_a_failing_kubectl_says_what_the_server_said() -> None:
    with ApiServer() as server, pytest.raises(ApiServerError, match='pods "none" not found'):
        server.kubectl("get", "pod", "none")


def test_both_processes_end_when_the_tests_are_killed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from support.apiserver import ApiServer\n"
        "server = ApiServer(); server.start(); print(server.folder, flush=True); sys.stdin.read()\n"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", code, str(TESTS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert tests.stdout is not None
    folder = tests.stdout.readline().strip()
    assert len(_alive(folder)) >= 2

    os.kill(tests.pid, signal.SIGKILL)
    tests.communicate()

    assert until(lambda: not _alive(folder), within=20)
    subprocess.run(["rm", "-rf", folder], check=True)
