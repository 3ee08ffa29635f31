"""Which namespaces the operator may watch: a refused watch would end all the others, so it is asked before."""

from __future__ import annotations

from dataclasses import dataclass, field

from dockwork_operator.kube.client import KubeClient
from dockwork_operator.kube.resources import WATCHED
from dockwork_operator.logs import EventLog
from dockwork_operator.settings import Settings

log = EventLog(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Namespaces that can be watched and those that cannot, with what is missing there."""

    allowed: tuple[str | None, ...]
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def scope(self) -> tuple[str, ...] | None:
        """Names for the watches; None in cluster mode."""
        return None if None in self.allowed else tuple(name for name in self.allowed if name is not None)


async def find_access(kube: KubeClient, settings: Settings) -> Access:
    """Ask for every watched resource in every namespace of the settings. Raises KubeError without an answer."""
    wanted: tuple[str | None, ...] = (None,) if settings.cluster_wide else settings.watched
    allowed: list[str | None] = []
    refused: dict[str, str] = {}
    for namespace in wanted:
        missing = await _missing(kube, namespace)
        if missing:
            refused[namespace or "*"] = missing
        else:
            allowed.append(namespace)
    return Access(tuple(allowed), refused)


async def _missing(kube: KubeClient, namespace: str | None) -> str:
    for resource in WATCHED:
        for verb in ("list", "watch"):
            if not await kube.may(verb, resource, namespace):
                return f"{verb} {resource}"
    return ""


def tell(old: Access | None, new: Access) -> None:
    """Log what changed between two answers."""
    before = old.refused if old is not None else {}
    for namespace, missing in new.refused.items():
        if before.get(namespace) != missing:
            hint = "the chart creates a Role in each namespace of watchNamespaces"
            log.error("namespace_forbidden", namespace=namespace, missing=missing, hint=hint)
    for namespace in before.keys() - new.refused.keys():
        log.info("namespace_allowed", namespace=namespace)
