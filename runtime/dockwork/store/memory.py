"""`Store` in this process' memory: for tests of applications, and held to Redis' behaviour by one test suite.

Nothing waits while a queue changes and a lock keeps threads apart, so each call is as atomic as a script. What only
a server can do is absent: connections are never lost, memory is never refused, another process sees nothing.
"""

from __future__ import annotations

import builtins
import resource
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dockwork import clock
from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.errors import DockworkError, require
from dockwork.store import (
    calls,
    event_calls,
    limit_calls,
    memory_events,
    memory_operator,
    memory_seals,
    memory_views,
    operator_calls,
    sealing_calls,
    views,
)
from dockwork.store.action_memory import ActionMemory
from dockwork.store.beats import decode_beat, encode_beat
from dockwork.store.calls import Claimant
from dockwork.store.event_calls import FIRST_EVENT, check_since
from dockwork.store.memory_channel import MemoryRenewalChannel
from dockwork.store.memory_claims import settle_all, take
from dockwork.store.memory_enqueue import store_jobs
from dockwork.store.memory_queue import MemoryQueue, Receipt, append_log, earliest, event_id
from dockwork.store.memory_waits import Inbox, Waiter
from dockwork.store.partition_shares import refuse_if_used
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
    Outcome,
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
from dockwork.store.texts import LOG_LINES, fit_log_line, fit_progress

#: The release of Redis whose behaviour this store follows.
FOLLOWS = "7.0.0"
_COLD_MS = 60_000


class MemoryStore(ActionMemory):
    """Jobs in memory. They are gone with this object, not with `close`.

    start      the store's time at the beginning; None: now
    ticking    time goes on by itself; else it stands still until `advance`, and nothing becomes due in between
    lease      how long a claim is safe without renewal; None = what the queue says, else 15 s

    Any thread and any event loop may use it. Only the time of jobs stands still: how long `wait` and `events` block is
    in seconds of this machine.
    """

    # --- connections

    async def open(self) -> None:
        """Nothing to do: it is always there."""

    async def close(self) -> None:
        """Nothing to do: whatever is stored stays."""

    async def ping(self) -> int:
        return self._now_ms()

    # --- producers

    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> builtins.list[Admission]:
        if not jobs:
            return []
        with self._lock:
            batches = calls.enqueue_batches(jobs)
            for batch in batches:
                calls.enqueue(self._queue(queue).keys, batch)  # refuses what Redis would not be sent
            self._announced.add(queue)
            admissions: builtins.list[Admission] = []
            for batch in batches:
                with self._turn(queue) as turn:
                    admissions += store_jobs(turn, batch)
            if any(job.replicas for job in jobs):
                return [replace(admission, replicated=False) for admission in admissions]
            return admissions

    # --- workers

    async def claim(
        self, queue: QueueName, owner: Owner, *, number: int, slots: int, known: Sequence[str] = ()
    ) -> Claimed:
        who = Claimant(owner, number, slots, self._run_id, known, self._lease_ms)
        calls.claim(self._queue(queue).keys, who)
        with self._lock:
            settled = self._recall(queue, who) or await self._settle(queue, who, None)
            return settled.claimed

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
        who = Claimant(owner, number, claim_next, self._run_id, known, self._lease_ms)
        calls.settle(self._queue(queue).keys, who, settlements, done)
        ends = [*settlements, *(Settlement(lease, Outcome.COMPLETED, began_ms) for lease, began_ms in done)]
        with self._lock:
            return self._recall(queue, who) or await self._settle(queue, who, ends)

    def _recall(self, queue: QueueName, who: Claimant) -> Settled | None:
        """The answer that a call of this number got before, with the claims of then that are still held."""
        data, now_ms = self._queue(queue), self._now_ms()
        receipt = data.recall(str(who.owner), who.number, now_ms)
        if receipt is None:
            return None
        held = [data.held_by(lease) for lease in receipt.leases]
        claims = tuple(record.to_claim() for record in held if record is not None)
        claimed = Claimed(claims=claims, more=True, now_ms=now_ms, config_revision=data.revision)
        return Settled(verdicts=receipt.verdicts, claimed=claimed)

    async def _settle(
        self, queue: QueueName, who: Claimant, settlements: Sequence[Settlement] | None
    ) -> Settled:
        """Settle (None: nothing to settle) and claim; the caller holds the lock, and nothing here suspends."""
        next_tick = self._next_tick_ms(queue)
        if next_tick is not None and next_tick <= self._now_ms():
            await self.tick(queue)
            next_tick = self._next_tick_ms(queue)
        with self._turn(queue) as turn:
            turn.lease_ms = who.lease_ms or turn.lease_ms
            turn.queue.overdue = False
            verdicts = settle_all(turn, who.owner, settlements or ())
            claimed = take(turn, who.owner, who.places, who.known, next_tick)
            if settlements is not None or claimed.claims:
                receipt = Receipt(verdicts, tuple(claim.lease for claim in claimed.claims))
                turn.queue.remember(str(who.owner), who.number, receipt, turn.ms)
        return Settled(verdicts=verdicts, claimed=claimed)

    async def start(self, queue: QueueName, leases: Sequence[Lease]) -> builtins.list[Verdict]:
        with self._turn(queue) as turn:
            calls.start(turn.queue.keys, leases)
            return [turn.hold(lease)[1] for lease in leases]

    async def renew(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal:
        return self.renew_now(queue, leases, beat)

    def renew_now(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal:
        """`renew`, for a thread."""
        with self._turn(queue) as turn:
            data = turn.queue
            memory_events.cap_events(turn)
            calls.renew(data.keys, leases, beat, run_id=self._run_id)
            self._announced.add(queue)
            turn.lease_ms = self._lease_ms or turn.lease_ms
            expires = turn.ms + turn.lease_ms
            turn.see_run_id()
            turn.hear()
            verdicts = []
            for lease in leases:
                record = data.held_by(lease)
                if record is None:
                    verdicts.append(Verdict.LOST)
                    continue
                data.lease.add(record.id, expires)
                verdicts.append(Verdict.CANCEL if record.cancel else Verdict.OK)
            if beat is not None:
                data.workers[beat.owner] = decode_beat(b"%d %b" % (turn.ms, encode_beat(beat)))
            due = earliest(data.first_due, self._next_tick_ms(queue))
            waiting = data.claimable + (due is not None and due <= turn.ms)
            if waiting and not data.wake.count(0, 0):
                turn.post_markers(waiting)
            return Renewal(
                verdicts=tuple(verdicts),
                now_ms=turn.ms,
                expires_ms=expires,
                quiesce="" if beat is None else data.quiesced(beat.pod, turn.ms),
                config_revision=data.revision,
                next_at_ms=earliest(
                    due,
                    data.lease.first(),
                    data.limits.throttled if waiting and data.limits.throttled > turn.ms else None,
                ),
            )

    async def requeue(
        self,
        queue: QueueName,
        owner: Owner,
        leases: Sequence[Lease],
        *,
        put: Put = Put.FRONT,
        reason: str = "drained",
    ) -> builtins.list[Verdict]:
        return self.requeue_now(queue, leases, put=put, reason=reason)

    def requeue_now(
        self, queue: QueueName, leases: Sequence[Lease], *, put: Put, reason: str
    ) -> builtins.list[Verdict]:
        """`requeue`, for a thread."""
        verdicts = []
        with self._turn(queue) as turn:
            calls.requeue(turn.queue.keys, leases, put, reason)
            for lease in leases:
                record = turn.queue.held_by(lease)
                if record is not None:
                    turn.queue.lease.remove(record.id)
                    turn.put_back(record, cause=reason, reason=reason, back=put is Put.BACK)
                verdicts.append(Verdict.LOST if record is None else Verdict.OK)
        return verdicts

    async def child_died(
        self, queue: QueueName, deaths: Sequence[tuple[Lease, str]]
    ) -> builtins.list[Verdict]:
        with self._turn(queue) as turn:
            return memory_operator.child_died(turn, deaths)

    async def progress(self, queue: QueueName, lease: Lease, value: bytes) -> Verdict:
        with self._turn(queue) as turn:
            record, verdict = turn.hold(lease)
            if record is not None:
                record.progress = fit_progress(value)
                turn.note("progress", record.id)
            return verdict

    async def log(self, queue: QueueName, lease: Lease, lines: Sequence[str]) -> Verdict:
        with self._turn(queue) as turn:
            record, verdict = turn.hold(lease)
            if record is not None:
                fitting = b"\n".join(fit_log_line(line) for line in lines[-LOG_LINES:])
                record.log = append_log(record.log, fitting.decode())
            return verdict

    async def checkpoint(self, queue: QueueName, lease: Lease, value: bytes) -> Verdict:
        with self._turn(queue) as turn:
            calls.checkpoint(turn.queue.keys, lease, value)
            record, verdict = turn.hold(lease)
            if record is not None:
                record.checkpoint = value
                memory_seals.note_checkpoint(record, value)
            return verdict

    async def wait(self, queue: QueueName, timeout_s: float) -> Wake | None:
        waiter: Waiter[int] = Waiter()
        with self._lock:
            data = self._queue(queue)
            if data.overdue or data.wake:
                return Wake(due_ms=self._pop(data))
            data.waiters.append(waiter)
        try:
            await waiter.wait(timeout_s)
        except BaseException:
            with self._lock:
                for due in waiter.given:
                    # The marker that came too late for this waiter wakes another.
                    data.wake.add("1" if due == 0 else "due", due)
                waiter.given.clear()
                self._leave(data, waiter)
                self._tell(queue, data)
            raise
        with self._lock:
            self._leave(data, waiter)
            return Wake(due_ms=waiter.given[0]) if waiter.given else None

    @staticmethod
    def _leave(data: MemoryQueue, waiter: Waiter[int]) -> None:
        if waiter in data.waiters:
            data.waiters.remove(waiter)

    async def register(
        self, queue: QueueName, template_hash: str, types: Mapping[str, tuple[str, bytes]]
    ) -> None:
        with self._turn(queue) as turn:
            self._announced.add(queue)
            memory_operator.register(turn, template_hash, types)

    async def leave(self, queue: QueueName, owner: Owner, beat: Heartbeat) -> None:
        self.leave_now(queue, owner, beat)

    def leave_now(self, queue: QueueName, owner: Owner, beat: Heartbeat) -> None:
        """`leave`, for a thread."""
        with self._turn(queue) as turn:
            turn.queue.forget_owner(str(owner))
            figures = {"drained": beat.drained, "abandoned": beat.requeued, "lost": beat.lost}
            for name, number in figures.items():
                if number > 0:
                    turn.tally(name, number)

    async def predecessors(self, queue: QueueName, owner: Owner) -> builtins.list[str]:
        with self._turn(queue) as turn:
            beats = turn.queue.workers.values()
            same = [beat for beat in beats if (beat.pod, beat.container) == (owner.pod, owner.container)]
            return [beat.owner for beat in same if beat.owner != str(owner)]

    async def config(self, queue: QueueName) -> QueueConfig:
        with self._turn(queue) as turn:
            return memory_operator.config_of(turn.queue)

    def renewal_channel(self) -> MemoryRenewalChannel:
        return MemoryRenewalChannel(self)

    def wait_nudge_now(
        self, owner: Owner, queue: QueueName, seconds: float, stopped: threading.Event
    ) -> str | None:
        """Sleep until a nudge comes, `seconds` are over or `stopped` is set and `wake_sleepers` was called."""
        until = clock.monotonic() + seconds
        with self._changed:
            while not stopped.is_set():
                text = self._queue(queue).next_nudge(str(owner), self._now_ms())
                left = until - clock.monotonic()
                if text is not None or left <= 0:
                    return text
                self._changed.wait(left)
        return None

    def wake_sleepers(self) -> None:
        """Let every thread in `wait_nudge_now` look again."""
        with self._changed:
            self._changed.notify_all()

    # --- upkeep

    async def promote(self, queue: QueueName, ids: Sequence[str] | None = None) -> int:
        with self._turn(queue) as turn:
            if ids is None:
                return turn.promote_due(len(turn.queue.delayed))
            known = [job_id for job_id in dict.fromkeys(ids) if job_id in turn.queue.delayed]
            return turn.move_delayed(known, "now")

    async def reap(self, queue: QueueName) -> tuple[int, int]:
        with self._turn(queue) as turn:
            turn.lease_ms = self._lease_ms or turn.lease_ms
            returned, buried, _ = turn.reap_ended(len(turn.queue.lease))
            return returned, buried

    async def expire(self, queue: QueueName) -> int:
        with self._turn(queue) as turn:
            return turn.expire()

    async def trim(self, queue: QueueName) -> int:
        with self._turn(queue) as turn:
            return memory_operator.trim(turn, len(turn.queue.records))

    # --- the operator

    async def configure(
        self,
        queue: QueueName,
        config: QueueConfig,
        owner: OwnerRecord | None,
        *,
        how: Writing = Writing.PLAINLY,
    ) -> OwnerRecord | None:
        args = operator_calls.configure(self._queue(queue).keys, config, owner, how).args[6:]
        fields = {str(name): str(value) for name, value in zip(args[::2], args[1::2], strict=True)}
        with self._turn(queue) as turn:
            self._announced.add(queue)
            return memory_operator.configure(turn, fields, config.generation, owner, how)

    async def sample(
        self, queue: QueueName, *, horizon_ms: int, template_hash: str = "", cold: bool = False
    ) -> Sample:
        request = SampleRequest(queue=queue, horizon_ms=horizon_ms, template_hash=template_hash, cold=cold)
        require(horizon_ms >= 0, "horizon_ms", expected="0 or more", got=horizon_ms)
        with self._turn(queue) as turn:
            found = memory_views.sample(
                turn.queue,
                request,
                now_ms=turn.ms,
                run_id=self._run_id,
                ticks_soon=self._ticks_before(queue, turn.ms + horizon_ms),
            )
            turn.hear()
            memory_events.cap_events(turn)
            if cold:
                turn.queue.cold_until = turn.ms + _COLD_MS
            return found

    async def samples(self, requests: Sequence[SampleRequest]) -> builtins.list[Sample | DockworkError]:
        return [
            await self.sample(
                one.queue, horizon_ms=one.horizon_ms, template_hash=one.template_hash, cold=one.cold
            )
            for one in requests
        ]

    async def quiesce(self, queue: QueueName, requests: Mapping[str, str]) -> Mapping[str, int]:
        with self._turn(queue) as turn:
            return memory_operator.quiesce(turn, requests)

    async def unquiesce(self, queue: QueueName, pods: Sequence[str]) -> None:
        with self._turn(queue) as turn:
            memory_operator.unquiesce(turn, pods)

    async def revoke(self, queue: QueueName, owner: str, cause: RevokeCause, exit_reason: str = "") -> int:
        with self._turn(queue) as turn:
            return memory_operator.revoke(turn, owner, cause, exit_reason)

    def wakes(self) -> AsyncIterator[QueueName]:
        inbox: Inbox[QueueName] = Inbox()
        self._listeners.add(inbox)
        return inbox.read()

    async def server(self) -> Mapping[str, Any]:
        # Memory is that of its process, as it is a Redis'; the peak is what every platform tells.
        return {
            "version": FOLLOWS,
            "name": "memory",
            "run_id": self._run_id,
            "policy": "noeviction",
            "used_memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "maxmemory": 0,
            "aof": False,
            "aof_ok": True,
            "replicas": 0,
        }

    async def refusals(self, queue: QueueName) -> builtins.list[Refusal]:
        return []  # nobody logs in

    # --- people

    async def set_paused(self, queue: QueueName, *, expected: bool, wanted: bool) -> bool:
        with self._turn(queue) as turn:
            changed = memory_operator.set_paused(turn, expected=expected, wanted=wanted)
            return self._switched(queue, changed)

    def _switched(self, queue: QueueName, changed: bool) -> bool:
        """A queue that was switched before its first job is one that is there."""
        if changed:
            self._announced.add(queue)
        return changed

    async def get(self, queue: QueueName, job_id: str, *, digest: bool = False) -> JobView | None:
        with self._turn(queue) as turn:
            record = turn.queue.records.get(job_id)
            if record is None:
                return None
            return memory_views.view_of(record, is_paused=turn.queue.paused, wants_digest=digest)

    async def list(
        self, queue: QueueName, state: State, *, offset: int = 0, limit: int = 50
    ) -> builtins.list[JobView]:
        with self._turn(queue) as turn:
            views.list_jobs(turn.queue.keys, state, offset, limit)
            return memory_views.list_jobs(turn.queue, state, offset, limit)

    async def figures(self, queue: QueueName, *, minutes: int = 60) -> builtins.list[MinuteFigures]:
        with self._turn(queue) as turn:
            limit_calls.figures(turn.queue.keys, minutes)
            return limit_calls.by_minute(turn.queue.minutes, turn.ms, minutes)

    async def set_closed(self, queue: QueueName, *, expected: bool, wanted: bool) -> bool:
        with self._turn(queue) as turn:
            was = turn.queue.closed_by_hand
            if was is expected:
                turn.queue.closed_by_hand = wanted
            return self._switched(queue, was is expected)

    async def stats(self, queue: QueueName) -> QueueStats:
        with self._turn(queue) as turn:
            return memory_views.stats(turn.queue, turn.ms)

    async def cancel(self, queue: QueueName, job_id: str, *, force: bool = False) -> str:
        with self._turn(queue) as turn:
            return memory_operator.cancel(turn, job_id, force=force)

    def snapshot(self, queue: QueueName) -> builtins.list[JobView]:
        """Every job of the queue that is still kept, the first enqueued first; from any thread."""
        with self._turn(queue) as turn:
            records = turn.queue.records.values()
            return [memory_views.view_of(record, is_paused=turn.queue.paused) for record in records]

    def names(self) -> builtins.list[QueueName]:
        """Every queue that anybody ever asked for."""
        with self._lock:
            return sorted(self._queues, key=str)

    async def queues(self, namespace: str) -> builtins.list[QueueName]:
        with self._lock:
            found = {name.queue for name in self._announced if name.namespace == namespace}
        return [QueueName(namespace, name) for name in sorted(found)]

    async def partitions(self, queue: QueueName, wanted: int | None = None) -> int:
        whole = queue.namespace, queue.queue
        with self._lock:
            used = queue in self._announced
            count = self._counts.get(whole, 1 if used else 0)
        if wanted is not None and count != wanted:
            if count:
                await refuse_if_used(self, queue, count, wanted)
            with self._lock:
                count = self._counts[whole] = wanted
                self._announced.add(queue)
        return count or 1

    async def last_event(self, queue: QueueName) -> str:
        with self._lock:
            events = self._queue(queue).events
            return events[-1].id if events else FIRST_EVENT

    def published(self, queue: QueueName) -> AsyncIterator[Event | None]:
        inbox = Inbox[Event | None]()
        inbox.put(None)
        self._queue(queue).listeners.add(inbox)
        return inbox.read()

    async def set_events(self, queue: QueueName, options: EventOptions) -> None:
        with self._turn(queue) as turn:
            self._announced.add(queue)
            memory_events.set_events(turn.queue, options)

    async def event_options(self, queue: QueueName) -> EventOptions:
        with self._lock:
            return self._queue(queue).event_options

    async def key_ids(self, queue: QueueName) -> Mapping[str, int]:
        with self._turn(queue) as turn:
            counts = Counter(memory_seals.count_keys(turn.queue.records.values()))
            counts.update(
                key for job in self.scheduled_jobs(queue).values() for key in job.sealed.split(",") if key
            )
            return dict(counts)

    async def sealed(
        self, queue: QueueName, state: State, *, offset: int, key: str, types: Sequence[str]
    ) -> SealedPage:
        sealing_calls.sealed(self._queue(queue).keys, state, offset=offset, key=key, types=types)
        with self._turn(queue) as turn:
            ids = memory_views.ids_in(turn.queue, state, offset, sealing_calls.LOOKED)
            return memory_seals.sealed_page(turn.queue, state, ids, key, types)

    async def sealed_schedules(
        self, queue: QueueName, *, key: str, types: Sequence[str]
    ) -> builtins.list[SealedJob]:
        with self._turn(queue):
            return [
                SealedJob(
                    id=uid, type=job.type, digest=memory_seals.envelope_digest(job), envelope=job.envelope
                )
                for uid, job in self.scheduled_jobs(queue).items()
                if job.sealed != key and (job.sealed or job.type in types)
            ]

    async def reseal_schedule(
        self, queue: QueueName, uid: str, digest: str, *, key: str, envelope: bytes
    ) -> Resealing:
        with self._turn(queue):
            job = self.scheduled_jobs(queue).get(uid)
            if job is None:
                return Resealing.MISSING
            if memory_seals.envelope_digest(job) != digest:
                return Resealing.CONFLICTED
            self.reschedule_job(queue, uid, replace(job, envelope=envelope, sealed=key))
            return Resealing.OK

    async def reseal(self, queue: QueueName, changes: Sequence[Reseal]) -> builtins.list[Resealing]:
        with self._turn(queue) as turn:
            return [memory_seals.reseal(turn.queue, change) for change in changes]

    async def errors(self, queue: QueueName, *, limit: int = 50) -> QueueErrors:
        with self._turn(queue) as turn:
            event_calls.errors(turn.queue.keys, limit)
            return memory_events.errors(turn.queue, limit)

    async def events(self, queue: QueueName, since: str, *, block_s: float) -> builtins.list[Event]:
        until = clock.monotonic() + block_s
        data = self._queue(queue)
        with self._lock:
            after = data.last_event if since == "$" else event_id(check_since(since))
        while True:
            with self._lock:
                found = memory_events.events_after(data, after)
                left = until - clock.monotonic()
                if found or left <= 0:
                    return found
                reader: Waiter[None] = Waiter()
                data.readers.append(reader)
            try:
                await reader.wait(left)
            finally:
                with self._lock:
                    if reader in data.readers:
                        data.readers.remove(reader)
