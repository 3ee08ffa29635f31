"""Folders are renewed without touching what is mounted below them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from bed.folders import fresh, mounts_below
from bed.places import ROOT
from support.waiting import until

MOUNTS = """\
/dev/vda / ext4 rw 0 0
proc /srv/half/proc proc rw 0 0
tmpfs /srv/half/sys/fs/a\\040b tmpfs rw 0 0
tmpfs /srv/half2/run tmpfs rw 0 0
"""


def test_mounts_are_found_deepest_first_and_only_below_the_folder() -> None:
    assert mounts_below(Path("/srv/half"), MOUNTS) == ["/srv/half/sys/fs/a b", "/srv/half/proc"]


def test_a_folder_is_renewed(tmp_path: Path) -> None:
    folder = tmp_path / "half"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "file").write_text("x")
    assert fresh(folder) == folder
    assert list(folder.iterdir()) == []


def test_what_a_killed_run_had_started_ends_too(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from bed.shell import run\n"
        "run(['sh', '-c', 'echo $$ >' + sys.argv[2] + '; exec sleep 300'])\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(ROOT / "tests"), str(mark)])
    child = until(lambda: mark.exists() and mark.read_text().strip(), within=20)
    assert isinstance(child, str)

    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()

    def ended() -> bool:
        try:
            return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    assert until(ended, within=20)
