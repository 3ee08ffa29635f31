"""Names, labels and owners of the objects that belong to a Queue (OP-070 to OP-072)."""

from __future__ import annotations

import hashlib
from typing import Any

from dockwork_operator import constants
from dockwork_operator.models.objects import ObjectRef

LONGEST_PLAIN = 39
"""A longer Queue name is shortened, so that ``<name>-worker`` has at most 46 characters and pod names are not cut."""

_KEPT = 30
_DIGITS = 8


def short_name(queue: str) -> str:
    """`queue` as its children's names begin: at most 39 characters, different for different queues."""
    if len(queue) <= LONGEST_PLAIN:
        return queue
    return f"{queue[:_KEPT]}-{hashlib.sha256(queue.encode()).hexdigest()[:_DIGITS]}"


def worker_name(queue: str) -> str:
    """Name of the Deployment, the PodDisruptionBudget and the NetworkPolicy of `queue`."""
    return f"{short_name(queue)}-worker"


def selector_labels(queue: str) -> dict[str, str]:
    """What selects the pods of the stable Deployment, for ever."""
    return {constants.LABEL_QUEUE: queue, constants.LABEL_TRACK: constants.TRACK_STABLE}


def child_labels(queue: str) -> dict[str, str]:
    """Labels of every object of `queue`, pods included."""
    return {
        constants.LABEL_NAME: queue,
        constants.LABEL_COMPONENT: constants.COMPONENT_WORKER,
        constants.LABEL_MANAGED_BY: constants.MANAGED_BY,
        **selector_labels(queue),
    }


def pod_selector(queue: str) -> str:
    """Label selector of all pods of `queue`, as ``status.selector`` has it."""
    return f"{constants.LABEL_QUEUE}={queue}"


def owner_reference(kind: str, ref: ObjectRef, uid: str) -> dict[str, Any]:
    """The reference by which garbage collection takes the children along."""
    return {
        "apiVersion": constants.API_VERSION,
        "kind": kind,
        "name": ref.name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
