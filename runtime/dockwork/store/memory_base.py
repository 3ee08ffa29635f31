"""What all calls of a store in memory stand on: its clock, its lock, and how those who wait are told."""

from __future__ import annotations

import builtins
import secrets
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from dockwork import clock
from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.errors import SchemaMismatch, require
from dockwork.store.calls import SCHEMA
from dockwork.store.cron_memory import CronMemory
from dockwork.store.memory_queue import MemoryQueue, Turn, earliest
from dockwork.store.memory_waits import Inbox
from dockwork.store.protocol import CronEntry, CronState, Ticked

_MS = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class MemoryBase(CronMemory):
    """Queues in memory, one call at a time."""

    def __init__(
        self, *, start: datetime | None = None, ticking: bool = False, lease: timedelta | None = None
    ) -> None:
        super().__init__()
        require(start is None or start.tzinfo is not None, "start", expected="a time zone", got=start)
        self._lease_ms = 0 if lease is None else lease // _MS
        self._ticking = ticking
        begun_us = _us(clock.now() if start is None else start)
        #: Ticking: this store's time minus the machine's. Standing still: the time itself.
        self._clock_us = begun_us - _us(clock.now()) if ticking else begun_us
        self._run_id = secrets.token_hex(20)
        self._queues: dict[QueueName, MemoryQueue] = {}
        self._announced: set[QueueName] = set()
        self._counts: dict[tuple[str, str], int] = {}  #: namespace and queue: partitions, where it was said
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._listeners: weakref.WeakSet[Inbox[QueueName]] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"MemoryStore({self.now().isoformat(timespec='milliseconds')})"

    # --- time

    def now(self) -> datetime:
        """The store's time."""
        return _EPOCH + timedelta(microseconds=self._now_us())

    def advance(self, seconds: float, *, heard: bool = True) -> None:
        """Let so much time pass at once. Whoever waits for work is woken if something is due then.

        heard      False: as if the store had answered nobody in this time
        """
        require(seconds >= 0, "seconds", expected="0 or more", got=seconds)
        with self._lock:
            self._clock_us += round(seconds * 1_000_000)
            for name, queue in self._queues.items():
                due = earliest(queue.first_due, queue.lease.first(), self._next_tick_ms(name))
                queue.overdue = queue.overdue or (due is not None and due <= self._now_ms())
                if heard and queue.seen is not None:
                    queue.seen += round(seconds * 1000)
                self._tell(name, queue)

    def _now_us(self) -> int:
        return self._clock_us + _us(clock.now()) if self._ticking else self._clock_us

    def _now_ms(self) -> int:
        return self._now_us() // 1000

    # --- one call at a time

    @contextmanager
    def _turn(self, name: QueueName) -> Iterator[Turn]:
        """What a script is on Redis: alone with the queue, at one moment; its events and markers go out at the end."""
        with self._lock:
            queue = self._queue(name)
            if queue.schema != SCHEMA:
                raise SchemaMismatch(found=queue.schema, readable=SCHEMA)
            turn = Turn(queue, self._now_us(), self._run_id)
            yield turn
            turn.finish()
            self._tell(name, queue)

    def _queue(self, name: QueueName) -> MemoryQueue:
        with self._lock:
            queue = self._queues.get(name)
            if queue is None:
                queue = self._queues[name] = MemoryQueue(name)
            return queue

    def _tell(self, name: QueueName, queue: MemoryQueue) -> None:
        """Hand markers to those who wait, longest first; wake readers of events, sleepers and listeners."""
        while queue.waiters and (queue.overdue or queue.wake):
            due = self._pop(queue)
            while queue.waiters and not queue.waiters.pop(0).give(due):
                pass
        for reader in queue.readers:
            reader.give(None)
        queue.readers.clear()
        if queue.has_published:
            queue.has_published = False
            for listener in list(self._listeners):
                listener.put(name)
        self._changed.notify_all()

    def _pop(self, queue: MemoryQueue) -> int:
        """The due time of a marker: that of time that was moved goes first."""
        if queue.overdue:
            queue.overdue = False
            return 0
        return queue.wake.pop_first()[0]

    def _state_of(self, queue: QueueName, job_id: str) -> State | None:
        record = self._queue(queue).records.get(job_id)
        return None if record is None else record.state

    # --- schedules: the rules are CronMemory's; here they are kept atomic and wake who waits

    async def tick(
        self, queue: QueueName, uid: str | None = None, *, by: str = "worker"
    ) -> builtins.list[Ticked]:
        with self._scheduling(queue):
            return await super().tick(queue, uid, by=by)

    async def plan(
        self,
        queue: QueueName,
        entry: CronEntry,
        instants_ms: Sequence[int],
        *,
        generation: int,
        reset: bool,
        from_ms: int = 0,
        decided_ms: int | None = None,
        left_out: int = 0,
    ) -> str:
        with self._scheduling(queue):
            self._announced.add(queue)
            return await super().plan(
                queue,
                entry,
                instants_ms,
                generation=generation,
                reset=reset,
                from_ms=from_ms,
                decided_ms=decided_ms,
                left_out=left_out,
            )

    async def resume(self, queue: QueueName, uid: str) -> str:
        with self._scheduling(queue):
            return await super().resume(queue, uid)

    async def _extend(
        self, queue: QueueName, state: CronState, instants_ms: Sequence[int], *, from_ms: int, left_out: int
    ) -> str:
        with self._scheduling(queue):
            return await super()._extend(queue, state, instants_ms, from_ms=from_ms, left_out=left_out)

    async def suspend(self, queue: QueueName, uid: str) -> str:
        with self._scheduling(queue):
            return await super().suspend(queue, uid)

    async def unplan(self, queue: QueueName, uid: str) -> bool:
        with self._lock:
            return await super().unplan(queue, uid)

    async def cron_states(
        self, queue: QueueName, uids: Sequence[str] | None = None
    ) -> builtins.list[CronState]:
        with self._lock:
            return await super().cron_states(queue, uids)

    @contextmanager
    def _scheduling(self, queue: QueueName) -> Iterator[None]:
        """The first of all schedules has a marker of its own."""
        with self._turn(queue) as turn:
            yield
            first = self._next_tick_ms(queue)
            if first is None:
                turn.queue.wake.remove("cron")
            else:
                turn.queue.wake.add("cron", first)


def _us(at: datetime) -> int:
    return (at - _EPOCH) // timedelta(microseconds=1)
