"""Looking at this machine: the facts from which the route is chosen."""

import os
import sys
from pathlib import Path

from bed.debian import is_debian
from bed.engines import Engine, PrivateEngine, host_engine
from bed.programs import PROGRAMS, program_path
from bed.routes import Facts
from bed.shell import found, succeeds
from bed.steps import step

PUBLIC_NODE = "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5"
"""The node image that kind 0.33.0 itself names."""

PULL_SECONDS = 900


def look(cache: Path) -> Facts:
    """The facts of this machine. Pulls the public node image where Docker works and lacks it."""
    engine = None if _is_ours(cache) else host_engine()
    has_all = all(program_path(name, cache).exists() for name in PROGRAMS)
    release = Path("/etc/os-release")
    return Facts(
        docker_works=engine is not None,
        node_image_at_hand=engine is not None and _pull(engine),
        has_go=has_all or found("go") is not None,
        has_tools=all(found(name) for name in ("kind", "kubectl", "helm")),
        is_root=os.geteuid() == 0,
        is_linux=sys.platform == "linux",
        is_debian=release.is_file() and is_debian(release.read_text()) and found("apt-get") is not None,
    )


def _is_ours(cache: Path) -> bool:
    """Whether the environment points at the bed's own daemon: that one has no registry, by its making."""
    return os.environ.get("DOCKER_HOST") == f"unix://{PrivateEngine(cache=cache).socket}"


def _pull(engine: Engine) -> bool:
    if engine.has_image(PUBLIC_NODE):
        return True
    with step("pulling the public node image"):
        return succeeds([engine.docker, "pull", "-q", PUBLIC_NODE], seconds=PULL_SECONDS)
