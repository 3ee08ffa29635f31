"""The Go programs of the bed: each built once from its module, then taken from the cache.

A module lies in `tests/bed/go/<module>`, with the exact version (go.mod) and digest (go.sum) of each part.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bed.errors import BedError
from bed.keys import files_under, key_of_files
from bed.locks import locked
from bed.places import ROOT, cache_root
from bed.shell import found, niced, run
from bed.steps import step

KUBERNETES = "v1.36.3"
GO_MODULES = ROOT / "tests" / "bed" / "go"

_VERSION = "k8s.io/component-base/version"
_KUBERNETES_FLAGS = " ".join(
    f"-X {name}={value}"
    for name, value in (
        (f"{_VERSION}.gitVersion", KUBERNETES),
        (f"{_VERSION}.gitMajor", KUBERNETES[1:].split(".")[0]),
        (f"{_VERSION}.gitMinor", KUBERNETES.split(".")[1]),
        ("k8s.io/client-go/pkg/version.gitVersion", KUBERNETES),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """One command: `package` of the Go module in `tests/bed/go/<module>`."""

    name: str
    module: str
    package: str
    linker_flags: str = ""


def _kubernetes(name: str) -> Program:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Program(name=name, module="kubernetes", package=package, linker_flags=_KUBERNETES_FLAGS)


PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in (
        _kubernetes("kube-apiserver"),
        _kubernetes("kubectl"),
        Program(name="etcd", module="etcd", package="go.etcd.io/etcd/server/v3"),
        _kubernetes("kubelet"),
        _kubernetes("kube-controller-manager"),
        _kubernetes("kube-scheduler"),
        _kubernetes("kube-proxy"),
        _kubernetes("kubeadm"),
        Program(name="coredns", module="coredns", package="."),
        Program(
            name="local-path-provisioner",
            module="local-path",
            package="github.com/rancher/local-path-provisioner",
            linker_flags="-X main.VERSION=v0.0.30",
        ),
        Program(name="pause", module="pause", package="."),
        Program(name="kind", module="kind", package="sigs.k8s.io/kind"),
        Program(name="helm", module="helm", package="helm.sh/helm/v4/cmd/helm"),
    )
}
"""In the order in which they are built: what tests need without a cluster comes first."""

API_SERVER: tuple[str, ...] = ("kube-apiserver", "etcd", "kubectl")
"""What a tier with a plain API server needs."""

IN_THE_NODE: tuple[str, ...] = tuple(name for name in PROGRAMS if name not in ("kind", "helm"))
"""What the node image is made of."""


def program_path(name: str, cache: Path | None = None) -> Path:
    """Where the program lies once it is built; its folder carries the key of the module's files."""
    program = PROGRAMS[name]
    module = GO_MODULES / program.module
    key = key_of_files(module, files_under(module), program.package, program.linker_flags)
    return (cache or cache_root()) / "programs" / f"{program.name}-{key}" / program.name


def built(names: Sequence[str], cache: Path | None = None) -> dict[str, Path]:
    """The programs, built where the cache has none."""
    root = cache or cache_root()
    paths = {name: program_path(name, root) for name in names}
    missing = [name for name in PROGRAMS if name in paths and not paths[name].exists()]
    if not missing:
        return paths
    _require_go()
    with ThreadPoolExecutor(max_workers=2) as pool:
        for chain in [pool.submit(_build_each, names, paths, root) for names in chains(missing)]:
            chain.result()
    return paths


def chains(names: Sequence[str]) -> list[list[str]]:
    """The programs in two rows that are built side by side: while one links, on one core, the other compiles.

    Kubernetes' own are one row, because each takes from the build cache what the one before has compiled.
    """
    ours = [name for name in names if PROGRAMS[name].module == "kubernetes"]
    others = [name for name in names if PROGRAMS[name].module != "kubernetes"]
    return [row for row in (ours, others) if row]


def _build_each(names: Sequence[str], paths: Mapping[str, Path], root: Path) -> None:
    for name in names:
        with locked(root / "locks" / f"program-{name}", f"building {name}"):
            if not paths[name].exists():
                _build(PROGRAMS[name], paths[name])


def _require_go() -> None:
    if found("go") is None:
        raise BedError(
            "go: not found; the bed's programs are built from Go modules",
            remedy="install Go 1.26 or later and put its bin folder on PATH",
        )


def _build(program: Program, target: Path) -> None:
    """Builds beside the target and moves it there, so that a killed build leaves nothing half done."""
    half = target.parent.with_name(target.parent.name + ".half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    with step(f"building {program.name}"):
        run(
            niced(
                [
                    *("go", "build", "-trimpath", "-mod=readonly", "-buildvcs=false"),
                    *("-ldflags", f"-s -w {program.linker_flags}".strip()),
                    *("-o", half / program.name, program.package),
                ]
            ),
            cwd=GO_MODULES / program.module,
            env={"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"},
            log=half / "build.log",
            remedy="read the log; a module that cannot be fetched is a matter of the network or of GOPROXY",
        )
    shutil.rmtree(target.parent, ignore_errors=True)
    os.rename(half, target.parent)
