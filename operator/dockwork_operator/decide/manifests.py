"""The objects that a Queue declares, rendered: Deployment, PodDisruptionBudget, NetworkPolicy; an owned Queue.

Everything here is what we apply and own; the API server's defaults and other managers' fields are not in it, and
neither is `replicas`, which goes through ``/scale``.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dockwork_operator import constants
from dockwork_operator.decide.grace import PRE_STOP_SECONDS, drain_timeout_seconds, grace_seconds
from dockwork_operator.decide.merge import merge_pod_template
from dockwork_operator.decide.names import child_labels, owner_reference, selector_labels, worker_name
from dockwork_operator.models.cronjobs import CronJob
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue

Manifest = dict[str, Any]

HASH_DIGITS = 10
USER_ID = 65532
REVISIONS_KEPT = 5
PROGRESS_DEADLINE_SECONDS = 600
OWNED_MAX_REPLICAS = 1

URL_VOLUME = "dockwork-redis"
CA_VOLUME = "dockwork-redis-ca"
MOUNTS = {
    URL_VOLUME: posixpath.dirname(constants.REDIS_URL_FILE),
    CA_VOLUME: posixpath.dirname(constants.REDIS_CA_FILE),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisDefaults:
    """The Redis of Queues that name none: a Secret in the Queue's own namespace.

    ca_key    the key of a CA certificate in the same Secret; "" = none
    """

    secret: str = "dockwork-redis"
    url_key: str = "url"
    ca_key: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Children:
    """All that a Queue declares, rendered; None = there shall be none.

    template_hash    of the Deployment's pod template
    grace_seconds    of its pods
    """

    deployment: Manifest
    pdb: Manifest | None
    network_policy: Manifest | None
    template_hash: str
    grace_seconds: int


def render_children(queue: Queue, defaults: RedisDefaults) -> Children | Refused:
    """Everything that `queue` declares, or the path of its podTemplate that may not be set."""
    deployment = render_deployment(queue, defaults)
    if isinstance(deployment, Refused):
        return deployment
    return Children(
        deployment=deployment,
        pdb=render_pdb(queue),
        network_policy=render_network_policy(queue),
        template_hash=deployment["spec"]["template"]["metadata"]["labels"][constants.LABEL_TEMPLATE_HASH],
        grace_seconds=grace_seconds(queue.spec),
    )


def render_deployment(queue: Queue, defaults: RedisDefaults, *, paused: bool = False) -> Manifest | Refused:
    """The worker Deployment without replicas; `paused` for its creation, so that an idle Queue starts no pod."""
    template = render_template(queue, defaults)
    if isinstance(template, Refused):
        return template
    rolling = queue.spec.rollout.rolling_update
    spec: Manifest = {
        "selector": {"matchLabels": selector_labels(queue.ref.name)},
        "minReadySeconds": queue.spec.worker.min_ready_seconds,
        "progressDeadlineSeconds": PROGRESS_DEADLINE_SECONDS,
        "revisionHistoryLimit": REVISIONS_KEPT,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": rolling.max_surge, "maxUnavailable": rolling.max_unavailable},
        },
        "template": template,
    }
    if paused:
        spec["paused"] = True
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _child_metadata(queue),
        "spec": spec,
    }


def render_pdb(queue: Queue) -> Manifest | None:
    """The PodDisruptionBudget, or None. maxUnavailable, for minAvailable would block node drains; unready pods may
    always be evicted, for quiesced workers and all workers in a Redis outage are unready (OP-222)."""
    if queue.spec.pdb.mode == "None":
        return None
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _child_metadata(queue),
        "spec": {
            "selector": {"matchLabels": {constants.LABEL_QUEUE: queue.ref.name}},
            "maxUnavailable": queue.spec.pdb.max_unavailable,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def render_network_policy(queue: Queue) -> Manifest | None:
    """The NetworkPolicy that opens only the probe and metrics port, or None."""
    if queue.spec.network_policy.mode == "None":
        return None
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _child_metadata(queue),
        "spec": {
            "podSelector": {"matchLabels": {constants.LABEL_QUEUE: queue.ref.name}},
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": constants.WORKER_PORT}]}],
        },
    }


def render_owned_queue(cronjob: CronJob) -> Manifest:
    """The Queue of a CronJob with a worker of its own: no pod between ticks (OP-051)."""
    spec = cronjob.spec
    if spec.worker is None:
        raise ValueError(f"{cronjob.ref}: only a CronJob with a worker owns a Queue")
    rendered: Manifest = {
        "worker": spec.worker.wire(),
        "scaling": {"minReplicas": 0, "maxReplicas": spec.max_replicas or OWNED_MAX_REPLICAS},
    }
    if spec.redis is not None:
        rendered["redis"] = spec.redis.wire()
    if spec.job.timeout is not None:
        rendered["jobs"] = {"timeout": spec.job.wire()["timeout"]}
    return {
        "apiVersion": constants.API_VERSION,
        "kind": constants.QUEUE_KIND,
        "metadata": {
            "name": cronjob.ref.name,
            "namespace": cronjob.ref.namespace,
            "labels": {constants.LABEL_MANAGED_BY: constants.MANAGED_BY},
            "ownerReferences": [owner_reference(constants.CRONJOB_KIND, cronjob.ref, cronjob.uid)],
        },
        "spec": rendered,
    }


def _child_metadata(queue: Queue) -> Manifest:
    return {
        "name": worker_name(queue.ref.name),
        "namespace": queue.ref.namespace,
        "labels": child_labels(queue.ref.name),
        "ownerReferences": [owner_reference(constants.QUEUE_KIND, queue.ref, queue.uid)],
    }


# --- the pod -----------------------------------------------------------------------------------------------


def template_hash(template: Mapping[str, Any]) -> str:
    """Which version of the workers `template` is: SHA-256 without the hash label itself, before API defaulting.

    Replicas, limits and the operator's version are not in a template, so none of them starts a rollout (OP-200).
    """
    metadata = template["metadata"]
    labels = {
        name: value for name, value in metadata["labels"].items() if name != constants.LABEL_TEMPLATE_HASH
    }
    bare = {**template, "metadata": {**metadata, "labels": labels}}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_DIGITS]


def render_template(queue: Queue, defaults: RedisDefaults) -> Manifest | Refused:
    """The pod template with the user's fragment merged over ours, and its hash as a label."""
    worker = queue.spec.worker
    ours: Manifest = {
        "metadata": {
            "labels": child_labels(queue.ref.name),
            "annotations": {"kubectl.kubernetes.io/default-container": constants.WORKER_CONTAINER},
        },
        "spec": _pod_spec(queue, defaults),
    }
    merged = merge_pod_template(ours, worker.pod_template or {}, command_is_ours=worker.app is not None)
    if isinstance(merged, Refused):
        return merged
    labels = {**merged["metadata"]["labels"], constants.LABEL_TEMPLATE_HASH: template_hash(merged)}
    return {**merged, "metadata": {**merged["metadata"], "labels": labels}}


def _pod_spec(queue: Queue, defaults: RedisDefaults) -> Manifest:
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds(queue.spec),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector_labels(queue.ref.name)},
            }
        ],
        "containers": [_worker_container(queue, defaults)],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *_redis_volumes(queue, defaults)],
    }


def _worker_container(queue: Queue, defaults: RedisDefaults) -> Manifest:
    worker = queue.spec.worker
    container: Manifest = {
        "name": constants.WORKER_CONTAINER,
        "image": worker.image,
        "command": list(worker.command) if worker.command else ["dockwork", "worker", worker.app],
        "env": _environment(queue, defaults),
        "resources": worker.resources.wire(),
        "ports": [{"name": "http", "containerPort": constants.WORKER_PORT, "protocol": "TCP"}],
        # The first start may import a large app; after that, /livez says whether renewal and the claim loop live.
        "startupProbe": _probe("/livez", every=1, timeout=2, failures=120),
        "livenessProbe": _probe("/livez", every=10, timeout=5, failures=3),
        "readinessProbe": _probe("/readyz", every=2, timeout=2, failures=2),
        # PID 1 does not hear a SIGTERM before Python has a handler for it.
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            *(
                {"name": volume["name"], "mountPath": MOUNTS[volume["name"]], "readOnly": True}
                for volume in _redis_volumes(queue, defaults)
            ),
        ],
    }
    if worker.args:
        container["args"] = list(worker.args)
    if worker.env_from:
        container["envFrom"] = [dict(source) for source in worker.env_from]
    return container


def _probe(path: str, *, every: int, timeout: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": constants.WORKER_PORT},
        "periodSeconds": every,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _environment(queue: Queue, defaults: RedisDefaults) -> list[Manifest]:
    spec = queue.spec
    hash_field = f"metadata.labels['{constants.LABEL_TEMPLATE_HASH}']"
    ours: dict[str, Manifest] = {
        "DOCKWORK_NAMESPACE": {"value": queue.redis_namespace},
        "DOCKWORK_QUEUES": {"value": queue.redis_queue},
        "DOCKWORK_CONCURRENCY": {"value": str(spec.worker.slots)},
        "DOCKWORK_REDIS_URL_FILE": {"value": constants.REDIS_URL_FILE},
        "DOCKWORK_DRAIN_TIMEOUT": {"value": str(drain_timeout_seconds(grace_seconds(spec)))},
        "DOCKWORK_DRAIN_REQUEUE": {"value": spec.drain.requeue.lower()},
        "DOCKWORK_POD_UID": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        "DOCKWORK_POD_NAME": {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        "DOCKWORK_CONTAINER": {"value": constants.WORKER_CONTAINER},
        "DOCKWORK_TEMPLATE_HASH": {"valueFrom": {"fieldRef": {"fieldPath": hash_field}}},
        "DOCKWORK_PROBE_ADDR": {"value": f"0.0.0.0:{constants.WORKER_PORT}"},
        "DOCKWORK_LOG_FORMAT": {"value": "json"},
    }
    if _ca_volume(queue, defaults) is not None:
        ours["DOCKWORK_REDIS_CA_FILE"] = {"value": constants.REDIS_CA_FILE}
    theirs = {entry["name"]: dict(entry) for entry in spec.worker.env}
    return [{"name": name, **value} for name, value in ours.items() if name not in theirs] + list(
        theirs.values()
    )


def _redis_volumes(queue: Queue, defaults: RedisDefaults) -> list[Manifest]:
    """The URL, and the CA if there is one, as files: a changed Secret reaches a running worker without a restart."""
    redis = queue.spec.redis
    if redis is not None and redis.url_from is not None:
        ref = redis.url_from.secret_key_ref
        secret, key = ref.name, ref.key
    else:
        secret, key = defaults.secret, defaults.url_key
    url = {"name": URL_VOLUME, "secret": {"secretName": secret, "items": [{"key": key, "path": "url"}]}}
    ca = _ca_volume(queue, defaults)
    return [url] if ca is None else [url, ca]


def _ca_volume(queue: Queue, defaults: RedisDefaults) -> Manifest | None:
    redis = queue.spec.redis
    source = redis.ca_from if redis is not None else None
    if source is not None and source.config_map_key_ref is not None:
        ref = source.config_map_key_ref
        return {
            "name": CA_VOLUME,
            "configMap": {"name": ref.name, "items": [{"key": ref.key, "path": "ca"}]},
        }
    if source is not None and source.secret_key_ref is not None:
        secret, key = source.secret_key_ref.name, source.secret_key_ref.key
    elif defaults.ca_key and (redis is None or redis.url_from is None):
        secret, key = defaults.secret, defaults.ca_key
    else:
        return None
    return {
        "name": CA_VOLUME,
        "secret": {"secretName": secret, "items": [{"key": key, "path": "ca"}]},
    }
