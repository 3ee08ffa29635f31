"""Tests and demo use the bed's own kubeconfig, or one whose context is allowed; never the current one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bed.errors import BedError
from bed.kubeconfigs import current_context, kubeconfig_for_tests


def written(folder: Path, context: str) -> str:
    file = folder / "config"
    file.write_text(f"apiVersion: v1\nkind: Config\ncurrent-context: {context}\nclusters: []\n")
    return str(file)


def test_by_default_it_is_the_beds_own(tmp_path: Path) -> None:
    own = tmp_path / "beds" / "mine" / "kubeconfig"
    own.parent.mkdir(parents=True)
    own.write_text("")
    environ = {"DOCKWORK_CACHE": str(tmp_path), "DOCKWORK_BED": "mine", "KUBECONFIG": "/production"}
    assert kubeconfig_for_tests(environ) == own


def test_without_a_cluster_the_remedy_is_named(tmp_path: Path) -> None:
    environ = {"DOCKWORK_CACHE": str(tmp_path), "KUBECONFIG": written(tmp_path, "kind-x")}
    with pytest.raises(BedError, match=r"the bed 'dockwork' has no cluster.*\n  remedy: make cluster"):
        kubeconfig_for_tests(environ)


@pytest.mark.parametrize(
    "context", ["kind-dockwork", "k3d-ci", "minikube", "dockwork-test", "dockwork-test-7"]
)
def test_a_context_made_for_trials_is_allowed(tmp_path: Path, context: str) -> None:
    file = written(tmp_path, context)
    assert kubeconfig_for_tests({"DOCKWORK_TEST_KUBECONFIG": file}) == Path(file)


@pytest.mark.parametrize(
    "context", ["production", "gke_shop_europe", "my-kind-of-cluster", "xminikube", "''"]
)
def test_any_other_context_is_refused_by_name(tmp_path: Path, context: str) -> None:
    with pytest.raises(BedError, match="DOCKWORK_TEST_KUBECONFIG: expected a current context that matches"):
        kubeconfig_for_tests({"DOCKWORK_TEST_KUBECONFIG": written(tmp_path, context)})


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(BedError, match="/none is not a file"):
        kubeconfig_for_tests({"DOCKWORK_TEST_KUBECONFIG": "/none"})


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("current-context: kind-a\n", "kind-a"),
        ('apiVersion: v1\ncurrent-context: "kind-a" # mine\n', "kind-a"),
        (json.dumps({"kind": "Config", "current-context": "kind-a"}, indent=1), "kind-a"),
        ("current-context: ''\n", None),
        ("kind: Config\n", None),
    ],
)
def test_the_current_context_is_read_from_yaml_and_json(text: str, context: str | None) -> None:
    assert current_context(text) == context
