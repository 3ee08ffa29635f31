"""The distribution: what is in the wheel, and what must never shadow the standard library."""

from __future__ import annotations

import operator
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def wheel_names(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


def test_the_standard_librarys_operator_wins() -> None:
    assert operator.__file__ is not None
    assert not operator.__file__.startswith(str(ROOT))
    assert not (ROOT / "operator" / "__init__.py").exists()


def test_no_test_folder_has_a_librarys_name() -> None:
    names = {path.parent.name for path in (ROOT / "tests").rglob("*.py")}
    assert not names & {"operator", "redis", "kopf", "kubernetes"}


def test_the_wheel_has_every_script_and_the_type_markers(wheel_names: frozenset[str]) -> None:
    scripts = {str(path.relative_to(ROOT / "runtime")) for path in (ROOT / "runtime").rglob("*.lua")}
    assert scripts
    assert scripts <= wheel_names
    assert {"dockwork/py.typed", "dockwork_operator/py.typed"} <= wheel_names


def test_the_wheel_has_no_tests_and_no_charts(wheel_names: frozenset[str]) -> None:
    tops = {name.split("/")[0] for name in wheel_names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dockwork", "dockwork_operator"}
