"""Schedules: cron fields, time zones, and the instants at which a schedule is due.

croniter finds the local wall times that match the five fields. Which instants those are, when a zone's clock
jumps, is decided here (`ticks`), because croniter on aware times fires twice at an autumn overlap.
Everything is a function of its arguments, so the operator, the workers and the command line agree.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from heapq import heappop, heappush
from importlib import import_module
from importlib.resources import files
from itertools import chain, islice
from zoneinfo import ZoneInfo

from croniter import croniter
from croniter.croniter import CroniterBadDateError

from dockwork.errors import InvalidValue, require

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_SCHEDULE = 128
PLAN_COUNT, PLAN_SPAN, PLAN_MOST, PLAN_PAST = 64, timedelta(hours=48), 2000, 500
EVERY_MIN = timedelta(seconds=1)
EVERY_MAX = timedelta(hours=8760)
#: 29 February on a given weekday comes back after 40 years at most.
LONGEST_PAUSE = timedelta(days=50 * 366)

# --- refusals ----------------------------------------------------------------------------------------------


class InvalidSchedule(InvalidValue):
    """A schedule cannot be read. Says which field, at which character, and what was expected there.

    part         minute, hour, day of month, month, day of week; or schedule, for the whole
    position     1-based character in the text
    """

    def __init__(self, part: str, position: int, *, expected: str, got: str) -> None:
        self.part = part
        self.position = position
        where = part if part == "schedule" else f"schedule: {part}"
        super().__init__(f"{where}, character {position}", expected=expected, got=got)


class NeverFires(InvalidValue):
    """A schedule that matches no time to come."""


class UnknownZone(InvalidValue):
    """A name that the shipped IANA time zone data does not have."""


# --- values ------------------------------------------------------------------------------------------------


class Gap(StrEnum):
    """What a local time becomes that the spring change leaves out."""

    RUN_AFTER = "RunAfter"
    SKIP = "Skip"


class Overlap(StrEnum):
    """At which of its two instants a local time is due that the autumn change repeats."""

    FIRST = "First"
    LAST = "Last"
    BOTH = "Both"


@dataclass(frozen=True, kw_only=True, slots=True)
class Dst:
    """How a *wall* schedule meets a clock change. *Elapsed* schedules do not need it; see `Schedule`."""

    gap: Gap = Gap.RUN_AFTER
    overlap: Overlap = Overlap.FIRST


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """A rule for instants: five cron fields, or whole multiples of `every` since the Unix epoch.

    text          as it was given
    expression    the five fields with every name, step and `H` resolved; "" with `every`
    wall          no `*` in the hour field: due at local times, each once. Otherwise *elapsed*: due at every
                  instant whose local reading matches, so that an hourly job runs every hour
    either_day    day of month and day of week are both restricted: one of them is enough (Vixie cron)
    """

    text: str
    expression: str = ""
    wall: bool = True
    either_day: bool = False
    every: timedelta | None = None

    def __post_init__(self) -> None:
        require(
            bool(self.expression) != (self.every is not None), "schedule",
            expected="either cron fields or an interval", got=self.text,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Calendar:
    """All that decides when a schedule is due: the rule, the zone, and what happens at clock changes."""

    schedule: Schedule
    zone: str = "Etc/UTC"
    dst: Dst = Dst()

    def ticks(self, after: datetime, until: datetime | None = None) -> Iterator[datetime]:
        """The instants in (after, until]; see `ticks`."""
        return ticks(self.schedule, load_zone(self.zone), self.dst, after, until)

    @property
    def hash(self) -> str:
        """Changes when the instants may change, and with nothing else."""
        return hashlib.sha256(self.to_json(text=False).encode()).hexdigest()[:16]

    def to_json(self, *, text: bool = True) -> str:
        """For a worker that goes on planning without the operator; `from_json` reads it."""
        schedule = self.schedule
        said = {
            "expression": schedule.expression,
            "wall": schedule.wall,
            "either_day": schedule.either_day,
            "every_ms": schedule.every and schedule.every // timedelta(milliseconds=1),
            "zone": self.zone,
            "gap": self.dst.gap,
            "overlap": self.dst.overlap,
        }
        return json.dumps(said | ({"text": schedule.text} if text else {}), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Calendar:
        """Raises ValueError, KeyError or TypeError for what `to_json` did not write."""
        said = json.loads(text)
        every_ms = said["every_ms"]
        return cls(
            schedule=Schedule(
                text=said["text"],
                expression=said["expression"],
                wall=said["wall"],
                either_day=said["either_day"],
                every=None if every_ms is None else timedelta(milliseconds=every_ms),
            ),
            zone=said["zone"],
            dst=Dst(gap=Gap(said["gap"]), overlap=Overlap(said["overlap"])),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The instants to plan, rising, and how many older ones no policy could run any more."""

    instants: tuple[datetime, ...]
    left_out: int = 0


# --- reading a schedule ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: Mapping[str, int]
    hash_high: int

    @property
    def range(self) -> str:
        return f"{self.low}-{self.high}"


_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6,
    "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
}  # fmt: skip
_DAYS = {"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6}

# `H` stays within 1-28 for the day of month, so that it is due in every month.
_FIELDS = (
    _Field("minute", 0, 59, {}, 59),
    _Field("hour", 0, 23, {}, 23),
    _Field("day of month", 1, 31, {}, 28),
    _Field("month", 1, 12, _MONTHS, 12),
    _Field("day of week", 0, 7, _DAYS, 6),
)

_NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_NAMES = ", ".join(_NAMED) + " or @every <duration>"

_DURATION = re.compile(r"([0-9]{1,6}(?:ms|s|m|h))+", re.ASCII)
_DURATION_PART = re.compile(r"([0-9]+)(ms|s|m|h)", re.ASCII)
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}
_HASHED = re.compile(r"H(?:\(([0-9]{1,2})-([0-9]{1,2})\))?(?:/([0-9]{1,2}))?", re.ASCII)
_PLAIN = re.compile(r"(\*|[0-9]{1,2}|[a-z]{3})(?:-([0-9]{1,2}|[a-z]{3}))?(?:/([0-9]{1,2}))?", re.ASCII)
_ZONE_PREFIX = re.compile(r"(CRON_)?TZ=", re.IGNORECASE)


def parse_schedule(text: str, *, seed: str = "") -> Schedule:
    """The schedule that `text` means.

    seed      what `H` is a hash of, `<namespace>/<name>`: the same object always has the same times
    Raises    InvalidSchedule; whether it ever fires is another question (`require_firing`)
    """
    if len(text) > LONGEST_SCHEDULE:
        raise InvalidSchedule(
            "schedule", LONGEST_SCHEDULE + 1, expected=f"at most {LONGEST_SCHEDULE} characters", got=text[:32]
        )
    if _ZONE_PREFIX.match(text.strip()):
        raise InvalidSchedule(
            "schedule", 1, expected="no zone here; it goes to timeZone (in code: tz)", got=text
        )
    if text.startswith("@"):
        return _parse_named(text)
    return _parse_fields(text, text, seed)


def every(interval: timedelta, text: str = "") -> Schedule:
    """Due at whole multiples of `interval` since the Unix epoch; 1 s to 8760 h, whole milliseconds."""
    if not EVERY_MIN <= interval <= EVERY_MAX:
        raise InvalidSchedule("schedule", 1, expected="an interval of 1s to 8760h", got=text or str(interval))
    return Schedule(text=text or f"@every {interval.total_seconds():g}s", every=interval)


def _parse_named(text: str) -> Schedule:
    name, _, rest = text.partition(" ")
    if name == "@every":
        return every(_duration(rest.strip(), len(name) + 2), text)
    if text not in _NAMED:
        raise InvalidSchedule("schedule", 1, expected=_NAMES, got=text)
    return _parse_fields(_NAMED[text], text, "")


def _duration(text: str, position: int) -> timedelta:
    if not _DURATION.fullmatch(text):
        raise InvalidSchedule("schedule", position, expected="a duration such as 90s, 15m or 1h30m", got=text)
    return sum((int(n) * _UNITS[unit] for n, unit in _DURATION_PART.findall(text)), timedelta())


def _parse_fields(expression: str, text: str, seed: str) -> Schedule:
    parts = [(match.group(), match.start() + 1) for match in re.finditer(r"\S+", expression, re.ASCII)]
    if len(parts) != len(_FIELDS):
        position = parts[len(_FIELDS)][1] if len(parts) > len(_FIELDS) else len(expression) + 1
        raise InvalidSchedule(
            "schedule", position, expected="five fields (minute hour day month weekday), @name or @every",
            got=f"{len(parts)} fields",
        )  # fmt: skip
    values = [
        _parse_field(field, part, position, seed)
        for field, (part, position) in zip(_FIELDS, parts, strict=True)
    ]
    values[4] = sorted({day % 7 for day in values[4]})
    # Vixie cron: a day field with a star does not restrict, so that the other one decides alone.
    either_day = "*" not in parts[2][0] and "*" not in parts[4][0]
    if either_day and (len(values[2]) == 31 or len(values[4]) == 7):
        # One of two is enough, and one of them is every day. croniter would read a full list as a star.
        values[2], values[4], either_day = list(range(1, 32)), list(range(7)), False
    return Schedule(
        text=text,
        expression=" ".join(_written(n, found) for n, found in enumerate(values)),
        wall="*" not in parts[1][0],
        either_day=either_day,
    )


def _written(n: int, values: list[int]) -> str:
    whole = len(values) == (60, 24, 31, 12, 7)[n]
    return "*" if whole else ",".join(str(value) for value in values)


def _parse_field(field: _Field, text: str, position: int, seed: str) -> list[int]:
    values: set[int] = set()
    for item in text.split(","):
        values.update(_parse_item(field, item, position, seed))
        position += len(item) + 1
    return sorted(values)


def _parse_item(field: _Field, item: str, position: int, seed: str) -> range:
    def refused(expected: str) -> InvalidSchedule:
        return InvalidSchedule(field.name, position, expected=expected, got=item)

    if hashed := _HASHED.fullmatch(item):
        low, high = (field.low if hashed[1] is None else int(hashed[1])), int(hashed[2] or field.hash_high)
        step = None if hashed[3] is None else int(hashed[3])
        if not field.low <= low <= high <= field.high:
            raise refused(f"H, or H(a-b) within {field.range}")
        if step is not None and not 1 <= step <= high - low + 1:
            raise refused(f"a step of 1-{high - low + 1}")
        spread = step or high - low + 1
        first = low + _hash(seed, field.name) % spread
        return range(first, high + 1 if step else first + 1, step or 1)

    plain = _PLAIN.fullmatch(item.lower())
    if plain is None or (plain[1] == "*" and plain[2] is not None):
        raise refused(_grammar(field))
    star = plain[1] == "*"
    first = field.low if star else _number(field, plain[1], refused)
    if plain[2] is not None:
        last = _number(field, plain[2], refused)
        if last == 0 and field.names is _DAYS and first > 0:
            last = 7  # fri-sun: Sunday ends a week as well as it begins one
        if last < first:
            raise refused(f"a range that goes up, within {field.range}")
    elif star or plain[3] is not None:
        last = 6 if field.names is _DAYS else field.high
    else:
        last = first
    step = 1 if plain[3] is None else int(plain[3])
    if not 1 <= step <= field.high - field.low + 1:
        raise refused(f"a step of 1-{field.high - field.low + 1}")
    return range(first, max(first, last) + 1, step)


def _grammar(field: _Field) -> str:
    names = f", {next(iter(field.names))}" if field.names else ""
    return f"{field.range}{names}, a-b, a list, */n, * or H"


def _number(field: _Field, text: str, refused: object) -> int:
    assert callable(refused)
    value = field.names.get(text) if text.isalpha() else int(text)
    if value is None or not field.low <= value <= field.high:
        raise refused(_grammar(field))
    return value


def _hash(seed: str, field: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}\0{field}".encode()).digest()[:8], "big")


# --- zones -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """Every name that `timeZone` may have: those of the shipped data."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split())


@lru_cache(maxsize=1)
def tzdata_version() -> str:
    """The IANA release of the shipped time zone data, such as ``2026f``; later ones compare greater."""
    return str(import_module("tzdata").IANA_VERSION)


@lru_cache(maxsize=256)
def load_zone(name: str, field: str = "timeZone") -> ZoneInfo:
    """The IANA zone `name` from the shipped data, never the machine's: every process has the same rules.

    Raises    UnknownZone naming `field`
    """
    if name not in zone_names():
        raise UnknownZone(field, expected="an IANA name such as Europe/Zurich or Etc/UTC", got=name)
    data = files("tzdata").joinpath("zoneinfo", *name.split("/"))
    with data.open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


# --- instants ----------------------------------------------------------------------------------------------


def ticks(
    schedule: Schedule, zone: ZoneInfo, dst: Dst, after: datetime, until: datetime | None = None
) -> Iterator[datetime]:
    """The instants in (after, until] at which `schedule` is due, in UTC, rising, each once.

    Without `until` it goes on for as long as the schedule matches something within 50 years.

    The rules, for local times when the zone's clock jumps:
    - *wall*: a local time that does not exist is due at the first instant after the gap (`Gap.SKIP`: not at
      all); one that comes twice, at its first instant, its last, or both (`Overlap`);
    - *elapsed*: every instant whose local reading matches; nothing is added, nothing dropped;
    - equal instants are one tick, and the day is that of the nominal local time.
    """
    require(after.tzinfo is not None, "after", expected="an aware datetime", got=after)
    require(until is None or until.tzinfo is not None, "until", expected="an aware datetime", got=until)
    after = after.astimezone(UTC)
    found = _multiples(schedule.every, after) if schedule.every else _matches(schedule, zone, dst, after)
    for instant in found:
        if until is not None and instant > until:
            return
        yield instant


def next_tick(schedule: Schedule, zone: ZoneInfo, dst: Dst, after: datetime) -> datetime | None:
    """The first instant later than `after`, or None if there is none."""
    return next(ticks(schedule, zone, dst, after), None)


def require_firing(schedule: Schedule, zone: ZoneInfo, dst: Dst, after: datetime) -> None:
    """Raise `NeverFires` unless two ticks lie ahead: ``0 0 30 2 *`` is well-formed and means nothing."""
    if len(list(islice(ticks(schedule, zone, dst, after), 2))) < 2:
        raise NeverFires("schedule", expected="a time that comes again", got=schedule.text)


def plan_ahead(calendar: Calendar, after: datetime, now: datetime, *, known: int = 0) -> Planned:
    """What a plan needs that ends at `after` and has `known` instants still to come.

    The plan reaches for 64 instants or 48 hours, whichever is more, and holds 2,000 at most. An interval needs
    no plan. Of instants that are past already (nobody was there) the newest 500 are kept: no policy runs more.
    """
    if calendar.schedule.every:
        return Planned(instants=())
    past: deque[datetime] = deque(maxlen=PLAN_PAST)
    coming: list[datetime] = []
    left_out = 0
    for tick in calendar.ticks(after):
        if tick <= now:
            left_out += len(past) == PLAN_PAST
            past.append(tick)
            continue
        count = known + len(coming)
        if (count >= PLAN_COUNT and tick > now + PLAN_SPAN) or count + len(past) >= PLAN_MOST:
            break
        coming.append(tick)
    return Planned(instants=(*past, *coming), left_out=left_out)


def _multiples(interval: timedelta, after: datetime) -> Iterator[datetime]:
    instant = EPOCH + ((after - EPOCH) // interval + 1) * interval
    while True:
        yield instant
        instant += interval


_NOTHING_MORE: tuple[datetime, tuple[datetime, ...]] = (datetime.max.replace(tzinfo=UTC), ())


def _matches(schedule: Schedule, zone: ZoneInfo, dst: Dst, after: datetime) -> Iterator[datetime]:
    """Maps wall times to instants and puts them into order: at an overlap 01:00 comes again after 01:59.

    No later wall time is due before the local clock first reaches this one (`reached`), so what was held back
    and is not later than that may go.
    """
    held: list[datetime] = []
    last = after
    walls = _walls(schedule, _earliest_wall(zone, after))
    found = (_instants(wall, zone, dst, schedule.wall) for wall in walls)
    for reached, due in chain(found, [_NOTHING_MORE]):
        while held and held[0] <= reached:
            instant = heappop(held)
            if instant > last:
                last = instant
                yield instant
        if reached - last > LONGEST_PAUSE:
            return
        for instant in due:
            heappush(held, instant)


def _walls(schedule: Schedule, start: datetime) -> Iterator[datetime]:
    """Naive local times from `start` on, `start` included, that the fields match."""
    found = croniter(
        schedule.expression, start - timedelta(seconds=1), ret_type=datetime, day_or=schedule.either_day
    )
    while True:
        try:
            wall: datetime = found.get_next()
        except (CroniterBadDateError, OverflowError):
            return
        yield wall


def _earliest_wall(zone: ZoneInfo, after: datetime) -> datetime:
    """No wall time before this one has an instant later than `after`.

    The local clock reads less than now only where it is set back soon, by a day at most (date line).
    """
    lowest = min(_offset(zone, after + timedelta(hours=hours)) for hours in range(27))
    return (after + lowest).replace(tzinfo=None, second=0, microsecond=0)


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    offset = instant.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _instants(
    wall: datetime, zone: ZoneInfo, dst: Dst, is_wall: bool
) -> tuple[datetime, tuple[datetime, ...]]:
    """When the local clock first reads `wall` or more, and the instants at which `wall` is due."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    if first == second:
        return first, (first,)
    if first > second:  # a gap: PEP 495 reads `wall` by the old offset, then by the new one
        change = _change_between(zone, second, first)
        return change, ((change,) if is_wall and dst.gap is Gap.RUN_AFTER else ())
    if not is_wall or dst.overlap is Overlap.BOTH:
        return first, (first, second)
    return first, ((first,) if dst.overlap is Overlap.FIRST else (second,))


def _change_between(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """The instant in (before, after] from which the new offset holds; to the second."""
    old = _offset(zone, before)
    low, high = 0, int((after - before).total_seconds())
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, before + timedelta(seconds=middle)) == old:
            low = middle
        else:
            high = middle
    return before + timedelta(seconds=high)
