"""Spans of time as people write them: seconds, timedeltas, and strings such as ``1m30s``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from dockwork.errors import InvalidValue, require

#: What public calls take: seconds, or a timedelta.
Span: TypeAlias = float | int | timedelta

#: Ten years, the longest delay that a job may have.
LONGEST_DELAY = timedelta(days=3653)

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PARTS = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
#: More than any span here may be, and little enough for a `timedelta`.
_LONGEST_MS = 10**15
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")


def to_span(
    value: Span,
    field: str,
    *,
    least: timedelta = timedelta(0),
    most: timedelta | None = None,
) -> timedelta:
    """`value` as a timedelta between `least` and `most`; InvalidValue names `field` otherwise."""
    expected = f"a span of {_words(least)} or more" if most is None else f"{_words(least)} to {_words(most)}"
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise InvalidValue(field, expected=f"seconds or a timedelta, {expected}", got=value)
    try:
        span = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (OverflowError, ValueError):
        raise InvalidValue(field, expected=expected, got=value) from None
    require(span >= least and (most is None or span <= most), field, expected=expected, got=value)
    return span


def to_ms(span: timedelta) -> int:
    """Whole milliseconds; a span above zero never becomes 0."""
    ms = span // timedelta(milliseconds=1)
    return ms if ms or not span else 1


def parse_span(text: str, field: str) -> timedelta:
    """A number of seconds, or digits with units: ``90``, ``1.5``, ``500ms``, ``1m30s``, ``2h``, ``7d``."""
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return timedelta(seconds=float(text))
    parts = _PARTS.findall(text)
    ms = sum(int(n) * _UNIT_MS[u] for n, u in parts)
    if not parts or "".join(n + u for n, u in parts) != text or ms >= _LONGEST_MS:
        raise InvalidValue(field, expected="seconds, or a span such as 500ms, 15s, 1m30s, 2h, 7d", got=text)
    return timedelta(milliseconds=ms)


def _words(span: timedelta) -> str:
    return f"{span.days:,} days" if span >= timedelta(days=2) else f"{span.total_seconds():g} s"
