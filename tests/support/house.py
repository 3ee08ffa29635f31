"""Dockwork as its users have it: installed by Helm on a kind cluster, with real pods and a real Redis."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import redis

from support.cluster import ROOT, Cluster, run
from support.waiting import until

SYSTEM = "dockwork-e2e-system"
SPACE = "dockwork-e2e"
RELEASE = "dockwork"


@dataclass(frozen=True, kw_only=True, slots=True)
class House:
    """The installation, and ways to ask what happens in it."""

    cluster: Cluster

    def queue(self, name: str, *, version: str = "1", **spec: Any) -> None:
        """Apply a Queue `name` that runs the test's application; `spec` is merged over."""
        worker = {
            "image": f"dockwork-e2e:{version}",
            "app": "e2e_app.jobs:app",
            "slots": 10,
            "minReadySeconds": 0,
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
            **spec.pop("worker", {}),
        }
        body = {
            "apiVersion": "dockwork.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name, "namespace": SPACE},
            "spec": {"worker": worker, **spec},
        }
        self.cluster.apply(body)

    def delete(self, name: str) -> None:
        self.cluster.kubectl("delete", "queues.dockwork.dev", name, "-n", SPACE, "--ignore-not-found")

    def status(self, name: str) -> dict[str, Any]:
        found = self.cluster.get("queues.dockwork.dev", name, namespace=SPACE)
        status: dict[str, Any] = found.get("status", {})
        return status

    def condition(self, name: str, type_: str) -> dict[str, Any]:
        return self.cluster.condition("queues.dockwork.dev", name, type_, namespace=SPACE)

    def pods(self, name: str) -> list[dict[str, Any]]:
        return self.cluster.pods(namespace=SPACE, selector=f"dockwork.dev/queue={name}")

    def live_pods(self, name: str) -> list[dict[str, Any]]:
        """The pods that are not terminating."""
        return [p for p in self.pods(name) if "deletionTimestamp" not in p["metadata"]]

    def leader(self) -> str:
        """The pod that holds the operator's Lease."""
        leases = self.cluster.items("leases", namespace=SYSTEM)
        held = [lease["spec"].get("holderIdentity") or "" for lease in leases]
        pods = [p["metadata"]["name"] for p in self.operators()]
        for holder in held:
            for pod in pods:
                if holder.startswith(pod):
                    return str(pod)
        return ""

    def operators(self) -> list[dict[str, Any]]:
        return self.cluster.pods(namespace=SYSTEM, selector="app.kubernetes.io/component=operator")

    def kill_now(self, namespace: str, pod: str) -> None:
        """End a pod without any grace."""
        self.cluster.kubectl(
            "delete", "pod", pod, "-n", namespace, "--grace-period=0", "--force", "--wait=false"
        )

    def picture(self) -> str:
        """Everything that tells why something did not happen: objects, pods, events, the last log lines."""
        ask = [
            ("get", "dwq,qcj,deploy,pods,jobs", "-n", SPACE, "-o", "wide"),
            ("describe", "queues.dockwork.dev", "-n", SPACE),
            ("get", "events", "-n", SPACE, "--sort-by=.lastTimestamp"),
            ("get", "pods", "-n", SYSTEM, "-o", "wide"),
        ]
        for pod in self.operators():
            ask.append(("logs", pod["metadata"]["name"], "-n", SYSTEM, "--tail=60"))
        for pod in self.items_of_workers()[:4]:
            name = pod["metadata"]["name"]
            ask += [
                ("logs", name, "-n", SPACE, "--tail=40"),
                ("logs", name, "-n", SPACE, "--tail=40", "--previous"),
            ]
        return "\n".join(f"$ kubectl {' '.join(a)}\n{self.cluster.kubectl(*a, check=False)}" for a in ask)

    def items_of_workers(self) -> list[dict[str, Any]]:
        return self.cluster.pods(namespace=SPACE, selector="dockwork.dev/queue")

    def redis_pod(self) -> str:
        """The chart's Redis, once it is there and ready; a pod that is being replaced is waited for."""

        def ready() -> str:
            for pod in self.cluster.pods(namespace=SYSTEM, selector="app.kubernetes.io/component=redis"):
                conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", [])}
                if "deletionTimestamp" not in pod["metadata"] and conditions.get("Ready") == "True":
                    return str(pod["metadata"]["name"])
            return ""

        return until(ready, within=90, every=0.5, what="the Redis pod is ready")


def install(cluster: Cluster) -> None:
    for name in (SYSTEM, SPACE):
        cluster.namespace(name)
    cluster.helm("upgrade", "--install", "dockwork-crds", ROOT / "charts" / "dockwork-crds", "-n", "default")
    cluster.helm(
        "upgrade", "--install", RELEASE, ROOT / "charts" / "dockwork", "-n", SYSTEM,
        "--set", f"watchNamespaces={{{SPACE}}}",
        "--set", "redis.enabled=true",
        "--set", "redis.persistence.size=1Gi",
        "--set", "rbac.secretNames={dockwork-redis-wrong}",
        "--wait", "--timeout", "180s",
    )  # fmt: skip


def remove(cluster: Cluster) -> None:
    """Take away what `install` made, and what the tests made in it."""
    cluster.kubectl("delete", "namespace", SPACE, "--ignore-not-found", "--wait=true", timeout=120)
    cluster.helm("uninstall", RELEASE, "-n", SYSTEM, "--ignore-not-found")
    cluster.kubectl("delete", "namespace", SYSTEM, "--ignore-not-found", "--wait=true", timeout=120)


def bed(*args: str) -> None:
    run(sys.executable, ROOT / "tests" / "bed", *args, timeout=300)


@dataclass(slots=True)
class Redis:
    """The chart's Redis through a port-forward that is renewed when its pod was."""

    house: House
    _forward: Any = None
    _client: redis.Redis | None = None

    def url(self) -> str:
        """A URL that this process can reach."""
        if self._forward is None:
            self._forward = self.house.cluster.port_forward(
                f"pod/{self.house.redis_pod()}", 6379, namespace=SYSTEM
            )
            self._port = self._forward.__enter__()
        secret = self.house.cluster.secret("dockwork-redis", "url", namespace=SPACE)
        credentials = secret.split("://", 1)[1].rsplit("@", 1)[0]
        return f"redis://{credentials}@127.0.0.1:{self._port}/0"

    _port: int = 0

    def client(self) -> redis.Redis:
        if self._client is None:
            self._client = redis.Redis.from_url(self.url(), socket_timeout=10, decode_responses=True)
        return self._client

    def renew(self) -> None:
        """Forget the connection and the port-forward: the pod behind them is gone."""
        if self._client is not None:
            self._client.close()
        if self._forward is not None:
            self._forward.__exit__(None, None, None)
        self._forward = self._client = None

    def counts(self, run_name: str, what: str) -> dict[str, int]:
        found = self.client().hgetall(f"e2e:{run_name}:{what}")
        return {str(k): int(v) for k, v in found.items()}  # type: ignore[union-attr]
