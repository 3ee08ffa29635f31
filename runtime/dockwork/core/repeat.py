"""Jobs that repeat: when one is due again after a run. Pure: now and the dice are arguments.

The rule travels in the envelope's options and the worker that ends a run computes the next time from it; how often
the job was due before stands in its record. A schedule (`JobType.schedule`, a CronJob) is another thing: it makes
a new job for each of its instants, however many processes declare it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from dockwork.core.durations import LONGEST_DELAY, Span, to_ms, to_span
from dockwork.core.retry import Backoff, BackoffKind, next_delay
from dockwork.errors import InvalidValue, require

MOST_TIMES = 1_000_000_000
SHORTEST_INTERVAL = timedelta(milliseconds=10)


class RepeatKind(StrEnum):
    EVERY = "every"
    CRON = "cron"
    BACKOFF = "backoff"
    IMMEDIATE = "immediate"


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeat:
    """A rule by which a job runs again after each run, with the same id and arguments. Build it with a class method.

    times    runs in all; None = no end but a cancel, or a handler that raises `Discard`, `Unrecoverable` or `Cancelled`

    A run that fails is tried again by the job's own retries first; when those are used up its turn is over, and the
    next one comes all the same.
    """

    kind: RepeatKind
    times: int | None = None
    interval: timedelta | None = None
    policy: Backoff | None = None
    calendar: str = ""

    def __post_init__(self) -> None:
        fits = self.times is None or (
            isinstance(self.times, int) and not isinstance(self.times, bool) and 1 <= self.times <= MOST_TIMES
        )
        require(
            fits, "repeat.times", expected=f"a whole number from 1 to {MOST_TIMES}, or None", got=self.times
        )

    @classmethod
    def every(cls, interval: Span, times: int | None = None) -> Repeat:
        """Due at each `interval` (seconds or a timedelta) from the first on; what a long run missed is left out."""
        span = to_span(interval, "repeat.every", least=SHORTEST_INTERVAL, most=LONGEST_DELAY)
        return cls(kind=RepeatKind.EVERY, times=times, interval=span)

    @classmethod
    def cron(cls, schedule: str, times: int | None = None, *, tz: str = "Etc/UTC") -> Repeat:
        """Due at the instants of five cron fields, the first run too. Raises InvalidSchedule, UnknownZone."""
        from dockwork.core.cron import Calendar, load_zone, parse_schedule

        load_zone(tz, "tz")
        return cls(
            kind=RepeatKind.CRON,
            times=times,
            calendar=Calendar(schedule=parse_schedule(schedule), zone=tz).to_json(),
        )

    @classmethod
    def backoff(cls, policy: Backoff, times: int | None = None) -> Repeat:
        """The n-th wait between two runs is what `policy` says after n failed attempts."""
        fits = isinstance(policy, Backoff) and policy.kind is not BackoffKind.CUSTOM
        require(fits, "repeat.backoff", expected="a fixed, exponential or list Backoff", got=policy)
        return cls(kind=RepeatKind.BACKOFF, times=times, policy=policy)

    @classmethod
    def immediate(cls, times: int | None = None) -> Repeat:
        """Due again at the end of each run."""
        return cls(kind=RepeatKind.IMMEDIATE, times=times)

    @property
    def most(self) -> int:
        """`times` as the store has it: 0 = no end."""
        return self.times or 0

    def to_options(self) -> dict[str, Any]:
        """As the envelope carries it; `from_options` reads it."""
        said: dict[str, Any] = {"kind": self.kind.value}
        if self.times is not None:
            said["times"] = self.times
        if self.interval is not None:
            said["interval_ms"] = to_ms(self.interval)
        if self.policy is not None:
            said["policy"] = self.policy.to_json()
        if self.calendar:
            said["calendar"] = self.calendar
        return said

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Repeat | None:
        """The rule in an envelope's options, or None. Raises InvalidValue for one that cannot be read."""
        said = options.get("repeat")
        if said is None:
            return None
        try:
            interval, policy = said.get("interval_ms"), said.get("policy")
            return cls(
                kind=RepeatKind(said["kind"]),
                times=said.get("times"),
                interval=None if interval is None else timedelta(milliseconds=interval),
                policy=None if policy is None else Backoff.from_json(policy),
                calendar=said.get("calendar", ""),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidValue(
                "repeat", expected="a rule that this version reads", got=type(error).__name__
            ) from error


def first_due_ms(repeat: Repeat, now_ms: int) -> int | None:
    """When the first run is due; None: at once. Raises NeverFires for a calendar without an instant to come."""
    if repeat.kind is not RepeatKind.CRON:
        return None
    return _next_instant_ms(repeat, now_ms)


class NextTime(NamedTuple):
    """When a job is due next: at an instant, or so long after its run was settled, by the store's clock."""

    at_ms: int = 0
    after_ms: int = 0


def next_time(repeat: Repeat, *, repeated: int, due_ms: int, now_ms: int, spread: float) -> NextTime:
    """When the job is due after a run.

    repeated    times it was due before this one
    due_ms      the time that this run was meant for: the anchor of an interval
    spread      in [0, 1), drawn by the caller, for a backoff's jitter
    """
    match repeat.kind:
        case RepeatKind.EVERY:
            assert repeat.interval is not None
            step = to_ms(repeat.interval)
            return NextTime(at_ms=due_ms + max((now_ms - due_ms) // step + 1, 1) * step)
        case RepeatKind.BACKOFF:
            assert repeat.policy is not None
            return NextTime(after_ms=to_ms(next_delay(repeat.policy, repeated + 1, spread)))
        case RepeatKind.CRON:
            return NextTime(at_ms=_next_instant_ms(repeat, now_ms))
    return NextTime()


def _next_instant_ms(repeat: Repeat, now_ms: int) -> int:
    from dockwork.core.cron import EPOCH, Calendar, NeverFires

    after = EPOCH + timedelta(milliseconds=now_ms)
    calendar = Calendar.from_json(repeat.calendar)
    for instant in calendar.ticks(after):
        return (instant - EPOCH) // timedelta(milliseconds=1)
    raise NeverFires("repeat.cron", expected="a schedule with an instant to come", got=calendar.schedule.text)
