"""A million jobs of 1 KiB over three primaries, then over one: `make bench-million`.

Redis is the run's own: a Cluster of three primaries with a partition of the queue on each, then a single server.
Both speak TLS alone and sync their append-only file before each answer (`appendfsync always`, rewrite off). Producers
store in bulk while workers run; the clock goes from the first store to the last handler's start. Each handler appends
a receipt, and each of the million is looked for; the queue's own counters must say the same.

The last line is one JSON object. Exit code 1: a job was lost, ran twice, or was counted wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchkit.meters import cpu_of_process, cpu_of_tree, machine, rss_of_tree
from benchkit.peers import BENCH, ROOT
from benchkit.stages import LINE, UNCOUNTED, read_lines, tally
from dockwork.core.keys import QueueKeys, QueueName
from dockwork.core.partitions import partition_names
from support.redis_cluster import RedisCluster
from support.redis_server import CA_FILE, RedisServer, die_with_parent

AOF = ("--auto-aof-rewrite-percentage", "0")
#: Jobs of one bulk call, and bulk calls of a producer under way: what arrives together shares a sync of the disk.
BULK, UNDER_WAY = 2_000, 6
#: What the last jobs may take once nothing moves any more.
PATIENCE_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of the comparison: how many primaries, and the work on them."""

    primaries: int
    jobs: int
    producers: int
    workers: int
    slots: int
    limit_s: float


class Run:
    """One side, from its servers to its receipts."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.folder = Path(tempfile.mkdtemp(prefix="dwm"))
        self.servers: list[RedisServer] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environ: dict[str, str] = {}

    def measure(self) -> dict[str, Any]:
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self._start_servers(stack)
            stack.callback(self._kill)
            workers = [self._start(number) for number in range(self.side.workers)]
            self._until(lambda: all(b"worker_runs" in self._log(n) for n in range(len(workers))), 60)
            before = self._cpu(workers)
            producers = [self._produce(number) for number in range(self.side.producers)]
            finished = self._until_ran()
            spent = [after - was for after, was in zip(self._cpu(workers), before, strict=True)]
            memory = sum(rss_of_tree(worker.pid) for worker in workers)
            said = [json.loads(producer.communicate(timeout=60)[0]) for producer in producers]
            return self._figures(said, spent, memory, finished)

    # --- processes

    def _start_servers(self, stack: ExitStack) -> None:
        queue, partitions = "million", 1
        if self.side.primaries == 1:
            server = stack.enter_context(RedisServer(port=0, tls=True, aof=True, options=AOF))
            self.servers, url = [server], server.url
        else:
            cluster = stack.enter_context(
                RedisCluster(primaries=self.side.primaries, tls=True, aof=True, options=AOF)
            )
            self.servers, url, partitions = cluster.nodes, cluster.url, self.side.primaries
            queue = spread_name(cluster, partitions)
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                map(str, (BENCH, BENCH / "peers", ROOT / "runtime", ROOT / "tests"))
            ),
            "MILLION_QUEUE": queue,
            "MILLION_PARTITIONS": str(partitions),
            "DOCKWORK_REDIS_URL": url,
            "DOCKWORK_REDIS_CA_FILE": CA_FILE,
            "DOCKWORK_REDIS_MODE": "standalone" if self.side.primaries == 1 else "cluster",
            # Three servers that sync to one disk may keep a call waiting: late is not lost.
            "DOCKWORK_REDIS_COMMAND_TIMEOUT": "60s",
            "DOCKWORK_NAMESPACE": "bench",
            "DOCKWORK_QUEUES": f"{queue}={self.side.slots}",
            "DOCKWORK_LOG_FORMAT": "json",
        }

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        environ = {**self.environ, "BENCH_RECEIPTS": str(self.folder / f"receipts{number}")}
        with (self.folder / f"log{number}").open("wb") as log:
            command = [sys.executable, "-m", "dockwork", "worker", "million_app:app"]
            process = subprocess.Popen(
                command, env=environ, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        self.processes.append(process)
        return process

    def _produce(self, number: int) -> subprocess.Popen[bytes]:
        share = self.side.jobs // self.side.producers
        last = self.side.jobs if number == self.side.producers - 1 else (number + 1) * share
        command = [sys.executable, __file__, "--produce", f"{number * share}:{last}"]
        process = subprocess.Popen(
            command, env=self.environ, stdout=subprocess.PIPE, preexec_fn=die_with_parent
        )
        self.processes.append(process)
        return process

    def _kill(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(10)

    # --- meters

    def _cpu(self, workers: Sequence[subprocess.Popen[bytes]]) -> tuple[float, float]:
        return (
            sum(cpu_of_tree(worker.pid) for worker in workers),
            sum(cpu_of_process(server.pid) for server in self.servers),
        )

    def _log(self, number: int) -> bytes:
        return (self.folder / f"log{number}").read_bytes()

    def _until(self, ask: Any, within: float) -> None:
        deadline = time.monotonic() + within
        while not ask():
            if time.monotonic() > deadline:
                logs = b"\n".join(self._log(number)[-1500:] for number in range(self.side.workers))
                raise SystemExit(f"not within {within} s\n{logs.decode()}")
            time.sleep(0.05)

    def _until_ran(self) -> bool:
        """Whether every job ran in time: as many receipts as jobs, or nothing moves any more."""
        began = moved = time.monotonic()
        last = said = 0
        while True:
            seen = sum(path.stat().st_size // LINE for path in self.folder.glob("receipts*"))
            now = time.monotonic()
            if seen >= self.side.jobs:
                return True
            if seen != last:
                last, moved = seen, now
            if now - moved > PATIENCE_S or now - began > self.side.limit_s:
                return False
            if now - began > said + 10:
                said = int(now - began)
                print(f"{self.side.primaries} primaries, {said} s: {seen} ran", file=sys.stderr, flush=True)
            time.sleep(0.05)

    # --- figures

    def _figures(
        self, said: Sequence[dict[str, float]], spent: Sequence[float], memory: float, finished: bool
    ) -> dict[str, Any]:
        runs = [
            run for path in self.folder.glob("receipts*") for run in read_lines(path) if run[0] < UNCOUNTED
        ]
        began = min(each["began"] for each in said)
        seconds = max(at for _, at in runs) - began
        ran = len(runs)
        return {
            "primaries": self.side.primaries,
            "jobs": self.side.jobs,
            "finished": finished,
            "seconds": round(seconds, 2),
            "stored_after_s": round(max(each["ended"] for each in said) - began, 2),
            "jobs_per_s": round(ran / seconds),
            "accepted": int(sum(each["accepted"] for each in said)),
            "producer_us": round(sum(each["cpu"] for each in said) / self.side.jobs * 1e6, 1),
            "worker_us": round(spent[0] / ran * 1e6, 1),
            "redis_us": round(spent[1] / ran * 1e6, 1),
            "rss_mib": round(memory, 1),
            **tally((n for n, _ in runs), self.side.jobs),
            "completed": self._completed(),
        }

    def _completed(self) -> int:
        """What the queue's counters say, once they stand still."""
        command = [sys.executable, __file__, "--totals", str(self.side.jobs)]
        done = subprocess.run(
            command, env=self.environ, stdout=subprocess.PIPE, text=True, check=True, timeout=60
        )
        return int(done.stdout)


def spread_name(cluster: RedisCluster, partitions: int) -> str:
    """A queue's name of which each partition lies on another primary: hash slots follow the name."""
    client = cluster.client(0)
    for number in range(1000):
        names = partition_names(QueueName("bench", f"million{number}"), partitions)
        slots = [client.execute_command("CLUSTER", "KEYSLOT", QueueKeys(name).meta) for name in names]
        if len({cluster.owner(slot) for slot in slots}) == min(partitions, len(cluster.nodes)):
            return f"million{number}"
    raise SystemExit("no name spreads the partitions")


async def produce(first: int, last: int) -> dict[str, float]:
    """Store jobs `first` to `last`, some bulk calls under way; what it took."""
    import kit

    import million_app

    app, job = million_app.app, million_app.noop
    batches = iter(range(first, last, BULK))
    accepted = 0

    async def caller() -> None:
        nonlocal accepted
        for at in batches:
            items = (job.item(n=n, body=kit.BODY) for n in range(at, min(at + BULK, last)))
            counts = await app.enqueue_many(items, returning="counts")
            accepted += counts.accepted

    began, cpu = time.time(), time.process_time()
    await asyncio.gather(*(caller() for _ in range(UNDER_WAY)))
    said = {"began": began, "ended": time.time(), "cpu": time.process_time() - cpu, "accepted": accepted}
    await app.close()
    return said


async def totals(wanted: int) -> int:
    """How many jobs the queue says it completed."""
    import million_app

    deadline = time.monotonic() + 20
    async with million_app.app as app:
        while True:
            completed = int((await app.stats(million_app.QUEUE)).totals.get("completed", 0))
            if completed >= wanted or time.monotonic() > deadline:
                return completed
            await asyncio.sleep(0.1)


def broken(figures: dict[str, Any]) -> bool:
    """Whether a side lost a job, ran one twice, or counted wrong."""
    wrong = figures["completed"] != figures["jobs"] or figures["accepted"] != figures["jobs"]
    return bool(figures["lost"] or figures["duplicated"] or not figures["finished"]) or wrong


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--jobs", type=int, default=1_000_000)
    options.add_argument("--primaries", default="3,1", help="the sides, in their order")
    options.add_argument("--producers", type=int, default=2)
    options.add_argument("--workers", type=int, default=3)
    options.add_argument("--slots", type=int, default=300, help="of each worker")
    options.add_argument("--limit", type=float, default=600, help="seconds of a side at most")
    options.add_argument("--quick", action="store_true", help="20,000 jobs: to try the bench")
    options.add_argument("--out", type=Path, default=BENCH / "results", help="folder of the raw results")
    options.add_argument("--no-out", dest="out", action="store_const", const=None, help="print only")
    options.add_argument("--produce", help=argparse.SUPPRESS)
    options.add_argument("--totals", type=int, help=argparse.SUPPRESS)
    said = options.parse_args()
    if said.produce:
        first, _, last = said.produce.partition(":")
        print(json.dumps(run_loop(produce(int(first), int(last)))))
        return 0
    if said.totals is not None:
        print(run_loop(totals(said.totals)))
        return 0
    return compare(said)


def compare(said: argparse.Namespace) -> int:
    began, load = datetime.now(UTC), os.getloadavg()[0]
    sides = [
        Side(
            primaries=int(primaries),
            jobs=20_000 if said.quick else said.jobs,
            producers=said.producers,
            workers=said.workers,
            slots=said.slots,
            limit_s=said.limit,
        )
        for primaries in said.primaries.split(",")
    ]
    figures = []
    for side in sides:
        figures.append({**Run(side).measure(), "load_after": round(os.getloadavg()[0], 1)})
        print(figures[-1], file=sys.stderr, flush=True)
    report = {
        "conditions": {
            **machine(),
            "began": began.isoformat(timespec="seconds"),
            "load_before": round(load, 1),
            "redis_settings": "TLS, AOF synced before each answer, rewrite off; loopback, all on one machine",
            "payload": "1 KiB of JSON",
            "producers": said.producers,
            "workers": said.workers,
            "slots_each": said.slots,
        },
        "sides": figures,
    }
    if said.out is not None:
        path: Path = said.out / began.strftime("%Y-%m-%d") / "million.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
    return 1 if any(map(broken, figures)) else 0


def run_loop(work: Any) -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    return uvloop.run(work)


if __name__ == "__main__":
    sys.exit(main())
