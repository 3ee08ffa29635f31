"""What the operator may do: the one table that both modes of the chart are generated from (OP-310).

No more than the code calls: schedules are never written but for their status, Secrets and ConfigMaps are read by
name and never listed, nothing is granted on Nodes, Namespaces or CustomResourceDefinitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dockwork_operator import constants

Named = Literal["", "secrets", "lease"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Grant:
    """Verbs on resources.

    named    only on objects of these names: the Secrets of the chart's values, or the operator's Lease
    """

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    named: Named = ""


READ = ("get", "list", "watch")

WATCHED = (
    Grant(group=constants.GROUP, resources=("queues",), verbs=(*READ, "create", "patch", "delete")),
    Grant(group=constants.GROUP, resources=("queuecronjobs",), verbs=READ),
    Grant(group=constants.GROUP, resources=("queues/status", "queuecronjobs/status"), verbs=("patch",)),
    # Owner references with blockOwnerDeletion ask for it where OwnerReferencesPermissionEnforcement is on.
    Grant(
        group=constants.GROUP, resources=("queues/finalizers", "queuecronjobs/finalizers"), verbs=("update",)
    ),
    Grant(group="apps", resources=("deployments",), verbs=(*READ, "create", "patch", "delete")),
    Grant(group="apps", resources=("deployments/scale",), verbs=("get", "update")),
    Grant(group="policy", resources=("poddisruptionbudgets",), verbs=(*READ, "create", "patch", "delete")),
    Grant(
        group="networking.k8s.io", resources=("networkpolicies",), verbs=(*READ, "create", "patch", "delete")
    ),
    Grant(group="", resources=("pods",), verbs=(*READ, "patch")),
    Grant(group="", resources=("secrets", "configmaps"), verbs=("get",), named="secrets"),
    Grant(group="", resources=("events",), verbs=("create", "patch")),
)
"""In every watched namespace (a Role), or everywhere (a ClusterRole)."""

OWN = (
    Grant(group="coordination.k8s.io", resources=("leases",), verbs=("create",)),
    Grant(group="coordination.k8s.io", resources=("leases",), verbs=("get", "update"), named="lease"),
)
"""In the operator's own namespace."""

NAMES = {
    "secrets": '{{ include "dockwork.secretNames" . }}',
    "lease": '{{ list (include "dockwork.leaseName" .) | toJson }}',
}
"""The chart's expression for each kind of name, a JSON list."""
