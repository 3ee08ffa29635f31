"""A queue in a store under test: what tests seed, do, and compare.

`World` uses the protocol alone, so it fits every store; a store adds how time passes for it. Scripts read Redis
TIME, so on Redis the data moves and not the clock: `advance` makes every stored time so much older.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.core.states import State
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import (
    Admission,
    Claim,
    Claimed,
    Failure,
    Heartbeat,
    JobView,
    Lease,
    NewJob,
    Outcome,
    Owner,
    Settled,
    Settlement,
    Store,
)
from dockwork.store.redis import RedisStore

QUEUE = QueueName("shop", "mail")
ANN = Owner(pod="pod-a", boot="00000000000000aa", container="worker")
BOB = Owner(pod="pod-b", boot="00000000000000bb", container="worker")
#: States whose jobs are somewhere; PAUSED is computed from two of them.
STORED = tuple(state for state in State if state is not State.PAUSED)


def a_job(job_id: str = "a", **more: Any) -> NewJob:
    """A job of type ``t`` whose envelope names it."""
    return NewJob(**{"id": job_id, "type": "t", "envelope": b'{"id":"%b"}' % job_id.encode(), **more})


def a_failure(message: str = "boom") -> Failure:
    return Failure(error_class="ValueError", message=message, trace="Traceback", worker="w", at_ms=1)


def a_beat(owner: Owner = ANN, **more: Any) -> Heartbeat:
    values = {"owner": str(owner), "pod": owner.pod, "container": owner.container, "slots": 4, "busy": 0}
    return Heartbeat(**{**values, **more})


@dataclass(frozen=True)
class Job:
    """What a test compares of a job: all but its times and epochs."""

    id: str
    state: State
    attempts: int = 0
    deliveries: int = 0
    interruptions: int = 0
    owner: str = ""
    reason: str = ""
    envelope: bool = True

    @classmethod
    def of(cls, view: JobView) -> Job:
        return cls(
            view.id,
            view.state,
            view.attempts,
            view.deliveries,
            view.interruptions,
            view.owner if view.state in (State.ACTIVE, State.PROCESSING) else "",
            view.reason,
            bool(view.envelope),
        )


class World(ABC):
    """One queue of a store, empty at first."""

    def __init__(self, store: Store, queue: QueueName = QUEUE) -> None:
        self.store = store
        self.queue = queue
        self._numbers: dict[str, int] = {}

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """So much time passes."""

    @abstractmethod
    async def fall_silent(self, seconds: float) -> None:
        """So much time passes, and no call of anybody gets through; `advance` leaves it as if all were heard."""

    # doing

    async def enqueue(self, *jobs: NewJob | str) -> list[Admission]:
        whole = [a_job(job) if isinstance(job, str) else job for job in jobs]
        return await self.store.enqueue(self.queue, whole)

    def number(self, owner: Owner = ANN) -> int:
        self._numbers[str(owner)] = self._numbers.get(str(owner), 0) + 1
        return self._numbers[str(owner)]

    async def claim(self, slots: int = 10, owner: Owner = ANN, known: Sequence[str] = ()) -> Claimed:
        return await self.store.claim(self.queue, owner, number=self.number(owner), slots=slots, known=known)

    async def claim_one(self, owner: Owner = ANN) -> Claim:
        (claim,) = (await self.claim(1, owner)).claims
        return claim

    async def settle(
        self, *settlements: Settlement, owner: Owner = ANN, claim_next: int = 0, known: Sequence[str] = ()
    ) -> Settled:
        return await self.store.settle(
            self.queue,
            owner,
            settlements,
            number=self.number(owner),
            claim_next=claim_next,
            known=known,
        )

    async def end(self, claim: Claim | Lease, outcome: Outcome, **more: Any) -> Settled:
        """Settle one claim."""
        lease = claim.lease if isinstance(claim, Claim) else claim
        return await self.settle(Settlement(lease=lease, outcome=outcome, **more))

    async def lose_leases(self) -> None:
        """Every lease runs out, and reaping is allowed (a store that is new to a server waits one lease)."""
        await self.store.reap(self.queue)
        await self.advance(20)

    # looking

    async def get(self, job_id: str) -> JobView:
        view = await self.store.get(self.queue, job_id)
        assert view is not None, job_id
        return view

    async def ids(self, state: State) -> list[str]:
        return [view.id for view in await self.store.list(self.queue, state)]

    async def picture(self) -> dict[State, list[Job]]:
        """Every job by the state that lists it, in the list's order; states without jobs are left out."""
        found = {state: await self.store.list(self.queue, state, limit=500) for state in STORED}
        return {state: [Job.of(view) for view in views] for state, views in found.items() if views}

    async def events(self, since: str = "0") -> list[tuple[str, tuple[str, ...], str]]:
        """(name, ids, reason) of each event entry, oldest first."""
        found = await self.store.events(self.queue, since, block_s=0)
        return [(event.name, event.ids, event.reason) for event in found]

    async def totals(self) -> dict[str, int]:
        return dict((await self.store.stats(self.queue)).totals)


class RedisWorld(World):
    """A queue on a real Redis."""

    store: RedisStore

    def __init__(self, store: RedisStore, url: str, queue: QueueName = QUEUE) -> None:
        super().__init__(store, queue)
        self.keys = QueueKeys(queue)
        self.redis: Redis = Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=30)

    async def close(self) -> None:
        await self.store.close()
        await self.redis.aclose()

    async def advance(self, seconds: float) -> None:
        ms = round(seconds * 1000)
        keys = self.keys
        for key in (
            keys.lease, keys.completed, keys.failed, keys.dead, keys.expired, keys.cancelled, keys.expiry,
            keys.cron_at,
        ):  # fmt: skip
            await self._shift(key, ms)
        await self._shift(keys.delayed, ms * 1024)
        for marker in ("due", "rate"):
            if (due := await self.redis.zscore(keys.wake, marker)) is not None:
                await self.redis.zadd(keys.wake, {marker: due - ms})
        await self._shift_starts(ms)
        async for record in self.redis.scan_iter(match=f"{keys.records}*", count=1000):
            await self._age_fields(record, ("c", "d", "x", "r", "t", "h"), ms)
        await self._age_fields(keys.meta, ("reap_after", "thr", "thm", "evat"), ms)
        for hash_key in (keys.workers, keys.quiesce, keys.types):
            await self._age_words(hash_key, ms)
        async for receipts in self.redis.scan_iter(match=f"{keys.receipts}*", count=1000):
            if suspect := await self.redis.hget(receipts, "suspect"):
                until, job_id = suspect.split(b" ", 1)
                await self.redis.hset(receipts, "suspect", b"%d %b" % (int(until) - ms, job_id))
        timed = [keys.owner, keys.cold]
        for prefix in (keys.unique, keys.idempotency):
            timed += [key.decode() async for key in self.redis.scan_iter(match=f"{prefix}*", count=1000)]
        for key in timed:
            left = await self.redis.pttl(key)
            if left > ms:
                await self.redis.pexpire(key, left - ms)
            elif left > 0:
                await self.redis.delete(key)

    async def fall_silent(self, seconds: float) -> None:
        await self.advance(seconds)
        await self._age_fields(self.keys.meta, ("seen",), round(seconds * 1000))

    async def _shift(self, key: str, by: int) -> None:
        found = await self.redis.zrange(key, 0, -1, withscores=True)
        if found:
            await self.redis.zadd(key, {member: score - by for member, score in found})

    async def _shift_starts(self, ms: int) -> None:
        """The buckets of the rate; a bucket is a hundredth of its period, and a part of one counts as none."""
        starts = {name: int(value) for name, value in (await self.redis.hgetall(self.keys.rate)).items()}
        width = starts.pop(b"w", 0)
        if starts:
            moved: dict[Any, int] = {"w": width}
            for bucket, count in starts.items():
                moved[str(int(bucket) - ms // width)] = count
            await self.redis.delete(self.keys.rate)
            await self.redis.hset(self.keys.rate, mapping=moved)

    async def _age_fields(self, key: Any, names: Sequence[str], ms: int) -> None:
        values = zip(names, await self.redis.hmget(key, names), strict=True)
        aged = {name: str(int(value) - ms) for name, value in values if value is not None}
        if aged:
            await self.redis.hset(key, mapping=aged)

    async def _age_words(self, key: str, ms: int) -> None:
        """Values that begin with a time and a space."""
        for name, value in (await self.redis.hgetall(key)).items():
            time, rest = value.split(b" ", 1)
            await self.redis.hset(key, name, b"%d %b" % (int(time) - ms, rest))

    async def dump(self) -> dict[str, Any]:
        """Every key of the server with its whole value: for "nothing changed"."""
        found: dict[str, Any] = {}
        for key in sorted([key async for key in self.redis.scan_iter(count=1000)]):
            kind = (await self.redis.type(key)).decode()
            found[key.decode()] = await self._value(key, kind)
        return found

    async def _value(self, key: bytes, kind: str) -> Any:
        if kind == "hash":
            return dict(sorted((await self.redis.hgetall(key)).items()))
        if kind == "zset":
            return await self.redis.zrange(key, 0, -1, withscores=True)
        if kind == "list":
            return await self.redis.lrange(key, 0, -1)
        if kind == "stream":
            return await self.redis.xrange(key)
        return await self.redis.get(key)


class MemoryWorld(World):
    """A queue in memory. A millisecond passes before each claim and settle, as it does on a server."""

    store: MemoryStore

    def __init__(self, store: MemoryStore, queue: QueueName = QUEUE) -> None:
        super().__init__(store, queue)

    def number(self, owner: Owner = ANN) -> int:
        self.store.advance(0.001)
        return super().number(owner)

    async def advance(self, seconds: float) -> None:
        self.store.advance(seconds)

    async def fall_silent(self, seconds: float) -> None:
        self.store.advance(seconds, heard=False)
