"""One shutdown: who asked, until when, and how far it came. Asked from any thread or signal handler, without locks."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from datetime import datetime, timedelta

from dockwork import clock

#: Before its end, a drain puts back what still runs.
PUT_BACK_BEFORE_S = 1.0
#: What a cancelled handler gets to end by itself before its job is put back.
CANCELLED_WITHIN_S = 0.3
#: What the answer to a put-back gets at least, however little time the shutdown was given.
LAST_ANSWER_S = 0.5


class Drain:
    """The state of a worker's only shutdown.

    deadline       monotonic seconds of its end; None = not begun
    ends_at        the same for people and `ctx.deadline`
    put_back_now   a second signal came
    putting_back   the loop has begun to put back: a rescue is not needed
    done           set when all is over
    """

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.ends_at: datetime | None = None
        self.reason = ""
        self.put_back_now = False
        self.putting_back = False
        self.done: Future[None] = Future()
        self._calls = itertools.count()

    @property
    def begun(self) -> bool:
        return self.deadline is not None

    @property
    def put_back_at(self) -> float | None:
        """When what still runs goes back: a second before the end, so that the end is kept."""
        if self.deadline is None:
            return None
        return clock.monotonic() if self.put_back_now else self.deadline - PUT_BACK_BEFORE_S

    def begin(self, timeout_s: float, reason: str) -> bool:
        """True for the first call; later ones change nothing."""
        if next(self._calls) > 0:
            return False
        self.reason = reason
        self.ends_at = clock.now() + timedelta(seconds=timeout_s)
        self.deadline = clock.monotonic() + timeout_s
        return True

    def hurry(self) -> None:
        """Put back now: the end is as near as putting back needs."""
        if self.deadline is not None and not self.put_back_now:
            self.deadline = min(self.deadline, clock.monotonic() + PUT_BACK_BEFORE_S)
            self.put_back_now = True
