"""Where the bed's things lie, and their keys and locks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bed.errors import BedError
from bed.keys import files_under, key_of, key_of_files
from bed.locks import locked
from bed.places import ROOT, bed_from, cache_root
from support.waiting import until

TESTS = ROOT / "tests"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"DOCKWORK_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/dockwork"),
        ({"HOME": "/h"}, "/h/.cache/dockwork"),
    ],
)
def test_the_cache_is_chosen_by_the_environment(environ: dict[str, str], expected: str) -> None:
    assert cache_root(environ) == Path(expected)


def test_everything_of_a_bed_follows_from_its_name() -> None:
    bed = bed_from({"DOCKWORK_BED": "mine", "DOCKWORK_CACHE": "/c"})
    assert (bed.name, bed.context) == ("mine", "kind-mine")
    assert bed.kubeconfig == Path("/c/beds/mine/kubeconfig")
    assert bed_from({"DOCKWORK_CACHE": "/c"}).name == "dockwork"


@pytest.mark.parametrize("name", ["Upper", "-x", "x-", "a/b", "a" * 33, "ä", "1a", "a b"])
def test_a_name_that_cannot_be_a_cluster_is_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(
        BedError, match=r"DOCKWORK_BED: expected 1 to 32 of a-z.*\n  remedy: export"
    ) as refused:
        bed_from({"DOCKWORK_BED": name})
    assert repr(name) in str(refused.value)


def test_a_key_depends_on_where_a_part_ends() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")
    assert key_of("ab") == key_of(b"ab")
    assert len(key_of("x")) == 12


def test_a_key_of_files_sees_names_contents_and_modes(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("x")

    def key() -> str:
        return key_of_files(tmp_path, files_under(tmp_path))

    keys = {"first": key()}
    (tmp_path / "a").write_text("2")
    keys["content"] = key()
    (tmp_path / "a").chmod(0o755)
    keys["mode"] = key()
    (tmp_path / "a").rename(tmp_path / "b")
    keys["name"] = key()
    (tmp_path / "__pycache__" / "b.pyc").write_text("y")
    keys["name again"] = key()
    assert len(set(keys.values())) == 4
    assert keys["name"] == keys["name again"]


def test_a_lock_keeps_the_second_run_waiting_and_a_killed_one_frees_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "locks" / "thing"
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "from bed.locks import locked\n"
        "with locked(pathlib.Path(sys.argv[2]), 'it'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )

    def holder() -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", code, str(TESTS), str(file)]
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        return process

    first = holder()
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    second = holder()
    assert second.stderr is not None
    assert f"waiting for process {first.pid}" in second.stderr.readline()
    first.kill()
    first.communicate()
    assert second.stdout is not None
    assert second.stdout.readline() == "held\n"
    second.kill()
    second.communicate()
    with locked(file, "it"):
        assert until(lambda: file.read_text().isdigit())
    assert "waiting" not in capsys.readouterr().err
