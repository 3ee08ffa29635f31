"""The tool that holds the specification against the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "spec.py"


@pytest.fixture
def spec() -> ModuleType:
    loaded = importlib.util.spec_from_file_location("spec_script", SCRIPT)
    assert loaded is not None
    assert loaded.loader is not None
    module = importlib.util.module_from_spec(loaded)
    sys.modules["spec_script"] = module
    loaded.loader.exec_module(module)
    return module


def a_project(root: Path, *, mark: str, test: str) -> None:
    (root / "docs" / "spec").mkdir(parents=True)
    (root / "tests").mkdir()
    (root / "docs" / "spec" / "runtime.md").write_text(f"## 1. Part\n\n- **RT-001** ({mark}) A sentence.\n")
    (root / "docs" / "spec" / "peers.md").write_text(PEERS)
    (root / "tests" / "test_it.py").write_text(test)


COVERING = 'import pytest\n\n@pytest.mark.covers("RT-001")\ndef test_a(): ...\n'


PEERS = "# What the peers have\n\n- **K01** A thing: RT-001\n"


def outcome(spec: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(spec, "ROOT", root)
    monkeypatch.setattr(sys, "argv", ["spec.py", *options])
    return int(spec.main())


def test_a_built_requirement_without_a_test_fails(
    spec: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_project(tmp_path, mark="built", test="def test_a(): ...\n")
    assert outcome(spec, tmp_path, monkeypatch) == 1
    assert "RT-001 is marked as built and no test covers it" in capsys.readouterr().out


def test_a_covered_one_passes_and_the_last_line_counts(
    spec: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_project(tmp_path, mark="built", test=COVERING)
    assert outcome(spec, tmp_path, monkeypatch) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "first-stage requirements: 1, built 1, covered 1, uncovered 0"


def test_a_planned_one_is_listed_and_passes(
    spec: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_project(tmp_path, mark="planned", test="def test_a(): ...\n")
    assert outcome(spec, tmp_path, monkeypatch) == 0
    assert "runtime: 1. Part: 1 without a test" in capsys.readouterr().out


def test_a_number_that_does_not_exist_fails(
    spec: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    a_project(tmp_path, mark="planned", test=COVERING.replace("RT-001", "RT-777"))
    assert outcome(spec, tmp_path, monkeypatch) == 1
    assert "RT-777 is no requirement" in capsys.readouterr().out


def test_the_proofs_name_the_tests_of_each_line_and_each_requirement(
    spec: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_project(tmp_path, mark="built", test=COVERING)
    assert outcome(spec, tmp_path, monkeypatch, "--proofs") == 0
    page = (tmp_path / "docs" / "spec" / "proofs.md").read_text()
    assert "| K01 | A thing | RT-001 | 1 |" in page
    assert "- **RT-001** (built)\n  - `tests/test_it.py::test_a`" in page

    assert outcome(spec, tmp_path, monkeypatch, "--proofs", "--check") == 0
    (tmp_path / "tests" / "test_it.py").write_text(COVERING.replace("test_a", "test_b"))
    with pytest.raises(SystemExit, match=r"proofs\.md is not what the tests say"):
        outcome(spec, tmp_path, monkeypatch, "--proofs", "--check")


@pytest.mark.parametrize(
    ("line", "said"),
    [("- **K01** A thing: RT-777", "RT-777 is no requirement"), ("- **K01** A thing", "cannot read")],
)
def test_a_line_of_the_peers_lists_that_leads_nowhere_fails(
    spec: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    said: str,
) -> None:
    a_project(tmp_path, mark="built", test=COVERING)
    (tmp_path / "docs" / "spec" / "peers.md").write_text(line + "\n")
    try:
        code = outcome(spec, tmp_path, monkeypatch)
        told = capsys.readouterr().out
    except SystemExit as error:
        code, told = 1, str(error)
    assert code == 1
    assert said in told
