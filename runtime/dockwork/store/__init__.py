"""Where jobs live: the protocol, and its stores on Redis and in memory."""

from dockwork.store.light import import_lightly

import_lightly(
    ("redis", "redis.asyncio"),
    ("redis.exceptions", "redis.crc", "redis.connection", "redis.asyncio.connection"),
    without="opentelemetry",
)
