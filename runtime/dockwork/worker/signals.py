"""SIGTERM, SIGINT and SIGHUP of a worker process: the first drains, the second puts back now, a third is ignored."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

TRAPPED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Trap:
    """Replaces the handlers of the trapped signals while installed.

    Not the loop's own handlers: those wait for the loop, and a handler that blocks it would hide the signal.
    """

    def __init__(self, caught: Callable[[str, int], None]) -> None:
        self._caught = caught
        self._count = 0
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may have handlers; elsewhere `shutdown` is called
        for each in TRAPPED:
            self._before[each] = signal.signal(each, self._catch)

    def remove(self) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)
        self._before.clear()

    def _catch(self, number: int, frame: FrameType | None) -> None:
        # Nothing here may take a lock: it runs between any two bytecodes of the main thread.
        self._count += 1
        self._caught(signal.Signals(number).name, self._count)
