"""Releases: a version that was merged and found green is tagged on exactly that commit, once, and nothing else is."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

import dockwork

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"
pytestmark = pytest.mark.covers("RT-263")


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release_script", ROOT / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["release_script"] = module
    spec.loader.exec_module(module)
    return module


class Project:
    """A repository with a version file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.root, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, version: str, note: str = "") -> str:
        path = self.root / "runtime" / "dockwork" / "version.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'__version__ = "{version}"\n')
        (self.root / "note").write_text(note)
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", f"{version} {note}")
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_new_version_gets_its_tag_on_the_commit_that_was_green(
    release: ModuleType, project: Project
) -> None:
    green = project.commit("1.2.0")
    project.commit("1.2.0", "merged after it")
    assert release.tag_for(project.root, green) == "v1.2.0"


def test_no_change_no_release(release: ModuleType, project: Project) -> None:
    project.git("tag", "v1.2.0", project.commit("1.2.0"))
    later = project.commit("1.2.0", "other work")
    assert release.tag_for(project.root, later) == ""
    assert release.tag_for(project.root, project.commit("1.3.0.dev0")) == ""


@pytest.mark.parametrize("version", ["1.1.9", "1.2.0rc1", "1.2", "next"])
def test_a_version_that_goes_back_or_is_none_is_refused(
    release: ModuleType, project: Project, version: str
) -> None:
    project.git("tag", "v1.2.0", project.commit("1.2.0"))
    with pytest.raises(release.CannotRelease):
        release.tag_for(project.root, project.commit(version))


def test_a_tag_on_another_line_of_history_is_refused(release: ModuleType, project: Project) -> None:
    project.commit("1.1.0")
    project.git("checkout", "-q", "-b", "other")
    project.git("tag", "v1.2.0", project.commit("1.2.0", "elsewhere"))
    project.git("checkout", "-q", "main")
    with pytest.raises(release.CannotRelease, match=r"v1\.2\.0 is on"):
        release.tag_for(project.root, project.commit("1.2.0", "here"))


def test_the_manifest_says_what_the_package_says(release: ModuleType) -> None:
    assert release.version_at(ROOT, "HEAD") == dockwork.__version__


def workflow(name: str) -> dict[str, Any]:
    found = yaml.safe_load((WORKFLOWS / name).read_text())
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}  # YAML 1.1 reads the key `on` as true


def test_a_release_follows_a_green_matrix_and_takes_exactly_its_commit() -> None:
    said = workflow("release.yml")
    assert said["True"]["workflow_run"] == {"workflows": ["ci"], "types": ["completed"], "branches": ["main"]}
    job = said["jobs"]["release"]
    assert "conclusion == 'success'" in job["if"]
    assert job["steps"][0]["with"]["ref"] == "${{ github.event.workflow_run.head_sha }}"
    conditional = list(job["steps"][3:])
    assert conditional
    assert all(step["if"] == "steps.decide.outputs.tag != ''" for step in conditional)


def test_every_python_that_the_package_names_is_in_the_matrix_and_nothing_pushes_to_a_branch() -> None:
    ci = workflow("ci.yml")
    classifiers = (ROOT / "pyproject.toml").read_text()
    for version in ci["jobs"]["test"]["strategy"]["matrix"]["python"]:
        assert f"Python :: {version}" in classifiers
    assert classifiers.count("Python :: 3.1") == len(ci["jobs"]["test"]["strategy"]["matrix"]["python"])
    assert ci["permissions"] == {"contents": "read"}
    for path in WORKFLOWS.iterdir():
        pushes = [line.strip() for line in path.read_text().splitlines() if "git push" in line]
        assert all(line == 'git push origin "refs/tags/$TAG"' for line in pushes)
