"""SIGTERM, SIGINT and SIGHUP of a worker process: the first drains, the second puts back now, a third is ignored."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

TRAPPED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Trap:
    """Replaces the handlers of the trapped signals while installed, for every worker of the process.

    Not the loop's own handlers: those wait for the loop, and a handler that blocks it would hide the signal.
    """

    def __init__(self, caught: Callable[[str, int], None]) -> None:
        self._caught = caught
        self._count = 0

    def install(self) -> bool:
        """False in another thread than the main one, which may have no handlers: `shutdown` is called there."""
        if threading.current_thread() is not threading.main_thread():
            return False
        if not _SET:
            for each in TRAPPED:
                _BEFORE[each] = signal.signal(each, _catch)
        _SET.append(self)
        return True

    def remove(self) -> None:
        if self in _SET:
            _SET.remove(self)
            if not _SET:
                for each, before in _BEFORE.items():
                    signal.signal(each, before)
                _BEFORE.clear()

    def catch(self, name: str) -> None:
        self._count += 1
        self._caught(name, self._count)


#: The traps of all workers that share this process, and what handled the signals before the first of them.
_SET: list[Trap] = []
_BEFORE: dict[signal.Signals, Any] = {}


def any_set() -> bool:
    """Whether a worker of this process still waits for signals."""
    return bool(_SET)


def _catch(number: int, frame: FrameType | None) -> None:
    # Nothing here may take a lock: it runs between any two bytecodes of the main thread.
    name = signal.Signals(number).name
    for trap in tuple(_SET):
        trap.catch(name)
