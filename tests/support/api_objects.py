"""Queues and CronJobs for tests: good ones, a table of bad ones, and one change at a time."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]

GONE = object()
"""As a value: the field is removed."""


def a_queue(changes: Mapping[str, Any] | None = None, *, name: str = "mail", namespace: str = "shop") -> Json:
    """A good Queue with `changes`, dotted paths below spec to values."""
    return _changed(
        _object("Queue", name, namespace, {"worker": {"image": "r/shop:1.4", "app": "shop.jobs:app"}}),
        changes,
    )


def a_cronjob(
    changes: Mapping[str, Any] | None = None, *, name: str = "report", namespace: str = "shop"
) -> Json:
    """A good CronJob with `changes`, dotted paths below spec to values."""
    spec = {"schedule": "30 2 * * 1-5", "queueRef": {"name": "mail"}, "job": {"type": "report.daily"}}
    return _changed(_object("CronJob", name, namespace, spec), changes)


def an_inline_cronjob(changes: Mapping[str, Any] | None = None, *, name: str = "report") -> Json:
    """A good CronJob with a worker of its own."""
    worker = {"image": "r/shop:1.4", "app": "shop.jobs:app"}
    return a_cronjob({"queueRef": GONE, "worker": worker, **(changes or {})}, name=name)


def _object(kind: str, name: str, namespace: str, spec: Json) -> Json:
    return {
        "apiVersion": "dockwork.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 1},
        "spec": spec,
    }


def _changed(made: Json, changes: Mapping[str, Any] | None) -> Json:
    made = copy.deepcopy(made)
    for path, value in (changes or {}).items():
        at = made if path.startswith("metadata.") else made["spec"]
        *above, last = path.split(".")
        for step in above:
            at = at.setdefault(step, {})
        if value is GONE:
            at.pop(last, None)
        else:
            at[last] = copy.deepcopy(value)
    return made


@dataclass(frozen=True, kw_only=True)
class Bad:
    """A bad object and who refuses it.

    field    that the refusal names
    says     a part of what the refusal says was expected
    by       the API server (schema or CEL), or the operator, whose answer is Accepted=False
    """

    id: str
    made: Json
    field: str
    says: str = ""
    by: Literal["server", "operator"] = "server"


WORKER: Json = {"image": "r/shop:1.4", "app": "shop.jobs:app"}
URL: Json = {"secretKeyRef": {"name": "my-redis", "key": "url"}}


def _worker(**fields: Any) -> Json:
    return a_queue({"worker": {**WORKER, **fields}})


def _template(spec: Json | None = None, **fields: Any) -> Json:
    return _worker(podTemplate={**({"spec": spec} if spec is not None else {}), **fields})


def _container(**fields: Any) -> Json:
    return _template({"containers": [{"name": "worker", **fields}]})


_TEMPLATE = "spec.worker.podTemplate"
_CONTAINER = f"{_TEMPLATE}.spec.containers[worker]"

BAD_QUEUES: tuple[Bad, ...] = (
    Bad(id="no worker", made=a_queue({"worker": GONE}), field="spec.worker"),
    Bad(id="a worker that is text", made=a_queue({"worker": "r/shop:1.4"}), field="spec.worker"),
    Bad(id="no image", made=a_queue({"worker": {"app": "a:b"}}), field="spec.worker.image"),
    Bad(id="an empty image", made=_worker(image=""), field="spec.worker.image"),
    Bad(id="an image of 513 characters", made=_worker(image="x" * 513), field="spec.worker.image"),
    Bad(
        id="neither app nor command",
        made=a_queue({"worker": {"image": "x"}}),
        field="spec.worker.app",
        says="exactly one of",
    ),
    Bad(id="app and command", made=_worker(command=["x"]), field="spec.worker.app", says="exactly one of"),
    Bad(id="an app without object", made=_worker(app="shop.jobs"), field="spec.worker.app"),
    Bad(
        id="an empty command",
        made=a_queue({"worker": {"image": "x", "command": []}}),
        field="spec.worker.command",
    ),
    Bad(id="65 args", made=_worker(args=["x"] * 65), field="spec.worker.args"),
    Bad(id="an arg that is a number", made=_worker(args=[1]), field="spec.worker.args[0]"),
    Bad(id="a blank image", made=_worker(image=" "), field="spec.worker.image"),
    Bad(id="an image with a blank", made=_worker(image="r/shop: 1.4"), field="spec.worker.image"),
    Bad(
        id="less than nothing",
        made=_worker(resources={"requests": {"cpu": -1}}),
        field="spec.worker.resources.requests",
    ),
    Bad(id="no slots", made=_worker(slots=0), field="spec.worker.slots"),
    Bad(id="1001 slots", made=_worker(slots=1001), field="spec.worker.slots"),
    Bad(id="slots as text", made=_worker(slots="ten"), field="spec.worker.slots"),
    Bad(id="half a slot", made=_worker(slots=0.5), field="spec.worker.slots"),
    Bad(
        id="a variable of ours",
        made=_worker(env=[{"name": "DOCKWORK_QUEUES", "value": "x"}]),
        field="spec.worker.env",
        says="DOCKWORK_ variables are the operator's",
    ),
    Bad(
        id="a variable twice",
        made=_worker(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
        field="spec.worker.env",
    ),
    Bad(id="a variable without name", made=_worker(env=[{"value": "1"}]), field="spec.worker.env[0]"),
    Bad(
        id="a memory of text",
        made=_worker(resources={"limits": {"memory": "lots"}}),
        field="spec.worker.resources.limits",
    ),
    Bad(id="minReadySeconds below 0", made=_worker(minReadySeconds=-1), field="spec.worker.minReadySeconds"),
    Bad(id="a misspelled field", made=_worker(slot=3), field="spec.worker.slot"),
    Bad(id="a misspelled top field", made=a_queue({"scale": {}}), field="spec.scale"),
    Bad(id="a field that is not there yet", made=a_queue({"stopPolicy": "Hold"}), field="spec.stopPolicy"),
    Bad(id="a timeout in days", made=a_queue({"jobs.timeout": "1d"}), field="spec.jobs.timeout"),
    Bad(id="a timeout without unit", made=a_queue({"jobs.timeout": "300"}), field="spec.jobs.timeout"),
    Bad(id="a timeout that is a number", made=a_queue({"jobs.timeout": 300}), field="spec.jobs.timeout"),
    Bad(
        id="a timeout below 1 s",
        made=a_queue({"jobs.timeout": "10ms"}),
        field="spec.jobs.timeout",
        says="1s to 24h",
    ),
    Bad(
        id="a timeout that overflows",
        made=a_queue({"jobs.timeout": "999999999999999h"}),
        field="spec.jobs.timeout",
    ),
    Bad(
        id="maxTimeout below timeout",
        made=a_queue({"jobs": {"timeout": "5m", "maxTimeout": "1m"}}),
        field="spec.jobs.maxTimeout",
        says="must not be below jobs.timeout",
    ),
    Bad(id="no attempts", made=a_queue({"jobs.maxAttempts": 0}), field="spec.jobs.maxAttempts"),
    Bad(
        id="a backoff base over max",
        made=a_queue({"jobs.backoff": {"base": "2h", "max": "1h"}}),
        field="spec.jobs.backoff.base",
        says="must not exceed backoff.max",
    ),
    Bad(
        id="an unknown backoff", made=a_queue({"jobs.backoff.kind": "Linear"}), field="spec.jobs.backoff.kind"
    ),
    Bad(
        id="jitter over 100",
        made=a_queue({"jobs.backoff.jitterPercent": 101}),
        field="spec.jobs.backoff.jitterPercent",
    ),
    Bad(id="a depth of 0", made=a_queue({"limits.depth": 0}), field="spec.limits.depth"),
    Bad(
        id="a payload over 8Mi",
        made=a_queue({"limits.payloadBytes": "9Mi"}),
        field="spec.limits.payloadBytes",
        says="1 to 8Mi",
    ),
    Bad(id="bytes in furlongs", made=a_queue({"limits.bytes": "2furlongs"}), field="spec.limits.bytes"),
    Bad(
        id="min over max",
        made=a_queue({"scaling": {"minReplicas": 5, "maxReplicas": 4}}),
        field="spec.scaling.minReplicas",
        says="must not exceed scaling.maxReplicas",
    ),
    Bad(id="no max", made=a_queue({"scaling.maxReplicas": 0}), field="spec.scaling.maxReplicas"),
    Bad(id="an unknown mode", made=a_queue({"scaling.mode": "Manual"}), field="spec.scaling.mode"),
    Bad(
        id="a utilization of 5 %",
        made=a_queue({"scaling.targetUtilizationPercent": 5}),
        field="spec.scaling.targetUtilizationPercent",
    ),
    Bad(
        id="a drain target of 0",
        made=a_queue({"scaling.drainTarget": "0s"}),
        field="spec.scaling.drainTarget",
    ),
    Bad(
        id="a fallback over max",
        made=a_queue({"scaling": {"maxReplicas": 2, "fallback": {"replicas": 3}}}),
        field="spec.scaling.fallback",
        says="must not exceed scaling.maxReplicas",
    ),
    Bad(
        id="a fallback without replicas",
        made=a_queue({"scaling.fallback": {}}),
        field="spec.scaling.fallback.replicas",
    ),
    Bad(id="1001 replicas", made=a_queue({"replicas": 1001}), field="spec.replicas"),
    Bad(
        id="a rollout that cannot move",
        made=a_queue({"rollout.rollingUpdate": {"maxSurge": "0%", "maxUnavailable": 0}}),
        field="spec.rollout.rollingUpdate.maxSurge",
        says="must not both be 0",
    ),
    Bad(
        id="a surge of text",
        made=a_queue({"rollout.rollingUpdate.maxSurge": "some"}),
        field="spec.rollout.rollingUpdate.maxSurge",
    ),
    Bad(
        id="a surge of 101 %",
        made=a_queue({"rollout.rollingUpdate.maxSurge": "101%"}),
        field="spec.rollout.rollingUpdate.maxSurge",
    ),
    Bad(
        id="nothing may terminate",
        made=a_queue({"rollout.rollingUpdate.maxTerminating": 0}),
        field="spec.rollout.rollingUpdate.maxTerminating",
    ),
    Bad(
        id="a grace of 1 s",
        made=a_queue({"drain.gracePeriod": "1s"}),
        field="spec.drain.gracePeriod",
        says="Auto or a duration from 5s to 168h",
    ),
    Bad(id="a grace of words", made=a_queue({"drain.gracePeriod": "Never"}), field="spec.drain.gracePeriod"),
    Bad(id="requeue in the middle", made=a_queue({"drain.requeue": "Middle"}), field="spec.drain.requeue"),
    Bad(id="an unknown pdb mode", made=a_queue({"pdb.mode": "Always"}), field="spec.pdb.mode"),
    Bad(
        id="a pdb that blocks drains",
        made=a_queue({"pdb.maxUnavailable": 0}),
        field="spec.pdb.maxUnavailable",
    ),
    Bad(
        id="an unknown network policy",
        made=a_queue({"networkPolicy.mode": "Strict"}),
        field="spec.networkPolicy.mode",
    ),
    Bad(
        id="a prefix on the shared Redis",
        made=a_queue({"redis.prefix": "other"}),
        field="spec.redis.prefix",
        says="needs redis.urlFrom",
    ),
    Bad(
        id="a prefix with a dot",
        made=a_queue({"redis": {"urlFrom": URL, "prefix": "a.b"}}),
        field="spec.redis.prefix",
    ),
    Bad(id="a queue in capitals", made=a_queue({"redis.queue": "Mail"}), field="spec.redis.queue"),
    Bad(id="a URL in the clear", made=a_queue({"redis.urlFrom": "redis://:x@y"}), field="spec.redis.urlFrom"),
    Bad(
        id="a Secret without key",
        made=a_queue({"redis.urlFrom": {"secretKeyRef": {"name": "my-redis"}}}),
        field="spec.redis.urlFrom.secretKeyRef.key",
    ),
    Bad(
        id="a CA from both",
        made=a_queue(
            {
                "redis.caFrom": {
                    "secretKeyRef": {"name": "a", "key": "ca"},
                    "configMapKeyRef": {"name": "a", "key": "ca"},
                }
            }
        ),
        field="spec.redis.caFrom",
        says="exactly one of",
    ),
    # What a schema cannot look into is refused by the operator.
    Bad(
        id="a grace in the template",
        made=_template({"terminationGracePeriodSeconds": 5}),
        field=f"{_TEMPLATE}.spec.terminationGracePeriodSeconds",
        says="drain.gracePeriod",
        by="operator",
    ),
    Bad(
        id="an API token",
        made=_template({"automountServiceAccountToken": True}),
        field=f"{_TEMPLATE}.spec.automountServiceAccountToken",
        by="operator",
    ),
    Bad(
        id="a selector label",
        made=_template(metadata={"labels": {"dockwork.dev/queue": "x"}}),
        field=f"{_TEMPLATE}.metadata.labels[dockwork.dev/queue]",
        by="operator",
    ),
    Bad(
        id="a name in the template",
        made=_template(metadata={"name": "x"}),
        field=f"{_TEMPLATE}.metadata.name",
        by="operator",
    ),
    Bad(
        id="a label that YAML made true",
        made=_template(metadata={"labels": {"x": True}}),
        field=f"{_TEMPLATE}.metadata.labels[x]",
        says="a string",
        by="operator",
    ),
    Bad(
        id="a probe of their own",
        made=_container(livenessProbe={}),
        field=f"{_CONTAINER}.livenessProbe",
        by="operator",
    ),
    Bad(
        id="a command beside app",
        made=_container(command=["sh"]),
        field=f"{_CONTAINER}.command",
        by="operator",
    ),
    Bad(
        id="a variable of ours in the template",
        made=_container(env=[{"name": "DOCKWORK_POD_UID", "value": "x"}]),
        field=f"{_CONTAINER}.env[DOCKWORK_POD_UID]",
        by="operator",
    ),
    Bad(
        id="a variable that YAML made a number",
        made=_container(env=[{"name": "A", "value": 1}]),
        field=f"{_CONTAINER}.env[A].value",
        says="a string",
        by="operator",
    ),
    Bad(
        id="a container without name",
        made=_template({"containers": [{"image": "x"}]}),
        field=f"{_TEMPLATE}.spec.containers[0].name",
        by="operator",
    ),
    Bad(
        id="containers that are no list",
        made=_template({"containers": {"worker": {}}}),
        field=f"{_TEMPLATE}.spec.containers",
        says="a list",
        by="operator",
    ),
    Bad(
        id="a pod spec that is text",
        made=_worker(podTemplate={"spec": "x"}),
        field=f"{_TEMPLATE}.spec",
        says="an object",
        by="operator",
    ),
    Bad(id="a template that is a pod", made=_template(kind="Pod"), field=f"{_TEMPLATE}.kind", by="operator"),
    Bad(
        id="a volume twice",
        made=_template({"volumes": [{"name": "a"}, {"name": "a"}]}),
        field=f"{_TEMPLATE}.spec.volumes[a]",
        by="operator",
    ),
)

BAD_CRONJOBS: tuple[Bad, ...] = (
    Bad(id="no schedule", made=a_cronjob({"schedule": GONE}), field="spec.schedule"),
    Bad(
        id="six fields",
        made=a_cronjob({"schedule": "0 0 2 * * *"}),
        field="spec.schedule",
        says="five fields",
    ),
    Bad(
        id="seven fields",
        made=a_cronjob({"schedule": "0 0 2 * * * 2027"}),
        field="spec.schedule",
        says="five fields",
    ),
    Bad(
        id="a zone before the fields",
        made=a_cronjob({"schedule": "TZ=UTC 0 2 * * *"}),
        field="spec.schedule",
        says="the zone goes to timeZone",
    ),
    Bad(id="@reboot", made=a_cronjob({"schedule": "@reboot"}), field="spec.schedule"),
    Bad(id="a schedule in words", made=a_cronjob({"schedule": "every night"}), field="spec.schedule"),
    Bad(
        id="a schedule of 129 characters",
        made=a_cronjob({"schedule": "0," * 60 + "0 2 * * 1-5"}),
        field="spec.schedule",
    ),
    Bad(id="a question mark", made=a_cronjob({"schedule": "0 2 ? * *"}), field="spec.schedule"),
    Bad(id="a zone with a blank", made=a_cronjob({"timeZone": "New York"}), field="spec.timeZone"),
    Bad(id="an unknown gap rule", made=a_cronjob({"dst.gap": "RunBefore"}), field="spec.dst.gap"),
    Bad(
        id="neither queueRef nor worker",
        made=a_cronjob({"queueRef": GONE}),
        field="spec.queueRef",
        says="exactly one of",
    ),
    Bad(
        id="queueRef and worker",
        made=a_cronjob({"worker": WORKER}),
        field="spec.queueRef",
        says="exactly one of",
    ),
    Bad(id="redis with queueRef", made=a_cronjob({"redis": {}}), field="spec.redis", says="with worker only"),
    Bad(
        id="maxReplicas with queueRef",
        made=a_cronjob({"maxReplicas": 2}),
        field="spec.maxReplicas",
        says="with worker only",
    ),
    Bad(
        id="a bad inline worker", made=an_inline_cronjob({"worker": {"image": "x"}}), field="spec.worker.app"
    ),
    Bad(
        id="a queue in another namespace",
        made=a_cronjob({"queueRef": {"name": "mail", "namespace": "x"}}),
        field="spec.queueRef.namespace",
    ),
    Bad(id="no job", made=a_cronjob({"job": GONE}), field="spec.job"),
    Bad(id="no job type", made=a_cronjob({"job": {}}), field="spec.job.type"),
    Bad(id="args as a list", made=a_cronjob({"job.args": [1]}), field="spec.job.args"),
    Bad(id="a priority of 101", made=a_cronjob({"job.priority": 101}), field="spec.job.priority"),
    Bad(
        id="an unknown missed run policy",
        made=a_cronjob({"missedRunPolicy": "Some"}),
        field="spec.missedRunPolicy",
    ),
    Bad(id="a catch-up of 0", made=a_cronjob({"maxCatchUp": 0}), field="spec.maxCatchUp"),
    Bad(
        id="a deadline under 10 s",
        made=a_cronjob({"startingDeadlineSeconds": 5}),
        field="spec.startingDeadlineSeconds",
    ),
    Bad(
        id="a policy that is not there yet",
        made=a_cronjob({"concurrencyPolicy": "Replace"}),
        field="spec.concurrencyPolicy",
    ),
    Bad(id="maxPending of 0", made=a_cronjob({"maxPending": 0}), field="spec.maxPending"),
    Bad(id="suspend as text", made=a_cronjob({"suspend": "yes"}), field="spec.suspend"),
    Bad(id="a built-in's field", made=a_cronjob({"jobTemplate": {}}), field="spec.jobTemplate"),
    Bad(
        id="args over 64 KiB",
        made=a_cronjob({"job.args": {"text": "x" * 70_000}}),
        field="spec.job.args",
        says="at most 65536 bytes",
        by="operator",
    ),
)

BAD = BAD_QUEUES + BAD_CRONJOBS
