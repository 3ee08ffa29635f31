"""Chaos: jobs run while workers and Redis are killed at random and the fleet is rolled again and again.

    make chaos                 100,000 jobs, a seed of its own
    make chaos SEED=7          the same plan again

The Redis is the run's own, on loopback, with an append-only file that is synced before each answer (`appendfsync
always`): what was acknowledged is on disk, so none of it may be lost by a SIGKILL. A producer stores jobs with ids of
its own and asks again under the same ids after a lost answer. 1 % of the jobs fail once on purpose, 2 % are delayed,
2 % have a priority, 10 % run in threads, of 10 % only two of the same account may run at once. Most take up to 20 ms,
some up to 2 s. Each handler leaves receipts, and they alone say what ran.

Held: every acknowledged job ran to its end and is completed in Redis, once by its counters; a job ran again only
where the SIGKILL of a worker took the run, or the word of its end, with it. A worker that is told to end (SIGTERM)
finishes what it runs. The seed fixes the jobs and the order of the blows; when each lands depends on the machine.

The last line has the figures. Exit code 1: a job was lost, or ran again without a kill that explains it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import chaos_app
from benchkit.receipts import read_receipts
from benchkit.reckoning import Delivery, reckon
from dockwork.core.states import State
from dockwork.errors import DockworkError, OutcomeUnknown, StoreUnavailable
from dockwork.registry import Item
from dockwork.store.protocol import Admitted, QueueStats
from support.redis_server import RedisServer, die_with_parent

ROOT = Path(__file__).resolve().parent.parent
#: How long a worker may take to its first claim on a busy machine, with Redis down for a part of it.
START_S = 120
ENDED = (State.COMPLETED, State.FAILED, State.DEAD, State.EXPIRED, State.CANCELLED)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run does, from its arguments.

    rate          jobs a second that the producer stores, at most
    worker_every  mean seconds between two kills of a worker; likewise redis_every
    roll_every    seconds from the end of one rolling restart to the next
    lease         seconds; what a killed worker ran comes back after it
    patience      seconds without any progress after which the rest counts as lost
    """

    seed: int
    jobs: int
    rate: int
    workers: int
    slots: int
    worker_every: float
    redis_every: float
    roll_every: float
    lease: float
    patience: float
    partitions: int


@dataclass
class Worker:
    """One worker process. `name` is in its receipts."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def runs(self) -> bool:
        """Whether it lives and has begun to claim."""
        return self.process.poll() is None and b'"worker_runs"' in self.log.read_bytes()

    async def until_it_runs(self) -> None:
        """Return when it claims, or was killed. Raises SystemExit if it ended by itself."""
        deadline = time.monotonic() + START_S
        while not self.runs():
            code = self.process.poll()
            if code == -signal.SIGKILL:
                return
            if code is not None or time.monotonic() > deadline:
                said = f"ended with {code}" if code is not None else f"does not run after {START_S} s"
                raise SystemExit(f"worker {self.name} {said}:\n{self.log.read_text()[-3000:]}")
            await asyncio.sleep(0.05)


@dataclass
class Blows:
    """What was done to the run."""

    killed: dict[str, float] = field(default_factory=dict)
    outages: list[tuple[float, float]] = field(default_factory=list)
    rolled: int = 0
    exits: list[tuple[str, int]] = field(default_factory=list)

    def each_landed(self) -> bool:
        """Whether there was at least one of each kind: a run without proves nothing."""
        return bool(self.killed and self.outages and self.rolled)


class Fleet:
    """The workers: each place has one, and a new one when that is killed or rolled."""

    def __init__(self, plan: Plan, folder: Path, url: str) -> None:
        self.folder = folder
        self.receipts = folder / "receipts"
        self._plan = plan
        self._url = url
        self._started = 0
        self.places: list[Worker] = []
        self.leaving: list[Worker] = []

    def start(self, pod: str | None = None) -> Worker:
        """A new worker. In the `pod` of a killed one it is its successor, and may take over at once."""
        self._started += 1
        name = f"w{self._started}"
        environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("bench", "tests", "runtime")),
            "CHAOS_WORKER": name,
            "CHAOS_RECEIPTS": str(self.receipts),
            "CHAOS_LEASE": str(self._plan.lease),
            "CHAOS_PARTITIONS": str(self._plan.partitions),
            "DOCKWORK_REDIS_URL": self._url,
            "DOCKWORK_NAMESPACE": "chaos",
            "DOCKWORK_QUEUES": f"chaos={self._plan.slots}",
            "DOCKWORK_POD_UID": pod or name,
            "DOCKWORK_CONTAINER": "worker",
            "DOCKWORK_DRAIN_TIMEOUT": "60s",
            "DOCKWORK_LOG_FORMAT": "json",
        }
        path = self.folder / f"{name}.log"
        with path.open("wb") as log:
            command = [sys.executable, "-m", "dockwork", "worker", "chaos_app:app"]
            process = subprocess.Popen(
                command, env=environ, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        return Worker(name, process, path)

    def close(self) -> None:
        """Kill whoever still lives."""
        for worker in [*self.places, *self.leaving]:
            if worker.process.poll() is None:
                worker.process.kill()
            worker.process.wait(10)


class Chaos:
    """One run."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.server = RedisServer(port=0, aof=True, folder=folder)
        self.fleet = Fleet(plan, folder, self.server.url)
        self.blows = Blows()
        self.acknowledged: set[str] = set()
        self.over = asyncio.Event()
        os.environ |= {"DOCKWORK_REDIS_URL": self.server.url, "DOCKWORK_NAMESPACE": "chaos"}
        os.environ |= {"CHAOS_LEASE": str(plan.lease)}
        self._app = chaos_app.app
        chaos_app.declare(plan.partitions)

    async def run(self) -> tuple[Delivery, QueueStats]:
        """Strike until all jobs have ended, then reckon."""
        self.server.start()
        try:
            self.fleet.places = [self.fleet.start() for _ in range(self.plan.workers)]
            for worker in self.fleet.places:
                await worker.until_it_runs()
            async with asyncio.TaskGroup() as group:
                blows = [
                    group.create_task(blow()) for blow in (self.kill_workers, self.kill_redis, self.roll)
                ]
                await self.produce()
                stats = await self.until_ended()
                self.over.set()
                await asyncio.gather(*blows)
            await self.end_fleet()
            delivery = reckon(
                self.acknowledged, read_receipts(self.fleet.receipts), self.blows.killed, self.blows.outages
            )
            return delivery, stats
        finally:
            self.fleet.close()
            await self._app.close()
            self.server.kill()

    # --- the load

    async def produce(self) -> None:
        """Store all jobs, at most `rate` a second, each batch until it is known."""
        began = time.monotonic()
        size = min(100, max(1, self.plan.rate // 10))
        for at, batch in enumerate(batches(self.plan, size)):
            await asyncio.sleep(max(0.0, began + at * size / self.plan.rate - time.monotonic()))
            await self._until_known(batch)

    async def _until_known(self, batch: list[Item[Any]]) -> None:
        while True:
            try:
                admissions = await self._app.enqueue_many(batch)
            except (OutcomeUnknown, StoreUnavailable):
                await asyncio.sleep(0.05)
                continue
            for admission in admissions:
                if admission.outcome is Admitted.REJECTED:
                    raise SystemExit(f"{admission.id} was rejected: {admission.reason}")
                self.acknowledged.add(admission.id)
            return

    async def until_ended(self) -> QueueStats:
        """The queue's figures once no job is left, or nothing has moved for too long."""
        last, moved, said = -1, time.monotonic(), 0.0
        while True:
            stats = await self._stats()
            ended = sum(stats.counts.get(state, 0) for state in ENDED)
            now = time.monotonic()
            if now - said > 5:
                said = now
                print(f"{ended} of {self.plan.jobs} ended; {self._so_far()}", file=sys.stderr, flush=True)
            if ended >= self.plan.jobs and self.blows.each_landed():
                return stats
            if ended != last:
                last, moved = ended, now
            if now - moved > self.plan.patience:
                print(f"nothing moved for {self.plan.patience:g} s: {dict(stats.counts)}", file=sys.stderr)
                return stats
            await asyncio.sleep(0.1)

    async def _stats(self) -> QueueStats:
        while True:
            try:
                return await self._app.stats("chaos")
            except DockworkError:
                await asyncio.sleep(0.05)

    def _so_far(self) -> str:
        blows = self.blows
        return f"{len(blows.killed)} workers killed, {len(blows.outages)} Redis kills, {blows.rolled} rolled"

    # --- the blows

    async def kill_workers(self) -> None:
        """SIGKILL one of the running workers, the leaving ones included; half of the new ones have the same pod."""
        dice = random.Random(f"{self.plan.seed} workers")
        async for _ in self._moments(dice, self.plan.worker_every):
            living = [worker for worker in (*self.fleet.places, *self.fleet.leaving) if worker.runs()]
            choice, same_pod = dice.random(), dice.random() < 0.5
            if not living:
                continue
            victim = living[int(choice * len(living))]
            self.blows.killed[victim.name] = time.monotonic()
            victim.process.kill()
            await asyncio.to_thread(victim.process.wait)
            if victim in self.fleet.places:
                pod = victim.name if same_pod else None
                self.fleet.places[self.fleet.places.index(victim)] = self.fleet.start(pod)

    async def kill_redis(self) -> None:
        """SIGKILL Redis, and start it again after up to 2 s, with what its append-only file has."""
        dice = random.Random(f"{self.plan.seed} redis")
        async for _ in self._moments(dice, self.plan.redis_every):
            pause = dice.uniform(0, 2)
            down = time.monotonic()
            await asyncio.to_thread(self.server.kill)
            await asyncio.sleep(pause)
            await asyncio.to_thread(self.server.start)
            self.blows.outages.append((down, time.monotonic()))

    async def roll(self) -> None:
        """Replace each worker: a new one first, SIGTERM when that runs, then wait for the old one's end."""
        dice = random.Random(f"{self.plan.seed} rolls")
        async for _ in self._moments(dice, self.plan.roll_every):
            for place in range(self.plan.workers):
                old = self.fleet.places[place]
                self.fleet.leaving.append(old)
                self.fleet.places[place] = self.fleet.start()
                await self.fleet.places[place].until_it_runs()
                await self._until_left(old)
                self.fleet.leaving.remove(old)
                self.blows.rolled += 1
                if self.over.is_set():
                    return

    async def _until_left(self, worker: Worker) -> None:
        if worker.process.poll() is None:
            worker.process.send_signal(signal.SIGTERM)
        code = await asyncio.to_thread(worker.process.wait)
        if worker.name not in self.blows.killed:
            self.blows.exits.append((worker.name, code))

    async def _moments(self, dice: random.Random, mean: float) -> AsyncIterator[None]:
        while True:
            pause = mean * dice.uniform(0.5, 1.5)
            try:
                async with asyncio.timeout(pause):
                    await self.over.wait()
                return
            except TimeoutError:
                yield None

    async def end_fleet(self) -> None:
        await asyncio.gather(*(self._until_left(worker) for worker in self.fleet.places))


def batches(plan: Plan, size: int) -> Iterator[list[Item[Any]]]:
    """The jobs of a plan, the same for the same seed."""
    dice = random.Random(f"{plan.seed} jobs")
    items: list[Item[Any]] = []
    for number in range(plan.jobs):
        items.append(_item(number, dice))
        if len(items) == size or number == plan.jobs - 1:
            yield items
            items = []


def _item(number: int, dice: random.Random) -> Item[Any]:
    ms = dice.choices((dice.randrange(20), dice.randrange(50, 200), dice.randrange(500, 2000)), (950, 49, 1))[
        0
    ]
    fail_once, delayed, urgent = (dice.random() < share for share in (0.01, 0.02, 0.02))
    kind = dice.random()
    delay = dice.uniform(0.5, 5) if delayed else 0.0
    options: dict[str, Any] = {
        "id": f"j{number}",
        "priority": dice.choice((-5, 5)) if urgent else 0,
        "delay": delay,
    }
    if kind < 0.1:
        account = dice.randrange(50)
        return chaos_app.step_of_account.options(**options).item(account=account, ms=ms, fail_once=fail_once)
    type_ = chaos_app.step_in_thread if kind < 0.2 else chaos_app.step
    return type_.options(**options).item(ms=ms, fail_once=fail_once)


def figures(
    plan: Plan, delivery: Delivery, stats: QueueStats, blows: Blows, seconds: float
) -> dict[str, Any]:
    """The last line, by name."""
    return {
        "seed": plan.seed,
        "jobs": delivery.jobs,
        "lost": len(delivery.lost),
        "foreign": len(delivery.foreign),
        "again": delivery.again,
        "completed": stats.counts.get(State.COMPLETED, 0),
        "counted": stats.totals.get("completed", 0),
        "workers_killed": len(blows.killed),
        "redis_killed": len(blows.outages),
        "rolled": blows.rolled,
        "odd_exits": sum(code != 0 for _, code in blows.exits),
        "seconds": round(seconds, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def fails(said: dict[str, Any]) -> bool:
    """Whether a run's figures break the promise."""
    all_there = said["completed"] == said["counted"] == said["jobs"]
    return bool(said["lost"] or said["foreign"]) or not all_there


def plan_of(arguments: Sequence[str] | None = None) -> tuple[Plan, Path | None, Path | None]:
    """The plan, and the folders of --keep and --out."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    options.add_argument("--jobs", type=int, default=100_000)
    options.add_argument("--rate", type=int, default=1_500, help="jobs stored a second, at most")
    options.add_argument("--workers", type=int, default=4)
    options.add_argument("--slots", type=int, default=25, help="of each worker")
    options.add_argument(
        "--worker-every", type=float, default=3, help="mean seconds between kills of a worker"
    )
    options.add_argument("--redis-every", type=float, default=15, help="mean seconds between kills of Redis")
    options.add_argument("--roll-every", type=float, default=8, help="mean seconds between rolling restarts")
    options.add_argument("--lease", type=float, default=5, help="seconds")
    options.add_argument(
        "--patience", type=float, default=120, help="seconds without progress: the rest is lost"
    )
    options.add_argument("--partitions", type=int, default=1, help="of the queue")
    options.add_argument("--out", type=Path, help="append the figures to <out>/<date>/chaos.jsonl")
    options.add_argument(
        "--keep", type=Path, help="leave logs, receipts and the append-only file in this folder"
    )
    said = vars(options.parse_args(arguments))
    keep, out = said.pop("keep"), said.pop("out")
    return Plan(**said), keep, out


def main() -> int:
    plan, keep, out = plan_of()
    print(f"seed {plan.seed}; {plan}", file=sys.stderr, flush=True)
    folder = Path(tempfile.mkdtemp(prefix="dwc")) if keep is None else keep
    folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        delivery, stats, blows = asyncio.run(_carry_out(plan, folder))
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    said = figures(plan, delivery, stats, blows, time.monotonic() - began)
    for what, ids in (("lost", delivery.lost), ("ran again without a kill", delivery.foreign)):
        if ids:
            print(f"{what}: {', '.join(ids[:20])}{' ...' if len(ids) > 20 else ''}", file=sys.stderr)
    for name, code in blows.exits:
        if code:
            print(f"worker {name} ended with {code}", file=sys.stderr)
    if out is not None:
        path = out / datetime.now(UTC).strftime("%Y-%m-%d") / "chaos.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(said) + "\n")
    print("chaos " + " ".join(f"{name}={value}" for name, value in said.items()), flush=True)
    return 1 if fails(said) else 0


async def _carry_out(plan: Plan, folder: Path) -> tuple[Delivery, QueueStats, Blows]:
    chaos = Chaos(plan, folder)
    delivery, stats = await chaos.run()
    return delivery, stats, chaos.blows


if __name__ == "__main__":
    sys.exit(main())
