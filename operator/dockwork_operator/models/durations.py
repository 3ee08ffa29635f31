"""Durations as people write them (``90s``, ``1h30m``) and as the code uses them (`timedelta`)."""

from __future__ import annotations

import re
from datetime import timedelta

PATTERN = "^([0-9]{1,6}(ms|s|m|h))+$"
"""Six digits at most per part: more overflow CEL's ``duration()`` within `MAX_LENGTH` characters."""

MAX_LENGTH = 16

_WHOLE = re.compile(PATTERN)
_PART = re.compile("([0-9]{1,6})(ms|s|m|h)")
_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
}
_DESCENDING = (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
EXPECTED = "a duration such as 90s or 1h30m, at most 16 characters, units ms, s, m, h"


def parse_duration(text: str) -> timedelta:
    """The span that `text` names. Raises ValueError, saying what a duration looks like."""
    if len(text) > MAX_LENGTH or not _WHOLE.fullmatch(text):
        raise ValueError(EXPECTED)
    return sum((int(number) * _UNITS[unit] for number, unit in _PART.findall(text)), timedelta())


def format_duration(span: timedelta) -> str:
    """The shortest text of `span` in whole milliseconds, largest unit first: ``1h30m``, ``0s``."""
    rest = round(span / timedelta(milliseconds=1))
    parts = []
    for unit, size in _DESCENDING:
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"
