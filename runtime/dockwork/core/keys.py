"""The name of every key in Redis: the only module that spells one.

All keys of a queue carry the hash tag ``{<namespace>/<queue>}`` (with ``/<partition>`` in it where there are
several), so a script touches one slot. A key that depends on an id which only a script learns is formed there
by the include ``record_key`` from one of the prefixes below; nothing else in Lua builds a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from dockwork.errors import InvalidValue, require

_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}\Z")
_JOB_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
_NAME_RULE = "1 to 63 characters of A-Z a-z 0-9 . _ -"

#: How every tag on the wake channel and every queue key begins.
WAKE_CHANNEL_PREFIX = "dw:wake:"
MAX_PARTITIONS = 64


@dataclass(frozen=True, slots=True)
class QueueName:
    """A queue (or one partition of it) as Redis knows it. A brace or slash in a name would make two queues one."""

    namespace: str
    queue: str
    partition: int | None = None

    def __post_init__(self) -> None:
        require(bool(_NAME.match(self.namespace)), "namespace", expected=_NAME_RULE, got=self.namespace)
        require(bool(_NAME.match(self.queue)), "queue", expected=_NAME_RULE, got=self.queue)
        if self.partition is not None:
            fits = 0 <= self.partition < MAX_PARTITIONS
            require(fits, "partition", expected=f"0 to {MAX_PARTITIONS - 1}", got=self.partition)

    @property
    def tag(self) -> str:
        """``namespace/queue`` or ``namespace/queue/partition``, without braces."""
        whole = f"{self.namespace}/{self.queue}"
        return whole if self.partition is None else f"{whole}/{self.partition}"

    @classmethod
    def from_tag(cls, tag: str) -> QueueName:
        """The queue of `tag`, with or without braces. Raises InvalidValue."""
        parts = tag.strip("{}").split("/")
        if len(parts) == 2:
            return cls(parts[0], parts[1])
        if len(parts) == 3 and parts[2].isdecimal():
            return cls(parts[0], parts[1], int(parts[2]))
        raise InvalidValue("queue tag", expected="namespace/queue or namespace/queue/partition", got=tag)

    def __str__(self) -> str:
        return self.tag


def is_job_id(text: str) -> bool:
    """Whether `text` may name a job: 1 to 64 characters of A-Z a-z 0-9 . _ : -"""
    return _JOB_ID.match(text) is not None


def queues_key(namespace: str) -> str:
    """The registry of a namespace's queues: queue -> partitions. Another slot than any queue's keys."""
    return f"dw:{{{namespace}}}:queues"


class QueueKeys:
    """Every key of one queue. Names in scripts' headers are the names of these properties."""

    def __init__(self, name: QueueName) -> None:
        self.name = name
        self.prefix = f"dw:{{{name.tag}}}:"
        prefix = self.prefix
        self.meta = prefix + "meta"  #: HASH: schema version, seq, config and revision, flags, run id
        self.ready = prefix + "ready"  #: ZSET: seq
        self.prio = prefix + "prio"  #: ZSET: priority * 2^44 + seq
        self.delayed = prefix + "delayed"  #: ZSET: due ms * 1024 + seq mod 1024
        self.lease = prefix + "lease"  #: ZSET: lease end ms
        self.completed = prefix + "completed"  #: ZSET: end ms, and so the four below
        self.failed = prefix + "failed"
        self.dead = prefix + "dead"
        self.expired = prefix + "expired"
        self.cancelled = prefix + "cancelled"
        self.expiry = prefix + "x"  #: ZSET: expiry ms of the waiting jobs that have one
        self.wake = prefix + "wake"  #: ZSET: markers; score 0 = work now, else the next due ms
        self.events = prefix + "ev"  #: STREAM
        self.stats = prefix + "stats"  #: HASH: totals and histograms
        self.type_stats = prefix + "tstats"  #: HASH: "<type>|<what>"
        self.errors = prefix + "err"  #: LIST: the last error reports, the newest first
        self.types = prefix + "types"  #: HASH: type -> hash, JSON Schema; "@<template hash>" -> its types
        self.parked = prefix + "parked"  #: HASH: parked type -> jobs
        self.workers = prefix + "w"  #: HASH: owner -> heartbeat
        self.quiesce = prefix + "quiesce"  #: HASH: pod UID -> request and expiry
        self.leased = prefix + "leased"  #: HASH: pod UID -> leases held
        self.key_ids = prefix + "keys"  #: HASH: id of a key that seals values -> jobs
        self.owner = prefix + "owner"  #: STRING: the Queue object that owns this queue
        self.rate = prefix + "rate"  #: HASH: bucket -> starts; "w" = the bucket's width, ms
        self.key_counts = prefix + "kc"  #: HASH: concurrency key -> "<running> <may be claimed>"
        self.held_keys = prefix + "kh"  #: HASH: concurrency key -> jobs that wait aside
        self.cold = prefix + "cold"  #: STRING: the channel to publish on when work arrives
        self.cron = prefix + "cron"  #: HASH: schedule uid -> entry
        self.cron_at = prefix + "cronat"  #: ZSET: schedule uid -> next instant
        self.tick = prefix + "tick"  #: ZSET: "uid:instant" decided -> instant
        # Prefixes: a script adds an id by `record_key`.
        self.records = prefix + "j:"  #: HASH each
        self.envelopes = prefix + "d:"  #: STRING each
        self.outputs = prefix + "o:"  #: HASH each
        self.parked_types = prefix + "parked:"  #: ZSET each: seq
        self.receipts = prefix + "rc:"  #: HASH per owner: call number -> results
        self.held_jobs = prefix + "held:"  #: ZSET per concurrency key: scores as in ready and prio
        self.nudges = prefix + "ctl:"  #: LIST per owner
        self.minutes = prefix + "min:"  #: HASH per hour
        self.unique = prefix + "u:"  #: STRING per hash of a unique key: a letter of its end, and the job's id
        self.idempotency = prefix + "i:"  #: STRING per hash of an idempotency key: arguments' digest, job id
        self.plans = prefix + "plan:"  #: ZSET per schedule uid: next instants

    @cached_property
    def wake_channel(self) -> str:
        """Where a cold queue says that work has come."""
        return f"{WAKE_CHANNEL_PREFIX}{{{self.name.tag}}}"

    def record(self, job_id: str) -> str:
        return self.records + job_id

    def envelope(self, job_id: str) -> str:
        return self.envelopes + job_id

    def output(self, job_id: str) -> str:
        return self.outputs + job_id

    def nudge_list(self, owner: str) -> str:
        return self.nudges + owner

    def receipt(self, owner: str) -> str:
        return self.receipts + owner

    def parked_type(self, name: str) -> str:
        return self.parked_types + name

    def plan(self, uid: str) -> str:
        return self.plans + uid

    def __repr__(self) -> str:
        return f"QueueKeys({self.name.tag})"
