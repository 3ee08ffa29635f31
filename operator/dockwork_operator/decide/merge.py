"""A user's pod template fragment over ours: what merges, what replaces, what is refused (OP-024).

Objects merge field by field. Lists of `BY_KEY` merge item by item; an item of `WHOLE` replaces ours as a whole,
because it has exactly one source, and so does a hook of `HOOKS`. Every other list replaces ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dockwork_operator import constants
from dockwork_operator.models.objects import Refused, show

ROOT = "spec.worker.podTemplate"

BY_KEY: Mapping[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "topologySpreadConstraints": "topologyKey",
}
WHOLE = frozenset({"volumes", "env"})
HOOKS = frozenset({"preStop", "postStart"})

OUR_LABELS = (constants.LABEL_QUEUE, constants.LABEL_TRACK, constants.LABEL_TEMPLATE_HASH)
OUR_POD_FIELDS: Mapping[str, str] = {
    "terminationGracePeriodSeconds": "drain.gracePeriod to set it",
    "automountServiceAccountToken": "no API token in worker pods; a projected volume can mount one",
}
OUR_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")


class _Refusal(Exception):
    def __init__(self, field: str, expected: str, got: object = "") -> None:
        self.refused = Refused(field=field, expected=expected, got=show(got) if got != "" else "")
        super().__init__(self.refused.message)


def merge_pod_template(
    ours: Mapping[str, Any], fragment: Mapping[str, Any], *, command_is_ours: bool
) -> dict[str, Any] | Refused:
    """`ours` with `fragment` merged over it, or the first path of `fragment` that may not be set.

    command_is_ours    the Queue names an app, so the command is not to be overridden
    """
    try:
        _check_template(fragment, command_is_ours=command_is_ours)
        return _merge_objects(ours, _without_nulls(fragment), ROOT)
    except _Refusal as refusal:
        return refusal.refused


# --- what is refused ---------------------------------------------------------------------------------------


def _check_template(fragment: Mapping[str, Any], *, command_is_ours: bool) -> None:
    for name in fragment:
        if name not in ("metadata", "spec"):
            raise _Refusal(f"{ROOT}.{name}", "metadata or spec only")
    _check_metadata(_object(fragment.get("metadata"), f"{ROOT}.metadata"))
    spec = _object(fragment.get("spec"), f"{ROOT}.spec")
    for name, remedy in OUR_POD_FIELDS.items():
        if name in spec:
            raise _Refusal(f"{ROOT}.spec.{name}", f"not to be set here ({remedy})", spec[name])
    _check_strings(spec.get("nodeSelector"), f"{ROOT}.spec.nodeSelector")
    for container in _items(spec.get("containers"), f"{ROOT}.spec.containers", "name"):
        where = f"{ROOT}.spec.containers[{container['name']}]"
        _check_env(container, where)
        if container["name"] == constants.WORKER_CONTAINER:
            _check_worker(container, where, command_is_ours=command_is_ours)


def _check_metadata(metadata: Mapping[str, Any]) -> None:
    for name in metadata:
        if name not in ("labels", "annotations"):
            raise _Refusal(f"{ROOT}.metadata.{name}", "labels and annotations only")
    labels = _check_strings(metadata.get("labels"), f"{ROOT}.metadata.labels")
    _check_strings(metadata.get("annotations"), f"{ROOT}.metadata.annotations")
    for name in OUR_LABELS:
        if name in labels:
            raise _Refusal(f"{ROOT}.metadata.labels[{name}]", "not to be set: it selects the pods")


def _check_worker(container: Mapping[str, Any], where: str, *, command_is_ours: bool) -> None:
    for probe in OUR_PROBES:
        if probe in container:
            raise _Refusal(f"{where}.{probe}", "not to be set: the runtime answers our probes")
    if command_is_ours and "command" in container:
        raise _Refusal(f"{where}.command", "not to be set while worker.app is")
    for entry in _items(container.get("env"), f"{where}.env", "name"):
        name = entry["name"]
        if name.startswith(constants.OWN_ENV_PREFIX) and name not in constants.USER_ENV:
            raise _Refusal(f"{where}.env[{name}]", "not to be set: DOCKWORK_ variables are the operator's")


def _check_env(container: Mapping[str, Any], where: str) -> None:
    for entry in _items(container.get("env"), f"{where}.env", "name"):
        value = entry.get("value")
        if value is not None and not isinstance(value, str):
            # YAML 1.1 reads y, no, on as booleans: the API server would refuse the whole apply in its own words.
            raise _Refusal(f"{where}.env[{entry['name']}].value", "a string (quote it)", value)


def _check_strings(values: Any, where: str) -> Mapping[str, Any]:
    for name, value in _object(values, where).items():
        if not isinstance(value, str):
            raise _Refusal(f"{where}[{name}]", "a string (quote it)", value)
    return _object(values, where)


def _without_nulls(value: Any) -> Any:
    """`value` as the API server would store it elsewhere: a null field is an absent one."""
    if isinstance(value, Mapping):
        return {name: _without_nulls(below) for name, below in value.items() if below is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


# --- merging -----------------------------------------------------------------------------------------------


def _merge_objects(ours: Mapping[str, Any], theirs: Mapping[str, Any], where: str) -> dict[str, Any]:
    merged = dict(ours)
    for name, value in theirs.items():
        merged[name] = _merge_field(name, ours.get(name), value, f"{where}.{name}")
    return merged


def _merge_field(name: str, ours: Any, theirs: Any, where: str) -> Any:
    if name in HOOKS and isinstance(theirs, Mapping):
        return dict(theirs)
    if isinstance(ours, Mapping):
        return _merge_objects(ours, _object(theirs, where), where)
    if name in BY_KEY:
        return _merge_lists(ours or (), theirs, where, BY_KEY[name], whole=name in WHOLE)
    if isinstance(ours, Sequence) and not isinstance(ours, str) and not isinstance(theirs, list):
        raise _Refusal(where, "a list", theirs)
    return theirs


def _merge_lists(ours: Sequence[Any], theirs: Any, where: str, key: str, *, whole: bool) -> list[Any]:
    merged: dict[Any, Any] = {item[key]: item for item in ours}
    for item in _items(theirs, where, key):
        known = merged.get(item[key])
        if known is None or whole:
            merged[item[key]] = dict(item)
        else:
            merged[item[key]] = _merge_objects(known, item, f"{where}[{item[key]}]")
    return list(merged.values())


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _Refusal(where, "an object", value)
    return value


def _items(value: Any, where: str, key: str) -> list[Mapping[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list | tuple):
        raise _Refusal(where, "a list", value)
    kind = int if key == "containerPort" else str
    for number, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise _Refusal(f"{where}[{number}]", "an object", item)
        if not isinstance(item.get(key), kind) or isinstance(item[key], bool):
            raise _Refusal(f"{where}[{number}].{key}", "a number" if kind is int else "a name", item.get(key))
    names = [item[key] for item in value]
    for name in names:
        if names.count(name) > 1:
            raise _Refusal(f"{where}[{name}]", f"each {key} once")
    return list(value)
