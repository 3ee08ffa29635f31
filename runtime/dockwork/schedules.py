"""Schedules that code declares: jobs at cron times or at intervals, one per instant however many processes say so.

A schedule lives in the queue's ledger, beside those of `CronJob` resources and under the same rules. Whoever claims
next decides what is due, so no process has to be the one that ticks. It stays until it is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from dockwork import clock
from dockwork.core.durations import Span, to_ms, to_span
from dockwork.core.keys import QueueName
from dockwork.errors import InvalidValue, require
from dockwork.store.protocol import CronEntry, CronState, NewJob, Store
from dockwork.twin import AppCalls, Bound, Twin

if TYPE_CHECKING:
    from dockwork.core.cron import Calendar, Dst
    from dockwork.registry import Item

_NAME = re.compile(r"[A-Za-z0-9._-]{1,45}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ScheduleOptions(TypedDict, total=False):
    """How a schedule meets clock changes, outages and runs that are not over yet.

    tz                    IANA name of the zone that cron fields are read in; UTC if not given
    dst                   `Dst`: what becomes of local times that do not exist or come twice
    missed_run_policy     of instants that nobody decided in time: ``Latest`` runs the last one, ``All``, ``Skip``
    max_catch_up          with ``All``: runs at most
    starting_deadline     an instant that is later than this is missed; at least 10 s
    concurrency_policy    ``Forbid``: no tick while a job of this schedule has not ended
    max_pending           no tick while so many of its jobs wait
    """

    tz: str
    dst: Dst
    missed_run_policy: Literal["Skip", "Latest", "All"]
    max_catch_up: int
    starting_deadline: Span
    concurrency_policy: Literal["Allow", "Forbid"]
    max_pending: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """A schedule as code says it, checked. `uid` names it in its queue."""

    uid: str
    queue: str
    calendar: Calendar
    item: Callable[[], Item[Any]]
    options: Mapping[str, Any]

    def entry(self, *, suspended: bool) -> CronEntry:
        """What the ledger keeps; arguments are sealed anew each time."""
        from dockwork.core.cron import tzdata_version

        every = self.calendar.schedule.every
        deadline = self.options.get("starting_deadline")
        return CronEntry(
            uid=self.uid,
            schedule_hash=self.calendar.hash,
            job=_job(self.item()),
            missed_run_policy=self.options.get("missed_run_policy", "Latest"),
            max_catch_up=self.options.get("max_catch_up", 10),
            starting_deadline_ms=None if deadline is None else to_ms(deadline),
            concurrency_policy=self.options.get("concurrency_policy", "Allow"),
            max_pending=self.options.get("max_pending"),
            suspended=suspended,
            lasting=True,
            every_ms=None if every is None else every // timedelta(milliseconds=1),
            tzdata=tzdata_version(),
            calendar=self.calendar.to_json(),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduleInfo:
    """A schedule as its queue's ledger has it.

    next_at      None while it is paused, and for one that does not fire any more
    runs, missed, skipped    instants that became a job, that nobody decided in time, that a policy left out
    pending      of its jobs, those that wait
    """

    name: str
    queue: str
    schedule: str
    tz: str
    paused: bool
    next_at: datetime | None
    runs: int
    missed: int
    skipped: int
    pending: int
    last: Mapping[str, str] = field(default_factory=dict)


def declare(
    name: str,
    queue: str,
    item: Callable[[], Item[Any]],
    *,
    now: datetime,
    every: Span | None = None,
    cron: str | None = None,
    options: ScheduleOptions,
) -> Declared:
    """Check a schedule. Raises InvalidValue (InvalidSchedule, NeverFires, UnknownZone) naming what is wrong."""
    from dockwork.core import cron as calendars

    fits = bool(_NAME.fullmatch(name))
    require(fits, "schedule name", expected="1 to 45 characters of A-Z a-z 0-9 . _ -", got=name)
    unknown = set(options) - set(ScheduleOptions.__annotations__)
    expected = f"one of {', '.join(ScheduleOptions.__annotations__)}"
    require(not unknown, "schedule", expected=expected, got=", ".join(sorted(unknown)))
    if (every is None) == (cron is None):
        got = "neither" if every is None else "both"
        raise InvalidValue("schedule", expected="either every or cron", got=got)
    if cron is not None:
        rule = calendars.parse_schedule(cron, seed=f"{queue}/{name}")
    else:
        assert every is not None
        rule = calendars.every(to_span(every, "every", least=calendars.EVERY_MIN, most=calendars.EVERY_MAX))
    dst = options.get("dst") or calendars.Dst()
    calendar = calendars.Calendar(schedule=rule, zone=options.get("tz", "Etc/UTC"), dst=dst)
    calendars.require_firing(rule, calendars.load_zone(calendar.zone, "tz"), dst, now)
    return Declared(uid=name, queue=queue, calendar=calendar, item=item, options=_checked(options))


def _checked(options: ScheduleOptions) -> dict[str, Any]:
    checked: dict[str, Any] = {name: value for name, value in options.items() if name not in ("tz", "dst")}
    for name, words in (
        ("missed_run_policy", ("Skip", "Latest", "All")),
        ("concurrency_policy", ("Allow", "Forbid")),
    ):
        word = checked.get(name, words[0])
        require(word in words, name, expected=f"one of {', '.join(words)}", got=word)
    for name, most in (("max_catch_up", 100), ("max_pending", 1_000_000)):
        count = checked.get(name, 1)
        fits = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= most
        require(fits, name, expected=f"1 to {most}", got=count)
    if "starting_deadline" in checked:
        least, most_span = timedelta(seconds=10), timedelta(days=365)
        checked["starting_deadline"] = to_span(
            checked["starting_deadline"], "starting_deadline", least=least, most=most_span
        )
    return checked


def _job(item: Item[Any]) -> NewJob:
    """The template of a tick's job: its id and its times are the ledger's."""
    job = item.new_job(lambda: "")
    said = item.options
    timed = said.id is not None or said.delay is not None or said.at is not None
    plain = not timed and job.keys is None and job.repeat is None
    expected = (
        "none of id, delay, at, unique, idempotency_key, repeat: a tick has an id and a time of its own"
    )
    require(plain, "schedule", expected=expected, got="one of them")
    return replace(job, id="")


async def put_schedule(store: Store, namespace: str, declared: Declared) -> None:
    """Write it into its queue's ledger. A new one, and one with other times, begins now; a paused one stays paused."""
    from dockwork.core.cron import plan_ahead, tzdata_version

    queue = QueueName(namespace, declared.queue)
    found = [state for state in await store.cron_states(queue, [declared.uid]) if state.uid == declared.uid]
    state = found[0] if found else None
    now_ms = await store.ping() if state is None else state.now_ms
    reset = False
    if state is None or state.schedule_hash != declared.calendar.hash:
        from_ms, known = now_ms, 0
    elif state.tzdata < tzdata_version() and state.every_ms is None:
        from_ms, known, reset = max(state.cursor_ms, min(state.last_planned_ms, now_ms)), 0, True
    else:
        from_ms, known = max(state.cursor_ms, state.last_planned_ms), state.planned
    planned = plan_ahead(declared.calendar, _instant(from_ms), _instant(now_ms), known=known)
    await store.plan(
        queue,
        declared.entry(suspended=state is not None and state.suspended),
        [_ms(instant) for instant in planned.instants],
        generation=1 if state is None else state.generation,
        reset=reset,
        from_ms=from_ms,
        left_out=planned.left_out,
    )


def info(queue: str, state: CronState) -> ScheduleInfo:
    """What the ledger says, for people."""
    from dockwork.core.cron import Calendar

    calendar = Calendar.from_json(state.calendar) if state.calendar else None
    next_ms = None if state.suspended else state.next_ms
    return ScheduleInfo(
        name=state.uid,
        queue=queue,
        schedule=calendar.schedule.text if calendar else "",
        tz=calendar.zone if calendar else "",
        paused=state.suspended,
        next_at=None if next_ms is None else _instant(next_ms),
        runs=state.runs,
        missed=state.missed,
        skipped=state.skipped,
        pending=state.pending,
        last=state.last,
    )


def _instant(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)


class AppSchedules(AppCalls):
    """The schedules of an app's queues, those of `CronJob` resources among them."""

    async def schedule(
        self,
        item: Item[Any],
        *,
        every: Span | None = None,
        cron: str | None = None,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """Store a schedule that enqueues `item` at each instant; one of the same name is replaced.

        every     seconds or a span, 1 s to 8760 h: whole multiples of it since 1970
        cron      five fields, ``@hourly`` and its like, or ``@every 15m``; `H` is a hash of queue and name
        name      in its queue; the job type's if not given
        Raises    InvalidValue naming what is wrong
        """
        made = declare(
            name or item.type,
            item.queue,
            lambda: item,
            now=clock.now(),
            every=every,
            cron=cron,
            options=options,
        )
        client = self.client
        await put_schedule(client.store, client.namespace, made)
        (state,) = await client.store.cron_states(client.name(made.queue), [made.uid])
        return info(made.queue, state)

    async def schedules(self, queue: str | None = None) -> list[ScheduleInfo]:
        """The schedules of a queue, or of all queues of the namespace."""
        client = self.client
        return [
            info(name, state)
            for name in ([queue] if queue is not None else await client.queues())
            for state in await client.store.cron_states(client.name(name))
        ]

    async def unschedule(self, name: str, *, queue: str) -> bool:
        """Remove a schedule; its jobs that wait stay. False: there was none.

        One that code still declares comes back with the next worker that starts.
        """
        return await self.client.store.unplan(self.client.name(queue), name)

    async def pause_schedule(self, name: str, *, queue: str) -> bool:
        """No ticks until it is resumed, over restarts and new declarations. False: there is none."""
        return await self.client.store.suspend(self.client.name(queue), name) == "ok"

    async def resume_schedule(self, name: str, *, queue: str) -> bool:
        """Tick again from now on; nothing is due for the past. False: there is none."""
        client = self.client
        resumed = await client.store.resume(client.name(queue), name) == "ok"
        if resumed:
            await client.store.refill(client.name(queue))
        return resumed


class _Bound(Bound, AppSchedules):
    """The schedules on one client."""


class SyncSchedules(Twin):
    """The blocking twin of `AppSchedules`: the same calls, results and errors."""

    def schedule(
        self,
        item: Item[Any],
        *,
        every: Span | None = None,
        cron: str | None = None,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:
        """See `AppSchedules.schedule`, and so on for each."""
        return self._on(_Bound, lambda app: app.schedule(item, every=every, cron=cron, name=name, **options))

    def schedules(self, queue: str | None = None) -> list[ScheduleInfo]:
        return self._on(_Bound, lambda app: app.schedules(queue))

    def unschedule(self, name: str, *, queue: str) -> bool:
        return self._on(_Bound, lambda app: app.unschedule(name, queue=queue))

    def pause_schedule(self, name: str, *, queue: str) -> bool:
        return self._on(_Bound, lambda app: app.pause_schedule(name, queue=queue))

    def resume_schedule(self, name: str, *, queue: str) -> bool:
        return self._on(_Bound, lambda app: app.resume_schedule(name, queue=queue))
