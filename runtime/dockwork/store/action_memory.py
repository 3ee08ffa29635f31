"""The part of the store in memory that carries out people's actions."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence

from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.store import action_calls, memory_actions
from dockwork.store.memory_base import MemoryBase
from dockwork.store.memory_queue import Turn
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


class ActionMemory(MemoryBase):
    """People's actions in memory; `MemoryStore` is one."""

    async def redrive(
        self,
        queue: QueueName,
        picks: Sequence[tuple[str, str]],
        fresh: Mapping[str, Resealed] | None = None,
    ) -> builtins.list[Acted]:
        with self._turn(queue) as turn:
            return [
                memory_actions.redrive(turn, job_id, digest, (fresh or {}).get(job_id))
                for job_id, digest in picks
            ]

    async def edit(self, queue: QueueName, job_id: str, revision: int, change: JobChange) -> Acted:
        action_calls.check_change(change)
        with self._turn(queue) as turn:
            return memory_actions.edit(turn, job_id, revision, change)

    async def count_purge(self, queue: QueueName, state: State, before_ms: int | None = None) -> Purge:
        action_calls.purge(self._queue(queue).keys, state, before_ms, "")
        with self._turn(queue) as turn:
            return memory_actions.look(turn.queue, state, turn.ms if before_ms is None else before_ms)

    async def purge(self, queue: QueueName, purge: Purge) -> Purged:
        with self._turn(queue) as turn:
            return memory_actions.purge(turn, purge)

    async def obliterate(self, queue: QueueName, token: str) -> Obliterated:
        action_calls.obliterate(self._queue(queue).keys, token)
        with self._turn(queue) as turn:
            at = memory_actions.obliterate(turn, token)
        if at.done:
            for state in await self.cron_states(queue):
                await self.unplan(queue, state.uid)
            self._announced.discard(queue)
        return at

    async def repair(self, queue: QueueName) -> Repaired:
        with self._turn(queue) as turn:
            return memory_actions.repair(turn.queue)

    async def upkeep(self, queue: QueueName) -> Upkeep:
        with self._turn(queue) as turn:
            return memory_actions.upkeep(turn)

    async def migrate(self, queue: QueueName, version: int) -> Migrated:
        action_calls.migrate(self._queue(queue).keys, version)
        with self._lock:
            data = self._queue(queue)
            return memory_actions.migrate(Turn(data, self._now_us(), self._run_id), version)
