"""A heartbeat as Redis keeps it: the server's time, then JSON."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from dockwork.store.protocol import Heartbeat, WorkerState

_FIELDS = frozenset(field.name for field in fields(Heartbeat)) - {"beat_ms"}


def encode_beat(beat: Heartbeat) -> bytes:
    """JSON of what differs from a plain heartbeat. The script puts its own time before it."""
    values: dict[str, Any] = {name: getattr(beat, name) for name in _FIELDS}
    return json.dumps(
        {name: value for name, value in values.items() if value or name in ("slots", "busy")},
        separators=(",", ":"),
        default=dict,
    ).encode()


def decode_beat(stored: bytes) -> Heartbeat:
    """The heartbeat in ``<ms> <JSON>``. Fields of newer workers are passed over."""
    beat_ms, _, text = stored.partition(b" ")
    values: dict[str, Any] = {name: value for name, value in json.loads(text).items() if name in _FIELDS}
    if "state" in values:
        values["state"] = WorkerState(values["state"])
    values["jobs"] = tuple(tuple(job) for job in values.get("jobs", ()))
    values["types"] = tuple(values.get("types", ()))
    return Heartbeat(beat_ms=int(beat_ms), **values)
