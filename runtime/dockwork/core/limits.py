"""What a queue lets start at once, as code says it: `Rate`, and the concurrency key of a job's arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from dockwork.core.durations import Span, to_ms, to_span
from dockwork.errors import InvalidValue, require

#: The most that a limit may allow, and the shortest and longest period of a rate.
MOST_STARTS = 1_000_000
MOST_RUNNING = 100_000
SHORTEST_PERIOD = timedelta(milliseconds=100)
LONGEST_PERIOD = timedelta(days=1)
#: Characters of a concurrency key that a call names itself.
LONGEST_KEY = 256


@dataclass(frozen=True)
class Rate:
    """At most `count` starts in any window of `per`, over all workers: ``Rate(100, per=60)``.

    count   1 to 1,000,000 starts; the claim of a job is its start
    per     seconds or a timedelta, 0.1 s to 24 h
    """

    count: int
    per: Span = 1
    per_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_number("rate", self.count, MOST_STARTS)
        span = to_span(self.per, "rate.per", least=SHORTEST_PERIOD, most=LONGEST_PERIOD)
        object.__setattr__(self, "per_ms", to_ms(span))


def check_number(name: str, value: int, most: int) -> int:
    """`value` itself, a whole number from 1 to `most`."""
    fits = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
    require(fits, name, expected=f"a whole number from 1 to {most}", got=value)
    return value


def check_per_key(value: int) -> int:
    """`value` itself, if so many jobs of a key may run at once."""
    return check_number("per_key", value, MOST_RUNNING)


def check_rate(value: Rate) -> Rate:
    require(isinstance(value, Rate), "rate", expected="a Rate, such as Rate(100, per=60)", got=value)
    return value


def check_key_text(value: str) -> str:
    """`value` itself, if a call may name it as its concurrency key."""
    fits = isinstance(value, str) and 0 < len(value) <= LONGEST_KEY
    require(fits, "concurrency_key", expected=f"1 to {LONGEST_KEY} characters", got=value)
    return value


@dataclass(frozen=True, slots=True)
class ConcurrencyKey:
    """Which arguments of a job type say whose job it is; jobs of the type with equal values have the same key."""

    job_type: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, job_type: str, names: str | Sequence[str]) -> ConcurrencyKey:
        """Raises InvalidValue for no name."""
        chosen = (names,) if isinstance(names, str) else tuple(names)
        fits = bool(chosen) and all(isinstance(name, str) and name for name in chosen)
        require(fits, f"concurrency_key of {job_type}", expected="a parameter's name, or several", got=names)
        return cls(job_type, chosen)

    def check(self, parameters: Sequence[str], sealed: Sequence[str]) -> None:
        """Refuse a name that is no parameter, and one whose values are sealed: equal keys would show equal values."""
        for name in self.names:
            if name not in parameters:
                expected = f"a parameter of {self.job_type} ({', '.join(parameters) or 'it has none'})"
                raise InvalidValue("concurrency_key", expected=expected, got=name)
            require(
                name not in sealed, "concurrency_key", expected="a parameter that is not sealed", got=name
            )

    def text(self, args: bytes, defaults: Mapping[str, Any]) -> str:
        """The key of a job with the stored arguments `args`; `defaults` are those of the parameters."""
        found = {**defaults, **json.loads(args)}
        values = [found.get(name) for name in self.names]
        return f"{self.job_type}\n{json.dumps(values, sort_keys=True, separators=(',', ':'))}"
