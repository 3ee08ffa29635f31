"""How fast the operator may ask the API server: a token bucket, served in the order of arrival."""

from __future__ import annotations

import asyncio


class RateLimit:
    """At most `rate` requests per second in the long run, `burst` at once.

    `take` books a place in the future and sleeps until then, so that waiting costs no wake-ups and nobody is
    overtaken. Time is the event loop's.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._interval = 1.0 / rate
        self._slack = self._interval * (burst - 1)
        self._next = float("-inf")

    async def take(self) -> None:
        now = asyncio.get_running_loop().time()
        at = max(self._next, now - self._slack)
        self._next = at + self._interval
        if at > now:
            await asyncio.sleep(at - now)
