"""The CronJob resource: a schedule whose ticks land on a queue, each exactly once."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from dockwork_operator.models.conditions import ConditionList
from dockwork_operator.models.fields import (
    ApiModel,
    Cut,
    Flag,
    Free,
    Instant,
    Many,
    OneOf,
    Rule,
    Span,
    Text,
    Whole,
    dns_label,
)
from dockwork_operator.models.objects import ObjectRef, Refused, read_spec, ref_of
from dockwork_operator.models.queues import Count, Redis, Time, Word, Worker

MAX_ARGS_BYTES = 64 * 1024

_NAMES = "@(yearly|annually|monthly|weekly|daily|midnight|hourly)"
_EVERY = "@every ([0-9]{1,6}(ms|s|m|h))+"
_FIELDS = "[0-9A-Za-z*/,()-]+( +[0-9A-Za-z*/,()-]+){4}"
SCHEDULE = f"^({_NAMES}|{_EVERY}|{_FIELDS})$"
_SCHEDULE_RULE = Rule(
    cel=f"self.matches('{SCHEDULE}')",
    message="five fields, @name or @every; the zone goes to timeZone",
    holds=lambda schedule: re.search(SCHEDULE, schedule) is not None,
)


class Dst(ApiModel):
    """What becomes of a fixed local time on the days the clock changes."""

    gap: Annotated[Literal["RunAfter", "Skip"], OneOf(("RunAfter", "Skip"))] = "RunAfter"
    """A time that does not exist in spring: RunAfter at the first instant after the gap, or Skip."""
    overlap: Annotated[Literal["First", "Last", "Both"], OneOf(("First", "Last", "Both"))] = "First"
    """A time that comes twice in autumn: First, Last or Both."""


class QueueRef(ApiModel):
    """A Queue of the same namespace."""

    name: Annotated[str, dns_label()]
    """Its name."""


class TickJob(ApiModel):
    """The job that each tick enqueues."""

    type: Annotated[str, Text(1, 64)]
    """The job type's name."""
    args: Annotated[Mapping[str, Any], Free("an object of arguments by name")] = {}
    """Arguments by parameter name, at most 64 KiB of JSON."""
    priority: Annotated[int, Whole(-100, 100)] = 0
    """Lower runs first."""
    timeout: Annotated[timedelta, Span("1s", "24h")] | None = None
    """How long a run may take. Absent = the Queue's."""
    max_attempts: Annotated[int, Whole(1, 100)] | None = None
    """Failed runs after which it is a dead letter. Absent = the Queue's."""
    expire_after: Annotated[timedelta, Span("1s", "8760h")] | None = None
    """Not started by then, counted from its time: it expires. Absent = never."""


class CronJobSpec(ApiModel):
    """A schedule whose ticks land on a queue, each exactly once."""

    schedule: Annotated[str, Text(1, 128, rule=_SCHEDULE_RULE)]
    """Five fields (minute hour day month weekday), @hourly and the like, or @every 15m. H spreads: `H 3 * * *` is
    some minute after three, the same each day."""
    time_zone: Annotated[
        str, Text(1, 64, r"^[A-Za-z0-9_+/-]+$", "an IANA time zone such as Europe/Berlin")
    ] = "Etc/UTC"
    """The IANA time zone that the schedule is read in."""
    dst: Dst = Dst()
    """What becomes of a fixed local time on the days the clock changes."""
    queue_ref: QueueRef | None = None
    """The Queue of this namespace that gets the ticks. Exactly one of queueRef and worker."""
    worker: Worker | None = None
    """Workers of its own: makes a Queue of the same name, with no pod between ticks. Exactly one of queueRef and
    worker."""
    redis: Redis | None = None
    """Where the jobs of the owned Queue are; only with worker."""
    max_replicas: Annotated[int, Whole(1, 1000)] | None = None
    """Pods of the owned Queue, at most; only with worker. Absent = 1."""
    job: TickJob
    """The job that each tick enqueues."""
    missed_run_policy: Annotated[Literal["Skip", "Latest", "All"], OneOf(("Skip", "Latest", "All"))] = (
        "Latest"
    )
    """What becomes of ticks that nobody could make in time: none of them, the latest, or all up to maxCatchUp."""
    max_catch_up: Annotated[int, Whole(1, 100)] = 10
    """Missed ticks that are made up for at most, for missedRunPolicy All."""
    starting_deadline_seconds: Annotated[int, Whole(10, 31_536_000)] | None = None
    """A tick that is later than this is missed for good. Absent = never too late."""
    concurrency_policy: Annotated[Literal["Allow", "Forbid"], OneOf(("Allow", "Forbid"))] = "Allow"
    """Forbid skips a tick while a job of this schedule has not ended."""
    max_pending: Annotated[int, Whole(1, 1000)] | None = None
    """Jobs of this schedule that wait at once, at most; more ticks are skipped. Absent = no limit for Allow but the
    queue's depth, 1 for Forbid."""
    suspend: Annotated[bool, Flag()] = False
    """No ticks while true; resuming makes up for nothing."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.queueRef) != has(self.worker)",
            message="exactly one of queueRef and worker",
            field="queueRef",
            holds=lambda spec: (spec.queue_ref is None) != (spec.worker is None),
        ),
        Rule(
            cel="has(self.worker) || !has(self.maxReplicas)",
            message="maxReplicas goes with worker only",
            field="maxReplicas",
            holds=lambda spec: spec.worker is not None or spec.max_replicas is None,
        ),
        Rule(
            cel="!has(self.queueRef) || !has(self.redis)",
            message="redis goes with worker only: the Queue says where its jobs are",
            field="redis",
            holds=lambda spec: spec.queue_ref is None or spec.redis is None,
        ),
    )


class TickStatus(ApiModel):
    """The last tick."""

    scheduled_for: Time
    """Its instant."""
    enqueued_at: Time | None = None
    """When its job was enqueued."""
    job_id: Annotated[str, Cut(most=256)] = ""
    """Its job."""
    outcome: Word = ""
    """Enqueued, Skipped or Missed."""
    by: Word = ""
    """Who made it: worker or operator."""
    lag_millis: Count = 0
    """From its instant to its job."""


class TargetStatus(ApiModel):
    """The Queue that gets the ticks."""

    name: Annotated[str, Cut(most=63)] = ""
    """Its name."""
    owned: Annotated[bool, Flag()] = False
    """Whether this CronJob made it."""


class ActiveJob(ApiModel):
    """A job of this schedule that has not ended."""

    job_id: Annotated[str, Cut(most=256)] = ""
    """Its id."""
    scheduled_for: Time | None = None
    """The instant it was made for."""
    state: Word = ""
    """Where it is: ready, active, ..."""


class MissedStatus(ApiModel):
    """Ticks that were not made."""

    count: Count = 0
    """How many, in all."""
    last_at: Time | None = None
    """The instant of the last one."""
    last_reason: Word = ""
    """Why: Deadline, Policy, ..."""


class CronJobStatus(ApiModel):
    """What the operator last saw; rebuilt from the ledger, never an instruction."""

    observed_generation: Count = 0
    """The metadata.generation that the rest was said of."""
    conditions: ConditionList = ()
    """What holds now."""
    queue: TargetStatus | None = None
    """The Queue that gets the ticks."""
    cursor_time: Time | None = None
    """Every instant up to here is decided."""
    next_tick_time: Time | None = None
    """The next instant."""
    next_ticks: Annotated[tuple[Time, ...], Many(3, item=Instant())] = ()
    """The next three instants."""
    last_tick: TickStatus | None = None
    """The last tick."""
    active: Annotated[tuple[ActiveJob, ...], Many(10)] = ()
    """Jobs of this schedule that have not ended, the first ten."""
    pending: Count = 0
    """Jobs of this schedule that wait."""
    runs: Count = 0
    """Ticks that became a job, in all."""
    missed: MissedStatus | None = None
    """Ticks that came too late."""
    skipped: MissedStatus | None = None
    """Ticks that a policy or a full queue left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CronJob:
    """A CronJob that could be read."""

    ref: ObjectRef
    uid: str
    generation: int
    spec: CronJobSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    raw_status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def queue_name(self) -> str:
        """The Queue that gets the ticks."""
        return self.spec.queue_ref.name if self.spec.queue_ref is not None else self.ref.name


def parse_cronjob(raw: Mapping[str, Any]) -> CronJob | Refused:
    """The CronJob that the API server sent, or the first field of its spec that cannot be carried out."""
    spec = read_spec(CronJobSpec, raw.get("spec") or {})
    if isinstance(spec, Refused):
        return spec
    size = len(json.dumps(spec.job.args, separators=(",", ":"), ensure_ascii=False).encode())
    if size > MAX_ARGS_BYTES:
        return Refused(field="spec.job.args", expected=f"at most {MAX_ARGS_BYTES} bytes", got=f"{size} bytes")
    metadata = raw.get("metadata") or {}
    return CronJob(
        ref=ref_of(raw),
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 0),
        spec=spec,
        annotations=dict(metadata.get("annotations") or {}),
        deleting=bool(metadata.get("deletionTimestamp")),
        raw_status=raw.get("status") or {},
    )
