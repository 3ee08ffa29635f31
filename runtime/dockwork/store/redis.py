"""`Store` on Redis (6.2 or later) or Valkey (7.2 or later): each transition is one script call."""

from __future__ import annotations

import asyncio
import builtins
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any, TypeVar

from dockwork.core.keys import QueueKeys, QueueName, queues_key
from dockwork.core.states import State
from dockwork.errors import DockworkError, OutcomeUnknown, ScriptFailed, StoreUnavailable, require
from dockwork.settings import RedisSettings
from dockwork.store import calls, event_calls, limit_calls, operator_calls, sealing_calls, views
from dockwork.store.action_redis import ActionStore
from dockwork.store.beats import decode_beat
from dockwork.store.calls import Call, Claimant
from dockwork.store.cluster import ClusterNodes
from dockwork.store.connections import Asks, Commands, Pace, Sent, Wire, parse_info
from dockwork.store.connectors import Connector
from dockwork.store.listening import EventReads, listen, listen_events
from dockwork.store.partition_shares import refuse_if_used
from dockwork.store.probes import refusals
from dockwork.store.protocol import (
    Admission,
    Claimed,
    Done,
    Event,
    EventOptions,
    Heartbeat,
    JobView,
    Lease,
    MinuteFigures,
    NewJob,
    Owner,
    OwnerRecord,
    Put,
    QueueConfig,
    QueueErrors,
    QueueStats,
    Refusal,
    Renewal,
    Reseal,
    Resealing,
    RevokeCause,
    Sample,
    SampleRequest,
    SealedJob,
    SealedPage,
    Settled,
    Settlement,
    Verdict,
    Wake,
    Writing,
)
from dockwork.store.renewal import RedisRenewalChannel
from dockwork.store.replicas import Replicated
from dockwork.store.sending import NotRun
from dockwork.store.topology import slot_of
from dockwork.store.views import to_map
from dockwork.store.waiting import Waiters

R = TypeVar("R")

#: Until the registry's node of a Cluster is tried again.
ANNOUNCE_AGAIN_S = 10.0


class RedisStore(ActionStore):
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
        self._announce_at = 0.0
        self._counts: dict[tuple[str, str], int] = {}
        self._parts: _Parts | None = None

    def __repr__(self) -> str:
        return f"RedisStore({self._connector})"

    # --- connections

    async def open(self) -> None:
        """Connect now. Raises StoreUnavailable, AccessDenied, InvalidUrl."""
        await self.ping()

    async def close(self) -> None:
        """Close every connection; a later call connects again."""
        parts = self._parts
        if parts is not None:
            # It gives back by the others: a call after them would connect again, and nobody would close that.
            await parts.waiters.close()
        parts, self._parts = self._parts, None
        self._announced.clear()
        if parts is not None:
            await parts.events.close()
            await parts.replicated.close()
            await parts.commands.close()
            if parts.nodes is not None:
                await parts.nodes.close()

    async def ping(self) -> int:
        wire = await self._wire()
        seconds, micros = await wire.ask("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    async def _wire(self, queue: QueueName | None = None) -> Asks:
        """What to send by: on a Cluster at the node of `queue`, whose run id a script is told."""
        parts = self._connected()
        if parts.nodes is None:
            return await parts.commands.wire()
        return await parts.nodes.routed(None if queue is None else slot_of(self.keys(queue).prefix))

    def _connected(self) -> _Parts:
        """The connections of this event loop; a store that moves to another loop leaves the old ones behind."""
        loop = asyncio.get_running_loop()
        if self._parts is None or self._parts.loop is not loop:
            self._announced.clear()
            self._parts = _Parts(self._connector, loop, lambda keys: self._wire(keys.name))
        return self._parts

    def keys(self, queue: QueueName) -> QueueKeys:
        keys = self._keys.get(queue)
        if keys is None:
            keys = self._keys[queue] = QueueKeys(queue)
        return keys

    def forget_queue(self, queue: QueueName) -> None:
        self._announced.discard(queue)

    async def _run(self, call: Call[R], wire: Asks | None = None) -> R:
        """Send `call`; a lost answer carries its job ids, and asks by them."""
        if wire is None:
            wire = await self._wire(call.keys.name)
        try:
            answer: R = await wire.call(call)
        except OutcomeUnknown as error:
            raise self._unknown(error, call) from error
        return answer

    def _unknown(self, error: OutcomeUnknown, call: Call[Any]) -> OutcomeUnknown:
        queue, ids = call.keys.name, list(call.job_ids)

        async def resolve() -> builtins.list[Any]:
            return [await self.get(queue, job_id) for job_id in ids]

        return OutcomeUnknown(f"{call.script} on {queue}: {error}", ids, resolve)

    async def _announce(self, queue: QueueName, wire: Asks) -> None:
        """Enter the queue in its namespace's list, once per process and connection set: another slot than its keys.

        A full Redis refuses it; then it is tried again with the next call, which goes on all the same.
        """
        nodes = self._connected().nodes
        if queue not in self._announced and asyncio.get_running_loop().time() >= self._announce_at:
            count = 1 if queue.partition is None else self._counts.get((queue.namespace, queue.queue))
            if count is None:
                return
            try:
                await wire.ask("HSETNX", queues_key(queue.namespace), queue.queue, count)
            except ScriptFailed:
                return
            except StoreUnavailable:
                # On a Cluster the registry is another node's: that one's absence stops no queue of the others.
                if nodes is None:
                    raise
                self._announce_at = asyncio.get_running_loop().time() + ANNOUNCE_AGAIN_S
                return
            self._announced.add(queue)

    async def enter(self, queue: QueueName) -> None:
        await self._announce(queue, await self._wire(queue))

    # --- producers

    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> builtins.list[Admission]:
        keys = self.keys(queue)
        if not jobs:
            return []
        batches = [calls.enqueue(keys, batch) for batch in calls.enqueue_batches(jobs)]
        wire = await self._wire(queue)
        await self._announce(queue, wire)
        admissions: builtins.list[Admission] = []
        replicas = max(job.replicas for job in jobs)
        if (
            isinstance(wire, Wire)
            and len(batches) > 1
            and not replicas
            and all(job.keys is None for job in jobs)
        ):
            return await self._run_in_pairs(batches, wire)
        for batch in batches:
            answer = await (self._run_replicated(batch, replicas) if replicas else self._run(batch))
            admissions += answer
        return admissions

    async def _run_in_pairs(
        self, batches: Sequence[Call[builtins.list[Admission]]], wire: Wire
    ) -> builtins.list[Admission]:
        """The answers of calls in order, two of them under way: Redis stores one while the next is written."""
        admissions: builtins.list[Admission] = []
        begun: deque[tuple[Call[builtins.list[Admission]], SentEnqueue | None]] = deque()
        left, together = iter(batches), 2
        try:
            while True:
                for call in islice(left, max(0, together - len(begun))):
                    sent = wire.begin(call)
                    begun.append((call, None if sent is None else SentEnqueue(self, sent)))
                if not begun:
                    return admissions
                call, under_way = begun.popleft()
                try:
                    if under_way is None:
                        raise NotRun
                    await asyncio.wait([under_way.future])
                    admissions += under_way.admissions()
                except NotRun:
                    together = 1  # the others may not have run either: none shall go before them
                    answer = await self._run(call)
                    admissions += answer
        finally:
            for _, under_way in begun:  # one before it failed: what becomes of it is told with that
                if under_way is not None:
                    under_way.future.add_done_callback(_looked_at)

    def begin_enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> SentEnqueue | None:
        """`enqueue` without a task, by a connection that is open and has room; None where it takes more than that.

        Raises    InvalidValue for a job that would not survive in Redis
        """
        parts = self._parts
        if parts is None or parts.nodes is not None or queue not in self._announced:
            return None
        if parts.loop is not asyncio.get_running_loop():
            return None
        wire = parts.commands.idle()
        if wire is None or type(self).enqueue is not RedisStore.enqueue or any(job.replicas for job in jobs):
            return None
        if len(jobs) > 1 and len(calls.enqueue_batches(jobs)) > 1:
            return None
        sent = wire.begin(calls.enqueue(self.keys(queue), jobs))
        return None if sent is None else SentEnqueue(self, sent)

    async def _run_replicated(
        self, batch: Call[builtins.list[Admission]], replicas: int
    ) -> builtins.list[Admission]:
        try:
            answer, met = await self._connected().replicated.run(batch, replicas)
        except OutcomeUnknown as error:
            raise self._unknown(error, batch) from error
        return [replace(admission, replicated=met) for admission in answer]

    # --- workers

    async def claim(
        self, queue: QueueName, owner: Owner, *, number: int, slots: int, known: Sequence[str] = ()
    ) -> Claimed:
        wire = await self._wire(queue)
        who = Claimant(owner, number, slots, wire.run_id, known, self._lease_ms)
        return await self._run(calls.claim(self.keys(queue), who), wire)

    async def start(self, queue: QueueName, leases: Sequence[Lease]) -> builtins.list[Verdict]:
        return await self._run(calls.start(self.keys(queue), leases))

    async def settle(
        self,
        queue: QueueName,
        owner: Owner,
        settlements: Sequence[Settlement],
        *,
        done: Sequence[Done] = (),
        number: int,
        claim_next: int = 0,
        known: Sequence[str] = (),
    ) -> Settled:
        wire = await self._wire(queue)
        who = Claimant(owner, number, claim_next, wire.run_id, known, self._lease_ms)
        return await self._run(calls.settle(self.keys(queue), who, settlements, done), wire)

    async def renew(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal:
        wire = await self._wire(queue)
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
    ) -> builtins.list[Verdict]:
        return await self._run(calls.requeue(self.keys(queue), leases, put, reason))

    async def child_died(
        self, queue: QueueName, deaths: Sequence[tuple[Lease, str]]
    ) -> builtins.list[Verdict]:
        verdicts: builtins.list[Verdict] = []
        for first in range(0, len(deaths), calls.DEATHS):
            call = calls.child_died(self.keys(queue), deaths[first : first + calls.DEATHS])
            said = await self._run(call)
            verdicts += said
        return verdicts

    async def wait(self, queue: QueueName, timeout_s: float) -> Wake | None:
        return await self._connected().waiters.wait(self.keys(queue), timeout_s)

    async def progress(self, queue: QueueName, lease: Lease, value: bytes) -> Verdict:
        return await self._run(calls.progress(self.keys(queue), lease, value))

    async def log(self, queue: QueueName, lease: Lease, lines: Sequence[str]) -> Verdict:
        return await self._run(calls.log(self.keys(queue), lease, lines))

    async def checkpoint(self, queue: QueueName, lease: Lease, value: bytes) -> Verdict:
        return await self._run(calls.checkpoint(self.keys(queue), lease, value))

    async def register(
        self, queue: QueueName, template_hash: str, types: Mapping[str, tuple[str, bytes]]
    ) -> None:
        wire = await self._wire(queue)
        await self._announce(queue, wire)
        await self._run(calls.register(self.keys(queue), template_hash, types), wire)

    async def leave(self, queue: QueueName, owner: Owner, beat: Heartbeat) -> None:
        await self._run(calls.leave(self.keys(queue), owner, beat))

    async def predecessors(self, queue: QueueName, owner: Owner) -> builtins.list[str]:
        wire = await self._wire(queue)
        beats = [
            decode_beat(beat) for beat in to_map(await wire.ask("HGETALL", self.keys(queue).workers)).values()
        ]
        same = (beat for beat in beats if beat.pod == owner.pod and beat.container == owner.container)
        return [beat.owner for beat in same if beat.owner != str(owner)]

    async def config(self, queue: QueueName) -> QueueConfig:
        wire = await self._wire(queue)
        values = await wire.ask("HMGET", self.keys(queue).meta, *operator_calls.CONFIG_FIELDS)
        return operator_calls.read_config(values)

    def renewal_channel(self) -> RedisRenewalChannel:
        return RedisRenewalChannel(self._connector, self._lease_ms, self._counts)

    # --- upkeep: each script call is bounded, so these repeat while there is more

    async def promote(self, queue: QueueName, ids: Sequence[str] | None = None) -> int:
        keys, moved = self.keys(queue), 0
        if ids is not None:
            for first in range(0, len(ids), calls.PROMOTE_CHUNK):
                moved += await self._run(calls.promote(keys, ids[first : first + calls.PROMOTE_CHUNK]))
            return moved
        while True:
            found = await self._run(calls.promote(keys, None))
            moved += found
            if found < calls.PROMOTE_CHUNK:
                return moved

    async def reap(self, queue: QueueName) -> tuple[int, int]:
        returned = buried = 0
        while True:
            wire = await self._wire(queue)
            call = calls.reap(self.keys(queue), run_id=wire.run_id, lease_ms=self._lease_ms)
            back, dead = await self._run(call, wire)
            returned, buried = returned + back, buried + dead
            if back + dead < calls.REAP_CHUNK:
                return returned, buried

    async def expire(self, queue: QueueName) -> int:
        expired = 0
        while True:
            found = await self._run(calls.expire(self.keys(queue)))
            expired += found
            if found < calls.EXPIRE_CHUNK:
                return expired

    async def trim(self, queue: QueueName) -> int:
        deleted = 0
        while True:
            found = await self._run(calls.trim(self.keys(queue)))
            deleted += found
            if found < calls.TRIM_CHUNK:
                return deleted

    # --- the operator

    async def configure(
        self,
        queue: QueueName,
        config: QueueConfig,
        owner: OwnerRecord | None,
        *,
        how: Writing = Writing.PLAINLY,
    ) -> OwnerRecord | None:
        wire = await self._wire(queue)
        await self._announce(queue, wire)
        return await self._run(operator_calls.configure(self.keys(queue), config, owner, how), wire)

    async def sample(
        self, queue: QueueName, *, horizon_ms: int, template_hash: str = "", cold: bool = False
    ) -> Sample:
        wire = await self._wire(queue)
        request = SampleRequest(queue=queue, horizon_ms=horizon_ms, template_hash=template_hash, cold=cold)
        return await self._run(self._sample(request, wire), wire)

    async def samples(self, requests: Sequence[SampleRequest]) -> builtins.list[Sample | DockworkError]:
        wire = await self._wire()
        if self._connected().nodes is None:
            asked = [wire.call(self._sample(request, wire)) for request in requests]
        else:
            asked = [self._sample_alone(request) for request in requests]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found: list[Sample | DockworkError] = []
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, DockworkError):
                raise answer
            found.append(answer)
        if not wire.alive and self._connected().nodes is None:
            # One lost connection is one fault, not a fault of each queue.
            for answer in found:
                if isinstance(answer, DockworkError):
                    raise answer
        return found

    async def _sample_alone(self, request: SampleRequest) -> Sample:
        wire = await self._wire(request.queue)
        return await self._run(self._sample(request, wire), wire)

    def _sample(self, request: SampleRequest, wire: Asks) -> Call[Sample]:
        return operator_calls.sample(
            self.keys(request.queue),
            run_id=wire.run_id,
            horizon_ms=request.horizon_ms,
            template_hash=request.template_hash,
            cold=request.cold,
        )

    async def quiesce(self, queue: QueueName, requests: Mapping[str, str]) -> Mapping[str, int]:
        return await self._run(operator_calls.quiesce(self.keys(queue), requests))

    async def unquiesce(self, queue: QueueName, pods: Sequence[str]) -> None:
        await self._run(operator_calls.unquiesce(self.keys(queue), pods))

    async def revoke(self, queue: QueueName, owner: str, cause: RevokeCause, exit_reason: str = "") -> int:
        revoked = at = 0
        while at >= 0:
            call = operator_calls.revoke(self.keys(queue), owner, cause, exit_reason, at)
            found, at = await self._run(call)
            revoked += found
        return revoked

    def wakes(self) -> AsyncIterator[QueueName]:
        return listen(self._connector, self._connected().listening)

    async def server(self) -> Mapping[str, Any]:
        nodes = self._connected().nodes
        if nodes is None:
            return await _figures_of(await self._wire())
        # Of a Cluster: what is worst on any of its primaries, and their memory together.
        each = [await _figures_of(wire) for wire in await nodes.every()]
        evicting = [one["policy"] for one in each if one["policy"] not in ("", "noeviction")]
        return {
            **each[0],
            "policy": evicting[0] if evicting else each[0]["policy"],
            "used_memory": sum(one["used_memory"] for one in each),
            "maxmemory": sum(one["maxmemory"] for one in each),
            "aof": all(one["aof"] for one in each),
            "aof_ok": all(one["aof_ok"] for one in each),
            "replicas": min(one["replicas"] for one in each),
        }

    async def refusals(self, queue: QueueName) -> builtins.list[Refusal]:
        return await refusals(await self._wire(queue), self.keys(queue), self._connector)

    # --- people

    async def set_paused(self, queue: QueueName, *, expected: bool, wanted: bool) -> bool:
        changed = await self._run(
            operator_calls.set_paused(self.keys(queue), expected=expected, wanted=wanted)
        )
        return await self._switched(queue, changed)

    async def get(self, queue: QueueName, job_id: str, *, digest: bool = False) -> JobView | None:
        return await self._run(views.get(self.keys(queue), job_id, digest=digest))

    async def list(
        self, queue: QueueName, state: State, *, offset: int = 0, limit: int = 50
    ) -> builtins.list[JobView]:
        return await self._run(views.list_jobs(self.keys(queue), state, offset, limit))

    async def figures(self, queue: QueueName, *, minutes: int = 60) -> builtins.list[MinuteFigures]:
        return await self._run(limit_calls.figures(self.keys(queue), minutes))

    async def set_closed(self, queue: QueueName, *, expected: bool, wanted: bool) -> bool:
        changed = await self._run(limit_calls.set_closed(self.keys(queue), expected=expected, wanted=wanted))
        return await self._switched(queue, changed)

    async def _switched(self, queue: QueueName, changed: bool) -> bool:
        """A queue that was switched before its first job is one that is there."""
        if changed:
            await self._announce(queue, await self._wire(queue))
        return changed

    async def stats(self, queue: QueueName) -> QueueStats:
        return await self._run(views.stats(self.keys(queue)))

    async def cancel(self, queue: QueueName, job_id: str, *, force: bool = False) -> str:
        return await self._run(operator_calls.cancel(self.keys(queue), job_id, force=force))

    async def queues(self, namespace: str) -> builtins.list[QueueName]:
        wire = await self._wire()
        found = await wire.ask("HKEYS", queues_key(namespace))
        return sorted((QueueName(namespace, name.decode()) for name in found), key=str)

    async def partitions(self, queue: QueueName, wanted: int | None = None) -> int:
        wire, key = await self._wire(), queues_key(queue.namespace)
        count = int(await wire.ask("HGET", key, queue.queue) or 0)
        if wanted is not None and count != wanted:
            if count:
                await refuse_if_used(self, queue, count, wanted)
                await wire.ask("HSET", key, queue.queue, wanted)
            else:
                await wire.ask("HSETNX", key, queue.queue, wanted)
            count = int(await wire.ask("HGET", key, queue.queue) or 0)
            require(count == wanted, f"partitions of queue {queue.queue}", expected=str(count), got=wanted)
        self._counts[queue.namespace, queue.queue] = count or 1
        return count or 1

    async def events(self, queue: QueueName, since: str, *, block_s: float) -> builtins.list[Event]:
        return await self._connected().events.read(self.keys(queue), since, block_s)

    async def last_event(self, queue: QueueName) -> str:
        wire = await self._wire(queue)
        newest = await wire.ask("XREVRANGE", self.keys(queue).events, "+", "-", "COUNT", 1)
        return newest[0][0].decode() if newest else event_calls.FIRST_EVENT

    def published(self, queue: QueueName) -> AsyncIterator[Event | None]:
        return listen_events(self._connector, Pace(), self.keys(queue))

    async def set_events(self, queue: QueueName, options: EventOptions) -> None:
        wire = await self._wire(queue)
        await self._announce(queue, wire)
        await self._run(event_calls.set_events(self.keys(queue), options), wire)

    async def event_options(self, queue: QueueName) -> EventOptions:
        wire = await self._wire(queue)
        values = await wire.ask("HMGET", self.keys(queue).meta, *event_calls.OPTION_FIELDS)
        return event_calls.read_options(values)

    async def key_ids(self, queue: QueueName) -> Mapping[str, int]:
        return await self._run(sealing_calls.key_ids(self.keys(queue)))

    async def sealed(
        self, queue: QueueName, state: State, *, offset: int, key: str, types: Sequence[str]
    ) -> SealedPage:
        call = sealing_calls.sealed(self.keys(queue), state, offset=offset, key=key, types=types)
        return await self._run(call)

    async def sealed_schedules(
        self, queue: QueueName, *, key: str, types: Sequence[str]
    ) -> builtins.list[SealedJob]:
        found = await self._run(sealing_calls.sealed_schedules(self.keys(queue), key=key, types=types))
        return [*found]

    async def reseal_schedule(
        self, queue: QueueName, uid: str, digest: str, *, key: str, envelope: bytes
    ) -> Resealing:
        return await self._run(sealing_calls.reseal_schedule(self.keys(queue), uid, digest, key, envelope))

    async def reseal(self, queue: QueueName, changes: Sequence[Reseal]) -> builtins.list[Resealing]:
        said: builtins.list[Resealing] = []
        for batch in sealing_calls.reseal_batches(changes):
            answer = await self._run(sealing_calls.reseal(self.keys(queue), batch))
            said += answer
        return said

    async def errors(self, queue: QueueName, *, limit: int = 50) -> QueueErrors:
        return await self._run(event_calls.errors(self.keys(queue), limit))


async def _figures_of(wire: Asks) -> dict[str, Any]:
    info: dict[str, str] = {}
    for section in ("server", "memory", "persistence", "replication"):
        info |= parse_info(await wire.ask("INFO", section))
    return {
        "version": info.get("valkey_version") or info.get("redis_version", ""),
        "name": info.get("server_name", "redis"),
        "run_id": info.get("run_id", ""),
        "policy": info.get("maxmemory_policy", ""),
        "used_memory": int(info.get("used_memory", 0)),
        "maxmemory": int(info.get("maxmemory", 0)),
        "aof": info.get("aof_enabled") == "1",
        "aof_ok": info.get("aof_last_write_status", "ok") == "ok",
        "replicas": int(info.get("connected_slaves", 0)),
    }


def _looked_at(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class SentEnqueue:
    """See `sending.Begun`."""

    __slots__ = ("_sent", "_store", "future")

    def __init__(self, store: RedisStore, sent: Sent[builtins.list[Admission]]) -> None:
        self._store, self._sent = store, sent
        self.future: asyncio.Future[Any] = sent.future

    def admissions(self) -> builtins.list[Admission]:
        """What `enqueue` answers, or raises; NotRun if it must be asked again."""
        try:
            return self._sent.read()
        except OutcomeUnknown as error:
            raise self._store._unknown(error, self._sent.call) from error


class _Parts:
    """What belongs to one event loop."""

    def __init__(
        self,
        connector: Connector,
        loop: asyncio.AbstractEventLoop,
        asks: Callable[[QueueKeys], Awaitable[Asks]],
    ) -> None:
        self.loop = loop
        pace = Pace()
        self.commands = Commands(connector, pace)
        self.nodes = ClusterNodes(connector) if connector.settings.mode == "cluster" else None
        self.waiters = Waiters(connector, pace, asks)
        self.events = EventReads(connector, pace)
        self.replicated = Replicated(connector)
        # Its own pace: a subscription that is refused must not slow the rest.
        self.listening = Pace()
