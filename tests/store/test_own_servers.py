"""The tests' own servers, how a store is told where its Redis is, and what a worker says of it at its start."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from dockwork.core.states import State
from dockwork.errors import DockworkError
from dockwork.settings import RedisSettings
from dockwork.store.redis import RedisStore
from support.redis_cluster import RedisCluster
from support.redis_sentinel import PRIMARY_NAME, RedisSentinel
from support.redis_server import CA_FILE, RedisServer, valkey_program
from support.store_world import ANN, QUEUE, a_job
from support.waiting import until_async
from support.workers import World

ROOT = Path(__file__).parents[2]


@pytest.mark.covers("RT-262")
def test_servers_that_the_environment_names_are_not_the_tests() -> None:
    url = "redis://127.0.0.1:1"
    inherited = {"REDIS_URL": url, "DOCKWORK_REDIS_URL": url, "REDIS_MODE": "cluster", "REDIS_HOST": "other"}
    script = (
        "import os, runpy; runpy.run_path('tests/conftest.py');"
        "print([name for name in os.environ if 'REDIS' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, env={**os.environ, **inherited}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert done.stdout == "[]\n"


@pytest.mark.covers("RT-262")
def test_no_test_is_skipped_and_compose_brings_a_redis_as_jobs_want_it() -> None:
    banned = re.compile(r"pytest\.(mark\.)?(skip|skipif|importorskip|xfail)\(")
    assert [path.name for path in (ROOT / "tests").rglob("*.py") if banned.search(path.read_text())] == []

    (service,) = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()
    assert service["ports"] == ["127.0.0.1:6379:6379"]
    assert service["command"][1:5] == ["--maxmemory-policy", "noeviction", "--appendonly", "yes"]


@pytest.mark.covers("RT-196")
async def test_a_store_is_told_by_url_by_host_and_port_or_by_files(tmp_path: Path) -> None:
    with RedisServer(port=0, password="secret") as plain, RedisServer(tls=True) as behind_tls:
        (tmp_path / "url").write_text(plain.url + "\n")
        assert plain.port is not None
        stores = [
            RedisStore(plain.url),
            RedisStore(RedisSettings(host="127.0.0.1", port=plain.port, password="secret")),
            RedisStore(RedisSettings(url_file=str(tmp_path / "url"))),
        ]
        for number, store in enumerate(stores):
            await store.enqueue(QUEUE, [a_job(f"j{number}")])
            await store.close()
            # A later call connects again.
            assert len(await store.list(QUEUE, State.READY)) == number + 1
            await store.close()
        sealed = RedisStore(behind_tls.url, ca_file=CA_FILE)
        await sealed.enqueue(QUEUE, [a_job("a")])
        await sealed.close()


@pytest.mark.covers("RT-199")
async def test_a_worker_reports_a_redis_that_evicts_or_keeps_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, logger="dockwork")
    with RedisServer(options=["--maxmemory-policy", "volatile-lru"]) as poor, RedisServer(aof=True) as good:
        said: list[set[str]] = []
        for server in (poor, good):
            caplog.clear()
            world = World(server.url)

            @world.app.job(queue="work")
            async def nothing() -> None: ...

            async with world.worker():
                pass
            await world.close()
            said.append({record.message for record in caplog.records})

    assert any("maxmemory-policy is not noeviction" in text or "redis_evicts" in text for text in said[0])
    assert any("appendonly is off" in text or "redis_without_aof" in text for text in said[0])
    assert not any("redis" in text or "appendonly" in text or "maxmemory" in text for text in said[1])


@pytest.mark.full
@pytest.mark.covers("RT-262", "RT-065", "RT-189")
async def test_a_valkey_cluster_and_valkey_sentinels_are_as_good() -> None:
    with RedisCluster(program=valkey_program()) as cluster:
        store = RedisStore(RedisSettings(url=cluster.url, mode="cluster"))
        await store.enqueue(QUEUE, [a_job("a")])
        assert (await store.claim(QUEUE, ANN, number=1, slots=1)).claims[0].job_id == "a"
        await store.close()
    with RedisSentinel(program=valkey_program()) as watched:
        settings = RedisSettings(url=watched.url, mode="sentinel", sentinel_master=PRIMARY_NAME)
        store = RedisStore(settings)
        await store.enqueue(QUEUE, [a_job("a")])
        await asyncio.to_thread(watched.fail_over)

        async def goes_on() -> bool:
            with suppress(DockworkError):
                return bool(await store.enqueue(QUEUE, [a_job("b")]))
            return False

        await until_async(goes_on, within=20, what="the new primary takes a job")
        await store.close()
