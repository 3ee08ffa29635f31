"""Throughput of one worker process: no-op jobs of 1 KiB with leases, receipts and events, on a Redis of its own.

Conditions: AOF everysec with rewrites off, a unix socket, 100 slots, retention as by default. The worker is warmed up,
the queue is paused while the jobs are stored, and the clock runs from the resume to the last handler. CPU is read
from /proc (worker, all threads) and INFO (Redis, all threads) over the same span. Each handler's receipt counts:
`lost` and `duplicated` come from the list that the handlers themselves wrote, not from a counter.

The last line is one JSON object. Run it on an otherwise idle machine with at least two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis

from dockwork import App
from dockwork.core.keys import QueueName

QUEUE = "bench"
WARM_UP = 2_000
BODY = "x" * 960

receipts: list[int] = []
app = App("bench")


@app.job(queue=QUEUE)
async def noop(n: int, body: str) -> None:
    """Leaves a receipt, as a list entry of this process."""
    receipts.append(n)
    if n == LAST:
        marks["last"] = time.monotonic()


LAST = int(os.environ.get("BENCH_LAST", "-1"))
marks: dict[str, float] = {}


@app.lifespan
@asynccontextmanager
async def leave_receipts(_: App) -> AsyncIterator[None]:
    """Write the receipts when the worker ends."""
    yield
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    Path(os.environ["BENCH_RECEIPTS"]).write_text(
        json.dumps({"ids": receipts, "marks": marks, "rss": peak_mb})
    )


def main() -> int:
    """Run the bench; exit 1 when a job was lost or ran twice."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--jobs", type=int, default=20_000)
    options.add_argument("--slots", type=int, default=100)
    options.add_argument("--profile", help="write a cProfile of the worker to this file")
    options.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    said = options.parse_args()
    if said.worker:
        return work(said.slots, said.profile)
    folder = Path(tempfile.mkdtemp(prefix="dockwork-bench-"))
    try:
        figures = measure(folder, said.jobs, said.slots, said.profile)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(figures))
    return 1 if figures["lost"] or figures["duplicated"] else 0


def work(slots: int, profile: str | None) -> int:
    """The worker process."""
    from dockwork.worker.loops import run_to_end, spare_collector

    worker = app.worker(queues={QUEUE: slots})
    spare_collector()
    if profile is None:
        return run_to_end(worker.run)
    import cProfile

    profiler = cProfile.Profile()
    code = profiler.runcall(run_to_end, worker.run)
    profiler.dump_stats(profile)
    return int(code)


def measure(folder: Path, jobs: int, slots: int, profile: str | None) -> dict[str, float | int]:
    """Start both processes, run the jobs, and read the figures."""
    socket, written = folder / "redis.sock", folder / "receipts.json"
    server = start_redis(folder, socket)
    connection = redis.Redis(unix_socket_path=str(socket))
    environ = {
        **os.environ,
        "DOCKWORK_REDIS_URL": f"unix://{socket}",
        "DOCKWORK_NAMESPACE": "bench",
        "BENCH_RECEIPTS": str(written),
        "BENCH_LAST": str(jobs - 1),
    }
    os.environ.update(environ)
    worker: subprocess.Popen[bytes] | None = None
    try:
        wait_for(lambda: answers(connection), "redis-server")
        command = [sys.executable, __file__, "--worker", "--slots", str(slots)]
        worker = subprocess.Popen([*command, *(["--profile", profile] if profile else [])], env=environ)
        asyncio.run(drive(jobs, connection, worker.pid, marks))
        worker.send_signal(signal.SIGTERM)
        worker.wait(30)
    finally:
        if worker is not None and worker.poll() is None:
            worker.kill()
        server.terminate()
        server.wait(10)
    return reckon(jobs, json.loads(written.read_text()))


async def drive(jobs: int, connection: redis.Redis, pid: int, seen: dict[str, float]) -> None:
    """Warm up, store the jobs in a paused queue, resume it, and wait for the last end."""
    try:
        await run_all(range(-WARM_UP - 1, -1), WARM_UP)
        store, queue = app.client.store, QueueName("bench", QUEUE)
        await store.set_paused(queue, expected=False, wanted=True)
        stored = time.monotonic()
        await app.enqueue_many([noop.item(n=n, body=BODY) for n in range(jobs)], returning="counts")
        print(f"stored {jobs} jobs in {time.monotonic() - stored:.2f} s", file=sys.stderr)
        await asyncio.sleep(1.5)  # the AOF's next fsync, outside of what is measured
        before = snapshot(connection, pid)
        seen["resumed"] = time.monotonic()
        await store.set_paused(queue, expected=True, wanted=False)
        await ended(WARM_UP + jobs)
        for name, value in snapshot(connection, pid).items():
            seen[name] = value - before[name]
    finally:
        await app.close()


async def run_all(numbers: range, total: int) -> None:
    await app.enqueue_many([noop.item(n=n, body=BODY) for n in numbers], returning="counts")
    await ended(total)


async def ended(total: int) -> None:
    """Return when `total` jobs have completed."""
    for _ in range(1200):
        if (await app.stats(QUEUE)).totals.get("completed", 0) >= total:
            return
        await asyncio.sleep(0.05)
    raise SystemExit(f"not ended within a minute: {(await app.stats(QUEUE)).totals}")


def snapshot(connection: redis.Redis, pid: int) -> dict[str, float]:
    cpu: Any = connection.info("cpu")
    stats: Any = connection.info("stats")
    return {
        "redis_cpu": cpu["used_cpu_sys"] + cpu["used_cpu_user"],
        "worker_cpu": cpu_seconds(pid),
        "commands": stats["total_commands_processed"],
    }


def cpu_seconds(pid: int) -> float:
    """CPU of all threads of a process, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def reckon(jobs: int, written: dict[str, Any]) -> dict[str, float | int]:
    """The figures, from the receipts and what was seen."""
    counts = Counter(n for n in written["ids"] if n >= 0)
    seconds = written["marks"]["last"] - marks["resumed"]
    return {
        "jobs": jobs,
        "jobs_per_s": round(jobs / seconds),
        "python_us_per_job": round(marks["worker_cpu"] / jobs * 1e6, 1),
        "redis_us_per_job": round(marks["redis_cpu"] / jobs * 1e6, 1),
        "commands_per_job": round(marks["commands"] / jobs, 2),
        "rss_mb": round(written["rss"], 1),
        "lost": jobs - len(counts),
        "duplicated": sum(counts.values()) - len(counts),
    }


def start_redis(folder: Path, socket: Path) -> subprocess.Popen[bytes]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("redis-server: not found. Install Debian's redis-server, or Valkey.")
    command = [program, "--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def answers(connection: redis.Redis) -> bool:
    try:
        return bool(connection.ping())
    except redis.ConnectionError:
        return False


def wait_for(condition: Any, what: str) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not ready within 15 s")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
