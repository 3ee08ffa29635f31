"""The only place that reads a clock or throws dice. Redis TIME decides everything that jobs depend on."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime


def now() -> datetime:
    """This machine's time, in UTC."""
    return datetime.now(UTC)


def now_ms() -> int:
    """This machine's time in milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


def monotonic() -> float:
    """Seconds that never go back, for deadlines inside this process."""
    return time.monotonic()


def spread() -> float:
    """A number in [0, 1) for jitter."""
    return random.random()  # no secret depends on it
