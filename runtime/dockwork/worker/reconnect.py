"""Whether Redis answers, and when to ask again when it does not. One `Link` per worker, shared by all its calls."""

from __future__ import annotations

import asyncio

from dockwork import clock
from dockwork.errors import AccessDenied, InvalidUrl, OutcomeUnknown, SchemaMismatch, StoreUnavailable
from dockwork.worker.logs import get_logger

log = get_logger("link")

#: What a call raises when Redis could not be asked. A refused login or a broken URL in a file may be a Secret that
#: is being changed: they stop a start, but not a worker that runs.
LOST = (StoreUnavailable, OutcomeUnknown, AccessDenied, SchemaMismatch, InvalidUrl)

FIRST_PAUSE_S = 0.05
#: Of the 5 s that a back-off may take, only 2: work has to resume within 2 s of Redis' first answer, and an
#: actor that asks every 2 s at most wakes all the others with its answer.
LONGEST_PAUSE_S = 2.0


def choose_pause(failures: int, spread: float) -> float:
    """Seconds before the next try after `failures` in a row: doubling, full jitter (Brooker 2015)."""
    ceiling: float = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 16))
    return ceiling * spread


class Link:
    """The state of the connection to Redis as this worker's calls see it.

    answered_at    monotonic seconds of the last answer; 0 = never
    up_since       the same, of the first answer after the last failure
    error          the last failure since then
    """

    def __init__(self) -> None:
        self.answered_at = 0.0
        self.up_since = 0.0
        self.error: Exception | None = None
        self.reconnects = 0
        self.unknown = 0
        self._failures = 0
        self._answered = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self.error is None and self.answered_at > 0

    def answered(self) -> None:
        """A call brought an answer; who pauses tries again at once. On the loop only."""
        self.answered_at = clock.monotonic()
        if self.error is not None:
            log.info("redis_answers", message="Redis answers again", failures=self._failures)
            self.error = None
            self.up_since = self.answered_at
            self.reconnects += 1
            self._failures = 0
            self._answered.set()

    def failed(self, error: Exception) -> None:
        if self.error is None:
            log.warning("redis_lost", message="Redis does not answer", error=str(error))
            self._answered.clear()
        self.unknown += isinstance(error, OutcomeUnknown)
        self.error = error
        self._failures += 1

    async def pause(self, error: Exception) -> None:
        """Note the failure; return when it is worth asking again."""
        self.failed(error)
        delay = choose_pause(self._failures, clock.spread())
        try:
            async with asyncio.timeout(delay):
                await self._answered.wait()
        except TimeoutError:
            pass
