"""Where jobs live: the protocol, and its stores on Redis and in memory."""

from dockwork.store.light import import_lightly

import_lightly("redis", "redis.asyncio")
