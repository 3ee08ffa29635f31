"""The guide's table is what the code computes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dockwork.core.cron import Dst, Gap, Overlap, load_zone, parse_schedule, ticks

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "cron.md"
ROW = re.compile(r"^\| ([A-Z]\w+/\w+) \| `([^`]+)` \| ([^|]*)\| ([^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall(GUIDE.read_text(encoding="utf-8"))


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text if text.count("-") == 2 else f"2026-{text}").replace(tzinfo=UTC)


def rules(text: str) -> Dst:
    name, _, value = text.strip().partition(": ")
    match name:
        case "gap":
            return Dst(gap=Gap(value))
        case "overlap":
            return Dst(overlap=Overlap(value))
    assert not name
    return Dst()


@pytest.mark.covers("OP-242")
@pytest.mark.parametrize(("zone", "schedule", "dst", "due"), ROWS)
def test_each_row_of_the_guide_is_what_is_computed(zone: str, schedule: str, dst: str, due: str) -> None:
    expected = [instant(text) for text in due.split(", ")]
    window = expected[0] - timedelta(minutes=29), expected[-1]

    assert list(ticks(parse_schedule(schedule), load_zone(zone), rules(dst), *window)) == expected


def test_the_guide_has_the_whole_table() -> None:
    assert len(ROWS) == 23
