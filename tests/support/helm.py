"""Helm for tests: render a chart, read what came out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bed import programs

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "dockwork"
CRD_CHART = ROOT / "charts" / "dockwork-crds"
KINDS = ("dockwork.dev/v1alpha1/Queue", "dockwork.dev/v1alpha1/CronJob")

Json = dict[str, Any]


def helm(*args: str | Path, folder: Path, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`helm ARGS`, whatever its exit code; its own files go to `folder`."""
    programs.built(["helm"])
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig or ""),
    }
    return subprocess.run(
        [programs.program_path("helm"), *args],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def render(
    folder: Path,
    values: Json | None = None,
    *,
    namespace: str = "dockwork-system",
    release: str = "dockwork",
    kinds: Sequence[str] = KINDS,
    chart: Path = CHART,
) -> subprocess.CompletedProcess[str]:
    """`helm template` with `values`, in a cluster that is said to have `kinds`."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values or {}))
    apis = [word for kind in kinds for word in ("--api-versions", kind)]
    return helm("template", release, chart, "-n", namespace, "-f", file, *apis, folder=folder)


def objects(text: str) -> list[Json]:
    """The objects of a rendered chart."""
    return [each for each in yaml.safe_load_all(text) if each]


def rendered(
    folder: Path, values: Json | None = None, *, namespace: str = "dockwork-system", **more: Any
) -> list[Json]:
    """The objects that the chart makes of `values`."""
    done = render(folder, values, namespace=namespace, **more)
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def only(made: Sequence[Json], kind: str, name: str | None = None, namespace: str | None = None) -> Json:
    """The one object of this kind, name and namespace."""
    found = [
        each
        for each in made
        if each["kind"] == kind
        and name in (None, each["metadata"]["name"])
        and namespace in (None, each["metadata"].get("namespace"))
    ]
    assert len(found) == 1, [(each["kind"], each["metadata"]["name"]) for each in made]
    return found[0]
