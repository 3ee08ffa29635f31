"""How long the event loop has not answered, watched from another thread."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback

from dockwork import clock


class LagWatch:
    """Posts a callback to the loop now and then, and sees how long it takes to run."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_id: int) -> None:
        self._loop = loop
        self._thread_id = thread_id
        self._posted_at: float | None = None
        self._last_s = 0.0
        self._lock = threading.Lock()

    @property
    def seconds(self) -> float:
        """The lag now: of the callback that still waits, else of the last one."""
        with self._lock:
            waiting = 0.0 if self._posted_at is None else clock.monotonic() - self._posted_at
            return max(waiting, self._last_s)

    def post(self) -> None:
        """Ask the loop for a sign of life, unless it still owes one."""
        with self._lock:
            if self._posted_at is not None:
                return
            self._posted_at = clock.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._answered)
        except RuntimeError:
            return  # the loop is closed

    def frame(self) -> str:
        """Where the loop's thread is now, innermost last."""
        frame = sys._current_frames().get(self._thread_id)
        if frame is None:
            return ""
        return "".join(traceback.format_stack(frame)[-5:])

    def task(self) -> asyncio.Task[object] | None:
        """The task that runs on the loop now."""
        try:
            return asyncio.current_task(self._loop)
        except RuntimeError:
            return None

    def _answered(self) -> None:
        with self._lock:
            if self._posted_at is not None:
                self._last_s = clock.monotonic() - self._posted_at
            self._posted_at = None
