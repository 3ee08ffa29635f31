"""Which jobs were lost, and whose runs came twice: from the receipts alone, nothing of Dockwork is asked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchkit.receipts import RunSeen

#: How long a run's outcome may be on its way to a Redis that answers: a worker that is killed within that time after
#: a handler's end takes the outcome with it.
ON_ITS_WAY_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """What became of the acknowledged jobs.

    lost       acknowledged, and no run of it ever ended well
    again      runs beyond the first of a job's attempt
    foreign    jobs that ran again although no kill explains it
    """

    jobs: int
    lost: tuple[str, ...]
    again: int
    foreign: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return not self.lost and not self.foreign


def reckon(
    acknowledged: Iterable[str],
    runs: Sequence[RunSeen],
    killed: Mapping[str, float],
    outages: Sequence[tuple[float, float]] = (),
) -> Delivery:
    """Hold the runs against what was acknowledged and who was killed when.

    killed     worker -> the moment before its SIGKILL
    outages    spans in which Redis did not answer
    """
    wanted = set(acknowledged)
    ended = {run.job for run in runs if run.ended is not None and not run.failed}
    by_attempt: dict[tuple[str, int], list[RunSeen]] = defaultdict(list)
    for run in runs:
        by_attempt[run.job, run.attempt].append(run)
    foreign = {
        job
        for (job, _), mine in by_attempt.items()
        if not all(_died_with(run, killed, outages) for run in mine[:-1])
    }
    return Delivery(
        jobs=len(wanted),
        lost=tuple(sorted(wanted - ended)),
        again=sum(len(mine) - 1 for mine in by_attempt.values()),
        foreign=tuple(sorted(foreign)),
    )


def _died_with(run: RunSeen, killed: Mapping[str, float], outages: Sequence[tuple[float, float]]) -> bool:
    """Whether a kill may have taken the run, or the word of its end, with it."""
    at = killed.get(run.worker)
    if at is None:
        return False
    if run.ended is None:
        return True
    silent = sum(max(0.0, min(at, up) - max(run.ended, down)) for down, up in outages)
    return at - run.ended - silent <= ON_ITS_WAY_S
