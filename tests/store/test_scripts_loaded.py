"""Which scripts a connection brings along: those that its process has called."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from dockwork.store import scripts
from dockwork.store.redis import RedisStore
from dockwork.store.scripts import script
from support.redis_server import RedisServer
from support.store_world import ANN, QUEUE, a_job


@pytest.fixture
async def asking(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Redis]:
    """A client of a server that knows no script, in a process that has called none."""
    monkeypatch.setattr(scripts, "_called", {})
    script.cache_clear()
    server.flush()
    client: Redis = Redis.from_url(server.url)
    await client.script_flush()
    yield client
    await client.aclose()


async def known(asking: Redis, *names: str) -> list[bool]:
    # Asked of the file, not of what the process knows: asking must not count as a call.
    return [bool(there) for there in await asking.script_exists(*[_sha(name) for name in names])]


def _sha(name: str) -> str:
    return hashlib.sha1(scripts.expand(name).encode()).hexdigest()


@pytest.mark.covers("RT-063", "RT-240")
async def test_a_process_puts_together_and_loads_only_what_it_calls(
    server: RedisServer, asking: Redis
) -> None:
    store = RedisStore(server.url)
    await store.enqueue(QUEUE, [a_job("a")])

    assert await known(asking, "enqueue", "claim", "settle", "obliterate") == [True, False, False, False]
    assert {one.name for one in scripts.called_scripts()} <= {"enqueue", "get"}
    await store.close()


@pytest.mark.covers("RT-063", "RT-128")
async def test_a_connection_made_again_loads_what_was_called_before_it_is_used(
    server: RedisServer, asking: Redis
) -> None:
    store = RedisStore(server.url)
    await store.enqueue(QUEUE, [a_job("a")])
    await store.close()
    await asking.script_flush()

    await store.open()

    assert await known(asking, "enqueue", "claim") == [True, False]
    await store.close()


@pytest.mark.covers("RT-063")
async def test_the_renewal_connection_loads_what_a_rescue_calls_when_it_calls_it(
    server: RedisServer, asking: Redis
) -> None:
    store = RedisStore(server.url)
    channel = store.renewal_channel()
    channel.connect()
    assert await known(asking, "renew", "requeue", "leave") == [True, False, False]

    assert channel.requeue(QUEUE, ANN, []) == []

    assert await known(asking, "requeue") == [True]
    channel.close()
    await store.close()
