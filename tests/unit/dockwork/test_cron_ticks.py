"""Instants at clock changes: the table of the specification, and properties over years and zones."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise

import pytest
from cronsim import CronSim
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from dockwork.core.cron import (
    Dst,
    Gap,
    NeverFires,
    Overlap,
    every,
    load_zone,
    next_tick,
    parse_schedule,
    require_firing,
    ticks,
    tzdata_version,
    zone_names,
)

NEW_YORK, LONDON = "America/New_York", "Europe/London"
LORD_HOWE, SANTIAGO = "Australia/Lord_Howe", "America/Santiago"
CASABLANCA, KOLKATA = "Africa/Casablanca", "Asia/Kolkata"


def instant(text: str) -> datetime:
    """``03-08T07:00`` of 2026, or with its own year, in UTC."""
    return datetime.fromisoformat(text if text.count("-") == 2 else f"2026-{text}").replace(tzinfo=UTC)


def due(zone: str, schedule: str, after: str, until: str, dst: Dst | None = None) -> list[datetime]:
    return list(
        ticks(parse_schedule(schedule), load_zone(zone), dst or Dst(), instant(after), instant(until))
    )


PLAIN, SKIP, LAST, BOTH = Dst(), Dst(gap=Gap.SKIP), Dst(overlap=Overlap.LAST), Dst(overlap=Overlap.BOTH)

# zone, schedule, after, until, rules, instants: after is outside the window, until inside.
TABLE = [
    (NEW_YORK, "30 2 * * *", "03-08T05:00", "03-09T07:00", PLAIN, "03-08T07:00 03-09T06:30"),
    (NEW_YORK, "30 2 * * *", "03-08T05:00", "03-09T07:00", SKIP, "03-09T06:30"),
    (NEW_YORK, "*/30 2 * * *", "03-08T05:00", "03-09T07:00", PLAIN, "03-08T07:00 03-09T06:00 03-09T06:30"),
    (NEW_YORK, "0 2,3 * * *", "03-08T05:00", "03-09T07:00", PLAIN, "03-08T07:00 03-09T06:00 03-09T07:00"),
    (NEW_YORK, "0 */2 * * *", "03-08T04:59", "03-08T10:00", PLAIN, "03-08T05:00 03-08T08:00 03-08T10:00"),
    (NEW_YORK, "30 1 * * *", "11-01T04:00", "11-02T07:00", PLAIN, "11-01T05:30 11-02T06:30"),
    (NEW_YORK, "30 1 * * *", "11-01T04:00", "11-02T07:00", LAST, "11-01T06:30 11-02T06:30"),
    (NEW_YORK, "30 1 * * *", "11-01T04:00", "11-02T07:00", BOTH, "11-01T05:30 11-01T06:30 11-02T06:30"),
    (NEW_YORK, "*/30 1 * * *", "11-01T04:00", "11-01T12:00", PLAIN, "11-01T05:00 11-01T05:30"),
    (NEW_YORK, "*/30 * * * *", "11-01T04:30", "11-01T06:00", PLAIN, "11-01T05:00 11-01T05:30 11-01T06:00"),
    (NEW_YORK, "*/30 * * * *", "11-01T06:00", "11-01T07:00", PLAIN, "11-01T06:30 11-01T07:00"),
    (NEW_YORK, "0 0-23 * * *", "11-01T03:59", "11-01T07:00", PLAIN, "11-01T04:00 11-01T05:00 11-01T07:00"),
    (LONDON, "30 1 * * *", "03-29T00:00", "03-30T01:00", PLAIN, "03-29T01:00 03-30T00:30"),
    (LONDON, "30 1 * * *", "10-25T00:00", "10-26T02:00", PLAIN, "10-25T00:30 10-26T01:30"),
    (LORD_HOWE, "15 2 * * *", "10-03T15:00", "10-04T16:00", PLAIN, "10-03T15:30 10-04T15:15"),
    (LORD_HOWE, "45 1 * * *", "04-04T14:00", "04-05T16:00", PLAIN, "04-04T14:45 04-05T15:15"),
    (LORD_HOWE, "45 1 * * *", "04-04T14:00", "04-05T16:00", LAST, "04-04T15:15 04-05T15:15"),
    (SANTIAGO, "0 0 * * *", "09-05T03:00", "09-07T04:00", PLAIN, "09-05T04:00 09-06T04:00 09-07T03:00"),
    (SANTIAGO, "30 23 * * *", "04-05T00:00", "04-06T04:00", PLAIN, "04-05T02:30 04-06T03:30"),
    (CASABLANCA, "30 2 * * *", "02-14T00:00", "02-16T03:00", PLAIN, "02-14T01:30 02-15T01:30 02-16T02:30"),
    (CASABLANCA, "30 2 * * *", "03-21T00:00", "03-23T02:00", PLAIN, "03-21T02:30 03-22T02:00 03-23T01:30"),
    (KOLKATA, "30 2 * * *", "03-07T20:00", "03-08T22:00", PLAIN, "03-07T21:00 03-08T21:00"),
    ("Etc/UTC", "0 0 29 2 *", "01-01T00:00", "2029-01-01T00:00", PLAIN, "2028-02-29T00:00"),
    ("Etc/UTC", "0 0 13 * 5", "02-01T00:00", "02-13T00:00", PLAIN, "02-06T00:00 02-13T00:00"),
    ("Etc/UTC", "0 0 13 * 5", "02-13T00:00", "02-28T00:00", PLAIN, "02-20T00:00 02-27T00:00"),
]  # fmt: skip


@pytest.mark.covers("OP-242", "OP-241", "FM-45")
@pytest.mark.parametrize(("zone", "schedule", "after", "until", "dst", "expected"), TABLE)
def test_the_table_of_clock_changes_holds(
    zone: str, schedule: str, after: str, until: str, dst: Dst, expected: str
) -> None:
    assert due(zone, schedule, after, until, dst) == [instant(text) for text in expected.split()]


@pytest.mark.covers("OP-242")
def test_the_shipped_zone_data_is_the_release_of_the_table_or_later() -> None:
    assert tzdata_version() >= "2026f"


@pytest.mark.covers("OP-241")
def test_a_day_that_a_zone_leaves_out_merges_with_the_next_midnight() -> None:
    # Samoa had no 30 December 2011: it went from the 29th to the 31st.
    found = due("Pacific/Apia", "0 0 * * *", "2011-12-28T12:00", "2012-01-01T09:00")

    assert found == [instant("2011-12-29T10:00"), instant("2011-12-30T10:00"), instant("2011-12-31T10:00")]


@pytest.mark.covers("OP-241")
def test_the_day_is_that_of_the_nominal_local_time() -> None:
    # 00:00 on Sunday 6 September does not exist in Santiago; 01:00 of that Sunday is the tick of Sunday.
    assert due(SANTIAGO, "0 0 * * 0", "09-05T00:00", "09-06T12:00") == [instant("09-06T04:00")]
    assert due(SANTIAGO, "0 0 * * 6", "09-05T00:00", "09-06T12:00") == [instant("09-05T04:00")]


@pytest.mark.covers("OP-240")
def test_day_of_month_and_day_of_week_are_either_or_when_both_are_restricted() -> None:
    both = due("Etc/UTC", "0 0 1 * mon", "06-01T00:00", "06-15T00:00")
    whole_list = due("Etc/UTC", "0 0 1-31 * mon", "06-01T00:00", "06-04T00:00")
    starred = due("Etc/UTC", "0 0 */2 * mon", "06-01T00:00", "06-30T00:00")

    assert both == [instant("06-08T00:00"), instant("06-15T00:00")]
    assert whole_list == [instant("06-02T00:00"), instant("06-03T00:00"), instant("06-04T00:00")]
    assert starred == [instant("06-15T00:00"), instant("06-29T00:00")]


@pytest.mark.covers("OP-240")
def test_an_interval_is_due_at_whole_multiples_since_the_epoch() -> None:
    quarter, odd = parse_schedule("@every 15m"), every(timedelta(seconds=7))
    utc = load_zone("Etc/UTC")

    assert list(ticks(quarter, utc, Dst(), instant("05-01T10:00"), instant("05-01T10:30"))) == [
        instant("05-01T10:15"),
        instant("05-01T10:30"),
    ]
    first = next_tick(odd, utc, Dst(), instant("05-01T10:00"))
    assert first is not None
    assert first.timestamp() % 7 == 0


@pytest.mark.covers("OP-052")
@pytest.mark.parametrize("schedule", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "30 2 8-14 3 */7"])
def test_a_schedule_that_never_fires_is_refused(schedule: str) -> None:
    # The last one: the second Sunday of March at 02:30 is always in New York's gap, and skipped.
    with pytest.raises(NeverFires, match=r"expected a time that comes again, got"):
        require_firing(parse_schedule(schedule), load_zone(NEW_YORK), SKIP, instant("11-30T00:00"))


@pytest.mark.covers("OP-052")
@pytest.mark.parametrize("schedule", ["0 0 29 2 *", "30 2 8-14 3 */7", "0 0 29 2 */7"])
def test_a_rare_schedule_is_not_refused(schedule: str) -> None:
    require_firing(parse_schedule(schedule), load_zone(NEW_YORK), Dst(), instant("11-30T00:00"))


# --- properties --------------------------------------------------------------------------------------------


def fields(low: int, high: int, *, star: bool = True) -> st.SearchStrategy[str]:
    number = st.integers(low, high).map(str)
    spans = (
        st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted).map(lambda p: f"{p[0]}-{p[1]}")
    )
    lists = st.lists(number, min_size=2, max_size=4).map(",".join)
    steps = st.integers(1, high - low).map(lambda n: f"*/{n}")
    return st.one_of(number, spans, lists, *([st.just("*"), steps] if star else []))


def schedules() -> st.SearchStrategy[str]:
    stars = st.just("*")
    return st.tuples(
        fields(0, 59), fields(0, 23), st.one_of(stars, fields(1, 31)), st.one_of(stars, fields(1, 12)),
        st.one_of(stars, fields(0, 6)),
    ).map(" ".join)  # fmt: skip


def instants() -> st.SearchStrategy[datetime]:
    return st.datetimes(datetime(2001, 1, 1), datetime(2036, 12, 31), timezones=st.just(UTC))


rules = st.builds(Dst, gap=st.sampled_from(Gap), overlap=st.sampled_from(Overlap))
zones = st.sampled_from(sorted(zone_names()))


@pytest.mark.covers("OP-243")
@settings(deadline=None)
@given(schedules(), zones, rules, instants())
def test_ticks_strictly_increase_and_come_after(schedule: str, zone: str, dst: Dst, after: datetime) -> None:
    found = list(islice(ticks(parse_schedule(schedule), load_zone(zone), dst, after), 40))

    assert all(earlier < later for earlier, later in pairwise([after, *found]))


@pytest.mark.covers("OP-243")
@settings(deadline=None)
@given(schedules(), zones, rules, instants(), st.integers(0, 4 * 24 * 60), st.integers(0, 4 * 24 * 60))
@example("*/7 1,2 * * *", NEW_YORK, BOTH, instant("10-31T00:00"), 1800, 600)
@example("*/20 * * * *", LORD_HOWE, Dst(), instant("04-04T00:00"), 900, 30)
def test_windows_are_half_open_and_add_up(
    schedule: str, zone: str, dst: Dst, start: datetime, first: int, second: int
) -> None:
    parsed, place = parse_schedule(schedule), load_zone(zone)
    middle, end = start + timedelta(minutes=first), start + timedelta(minutes=first + second)

    whole = list(ticks(parsed, place, dst, start, end))

    assert whole == [*ticks(parsed, place, dst, start, middle), *ticks(parsed, place, dst, middle, end)]


@pytest.mark.covers("OP-243")
@settings(deadline=None)
@given(schedules(), zones, rules, instants())
@example("30 1 * * *", NEW_YORK, LAST, instant("10-31T00:00"))
def test_a_restart_after_any_tick_changes_nothing(
    schedule: str, zone: str, dst: Dst, after: datetime
) -> None:
    parsed, place = parse_schedule(schedule), load_zone(zone)
    without = list(islice(ticks(parsed, place, dst, after), 12))

    restarted, last = [], after
    for _ in without:
        found = next_tick(parsed, place, dst, last)
        assert found is not None
        restarted.append(found)
        last = found

    assert restarted == without


@pytest.mark.covers("OP-243")
@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 23), st.integers(0, 59), zones, st.sampled_from([Overlap.FIRST, Overlap.LAST]), st.data()
)
@example(0, 0, SANTIAGO, Overlap.FIRST, None)
def test_a_daily_wall_schedule_has_one_tick_per_local_day(
    hour: int, minute: int, zone: str, overlap: Overlap, data: st.DataObject | None
) -> None:
    year = 2026 if data is None else data.draw(st.integers(2001, 2036))
    assume(year != 2011 or zone not in {"Pacific/Apia", "Pacific/Fakaofo"})  # they left out a whole day
    place = load_zone(zone)
    start = datetime(year, 1, 1, tzinfo=place).astimezone(UTC) - timedelta(seconds=1)
    end = datetime(year + 1, 1, 1, tzinfo=place).astimezone(UTC) - timedelta(seconds=1)

    found = ticks(parse_schedule(f"{minute} {hour} * * *"), place, Dst(overlap=overlap), start, end)

    days = [tick.astimezone(place).date() for tick in found]
    assert days == [date(year, 1, 1) + timedelta(days=n) for n in range(len(days))]
    assert len(days) == (date(year + 1, 1, 1) - date(year, 1, 1)).days


@pytest.mark.covers("OP-243")
@settings(deadline=None, max_examples=25)
@given(zones, rules, instants())
@example(LORD_HOWE, Dst(), instant("04-04T00:00"))
@example(SANTIAGO, SKIP, instant("09-05T20:00"))
def test_an_elapsed_schedule_of_every_minute_has_every_minute(zone: str, dst: Dst, after: datetime) -> None:
    start = after.replace(second=0, microsecond=0)

    found = list(islice(ticks(parse_schedule("* * * * *"), load_zone(zone), dst, start), 2000))

    assert found == [start + timedelta(minutes=n) for n in range(1, 2001)]


@pytest.mark.covers("OP-243")
@settings(deadline=None)
@given(schedules(), instants())
def test_where_no_clock_changes_an_independent_reading_of_the_fields_agrees(
    schedule: str, after: datetime
) -> None:
    start = after.replace(microsecond=0)
    theirs = list(islice(CronSim(schedule, start), 12))

    ours = list(islice(ticks(parse_schedule(schedule), load_zone("Etc/UTC"), Dst(), start), 12))

    assert ours[: len(theirs)] == theirs
