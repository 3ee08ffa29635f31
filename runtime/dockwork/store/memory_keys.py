"""Unique and idempotency keys in memory: the rules of ``lua/lib/check_keys.lua`` and ``take_over.lua``."""

from __future__ import annotations

from dataclasses import dataclass

from dockwork.core.states import ENDED, RUNNING, State
from dockwork.store.memory_queue import MemoryQueue, Record, Turn
from dockwork.store.protocol import Admission, Admitted, JobKeys, NewJob, OnConflict

#: A lock's letter in front of its job's id, as Redis has it.
_LETTERS = {"start": "s", "finish": "f", "ttl": "t"}


@dataclass(frozen=True, slots=True)
class Holder:
    """The waiting job that takes a new one's arguments over."""

    record: Record
    keeps_place: bool

    @property
    def reason(self) -> str:
        return "replaced" if self.keeps_place else "debounced"


def check_keys(turn: Turn, job: NewJob, keys: JobKeys) -> Admission | Holder | None:
    """What the keys decide: an admission, whose place the job takes, or nothing."""
    queue = turn.queue
    if keys.idempotency:
        digest, known, until = queue.idempotency.get(keys.idempotency, ("", "", 0))
        if until > turn.ms:
            return _known(queue, known) if digest == keys.digest else _refused(job, "key_reuse", known)
    holder = _holder_of(turn, keys.unique) if keys.unique else None
    if holder is None:
        return None
    if keys.on_conflict is OnConflict.KEEP:
        return _known(queue, holder)
    record = queue.records.get(holder)
    if keys.on_conflict is OnConflict.REJECT or record is None or record.state in ENDED | RUNNING:
        return _refused(job, "unique", holder)
    return Holder(record, keys.on_conflict is OnConflict.REPLACE)


def _holder_of(turn: Turn, key: str) -> str | None:
    """The job that holds a unique key; a lock whose job is gone, ended or holds another is void, one by time is not."""
    letter, job_id, until = turn.queue.locks.get(key, ("", "", None))
    if until is not None:
        return job_id if until > turn.ms else None
    record = turn.queue.records.get(job_id)
    holds = record is not None and record.state not in ENDED and record.lock == letter + key
    return job_id if holds else None


def take_over(turn: Turn, holder: Holder) -> Record:
    """Take the waiting job out of its index; what it was before tells its place."""
    record, queue = holder.record, turn.queue
    queue.leave_index(record)
    queue.expiry.remove(record.id)
    queue.bytes -= record.size
    turn.tally(holder.reason)
    return record


def write_keys(turn: Turn, job: NewJob, record: Record, keys: JobKeys, holder: Holder | None) -> None:
    """Enter the locks and the idempotency key of a job that was stored under `record`."""
    queue = turn.queue
    if keys.unique:
        letter = _LETTERS[keys.until]
        record.lock = letter + keys.unique if letter != "t" else ""
        old = queue.locks.get(keys.unique, ("", "", None))
        if holder is not None and holder.record.lock not in ("", record.lock):
            queue.release_unique(holder.record)
        if not (holder is not None and holder.keeps_place and old[0] == letter):
            until = turn.ms + keys.ttl_ms if letter == "t" else None
            queue.locks[keys.unique] = letter, record.id, until
    if keys.idempotency:
        queue.idempotency[keys.idempotency] = keys.digest, record.id, turn.ms + keys.idempotency_ttl_ms


def _known(queue: MemoryQueue, job_id: str) -> Admission:
    record = queue.records.get(job_id)
    state: State | None = None if record is None else record.state
    return Admission(id=job_id, outcome=Admitted.DUPLICATE, state=state)


def _refused(job: NewJob, reason: str, holder: str) -> Admission:
    return Admission(id=job.id, outcome=Admitted.REJECTED, reason=reason, holder=holder)
