"""What the watches have told: the last version of each object that concerns us, as the API server sent it.

Everything here runs on the operator's own event loop. An object that is older than the known one changes nothing, so
what a write returned is kept until a watch event is not older: the cache never lags behind our own writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dockwork_operator.constants import LABEL_QUEUE
from dockwork_operator.kube.client import Object
from dockwork_operator.kube.resources import CRONJOBS, LABELLED, QUEUES, WATCHED, ObjectKey, Resource

Name = tuple[str, str]


class Cache:
    """Objects by resource, namespace and name; children also by the Queue that their label names."""

    def __init__(self) -> None:
        self._objects: dict[Resource, dict[Name, Object]] = {resource: {} for resource in WATCHED}
        self._by_queue: dict[tuple[Resource, str, str], dict[str, Object]] = {}

    def get(self, resource: Resource, namespace: str, name: str) -> Object | None:
        return self._objects[resource].get((namespace, name))

    def all(self, resource: Resource) -> Iterator[Object]:
        yield from list(self._objects[resource].values())

    def of_queue(self, resource: Resource, namespace: str, queue: str) -> tuple[Object, ...]:
        """Children whose label names `queue`, ours or not."""
        return tuple(self._by_queue.get((resource, namespace, queue), {}).values())

    def count(self, resource: Resource) -> int:
        return len(self._objects[resource])

    def versions(self, resource: Resource, namespace: str | None) -> dict[Name, tuple[str, str]]:
        """(uid, resource version) by name, of one namespace or of all."""
        return {
            name: (_meta(raw).get("uid", ""), _meta(raw).get("resourceVersion", ""))
            for name, raw in self._objects[resource].items()
            if namespace is None or name[0] == namespace
        }

    def put(self, resource: Resource, raw: Object) -> bool:
        """Keep `raw` unless it is older than what is known; whether anything changed."""
        name = _name(raw)
        known = self._objects[resource].get(name)
        if known is not None and not _is_newer(raw, known):
            return False
        if known is not None:
            self._unindex(resource, known)
        raw = _slim(raw)
        self._objects[resource][name] = raw
        if (queue := _queue_label(resource, raw)) is not None:
            self._by_queue.setdefault((resource, name[0], queue), {})[name[1]] = raw
        return True

    def remove(self, resource: Resource, raw: Object) -> bool:
        """Drop the object; not a successor of the same name that is known already."""
        name = _name(raw)
        known = self._objects[resource].get(name)
        if known is None or _meta(known).get("uid") != _meta(raw).get("uid"):
            return False
        self._unindex(resource, known)
        del self._objects[resource][name]
        return True

    def _unindex(self, resource: Resource, raw: Object) -> None:
        if (queue := _queue_label(resource, raw)) is None:
            return
        namespace, name = _name(raw)
        children = self._by_queue.get((resource, namespace, queue))
        if children is not None:
            children.pop(name, None)
            if not children:
                del self._by_queue[resource, namespace, queue]

    def concerned(self, resource: Resource, raw: Mapping[str, Any]) -> tuple[ObjectKey, ...]:
        """The keys whose reconcile would see this object: itself, its Queue, the CronJobs of its Queue."""
        namespace, name = _name(raw)
        if resource == CRONJOBS:
            # The Queue that it owns may be gone with it, or is to be made.
            return (ObjectKey(CRONJOBS, namespace, name),)
        if resource == QUEUES:
            return (ObjectKey(QUEUES, namespace, name), *self._cronjobs_on(namespace, name))
        queue = _queue_label(resource, raw)
        return (ObjectKey(QUEUES, namespace, queue),) if queue else ()

    def _cronjobs_on(self, namespace: str, queue: str) -> Iterator[ObjectKey]:
        for (where, name), raw in self._objects[CRONJOBS].items():
            spec = raw.get("spec")
            reference = spec.get("queueRef") if isinstance(spec, dict) else None
            target = reference.get("name") if isinstance(reference, dict) else name
            if where == namespace and target == queue:
                yield ObjectKey(CRONJOBS, where, name)


def _name(raw: Mapping[str, Any]) -> Name:
    meta = _meta(raw)
    return str(meta.get("namespace") or ""), str(meta.get("name") or "")


def _meta(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    return raw.get("metadata") or {}


def _queue_label(resource: Resource, raw: Mapping[str, Any]) -> str | None:
    if resource not in LABELLED:
        return None
    value = (_meta(raw).get("labels") or {}).get(LABEL_QUEUE)
    return str(value) if value else None


def _is_newer(raw: Object, known: Object) -> bool:
    """Resource versions of one object are ordered numbers (KEP-5504); another uid is another object."""
    ours, theirs = _meta(raw), _meta(known)
    if ours.get("uid") != theirs.get("uid"):
        return True
    try:
        return int(ours["resourceVersion"]) > int(theirs["resourceVersion"])
    except (KeyError, ValueError):
        return True


def _slim(raw: Object) -> Object:
    """Without managedFields: half of an object's size, and nothing here reads them."""
    if "managedFields" not in _meta(raw):
        return raw
    return {**raw, "metadata": {k: v for k, v in raw["metadata"].items() if k != "managedFields"}}
