"""Storing new jobs in memory: checks, limits, and the place where each job waits."""

from __future__ import annotations

from collections.abc import Sequence

from dockwork.core.states import State
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
        refusal = _refuse(queue, job)
        if refusal is not None:
            turn.tally(f"rejected:{refusal.reason}")
            admissions.append(refusal)
            continue
        enqueued += 1
        record = _write_job(turn, job)
        admissions.append(Admission(id=job.id, outcome=Admitted.ACCEPTED, state=record.state))
    if enqueued:
        turn.tally("enqueued", enqueued)
    return admissions


def _refuse(queue: MemoryQueue, job: NewJob) -> Admission | None:
    size, max_payload = len(job.envelope), queue.number("max_payload", 262_144)
    max_timeout, timeout = queue.options.get("max_timeout"), job.timeout_ms
    depth = queue.claimable + len(queue.delayed) + len(queue.lease) + queue.parked_jobs
    max_depth, max_bytes = queue.number("max_depth", 1_000_000), queue.number("max_bytes", 2**31)
    if queue.closed:
        met = "closed", 0, 0
    elif size > max_payload:
        met = "payload", size, max_payload
    elif timeout is not None and max_timeout is not None and timeout > int(max_timeout):
        met = "timeout", timeout, int(max_timeout)
    elif depth >= max_depth:
        met = "depth", depth, max_depth
    elif queue.bytes + size > max_bytes:
        met = "bytes", queue.bytes, max_bytes
    else:
        return None
    reason, current, limit = met
    return Admission(id=job.id, outcome=Admitted.REJECTED, reason=reason, current=current, limit=limit)


def _write_job(turn: Turn, job: NewJob) -> Record:
    queue, size = turn.queue, len(job.envelope)
    due = turn.ms + job.due_in_ms if job.due_at_ms is None else job.due_at_ms
    record = Record(
        id=job.id,
        type=job.type,
        state=State.READY,
        seq=turn.next_seq(),
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
    )
    queue.records[job.id] = record
    queue.bytes += size
    if record.expires is not None:
        queue.expiry.add(job.id, record.expires)
    if due > turn.ms:
        turn.postpone(record, due)
    else:
        turn.place(record, record.seq)
    return record
