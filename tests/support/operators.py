"""The operator in this process, and the cluster around it as a test sees and moves it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dockwork import clock
from dockwork.core.keys import QueueName
from dockwork.store.protocol import Heartbeat, WorkerState
from dockwork.store.redis import RedisStore
from dockwork_operator.errors import NotFound
from dockwork_operator.kube.client import MERGE_PATCH, KubeClient, Object, Request
from dockwork_operator.kube.credentials import KubeConfigFile, Login
from dockwork_operator.kube.limits import RateLimit
from dockwork_operator.kube.resources import (
    CRONJOBS,
    DEPLOYMENTS,
    EVENTS,
    PODS,
    QUEUES,
    SECRETS,
    Resource,
)
from dockwork_operator.process import Operator
from dockwork_operator.settings import Settings
from support.waiting import until_async

NAMESPACES = Resource("", "v1", "namespaces", "Namespace")
NUMBERS = itertools.count(1)

#: How long a test waits for what takes the operator about a second on an idle machine.
SOON = 60.0

WORKER = {"image": "example.org/shop:1", "app": "shop.jobs:app"}


def a_queue(name: str = "mail", **spec: Any) -> Object:
    """A Queue that asks for no pod by itself."""
    return {
        "apiVersion": "dockwork.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"worker": dict(WORKER), **spec},
    }


def a_cronjob(name: str = "report", **spec: Any) -> Object:
    return {
        "apiVersion": "dockwork.dev/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": name},
        "spec": {"schedule": "0 3 * * *", "job": {"type": "report.daily"}, **spec},
    }


class Cluster:
    """One namespace of a real API server, with an administrator's rights. Nothing acts in it but the operator."""

    def __init__(self, login: Login, namespace: str) -> None:
        self.namespace = namespace
        self.login = login
        self.kube = KubeClient(login, limit=RateLimit(1000, 1000))

    async def open(self) -> None:
        await self.kube.open()
        await self.make_namespace(self.namespace)

    async def close(self) -> None:
        await self.kube.close()

    async def make_namespace(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await self.kube.send(Request(method="POST", verb="create", resource=NAMESPACES, body=body))

    async def make_secret(
        self, data: Mapping[str, str], name: str = "dockwork-redis", namespace: str = ""
    ) -> None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": encoded}
        await self.apply(SECRETS, body, namespace=namespace)

    async def apply(self, resource: Resource, body: Object, *, namespace: str = "") -> Object:
        """As a user's `kubectl apply --server-side`: another manager than the operator's."""
        where = namespace or self.namespace
        full = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        return await self.kube.send(
            Request(
                method="PATCH",
                verb="patch",
                resource=resource,
                namespace=where,
                name=body["metadata"]["name"],
                query=(("fieldManager", "a-user"), ("force", "true"), ("fieldValidation", "Strict")),
                body=full,
                content_type="application/apply-patch+yaml",
            )
        )

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> Object | None:
        try:
            return await self.kube.get(resource, namespace or self.namespace, name)
        except NotFound:
            return None

    async def patch(
        self, resource: Resource, name: str, patch: Object, *, subresource: str = "", namespace: str = ""
    ) -> Object:
        return await self.kube.send(
            Request(
                method="PATCH",
                verb="patch",
                resource=resource,
                namespace=namespace or self.namespace,
                name=name,
                subresource=subresource,
                query=(("fieldManager", "a-user"),),
                body=patch,
                content_type=MERGE_PATCH,
            )
        )

    async def delete(
        self, resource: Resource, name: str, *, namespace: str = "", grace: int | None = None
    ) -> None:
        body = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace  # type: ignore[assignment]
        await self.kube.send(
            Request(
                method="DELETE",
                verb="delete",
                resource=resource,
                namespace=namespace or self.namespace,
                name=name,
                body=body,
            )
        )

    # --- the operator's objects ----------------------------------------------------------------------------

    async def queue(self, name: str = "mail", **spec: Any) -> Object:
        """Apply a Queue."""
        return await self.apply(QUEUES, a_queue(name, **spec))

    async def cronjob(self, name: str = "report", **spec: Any) -> Object:
        return await self.apply(CRONJOBS, a_cronjob(name, **spec))

    async def condition(
        self, kind: str, name: str = "mail", *, resource: Resource = QUEUES
    ) -> tuple[str, str]:
        """Status and reason of a condition, ("", "") while it is absent or speaks of an older generation."""
        raw = await self.get(resource, name)
        if raw is None:
            return "", ""
        for condition in (raw.get("status") or {}).get("conditions") or ():
            current = condition.get("observedGeneration") == raw["metadata"]["generation"]
            if condition["type"] == kind and current:
                return condition["status"], condition["reason"]
        return "", ""

    async def message(self, kind: str, name: str = "mail", *, resource: Resource = QUEUES) -> str:
        raw = await self.get(resource, name) or {}
        for condition in (raw.get("status") or {}).get("conditions") or ():
            if condition["type"] == kind:
                return str(condition["message"])
        return ""

    async def wait_condition(
        self,
        kind: str,
        status: str,
        reason: str = "",
        name: str = "mail",
        *,
        resource: Resource = QUEUES,
        within: float = SOON,
    ) -> None:
        """Wait until the condition is as given."""

        async def is_so() -> bool:
            got = await self.condition(kind, name, resource=resource)
            return got[0] == status and (not reason or got[1] == reason)

        await until_async(is_so, within=within, what=f"{kind}={status}/{reason} of {name}")

    async def deployment(self, name: str = "mail-worker") -> Object | None:
        return await self.get(DEPLOYMENTS, name)

    async def wait_status(
        self, name: str = "mail", *, resource: Resource = QUEUES, within: float = SOON, **wanted: Any
    ) -> Object:
        """The status, once each dotted path in `wanted` (`__` for the dot) has its value or satisfies its function."""

        async def is_so() -> Object | None:
            status: Object = (await self.get(resource, name) or {}).get("status") or {}
            for path, value in wanted.items():
                found: Any = status
                for part in path.split("__"):
                    found = (found or {}).get(part)
                if not (value(found) if callable(value) else found == value):
                    return None
            return status

        found = await until_async(is_so, within=within, what=f"status of {name} with {wanted}")
        assert found is not None
        return found

    async def wait_events(self, reason: str) -> list[Object]:
        return await until_async(lambda: self.events(reason), within=SOON, what=f"event {reason}")

    async def wait_deployment(self, name: str = "mail-worker", *, replicas: int | None = None) -> Object:
        """The Deployment, once it is made and unpaused, and has so many replicas if a number is given."""

        async def is_so() -> Object | None:
            raw = await self.deployment(name)
            if raw is None or raw["spec"].get("paused"):
                return None
            return raw if replicas is None or (raw["spec"].get("replicas") or 0) == replicas else None

        found = await until_async(is_so, within=SOON, what=f"Deployment {name} with {replicas} replicas")
        assert found is not None
        return found

    async def events(self, reason: str = "") -> list[Object]:
        found = await self.kube.list_all(EVENTS, self.namespace)
        return [event for event in found if not reason or event["reason"] == reason]

    # --- what controllers and kubelets would do ------------------------------------------------------------

    async def run_pods(
        self, count: int, name: str = "mail-worker", *, ready: int | None = None
    ) -> list[Object]:
        """Be the Deployment's controller and the kubelets: so many pods, and the Deployment's status to match."""
        deployment = await self.deployment(name)
        assert deployment is not None
        template = deployment["spec"]["template"]
        replica_set = f"{name}-{template['metadata']['labels']['dockwork.dev/template-hash']}"
        ready = count if ready is None else ready
        pods = [
            await self._run_pod(f"{replica_set}-{number}", replica_set, template, is_ready=number < ready)
            for number in range(count)
        ]
        await self.report_deployment(name, replicas=count, ready=ready)
        return pods

    async def _run_pod(self, name: str, replica_set: str, template: Object, *, is_ready: bool) -> Object:
        known = await self.get(PODS, name)
        if known is None:
            owner = {
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": replica_set,
                "uid": "00000000-0000-0000-0000-000000000000", "controller": True,
            }  # fmt: skip
            metadata = {**template["metadata"], "name": name, "ownerReferences": [owner]}
            spec = {**template["spec"], "nodeName": "node-1"}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            await self.kube.send(
                Request(method="POST", verb="create", resource=PODS, namespace=self.namespace, body=body)
            )
        stamp = "2026-01-01T00:00:00Z"
        container = {
            "name": "worker", "image": "x", "imageID": "x", "ready": is_ready, "started": True, "restartCount": 0,
            "state": {"running": {"startedAt": stamp}},
        }  # fmt: skip
        condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": stamp}
        status = {"phase": "Running", "conditions": [condition], "containerStatuses": [container]}
        return await self.patch(PODS, name, {"status": status}, subresource="status")

    async def end_pod(self, name: str) -> None:
        await self.delete(PODS, name, grace=0)

    async def report_deployment(
        self, name: str = "mail-worker", *, replicas: int, ready: int | None = None
    ) -> None:
        raw = await self.deployment(name)
        assert raw is not None
        ready = replicas if ready is None else ready
        stamp = "2026-01-01T00:00:00Z"
        progressing = {
            "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "",
            "lastTransitionTime": stamp, "lastUpdateTime": stamp,
        }  # fmt: skip
        available = {**progressing, "type": "Available", "reason": "MinimumReplicasAvailable"}
        status = {
            "observedGeneration": raw["metadata"]["generation"],
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": ready,
            "availableReplicas": ready,
            "conditions": [progressing, available],
        }
        await self.patch(DEPLOYMENTS, name, {"status": status}, subresource="status")
        revision = {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}}
        await self.patch(DEPLOYMENTS, name, revision)


class Worker:
    """What a worker pod says in Redis."""

    def __init__(self, store: RedisStore, queue: QueueName, pod: Object) -> None:
        self._store, self._queue, self._pod = store, queue, pod
        self.name = str(pod["metadata"]["name"])
        self.asked = ""
        self.acknowledged = ""

    async def beat(self, *, busy: int = 0) -> None:
        meta = self._pod["metadata"]
        beat = Heartbeat(
            owner=f"{meta['uid']}/boot",
            pod=meta["uid"],
            container="worker",
            pod_name=self.name,
            template_hash=meta["labels"]["dockwork.dev/template-hash"],
            slots=10,
            busy=busy,
            state=WorkerState.QUIESCED if self.acknowledged else WorkerState.RUNNING,
            quiesce_token=self.acknowledged,
        )
        self.asked = (await self._store.renew(self._queue, [], beat)).quiesce


class MovableClock:
    """This machine's time and what a test added to it."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return clock.now() + self.ahead


def settings_for(namespace: str, **changes: Any) -> Settings:
    """Fast ticks, any port, the test's own namespace."""
    settings = Settings(
        namespaces=(namespace,),
        own_namespace=namespace,
        pod_name="operator-0",
        tick=timedelta(seconds=0.25),
        http_host="127.0.0.1",
        http_port=0,
        requests_per_second=200,
    )
    return replace(settings, **changes)


@contextlib.asynccontextmanager
async def running(
    settings: Settings, login: Login, *, leading: bool = True, now: Callable[[], datetime] = clock.now
) -> AsyncIterator[Operator]:
    """An operator that has filled its caches (and holds the Lease), ended in good order afterwards."""
    operator = Operator(settings, login, now=now)
    task = asyncio.create_task(operator.run(), name="operator")
    try:

        async def is_up() -> bool:
            if task.done():
                task.result()
                raise AssertionError(f"the operator ended: {operator.failure}")
            return operator.health.filled and (operator.leader.fresh or not leading)

        await until_async(is_up, within=30, what="the operator is up")
        yield operator
    finally:
        operator.stop()
        await asyncio.wait_for(task, 30)


def login_of(kubeconfig: Path) -> KubeConfigFile:
    return KubeConfigFile(kubeconfig)
