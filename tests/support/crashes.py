"""A fleet in virtual time in which one job kills its worker whenever it runs: what becomes of the jobs beside it?"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from dockwork.core.keys import QueueName
from dockwork.core.states import ENDED, State
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import Lease, NewJob, Outcome, Owner, QueueConfig, RevokeCause, Settlement

QUEUE = QueueName("shop", "mail")
CULPRIT = "culprit"
STEP_S = 0.25
LONGEST_S = 4 * 3600.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the fleet is like.

    limit         deliveries that crash before a job is buried
    crash_s       how long the culprit runs before it takes its worker with it
    run_s         how long other jobs run: the n-th takes the n-th of these, in a circle
    back_off_s    how long a worker stays down after its n-th crash; the last repeats
    backlog       innocent jobs per slot
    at_once       jobs are taken back when the worker dies (by an operator), not when it is up again
    """

    slots: int
    limit: int
    workers: int = 1
    crash_s: float = 0.5
    run_s: tuple[float, ...] = (0.25, 1, 2, 5, 10)
    back_off_s: tuple[float, ...] = (10, 20, 40)
    backlog: int = 3
    at_once: bool = False


@dataclass(frozen=True)
class Result:
    """How it ended. charged: the deliveries that crashes cost the innocent job that lost most."""

    buried: int
    charged: int
    crashes: int
    took_s: float
    culprit: State


@dataclass
class _Worker:
    number: int
    boots: int = 0
    calls: int = 0
    up_at: float = 0.0
    dead: str = ""
    #: Job id -> its lease and when it ends.
    running: dict[str, tuple[Lease, float]] = field(default_factory=dict)

    @property
    def owner(self) -> Owner:
        return Owner(pod=f"pod-{self.number}", boot=f"{self.boots:016x}", container="worker")


class Fleet:
    """The workers of one `Plan`, on a store whose time stands still between two steps."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.store = MemoryStore(start=datetime(2026, 1, 1, tzinfo=UTC))
        self.workers = [_Worker(number) for number in range(plan.workers)]
        self.now = 0.0
        self.crashes = 0
        count = plan.slots * plan.workers * plan.backlog
        self.innocents = [f"job-{number}" for number in range(count)]

    async def run(self) -> Result:
        """Let time pass until every job has ended."""
        await self.store.configure(QUEUE, QueueConfig(max_deliveries=self.plan.limit), None)
        ids = list(self.innocents)
        ids.insert(self.plan.slots // 2, CULPRIT)
        jobs = [NewJob(id=one, type="t", envelope=b"{}") for one in ids]
        await self.store.enqueue(QUEUE, jobs)
        while not await self._is_over():
            assert self.now < LONGEST_S, "some jobs never end"
            for worker in self.workers:
                await self._step(worker)
            # Who waits longest is woken first, so each comes first in its turn.
            self.workers.append(self.workers.pop(0))
            self.now += STEP_S
            self.store.advance(STEP_S)
        views = [await self.store.get(QUEUE, one) for one in self.innocents]
        culprit = await self.store.get(QUEUE, CULPRIT)
        found = [view for view in views if view is not None]
        assert len(found) == len(views)
        assert culprit is not None
        buried = [view for view in found if view.state is State.DEAD]
        charged = max(view.interruptions for view in found)
        return Result(len(buried), charged, self.crashes, self.now, culprit.state)

    async def _is_over(self) -> bool:
        stats = await self.store.stats(QUEUE)
        ended = sum(stats.totals.get(state, 0) for state in ENDED)
        return ended == len(self.innocents) + 1

    async def _step(self, worker: _Worker) -> None:
        if worker.dead and (self.plan.at_once or worker.up_at <= self.now):
            # What a process does that finds the heartbeat of one that died in its container.
            await self.store.revoke(QUEUE, worker.dead, RevokeCause.DIED, "exit code 3")
            worker.dead = ""
        if worker.up_at > self.now:
            return
        over = {one: lease for one, (lease, ends) in worker.running.items() if ends <= self.now}
        if CULPRIT in over:
            self._crash(worker)
            return
        for one in over:
            del worker.running[one]
        worker.calls += 1
        settled = await self.store.settle(
            QUEUE,
            worker.owner,
            [Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in over.values()],
            number=worker.calls,
            claim_next=self.plan.slots - len(worker.running),
        )
        for claim in settled.claimed.claims:
            worker.running[claim.job_id] = claim.lease, self.now + self._span(claim.job_id)
        await self.store.renew(QUEUE, [lease for lease, _ in worker.running.values()], None)

    def _span(self, job_id: str) -> float:
        if job_id == CULPRIT:
            return self.plan.crash_s
        return self.plan.run_s[int(job_id.removeprefix("job-")) % len(self.plan.run_s)]

    def _crash(self, worker: _Worker) -> None:
        back_off = self.plan.back_off_s
        worker.up_at = self.now + back_off[min(worker.boots, len(back_off) - 1)]
        worker.dead = str(worker.owner)
        worker.running.clear()
        worker.boots += 1
        worker.calls = 0
        self.crashes += 1
