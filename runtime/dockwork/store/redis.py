"""`Store` on Redis (6.2 or later) or Valkey (7.2 or later): each transition is one script call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from dockwork.core.keys import QueueKeys, QueueName, queues_key
from dockwork.errors import OutcomeUnknown
from dockwork.settings import RedisSettings
from dockwork.store import calls
from dockwork.store.calls import Call, Claimant
from dockwork.store.connections import Commands, Connector, Pace, Wire
from dockwork.store.cron_redis import CronStore
from dockwork.store.protocol import (
    Admission,
    Claimed,
    Heartbeat,
    Lease,
    NewJob,
    Owner,
    Put,
    Renewal,
    Settled,
    Settlement,
    Verdict,
    Wake,
)
from dockwork.store.waiting import Waiters

R = TypeVar("R")


class RedisStore(CronStore):
    """Jobs on one Redis server. Opens connections on first use, and again after `close`.

    redis        settings, or a URL
    ca_file      certificates trusted besides the system's; beats the settings'
    lease        how long a claim is safe without renewal; None = what the queue says, else 15 s
    """

    def __init__(
        self,
        redis: RedisSettings | str | None = None,
        *,
        ca_file: str | None = None,
        client_name: str = "dockwork",
        lease: timedelta | None = None,
    ) -> None:
        self._connector = Connector.of(redis, ca_file=ca_file, client_name=client_name)
        self._connector.check()
        self._lease_ms = 0 if lease is None else lease // timedelta(milliseconds=1)
        self._keys: dict[QueueName, QueueKeys] = {}
        self._announced: set[QueueName] = set()
        self._parts: _Parts | None = None

    def __repr__(self) -> str:
        return f"RedisStore({self._connector})"

    # --- connections

    async def open(self) -> None:
        """Connect now. Raises StoreUnavailable, AccessDenied, InvalidUrl."""
        await self.ping()

    async def close(self) -> None:
        """Close every connection; a later call connects again."""
        parts, self._parts = self._parts, None
        self._announced.clear()
        if parts is not None:
            await parts.waiters.close()
            await parts.commands.close()

    async def ping(self) -> int:
        wire = await self._wire()
        seconds, micros = await wire.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _wire(self) -> Wire:
        return await self._connected().commands.wire()

    def _connected(self) -> _Parts:
        """The connections of this event loop; a store that moves to another loop leaves the old ones behind."""
        loop = asyncio.get_running_loop()
        if self._parts is None or self._parts.loop is not loop:
            self._announced.clear()
            self._parts = _Parts(self._connector, loop)
        return self._parts

    def keys(self, queue: QueueName) -> QueueKeys:
        keys = self._keys.get(queue)
        if keys is None:
            keys = self._keys[queue] = QueueKeys(queue)
        return keys

    async def _run(self, call: Call[R], wire: Wire | None = None) -> R:
        """Send `call`; a lost answer carries its job ids, and asks by them."""
        if wire is None:
            wire = await self._wire()
        try:
            answer: R = await wire.call(call)
        except OutcomeUnknown as error:
            raise self._unknown(error, call) from error
        return answer

    def _unknown(self, error: OutcomeUnknown, call: Call[Any]) -> OutcomeUnknown:
        queue, ids = call.keys.name, list(call.job_ids)

        async def resolve() -> list[Any]:
            return [await self.get(queue, job_id) for job_id in ids]

        return OutcomeUnknown(f"{call.script} on {queue}: {error}", ids, resolve)

    async def _announce(self, queue: QueueName, wire: Wire) -> None:
        """Enter the queue in its namespace's list, once per process and connection set: another slot than its keys."""
        if queue not in self._announced:
            partitions = "1" if queue.partition is None else "0"
            await wire.command("HSETNX", queues_key(queue.namespace), queue.queue, partitions)
            self._announced.add(queue)

    # --- producers

    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> list[Admission]:
        keys = self.keys(queue)
        if not jobs:
            return []
        batches = [calls.enqueue(keys, batch) for batch in enqueue_batches(jobs)]
        wire = await self._wire()
        await self._announce(queue, wire)
        admissions: list[Admission] = []
        for batch in batches:
            admissions += await self._run(batch)
        return admissions

    # --- workers

    async def claim(
        self, queue: QueueName, owner: Owner, *, number: int, slots: int, known: Sequence[str] = ()
    ) -> Claimed:
        wire = await self._wire()
        who = Claimant(owner, number, slots, wire.run_id, known, self._lease_ms)
        return await self._run(calls.claim(self.keys(queue), who), wire)

    async def start(self, queue: QueueName, leases: Sequence[Lease]) -> list[Verdict]:
        return await self._run(calls.start(self.keys(queue), leases))

    async def settle(
        self,
        queue: QueueName,
        owner: Owner,
        settlements: Sequence[Settlement],
        *,
        number: int,
        claim_next: int = 0,
        known: Sequence[str] = (),
    ) -> Settled:
        wire = await self._wire()
        who = Claimant(owner, number, claim_next, wire.run_id, known, self._lease_ms)
        return await self._run(calls.settle(self.keys(queue), who, settlements), wire)

    async def renew(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal:
        wire = await self._wire()
        await self._announce(queue, wire)
        call = calls.renew(self.keys(queue), leases, beat, run_id=wire.run_id, lease_ms=self._lease_ms)
        return await self._run(call, wire)

    async def requeue(
        self,
        queue: QueueName,
        owner: Owner,
        leases: Sequence[Lease],
        *,
        put: Put = Put.FRONT,
        reason: str = "drained",
    ) -> list[Verdict]:
        return await self._run(calls.requeue(self.keys(queue), leases, put, reason))

    async def wait(self, queue: QueueName, timeout_s: float) -> Wake | None:
        return await self._connected().waiters.wait(self.keys(queue), timeout_s)


class _Parts:
    """What belongs to one event loop."""

    def __init__(self, connector: Connector, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        pace = Pace()
        self.commands = Commands(connector, pace)
        self.waiters = Waiters(connector, pace, self.commands)


def enqueue_batches(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """`jobs` in order, in chunks of at most 256 and 1 MiB; a larger job travels alone."""
    batches: list[Sequence[NewJob]] = []
    first = size = 0
    for at, job in enumerate(jobs):
        bytes_ = len(job.envelope)
        if at > first and (at - first >= calls.ENQUEUE_JOBS or size + bytes_ > calls.ENQUEUE_BYTES):
            batches.append(jobs[first:at])
            first, size = at, 0
        size += bytes_
    batches.append(jobs[first:])
    return batches
