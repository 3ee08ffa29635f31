"""Sealing stored values anew with the current key, so that an older one can be retired."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dockwork.core.codec import open_envelope, with_args
from dockwork.core.keys import QueueName
from dockwork.core.sealed import KeyRing
from dockwork.core.sealing import CHECKPOINT, RESULT, Sealing
from dockwork.core.states import RUNNING, State
from dockwork.errors import DecryptionError, Undecodable
from dockwork.registry import JobType, Registry
from dockwork.store.protocol import Reseal, Resealing, SealedJob, Store

#: Where waiting and kept jobs are; a running one is sealed anew when it is settled.
STATES = tuple(state for state in State if state not in RUNNING and state is not State.PAUSED)

#: Ids of jobs that could not be opened which a report names.
NAMED = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class ResealReport:
    """What a `reseal` did.

    looked       jobs looked at
    written      jobs that were sealed anew
    conflicted   jobs that somebody wrote or took meanwhile: call it again
    unknown      jobs of types that this process does not know, or that seal nothing here
    refused      jobs that these keys do not open, or with plain values that are refused; `unopened` names some
    left         jobs per id of a key other than the current one, when it was over: empty = they can be retired
    """

    looked: int = 0
    written: int = 0
    conflicted: int = 0
    unknown: int = 0
    refused: int = 0
    unopened: tuple[str, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict)


async def reseal_queue(
    store: Store,
    queue: QueueName,
    registry: Registry,
    told: Callable[[ResealReport], None] = lambda report: None,
) -> ResealReport:
    """Seal the waiting and kept jobs of `queue` anew where another key than the current one did, or none.

    In chunks, each job only if nobody wrote it meanwhile; again and again is the same as once.

    told      hears of each chunk
    Raises    EncryptionError without a key ring
    """
    types = [job_type for job_type in registry.values() if job_type.sealing is not None]
    report = ResealReport()
    if types:
        current = types[0].key_source.ring().current
        names = [job_type.name for job_type in types]
        for state in STATES:
            report = await _reseal_state(store, queue, registry, state, (current, names), report, told)
        counts = await store.key_ids(queue)
        report = replace(report, left={key: jobs for key, jobs in counts.items() if key != current})
    told(report)
    return report


async def _reseal_state(
    store: Store,
    queue: QueueName,
    registry: Registry,
    state: State,
    wanted: tuple[str, list[str]],
    report: ResealReport,
    told: Callable[[ResealReport], None],
) -> ResealReport:
    offset, (current, names) = 0, wanted
    while True:
        page = await store.sealed(queue, state, offset=offset, key=current, types=names)
        if not page.looked:
            return report
        offset += page.looked
        changes: list[Reseal] = []
        for job in page.jobs:
            try:
                change = reseal_job(registry.get(job.type), job)
            except (DecryptionError, Undecodable):
                named = (*report.unopened, job.id)[:NAMED]
                report = replace(report, refused=report.refused + 1, unopened=named)
            else:
                if change is None:
                    report = replace(report, unknown=report.unknown + 1)
                elif change.keys:
                    changes.append(change)
        said = await store.reseal(queue, changes) if changes else []
        done = said.count(Resealing.OK)
        report = replace(
            report,
            looked=report.looked + page.looked,
            written=report.written + done,
            conflicted=report.conflicted + sum(one in _AGAIN for one in said),
        )
        told(report)


_AGAIN = (Resealing.CONFLICTED, Resealing.RUNNING)


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
