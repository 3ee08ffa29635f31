"""One stored job's sealed values, sealed anew with the current key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dockwork.core.codec import open_envelope, with_args
from dockwork.core.sealed import KeyRing
from dockwork.core.sealing import CHECKPOINT, RESULT, Sealing
from dockwork.errors import EncryptionError, Undecodable
from dockwork.store.protocol import JobView, Reseal, Resealed, SealedJob

if TYPE_CHECKING:
    from dockwork.registry import JobType


def reseal_job(job_type: JobType[Any, Any] | None, job: SealedJob) -> Reseal | None:
    """What of `job` is to be written anew; without keys for nothing, None for a type that seals nothing here.

    Raises    EncryptionError, DecryptionError; Undecodable
    """
    if job_type is None or job_type.sealing is None:
        return None
    sealing, source = job_type.sealing, job_type.key_source
    ring, allow = source.ring(), source.allow_plaintext
    envelope = _envelope(sealing, ring, job.envelope, allow_plaintext=allow) if job.envelope else None
    checkpoint = _whole(sealing, ring, CHECKPOINT, job.checkpoint, allow_plaintext=allow)
    result = _whole(sealing, ring, RESULT, job.result, allow_plaintext=allow) if sealing.result else None
    values = {"a": envelope, "c": checkpoint, "r": result}
    keys = ",".join(f"{part}{ring.current}" for part, value in values.items() if value is not None)
    return Reseal(
        id=job.id, digest=job.digest, keys=keys, envelope=envelope, checkpoint=checkpoint, result=result
    )


def _envelope(sealing: Sealing, ring: KeyRing, data: bytes, *, allow_plaintext: bool) -> bytes | None:
    stored = json.loads(open_envelope(data).args)
    plain = sealing.open_args(stored, ring, allow_plaintext=allow_plaintext)
    if not plain.plain and plain.keys <= {ring.current}:
        return None
    return with_args(data, sealing.seal_args(plain.args, ring))


def _whole(
    sealing: Sealing, ring: KeyRing, what: str, data: bytes | None, *, allow_plaintext: bool
) -> bytes | None:
    if data is None:
        return None
    plain, key = sealing.open_whole(what, data, ring, allow_plaintext=allow_plaintext)
    return None if key == ring.current else sealing.seal_whole(what, plain, ring)


def resealed_view(job_type: JobType[Any, Any] | None, view: JobView) -> Resealed | None:
    """What of a job that runs again is to be written anew; None for nothing, and for what these keys do not open."""
    job = SealedJob(id=view.id, type=view.type, digest="", envelope=view.envelope, checkpoint=view.checkpoint)
    try:
        change = reseal_job(job_type, job)
    except (EncryptionError, Undecodable):
        return None
    if change is None or not change.keys:
        return None
    return Resealed(change.keys, change.envelope, change.checkpoint)
