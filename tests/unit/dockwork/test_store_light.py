"""redis-py is imported in part; an application that uses it beside Dockwork notices nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

OTHERS = {
    "asyncio client": "from redis.asyncio import Redis; Redis.from_url",
    "a module of the package": "from redis.client import Pipeline; import redis; redis.Redis",
    "the cluster": "from redis.asyncio.cluster import RedisCluster; import redis.cluster",
    "names of the package": "import redis; redis.asyncio.Redis; redis.ConnectionError; redis.__version__",
    "everything": "from redis import *; Redis; import redis.sentinel; redis.sentinel.Sentinel",
}


@pytest.mark.covers("RT-240")
@pytest.mark.parametrize("code", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_whoever_else_imports_redis_gets_all_of_it(code: str, first: str) -> None:
    ours = "import dockwork.store.redis"
    order = [ours, code, ours] if first == "ours" else [code, ours, code]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", "\n".join(order)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.covers("RT-240")
def test_the_store_alone_imports_connections_and_no_clients() -> None:
    code = "import dockwork.store.redis, sys; print(*sorted(m for m in sys.modules if m.startswith('redis')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(done.stdout.split())
    assert "redis.asyncio.connection" in found
    assert found & {"redis.client", "redis.cluster", "redis.commands.core", "redis.asyncio.client"} == set()
