"""How long to wait after a failed attempt. Pure: the dice are an argument."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Literal

from dockwork.core.durations import LONGEST_DELAY, Span, to_ms, to_span
from dockwork.errors import InvalidValue, require


class BackoffKind(StrEnum):
    FIXED = "fixed"
    EXPONENTIAL = "exponential"
    LIST = "list"
    CUSTOM = "custom"


#: Percent that jitter may take off. Full jitter spreads a herd best (Brooker 2015).
JITTER: Mapping[str, int] = {"none": 0, "equal": 50, "full": 100}


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """The wait before the next attempt, by how many have failed. Build it with a class method.

    steps            fixed: one span; exponential: the first; list: one per failed attempt, the last repeats
    jitter_percent   the dice take off up to so much
    """

    kind: BackoffKind
    steps: tuple[timedelta, ...] = ()
    factor: float = 2.0
    most: timedelta = timedelta(hours=1)
    jitter_percent: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        require(
            0 <= self.jitter_percent <= 100,
            "backoff.jitter_percent",
            expected="0 to 100",
            got=self.jitter_percent,
        )
        require(1 <= self.factor <= 100, "backoff.factor", expected="1 to 100", got=self.factor)
        custom = self.kind is BackoffKind.CUSTOM
        require(custom or bool(self.steps), "backoff.steps", expected="at least one span", got=self.steps)
        require(not custom or bool(self.name), "backoff.name", expected="a name", got=self.name)

    @classmethod
    def fixed(cls, seconds: Span) -> Backoff:
        """The same wait after each failed attempt."""
        return cls(kind=BackoffKind.FIXED, steps=(_step(seconds),))

    @classmethod
    def exponential(
        cls,
        base: Span = 1,
        factor: float = 2,
        max: Span = 3600,
        jitter: Literal["full", "equal", "none"] = "full",
    ) -> Backoff:
        """`base`, then `factor` times as long each time, up to `max`."""
        if jitter not in JITTER:
            raise InvalidValue("backoff.jitter", expected="full, equal or none", got=jitter)
        return cls(
            kind=BackoffKind.EXPONENTIAL,
            steps=(_step(base),),
            factor=factor,
            most=_step(max),
            jitter_percent=JITTER[jitter],
        )

    @classmethod
    def list(cls, seconds: Sequence[Span]) -> Backoff:
        """One wait per failed attempt; the last repeats."""
        return cls(kind=BackoffKind.LIST, steps=tuple(_step(each) for each in seconds))

    @classmethod
    def custom(cls, name: str) -> Backoff:
        """The function that the app registered as `name` by ``@app.backoff``."""
        return cls(kind=BackoffKind.CUSTOM, name=name)

    def to_json(self) -> str:
        """As a queue's configuration in Redis holds it."""
        return json.dumps(
            {
                "kind": self.kind.value,
                "base_ms": to_ms(self.steps[0]) if self.steps else 0,
                "max_ms": to_ms(self.most),
                "factor": self.factor,
                "jitter_percent": self.jitter_percent,
                "steps_ms": [to_ms(step) for step in self.steps],
                "name": self.name,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Backoff:
        """What `to_json` or an operator wrote; fields that are missing have the defaults of RT section 1."""
        try:
            found: Mapping[str, Any] = json.loads(text)
            kind = BackoffKind(found["kind"])
            steps = found.get("steps_ms") or [found.get("base_ms", 1000)]
            return cls(
                kind=kind,
                steps=tuple(timedelta(milliseconds=step) for step in steps),
                factor=found.get("factor", 2.0),
                most=timedelta(milliseconds=found.get("max_ms", 3_600_000)),
                jitter_percent=found.get("jitter_percent", 100 if kind is BackoffKind.EXPONENTIAL else 0),
                name=found.get("name", ""),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if isinstance(error, InvalidValue):
                raise
            raise InvalidValue("backoff", expected="a backoff as JSON", got=text) from error


def next_delay(backoff: Backoff, attempts: int, spread: float) -> timedelta:
    """The wait after the `attempts`-th failed attempt.

    attempts    failed so far, >= 1
    spread      in [0, 1), drawn by the caller; takes off up to the jitter
    Raises      InvalidValue for a custom backoff: the registry knows those
    Source      full jitter: Brooker 2015; the growth as in RFC 2988 timers
    """
    require(attempts >= 1, "attempts", expected="1 or more", got=attempts)
    if backoff.kind is BackoffKind.CUSTOM:
        raise InvalidValue("backoff", expected="fixed, exponential or list", got=f"custom {backoff.name}")
    return _GROWTH[backoff.kind](backoff, attempts) * (1 - backoff.jitter_percent / 100 * spread)


def _exponential(backoff: Backoff, attempts: int) -> timedelta:
    # 2 ** 1024 does not fit a float, and 64 doublings of 1 ms are over any limit.
    grown = backoff.steps[0].total_seconds() * backoff.factor ** min(attempts - 1, 64)
    return timedelta(seconds=min(grown, backoff.most.total_seconds()))


def _listed(backoff: Backoff, attempts: int) -> timedelta:
    return backoff.steps[min(attempts, len(backoff.steps)) - 1]


_GROWTH: Mapping[BackoffKind, Callable[[Backoff, int], timedelta]] = {
    BackoffKind.FIXED: lambda backoff, attempts: backoff.steps[0],
    BackoffKind.EXPONENTIAL: _exponential,
    BackoffKind.LIST: _listed,
}


def _step(value: Span) -> timedelta:
    return to_span(value, "backoff", most=LONGEST_DELAY)


#: Used where nobody configured one: retrying never depends on configuring a backoff.
DEFAULT_BACKOFF = Backoff.exponential(1, max=3600)
