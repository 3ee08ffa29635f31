"""What a worker says of itself with each renewal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dockwork.store.protocol import Heartbeat, Owner, WorkerState
from dockwork.worker.lane import Lane
from dockwork.worker.runs import Run

#: Of the longest running jobs, so many are named.
NAMED = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """What stays the same in all beats of a process."""

    owner: Owner
    pod_name: str = ""
    template_hash: str = ""
    version: str = ""
    schemas: Mapping[str, str]


def compose_beat(
    who: Identity, lane: Lane, *, now: float, draining: bool, lag_s: float, drained: int = 0
) -> Heartbeat:
    """The beat of one lane at `now`, on this process' monotonic clock. Any thread may call it."""
    working = list(lane.working)
    rests = {run: estimate_rest(run, lane.mean_s.get(run.claim.type), now) for run in working}
    longest = sorted(working, key=lambda run: run.started_at)[:NAMED]
    elapsed = [now - run.started_at for run in working]
    return Heartbeat(
        owner=str(who.owner),
        pod=who.owner.pod,
        container=who.owner.container,
        pod_name=who.pod_name,
        template_hash=who.template_hash,
        version=who.version,
        slots=lane.slots,
        busy=len(working),
        state=_state(lane, draining),
        quiesce_token=lane.quiesce_token if has_come_to_rest(lane) else "",
        longest_rest_ms=_ms(max(rests.values(), default=0.0)),
        mean_elapsed_ms=_ms(sum(elapsed) / len(elapsed)) if elapsed else 0,
        jobs=tuple((run.lease.job_id, run.started_ms, _ms(rests[run])) for run in longest),
        types=tuple(who.schemas),
        schemas=who.schemas,
        lag_ms=_ms(lag_s),
        rss_bytes=resident_bytes(),
        drained=drained,
        requeued=lane.tally.requeued,
        lost=lane.tally.lost,
    )


def has_come_to_rest(lane: Lane) -> bool:
    """A quiesced lane that claims nothing and runs nothing: only then is the request's token repeated."""
    return lane.quiesced and lane.is_quiet and not lane.working


def estimate_rest(run: Run, mean_s: float | None, now: float) -> float:
    """Seconds that `run` will still take, at most until its hard timeout.

    By its type's mean run time; past that, as long again as it ran already.
    Source    the Lindy rule for what outlived its mean: ours
    """
    elapsed = max(now - run.started_at, 0.0)
    rest = mean_s - elapsed if mean_s is not None and mean_s > elapsed else elapsed
    return min(rest, max(run.hard_at - now, 0.0))


def resident_bytes() -> int:
    """This process' resident memory; 0 where /proc does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _state(lane: Lane, draining: bool) -> WorkerState:
    if draining:
        return WorkerState.DRAINING
    return WorkerState.QUIESCED if lane.quiesced else WorkerState.RUNNING


def _ms(seconds: float) -> int:
    return max(int(seconds * 1000), 0)
