"""Calls about what a queue takes and what it did: intake, figures per minute. Nothing is sent here."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from dockwork.core.keys import QueueKeys
from dockwork.errors import require
from dockwork.store.calls import Call
from dockwork.store.protocol import MinuteFigures
from dockwork.store.views import to_counts

#: Minutes whose figures are kept: 48 hours.
MINUTES = 2880
_MINUTE_MS = 60_000


def set_closed(keys: QueueKeys, *, expected: bool, wanted: bool) -> Call[bool]:
    """Close a queue to new jobs by hand, or open it, if it is as expected: whether it was."""
    return Call("set_closed", keys, [int(expected), int(wanted)], lambda reply: bool(reply[1]))


def figures(keys: QueueKeys, minutes: int) -> Call[builtins.list[MinuteFigures]]:
    """The figures of the last `minutes`, the running one last."""

    def decode(reply: builtins.list[Any]) -> builtins.list[MinuteFigures]:
        hours = iter(reply[2:])
        found: dict[int, dict[str, int]] = {}
        for hour, flat in zip(hours, hours, strict=True):
            for field, number in to_counts(flat).items():
                found.setdefault(int(hour) * 60 + int(field[:-1]), {})[field[-1]] = number
        return by_minute(found, int(reply[1]), minutes)

    require(1 <= minutes <= MINUTES, "minutes", expected=f"1 to {MINUTES}", got=minutes)
    return Call("figures", keys, [minutes], decode, reads=True)


def by_minute(
    found: Mapping[int, Mapping[str, int]], now_ms: int, minutes: int
) -> builtins.list[MinuteFigures]:
    """One value per minute, the oldest first, also for those in which nothing happened."""
    now = now_ms // _MINUTE_MS
    return [
        MinuteFigures(
            minute_ms=minute * _MINUTE_MS,
            arrived=found.get(minute, {}).get("a", 0),
            finished=found.get(minute, {}).get("f", 0),
            run_ms=found.get(minute, {}).get("r", 0),
        )
        for minute in range(now - minutes + 1, now + 1)
    ]
