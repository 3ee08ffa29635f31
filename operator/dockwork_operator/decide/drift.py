"""Does a live object still say what we applied? Only what we own is compared (OP-076).

Two things make an apply necessary: our own wish changed, which a digest of the manifest in an annotation tells
(so that a field we no longer want is given up, too), or a field that we own says something else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

#: Internal annotation: digest of the manifest that was applied last.
APPLIED = "dockwork.dev/applied"

_KEYS = ("name", "containerPort", "mountPath", "topologyKey", "uid", "key")
_AMOUNTS = frozenset({"requests", "limits"})
_SUFFIXES = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}


def marked(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """`manifest` with its own digest as an annotation."""
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    meta = manifest["metadata"]
    annotations = {**(meta.get("annotations") or {}), APPLIED: digest}
    return {**manifest, "metadata": {**meta, "annotations": annotations}}


def has_drifted(manifest: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """`manifest`, as `marked`, would change the live object."""
    # Items of a list carry neither apiVersion nor kind.
    return not all(_says(manifest.get(part), live.get(part), (part,)) for part in ("metadata", "spec"))


def _says(ours: Any, live: Any, path: tuple[str, ...]) -> bool:
    """Everything in `ours` is in `live`; what is only in `live` is the server's or another manager's."""
    if isinstance(ours, dict):
        if not isinstance(live, dict):
            # The server drops empty objects.
            return live is None and not any(_is_something(v) for v in ours.values())
        return all(_says(value, live.get(key), (*path, key)) for key, value in ours.items())
    if isinstance(ours, (list, tuple)):
        return _says_list(ours, live or (), path)
    if ours == live or (not _is_something(ours) and not _is_something(live)):
        return True
    return bool(_AMOUNTS & set(path[-2:-1])) and _same_amount(ours, live)


def _is_something(value: Any) -> bool:
    """False for what an absent field means as well."""
    if isinstance(value, dict):
        return any(_is_something(v) for v in value.values())
    return value not in (None, "", 0, False, [], ())


def _says_list(ours: Sequence[Any], live: Sequence[Any], path: tuple[str, ...]) -> bool:
    key = next((k for k in _KEYS if ours and all(isinstance(i, dict) and k in i for i in ours)), None)
    if key is None:
        return len(ours) == len(live) and all(
            _says(one, other, path) for one, other in zip(ours, live, strict=True)
        )
    by_key = {item.get(key): item for item in live if isinstance(item, dict)}
    return all(_says(item, by_key.get(item[key]), path) for item in ours)


def _same_amount(ours: Any, live: Any) -> bool:
    one, other = _amount(ours), _amount(live)
    return one is not None and one == other


def _amount(raw: Any) -> Decimal | None:
    text = str(raw)
    number = text.rstrip("mkKMGTPEi")
    try:
        return Decimal(number) * _SUFFIXES[text[len(number) :]]
    except (InvalidOperation, KeyError):
        return None
