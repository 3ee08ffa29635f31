"""What is to be done for a CronJob: its entry and plan in Redis, its owned Queue, its status and events.

Who ticks is not decided here: any claim does when an instant is due, and so does the operator (OP-250). This
module keeps the ledger supplied and says what it shows. All instants are compared with Redis TIME.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from dockwork.core.codec import Envelope, seal
from dockwork.core.cron import (
    Calendar,
    Dst,
    Gap,
    InvalidSchedule,
    NeverFires,
    Overlap,
    Planned,
    UnknownZone,
    load_zone,
    parse_schedule,
    plan_ahead,
    require_firing,
    tzdata_version,
)
from dockwork_operator import constants
from dockwork_operator.constants import Condition, Reason
from dockwork_operator.decide.cron_seen import (
    CronAction,
    CronPlan,
    CronSeen,
    JobSettings,
    LedgerSeen,
    PutSchedule,
    RemoveSchedule,
    ScheduleSeen,
    ScheduleSettings,
    SuspendSchedule,
    TargetSeen,
    TickSchedule,
)
from dockwork_operator.decide.cron_status import (
    PACE,
    CronNews,
    cron_events,
    cron_status,
    pause_before_writing,
)
from dockwork_operator.decide.drift import has_drifted, marked
from dockwork_operator.decide.manifests import render_owned_queue
from dockwork_operator.decide.plan import ApplyChild, DeleteChild, Event, EventType
from dockwork_operator.decide.seen import EPOCH, read_time
from dockwork_operator.models.cronjobs import CronJob
from dockwork_operator.models.objects import ObjectRef, Refused

#: The operator adds to a plan below this many instants, so that it is full long before workers must help.
PLAN_LOW = 48
PLAN_LOW_SPAN = timedelta(hours=36)
PLAN_LOW_COUNT = 1500
#: An entry that nobody refreshed for 7 days stops; it is refreshed in time for several failures.
REFRESH_EVERY = timedelta(hours=6)
#: Without news of the ledger or the Queue, look again after this.
RETRY = timedelta(seconds=5)
#: After an action on the ledger, to show its outcome.
AT_ONCE = timedelta(milliseconds=1)
#: Header of each tick's job: which CronJob made it.
SCHEDULE_HEADER = "dockwork-schedule"


class Rejected(Exception):
    """What the schema could not refuse (OP-052); becomes Accepted=False and never leaves this module.

    reason    one of Accepted's
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message
        super().__init__(message)


def decide_cronjob(cronjob: CronJob | Refused, seen: CronSeen, now: datetime) -> CronPlan:
    """What one CronJob needs now."""
    if isinstance(cronjob, Refused):
        return _refuse(Rejected(cronjob.reason, cronjob.message), None, seen, now)
    if cronjob.deleting:
        return CronPlan(actions=tuple(_for_each_entry(seen, _remove)))
    try:
        calendar = read_calendar(cronjob, _redis_now(seen.ledger, now))
        children = _own_queue(cronjob, seen)
        _check_target(cronjob, seen)
    except Rejected as rejected:
        return _refuse(rejected, cronjob, seen, now)
    news = CronNews(cronjob=cronjob, calendar=calendar, waiting=_why_waiting(seen))
    if news.waiting:
        return _told(children, news, seen, now, RETRY)
    ledger = _ledger_actions(cronjob, calendar, seen)
    if ledger:
        # What the ledger says after these is told then.
        return CronPlan(actions=(*children, *ledger), events=_loss(ledger), requeue_after=AT_ONCE)
    return _told(children, news, seen, now, _until_next(seen))


def choose_orphans(
    found: Mapping[ObjectRef, Iterable[str]], alive: frozenset[str], alive_before: frozenset[str]
) -> tuple[RemoveSchedule, ...]:
    """Entries of schedules that two full lists of CronJobs lack (OP-268): nobody removed them in time.

    found     Queue -> uids in its ledger
    """
    return tuple(
        RemoveSchedule(queue=queue, uid=uid, reason="Orphaned")
        for queue, uids in sorted(found.items())
        for uid in sorted(uids)
        if uid not in alive and uid not in alive_before
    )


# --- is it acceptable? -------------------------------------------------------------------------------------


def read_calendar(cronjob: CronJob, now: datetime) -> Calendar:
    """When the CronJob is due. Raises Rejected."""
    spec = cronjob.spec
    dst = Dst(gap=Gap(spec.dst.gap), overlap=Overlap(spec.dst.overlap))
    try:
        schedule = parse_schedule(spec.schedule, seed=str(cronjob.ref))
        require_firing(schedule, load_zone(spec.time_zone), dst, now)
    except InvalidSchedule as error:
        raise Rejected(Reason.SCHEDULE_INVALID, f"spec.{error}") from None
    except UnknownZone as error:
        raise Rejected(Reason.TIME_ZONE_UNKNOWN, f"spec.{error}") from None
    except NeverFires as error:
        raise Rejected(Reason.SCHEDULE_NEVER_FIRES, f"spec.{error}") from None
    return Calendar(schedule=schedule, zone=spec.time_zone, dst=dst)


def _own_queue(cronjob: CronJob, seen: CronSeen) -> list[CronAction]:
    """The owned Queue of an inline worker, kept as rendered; one that is not wanted any more is deleted."""
    owned = seen.owned
    is_ours = owned is not None and owned.child.owner_uid == cronjob.uid
    if cronjob.spec.worker is None:
        # Its ticks move first: the Queue goes when nothing of ours is in its ledger.
        if owned is not None and is_ours and not owned.child.deleting and not _is_busy_elsewhere(seen):
            return [
                DeleteChild(
                    kind=constants.QUEUE_KIND, name=owned.child.name, uid=owned.child.uid, reason="NotWanted"
                )
            ]
        return []
    if owned is not None and not is_ours:
        owner = owned.child.owner or "no controller"
        raise Rejected(
            Reason.NAME_CONFLICT,
            f"spec.worker: expected no other Queue named {cronjob.ref.name}, got one owned by {owner}; "
            "rename the CronJob, or use queueRef",
        )
    manifest = marked(render_owned_queue(cronjob))
    if owned is None or has_drifted(manifest, owned.child.live):
        return [ApplyChild(manifest=manifest, reason="Missing" if owned is None else "Drifted")]
    return []


def _is_busy_elsewhere(seen: CronSeen) -> bool:
    return seen.previous_ledger.schedule is not None


def _check_target(cronjob: CronJob, seen: CronSeen) -> None:
    spec, target = cronjob.spec, seen.target
    if spec.queue_ref is None:
        return
    if target is None:
        raise Rejected(
            Reason.QUEUE_NOT_FOUND,
            f"spec.queueRef.name: expected a Queue of namespace {cronjob.ref.namespace}, got {spec.queue_ref.name!r}",
        )
    most, asked = target.max_timeout, spec.job.timeout
    if most is not None and asked is not None and asked > most:
        raise Rejected(
            Reason.TIMEOUT_ABOVE_QUEUE_MAX,
            f"spec.job.timeout: expected at most {_seconds(most)} (Queue {spec.queue_ref.name}), got {_seconds(asked)}",
        )


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():g}s"


def _why_waiting(seen: CronSeen) -> str:
    """What the schedule waits for before its ledger can be kept, "" if for nothing."""
    if seen.target is None:
        return "the Queue is being made"
    if seen.target.accepted is False:
        return f"the Queue is not accepted: {seen.target.refusal}"
    if seen.target.accepted is None and seen.ledger.schedule is None:
        return "the Queue was not looked at yet"
    if seen.ledger.now_ms is None:
        return f"Redis was not reached: {seen.ledger.message or seen.ledger.failure or 'not asked yet'}"
    return ""


def _refuse(rejected: Rejected, cronjob: CronJob | None, seen: CronSeen, now: datetime) -> CronPlan:
    """Accepted=False. A running entry is suspended, not deleted, until the spec is repaired (OP-052)."""
    news = CronNews(cronjob=cronjob, refused_reason=rejected.reason, refusal=rejected.message)
    actions = _for_each_entry(seen, _suspend)
    return _told(actions, news, seen, now, AT_ONCE if actions else None)


# --- the ledger --------------------------------------------------------------------------------------------


def _ledger_actions(cronjob: CronJob, calendar: Calendar, seen: CronSeen) -> list[CronAction]:
    now_ms, schedule = seen.ledger.now_ms, seen.ledger.schedule
    assert now_ms is not None
    previous = seen.previous_ledger.schedule
    if previous is not None and seen.previous is not None and schedule is None and not previous.suspended:
        # queueRef changed: the old entry stops first, so that its cursor stands still (OP-264).
        return [SuspendSchedule(queue=_ref(seen.previous), uid=cronjob.uid, reason="Moved")]
    here = _ref(seen.target)
    before = _before(cronjob, calendar, seen)
    actions: list[CronAction] = []
    why = _why_put(cronjob, calendar, seen, before, now_ms)
    if why:
        actions.append(_put(cronjob, calendar, schedule, here, before, now_ms, why))
    elif schedule is not None and schedule.next_ms is not None and schedule.next_ms <= now_ms:
        actions.append(TickSchedule(queue=here, uid=cronjob.uid, reason="Due"))
    if previous is not None and seen.previous is not None:
        # The new entry goes first (OP-264): a crash in between leaves the old one suspended, and this is repeated.
        actions.append(RemoveSchedule(queue=_ref(seen.previous), uid=cronjob.uid, reason="Moved"))
    return actions


def _before(cronjob: CronJob, calendar: Calendar, seen: CronSeen) -> int | None:
    """Up to where an earlier ledger had decided: the old queue's, or one that Redis lost (OP-254, OP-264).

    None where that says nothing about this schedule: it was changed or suspended since.
    """
    previous = seen.previous_ledger.schedule
    if previous is not None and seen.ledger.schedule is None:
        return previous.cursor_ms if previous.schedule_hash == calendar.hash else None
    cursor = read_time(seen.status.get("cursorTime"))
    if cursor is None or seen.status.get("observedGeneration") != cronjob.generation:
        return None
    if (seen.status.get("queue") or {}).get("name") != cronjob.queue_name or _was_suspended(seen):
        return None
    return _ms(cursor)


def _was_suspended(seen: CronSeen) -> bool:
    return any(
        c.get("type") == Condition.SUSPENDED and c.get("status") == "True"
        for c in seen.status.get("conditions") or ()
    )


def _why_put(cronjob: CronJob, calendar: Calendar, seen: CronSeen, before: int | None, now_ms: int) -> str:
    """Why the entry must be written, "" if it stands as it should."""
    schedule = seen.ledger.schedule
    if schedule is None:
        return "Created" if before is None else "DataLost"
    if schedule.generation > cronjob.generation:
        return ""  # a newer reconcile was faster: the cache will follow
    if schedule.schedule_hash != calendar.hash:
        return "ScheduleChanged"
    if schedule.generation != cronjob.generation:
        return "SpecChanged"
    if schedule.suspended != cronjob.spec.suspend:
        return "Suspended" if cronjob.spec.suspend else "Resumed"
    if before is not None and schedule.cursor_ms < before and schedule.lost_ms < before:
        return "DataLost"
    if schedule.tzdata < tzdata_version():
        return "ZoneDataRenewed"
    if _is_low(schedule, now_ms) and _more(calendar, schedule, now_ms).instants:
        return "PlanLow"
    if now_ms - schedule.refreshed_ms >= REFRESH_EVERY // timedelta(milliseconds=1):
        return "Refresh"
    return ""


def _is_low(schedule: ScheduleSeen, now_ms: int) -> bool:
    if schedule.every_ms is not None or schedule.suspended:
        return False
    reaches = timedelta(milliseconds=schedule.last_planned_ms - now_ms)
    return schedule.planned < PLAN_LOW or (reaches < PLAN_LOW_SPAN and schedule.planned < PLAN_LOW_COUNT)


def _more(calendar: Calendar, schedule: ScheduleSeen, now_ms: int) -> Planned:
    """What the plan lacks: nothing, for a schedule with many ticks at once and then a long pause."""
    end_ms = max(schedule.cursor_ms, schedule.last_planned_ms)
    return plan_ahead(calendar, _instant(end_ms), _instant(now_ms), known=schedule.planned)


def _put(
    cronjob: CronJob,
    calendar: Calendar,
    schedule: ScheduleSeen | None,
    here: ObjectRef,
    before: int | None,
    now_ms: int,
    why: str,
) -> PutSchedule:
    is_reset = schedule is not None and why == "ZoneDataRenewed"
    if schedule is None:
        from_ms, known = (now_ms if before is None else before), 0
    elif schedule.schedule_hash != calendar.hash:
        from_ms, known = now_ms, 0
    elif is_reset:
        from_ms, known = max(schedule.cursor_ms, min(schedule.last_planned_ms, now_ms)), 0
    else:
        from_ms, known = max(schedule.cursor_ms, schedule.last_planned_ms), schedule.planned
    planned = plan_ahead(calendar, _instant(from_ms), _instant(now_ms), known=known)
    return PutSchedule(
        queue=here,
        settings=schedule_settings(cronjob, calendar),
        instants_ms=tuple(_ms(instant) for instant in planned.instants),
        generation=cronjob.generation,
        reset=is_reset,
        from_ms=from_ms,
        decided_ms=before,
        left_out=planned.left_out,
        reason=why,
    )


def schedule_settings(cronjob: CronJob, calendar: Calendar) -> ScheduleSettings:
    """The entry that the CronJob asks for."""
    spec, every = cronjob.spec, calendar.schedule.every
    deadline, timeout, expires = spec.starting_deadline_seconds, spec.job.timeout, spec.job.expire_after
    return ScheduleSettings(
        uid=cronjob.uid,
        schedule_hash=calendar.hash,
        job=JobSettings(
            type=spec.job.type,
            envelope=seal(
                Envelope(
                    type=spec.job.type,
                    args=json.dumps(dict(spec.job.args), separators=(",", ":")).encode(),
                    headers={SCHEDULE_HEADER: str(cronjob.ref)},
                )
            ),
            priority=spec.job.priority,
            timeout_ms=None if timeout is None else timeout // timedelta(milliseconds=1),
            max_attempts=spec.job.max_attempts,
            expires_in_ms=None if expires is None else expires // timedelta(milliseconds=1),
        ),
        missed_run_policy=spec.missed_run_policy,
        max_catch_up=spec.max_catch_up,
        starting_deadline_ms=None if deadline is None else deadline * 1000,
        concurrency_policy=spec.concurrency_policy,
        max_pending=spec.max_pending,
        suspended=spec.suspend,
        every_ms=None if every is None else every // timedelta(milliseconds=1),
        tzdata=tzdata_version(),
        calendar=calendar.to_json(),
    )


def _for_each_entry(
    seen: CronSeen, act: Callable[[ObjectRef, ScheduleSeen], CronAction | None]
) -> list[CronAction]:
    """`act` for this CronJob's entry, in the queue that it names now and in the one it named before."""
    actions = [
        act(_ref(target), ledger.schedule)
        for target, ledger in ((seen.target, seen.ledger), (seen.previous, seen.previous_ledger))
        if target is not None and ledger.schedule is not None
    ]
    return [action for action in actions if action is not None]


def _remove(queue: ObjectRef, schedule: ScheduleSeen) -> CronAction:
    return RemoveSchedule(queue=queue, uid=schedule.uid, reason="Deleted")


def _suspend(queue: ObjectRef, schedule: ScheduleSeen) -> CronAction | None:
    return (
        None if schedule.suspended else SuspendSchedule(queue=queue, uid=schedule.uid, reason="NotAccepted")
    )


# --- what is said ------------------------------------------------------------------------------------------


def _told(
    actions: Sequence[CronAction], news: CronNews, seen: CronSeen, now: datetime, after: timedelta | None
) -> CronPlan:
    """`actions`, and the status with its events if it is news and not too soon."""
    status = cron_status(news, seen, now)
    pause = pause_before_writing(status, seen, now)
    if pause:
        return CronPlan(actions=tuple(actions), requeue_after=pause if after is None else min(pause, after))
    if pause is None:
        return CronPlan(actions=tuple(actions), requeue_after=after)
    return CronPlan(
        actions=tuple(actions), status=status, events=cron_events(status, seen), requeue_after=after
    )


def _loss(actions: Sequence[CronAction]) -> tuple[Event, ...]:
    if not any(isinstance(action, PutSchedule) and action.reason == "DataLost" for action in actions):
        return ()
    message = "the ledger in Redis is behind what it had decided; missedRunPolicy decides about the instants between"
    return (Event(reason="RedisDataLost", message=message, type=EventType.WARNING),)


def _until_next(seen: CronSeen) -> timedelta | None:
    """From the look at the ledger to the next instant: there the operator ticks, too (OP-250).

    Sooner while jobs of this schedule run or wait: `status.active` follows them.
    """
    now_ms, schedule = seen.ledger.now_ms, seen.ledger.schedule
    if now_ms is None or schedule is None:
        return None
    pause = PACE if schedule.active else None
    if schedule.next_ms is None:
        return pause
    instant = timedelta(milliseconds=max(schedule.next_ms - now_ms, 1))
    return instant if pause is None else min(pause, instant)


def _redis_now(ledger: LedgerSeen, now: datetime) -> datetime:
    return now if ledger.now_ms is None else _instant(ledger.now_ms)


def _ref(target: TargetSeen | None) -> ObjectRef:
    assert target is not None
    return ObjectRef(namespace=target.namespace, name=target.child.name)


def _ms(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(milliseconds=1)


def _instant(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)
