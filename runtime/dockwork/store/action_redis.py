"""The part of the Redis store that carries out people's actions, each in steps that a script bounds."""

from __future__ import annotations

import builtins
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dockwork.core.keys import QueueKeys, QueueName, queues_key
from dockwork.core.states import State
from dockwork.store import action_calls
from dockwork.store.action_calls import Weight
from dockwork.store.connections import Asks
from dockwork.store.cron_redis import CronStore
from dockwork.store.protocol import (
    Acted,
    JobChange,
    Migrated,
    Obliterated,
    Purge,
    Purged,
    Repaired,
    Resealed,
    Upkeep,
)

R = TypeVar("R")

#: Tries to count a queue that goes on moving.
_COUNTS = 3
_PAGE = 1000


class ActionStore(CronStore):
    """People's actions in Redis. `RedisStore` is one; it sends the calls."""

    @abstractmethod
    def keys(self, queue: QueueName) -> QueueKeys: ...

    @abstractmethod
    async def _wire(self, queue: QueueName | None = None) -> Asks: ...

    async def redrive(
        self,
        queue: QueueName,
        picks: Sequence[tuple[str, str]],
        fresh: Mapping[str, Resealed] | None = None,
    ) -> builtins.list[Acted]:
        keys, size = self.keys(queue), action_calls.REDRIVE_CHUNK
        said: builtins.list[Acted] = []
        for first in range(0, len(picks), size):
            call = action_calls.redrive(keys, picks[first : first + size], fresh)
            part: builtins.list[Acted] = await self._run(call)
            said += part
        return said

    async def edit(self, queue: QueueName, job_id: str, revision: int, change: JobChange) -> Acted:
        keys = self.keys(queue)
        word = await self._run(action_calls.edit(keys, job_id, revision, change))
        return action_calls.read_edit(keys, job_id, word)

    async def count_purge(self, queue: QueueName, state: State, before_ms: int | None = None) -> Purge:
        return (await self._run(action_calls.purge(self.keys(queue), state, before_ms, ""))).left

    async def purge(self, queue: QueueName, purge: Purge) -> Purged:
        return await self._run(
            action_calls.purge(self.keys(queue), purge.state, purge.before_ms, purge.digest)
        )

    async def obliterate(self, queue: QueueName, token: str) -> Obliterated:
        keys = self.keys(queue)
        part: action_calls.Part = await self._run(action_calls.obliterate(keys, token))
        at = part.at
        if at.missing:
            await self._forget(queue)
        if part.said != "empty":
            return at
        # No job is left: what else there is of the queue goes key by key, and its meta last.
        wire = await self._wire(queue)
        last = {keys.meta.encode(), keys.events.encode()}
        async for page in self._scan(queue, keys.prefix):
            gone = [key for key in page if key not in last]
            if gone:
                await wire.ask("UNLINK", *gone)
        said = await self._run(action_calls.obliterate_end(keys, token))
        await self._forget(queue)
        return replace(at, done=said == "ok", missing=said == "missing", conflicted=said == "conflicted")

    async def _forget(self, queue: QueueName) -> None:
        if queue.partition in (None, 0):
            # The list of queues says how many partitions there are: the first one goes last, and takes it along.
            registry = await self._wire()
            await registry.ask("HDEL", queues_key(queue.namespace), queue.queue)
        self.forget_queue(queue)

    @abstractmethod
    async def expire(self, queue: QueueName) -> int: ...

    @abstractmethod
    def forget_queue(self, queue: QueueName) -> None:
        """The queue is gone: who uses it again announces it again."""

    async def repair(self, queue: QueueName) -> Repaired:
        keys, found = self.keys(queue), Repaired()
        ids: set[str] = set()
        async for job_id in self._ids(queue):
            ids.add(job_id)
        for chunk in _chunks(sorted(ids)):
            one = await self._run(action_calls.repair(keys, chunk))
            found = replace(
                found,
                checked=found.checked + one.checked,
                no_index=found.no_index + one.no_index,
                no_record=found.no_record + one.no_record,
                wrong_index=found.wrong_index + one.wrong_index,
                no_envelope=found.no_envelope + one.no_envelope,
            )
        locks = 0
        async for page in self._scan(queue, keys.unique):
            hashes = [key.decode().removeprefix(keys.unique) for key in page]
            for chunk in _chunks(hashes):
                locks += await self._run(action_calls.repair_locks(keys, chunk))
        counters = await self._recount(queue)
        if counters and {"keys", "held"} & set(counters):
            await self.expire(queue)  # which lets in what waits aside and may not have to
        return replace(found, locks=locks, counters=counters or (), busy=counters is None)

    async def _recount(self, queue: QueueName) -> tuple[str, ...] | None:
        """The counters that were wrong; None where the queue never stood still for long enough."""
        keys = self.keys(queue)
        for _ in range(_COUNTS):
            total = await self._run(action_calls.weigh(keys, ()))
            by_key: Counter[str] = Counter()
            sealed: Counter[str] = Counter()
            ids: set[str] = set()
            async for page in self._scan(queue, keys.records):
                ids |= {key.decode().removeprefix(keys.records) for key in page}
            for chunk in _chunks(sorted(ids)):
                one = await self._run(action_calls.weigh(keys, chunk))
                by_key.update(one.keys)
                sealed.update(one.sealed)
                total = Weight(
                    total.mark,
                    total.bytes + one.bytes,
                    total.kept + one.kept,
                    total.kept_completed + one.kept_completed,
                )
            counters = await self._run(action_calls.recount(keys, total, by_key, sealed))
            if counters is not None:
                return counters
        return None

    async def _ids(self, queue: QueueName) -> AsyncIterator[str]:
        """Every id that any key or index of the queue has; some more than once."""
        keys = self.keys(queue)
        for prefix in (keys.records, keys.envelopes, keys.outputs):
            async for page in self._scan(queue, prefix):
                for key in page:
                    yield key.decode().removeprefix(prefix)
        indexes = [
            keys.ready, keys.prio, keys.delayed, keys.lease, keys.completed, keys.failed, keys.dead,
            keys.expired, keys.cancelled, keys.expiry,
        ]  # fmt: skip
        for prefix in (keys.parked_types, keys.held_jobs):
            async for page in self._scan(queue, prefix):
                indexes += [key.decode() for key in page]
        wire = await self._wire(queue)
        for index in indexes:
            cursor = b"0"
            while True:
                cursor, flat = await wire.ask("ZSCAN", index, cursor, "COUNT", _PAGE)
                for member in flat[::2]:
                    yield member.decode()
                if cursor == b"0":
                    break

    async def _scan(self, queue: QueueName, prefix: str) -> AsyncIterator[builtins.list[bytes]]:
        """Pages of the keys that begin so; a key that was there throughout is in one of them, or in several."""
        pattern = "".join(f"\\{letter}" if letter in "[]?*^\\" else letter for letter in prefix) + "*"
        wire = await self._wire(queue)
        cursor: Any = b"0"
        while True:
            cursor, page = await wire.ask("SCAN", cursor, "MATCH", pattern, "COUNT", _PAGE)
            if page:
                yield page
            if cursor == b"0":
                return

    async def upkeep(self, queue: QueueName) -> Upkeep:
        keys, remembered = self.keys(queue), 0
        async for page in self._scan(queue, keys.idempotency):
            remembered += len(page)
        wire = await self._wire(queue)
        seconds, micros = await wire.ask("TIME")
        now_ms = int(seconds) * 1000 + int(micros) // 1000
        overdue = int(await wire.ask("ZCOUNT", keys.lease, "-inf", f"({now_ms}"))
        oldest = await wire.ask("ZRANGE", keys.lease, 0, 0, "WITHSCORES")
        late_ms = now_ms - int(float(oldest[1])) if overdue and oldest else 0
        return Upkeep(idempotency_keys=remembered, overdue=overdue, overdue_ms=max(late_ms, 0))

    async def migrate(self, queue: QueueName, version: int) -> Migrated:
        return await self._run(action_calls.migrate(self.keys(queue), version))


def _chunks(ids: Sequence[str]) -> list[Sequence[str]]:
    size = action_calls.REPAIR_CHUNK
    return [ids[first : first + size] for first in range(0, len(ids), size)]
