"""A new version replaces the old one: what the Deployment's rolling update shows, and when it must wait.

The update itself is the Deployment's. The operator looks, pauses it while too many old pods still finish their
jobs, reports, and never rolls back: the cause of a rollout that does not end may be the cluster's.
docs/guides/rollout.md tells it in prose.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from dockwork_operator.decide.memory import Interrupted, Memory
from dockwork_operator.decide.plan import Count
from dockwork_operator.decide.seen import DeploymentSeen, PodSeen, SampleSeen
from dockwork_operator.decide.victims import VICTIM_COST

DEADLINE = "ProgressDeadlineExceeded"

#: So long no live worker may know a parked job's type before it counts as stranded (OP-218).
STRANDED_AFTER = timedelta(seconds=60)

INTERRUPTED = "dockwork_jobs_interrupted_total"

#: The counter in Redis of jobs that workers put back at their end.
ABANDONED = "abandoned"


class State(StrEnum):
    """status.rollout.state."""

    COMPLETE = "Complete"
    PROGRESSING = "Progressing"
    HELD = "Held"
    STALLED = "Stalled"


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSeen:
    """Where the rolling update stands.

    rolling       pods of two templates live, or the declared one is not applied yet
    two_live      two ReplicaSets have pods that stay: a scale-down would shrink both
    overdue       the progress deadline passed; pods of the old template go on
    terminating   pods that finish their jobs
    """

    rolling: bool = False
    two_live: bool = False
    overdue: bool = False
    terminating: int = 0
    message: str = ""


def see_rollout(
    deployment: DeploymentSeen | None, pods: tuple[PodSeen, ...], template_hash: str
) -> RolloutSeen:
    """What the pods say; the Deployment's own conditions speak of pods of any template.

    template_hash   of the declared template
    """
    terminating = sum(pod.terminating for pod in pods if not pod.ended)
    if deployment is None:
        return RolloutSeen(terminating=terminating)
    staying = [pod for pod in pods if not pod.terminating and not pod.ended]
    old = [pod for pod in staying if pod.template_hash != template_hash]
    new_ready = sum(pod.ready for pod in staying if pod.template_hash == template_hash)
    rolling = bool(old)
    progressing = deployment.conditions.get("Progressing")
    overdue = (
        progressing is not None
        and progressing.reason == DEADLINE
        and progressing.status == "False"
        and deployment.template_hash == template_hash
    )
    return RolloutSeen(
        rolling=rolling,
        two_live=len({pod.replica_set for pod in staying}) > 1 or _differs(deployment, staying),
        overdue=overdue,
        terminating=terminating,
        message=f"{new_ready} of {len(staying)} pods are new and ready, {len(old)} are old"
        if rolling
        else "",
    )


def _differs(deployment: DeploymentSeen, staying: list[PodSeen]) -> bool:
    """The template was just applied: its controller will make a second ReplicaSet."""
    return any(pod.template_hash != deployment.template_hash for pod in staying)


def share(of: str | int, wanted: int) -> int:
    """An absolute number, or a percentage of `wanted`, rounded up."""
    if isinstance(of, int):
        return of
    return math.ceil(wanted * int(of.rstrip("%")) / 100)


def must_pause(rollout: RolloutSeen, max_terminating: str | int, wanted: int) -> bool:
    """A Deployment counts terminating pods as gone: it must wait while as many as allowed still end (OP-202)."""
    return rollout.rolling and rollout.terminating >= max(share(max_terminating, wanted), 1)


# --- interrupted jobs --------------------------------------------------------------------------------------


def count_interrupted(
    memory: Memory, pods: tuple[PodSeen, ...], sample: SampleSeen | None, template_hash: str
) -> tuple[Memory, tuple[Count, ...]]:
    """Jobs that a stopping worker put back, or that were cut with its container, by cause (OP-223)."""
    endings = dict(memory.endings)
    for pod in pods:
        if pod.terminating:
            endings[pod.uid] = cause_of(pod, memory, template_hash)
    put_back = _put_back(memory, sample, endings) if sample is not None else {}
    killed, ends = _killed(memory, pods)
    there = {pod.uid for pod in pods}
    leased = dict(sample.leased) if sample is not None else memory.leased
    memory = replace(
        memory,
        # A pod that is gone is kept until its leases are: its worker's last word may come after it.
        endings={uid: cause for uid, cause in endings.items() if uid in there or leased.get(uid)},
        abandoned=sample.totals.get(ABANDONED, 0) if sample is not None else memory.abandoned,
        ends_seen=ends,
        leased=leased,
        interrupted=Interrupted(
            requeued=memory.interrupted.requeued + sum(put_back.values()),
            killed=memory.interrupted.killed + sum(killed.values()),
        ),
    )
    causes = sorted(put_back.keys() | killed.keys())
    return memory, tuple(
        Count(metric=INTERRUPTED, by=put_back.get(cause, 0) + killed.get(cause, 0), labels={"cause": cause})
        for cause in causes
    )


def _put_back(memory: Memory, sample: SampleSeen, endings: Mapping[str, str]) -> dict[str, int]:
    """Redis counts what workers put back at their end; whose it was shows in whose leases went."""
    left = sample.totals.get(ABANDONED, 0) - (memory.abandoned or 0)
    if memory.abandoned is None or left <= 0:
        return {}
    counts: dict[str, int] = {}
    for uid, cause in sorted(endings.items()):
        went = memory.leased.get(uid, 0) - sample.leased.get(uid, 0)
        taken = min(left, max(went, 0))
        if taken:
            counts[cause] = counts.get(cause, 0) + taken
            left -= taken
    if left:
        rest = next(iter(endings.values()), "crash")
        counts[rest] = counts.get(rest, 0) + left
    return counts


def _killed(memory: Memory, pods: tuple[PodSeen, ...]) -> tuple[dict[str, int], frozenset[tuple[str, int]]]:
    """What containers held that ended by error or signal, and the ends that are counted."""
    counts: dict[str, int] = {}
    ends = set()
    for pod in pods:
        for end in _deaths(pod):
            ends.add(end)
            cut = 0 if end in memory.ends_seen else memory.leased.get(pod.uid, 0)
            if cut:
                cause = "eviction" if pod.disrupted else "crash"
                counts[cause] = counts.get(cause, 0) + cut
    return counts, frozenset(ends)


def cause_of(pod: PodSeen, memory: Memory, declared: str) -> str:
    """Why a pod ends: scale_down, rollout, or eviction, which also stands for a deletion by hand."""
    down = memory.scale_down
    if pod.disrupted:
        return "eviction"
    if pod.deletion_cost == VICTIM_COST or (down is not None and pod.uid in down.victims):
        return "scale_down"
    return "rollout" if pod.template_hash != declared else "eviction"


def _deaths(pod: PodSeen) -> list[tuple[str, int]]:
    """Ends of the worker container by error or signal, by restart count."""
    worker = pod.worker
    if worker is None:
        return []
    deaths = []
    if worker.ended is not None and worker.ended.exit_code != 0:
        deaths.append((pod.uid, worker.restarts))
    if worker.last_end is not None and worker.last_end.exit_code != 0:
        deaths.append((pod.uid, worker.restarts - 1))
    return deaths


# --- stranded jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Stranded:
    """Parked jobs that no live worker knows. since: from when on; 60 s later it is a condition."""

    count: int = 0
    first: str = ""
    types: tuple[str, ...] = ()
    since: datetime | None = None

    def holds(self, now: datetime) -> bool:
        return self.since is not None and now - self.since >= STRANDED_AFTER


def see_stranded(sample: SampleSeen, rolling: bool, since: datetime | None, now: datetime) -> Stranded:
    """Which parked jobs no live worker knows; a rollout may bring the worker that does."""
    known = {
        name
        for worker in sample.workers
        for job_type, schema in worker.schemas.items()
        for name in (job_type, f"{job_type}@{schema}")
    }
    unknown: Mapping[str, int] = {
        name: number for name, number in sample.parked_types.items() if number > 0 and name not in known
    }
    if rolling or not unknown:
        return Stranded()
    return Stranded(
        count=sum(unknown.values()),
        first=sample.parked_first,
        types=tuple(sorted(unknown))[:10],
        since=since or now,
    )
