"""The kinds that the operator reads and writes, and their paths on the API server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind by group, version and plural; `str` gives the name that RBAC knows."""

    group: str
    version: str
    plural: str
    kind: str

    def __str__(self) -> str:
        return ".".join(part for part in (self.plural, self.group) if part)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """`namespace` None means all of them (lists only)."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if namespace is not None:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


QUEUES = Resource("dockwork.dev", "v1alpha1", "queues", "Queue")
CRONJOBS = Resource("dockwork.dev", "v1alpha1", "queuecronjobs", "CronJob")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
PODS = Resource("", "v1", "pods", "Pod")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
SECRETS = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview")

#: What is watched, children by their label only.
WATCHED: tuple[Resource, ...] = (QUEUES, CRONJOBS, DEPLOYMENTS, PODS, BUDGETS, NETWORK_POLICIES)
#: Of these only objects with the queue label are listed and watched.
LABELLED: frozenset[Resource] = frozenset({DEPLOYMENTS, PODS, BUDGETS, NETWORK_POLICIES})

BY_KIND = {resource.kind: resource for resource in (*WATCHED, SECRETS, CONFIG_MAPS, EVENTS, LEASES)}


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """What is reconciled: a Queue or a CronJob, by name. Whether it still exists is found out later."""

    resource: Resource
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.resource.kind}/{self.namespace}/{self.name}"
