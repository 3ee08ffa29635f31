"""Wait for a condition, never for a time: the only place in the tests that sleeps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


class Expired(AssertionError):
    """The condition did not come true before the deadline."""


def until(ask: Callable[[], T], *, within: float = 10.0, every: float = 0.02, what: str = "") -> T:
    """The first true answer of `ask`, asked each `every` seconds; Expired after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Expired(f"{what or ask}: not true within {within} s; last answer {answer!r}")
        time.sleep(every)  # noqa: TID251


async def until_async(
    ask: Callable[[], Awaitable[T]], *, within: float = 10.0, every: float = 0.02, what: str = ""
) -> T:
    """The first true answer of the coroutine function `ask`; Expired after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        answer = await ask()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise Expired(f"{what or ask}: not true within {within} s; last answer {answer!r}")
        await asyncio.sleep(every)  # noqa: TID251
