"""A Queue on a virtual cluster: pods, workers and jobs that follow the operator's real decisions.

Nothing is stubbed on the deciding side: each step observes, calls `decide_queue`, and carries the plan out on this
world. Time is a number; two minutes pass in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dockwork_operator.decide.memory import Memory, remember, seed_memory
from dockwork_operator.decide.plan import (
    Action,
    Applied,
    Configure,
    DeletionCost,
    Quiesce,
    Scale,
    Unquiesce,
)
from dockwork_operator.decide.queue import decide_queue, sampling
from dockwork_operator.decide.seen import (
    ContainerSeen,
    PodSeen,
    QueueSeen,
    RedisSeen,
    SampleSeen,
    WorkerSeen,
)
from dockwork_operator.models.queues import Queue
from support.decisions import (
    NOW,
    NOW_MS,
    OPERATOR,
    OURS,
    RUN,
    SAFE_SERVER,
    a_deployment,
    hash_of,
    other_children,
)

STEP_MS = 500
TICK_MS = 2000
BEAT_MS = 2000


def _at(ms: int) -> datetime:
    return NOW + timedelta(milliseconds=ms - NOW_MS)


@dataclass
class Pod:
    """A virtual worker pod: `ends` are the times at which its running jobs finish."""

    name: str
    created_ms: int
    ready_at_ms: int
    slots: int
    ends: list[tuple[int, int]] = field(default_factory=list)  #: (started, ends)
    ready_since_ms: int | None = None
    cost: int | None = None
    terminating_at_ms: int | None = None
    beat_ms: int = 0
    token: str = ""

    @property
    def uid(self) -> str:
        return f"{self.name}-uid"


@dataclass
class Simulation:
    """The world. `jobs` are durations in ms of the jobs that wait, oldest first."""

    queue: Queue
    pod_start_ms: int = 3000
    now_ms: int = NOW_MS
    replicas: int = 0
    version: int = 1
    jobs: list[tuple[int, int]] = field(default_factory=list)  #: (entered, duration)
    future: list[tuple[int, int]] = field(default_factory=list)  #: (due, duration)
    pods: list[Pod] = field(default_factory=list)
    flags: dict[str, tuple[str, int]] = field(default_factory=dict)
    entered: int = 0
    finished: int = 0
    killed_busy: int = 0
    waits_ms: list[int] = field(default_factory=list)
    peak: int = 0
    writes: int = 0
    generation: int = 0
    memory: Memory | None = None
    status: dict[str, object] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    made: int = 0
    horizon_ms: int = 25_000
    redis_up: bool = True

    def __post_init__(self) -> None:
        self._hash = hash_of(self.queue)
        self._deployment = a_deployment(self.queue)
        self._children = other_children(self.queue)

    # --- jobs and pods ---------------------------------------------------------------------------------

    def enqueue(self, number: int, duration_ms: int, in_ms: int = 0) -> None:
        if in_ms:
            self.future += [(self.now_ms + in_ms, duration_ms)] * number
            return
        self.jobs += [(self.now_ms, duration_ms)] * number
        self.entered += number

    def run(self, until: Callable[[Simulation], bool], within_s: float) -> float:
        """Steps until `until`; the seconds that passed. AssertionError when they are more than `within_s`."""
        began = self.now_ms
        while not until(self):
            assert self.now_ms - began < within_s * 1000, f"not within {within_s} s: {self.status}"
            self.step()
        return (self.now_ms - began) / 1000

    def step(self) -> None:
        self.now_ms += STEP_MS
        self._pass_time()
        if self.now_ms % TICK_MS == 0:
            self.reconcile()

    def _pass_time(self) -> None:
        due = [job for job in self.future if job[0] <= self.now_ms]
        self.future = [job for job in self.future if job[0] > self.now_ms]
        self.jobs += due
        self.entered += len(due)
        self.flags = {uid: flag for uid, flag in self.flags.items() if flag[1] > self.now_ms}
        for pod in list(self.pods):
            done = [job for job in pod.ends if job[1] <= self.now_ms]
            pod.ends = [job for job in pod.ends if job[1] > self.now_ms]
            self.finished += len(done)
            if pod.terminating_at_ms is not None and not pod.ends:
                self.pods.remove(pod)
                continue
            self._work(pod)
        staying = [pod for pod in self.pods if pod.terminating_at_ms is None]
        self.peak = max(self.peak, len(staying))
        for _ in range(self.replicas - len(staying)):
            self.made += 1
            started = self.now_ms + self.pod_start_ms
            self.pods.append(Pod(f"p{self.made:03}", self.now_ms, started, self.queue.spec.worker.slots))
        for pod in sorted(staying, key=self._kill_order)[: max(len(staying) - self.replicas, 0)]:
            pod.terminating_at_ms = self.now_ms
            self.killed_busy += len(pod.ends)

    def _work(self, pod: Pod) -> None:
        if self.now_ms < pod.ready_at_ms or not self.redis_up:
            return
        flagged = pod.uid in self.flags
        if self.now_ms - pod.beat_ms >= BEAT_MS:
            pod.beat_ms = self.now_ms
            pod.token = self.flags[pod.uid][0] if flagged else ""
        is_ready = not pod.token and pod.terminating_at_ms is None
        pod.ready_since_ms = (pod.ready_since_ms or self.now_ms) if is_ready else None
        if flagged or pod.terminating_at_ms is not None:
            return
        while self.jobs and len(pod.ends) < pod.slots:
            entered, duration = self.jobs.pop(0)
            self.waits_ms.append(self.now_ms - entered)
            pod.ends.append((self.now_ms, self.now_ms + duration))

    def _kill_order(self, pod: Pod) -> tuple[bool, int, int]:
        """A ReplicaSet's: not ready, lowest cost, youngest."""
        return (pod.ready_since_ms is not None, pod.cost or 0, -pod.created_ms)

    # --- the operator ----------------------------------------------------------------------------------

    def restart_operator(self) -> None:
        """Another process takes over: it knows what the status says."""
        self.memory = None

    def reconcile(self) -> None:
        now = _at(self.now_ms)
        if self.memory is None:
            self.memory = seed_memory(self.status, self.queue.spec.scaling.expected_duration, now)
        seen = self._seen()
        self.horizon_ms = sampling(self.queue, seen, self.memory).horizon_ms
        plan = decide_queue(self.queue, seen, self.memory, now)
        for action in plan.actions:
            self._carry_out(action)
        if plan.status is not None:
            self.writes += 1
            self.status = dict(plan.status)
        self.events += [event.reason for event in plan.events]
        self.memory = remember(plan, Applied(done=plan.actions, status_written=plan.status is not None), now)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Configure():
                self.generation = action.settings.generation
            case Scale():
                assert action.seen == self.replicas
                assert action.resource_version in (None, str(self.version))
                self.replicas = action.to
                self.version += 1
            case Quiesce():
                for uid, token in action.requests.items():
                    self.flags[uid] = (token, self.now_ms + 60_000)
            case Unquiesce():
                for uid in action.pods:
                    self.flags.pop(uid, None)
            case DeletionCost():
                next(pod for pod in self.pods if pod.uid == action.uid).cost = action.cost

    def _seen(self) -> QueueSeen:
        child = replace(self._deployment.child, resource_version=str(self.version))
        sample = RedisSeen(sample=self._sample(), server=SAFE_SERVER) if self.redis_up else RedisSeen()
        return QueueSeen(
            status=self.status,
            generation=1,
            deployment=replace(self._deployment, child=child, replicas=self.replicas),
            children=self._children,
            pods=tuple(self._pod_seen(pod) for pod in self.pods),
            redis=sample,
            operator=OPERATOR,
        )

    def _pod_seen(self, pod: Pod) -> PodSeen:
        return PodSeen(
            uid=pod.uid,
            name=pod.name,
            created=_at(pod.created_ms),
            template_hash=self._hash,
            replica_set="rs-1",
            node="node-1",
            ready=pod.ready_since_ms is not None,
            ready_since=_at(pod.ready_since_ms) if pod.ready_since_ms is not None else None,
            terminating=pod.terminating_at_ms is not None,
            deletion_cost=pod.cost,
            containers=(ContainerSeen(name="worker"),),
        )

    def _sample(self) -> SampleSeen:
        workers = tuple(
            WorkerSeen(
                owner=f"{pod.uid}/1",
                pod=pod.uid,
                slots=pod.slots,
                busy=len(pod.ends),
                state="Quiesced" if pod.token else "Running",
                quiesce_token=pod.token,
                longest_rest_ms=max((end - self.now_ms for _, end in pod.ends), default=0),
                mean_elapsed_ms=sum(self.now_ms - began for began, _ in pod.ends) // max(len(pod.ends), 1),
                beat_ms=pod.beat_ms,
            )
            for pod in self.pods
            if pod.beat_ms
        )
        return SampleSeen(
            time_ms=self.now_ms,
            run_id=RUN,
            entered=self.entered,
            finished=self.finished,
            ready=len(self.jobs),
            delayed=len(self.future),
            due_soon=sum(due <= self.now_ms + self.horizon_ms for due, _ in self.future),
            active=sum(len(pod.ends) for pod in self.pods),
            oldest_ms=self.now_ms - self.jobs[0][0] if self.jobs else 0,
            owner=OURS if self.generation else None,
            config_generation=self.generation,
            workers=workers,
            quiesced={uid: token for uid, (token, _) in self.flags.items()},
            leased={pod.uid: len(pod.ends) for pod in self.pods if pod.ends},
        )
