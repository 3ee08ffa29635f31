"""A digest of a job in memory: what `lua/lib/digest_of` is on Redis, over what this store keeps."""

from __future__ import annotations

import hashlib
from dataclasses import fields

from dockwork.store.memory_queue import Record

#: Fields of a record that are its outputs on Redis, and no part of what is reviewed.
_OUTPUTS = frozenset({"result", "dropped", "progress", "checkpoint", "log", "exit", "errors"})


def digest_of(record: Record) -> str:
    """What a job is, in 40 hex digits: changes with its fields and its envelope."""
    whole = [(part.name, getattr(record, part.name)) for part in fields(record) if part.name not in _OUTPUTS]
    return hashlib.sha1(repr(whole).encode(), usedforsecurity=False).hexdigest()
