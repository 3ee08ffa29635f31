"""One queue in memory: its records and indexes, and the moves that several calls share.

`lua/lib` says why each rule is as it is; names here are those of the includes. What Redis keeps for nobody but
dashboards (figures per type and per minute) is left out: no call of the protocol reads it.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.core.states import ENDED, RUNNING, State
from dockwork.errors import InvalidValue
from dockwork.store.calls import SCHEMA
from dockwork.store.limit_calls import MINUTES
from dockwork.store.memory_index import Index
from dockwork.store.memory_limits import Limits, enter_key, free_keys, is_barred, place_of
from dockwork.store.memory_waits import Inbox, Waiter
from dockwork.store.protocol import (
    Claim,
    Event,
    EventMode,
    EventOptions,
    Failure,
    Heartbeat,
    Lease,
    OwnerRecord,
    Verdict,
)
from dockwork.store.texts import LOG_BYTES, LOG_LINES, REPORT_BYTES, encode_failure

#: Jobs kept for ever lie so much later in the index of what completed.
FOREVER = 2**52
_DUE_STEP = 1024
_MARKERS = 8
_EVENTS = 50_000
_REPORTS = 200
_RECEIPTS = 16
_RECEIPTS_MS = 600_000
_NUDGES = 100
_NUDGE_MS = 60_000
ASIDE_MS = 1000
_ASIDE_MOST_MS = 60_000
#: How long a running suspect keeps others from its worker.
_SUSPECT_MS = 600_000
_OUT_OF_TIME = "out of time"


@dataclass(slots=True, kw_only=True)
class Record:
    """All that is known of one job.

    waits_since     when it was put back or promoted by hand; None: since it was due
    size            bytes of its envelope, also when that is gone
    kept_size       bytes that stay of it now that it ended
    revision        rises with each edit
    errors          a ring of the last five failures, encoded
    seals           part of it that is sealed -> ids of the keys
    key             hash of its concurrency key; per_key: its own number, None = the queue's
    lock            the unique key that it holds: a letter for its end, and the key's hash
    repeat          runs in all, 0 = no end; None: it does not repeat. `repeated`: times that it did
    """

    id: str
    type: str
    state: State
    seq: int
    envelope: bytes
    size: int
    created: int
    priority: int = 0
    due: int | None = None
    expires: int | None = None
    scheduled_for: int | None = None
    max_attempts: int | None = None
    max_deliveries: int | None = None
    timeout: int | None = None
    keep: str | None = None
    epoch: int = 0
    owner: str = ""
    started: int | None = None
    ended: int | None = None
    attempts: int = 0
    deliveries: int = 0
    interruptions: int = 0
    reason: str = ""
    cancel: bool = False
    waits_since: int | None = None
    parked_type: str = ""
    kept_size: int = 0
    result: bytes | None = None
    dropped: int = 0
    progress: bytes | None = None
    checkpoint: bytes | None = None
    log: str | None = None
    exit: str = ""
    lock: str = ""
    repeat: int | None = None
    repeated: int = 0
    revision: int = 0
    key: str = ""
    per_key: int | None = None
    errors: dict[int, bytes] = field(default_factory=dict)
    seals: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def to_claim(self) -> Claim:
        """What its owner is told."""
        return Claim(
            lease=Lease(job_id=self.id, epoch=self.epoch),
            type=self.type,
            envelope=self.envelope,
            attempts=self.attempts,
            deliveries=self.deliveries,
            priority=self.priority,
            created_ms=self.created,
            due_ms=self.created if self.due is None else self.due,
            scheduled_for_ms=self.scheduled_for,
            max_attempts=self.max_attempts,
            timeout_ms=self.timeout,
            checkpoint=self.checkpoint,
            repeated=self.repeated,
        )

    @property
    def crashes(self) -> int:
        """Deliveries that ended without an outcome; of a running job, as if this one did too."""
        return self.deliveries - self.attempts

    def waiting_since(self) -> int:
        for at in (self.waits_since, self.due):
            if at is not None:
                return at
        return self.created


@dataclass(slots=True)
class Receipt:
    """The answer of one numbered call."""

    verdicts: tuple[Verdict, ...]
    leases: tuple[Lease, ...]


@dataclass(slots=True)
class _Receipts:
    expires: int
    calls: dict[int, Receipt] = field(default_factory=dict)
    suspect: tuple[str, int] = ("", 0)


class MemoryQueue:
    """The data of one queue."""

    def __init__(self, name: QueueName) -> None:
        self.keys = QueueKeys(name)
        #: Fields of Redis' meta hash that people and operators write: limits, flags, revision.
        self.options: dict[str, str] = {}
        self.paused = False
        self.seq = self.bytes = self.kept = self.kept_completed = 0
        self.run_id = ""
        self.reap_after = 0
        #: When a call that counts as a sign of life came last, about.
        self.seen: int | None = None
        self.records: dict[str, Record] = {}
        self.ready, self.prio, self.delayed = Index(), Index(), Index()
        self.lease, self.expiry, self.wake = Index(), Index(), Index()
        self.ended = {state: Index() for state in State if state in ENDED}
        self.parked: dict[str, Index] = {}
        self.totals: Counter[str] = Counter()
        #: Minute -> a arrivals, f finished runs, r run time in ms.
        self.minutes: dict[int, Counter[str]] = {}
        self.limits = Limits()
        self.closed_by_hand = False
        self.leased: Counter[str] = Counter()
        #: Unique key's hash -> letter, job id, and the time that one by time ends.
        self.locks: dict[str, tuple[str, str, int | None]] = {}
        #: Idempotency key's hash -> digest, job id, end.
        self.idempotency: dict[str, tuple[str, str, int]] = {}
        self.types: dict[str, tuple[int, str, bytes]] = {}
        self.workers: dict[str, Heartbeat] = {}
        self.quiesces: dict[str, tuple[int, str]] = {}
        self.receipts: dict[str, _Receipts] = {}
        self.nudges: dict[str, deque[tuple[int, str]]] = {}
        self.owner: tuple[OwnerRecord, int] | None = None
        #: The Queue object whose operator wrote the options; it outlives `owner`.
        self.marked_by: OwnerRecord | None = None
        self.cold_until = 0
        self.has_published = False
        #: Time was moved past something that is due, and nobody has looked since.
        self.overdue = False
        self.events: deque[Event] = deque(maxlen=_EVENTS)
        self.event_options = EventOptions()
        self.events_checked = 0
        self.listeners: weakref.WeakSet[Inbox[Event | None]] = weakref.WeakSet()
        #: Error reports as Redis has them, the newest first.
        self.reports: deque[bytes] = deque(maxlen=_REPORTS)
        #: ``<type>|<letter>``: c completed, r retried, f failed, d dead, t run time in ms.
        self.type_figures: Counter[str] = Counter()
        self.last_event = (0, 0)
        self.waiters: list[Waiter[int]] = []
        self.readers: list[Waiter[None]] = []
        #: The token under which everything is being deleted, and how many jobs were.
        self.obliterating: str | None = None
        self.obliterated = 0
        self.schema = SCHEMA

    def begin_anew(self) -> None:
        """Forget everything but who waits for what happens here."""
        fresh = vars(MemoryQueue(self.keys.name))
        stays = {"keys", "last_event", "listeners", "waiters", "readers"}
        vars(self).update({name: value for name, value in fresh.items() if name not in stays})

    def forget_job(self, job_id: str) -> None:
        """Delete a job from wherever it is; counters are the caller's."""
        record = self.records.pop(job_id)
        indexes = [self.ready, self.prio, self.delayed, self.lease, self.expiry, *self.ended.values()]
        for index in [*indexes, *self.parked.values(), *self.limits.held.values()]:
            index.remove(record.id)

    def number(self, name: str, default: int) -> int:
        """An option that is a whole number."""
        return int(self.options.get(name, default))

    @property
    def held(self) -> bool:
        return "held" in self.options or self.obliterating is not None

    @property
    def closed(self) -> bool:
        return "closed" in self.options or self.closed_by_hand or self.obliterating is not None

    @property
    def revision(self) -> int:
        return self.number("rev", 0)

    @property
    def claimable(self) -> int:
        return len(self.ready) + len(self.prio)

    @property
    def depth(self) -> int:
        """Jobs that have not ended."""
        held = sum(map(len, self.limits.held.values()))
        return self.claimable + held + len(self.delayed) + len(self.lease) + self.parked_jobs

    @property
    def parked_jobs(self) -> int:
        return sum(map(len, self.parked.values()))

    @property
    def first_due(self) -> int | None:
        first = self.delayed.first()
        return None if first is None else first // _DUE_STEP

    def due_by(self, ms: int) -> int:
        """Delayed jobs that are due by `ms`."""
        return self.delayed.count(None, ms * _DUE_STEP + _DUE_STEP - 1)

    def held_by(self, lease: Lease) -> Record | None:
        """The running job that `lease` holds, or None for a stale one."""
        record = self.records.get(lease.job_id)
        fits = record is not None and record.epoch == lease.epoch and record.state in RUNNING
        return record if fits else None

    def quiesced(self, pod: str, ms: int) -> str:
        """The token of a request that this pod claim no more, "" if there is none."""
        expires, token = self.quiesces.get(pod, (0, ""))
        return token if expires > ms else ""

    def recall(self, owner: str, number: int, ms: int) -> Receipt | None:
        receipts = self.receipts.get(owner)
        return receipts.calls.get(number) if receipts is not None and receipts.expires > ms else None

    def remember(self, owner: str, number: int, receipt: Receipt, ms: int) -> None:
        receipts = self._receipts(owner, ms)
        receipts.expires = ms + _RECEIPTS_MS
        receipts.calls[number] = receipt
        receipts.calls.pop(number - _RECEIPTS, None)

    def _receipts(self, owner: str, ms: int) -> _Receipts:
        receipts = self.receipts.get(owner)
        if receipts is None or receipts.expires <= ms:
            receipts = self.receipts[owner] = _Receipts(ms + _RECEIPTS_MS)
        return receipts

    def deliveries_allowed(self, record: Record) -> int:
        own = record.max_deliveries
        return self.number("max_deliveries", 5) if own is None else own

    def is_suspect(self, record: Record) -> bool:
        """Whether a job may be what kills its workers: crashes ended two deliveries, or all but the last allowed."""
        crashes = record.crashes
        return crashes > 0 and crashes >= min(2, self.deliveries_allowed(record) - 1)

    def has_suspect(self, owner: str, ms: int) -> bool:
        """Whether this worker runs a suspect already."""
        receipts = self.receipts.get(owner)
        job_id, until = ("", 0) if receipts is None else receipts.suspect
        record = self.records.get(job_id)
        return until > ms and record is not None and record.state in RUNNING and record.owner == owner

    def give_suspect(self, owner: str, job_id: str, ms: int) -> None:
        self._receipts(owner, ms).suspect = job_id, ms + _SUSPECT_MS

    def forget_owner(self, owner: str) -> None:
        for kept in (self.workers, self.receipts, self.nudges):
            kept.pop(owner, None)

    def nudge(self, owner: str, text: str, ms: int) -> None:
        if owner:
            words = self.nudges.setdefault(owner, deque(maxlen=_NUDGES))
            words.append((ms + _NUDGE_MS, text))

    def next_nudge(self, owner: str, ms: int) -> str | None:
        words = self.nudges.get(owner, deque())
        # The newest word keeps the list alive, as the expiry of Redis' list does.
        if words and words[-1][0] <= ms:
            words.clear()
        return words.popleft()[1] if words else None

    def release_unique(self, record: Record) -> None:
        """Give up the lock of a job, unless another has it by now."""
        letter, key = record.lock[:1], record.lock[1:]
        if letter and self.locks.get(key, ("", "", None))[:2] == (letter, record.id):
            del self.locks[key]

    def leave_index(self, record: Record) -> bool:
        """Take a waiting job out of the index of its state. Answers whether it was there."""
        match record.state:
            case State.PARKED:
                return self.unpark(record.parked_type, [record.id])
            case State.DELAYED:
                return self.delayed.remove(record.id)
        index = self.prio if record.state is State.PRIORITIZED else self.ready
        if index.remove(record.id):
            self.limits.leave(record, "waiting")
            return True
        return self.limits.unhold(record)

    def unpark(self, name: str, ids: Sequence[str]) -> bool:
        index = self.parked[name]
        there = [index.remove(job_id) for job_id in ids]
        if not index:
            del self.parked[name]
        return all(there)

    def drop_ended(self, state: State, ids: Sequence[str]) -> None:
        """Delete ended jobs, and their share of the kept bytes."""
        for job_id in ids:
            size = self.records.pop(job_id).kept_size
            self.ended[state].remove(job_id)
            if state is State.COMPLETED:
                self.kept_completed = max(0, self.kept_completed - size)
            else:
                self.kept = max(0, self.kept - size)


class Turn:
    """One call on one queue: what a script does between its begin and its end.

    us, ms      the store's time, the same throughout the call
    run_id      of the store
    lease_ms    how long a claim of this call is safe
    due         the first time until which this call postponed a job, not written yet
    """

    def __init__(self, queue: MemoryQueue, us: int, run_id: str) -> None:
        self.queue = queue
        self.us, self.ms = us, us // 1000
        self.run_id = run_id
        self.lease_ms = queue.number("lease", 15_000)
        self.claimable = self.woken = 0
        self.due: int | None = None
        self._aside = 0
        self._notes: dict[tuple[str, str], list[str]] = {}

    # --- collecting, and the end

    def note(self, name: str, job_id: str, reason: str = "") -> None:
        """Put a job into this call's event `name`: one entry per name and reason lists all its ids."""
        self._notes.setdefault((name, reason), []).append(job_id)

    def tally(self, name: str, number: int = 1) -> None:
        self.queue.totals[str(name)] += number

    def tally_minute(self, kind: str, number: int = 1) -> None:
        """Add to a figure of this minute; figures live for 48 hours."""
        minutes, now = self.queue.minutes, self.ms // 60_000
        if now not in minutes:
            minutes[now] = Counter()
            for old in [minute for minute in minutes if minute <= now - MINUTES]:
                del minutes[old]
        minutes[now][kind] += number

    def add_event(self, name: str, ids: Sequence[str], reason: str = "", **data: str) -> None:
        queue = self.queue
        mode = queue.event_options.mode
        if mode is not EventMode.STREAM:
            if mode is EventMode.PUBSUB:
                event = self._published(str(name), ids, reason, data)
                for listener in list(queue.listeners):
                    listener.put(event)
            return
        last_ms, last = queue.last_event
        queue.last_event = (self.ms, 0) if self.ms > last_ms else (last_ms, last + 1)
        event_id = "{}-{}".format(*queue.last_event)
        queue.events.append(
            Event(
                id=event_id,
                name=str(name),
                ids=tuple(ids),
                reason=reason,
                data=data,
                queue=queue.keys.name.queue,
            )
        )

    def _published(self, name: str, ids: Sequence[str], reason: str, data: Mapping[str, str]) -> Event:
        told = reason.replace("\r", " ").replace("\n", " ")
        return Event(
            id="", name=name, ids=tuple(ids), reason=told, data=data, queue=self.queue.keys.name.queue
        )

    def tally_type(self, kind: str, letter: str, number: int = 1) -> None:
        """Add to a figure of one job type."""
        self.queue.type_figures[f"{kind}|{letter}"] += number

    def note_error(self, record: Record, attempt: int, outcome: str, failure: Failure) -> None:
        """Keep an error report."""
        head = f"{attempt} {outcome} {record.id} {self.ms} {record.type}\n"
        self.queue.reports.appendleft(head.encode() + encode_failure(failure, REPORT_BYTES))

    def add_delayed(self) -> None:
        """A new first due time gets one marker, so that somebody sets a timer."""
        due, self.due = self.due, None
        first = self.queue.first_due
        if due is not None and first is not None and first >= due:
            self.queue.wake.add("due", due)

    def finish(self) -> None:
        """Post what the call collected: events and markers."""
        free_keys(self)
        self.add_delayed()
        notes, self._notes = self._notes, {}
        for (name, reason), ids in notes.items():
            self.add_event(name, ids, reason)
        self.post_markers(self.claimable + self.woken)
        self.claimable = self.woken = 0

    def post_markers(self, number: int) -> None:
        """Wake some of those who wait; in a cold queue it tells the operator. Not while claims are barred."""
        queue = self.queue
        if number <= 0 or queue.paused or queue.held or is_barred(queue, self.ms):
            return
        for marker in range(1, min(number, _MARKERS) + 1):
            queue.wake.add(str(marker), 0)
        if queue.cold_until > self.ms:
            queue.cold_until = 0
            queue.has_published = True

    # --- moves

    def place(self, record: Record, seq: int, reason: str = "") -> None:
        """Let a job wait among the ready or the prioritized at `seq`, or aside while its concurrency key is full."""
        queue, record.seq = self.queue, seq
        record.state = State.PRIORITIZED if record.priority else State.READY
        self.note(record.state, record.id, reason)
        if not enter_key(queue, record):
            return
        (queue.prio if record.priority else queue.ready).add(record.id, place_of(record))
        self.claimable += 1
        self.tally("entered")
        self.tally_minute("a")

    def next_seq(self) -> int:
        self.queue.seq += 1
        return self.queue.seq

    def postpone(self, record: Record, due: int, reason: str = "") -> None:
        """Let a job wait until `due`."""
        record.state = State.DELAYED
        self.queue.delayed.add(record.id, due * _DUE_STEP + record.seq % _DUE_STEP)
        self.due = due if self.due is None else min(self.due, due)
        self.note(State.DELAYED, record.id, reason)

    def set_aside(self, record: Record, delay: int) -> None:
        """Let a suspect wait `delay` ms and a second longer than the one before it in this call."""
        due = self.ms + delay + min(self._aside * ASIDE_MS, _ASIDE_MOST_MS)
        self._aside += 1
        record.due, record.waits_since, record.parked_type = due, None, ""
        self.postpone(record, due, "suspect")

    def end_job(self, record: Record, state: State, *, size: int, reason: str = "", shift: int = 0) -> None:
        """Let a job enter an index of ended ones; `size` bytes of it stay."""
        queue = self.queue
        record.state, record.ended, record.kept_size = state, self.ms, size
        queue.ended[state].add(record.id, self.ms + shift)
        queue.bytes -= record.size
        if state is State.COMPLETED:
            queue.kept_completed += size
        else:
            queue.kept += size
        self.note(state, record.id, reason)
        self.tally(state)

    def to_dead(self, record: Record, state: State, reason: str) -> None:
        """End a job that keeps its envelope; the caller has taken it out of the index it was in."""
        record.reason = reason
        self.queue.release_unique(record)
        self.end_job(record, state, size=record.size, reason=reason)

    def drop(self, record: Record, state: State) -> None:
        """End a waiting job that came to a claim too late: out of time, or cancelled."""
        self.queue.expiry.remove(record.id)
        self.to_dead(record, state, _OUT_OF_TIME if state is State.EXPIRED else "")

    def unlease(self, pod: str) -> None:
        leased = self.queue.leased
        leased[pod] -= 1
        if leased[pod] <= 0:
            del leased[pod]

    def put_back(
        self,
        record: Record,
        *,
        cause: str,
        charge: bool = False,
        back: bool = False,
        reason: str = "",
    ) -> bool:
        """End one delivery without an outcome; the caller has taken the lease away.

        charge      the delivery counts: the last allowed one buries the job, the one before sets it aside
        back        it goes to the end, not to its old place
        Returns     whether it was buried
        """
        if record.owner:
            self.unlease(pod_of(record.owner))
        self.woken += "concurrency" in self.queue.options  # its place is free, wherever the job goes
        self.queue.limits.leave(record, "running")
        self.tally(f"interrupted:{cause}")
        if charge:
            self.note("stalled", record.id, cause)
        was, worker = record.state, record.owner
        record.owner, record.started = "", None
        record.interruptions += 1
        if charge and record.crashes >= self.queue.deliveries_allowed(record):
            self.to_dead(record, State.DEAD, "max_deliveries")
            self.tally_type(record.type, "d")
            lost = Failure(
                error_class="WorkerLost", message=f"deliveries used: {cause}", worker=worker, at_ms=self.ms
            )
            self.note_error(record, record.deliveries, "d", lost)
            return True
        record.deliveries -= not charge
        if charge and self.queue.is_suspect(record):
            self.set_aside(record, min(ASIDE_MS << max(record.crashes - 2, 0), _ASIDE_MOST_MS))
        else:
            record.waits_since = self.ms
            self.place(record, self.next_seq() if back else record.seq, reason)
        if record.expires is not None:
            if was is State.PROCESSING:
                record.expires = None  # it was started in time; only the recovery is late
            else:
                self.queue.expiry.add(record.id, record.expires)
        return False

    def hold(self, lease: Lease) -> tuple[Record | None, Verdict]:
        """Check a lease that is about to start or to write something; what was only active is started."""
        record = self.queue.held_by(lease)
        if record is None:
            return None, Verdict.LOST
        if record.state is State.ACTIVE:
            record.state, record.started = State.PROCESSING, self.ms
            self.note(State.PROCESSING, record.id)
        return record, Verdict.CANCEL if record.cancel else Verdict.OK

    # --- upkeep

    def move_delayed(self, ids: Sequence[str], reason: str) -> int:
        """Move delayed jobs to ready or prioritized."""
        for job_id in ids:
            record = self.queue.records[job_id]
            self.queue.delayed.remove(job_id)
            if reason == "now":
                record.waits_since = self.ms
            # A suspect goes back to its old place: it waited to be alone, not to be later.
            keeps_place = self.queue.is_suspect(record)
            self.place(record, record.seq if keeps_place else self.next_seq(), reason)
        return len(ids)

    def promote_due(self, most: int) -> int:
        high = self.ms * _DUE_STEP + _DUE_STEP - 1
        return self.move_delayed(self.queue.delayed.between(None, high, most), "due")

    def see_run_id(self) -> None:
        """A queue that meets this store for the first time is not reaped for one lease (RT-068)."""
        if self.queue.run_id != self.run_id:
            self.queue.run_id = self.run_id
            self.queue.reap_after = self.ms + self.lease_ms

    def hear(self) -> None:
        """Somebody's call got through: after a silence in which leases ended, reaping waits (see ``hear.lua``)."""
        queue = self.queue
        silent = 0 if queue.seen is None else self.ms - queue.seen
        if silent * 2 > self.lease_ms and queue.lease.count(queue.reap_after, self.ms + self.lease_ms // 6):
            queue.reap_after = self.ms + self.lease_ms
        if queue.seen is None or silent * 8 > self.lease_ms:
            queue.seen = self.ms

    def reap_ended(self, most: int) -> tuple[int, int, int | None]:
        """Take jobs back whose lease is over: returned, buried, and when the next look is worth it."""
        self.see_run_id()
        self.hear()
        queue = self.queue
        ends = queue.lease.first()
        if ends is None:
            return 0, 0, None
        if ends > self.ms or self.ms < queue.reap_after:
            return 0, 0, max(ends, queue.reap_after)
        ids = queue.lease.between(None, self.ms, most)
        queue.lease.remove_all(ids)
        buried = sum(
            self.put_back(queue.records[job_id], cause="lease_expired", charge=True) for job_id in ids
        )
        return len(ids) - buried, buried, queue.lease.first()

    def expire(self) -> int:
        """End waiting jobs that are out of time. Answers how many."""
        queue = self.queue
        ids = queue.expiry.between(None, self.ms, len(queue.expiry))
        queue.expiry.remove_all(ids)
        queue.limits.look_again()
        ended = 0
        for job_id in ids:
            record = queue.records.get(job_id)
            if record is not None and record.state not in ENDED | RUNNING and queue.leave_index(record):
                self.to_dead(record, State.EXPIRED, _OUT_OF_TIME)
                ended += 1
        return ended


def event_id(text: str) -> tuple[int, int]:
    ms, _, number = text.partition("-")
    if not (ms.isdecimal() and (number or "0").isdecimal()):
        raise InvalidValue("since", expected="an event's id, 0 or $", got=text)
    return int(ms), int(number or 0)


def append_log(old: str | None, text: str) -> str:
    """The last hundred lines and 16 KiB of both."""
    lines = [line for line in [*(old or "").split("\n"), *text.split("\n")] if line]
    size = sum(len(line.encode()) + 1 for line in lines)
    while len(lines) > LOG_LINES or size > LOG_BYTES:
        size -= len(lines.pop(0).encode()) + 1
    return "\n".join(lines)


def pod_of(owner: str) -> str:
    """The pod (or host) of an owner ``<pod>/<boot>``."""
    return owner.rpartition("/")[0] or owner


def earliest(*times: int | None) -> int | None:
    """The earliest of times that may be missing."""
    return min((at for at in times if at is not None), default=None)
