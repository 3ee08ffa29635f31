"""The workloads A to G, each a function from a peer to the figures of one run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchkit.meters import rss_of_tree
from benchkit.peers import Peer
from benchkit.stages import HELD, Stage, tally
from dockwork.core.keys import QueueName
from dockwork.store.redis import RedisStore

Figures = dict[str, Any]

#: What a start-up may take: interpreters, imports, first connections, on a busy machine.
START_S = 30.0
#: The longest wait of G. Whoever needs longer is said to need more.
PATIENCE_S = 95.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much each workload does.

    share      of a peer's own number of jobs, for A, B and C
    pickups    jobs of D; `delayed` of E
    idle_s     how long F looks
    drain_s    after which C is given up
    """

    share: float = 1.0
    pickups: int = 100
    delayed: int = 200
    idle_s: float = 30.0
    drain_s: float = 90.0


QUICK = Sizes(share=0.1, pickups=20, delayed=40, idle_s=5.0, drain_s=30.0)


def fill_and_drain(peer: Peer, sizes: Sizes, environ: Mapping[str, str] | None = None) -> Figures:
    """A and C: single enqueues by one process, then one worker that drains them.

    C begins when a tenth has run, so that no start-up counts, and ends with the last job's start.
    """
    count = int(peer.jobs * sizes.share)
    with Stage(peer, environ) as stage:
        empty = stage.used_memory()
        stored = stage.produce("single", count)
        memory = (stage.used_memory() - empty) / count
        time.sleep(1.2)  # the next fsync of the AOF, outside of what is measured
        drained = _drain(stage, count, sizes.drain_s)
    return {
        "A": _per_job(stored, count) | {"memory_bytes": round(memory)},
        "C": drained,
    }


def _drain(stage: Stage, count: int, within: float) -> Figures:
    worker = stage.start()
    warm = max(1, count // 10)
    if not stage.until(warm, START_S):
        raise RuntimeError(f"{stage.peer.name}: nothing ran in {START_S} s\n{stage.log()}")
    before, began = stage.meters(worker), stage.seen()
    # One job more: the one that opened the producer's connections.
    done = stage.until(count + 1, within)
    spent = stage.meters(worker).since(before)
    rss = rss_of_tree(worker.pid)
    time.sleep(0.3)
    runs = stage.receipts()
    ended = min(len(runs), count)
    jobs = ended - began
    seconds = runs[ended - 1][1] - runs[began][1]
    return {
        "jobs": count,
        "jobs_per_s": round(jobs / seconds),
        "worker_us": round(spent.worker / jobs * 1e6, 1),
        "redis_us": round(spent.redis / jobs * 1e6, 1),
        "commands": round(spent.commands / jobs, 2),
        "reads": round(spent.reads / jobs, 3),
        "rss_mib": round(rss, 1),
        "finished": done,
        **(tally((n for n, _ in runs), count) if done else {"done": ended}),
    }


def bulk(peer: Peer, sizes: Sizes) -> Figures:
    """B: bulk calls of 500 by one process."""
    count = int(peer.jobs * 2.5 * sizes.share)
    with Stage(peer) as stage:
        return {"B": _per_job(stage.produce("bulk", count), count)}


def one_in_flight(peer: Peer, sizes: Sizes) -> Figures:
    """A with one call under way at a time."""
    count = int(5_000 * sizes.share)
    with Stage(peer, {"BENCH_IN_FLIGHT": "1"}) as stage:
        return {"A1": _per_job(stage.produce("single", count), count)}


def naps(peer: Peer, sizes: Sizes) -> Figures:
    """C with jobs that take 5 to 50 ms each."""
    drained = fill_and_drain(peer, sizes, {"BENCH_NAP": "1"})["C"]
    return {"C_naps": drained}


def pickup_and_delay(peer: Peer, sizes: Sizes) -> Figures:
    """D and E on one worker: a job each 50 ms, then jobs that are due in 2 to 4 s. Every delay, in ms."""
    with Stage(peer) as stage:
        worker = stage.start()
        _until_it_works(stage)
        stage.forget()
        stage.produce("pickup", sizes.pickups)
        stage.until(sizes.pickups + 1, 5)
        picked = stage.delays_ms()
        stage.forget()
        if peer.helper:
            stage.start(peer.helper)
            time.sleep(3)
        stage.produce("delayed", sizes.delayed)
        stage.until(sizes.delayed + 1, 20)
        late = stage.delays_ms()
        stage.kill(worker)
    return {
        "D": {"delays_ms": picked, "jobs": sizes.pickups},
        "E": {"delays_ms": late, "jobs": sizes.delayed},
    }


def thousand_due(peer: Peer, sizes: Sizes) -> Figures:
    """E with 1,000 jobs due in each second, for five seconds."""
    count = int(5_000 * sizes.share)
    # Enough time before the first is due to store all of them.
    times = {"BENCH_DELAY_LEAD": str(2 + 4 * sizes.share), "BENCH_DELAY_SPREAD": str(5 * sizes.share)}
    with Stage(peer, times) as stage:
        stage.start()
        _until_it_works(stage)
        stage.forget()
        stage.produce("delayed", count)
        stage.until(count + 1, 20)
        return {"E_1000": {"delays_ms": stage.delays_ms(), "jobs": count}}


def idle_then_crash(peer: Peer, sizes: Sizes) -> Figures:
    """F and G: an idle worker; then it is killed in a job of a minute, and another started at once."""
    with Stage(peer) as stage:
        worker = stage.start()
        _until_it_works(stage)
        time.sleep(3)
        before = stage.meters(worker)
        time.sleep(sizes.idle_s)
        spent = stage.meters(worker).since(before)
        idle = {
            "rss_mib": round(rss_of_tree(worker.pid), 1),
            "cpu_ms_per_min": round(spent.worker / spent.at * 60_000),
            # The meter's own question, one read, is no work of the peer's.
            "reads_per_s": round((spent.reads - 1) / spent.at, 2),
            "commands_per_s": round((spent.commands - 1) / spent.at, 2),
        }
        return {"F": idle, "G": _crash(stage, worker)}


def _until_it_works(stage: Stage) -> None:
    """Return when the worker has run two jobs."""
    stage.produce("single", 1)
    if not stage.until(2, START_S):
        raise RuntimeError(f"{stage.peer.name}: nothing ran in {START_S} s\n{stage.log()}")


def _crash(stage: Stage, worker: Any) -> Figures:
    stage.produce("hold")
    if not _until_held(stage, 1, 15):
        return {"seconds": None, "note": "the job did not start within 15 s"}
    time.sleep(1)
    stage.kill(worker)
    killed = time.monotonic()
    stage.start()
    again = _until_held(stage, 2, PATIENCE_S)
    return {"seconds": round(time.monotonic() - killed, 1) if again else None, "waited": PATIENCE_S}


def _until_held(stage: Stage, count: int, within: float) -> bool:
    deadline = time.monotonic() + within
    while stage.held() < count:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def crowds(peer: Peer, sizes: Sizes) -> Figures:
    """C by 10 worker processes and by 100, of 10 slots each: they must not stand in each other's way."""
    few, many = (10, 100) if sizes.share >= 1 else (2, 8)
    return {"C_10": _crowd(peer, sizes, few), "C_100": _crowd(peer, sizes, many)}


def _crowd(peer: Peer, sizes: Sizes, workers: int) -> Figures:
    """The queue is paused until all workers are there; the clock starts when it is resumed."""
    count = int(peer.jobs * sizes.share)
    with Stage(peer, {"DOCKWORK_QUEUES": "bench=10"}) as stage:
        stage.produce("bulk", count)
        asyncio.run(_set_paused(stage.server.url, True))
        processes = [stage.start() for _ in range(workers)]
        if not asyncio.run(_all_there(stage.server.url, workers, START_S + workers)):
            raise RuntimeError(f"{peer.name}: not {workers} workers in {START_S + workers} s\n{stage.log()}")
        before = [stage.meters(process) for process in processes]
        began = time.time()
        asyncio.run(_set_paused(stage.server.url, False))
        done = stage.until(count + 1, sizes.drain_s)
        after = [stage.meters(process) for process in processes]
        runs = stage.receipts()
        cpu = sum(now.worker - was.worker for now, was in zip(after, before, strict=True))
        return {
            "jobs": count,
            "workers": workers,
            "jobs_per_s": round(len(runs) / (runs[-1][1] - began)),
            "worker_us": round(cpu / count * 1e6, 1),
            "redis_us": round((after[-1].redis - before[0].redis) / count * 1e6, 1),
            "finished": done,
            **tally((n for n, _ in runs), count),
        }


async def _set_paused(url: str, wanted: bool) -> None:
    store = RedisStore(url)
    await store.set_paused(QueueName("bench", "bench"), expected=not wanted, wanted=wanted)
    await store.close()


async def _all_there(url: str, workers: int, within: float) -> bool:
    """Whether so many workers have sent a beat in time."""
    store, deadline = RedisStore(url), time.monotonic() + within
    try:
        while True:
            sample = await store.sample(QueueName("bench", "bench"), horizon_ms=0)
            if len(sample.workers) >= workers:
                return True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(0.1)
    finally:
        await store.close()


def _per_job(stored: Mapping[str, float], count: int) -> Figures:
    return {
        "jobs": count,
        "jobs_per_s": round(count / stored["seconds"]),
        "client_us": round(stored["cpu"] / count * 1e6, 1),
        "redis_us": round(stored["redis"] / count * 1e6, 1),
    }


#: Letters of --only -> the function that measures them.
WORKLOADS: dict[str, Callable[[Peer, Sizes], Figures]] = {
    "AC": fill_and_drain,
    "B": bulk,
    "A1": one_in_flight,
    "N": naps,
    "DE": pickup_and_delay,
    "E1000": thousand_due,
    "W": crowds,
    "FG": idle_then_crash,
}
__all__ = ["HELD", "QUICK", "WORKLOADS", "Figures", "Sizes"]
