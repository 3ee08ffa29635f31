"""One suite for every store: a new implementation joins `WORLDS` and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_world import RedisWorld, World


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    """A Redis for all tests that do not break it."""
    with RedisServer() as running:
        yield running


@asynccontextmanager
async def redis_world(server: RedisServer) -> AsyncIterator[RedisWorld]:
    server.flush()
    world = RedisWorld(RedisStore(server.url), server.url)
    try:
        yield world
    finally:
        await world.close()


MakeWorld = Callable[[RedisServer], AbstractAsyncContextManager[World]]

#: Every implementation of the protocol.
WORLDS: list[MakeWorld] = [redis_world]


@pytest.fixture(params=WORLDS, ids=lambda make: make.__name__)
async def world(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[World]:
    """An empty queue of each store."""
    make: MakeWorld = request.param
    async with make(server) as made:
        yield made


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[RedisWorld]:
    """An empty queue on Redis, for what only Redis can show."""
    async with redis_world(server) as made:
        yield made
