"""The two CustomResourceDefinitions: names, columns and subresources around the schema of the models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dockwork_operator import constants
from dockwork_operator.models.cronjobs import CronJobSpec, CronJobStatus
from dockwork_operator.models.fields import LABEL, ApiModel, Schema
from dockwork_operator.models.queues import QueueSpec, QueueStatus
from dockwork_operator.models.schema import structural

SCHEMA_REVISION = 1
"""Raised with every change of the CRDs that this operator needs: the chart refuses to install over older ones."""

READY = '.status.conditions[?(@.type=="Ready")]'
DEGRADED = '.status.conditions[?(@.type=="Degraded")]'


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of `kubectl get`; `wide` ones are shown with ``-o wide`` only."""

    name: str
    path: str
    kind: str = "string"
    text: str = ""
    wide: bool = False

    def schema(self) -> Schema:
        """The entry of additionalPrinterColumns."""
        return {
            "name": self.name,
            "type": self.kind,
            "jsonPath": self.path,
            **({"description": self.text} if self.text else {}),
            **({"priority": 1} if self.wide else {}),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """One kind of ours: its names, its models, what `kubectl get` shows."""

    kind: str
    plural: str
    singular: str
    short: str
    text: str
    spec: type[ApiModel]
    status: type[ApiModel]
    columns: tuple[Column, ...]
    has_scale: bool = False


AGE = Column(name="AGE", path=".metadata.creationTimestamp", kind="date")
REASON = Column(name="REASON", path=f"{READY}.reason", text="Why it is ready or not.", wide=True)

QUEUE = Kind(
    kind=constants.QUEUE_KIND,
    plural=constants.QUEUE_PLURAL,
    singular="queue",
    short="dwq",
    text="A queue of jobs and the workers that run them.",
    spec=QueueSpec,
    status=QueueStatus,
    has_scale=True,
    columns=(
        Column(name="READY", path=f"{READY}.status", text="Whether it works as declared."),
        Column(name="DESIRED", path=".status.scaling.wanted", kind="integer", text="Pods wanted."),
        Column(name="PODS", path=".status.workers.ready", kind="integer", text="Pods ready."),
        Column(name="DEPTH", path=".status.depth.waiting", kind="integer", text="Jobs that could run now."),
        Column(
            name="OLDEST",
            path=".status.depth.oldestSeconds",
            kind="integer",
            text="Seconds the oldest waits.",
        ),
        Column(
            name="INFLIGHT", path=".status.depth.active", kind="integer", text="Jobs claimed by a worker."
        ),
        Column(name="VERSION", path=".status.rollout.stableHash", text="Hash of the pod template."),
        AGE,
        REASON,
        Column(name="MODE", path=".spec.scaling.mode", text="How it is scaled.", wide=True),
        Column(name="DEGRADED", path=f"{DEGRADED}.reason", text="What goes wrong, or None.", wide=True),
    ),
)

CRONJOB = Kind(
    kind=constants.CRONJOB_KIND,
    plural=constants.CRONJOB_PLURAL,
    singular="queuecronjob",
    short="qcj",
    text="A schedule whose ticks land on a queue, each exactly once.",
    spec=CronJobSpec,
    status=CronJobStatus,
    columns=(
        Column(name="SCHEDULE", path=".spec.schedule"),
        Column(name="TZ", path=".spec.timeZone", text="The time zone of the schedule."),
        Column(name="SUSPEND", path=".spec.suspend", kind="boolean"),
        Column(name="LAST", path=".status.lastTick.scheduledFor", kind="date", text="Since the last tick."),
        # A string: kubectl shows the age of a date, and the age of a future one as <invalid>.
        Column(name="NEXT", path=".status.nextTickTime", text="The next instant."),
        Column(name="MISSED", path=".status.missed.count", kind="integer", text="Ticks that came too late."),
        AGE,
        Column(
            name="LAG",
            path=".status.lastTick.lagMillis",
            kind="integer",
            text="Ms from instant to job.",
            wide=True,
        ),
        Column(name="QUEUE", path=".status.queue.name", text="The Queue that gets the ticks.", wide=True),
        REASON,
    ),
)

KINDS = (QUEUE, CRONJOB)


def crd(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of `kind`."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{constants.GROUP}",
            "annotations": {constants.ANNOTATION_SCHEMA_REVISION: str(SCHEMA_REVISION)},
        },
        "spec": {
            "group": constants.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.singular,
                "shortNames": [kind.short],
                "categories": ["dockwork"],
            },
            "versions": [_version(kind)],
        },
    }


def _version(kind: Kind) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if kind.has_scale:
        subresources["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.workers.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return {
        "name": constants.VERSION,
        "served": True,
        "storage": True,
        "subresources": subresources,
        "additionalPrinterColumns": [column.schema() for column in kind.columns],
        "schema": {"openAPIV3Schema": _root(kind)},
    }


def _root(kind: Kind) -> Schema:
    # A rule at the root names the field <nil>; a pattern on metadata.name names it.
    name = {"type": "string", "maxLength": 63, "pattern": LABEL}
    return {
        "type": "object",
        "description": kind.text,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "maxLength": 253},
            "kind": {"type": "string", "maxLength": 63},
            "metadata": {"type": "object", "properties": {"name": name}},
            "spec": structural(kind.spec),
            "status": structural(kind.status, with_defaults=False),
        },
    }
