"""What seals which part of a job in memory: the rules of ``lua/lib/reseal_run.lua`` and ``note_keys.lua``."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dockwork.core.sealed import key_of
from dockwork.core.sealing import sealed_text
from dockwork.core.states import ENDED, RUNNING, State
from dockwork.store.calls import RESULT_BYTES
from dockwork.store.memory_queue import MemoryQueue, Record
from dockwork.store.protocol import (
    NewJob,
    Outcome,
    Reseal,
    Resealed,
    Resealing,
    SealedJob,
    SealedPage,
    Settlement,
)


def read_parts(text: str) -> dict[str, tuple[str, ...]]:
    """``ak1,ck2,r`` as part -> ids."""
    parts: dict[str, tuple[str, ...]] = {}
    for word in filter(None, text.split(",")):
        part, key = word[0], word[1:]
        parts[part] = (*parts.get(part, ()), *((key,) if key else ()))
    return parts


def join_parts(seals: Mapping[str, tuple[str, ...]]) -> str:
    """The same as a record's `z` has it."""
    return ",".join(sorted(part + key for part, keys in seals.items() for key in keys))


def note_keys(record: Record, after: Mapping[str, tuple[str, ...]]) -> None:
    """Enter what seals the parts that were written."""
    record.seals = {part: keys for part, keys in {**record.seals, **after}.items() if keys}


def note_checkpoint(record: Record, value: bytes) -> None:
    """Enter what seals a checkpoint that was saved."""
    key = key_of(sealed_text(value))
    note_keys(record, {"c": (key,) if key else ()})


def reseal_run(queue: MemoryQueue, record: Record, settlement: Settlement, *, repeats: bool) -> None:
    """What a settle does to the sealed parts of a job, before its outcome does the rest."""
    resealed, completed = settlement.resealed, settlement.outcome is Outcome.COMPLETED
    if resealed is None and not record.seals:
        return
    after = {} if resealed is None else read_parts(resealed.keys)
    ends = completed and not repeats
    if completed or repeats:
        result = settlement.result
        after["c"] = ()
        if result is None or len(result) > RESULT_BYTES:
            after.pop("r", None)
        if (result is not None and len(result) <= RESULT_BYTES) or (repeats and completed):
            after.setdefault("r", ())
    if ends:
        after["a"] = ()
    if resealed is not None and not ends:
        if resealed.envelope is not None:
            rewrite(queue, record, resealed.envelope)
        if resealed.checkpoint is not None and not repeats:
            record.checkpoint = resealed.checkpoint
    note_keys(record, after)


def refresh(queue: MemoryQueue, record: Record, fresh: Resealed) -> None:
    """Put other values in the place of a job's that has not ended, and enter what seals them."""
    if fresh.envelope is not None:
        rewrite(queue, record, fresh.envelope)
    if fresh.checkpoint is not None:
        record.checkpoint = fresh.checkpoint
    note_keys(record, read_parts(fresh.keys))


def rewrite(queue: MemoryQueue, record: Record, envelope: bytes) -> None:
    """Put another envelope in the place of a job's, which has not ended."""
    queue.bytes += len(envelope) - record.size
    record.envelope, record.size = envelope, len(envelope)
    record.revision += 1


def digest_of(record: Record) -> str:
    """Of the three values that may be sealed."""
    values = (record.envelope, record.checkpoint or b"", record.result or b"")
    return hashlib.sha1(b"\n".join(values), usedforsecurity=False).hexdigest()


def envelope_digest(job: NewJob) -> str:
    """Of a job that a schedule makes."""
    return hashlib.sha1(job.envelope, usedforsecurity=False).hexdigest()


def sealed_page(
    queue: MemoryQueue, state: State, ids: Sequence[str], key: str, types: Sequence[str]
) -> SealedPage:
    """Those of `ids` of which something is not sealed by `key`."""
    jobs = []
    for job_id in ids:
        record = queue.records[job_id]
        stale = any(one != key for keys in record.seals.values() for one in keys)
        plain = "a" not in record.seals and record.type in types and state is not State.COMPLETED
        if stale or plain:
            jobs.append(
                SealedJob(
                    id=record.id,
                    type=record.type,
                    digest=digest_of(record),
                    envelope=record.envelope,
                    checkpoint=record.checkpoint,
                    result=record.result,
                )
            )
    return SealedPage(jobs=tuple(jobs), looked=len(ids))


def reseal(queue: MemoryQueue, change: Reseal) -> Resealing:
    """Write sealed values of one job anew, if it is as it was read."""
    record = queue.records.get(change.id)
    if record is None:
        return Resealing.MISSING
    if record.state in RUNNING:
        return Resealing.RUNNING
    if digest_of(record) != change.digest:
        return Resealing.CONFLICTED
    if change.envelope is not None:
        more = len(change.envelope) - record.size
        record.envelope, record.size = change.envelope, len(change.envelope)
        if record.state in ENDED:
            record.kept_size += more
            queue.kept += more
        else:
            queue.bytes += more
    if change.checkpoint is not None:
        record.checkpoint = change.checkpoint
    if change.result is not None:
        more = len(change.result) - len(record.result or b"")
        record.result = change.result
        if record.state is State.COMPLETED:
            record.kept_size += more
            queue.kept_completed += more
    note_keys(record, read_parts(change.keys))
    record.revision += 1
    return Resealing.OK


def count_keys(records: Iterable[Record]) -> dict[str, int]:
    """Jobs per key id."""
    counts: Counter[str] = Counter()
    for record in records:
        counts.update({key for keys in record.seals.values() for key in keys})
    return dict(counts)
