"""What a worker process weighs when it has nothing to do: what it imports, its CPU and what it asks of Redis."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import redis

from support.redis_server import RedisServer
from support.waiting import until
from support.workers import Process, World

#: What only some workers use: /metrics, ticks, encryption, tracing, the API, pictures for people. redis-py itself
#: imports OpenTelemetry and parts of cryptography where they are installed.
HEAVY = (
    "prometheus_client", "croniter", "fastapi", "rich", "yaml", "dockwork.otel", "dockwork.store.memory_seals",
    "dockwork.store.memory", "dockwork.core.cron",
)  # fmt: skip

WORK = """
import asyncio, json, sys
from dockwork import App
from dockwork.cli.worker import worker
app = App("light")
seen = []

@app.job(queue="work")
async def look(n: int) -> None:
    seen.append(n)

async def main():
    running = app.worker(queues={"work": 2})
    task = asyncio.ensure_future(running.run())
    while not running.is_running:
        await asyncio.sleep(0.01)
    await look.enqueue(n=1)
    while not seen:
        await asyncio.sleep(0.01)
    await running.shutdown(2)
    await task
    await app.close()

asyncio.run(main())
heavy = json.loads(sys.argv[1])
print(json.dumps([name for name in heavy if name in sys.modules]))
"""


@pytest.mark.covers("RT-240")
def test_a_worker_that_ran_a_job_has_imported_nothing_heavy(server: RedisServer, tmp_path: Path) -> None:
    server.flush()
    script = tmp_path / "work.py"
    script.write_text(WORK)
    environ = {**os.environ, "DOCKWORK_REDIS_URL": server.url, "DOCKWORK_TRAP_SIGNALS": "false"}

    done = subprocess.run(
        [sys.executable, script, json.dumps(HEAVY)], env=environ, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


@pytest.mark.full
@pytest.mark.covers("FM-61", "RT-098")
async def test_a_minute_of_nothing_costs_next_to_nothing(world: World, tmp_path: Path) -> None:
    sent = ("evalsha", "blpop", "bzpopmin", "ping")
    asking: Any = redis.Redis.from_url(world.url)
    with Process(world.url, tmp_path) as worker:
        worker.until_running()
        began = time.monotonic()
        until(lambda: time.monotonic() - began > 3, within=10, what="the start is over")
        calls, cpu, began = _calls(asking, sent), _cpu_s(worker.pid), time.monotonic()
        until(lambda: time.monotonic() - began > 60, within=70, what="a minute")
        calls, cpu = _calls(asking, sent) - calls, _cpu_s(worker.pid) - cpu
    asking.close()

    assert cpu < 0.2
    # Beats and reads of nudges, a wait for a marker each 10 s, upkeep once: half a call a second.
    assert calls.total() <= 40, calls


def _calls(asking: Any, names: tuple[str, ...]) -> Counter[str]:
    stats = asking.info("commandstats")
    return Counter({name: stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in names})


def _cpu_s(pid: int) -> float:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
