"""Spans of time as people write them, in variables, files and options."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dockwork.core.durations import parse_span
from dockwork.errors import InvalidValue


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90", timedelta(seconds=90)),
        ("1.5", timedelta(seconds=1.5)),
        ("500ms", timedelta(milliseconds=500)),
        ("1m30s", timedelta(seconds=90)),
        (" 2h ", timedelta(hours=2)),
        ("7d", timedelta(days=7)),
        ("1d12h", timedelta(hours=36)),
    ],
)
def test_a_span_is_a_number_of_seconds_or_digits_with_units(text: str, span: timedelta) -> None:
    assert parse_span(text, "x") == span


@pytest.mark.parametrize("text", ["", "soon", "1w", "d", "1 d", "-1s", "1.5h", "999999999d", "1d1"])
def test_another_text_is_refused_with_what_is_taken(text: str) -> None:
    with pytest.raises(InvalidValue, match=r"^x: expected seconds, or a span such as .*, 7d, got "):
        parse_span(text, "x")
