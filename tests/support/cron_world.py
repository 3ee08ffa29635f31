"""Schedules in a real Redis: what tests of the ledger seed, do and compare.

Scripts read Redis TIME, so tests move data: an instant is given in seconds from the moment the world was made, and
an entry is made to begin in the past (`since`), as if it had been there all along.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from redis.asyncio import Redis

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.store.protocol import CronEntry, CronState, NewJob, Ticked
from dockwork.store.redis import RedisStore

UID = "7d1f0c3a"
QUEUE = QueueName("shop", "mail")


def an_entry(*, uid: str = UID, schedule: str = "a", job: NewJob | None = None, **more: Any) -> CronEntry:
    """An entry whose instants the test gives."""
    job = job or NewJob(id="tick", type="report.daily", envelope=b'{"v":1,"type":"report.daily"}')
    return CronEntry(uid=uid, schedule_hash=schedule, job=job, **{"tzdata": "2026f", **more})


class CronWorld:
    """One queue, and a store on it. `second(-5)` is the instant 5 s before the world began, in ms."""

    def __init__(self, url: str, store: RedisStore, redis: Redis, began_ms: int) -> None:
        self.url = url
        self.store = store
        self.redis = redis
        self.began_ms = began_ms
        self.queue = QUEUE
        self.keys = QueueKeys(QUEUE)

    def second(self, offset: float) -> int:
        return self.began_ms + round(offset * 1000)

    def seconds(self, ticked: Sequence[Ticked]) -> list[tuple[float, str, str]]:
        """Decided ticks as (offset, outcome, reason)."""
        return [((t.at_ms - self.began_ms) / 1000, t.outcome, t.reason) for t in ticked]

    async def plan(
        self,
        instants: Sequence[float] = (),
        entry: CronEntry | None = None,
        *,
        since: float | None = None,
        generation: int = 1,
        **more: Any,
    ) -> str:
        """Put the entry with instants at these seconds. `since`: it begins there, not now."""
        return await self.store.plan(
            self.queue, entry or an_entry(), [self.second(at) for at in instants], generation=generation,
            decided_ms=None if since is None else self.second(since), **{"reset": False, **more},
        )  # fmt: skip

    async def tick(self, uid: str | None = None) -> list[tuple[float, str, str]]:
        return self.seconds(await self.store.tick(self.queue, uid, by="operator"))

    async def state(self, uid: str = UID) -> CronState:
        (state,) = await self.store.cron_states(self.queue, [uid])
        return state

    async def change(self, uid: str = UID, **fields: Any) -> None:
        """Set fields of what the ledger says, such as a cursor."""
        said = json.loads(await self.redis.hget(self.keys.cron, uid))
        await self.redis.hset(self.keys.cron, uid, json.dumps(said | fields))

    async def jobs(self) -> list[str]:
        """Ids of all jobs that have a record, whatever became of them."""
        prefix = self.keys.records
        return sorted([key.decode()[len(prefix) :] async for key in self.redis.scan_iter(match=f"{prefix}*")])

    async def fired(self) -> list[str]:
        """Ids in the order in which they entered the queue, each as often as it did: from the event stream."""
        entries = await self.redis.xrange(self.keys.events)
        entered = [
            fields for _, fields in entries if fields[b"name"] in {b"ready", b"prioritized", b"delayed"}
        ]
        return [job_id for fields in entered for job_id in fields[b"ids"].decode().split()]

    def job_id(self, offset: float, uid: str = UID) -> str:
        return f"cron-{uid}-{self.second(offset)}"

    async def dump(self) -> dict[bytes, bytes]:
        """The whole database, as `restore` takes it."""
        return {key: await self.redis.dump(key) async for key in self.redis.scan_iter()}

    async def restore(self, dumped: dict[bytes, bytes], *, only: Sequence[str] | None = None) -> None:
        """Put the database, or the keys `only`, back to an earlier state: the writes since are lost."""
        if only is None:
            await self.redis.flushdb()
        else:
            await self.redis.delete(*only)
        for key, value in dumped.items():
            if only is None or key.decode() in only:
                await self.redis.restore(key, 0, value)


@asynccontextmanager
async def cron_world(url: str) -> AsyncIterator[CronWorld]:
    """An empty database at `url`, and a store on it."""
    async with Redis.from_url(url) as redis:
        await redis.flushdb()
        store = RedisStore(url)
        try:
            yield CronWorld(url, store, redis, await store.ping())
        finally:
            await store.close()
