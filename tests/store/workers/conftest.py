"""Workers on a real Redis: in this process, and as processes of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from support.redis_server import RedisServer
from support.workers import World


@pytest.fixture
async def world(server: RedisServer) -> AsyncIterator[World]:
    """An app, its store and its workers, on an empty Redis."""
    server.flush()
    world = World(server.url)
    yield world
    await world.close()
