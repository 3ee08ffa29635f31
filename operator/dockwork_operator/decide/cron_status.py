"""The status of a CronJob, when it is written, and the events that go with it.

It shows what the ledger says. Figures of ticks count as news every ten seconds; conditions at once (OP-103).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Literal

from dockwork.core.cron import Calendar
from dockwork_operator.constants import Condition, Reason
from dockwork_operator.decide.cron_seen import CronSeen, ScheduleSeen
from dockwork_operator.decide.plan import Event, EventType
from dockwork_operator.decide.seen import EPOCH, conditions_seen, write_time
from dockwork_operator.models.conditions import StatusCondition
from dockwork_operator.models.cronjobs import CronJob

PACE = timedelta(seconds=10)
MISSED_SHOWS_FOR = timedelta(hours=24)
_LONGEST = 1024

#: What a tick changes; everything else in the status is news at once.
LEDGER_FIELDS = (
    "cursorTime", "nextTickTime", "nextTicks", "lastTick", "active", "pending", "runs", "missed", "skipped",
)  # fmt: skip

_OUTCOMES = {"fired": "Enqueued", "skipped": "Skipped", "missed": "Missed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class CronNews:
    """What is to be said besides what the ledger shows.

    cronjob          None where the spec could not be read
    refused_reason   of Accepted=False, "" if it is accepted
    waiting          why the ledger cannot be kept yet, "" if it can
    """

    cronjob: CronJob | None = None
    calendar: Calendar | None = None
    refused_reason: str = ""
    refusal: str = ""
    waiting: str = ""


# --- status ------------------------------------------------------------------------------------------------


def cron_status(news: CronNews, seen: CronSeen, now: datetime) -> dict[str, Any]:
    """The whole status, None where a field is unset."""
    status: dict[str, Any] = {"observedGeneration": seen.generation}
    cronjob = news.cronjob
    if cronjob is not None:
        status["queue"] = {"name": cronjob.queue_name, "owned": cronjob.spec.worker is not None}
    schedule = seen.ledger.schedule
    if schedule is not None:
        status |= _ledger_part(schedule, news.calendar, seen)
    else:
        status |= {name: seen.status.get(name) for name in LEDGER_FIELDS if seen.status.get(name) is not None}
    status["conditions"] = [condition.wire() for condition in _conditions(news, seen, now)]
    return status


def _ledger_part(schedule: ScheduleSeen, calendar: Calendar | None, seen: CronSeen) -> dict[str, Any]:
    ahead: list[str] = []
    if calendar is not None and not schedule.suspended and seen.ledger.now_ms is not None:
        start = _instant(max(schedule.cursor_ms, seen.ledger.now_ms))
        ahead = [write_time(tick) for tick in islice(calendar.ticks(start), 3)]
    return {
        "cursorTime": _time(schedule.cursor_ms),
        "nextTickTime": ahead[0] if ahead else None,
        "nextTicks": ahead,
        "lastTick": _last_tick(schedule.last),
        "active": [
            {"jobID": job_id, "scheduledFor": _time(int(job_id.rpartition("-")[2]))}
            for job_id in schedule.active[:10]
        ],
        "pending": schedule.pending,
        "runs": schedule.runs,
        "missed": _left_out(schedule.missed, schedule.last_missed),
        "skipped": _left_out(schedule.skipped, schedule.last_skipped),
    }


def _last_tick(last: Mapping[str, str]) -> dict[str, Any] | None:
    if not last:
        return None
    at, decided = int(float(last["at"])), int(float(last["decided"]))
    is_made = last["outcome"] == "fired"
    return {
        "scheduledFor": _time(at),
        "enqueuedAt": _time(decided) if is_made else None,
        "jobID": last["id"] if is_made else "",
        "outcome": _OUTCOMES.get(last["outcome"], ""),
        "by": last["by"],
        "lagMillis": max(decided - at, 0) if is_made else 0,
    }


def _left_out(count: int, last: Mapping[str, str]) -> dict[str, Any]:
    return {
        "count": count,
        "lastAt": _time(int(float(last["at"]))) if last else None,
        "lastReason": last.get("reason", ""),
    }


def _time(ms: int) -> str:
    return write_time(_instant(ms))


def _instant(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


# --- conditions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Said:
    type: Condition
    status: Literal["True", "False"]
    reason: str
    message: str = ""


def _conditions(news: CronNews, seen: CronSeen, now: datetime) -> list[StatusCondition]:
    before = conditions_seen(seen.status.get("conditions"))
    made = []
    for said in _said(news, seen, now):
        old = before.get(said.type)
        since = old.since if old is not None and old.status == said.status else None
        made.append(
            StatusCondition(
                type=said.type,
                status=said.status,
                observed_generation=seen.generation,
                last_transition_time=(since or now).replace(microsecond=0),
                reason=said.reason,
                message=said.message[:_LONGEST],
            )
        )
    return made


def _said(news: CronNews, seen: CronSeen, now: datetime) -> list[_Said]:
    said = [_accepted(news), _ready(news, seen)]
    if news.refused_reason:
        said.append(_Said(Condition.STALLED, "True", Reason.NOT_ACCEPTED, news.refusal))
    suspended = _suspended(news, seen)
    return [*said, *([suspended] if suspended else []), _missed_runs(seen, now)]


def _accepted(news: CronNews) -> _Said:
    if news.refused_reason:
        return _Said(Condition.ACCEPTED, "False", news.refused_reason, news.refusal)
    return _Said(Condition.ACCEPTED, "True", Reason.VALID)


def _ready(news: CronNews, seen: CronSeen) -> _Said:
    """Redis alone never flips Ready back (OP-111)."""
    if news.refused_reason:
        return _Said(Condition.READY, "False", Reason.NOT_ACCEPTED, "no ticks until the spec is repaired")
    if not news.waiting:
        return _Said(Condition.READY, "True", Reason.AS_DECLARED)
    old = conditions_seen(seen.status.get("conditions")).get(Condition.READY)
    if (
        old is not None
        and old.status == "True"
        and seen.target is not None
        and seen.target.accepted is not False
    ):
        return _Said(Condition.READY, "True", Reason.AS_DECLARED, news.waiting)
    return _Said(Condition.READY, "False", Reason.FIRST_CONTACT, news.waiting)


def _suspended(news: CronNews, seen: CronSeen) -> _Said | None:
    if news.refused_reason:
        return _Said(Condition.SUSPENDED, "True", Reason.NOT_ACCEPTED, "until the spec is repaired")
    if news.cronjob is not None and news.cronjob.spec.suspend:
        return _Said(Condition.SUSPENDED, "True", Reason.BY_SPEC)
    return _Said(Condition.SUSPENDED, "False", Reason.ACTIVE)


def _missed_runs(seen: CronSeen, now: datetime) -> _Said:
    schedule = seen.ledger.schedule
    last = schedule.last_missed if schedule is not None else {}
    if last and now - _instant(int(float(last["decided"]))) < MISSED_SHOWS_FOR:
        at = _time(int(float(last["at"])))
        return _Said(Condition.MISSED_RUNS, "True", last["reason"], f"the tick of {at} was missed")
    return _Said(Condition.MISSED_RUNS, "False", Reason.NONE)


# --- is it news? -------------------------------------------------------------------------------------------


def pause_before_writing(status: Mapping[str, Any], seen: CronSeen, now: datetime) -> timedelta | None:
    """How long the status must wait: zero = write it now; None = it says nothing new."""
    old, new = _plain(seen.status), _plain(status)
    if old == new:
        return None
    for name in LEDGER_FIELDS:
        old.pop(name, None)
        new.pop(name, None)
    if old != new or seen.written_at is None:
        return timedelta(0)
    return max(seen.written_at + PACE - now, timedelta(0))


def _plain(value: Any) -> Any:
    """Without what an absent field means as well: null, and empty lists."""
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None and v != []}
    return [_plain(item) for item in value] if isinstance(value, list) else value


# --- events ------------------------------------------------------------------------------------------------


def cron_events(status: Mapping[str, Any], seen: CronSeen) -> tuple[Event, ...]:
    """One per transition between the stored status and the one that is written now."""
    events: list[Event] = []
    before, after = conditions_seen(seen.status.get("conditions")), conditions_seen(status["conditions"])
    if _turned(before, after, Condition.ACCEPTED, "False"):
        events.append(_warning("Rejected", after[Condition.ACCEPTED].message))
    if _turned(before, after, Condition.SUSPENDED, "True"):
        because = after[Condition.SUSPENDED]
        message = "by spec.suspend" if because.reason == Reason.BY_SPEC else because.message
        events.append(Event(reason="CronSuspended", message=f"no ticks: {message}"))
    if Condition.SUSPENDED in before and _turned(before, after, Condition.SUSPENDED, "False"):
        events.append(Event(reason="Resumed", message="ticks go on; none is made up for"))
    fired = (status.get("runs") or 0) - (seen.status.get("runs") or 0)
    if fired > 0:
        last = status.get("lastTick") or {}
        job = f"; the last is {last['jobID']}" if last.get("jobID") else ""
        events.append(
            Event(reason="CronFired", message=f"{fired} {'tick' if fired == 1 else 'ticks'} enqueued{job}")
        )
    events += _left_out_events("missed", "CronMissed", status, seen)
    events += _left_out_events("skipped", "CronSkipped", status, seen)
    return tuple(events)


def _left_out_events(field: str, reason: str, status: Mapping[str, Any], seen: CronSeen) -> list[Event]:
    new, old = status.get(field) or {}, seen.status.get(field) or {}
    count = (new.get("count") or 0) - (old.get("count") or 0)
    if count <= 0:
        return []
    ticks = "tick" if count == 1 else "ticks"
    return [
        _warning(reason, f"{count} {ticks} {field}; the last was due {new['lastAt']}: {new['lastReason']}")
    ]


def _turned(before: Mapping[str, Any], after: Mapping[str, Any], kind: Condition, to: str) -> bool:
    old, new = before.get(kind), after.get(kind)
    return new is not None and new.status == to and (old is None or old.status != to)


def _warning(reason: str, message: str) -> Event:
    return Event(reason=reason, message=message, type=EventType.WARNING)
