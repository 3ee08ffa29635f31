"""Which of the two ways this machine takes: decided from facts, never asked.

PUBLIC  a Docker that works, and the public node image is there or can be pulled: no root, nothing installed.
LOCAL   no registry: a Docker daemon of the bed's own and a node image built here; root, on Debian.
"""

import enum
from dataclasses import dataclass

from bed.errors import BedError


class Route(enum.Enum):
    PUBLIC = "public node image"
    LOCAL = "node image built here"


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What was seen of this machine.

    docker_works        `docker info` answers, from a daemon that is not the bed's own
    node_image_at_hand  that daemon has the public node image, or could pull it just now
    has_go              Go is there, or the cache has every program already
    has_tools           kind, kubectl and helm are on PATH
    """

    docker_works: bool
    node_image_at_hand: bool
    has_go: bool
    has_tools: bool
    is_root: bool
    is_linux: bool
    is_debian: bool


GO_MISSING = "install Go 1.26 or later and put its bin folder on PATH"


def choose_route(facts: Facts) -> Route:
    """The way to take; BedError names everything that is missing, with the remedy."""
    if facts.docker_works and facts.node_image_at_hand:
        if facts.has_go or facts.has_tools:
            return Route.PUBLIC
        raise BedError(
            "Docker works, but neither go nor the programs kind, kubectl and helm were found",
            remedy=f"{GO_MISSING}, or put kind, kubectl and helm on PATH",
        )
    lacking = [
        text
        for there, text in (
            (facts.is_linux, "this is not Linux"),
            (facts.is_debian, "this is not Debian 12"),
            (facts.is_root, "this process is not root"),
            (facts.has_go, "go was not found"),
        )
        if not there
    ]
    if not lacking:
        return Route.LOCAL
    first = (
        "Docker works, but the public node image could not be pulled"
        if facts.docker_works
        else "no Docker daemon answers"
    )
    raise BedError(
        f"{first}; and the node image cannot be built here: {', '.join(lacking)}",
        remedy="start Docker where a registry can be reached, or run this as root on Debian 12 with Go 1.26",
    )
