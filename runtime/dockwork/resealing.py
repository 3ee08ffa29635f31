"""Sealing stored values anew with the current key, so that an older one can be retired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, cast

from dockwork.core.keys import QueueName
from dockwork.core.states import RUNNING, State
from dockwork.errors import DecryptionError, Undecodable
from dockwork.registry import Registry
from dockwork.sealed_jobs import reseal_job
from dockwork.store.partitioned import Partitioned
from dockwork.store.protocol import Reseal, Resealing, Store

if TYPE_CHECKING:
    from dockwork.client import Client

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
    left         jobs and schedules per id of a key other than the current one, when it was over: empty = they can go
    """

    looked: int = 0
    written: int = 0
    conflicted: int = 0
    unknown: int = 0
    refused: int = 0
    unopened: tuple[str, ...] = ()
    left: Mapping[str, int] = field(default_factory=dict)


async def key_counts(client: Client, queue: str | None) -> dict[str, int]:
    """Jobs per key id, of one queue or of all of the namespace."""
    counts: Counter[str] = Counter()
    for name in [queue] if queue is not None else await client.queues():
        for part in await _parts(client, name):
            counts.update(await client.store.key_ids(part))
    return dict(sorted(counts.items()))


async def reseal_queues(
    client: Client, registry: Registry, queue: str | None, told: Callable[[ResealReport], None]
) -> ResealReport:
    """`reseal_queue` for one queue or for all of the namespace, partition by partition; one report."""
    report = ResealReport()
    for name in [queue] if queue is not None else await client.queues():
        for part in await _parts(client, name):
            tell = partial(_tell_together, told, report)
            report = _together(report, await reseal_queue(client.store, part, registry, tell))
    return report


async def _parts(client: Client, queue: str) -> tuple[QueueName, ...]:
    """The partitions of a queue, or just itself."""
    name, store = client.name(queue), cast(object, client.store)
    return await store.names(name) if isinstance(store, Partitioned) else (name,)


def _tell_together(told: Callable[[ResealReport], None], before: ResealReport, now: ResealReport) -> None:
    told(_together(before, now))


def _together(one: ResealReport, other: ResealReport) -> ResealReport:
    return ResealReport(
        looked=one.looked + other.looked,
        written=one.written + other.written,
        conflicted=one.conflicted + other.conflicted,
        unknown=one.unknown + other.unknown,
        refused=one.refused + other.refused,
        unopened=(*one.unopened, *other.unopened)[:NAMED],
        left=dict(Counter(one.left) + Counter(other.left)),
    )


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
        report = await _reseal_schedules(store, queue, registry, (current, names), report)
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


async def _reseal_schedules(
    store: Store, queue: QueueName, registry: Registry, wanted: tuple[str, list[str]], report: ResealReport
) -> ResealReport:
    current, names = wanted
    for found in await store.sealed_schedules(queue, key=current, types=names):
        report = replace(report, looked=report.looked + 1)
        try:
            change = reseal_job(registry.get(found.type), found)
        except (DecryptionError, Undecodable):
            named = (*report.unopened, found.id)[:NAMED]
            report = replace(report, refused=report.refused + 1, unopened=named)
            continue
        if change is None or change.envelope is None:
            report = replace(report, unknown=report.unknown + 1)
            continue
        said = await store.reseal_schedule(
            queue, found.id, found.digest, key=current, envelope=change.envelope
        )
        report = replace(
            report,
            written=report.written + (said is Resealing.OK),
            conflicted=report.conflicted + (said is Resealing.CONFLICTED),
        )
    return report


_AGAIN = (Resealing.CONFLICTED, Resealing.RUNNING)
