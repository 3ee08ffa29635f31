"""What a schedule may say, and the words of each refusal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork.core.cron import (
    Calendar,
    Dst,
    Gap,
    InvalidSchedule,
    Overlap,
    UnknownZone,
    load_zone,
    parse_schedule,
    plan_ahead,
)


@pytest.mark.covers("OP-240")
@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("*/15 * * * *", "0,15,30,45 * * * *"),
        ("0 9-17/4 * * mon-fri", "0 9,13,17 * * 1,2,3,4,5"),
        ("5/20 0 1 JAN,jul *", "5,25,45 0 1 1,7 *"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * fri-sun", "0 0 * * 0,5,6"),
        ("  0   12 * *  * ", "0 12 * * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_fields_resolve_to_numbers(text: str, expression: str) -> None:
    assert parse_schedule(text).expression == expression


@pytest.mark.covers("OP-240", "OP-052")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"schedule, character 1: expected five fields .*, got '0 fields'"),
        ("* * * *", r"schedule, character 8: expected five fields .*, got '4 fields'"),
        ("* * * * * *", r"schedule, character 11: expected five fields .*, got '6 fields'"),
        ("0 0 * * * * 2026", r"schedule, character 11: expected five fields .*, got '7 fields'"),
        ("60 * * * *", r"minute, character 1: expected 0-59, .*, got '60'"),
        ("1,2,99 * * * *", r"minute, character 5: expected 0-59, .*, got '99'"),
        ("* 24 * * *", r"hour, character 3: expected 0-23, .*, got '24'"),
        ("* * 0 * *", r"day of month, character 5: expected 1-31, .*, got '0'"),
        ("* * * 13 *", r"month, character 7: expected 1-12, jan, .*, got '13'"),
        ("* * * foo *", r"month, character 7: expected 1-12, jan, .*, got 'foo'"),
        ("* * * * 8", r"day of week, character 9: expected 0-7, sun, .*, got '8'"),
        ("5-3 * * * *", r"minute, character 1: expected a range that goes up, within 0-59, got '5-3'"),
        ("*/0 * * * *", r"minute, character 1: expected a step of 1-60, got '\*/0'"),
        ("*/61 * * * *", r"minute, character 1: expected a step of 1-60, got '\*/61'"),
        ("*-5 * * * *", r"minute, character 1: expected 0-59, .*, got '\*-5'"),
        ("1,,2 * * * *", r"minute, character 3: expected 0-59, .*, got ''"),
        ("-1 * * * *", r"minute, character 1: expected 0-59, .*, got '-1'"),
        ("1.5 * * * *", r"minute, character 1: expected 0-59, .*, got '1.5'"),
        ("R * * * *", r"minute, character 1: expected 0-59, .*, got 'R'"),
        ("* * L * *", r"day of month, character 5: expected 1-31, .*, got 'L'"),
        ("* * 15W * *", r"day of month, character 5: expected 1-31, .*, got '15W'"),
        ("* * ? * *", r"day of month, character 5: expected 1-31, .*, got '\?'"),
        ("* * * * 5#2", r"day of week, character 9: expected 0-7, .*, got '5#2'"),
        ("* H(5-30) * * *", r"hour, character 3: expected H, or H\(a-b\) within 0-23, got 'H\(5-30\)'"),
        ("H/61 * * * *", r"minute, character 1: expected a step of 1-60, got 'H/61'"),
        ("@reboot", r"schedule, character 1: expected @yearly, .* or @every <duration>, got '@reboot'"),
        ("@Hourly", r"schedule, character 1: expected @yearly, .* or @every <duration>, got '@Hourly'"),
        ("@every", r"schedule, character 8: expected a duration such as 90s, 15m or 1h30m, got ''"),
        ("@every 5", r"schedule, character 8: expected a duration such as 90s, 15m or 1h30m, got '5'"),
        ("@every 1d", r"schedule, character 8: expected a duration such as 90s, 15m or 1h30m, got '1d'"),
        ("@every 100ms", r"schedule, character 1: expected an interval of 1s to 8760h, got '@every 100ms'"),
        ("@every 8761h", r"schedule, character 1: expected an interval of 1s to 8760h, got '@every 8761h'"),
        ("TZ=UTC 0 0 * * *", r"schedule, character 1: expected no zone here; it goes to timeZone"),
        ("CRON_TZ=UTC 0 0 * * *", r"schedule, character 1: expected no zone here; it goes to timeZone"),
        ("1," * 64 + "1 * * * *", r"schedule, character 129: expected at most 128 characters"),
        ("٣ * * * *", r"minute, character 1: expected 0-59, .*, got '٣'"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_field_the_character_and_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=rf"^(schedule: )?{message}") as refused:
        parse_schedule(text)

    assert str(refused.value).startswith("schedule")
    assert "schedule: schedule" not in str(refused.value)


@pytest.mark.covers("OP-240")
def test_h_is_the_same_each_time_and_another_for_another_object() -> None:
    seeds = [f"shop/report-{n}" for n in range(50)]

    first = [parse_schedule("H H(1-5) H * H", seed=seed) for seed in seeds]

    assert first == [parse_schedule("H H(1-5) H * H", seed=seed) for seed in seeds]
    minutes, hours, days, _, weekdays = zip(*(s.expression.split() for s in first), strict=True)
    assert len(set(minutes)) > 20
    assert {int(hour) for hour in hours} == {1, 2, 3, 4, 5}
    assert all(1 <= int(day) <= 28 for day in days)
    assert all(0 <= int(day) <= 6 for day in weekdays)


@pytest.mark.covers("OP-240")
@given(st.text(max_size=20), st.integers(1, 60))
def test_a_step_of_h_spreads_over_the_whole_range(seed: str, step: int) -> None:
    schedule = parse_schedule(f"H/{step} 0 1 1 *", seed=seed)

    minutes = schedule.expression.split()[0]
    found = list(range(60)) if minutes == "*" else [int(minute) for minute in minutes.split(",")]
    assert 0 <= found[0] < step
    assert found == list(range(found[0], 60, step))


@pytest.mark.covers("OP-240")
def test_no_two_fields_share_their_hash() -> None:
    found = [parse_schedule("H H H H *", seed=f"shop/{n}").expression.split() for n in range(40)]

    assert any(int(minute) % 24 != int(hour) for minute, hour, *_ in found)


@pytest.mark.covers("OP-241")
def test_a_star_in_the_hour_field_makes_a_schedule_elapsed() -> None:
    wall = ["0 2 * * *", "*/5 0-23 * * *", "0 H * * *", "@daily"]
    elapsed = ["0 * * * *", "0 */2 * * *", "@hourly"]

    assert all(parse_schedule(text).wall for text in wall)
    assert not any(parse_schedule(text).wall for text in elapsed)


@pytest.mark.covers("OP-052")
@pytest.mark.parametrize(
    "name", ["", "UTC+2", "Mars/Olympus", "europe/zurich", "../etc/passwd", "/etc/localtime"]
)
def test_an_unknown_zone_is_refused_by_name(name: str) -> None:
    with pytest.raises(
        UnknownZone, match=r"timeZone: expected an IANA name such as Europe/Zurich or Etc/UTC"
    ):
        load_zone(name)


def calendar(text: str, zone: str = "Etc/UTC", dst: Dst | None = None) -> Calendar:
    return Calendar(schedule=parse_schedule(text), zone=zone, dst=dst or Dst())


@pytest.mark.covers("OP-257")
def test_the_hash_changes_with_schedule_zone_and_rules_and_with_nothing_else() -> None:
    base = calendar("0 2 * * *").hash

    assert calendar(" 0  2 * * * ").hash == base
    others = {
        calendar("0 3 * * *").hash,
        calendar("0 2 * * *", "Europe/Zurich").hash,
        calendar("0 2 * * *", dst=Dst(gap=Gap.SKIP)).hash,
        calendar("0 2 * * *", dst=Dst(overlap=Overlap.LAST)).hash,
        calendar("0 2 1 * 1").hash,
        calendar("@every 2h").hash,
        calendar("@every 3h").hash,
    }
    assert base not in others
    assert len(others) == 7


@pytest.mark.covers("OP-251")
@pytest.mark.parametrize("text", ["*/5 H * * mon", "0 0 13 * 5", "@every 90s", "@hourly"])
def test_a_calendar_survives_being_written(text: str) -> None:
    written = calendar(text, "America/New_York", Dst(gap=Gap.SKIP, overlap=Overlap.BOTH))

    assert Calendar.from_json(written.to_json()) == written


NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.covers("OP-251")
@pytest.mark.parametrize(
    ("text", "count", "last"),
    [
        ("0 0 * * *", 64, NOW + timedelta(days=63, hours=12)),
        ("*/15 * * * *", 192, NOW + timedelta(hours=48)),
        ("* * * * *", 2000, NOW + timedelta(minutes=2000)),
    ],
)
def test_a_plan_has_64_instants_or_48_hours_and_at_most_2000(text: str, count: int, last: datetime) -> None:
    planned = plan_ahead(calendar(text), NOW, NOW)

    assert (len(planned.instants), planned.instants[-1], planned.left_out) == (count, last, 0)


@pytest.mark.covers("OP-252")
def test_a_plan_that_ran_out_goes_on_from_its_end_and_says_what_it_leaves_out() -> None:
    end = NOW - timedelta(minutes=1200)

    planned = plan_ahead(calendar("* * * * *"), end, NOW)

    assert planned.left_out == 700
    assert planned.instants[0] == NOW - timedelta(minutes=499)
    assert len(planned.instants) == 2000
    assert planned.instants[-1] == NOW + timedelta(minutes=1500)


@pytest.mark.covers("OP-251")
def test_a_refill_counts_what_is_planned_already() -> None:
    end = NOW + timedelta(days=9, hours=12)

    planned = plan_ahead(calendar("0 0 * * *"), end, NOW, known=10)

    assert planned.instants[0] == end + timedelta(days=1)
    assert len(planned.instants) == 54


def test_an_interval_needs_no_plan() -> None:
    assert plan_ahead(calendar("@every 1s"), NOW, NOW).instants == ()
