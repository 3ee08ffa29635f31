"""People's actions on a queue in memory: redrive, edit, purge, obliterate, repair, migrate."""

from __future__ import annotations

import hashlib

from dockwork.core.states import ENDED, RUNNING, State
from dockwork.store.action_calls import OBLITERATE_CHUNK, PURGE_CHUNK, read_edit
from dockwork.store.memory_digests import digest_of
from dockwork.store.memory_queue import MemoryQueue, Record, Turn
from dockwork.store.memory_seals import refresh
from dockwork.store.protocol import (
    Acted,
    JobChange,
    Migrated,
    Obliterated,
    Purge,
    Purged,
    Repaired,
    Resealed,
    Upkeep,
)

#: A worker that is silent for so long does not count.
_SILENT_MS = 60_000


def redrive(turn: Turn, job_id: str, digest: str, fresh: Resealed | None = None) -> Acted:
    """Put one ended job back with fresh counters, if it is as it was reviewed ("": whatever it is).

    fresh    what another key seals now
    """
    queue = turn.queue
    record = queue.records.get(job_id)
    if record is None:
        return Acted.MISSING
    again = record.state in ENDED and record.state is not State.COMPLETED
    if not again or (digest and digest != digest_of(record)):
        return Acted.CONFLICTED
    letter, key = record.lock[:1], record.lock[1:]
    if letter:
        holder = queue.locks.get(key, ("", "", None))
        other = queue.records.get(holder[1])
        valid = holder[0] == "t" or (
            other is not None and other.state not in ENDED and other.lock == holder[0] + key
        )
        if valid and holder[1] != job_id:
            return Acted.CONFLICTED
        queue.locks[key] = letter, job_id, None
    queue.ended[record.state].remove(job_id)
    queue.kept = max(0, queue.kept - record.kept_size)
    queue.bytes += record.size
    if fresh is not None:
        refresh(queue, record, fresh)
    record.ended = record.started = record.expires = None
    record.reason, record.owner, record.parked_type, record.cancel = "", "", "", False
    record.attempts = record.deliveries = record.interruptions = record.kept_size = 0
    record.waits_since = turn.ms
    turn.place(record, turn.next_seq(), "redriven")
    turn.tally("redriven")
    return Acted.OK


def edit(turn: Turn, job_id: str, revision: int, change: JobChange) -> Acted:
    """Change a waiting job that is still at `revision`."""
    queue = turn.queue
    record = queue.records.get(job_id)
    if record is None:
        return Acted.MISSING
    if record.state in RUNNING:
        return Acted.RUNNING
    if record.state in ENDED or record.revision != revision:
        return Acted.CONFLICTED
    if change.envelope is not None:
        _replace_envelope(queue, record, change.envelope)
        sealed = {"a": tuple(change.sealed.split(","))} if change.sealed else {}
        record.seals = {part: ids for part, ids in record.seals.items() if part != "a"} | sealed
    record.revision += 1
    moved = change.priority is not None and change.priority != record.priority
    due = change.due_at_ms if change.due_in_ms is None else turn.ms + change.due_in_ms
    stays = record.state in (State.PARKED, State.DELAYED) and due is None
    if due is not None or (moved and not stays):
        queue.leave_index(record)
    record.priority = record.priority if change.priority is None else change.priority
    if due is not None:
        _move_due(turn, record, due)
    elif moved and not stays:
        turn.place(record, record.seq, "reprioritised")
    turn.tally("edited")
    return Acted.OK


def _replace_envelope(queue: MemoryQueue, record: Record, envelope: bytes) -> None:
    size, most, limit = len(envelope), queue.number("max_payload", 262_144), queue.number("max_bytes", 2**31)
    after = queue.bytes + size - record.size
    if size > most:
        read_edit(queue.keys, record.id, f"!payload:{size}:{most}")
    if after > limit and after > queue.bytes:
        read_edit(queue.keys, record.id, f"!bytes:{after}:{limit}")
    record.envelope, record.size, queue.bytes = envelope, size, after


def _move_due(turn: Turn, record: Record, due: int) -> None:
    was = record.created if record.due is None else record.due
    if record.expires is not None:
        record.expires += due - was
        turn.queue.expiry.add(record.id, record.expires)
    record.due, record.waits_since, record.parked_type = due, None, ""
    if due > turn.ms:
        turn.postpone(record, due, "edited")
    else:
        turn.place(record, turn.next_seq(), "edited")


def look(queue: MemoryQueue, state: State, before_ms: int) -> Purge:
    """What a purge of one state means."""
    index = queue.ended[state]
    ids = index.between(None, before_ms, len(index))
    said = [state.value, str(before_ms), str(len(ids)), *ids[:1], *ids[-1:]]
    digest = hashlib.sha1("\n".join(said).encode(), usedforsecurity=False).hexdigest()
    return Purge(state=state, before_ms=before_ms, count=len(ids), digest=digest)


def purge(turn: Turn, purge: Purge) -> Purged:
    """Delete a part of what was counted, if it is still that."""
    queue = turn.queue
    found = look(queue, purge.state, purge.before_ms)
    if found.digest != purge.digest:
        return Purged(deleted=0, left=found, conflicted=True)
    ids = queue.ended[purge.state].page(0, min(found.count, PURGE_CHUNK))
    for job_id in ids:
        turn.note("obliterated", job_id, "purged")
    if ids:
        queue.drop_ended(purge.state, ids)
        turn.tally("purged", len(ids))
        found = look(queue, purge.state, purge.before_ms)
    return Purged(deleted=len(ids), left=found)


def obliterate(turn: Turn, token: str) -> Obliterated:
    """Delete a part of everything; the first call closes intake and claims, the last forgets the queue."""
    queue = turn.queue
    if not (queue.seq or queue.options or queue.types or queue.workers or queue.totals):
        return Obliterated(token=token, missing=True)
    if queue.obliterating is None:
        queue.obliterating = token
        for job_id in queue.lease.page(0, OBLITERATE_CHUNK):
            queue.nudge(queue.records[job_id].owner, f"cancel {job_id}", turn.ms)
    elif queue.obliterating != token:
        return Obliterated(token=queue.obliterating, deleted=queue.obliterated, conflicted=True)
    ids = list(queue.records)[:OBLITERATE_CHUNK]
    deleted = queue.obliterated + len(ids)
    if ids:
        for job_id in ids:
            queue.forget_job(job_id)
        queue.obliterated = deleted
        return Obliterated(token=token, deleted=deleted)
    queue.begin_anew()
    turn.add_event("obliterated", (), count=str(deleted))
    return Obliterated(token=token, deleted=deleted, done=True)


def repair(queue: MemoryQueue) -> Repaired:
    """Nothing is ever wrong here: each call is one step of this process, and none is lost in its midst."""
    return Repaired(checked=len(queue.records))


def migrate(turn: Turn, version: int) -> Migrated:
    """Raise the schema version, if every registered worker reads it."""
    queue = turn.queue
    if queue.schema >= version:
        return Migrated(version=queue.schema)
    beats = queue.workers.values()
    behind = [b.owner for b in beats if b.beat_ms >= turn.ms - _SILENT_MS and b.protocol < version]
    if not behind:
        queue.schema = version
    return Migrated(version=queue.schema, behind=tuple(behind))


def upkeep(turn: Turn) -> Upkeep:
    """What is there because nobody has taken it away yet."""
    queue = turn.queue
    remembered = sum(until > turn.ms for _, _, until in queue.idempotency.values())
    overdue = queue.lease.count(None, turn.ms - 1)
    first = queue.lease.first()
    late_ms = turn.ms - first if overdue and first is not None else 0
    return Upkeep(idempotency_keys=remembered, overdue=overdue, overdue_ms=late_ms)
