"""Calls about sealed values: which keys are in use, what should be sealed anew, and its writing. Not sent here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dockwork.core.keys import QueueKeys
from dockwork.core.states import State
from dockwork.errors import require
from dockwork.store.calls import Arg, Call
from dockwork.store.protocol import Reseal, Resealing, SealedJob, SealedPage
from dockwork.store.views import to_counts

#: Jobs that one call looks at, and that one call writes; the latter in at most so many bytes.
LOOKED = 500
WRITTEN = 100
WRITTEN_BYTES = 1024 * 1024


def key_ids(keys: QueueKeys) -> Call[Mapping[str, int]]:
    """Jobs and schedules per id of the key that seals something of them."""

    def decode(reply: list[Any]) -> Mapping[str, int]:
        _, jobs, scheduled = reply
        counts = Counter(to_counts(jobs))
        counts.update(key.decode() for key in scheduled)
        return dict(counts)

    return Call("key_ids", keys, [], decode, reads=True)


def sealed_schedules(keys: QueueKeys, *, key: str, types: Sequence[str]) -> Call[list[SealedJob]]:
    """Schedules whose arguments are not sealed by `key`, 500 at most; the id of each is its uid."""

    def decode(reply: list[Any]) -> list[SealedJob]:
        return [_job([*row, None, None]) for row in reply[1:]]

    return Call("sealed_schedules", keys, [key, "\n".join(types)], decode, reads=True)


def reseal_schedule(keys: QueueKeys, uid: str, digest: str, key: str, envelope: bytes) -> Call[Resealing]:
    """Write a schedule's arguments anew, if they are as they were read."""
    args: list[Arg] = [uid, digest, key, envelope]
    return Call("reseal_schedule", keys, args, lambda reply: Resealing(reply[1].decode()))


def sealed(
    keys: QueueKeys, state: State, *, offset: int, key: str, types: Sequence[str], limit: int = LOOKED
) -> Call[SealedPage]:
    """Jobs of `state` of which something is not sealed by `key`."""

    def decode(reply: list[Any]) -> SealedPage:
        return SealedPage(jobs=tuple(_job(row) for row in reply[2:]), looked=int(reply[1]))

    require(0 < limit <= LOOKED, "limit", expected=f"1 to {LOOKED}", got=limit)
    args: list[Arg] = [state.value, offset, limit, key, "\n".join(types)]
    return Call("sealed", keys, args, decode, reads=True)


def _job(row: Sequence[Any]) -> SealedJob:
    # A Lua table ends at its first hole, but false in it comes as None.
    job_id, kind, digest, envelope, checkpoint, result = row
    return SealedJob(
        id=job_id.decode(),
        type=kind.decode(),
        digest=digest.decode(),
        envelope=envelope or b"",
        checkpoint=checkpoint,
        result=result,
    )


def reseal(keys: QueueKeys, changes: Sequence[Reseal]) -> Call[list[Resealing]]:
    """Write sealed values anew, of 1 to 100 jobs; each only if it is as it was read."""

    def decode(reply: list[Any]) -> list[Resealing]:
        said = [Resealing(word.decode()) for word in reply[1:]]
        if len(said) != len(changes):
            raise ValueError(len(said))
        return said

    require(0 < len(changes) <= WRITTEN, "jobs", expected=f"1 to {WRITTEN}", got=len(changes))
    args: list[Arg] = [len(changes)]
    for one in changes:
        args += (one.id, one.digest, one.keys, one.envelope or b"", one.checkpoint or b"", one.result or b"")
    return Call("reseal", keys, args, decode, [one.id for one in changes])


def reseal_batches(changes: Sequence[Reseal]) -> list[Sequence[Reseal]]:
    """`changes` in order, in chunks that one call takes."""
    batches: list[Sequence[Reseal]] = []
    first = size = 0
    for at, one in enumerate(changes):
        bytes_ = sum(len(value) for value in (one.envelope, one.checkpoint, one.result) if value is not None)
        if at > first and (at - first >= WRITTEN or size + bytes_ > WRITTEN_BYTES):
            batches.append(changes[first:at])
            first, size = at, 0
        size += bytes_
    if first < len(changes):
        batches.append(changes[first:])
    return batches
