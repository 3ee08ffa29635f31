"""What a store of jobs does: the values that go in and out, and the `Store` protocol itself.

`RedisStore` and `MemoryStore` both follow it, and one conformance suite holds them to it. Every method that
moves a job is one transition: atomic, fenced by epoch where a lease is meant, and done by one script on Redis.
All times are Redis TIME in milliseconds since the Unix epoch; a worker's own clock decides nothing.
"""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.errors import DockworkError

# --- producers ---------------------------------------------------------------------------------------------


class OnConflict(StrEnum):
    """What becomes of a new job whose unique key another one holds."""

    KEEP = "keep"  #: the job that is there stays, and is the answer
    REPLACE = "replace"  #: the one that waits takes the new arguments, at its place
    DEBOUNCE = "debounce"  #: likewise, and its delay begins anew
    REJECT = "reject"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobKeys:
    """What lets a new job be one of a kind. Keys come as hashes of `core.unique.key_hash`.

    unique            "" = none; held until `until`: ``start``, ``finish`` or ``ttl`` (then for `ttl_ms`)
    idempotency       "" = none; remembered for `idempotency_ttl_ms` with a `digest` of type and arguments
    """

    unique: str = ""
    until: str = "finish"
    ttl_ms: int = 0
    on_conflict: OnConflict = OnConflict.KEEP
    idempotency: str = ""
    idempotency_ttl_ms: int = 0
    digest: str = ""


# The next two, and `Item`, are made for each job of a bulk enqueue, and are not frozen for its sake: a frozen one took
# three times as long to make (measured). Nobody changes one.


@dataclass(unsafe_hash=True, kw_only=True, slots=True)
class NewJob:
    """A job to be stored, sealed and checked already.

    envelope         JSON bytes: type, arguments, options, headers, schema hash; opaque to every script
    due_in_ms        delay from Redis TIME, >= 0; `due_at_ms` (absolute) wins when given; a past time means ready
    expires_in_ms    counts from the due time
    max_attempts     attempts in all, >= 1; None = the queue's
    replicas         of the server, that shall have the job before the answer comes, a second at most
    concurrency_key  so many of a queue's jobs with the same one run at once: `per_key`, else the queue's, else 1
    sealed           ids of the keys that seal values of it, between commas; "" = nothing is sealed
    keys             unique and idempotency keys, if it has any
    repeat           runs in all of a job that repeats, 0 = no end; None = it does not
    """

    id: str
    type: str
    envelope: bytes
    priority: int = 0
    due_in_ms: int = 0
    due_at_ms: int | None = None
    expires_in_ms: int | None = None
    max_attempts: int | None = None
    max_deliveries: int | None = None
    timeout_ms: int | None = None
    keep: str | None = None
    concurrency_key: str | None = None
    per_key: int | None = None
    replicas: int = 0
    scheduled_for_ms: int | None = None
    sealed: str = ""
    keys: JobKeys | None = None
    repeat: int | None = None


class Admitted(StrEnum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    REJECTED = "rejected"


@dataclass(unsafe_hash=True, kw_only=True, slots=True)
class Admission:
    """What became of one `NewJob`.

    id         the job's own; of a duplicate, that of the job that is there
    reason     why it was rejected: ``depth``, ``bytes``, ``payload``, ``timeout``, ``closed``, ``unique``,
               ``key_reuse``, ``routing`` (its keys name different partitions); of a duplicate, ``replaced`` or
               ``debounced`` if it took the new arguments
    current    the figure that met `limit`, for a rejection by one
    state      the state it was stored in, or the known job's; None: that one is gone, and its key remembered
    holder     the job that has the key, for a rejection by one
    replicated whether as many replicas as were asked for had it within a second; None = none were asked for
    """

    id: str
    outcome: Admitted
    reason: str = ""
    current: int = 0
    limit: int = 0
    state: State | None = None
    holder: str = ""
    replicated: bool | None = None


# --- workers -----------------------------------------------------------------------------------------------


# The next three are made for each job, so they are named tuples: built in a third of a frozen dataclass' time
# (2.2 against 6.7 us for a settlement on a busy machine). Build them by keyword like the others.


class Lease(NamedTuple):
    """The right to settle one delivery of a job: fenced by `epoch` (Kleppmann 2016)."""

    job_id: str
    epoch: int


class Claim(NamedTuple):
    """A job that this owner now holds.

    attempts       failed attempts so far; the run is attempt `attempts` + 1
    deliveries     claims so far, this one included
    checkpoint     what the last run saved, or None
    repeated       times that a job which repeats was due before
    """

    lease: Lease
    type: str
    envelope: bytes
    attempts: int
    deliveries: int
    created_ms: int
    due_ms: int
    priority: int = 0
    scheduled_for_ms: int | None = None
    max_attempts: int | None = None
    timeout_ms: int | None = None
    checkpoint: bytes | None = None
    repeated: int = 0

    @property
    def job_id(self) -> str:
        return self.lease.job_id


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimed:
    """What a claim brought.

    next_at_ms     when a claim is worth asking again without a marker (first due, lease end), or None; with `more`
                   no lease end
    more           work is left that could be claimed now
    parked         parked jobs are left of the types that the call named
    refused        "" or why no claim was allowed: ``quiesced``, ``paused``, ``held``
    now_ms         Redis TIME in the script
    """

    claims: tuple[Claim, ...] = ()
    next_at_ms: int | None = None
    more: bool = False
    parked: bool = False
    refused: str = ""
    now_ms: int = 0
    config_revision: int = 0


class Outcome(StrEnum):
    """How a run ended, as `settle` is told."""

    COMPLETED = "completed"
    RETRY = "retry"  #: failed attempt, again after `delay_ms`
    SNOOZE = "snooze"  #: again after `delay_ms`; no counter changes
    FAILED = "failed"  #: discarded, no dead letter
    DEAD = "dead"
    CANCELLED = "cancelled"
    PARKED = "parked"  #: unknown type or schema; the delivery is given back


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """One failed attempt, as kept on the job: at most 8 KiB once encoded."""

    error_class: str
    message: str
    trace: str = ""
    worker: str = ""
    at_ms: int = 0


class Resealed(NamedTuple):
    """What a settle writes anew of a job with sealed values.

    keys          what seals which part from now on, between commas: ``a`` arguments, ``c`` checkpoint, ``r`` result,
                  each with a key's id, or alone for a part that is sealed no more
    envelope      instead of the one that is stored; None = it stays
    checkpoint    likewise
    """

    keys: str
    envelope: bytes | None = None
    checkpoint: bytes | None = None


class Resealing(StrEnum):
    """What became of one `Reseal`."""

    OK = "ok"
    CONFLICTED = "conflicted"  #: somebody wrote it meanwhile
    RUNNING = "running"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedJob:
    """The sealed side of one job.

    digest    of the three values: `reseal` writes only where it still holds
    """

    id: str
    type: str
    digest: str
    envelope: bytes = b""
    checkpoint: bytes | None = None
    result: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SealedPage:
    """Some of the jobs that `sealed` looked at.

    looked    how many it looked at: the next page begins behind them; 0 = there are no more
    """

    jobs: tuple[SealedJob, ...]
    looked: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reseal:
    """One job's sealed values, written anew; None = that one stays. `keys` as in `Resealed`."""

    id: str
    digest: str
    keys: str
    envelope: bytes | None = None
    checkpoint: bytes | None = None
    result: bytes | None = None


class Settlement(NamedTuple):
    """The outcome of one run.

    started_ms      when the handler began, for jobs whose `start` was never sent
    result          JSON bytes
    park_type       ``<type>`` or ``<type>@<schema hash>``
    next_due_ms     when a job that repeats is due next, if it has a time left; 0 = `delay_ms` from now
    resealed        what else is written, where values are sealed
    """

    lease: Lease
    outcome: Outcome
    started_ms: int = 0
    delay_ms: int = 0
    reason: str = ""
    result: bytes | None = None
    result_dropped: int = 0
    failure: Failure | None = None
    park_type: str = ""
    progress: bytes | None = None
    next_due_ms: int | None = None
    resealed: Resealed | None = None


#: A run that completed and leaves nothing, as most do: its lease, and when its handler began.
Done = tuple[Lease, int]


class Verdict(StrEnum):
    """What a fenced call says about one lease."""

    OK = "ok"
    LOST = "lost"
    CANCEL = "cancel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """A verdict per settlement, in order, and the next claims that rode along."""

    verdicts: tuple[Verdict, ...]
    claimed: Claimed


@dataclass(frozen=True, kw_only=True, slots=True)
class Renewal:
    """A verdict per lease, in order, and what the queue wants from this worker.

    quiesce         the token of a quiesce request for this pod, "" if none
    """

    verdicts: tuple[Verdict, ...]
    now_ms: int
    expires_ms: int
    quiesce: str = ""
    config_revision: int = 0
    next_at_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Owner:
    """Who claims: ``<pod UID>/<boot id>`` on Kubernetes, ``<host>/<boot id>`` elsewhere."""

    pod: str
    boot: str
    container: str = ""

    def __str__(self) -> str:
        return f"{self.pod}/{self.boot}"


class WorkerState(StrEnum):
    RUNNING = "Running"
    QUIESCED = "Quiesced"
    DRAINING = "Draining"


@dataclass(frozen=True, kw_only=True, slots=True)
class Heartbeat:
    """What a worker says of itself with each renewal; see RT-121.

    longest_rest_ms    estimated rest of the job that needs longest
    mean_elapsed_ms    mean age of the running jobs
    jobs               the 20 longest: (job id, started ms, estimated rest ms)
    """

    owner: str
    pod: str
    container: str = ""
    pod_name: str = ""
    template_hash: str = ""
    protocol: int = 1
    version: str = ""
    slots: int
    busy: int
    state: WorkerState = WorkerState.RUNNING
    quiesce_token: str = ""
    longest_rest_ms: int = 0
    mean_elapsed_ms: int = 0
    jobs: tuple[tuple[str, int, int], ...] = ()
    types: tuple[str, ...] = ()
    schemas: Mapping[str, str] = field(default_factory=dict)
    lag_ms: int = 0
    rss_bytes: int = 0
    drained: int = 0
    requeued: int = 0
    lost: int = 0
    beat_ms: int = 0  #: Redis TIME, set by the script


class Put(StrEnum):
    FRONT = "front"
    BACK = "back"


@dataclass(frozen=True, kw_only=True, slots=True)
class Wake:
    """A marker was popped. due_ms: 0 = work now, else when the first delayed job is due."""

    due_ms: int


# --- reading -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class JobView:
    """One job as it stands, for people and tools.

    revision    rises with each edit
    digest      changes with anything of the job; "" where it was not asked for
    seq     its place among the queue's jobs: later ones have higher numbers, and so has what was put back at the end
    sealed  which key seals what of it, as `Resealed.keys` says it; "" = nothing is sealed
    """

    id: str
    type: str
    state: State
    envelope: bytes
    seq: int = 0
    priority: int = 0
    created_ms: int = 0
    due_ms: int = 0
    scheduled_for_ms: int | None = None
    expires_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    attempts: int = 0
    deliveries: int = 0
    interruptions: int = 0
    owner: str = ""
    epoch: int = 0
    reason: str = ""
    result: bytes | None = None
    result_dropped: int = 0
    progress: bytes | None = None
    checkpoint: bytes | None = None
    log: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    revision: int = 0
    digest: str = ""
    sealed: str = ""
    exit: str = ""  #: how the process ended that ran it when it last crashed: a signal or an exit code


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One entry of the event stream: a state name or one of `ONLY_EVENTS`, for `ids`.

    id          ``<ms>-<number>``, to resume from; "" for one that was published and is kept nowhere
    gap_from    the id that was read last, if the stream was trimmed between it and this entry; "" = nothing is missing
    """

    id: str
    name: str
    ids: tuple[str, ...]
    reason: str = ""
    data: Mapping[str, str] = field(default_factory=dict)
    queue: str = ""
    gap_from: str = ""

    @property
    def at_ms(self) -> int:
        """When it happened, by Redis TIME; 0 for one without an id."""
        return int(self.id.partition("-")[0] or 0)


class EventMode(StrEnum):
    """Where the events of a queue go."""

    STREAM = "stream"  #: kept, and replayable
    PUBSUB = "pubsub"  #: to whoever listens at that moment
    OFF = "off"


@dataclass(frozen=True, kw_only=True, slots=True)
class EventOptions:
    """What is said about the events of a queue.

    max_bytes     of the stream; 0 = no cap, None = 64 MiB. About 50,000 entries are the most in any case
    """

    mode: EventMode = EventMode.STREAM
    max_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorReport:
    """One failed run, or a job whose worker was lost once too often.

    attempt       which attempt failed, from 1; of a lost job, its deliveries
    outcome       what became of the job: ``retry``, ``failed`` or ``dead``
    message       scrubbed of encrypted arguments, as `trace` is
    """

    queue: str
    type: str
    id: str
    attempt: int
    outcome: str
    error_class: str
    message: str
    trace: str = ""
    worker: str = ""
    at_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeFigures:
    """What became of the runs of one job type, since the queue exists.

    retried, failed, dead    runs that failed, by what became of the job
    run_ms                   run time of all, in milliseconds
    """

    completed: int = 0
    retried: int = 0
    failed: int = 0
    dead: int = 0
    run_ms: int = 0

    @property
    def errors(self) -> int:
        """Runs that did not complete."""
        return self.retried + self.failed + self.dead


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueErrors:
    """The last error reports of a queue, the newest first, and figures per job type; rare types are ``other``."""

    recent: tuple[ErrorReport, ...] = ()
    by_type: Mapping[str, TypeFigures] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueStats:
    """Counts per state (computed from index sizes), totals that never fall, and flags.

    throttled      of the jobs that are due and wait, those that no worker may take now, by what bars them:
                   ``paused``, ``rate``, ``concurrency``, ``key``
    """

    counts: Mapping[State, int]
    totals: Mapping[str, int]
    paused: bool = False
    closed: bool = False
    bytes: int = 0
    oldest_wait_ms: int = 0
    parked_types: Mapping[str, int] = field(default_factory=dict)
    throttled: Mapping[str, int] = field(default_factory=dict)
    config_revision: int = 0

    @property
    def runnable(self) -> int:
        """Jobs that are due and wait, and that the next worker to ask gets."""
        due = (State.READY, State.PRIORITIZED, State.PAUSED)
        return sum(self.counts.get(state, 0) for state in due) - sum(self.throttled.values())


# --- actions of people -------------------------------------------------------------------------------------


class Acted(StrEnum):
    """What an action on one job came to. Only ``ok`` changed anything."""

    OK = "ok"
    CONFLICTED = "conflicted"  #: the job is not as it was reviewed, or not in a state for this
    RUNNING = "running"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobChange:
    """What `edit` changes of a waiting job; None = as it is. At most one of the due times.

    sealed    ids of the keys that seal the new envelope
    """

    envelope: bytes | None = None
    sealed: str = ""
    priority: int | None = None
    due_in_ms: int | None = None
    due_at_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Purge:
    """What a purge means, as it was counted: `count` ended jobs of `state` that ended by `before_ms`."""

    state: State
    before_ms: int
    count: int
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Purged:
    """A part of a purge. `left` is what the next part means; conflicted: it had changed, and nothing was deleted."""

    deleted: int
    left: Purge
    conflicted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Obliterated:
    """How far an obliteration is.

    token       of the one under way: whoever resumes it gives this
    deleted     jobs deleted since it began
    done        nothing is left
    conflicted  one with another token is under way: `token` is that one's, and nothing was deleted now
    missing     there is no such queue, or no more
    """

    token: str
    deleted: int = 0
    done: bool = False
    conflicted: bool = False
    missing: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Repaired:
    """What was wrong with a queue's data, and is right now.

    checked        ids that were looked at
    no_index       records that no index had
    no_record      ids and payloads whose record was gone
    wrong_index    records that an index had besides their own
    no_envelope    jobs without arguments: dead letters now
    locks          of unique keys that nobody held any more
    counters       names of those that were wrong
    busy           the queue moved so fast that its sums over all jobs could not be counted
    """

    checked: int = 0
    no_index: int = 0
    no_record: int = 0
    wrong_index: int = 0
    no_envelope: int = 0
    locks: int = 0
    counters: tuple[str, ...] = ()
    busy: bool = False

    @property
    def fixed(self) -> int:
        """Everything that was put right."""
        found = (self.no_index, self.no_record, self.wrong_index, self.no_envelope, self.locks)
        return sum(found) + len(self.counters)


@dataclass(frozen=True, kw_only=True, slots=True)
class Migrated:
    """The stored schema version that holds now. `behind`: workers that do not read the wanted one; then it stayed."""

    version: int
    behind: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Upkeep:
    """What of a queue is there because nobody has taken it away yet.

    idempotency_keys    that are remembered; about, where keys come and go meanwhile
    overdue             leases that are over and that nobody has reaped, the oldest for `overdue_ms`
    """

    idempotency_keys: int = 0
    overdue: int = 0
    overdue_ms: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Something that the login may not do.

    kind       ``command``, ``keys`` or ``channel``
    name       of the command, or the pattern that a rule needs
    purpose    what it is for, if not for all work
    """

    kind: str
    name: str
    purpose: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class MinuteFigures:
    """What a queue did in one minute, which begins at `minute_ms`.

    arrived     jobs that became claimable: new, promoted, put back, let in by their concurrency key
    finished    runs that ended, and `run_ms`, their run time together
    """

    minute_ms: int
    arrived: int = 0
    finished: int = 0
    run_ms: int = 0


# --- the operator ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RateLimit:
    """At most `count` starts in any window of `per_ms`."""

    count: int
    per_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueConfig:
    """The queue-level options in Redis. None = the runtime's default of RT section 1.

    generation      of the Queue resource, when an operator wrote it: 0 = no operator did
    held            claims stop (stopPolicy); `paused` by hand is another flag
    rate            starts over all processes
    concurrency     running jobs over all processes
    per_key         running jobs per concurrency key, for jobs that say no number themselves; default 1
    max_result, max_checkpoint, max_progress    bytes that a job may leave
    hard_after_ms   from a run's timeout to the moment when it is given up
    """

    generation: int = 0
    held: bool = False
    closed: bool = False
    timeout_ms: int | None = None
    max_timeout_ms: int | None = None
    max_attempts: int | None = None
    max_deliveries: int | None = None
    backoff: str | None = None  #: JSON of the policy, read by workers
    max_depth: int | None = None
    max_bytes: int | None = None
    max_payload: int | None = None
    lease_ms: int | None = None
    rate: RateLimit | None = None
    concurrency: int | None = None
    per_key: int | None = None
    max_result: int | None = None
    max_checkpoint: int | None = None
    max_progress: int | None = None
    hard_after_ms: int | None = None
    keep: Mapping[str, int] = field(default_factory=dict)
    revision: int = 0  #: set by the store when read: rises with each write


#: Options that a Queue resource does not have. `revision` aside, the rest of a config is what it has.
CODES_OWN = (
    "rate",
    "concurrency",
    "per_key",
    "max_result",
    "max_checkpoint",
    "max_progress",
    "hard_after_ms",
)


def without_codes_own(config: QueueConfig) -> QueueConfig:
    """`config` without what a Queue resource does not have."""
    nothing: dict[str, Any] = dict.fromkeys(CODES_OWN)
    return replace(config, **nothing)


class Writing(StrEnum):
    """How `configure` writes."""

    PLAINLY = ""  #: all options; refused where an operator wrote them, if no operator asks
    LIMITS = "limits"  #: only what no Queue resource has (`CODES_OWN`): so nobody is in the way
    FORCED = "forced"  #: over an operator's options, which is away or will write again


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerRecord:
    """Which Queue object owns this Redis queue (OP-022)."""

    operator: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Configured:
    """Whether options were written.

    owner      the Queue object whose options stand instead, None = they were written
    """

    owner: OwnerRecord | None = None

    @property
    def outcome(self) -> str:
        """``written`` or ``conflicted``."""
        return "written" if self.owner is None else "conflicted"

    def __str__(self) -> str:
        if self.owner is None:
            return self.outcome
        return f"{self.outcome}: Queue {self.owner.namespace}/{self.owner.name} has the say"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One look at a queue for the scaling loop; see operator spec section 5.

    entered, finished   counters that never fall
    due_soon            delayed jobs, retries and ticks due within the horizon asked for
    oldest_ms           age of the oldest due job that waits
    template_known      the template hash asked for has registered its job types
    throttled           jobs that are due and wait, and that no worker may take within the horizon asked for;
                        `throttled_by` what bars them, as in `QueueStats`
    rate, concurrency   the limits in force, None = none
    parked_first        id of one parked job, "" if there is none
    sealed              jobs per id of the key that seals something of them; schedules are not counted
    """

    time_ms: int
    run_id: str
    entered: int
    finished: int
    ready: int
    prioritized: int
    delayed: int
    due: int
    due_soon: int
    active: int
    throttled: int
    parked: int
    dead: int
    bytes: int
    oldest_ms: int
    paused: bool
    held: bool
    closed: bool
    template_known: bool
    owner: OwnerRecord | None
    parked_types: Mapping[str, int] = field(default_factory=dict)
    parked_first: str = ""
    totals: Mapping[str, int] = field(default_factory=dict)
    workers: tuple[Heartbeat, ...] = ()
    quiesced: Mapping[str, str] = field(default_factory=dict)  #: pod UID -> token, unexpired
    leased: Mapping[str, int] = field(default_factory=dict)  #: pod UID -> leases held
    sealed: Mapping[str, int] = field(default_factory=dict)
    config_generation: int = 0
    throttled_by: Mapping[str, int] = field(default_factory=dict)
    rate: RateLimit | None = None
    concurrency: int | None = None
    loading: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleRequest:
    """What `samples` asks of one queue; the fields are those of `sample`."""

    queue: QueueName
    horizon_ms: int
    template_hash: str = ""
    cold: bool = False


class RevokeCause(StrEnum):
    EVICTED = "evicted"  #: the delivery is given back
    DIED = "died"  #: the container died by itself: the delivery stays counted


@dataclass(frozen=True, kw_only=True, slots=True)
class CronEntry:
    """A schedule as Redis keeps it: what a tick needs, without a calendar.

    job             the template of each tick's job; id and times are the script's
    policies        as the CronJob resource names them
    lasting         it goes on until it is removed; else it stops when nobody has put it for 7 days
    calendar        JSON of `core.cron.Calendar`: with it a worker goes on planning while no operator is there
    tzdata          IANA release that the plan was made with; a worker with an older one leaves it alone
    """

    uid: str
    schedule_hash: str
    job: NewJob
    missed_run_policy: str = "Latest"
    max_catch_up: int = 10
    starting_deadline_ms: int | None = None
    concurrency_policy: str = "Allow"
    max_pending: int | None = None
    suspended: bool = False
    lasting: bool = False
    until_ms: int | None = None
    max_runs: int | None = None
    jitter_ms: int = 0
    every_ms: int | None = None
    tzdata: str = ""
    calendar: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CronState:
    """What the ledger says about one schedule.

    planned         instants of the plan that are still to come
    last_planned_ms the plan has every instant up to here; 0 for an interval, which needs no plan
    active          ids of its jobs that have not ended, `pending` of them waiting
    refreshed_ms    when an operator put it last; after 7 days without, it stops
    lost_ms         what a failover took back ends here, 0 = nothing
    now_ms          Redis TIME of this look
    """

    uid: str
    schedule_hash: str
    cursor_ms: int
    next_ms: int | None
    planned: int
    last_planned_ms: int
    suspended: bool
    runs: int
    missed: int
    skipped: int
    active: tuple[str, ...] = ()
    pending: int = 0
    last: Mapping[str, str] = field(default_factory=dict)  #: at, decided, id, outcome, reason, by
    last_missed: Mapping[str, str] = field(default_factory=dict)
    last_skipped: Mapping[str, str] = field(default_factory=dict)  #: both: at, reason, decided
    missed_by: Mapping[str, int] = field(default_factory=dict)
    skipped_by: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    every_ms: int | None = None
    tzdata: str = ""
    calendar: str = ""
    refreshed_ms: int = 0
    lost_ms: int = 0
    now_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ticked:
    """What one instant became: ``fired``, ``already``, ``skipped``, ``missed``.

    ``failed``: the schedule could not be ticked (`reason`), nothing is decided, and it is tried again in a minute.
    """

    uid: str
    at_ms: int
    outcome: str
    reason: str = ""
    job_id: str = ""


class RenewalChannel(Protocol):
    """What a renewal thread needs, in blocking calls on its own connection; for one thread at a time.

    Raises StoreUnavailable or OutcomeUnknown when the connection is lost; `connect` makes a new one.
    """

    def connect(self) -> None: ...
    def renew(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal: ...
    def wait_nudge(self, owner: Owner, queue: QueueName, seconds: float) -> str | None:
        """Sleep until a nudge for this owner comes (its text) or `seconds` are over (None)."""
        ...

    def requeue(
        self,
        queue: QueueName,
        owner: Owner,
        leases: Sequence[Lease],
        *,
        put: Put = Put.FRONT,
        reason: str = "drained",
    ) -> list[Verdict]:
        """Put back what runs when the event loop is too blocked to do it."""
        ...

    def leave(self, queue: QueueName, owner: Owner, beat: Heartbeat) -> None: ...
    def close(self) -> None: ...


class Store(Protocol):
    """Jobs of any number of queues behind one server (or in this process' memory)."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def ping(self) -> int:
        """Redis TIME in ms: scripts load and answer. Raises StoreUnavailable, AccessDenied, SchemaMismatch."""
        ...

    # producers
    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> list[Admission]:
        """Store `jobs`, any number (chunked inside); one admission each, in order. Never raises for a refusal."""
        ...

    # workers
    async def claim(
        self, queue: QueueName, owner: Owner, *, number: int, slots: int, known: Sequence[str] = ()
    ) -> Claimed: ...
    async def start(self, queue: QueueName, leases: Sequence[Lease]) -> list[Verdict]: ...
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
        """Idempotent by `number`: asked again after a lost reply it answers the stored result.

        done     more of them that completed; their verdicts follow
        """
        ...

    async def renew(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal: ...
    async def requeue(
        self,
        queue: QueueName,
        owner: Owner,
        leases: Sequence[Lease],
        *,
        put: Put = Put.FRONT,
        reason: str = "drained",
    ) -> list[Verdict]: ...
    async def child_died(self, queue: QueueName, deaths: Sequence[tuple[Lease, str]]) -> list[Verdict]:
        """Take back jobs whose own child process died, each with how it ended: the delivery counts."""
        ...

    async def progress(self, queue: QueueName, lease: Lease, value: bytes) -> Verdict: ...
    async def log(self, queue: QueueName, lease: Lease, lines: Sequence[str]) -> Verdict: ...
    async def checkpoint(self, queue: QueueName, lease: Lease, value: bytes) -> Verdict: ...
    async def wait(self, queue: QueueName, timeout_s: float) -> Wake | None:
        """Block until a wake marker comes or the time is over."""
        ...

    async def register(
        self, queue: QueueName, template_hash: str, types: Mapping[str, tuple[str, bytes]]
    ) -> None:
        """Publish job types: name -> (schema hash, JSON Schema)."""
        ...

    async def leave(self, queue: QueueName, owner: Owner, beat: Heartbeat) -> None:
        """Last beat: the owner is gone by its own will."""
        ...

    async def predecessors(self, queue: QueueName, owner: Owner) -> list[str]:
        """Boot owners that beat before from the same pod UID and container name."""
        ...

    async def config(self, queue: QueueName) -> QueueConfig:
        """The queue-level options as they stand in Redis; all defaults when nobody wrote any."""
        ...

    def renewal_channel(self) -> RenewalChannel:
        """The same store for one OS thread: blocking calls on a connection of its own."""
        ...

    # upkeep, by whoever is awake
    async def promote(self, queue: QueueName, ids: Sequence[str] | None = None) -> int: ...
    async def reap(self, queue: QueueName) -> tuple[int, int]:
        """(returned, buried)"""
        ...

    async def expire(self, queue: QueueName) -> int: ...
    async def trim(self, queue: QueueName) -> int: ...
    async def tick(self, queue: QueueName, uid: str | None = None, *, by: str = "worker") -> list[Ticked]:
        """Decide what is due of one schedule, or of all. Every claim does this too."""
        ...

    # schedules
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
        """Put an entry and add to its plan: ``ok``, or ``stale`` (a newer one is there, or a hole would be left).

        A new schedule, and a resumed one, begin now: nothing is due for the past.
        reset         plan the future anew (the zone data changed); the cursor stays
        from_ms       `instants_ms` are all of the calendar later than this, up to the last of them; 2,000 at most
        decided_ms    what an earlier ledger had decided: a new entry begins there, and what a known one has
                      lost of it in a failover was missed
        left_out      older instants in that span that no policy could run any more
        """
        ...

    async def refill(self, queue: QueueName) -> list[str]:
        """Continue the plans that have less than 16 instants left: the uids. By workers; see OP-251."""
        ...

    async def suspend(self, queue: QueueName, uid: str) -> str:
        """No ticks until the schedule is put again: ``ok``, or ``stale`` if there is none."""
        ...

    async def resume(self, queue: QueueName, uid: str) -> str:
        """Let a suspended schedule tick again, from now on: ``ok``, or ``stale`` if there is none."""
        ...

    async def unplan(self, queue: QueueName, uid: str) -> bool: ...
    async def cron_states(self, queue: QueueName, uids: Sequence[str] | None = None) -> list[CronState]: ...

    # the operator
    async def configure(
        self,
        queue: QueueName,
        config: QueueConfig,
        owner: OwnerRecord | None,
        *,
        how: Writing = Writing.PLAINLY,
    ) -> OwnerRecord | None:
        """Write `config` unless another Queue owns it: then that owner is the answer, and nothing is written.

        With an `owner` what no Queue resource has (`CODES_OWN`) is left alone: it is the code's.
        """
        ...

    async def sample(
        self, queue: QueueName, *, horizon_ms: int, template_hash: str = "", cold: bool = False
    ) -> Sample:
        """`cold`: (re)set the cold flag for 60 s, so that the first claimable job publishes a wake."""
        ...

    async def samples(self, requests: Sequence[SampleRequest]) -> list[Sample | DockworkError]:
        """One sample per request, in order, in one pipeline: a queue whose script failed has its error there.

        Raises StoreUnavailable, OutcomeUnknown or AccessDenied when the connection itself gave nothing.
        """
        ...

    async def quiesce(self, queue: QueueName, requests: Mapping[str, str]) -> Mapping[str, int]:
        """Flag pods (UID -> token) for 60 s: leases each still holds."""
        ...

    async def unquiesce(self, queue: QueueName, pods: Sequence[str]) -> None: ...
    async def revoke(
        self, queue: QueueName, owner: str, cause: RevokeCause, exit_reason: str = ""
    ) -> int: ...
    def wakes(self) -> AsyncIterator[QueueName]:
        """Queues whose first claimable job arrived while they were cold."""
        ...

    async def server(self) -> Mapping[str, Any]:
        """version, run_id, policy, used_memory, maxmemory, aof, aof_ok, replicas: for OP-023 and `doctor`."""
        ...

    async def refusals(self, queue: QueueName) -> builtins.list[Refusal]:
        """What the login may not do, tried with the keys of a queue that nobody uses."""
        ...

    # people
    async def set_paused(self, queue: QueueName, *, expected: bool, wanted: bool) -> bool: ...
    async def get(self, queue: QueueName, job_id: str, *, digest: bool = False) -> JobView | None: ...
    async def list(
        self, queue: QueueName, state: State, *, offset: int = 0, limit: int = 50
    ) -> builtins.list[JobView]: ...
    async def stats(self, queue: QueueName) -> QueueStats: ...
    async def figures(self, queue: QueueName, *, minutes: int = 60) -> builtins.list[MinuteFigures]:
        """The figures of the last `minutes`, at most 48 hours; the running minute comes last."""
        ...

    async def set_closed(self, queue: QueueName, *, expected: bool, wanted: bool) -> bool:
        """Close the intake by hand, or open it, if it is as expected: whether it was."""
        ...

    async def cancel(self, queue: QueueName, job_id: str, *, force: bool = False) -> str:
        """``cancelled``, ``flagged``, ``too_late`` or ``missing``; by force a running job is ``cancelled`` at once."""
        ...

    async def redrive(
        self, queue: QueueName, picks: Sequence[tuple[str, str]], fresh: Mapping[str, Resealed] | None = None
    ) -> builtins.list[Acted]:
        """Put ended jobs back with fresh counters, each (id, digest) if it is still that; "" = whatever it is.

        fresh    by id, what of a job another key seals now
        """
        ...

    async def edit(self, queue: QueueName, job_id: str, revision: int, change: JobChange) -> Acted:
        """Change a waiting job that is still at `revision`. Raises TooLarge, QueueFull for a new envelope's size."""
        ...

    async def count_purge(self, queue: QueueName, state: State, before_ms: int | None = None) -> Purge:
        """What a purge of the ended jobs of `state` would delete; `before_ms` None: all that have ended by now."""
        ...

    async def purge(self, queue: QueueName, purge: Purge) -> Purged:
        """Delete a part of what was counted, at most 500, if it is still that. Repeat with `left` until it is empty."""
        ...

    async def obliterate(self, queue: QueueName, token: str) -> Obliterated:
        """Delete a part of everything; the first call closes intake and claims. Repeat until `done`."""
        ...

    async def repair(self, queue: QueueName) -> Repaired:
        """Look at every job, index, lock and counter, and put right what is wrong."""
        ...

    async def upkeep(self, queue: QueueName) -> Upkeep:
        """Idempotency keys and overdue leases, counted over all keys of the server: for now and then."""
        ...

    async def migrate(self, queue: QueueName, version: int) -> Migrated:
        """Raise the stored schema version, if every registered worker reads it."""
        ...

    async def queues(self, namespace: str) -> builtins.list[QueueName]:
        """The queues that anybody ever used, whole ones: without their partitions."""
        ...

    async def partitions(self, queue: QueueName, wanted: int | None = None) -> int:
        """How many partitions a whole queue has; `wanted` is entered for one that has no job yet.

        Raises InvalidValue where Redis has another number and jobs.
        """
        ...

    async def events(self, queue: QueueName, since: str, *, block_s: float) -> builtins.list[Event]:
        """Entries after `since`: an entry's id, ``0`` for all that are kept, ``$`` for what comes from now on."""
        ...

    async def last_event(self, queue: QueueName) -> str:
        """The id of the newest entry, ``0-0`` if there is none: to read on from now without a hole."""
        ...

    def published(self, queue: QueueName) -> AsyncIterator[Event | None]:
        """Events of a queue in mode ``pubsub``, for ever; None each time that it listens (again): what was
        published before is lost."""
        ...

    async def set_events(self, queue: QueueName, options: EventOptions) -> None:
        """Say where the events go. It is the code's to say, also where an operator owns the queue."""
        ...

    async def event_options(self, queue: QueueName) -> EventOptions: ...
    async def key_ids(self, queue: QueueName) -> Mapping[str, int]:
        """Jobs and schedules of which something is sealed, per id of the key."""
        ...

    async def sealed_schedules(
        self, queue: QueueName, *, key: str, types: Sequence[str]
    ) -> builtins.list[SealedJob]:
        """Schedules, by uid, whose arguments another key than `key` seals; those of `types` that nothing seals too."""
        ...

    async def reseal_schedule(
        self, queue: QueueName, uid: str, digest: str, *, key: str, envelope: bytes
    ) -> Resealing:
        """Write a schedule's arguments anew, if they are as they were read; its times stay."""
        ...

    async def sealed(
        self, queue: QueueName, state: State, *, offset: int, key: str, types: Sequence[str]
    ) -> SealedPage:
        """A page of the jobs in `state` of which something is sealed by another key than `key`, or which are of
        `types` and have arguments that nothing seals."""
        ...

    async def reseal(self, queue: QueueName, changes: Sequence[Reseal]) -> builtins.list[Resealing]:
        """Write sealed values of jobs anew, any number (chunked inside), each only if it is as it was read."""
        ...

    async def errors(self, queue: QueueName, *, limit: int = 50) -> QueueErrors:
        """The last error reports, at most 200, and figures per job type."""
        ...
