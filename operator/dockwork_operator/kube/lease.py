"""One Lease as leader election sees it: read, taken, renewed, released, each with the resource version just seen.

The package's own lock cannot release, loses the times of whole seconds and lets connection errors through.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dockwork_operator.errors import NotFound
from dockwork_operator.kube.client import KubeClient, Object, Request
from dockwork_operator.kube.resources import LEASES


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRecord:
    """What the Lease says.

    uid           of the Lease object: names this installation towards Redis (OP-022)
    holder        "" when it was released
    version       resource version, the precondition of the next write
    """

    uid: str = ""
    version: str = ""
    holder: str = ""
    duration: timedelta = timedelta(seconds=15)
    acquired: str = ""
    renewed: str = ""
    transitions: int = 0


class LeaseClient:
    """The Lease `namespace/name`. Conflict means that another replica wrote first."""

    def __init__(self, kube: KubeClient, namespace: str, name: str) -> None:
        self._kube = kube
        self.namespace = namespace
        self.name = name

    async def read(self) -> LeaseRecord | None:
        """The record, or None while there is no Lease."""
        try:
            raw = await self._kube.send(self._request("GET", "get", name=self.name))
        except NotFound:
            return None
        return _record(raw)

    async def write(
        self, holder: str, seen: LeaseRecord | None, now: datetime, duration: timedelta
    ) -> LeaseRecord:
        """Hold the Lease from `now` on; an empty `holder` releases it."""
        taken = seen is None or seen.holder != holder
        stamp = _micro(now)
        spec: Object = {
            "holderIdentity": holder,
            # A released Lease is free at once: the smallest duration that the API takes.
            "leaseDurationSeconds": int(duration.total_seconds()) if holder else 1,
            "acquireTime": stamp if taken or seen is None else seen.acquired or stamp,
            "renewTime": stamp,
            "leaseTransitions": (seen.transitions if seen else 0) + (1 if taken and holder and seen else 0),
        }
        body: Object = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": spec,
        }
        if seen is None:
            return _record(await self._kube.create(LEASES, self.namespace, body, guarded=False))
        body["metadata"]["resourceVersion"] = seen.version
        return _record(await self._kube.send(self._request("PUT", "update", name=self.name, body=body)))

    def _request(self, method: str, verb: str, *, name: str, body: Object | None = None) -> Request:
        return Request(
            method=method,
            verb=verb,
            resource=LEASES,
            namespace=self.namespace,
            name=name,
            body=body,
            limited=False,
        )


def _record(raw: Object) -> LeaseRecord:
    meta, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    return LeaseRecord(
        uid=str(meta.get("uid", "")),
        version=str(meta.get("resourceVersion", "")),
        holder=str(spec.get("holderIdentity") or ""),
        duration=timedelta(seconds=int(spec.get("leaseDurationSeconds") or 15)),
        acquired=str(spec.get("acquireTime") or ""),
        renewed=str(spec.get("renewTime") or ""),
        transitions=int(spec.get("leaseTransitions") or 0),
    )


def _micro(at: datetime) -> str:
    """A MicroTime: six digits even for a whole second, and Z."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
