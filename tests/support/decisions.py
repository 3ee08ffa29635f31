"""Builders for tests of decisions: a Queue, the world around it, and time that stands still."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from dockwork_operator.decide.contact import settings_of
from dockwork_operator.decide.drift import marked
from dockwork_operator.decide.manifests import Children, RedisDefaults, render_children
from dockwork_operator.decide.memory import Memory, remember, seed_memory
from dockwork_operator.decide.plan import Applied, Plan
from dockwork_operator.decide.queue import decide_queue
from dockwork_operator.decide.seen import (
    ChildSeen,
    ConditionSeen,
    ContainerSeen,
    DeploymentSeen,
    OperatorSeen,
    OwnerSeen,
    PodSeen,
    QueueSeen,
    RedisSeen,
    SampleSeen,
    ServerSeen,
    WorkerSeen,
    child_seen,
)
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue, parse_queue

NOW = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
LONG_AGO = NOW - timedelta(hours=1)

UID = "queue-uid"
LEASE = "lease-uid"
RUN = "run-1"
OURS = OwnerSeen(operator=LEASE, namespace="shop", name="mail", uid=UID)
SAFE_SERVER = ServerSeen(version="7.2.5", run_id=RUN)
OPERATOR = OperatorSeen(lease_uid=LEASE)


def a_raw_queue(generation: int = 1, status: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A Queue object with a worker; `spec` replaces whole fields of the spec."""
    return {
        "metadata": {"name": "mail", "namespace": "shop", "uid": UID, "generation": generation},
        "spec": {"worker": {"image": "r/shop:1", "app": "shop.jobs:app", "slots": 10}, **spec},
        "status": dict(status or {}),
    }


def a_queue(generation: int = 1, **spec: Any) -> Queue:
    queue = parse_queue(a_raw_queue(generation, **spec))
    assert isinstance(queue, Queue), queue
    return queue


def children_of(queue: Queue) -> Children:
    children = render_children(queue, RedisDefaults())
    assert not isinstance(children, Refused), children
    return children


def hash_of(queue: Queue) -> str:
    return children_of(queue).template_hash


def live(manifest: Mapping[str, Any], **meta: Any) -> dict[str, Any]:
    """`manifest` as the API server shows it once it was applied."""
    made = marked(manifest)
    uid = f"{manifest['kind']}-uid"
    return {**made, "metadata": {**made["metadata"], "uid": uid, "resourceVersion": "7", **meta}}


def a_deployment(queue: Queue, replicas: int = 0, **facts: Any) -> DeploymentSeen:
    """The worker Deployment of `queue`, as declared and begun."""
    manifest = children_of(queue).deployment
    made: dict[str, Any] = {
        "child": child_seen(live(manifest), "Deployment"),
        "replicas": replicas,
        "paused": False,
        "generation": 1,
        "observed_generation": 1,
        "template_hash": hash_of(queue),
        "started": True,
        "status_replicas": replicas,
    }
    return DeploymentSeen(**{**made, **facts})


def other_children(queue: Queue) -> tuple[ChildSeen, ...]:
    """PodDisruptionBudget and NetworkPolicy of `queue`, as declared."""
    children = children_of(queue)
    found = [m for m in (children.pdb, children.network_policy) if m is not None]
    return tuple(child_seen(live(m), m["kind"]) for m in found)


def a_pod(name: str, queue: Queue | None = None, **facts: Any) -> PodSeen:
    """A ready pod that runs for an hour; its UID is `<name>-uid`."""
    made: dict[str, Any] = {
        "uid": f"{name}-uid",
        "name": name,
        "created": LONG_AGO,
        "template_hash": hash_of(queue or a_queue()),
        "replica_set": "rs-1",
        "node": "node-1",
        "ready_since": LONG_AGO,
        "containers": (ContainerSeen(name="worker"),),
    }
    made |= facts
    if not made.get("ready", True):
        made["ready_since"] = None
    return PodSeen(**made)


def a_worker(pod: str, busy: int = 0, **facts: Any) -> WorkerSeen:
    """The heartbeat of the one worker of the pod named `pod`, just now."""
    made = {"owner": f"{pod}-uid/1", "pod": f"{pod}-uid", "slots": 10, "busy": busy, "beat_ms": NOW_MS}
    return WorkerSeen(**{**made, **facts})


def a_sample(**facts: Any) -> SampleSeen:
    """An empty queue that is ours, as Redis sees it now."""
    made = {"time_ms": NOW_MS, "run_id": RUN, "owner": OURS, "config_generation": 1}
    return SampleSeen(**{**made, **facts})


def redis(sample: SampleSeen | None = None, **facts: Any) -> RedisSeen:
    if facts.get("failure") is not None:
        return RedisSeen(**facts)
    return RedisSeen(sample=sample or a_sample(), server=SAFE_SERVER, **facts)


def a_world(queue: Queue, **facts: Any) -> QueueSeen:
    """Everything there as declared, nothing to do, no pod; `facts` replace."""
    made: dict[str, Any] = {
        "generation": queue.generation,
        "deployment": a_deployment(queue),
        "children": other_children(queue),
        "redis": redis(),
        "operator": OPERATOR,
    }
    return QueueSeen(**{**made, **facts})


def a_memory(queue: Queue | None = None, **facts: Any) -> Memory:
    """A process that has decided for this Queue for an hour."""
    queue = queue or a_queue()
    memory = seed_memory({}, queue.spec.scaling.expected_duration, LONG_AGO + timedelta(seconds=1))
    made: dict[str, Any] = {
        "redis_reached": True,
        "run_id": RUN,
        "owned": True,
        "configured": settings_of(queue.spec, queue.generation),
        "configured_at": NOW,
        "configured_ms": NOW_MS - 60_000,
        "upkeep_at": NOW,
    }
    return replace(memory, **{**made, **facts})


def conditions(plan: Plan) -> dict[str, tuple[str, str]]:
    """type -> (status, reason) of the status that is to be written."""
    assert plan.status is not None
    return {c["type"]: (c["status"], c["reason"]) for c in plan.status["conditions"]}


def message(plan: Plan, condition: str) -> str:
    assert plan.status is not None
    return str(next(c["message"] for c in plan.status["conditions"] if c["type"] == condition))


def a_condition(kind: str, status: str, reason: str = "", since: datetime = LONG_AGO) -> ConditionSeen:
    return ConditionSeen(type=kind, status=status, reason=reason, since=since)


def settled(queue: Queue, seen: QueueSeen, memory: Memory, now: datetime = NOW) -> tuple[QueueSeen, Memory]:
    """The same world after one reconcile in which everything went well and the status was written."""
    plan = decide_queue(queue, seen, memory, now)
    memory = remember(plan, Applied(done=plan.actions, status_written=plan.status is not None), now)
    return replace(seen, status=plan.status or seen.status), memory
