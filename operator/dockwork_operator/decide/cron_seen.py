"""What was observed of a CronJob, and what is to be done for it: inputs and outputs of `decide_cronjob`.

Decisions know no store: `ScheduleSeen` and `ScheduleSettings` mirror `CronState` and `CronEntry` of
`dockwork.store.protocol`; `observe.schedules` and `apply.schedules` convert.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dockwork_operator.decide.plan import ApplyChild, DeleteChild, Event
from dockwork_operator.decide.seen import ChildSeen, RedisFailure
from dockwork_operator.models.objects import ObjectRef

# --- seen --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleSeen:
    """What the ledger in Redis says about one schedule. Times are Redis TIME in ms.

    cursor_ms        every instant up to here is decided
    next_ms          the first that is not, None if there is none (suspended, or the plan is used up)
    planned          planned instants still to come
    last_planned_ms  the plan has every instant up to here
    active           ids of its jobs that have not ended, `pending` of them waiting
    last             the newest decided tick: at, decided, id, outcome, reason, by
    lost_ms          what a failover took back ends here
    """

    uid: str
    schedule_hash: str
    generation: int
    cursor_ms: int
    next_ms: int | None = None
    planned: int = 0
    last_planned_ms: int = 0
    suspended: bool = False
    runs: int = 0
    missed: int = 0
    skipped: int = 0
    active: tuple[str, ...] = ()
    pending: int = 0
    last: Mapping[str, str] = field(default_factory=dict)
    last_missed: Mapping[str, str] = field(default_factory=dict)
    last_skipped: Mapping[str, str] = field(default_factory=dict)
    tzdata: str = ""
    every_ms: int | None = None
    refreshed_ms: int = 0
    lost_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetSeen:
    """A Queue object that gets ticks.

    child        the object; its owner tells whether this CronJob made it
    accepted     status of its Accepted condition for its newest generation; None while it says nothing yet
    max_timeout  the longest timeout that a job may ask for; None if its spec cannot be read
    """

    namespace: str
    child: ChildSeen
    accepted: bool | None = True
    refusal: str = ""
    max_timeout: timedelta | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LedgerSeen:
    """One look at the ledger of a Queue's Redis.

    now_ms     Redis TIME of the look, None: not reached (`failure`, `message`) or not asked
    schedule   the entry of this CronJob, None if there is none
    """

    now_ms: int | None = None
    schedule: ScheduleSeen | None = None
    failure: RedisFailure | None = None
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class CronSeen:
    """The world around one CronJob.

    status        of the object as it stands, {} if it has none
    generation    of the object as it stands, also where its spec was refused
    target        the Queue of `spec.queueRef`, or of the CronJob's own name with `worker`; None: there is none
    ledger        the look at the target's Redis
    previous      the Queue that `status.queue` names, if it is another one and is there
    previous_ledger  the look at that one's Redis
    owned         the Queue of the CronJob's own name, whoever it belongs to; None: there is none
    written_at    when this process last wrote the status: fast figures wait 10 s
    """

    status: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 1
    target: TargetSeen | None = None
    ledger: LedgerSeen = LedgerSeen()
    previous: TargetSeen | None = None
    previous_ledger: LedgerSeen = LedgerSeen()
    owned: TargetSeen | None = None
    written_at: datetime | None = None


# --- to do -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class JobSettings:
    """The job of each tick. `envelope` is sealed; times are the script's."""

    type: str
    envelope: bytes = field(repr=False)
    priority: int = 0
    timeout_ms: int | None = None
    max_attempts: int | None = None
    expires_in_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleSettings:
    """A schedule as it is to stand in Redis; the fields are those of the store's `CronEntry`."""

    uid: str
    schedule_hash: str
    job: JobSettings
    missed_run_policy: str
    max_catch_up: int
    starting_deadline_ms: int | None
    concurrency_policy: str
    max_pending: int | None
    suspended: bool
    every_ms: int | None
    tzdata: str
    calendar: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PutSchedule:
    """Write the entry and add `instants_ms` to its plan: the arguments of the store's `plan`."""

    queue: ObjectRef
    settings: ScheduleSettings
    instants_ms: tuple[int, ...]
    generation: int
    reset: bool
    from_ms: int
    decided_ms: int | None
    left_out: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SuspendSchedule:
    """Stop the ticks and leave everything else: the entry goes on when it is put again."""

    queue: ObjectRef
    uid: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TickSchedule:
    """Decide what is due."""

    queue: ObjectRef
    uid: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveSchedule:
    """Take the entry, its plan and its ledger out of Redis; jobs that were made stay."""

    queue: ObjectRef
    uid: str
    reason: str


ScheduleAction = PutSchedule | SuspendSchedule | TickSchedule | RemoveSchedule
CronAction = ApplyChild | DeleteChild | ScheduleAction


@dataclass(frozen=True, kw_only=True, slots=True)
class CronPlan:
    """The decision of one reconcile of a CronJob.

    status         the whole status to write (a merge patch; None where a field is unset), or None: leave it
    requeue_after  look again then: the next instant, a retry, or the pace of the status
    """

    actions: tuple[CronAction, ...] = ()
    status: Mapping[str, Any] | None = None
    events: tuple[Event, ...] = ()
    requeue_after: timedelta | None = None
