"""Storing new jobs in memory: checks, limits, and the place where each job waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dockwork.core.states import State
from dockwork.store.calls import key_hash
from dockwork.store.memory_keys import Holder, check_keys, take_over, write_keys
from dockwork.store.memory_queue import MemoryQueue, Record, Turn
from dockwork.store.protocol import Admission, Admitted, NewJob


def store_jobs(turn: Turn, jobs: Sequence[NewJob]) -> list[Admission]:
    """Check and store `jobs`; an admission each, in order."""
    queue = turn.queue
    admissions: list[Admission] = []
    enqueued = 0
    for job in jobs:
        known = queue.records.get(job.id)
        if known is not None:
            admissions.append(Admission(id=job.id, outcome=Admitted.DUPLICATE, state=known.state))
            continue
        met = None if job.keys is None else check_keys(turn, job, job.keys)
        holder = met if isinstance(met, Holder) else None
        said = _refuse(queue, job, holder) if holder is met else met
        if isinstance(said, Admission):
            if said.outcome is Admitted.REJECTED:
                turn.tally(f"rejected:{said.reason}")
            admissions.append(said)
            continue
        if holder is None:
            enqueued += 1
            record = _write_job(turn, job)
            admissions.append(Admission(id=job.id, outcome=Admitted.ACCEPTED, state=record.state))
        else:
            record = _write_over(turn, job, holder)
            said = Admission(
                id=record.id, outcome=Admitted.DUPLICATE, reason=holder.reason, state=record.state
            )
            admissions.append(said)
        if job.keys is not None:
            write_keys(turn, job, record, job.keys, holder)
    if enqueued:
        turn.tally("enqueued", enqueued)
    return admissions


def _refuse(queue: MemoryQueue, job: NewJob, holder: Holder | None = None) -> Admission | None:
    size, max_payload = len(job.envelope), queue.number("max_payload", 262_144)
    max_timeout, timeout = queue.options.get("max_timeout"), job.timeout_ms
    depth = queue.depth - (holder is not None)
    max_depth, max_bytes = queue.number("max_depth", 1_000_000), queue.number("max_bytes", 2**31)
    held_bytes = queue.bytes if holder is None else queue.bytes - holder.record.size
    if queue.closed:
        met = "closed", 0, 0
    elif size > max_payload:
        met = "payload", size, max_payload
    elif timeout is not None and max_timeout is not None and timeout > int(max_timeout):
        met = "timeout", timeout, int(max_timeout)
    elif depth >= max_depth:
        met = "depth", depth, max_depth
    elif held_bytes + size > max_bytes:
        met = "bytes", held_bytes, max_bytes
    else:
        return None
    reason, current, limit = met
    return Admission(id=job.id, outcome=Admitted.REJECTED, reason=reason, current=current, limit=limit)


def _write_over(turn: Turn, job: NewJob, holder: Holder) -> Record:
    """Write a job over the one that waits for its unique key: under that one's id, fenced by its epoch."""
    old = take_over(turn, holder)
    if holder.keeps_place:
        due = old.created if old.due is None else old.due
        job = replace(job, id=old.id, due_at_ms=due)
        record = _write_job(turn, job, old.seq, holder.reason)
    else:
        record = _write_job(turn, replace(job, id=old.id), reason=holder.reason)
    record.epoch = old.epoch
    return record


def _write_job(turn: Turn, job: NewJob, seq: int | None = None, reason: str = "") -> Record:
    queue, size = turn.queue, len(job.envelope)
    due = turn.ms + job.due_in_ms if job.due_at_ms is None else job.due_at_ms
    record = Record(
        id=job.id,
        type=job.type,
        state=State.READY,
        seq=turn.next_seq() if seq is None else seq,
        envelope=job.envelope,
        size=size,
        created=turn.ms,
        priority=job.priority,
        due=None if due == turn.ms else due,
        expires=None if job.expires_in_ms is None else due + job.expires_in_ms,
        scheduled_for=job.scheduled_for_ms,
        max_attempts=job.max_attempts,
        max_deliveries=job.max_deliveries,
        timeout=job.timeout_ms,
        keep=job.keep,
        repeat=job.repeat,
        seals={"a": tuple(job.sealed.split(","))} if job.sealed else {},
        key="" if job.concurrency_key is None else key_hash(job.concurrency_key),
        per_key=job.per_key,
    )
    queue.records[job.id] = record
    queue.bytes += size
    if record.expires is not None:
        queue.expiry.add(job.id, record.expires)
    if due > turn.ms:
        turn.postpone(record, due, reason)
    else:
        turn.place(record, record.seq, reason)
    return record
