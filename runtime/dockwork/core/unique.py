"""What makes a job one of a kind: unique keys, idempotency keys, and the hashes that Redis knows them by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from dockwork.core.durations import LONGEST_DELAY, Span, to_span
from dockwork.errors import InvalidValue, require

#: Bytes of a unique or an idempotency key.
LONGEST_KEY = 512

#: How long an idempotency key is remembered, where the call does not say.
IDEMPOTENCY_TTL = timedelta(hours=24)
SHORTEST_IDEMPOTENCY_TTL = timedelta(minutes=1)
LONGEST_IDEMPOTENCY_TTL = timedelta(days=7)

Until = Literal["start", "finish", "ttl"]
Conflict = Literal["keep", "replace", "debounce", "reject"]


@dataclass(frozen=True, slots=True)
class Unique:
    """One job at a time for a key, in its queue.

    key           at most 512 bytes; None = the job type and its arguments
    until         the key is free again when the job starts (is claimed), when it has ended, or after `ttl`
    ttl           with ``until="ttl"`` alone: the only lock that ends by time, whatever became of its job
    on_conflict   keep: the job that is there is the answer; replace: the waiting job takes the new arguments at its
                  place; debounce: likewise, and its delay begins anew; reject: UniqueConflict. A job that runs takes no
                  new arguments: then replace and debounce are rejected, too
    """

    key: str | None = None
    until: Until = field(default="finish", kw_only=True)
    ttl: Span | None = field(default=None, kw_only=True)
    on_conflict: Conflict = field(default="keep", kw_only=True)

    def __post_init__(self) -> None:
        if self.key is not None:
            check_key(self.key, "unique.key")
        if self.until not in ("start", "finish", "ttl"):
            raise InvalidValue("unique.until", expected="start, finish or ttl", got=self.until)
        if self.on_conflict not in ("keep", "replace", "debounce", "reject"):
            raise InvalidValue(
                "unique.on_conflict", expected="keep, replace, debounce or reject", got=self.on_conflict
            )
        timed = self.until == "ttl"
        expected = 'a span with until="ttl"' if timed else f'none with until="{self.until}"'
        require((self.ttl is not None) is timed, "unique.ttl", expected=expected, got=self.ttl)
        if self.ttl is not None:
            to_span(self.ttl, "unique.ttl", least=timedelta(milliseconds=1), most=LONGEST_DELAY)


def check_key(key: str, field: str) -> str:
    """`key` itself, if it may be a unique or an idempotency key."""
    size = len(key.encode("utf-8", "replace")) if isinstance(key, str) else 0
    require(0 < size <= LONGEST_KEY, field, expected=f"a text of 1 to {LONGEST_KEY} bytes", got=key)
    return key


def key_hash(key: str) -> str:
    """32 hex digits: the same for a text wherever it is a key, so that equal keys go to one partition."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def arguments_digest(job_type: str, args: bytes) -> str:
    """32 hex digits of a type and its arguments (a JSON object), whatever the order of their names."""
    whole = json.dumps([job_type, json.loads(args)], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(whole.encode()).hexdigest()[:32]
