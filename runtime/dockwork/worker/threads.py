"""Threads for handlers that are plain functions: one per slot, reused, and able to be interrupted."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dockwork.worker.runs import Run

#: Called in the thread with the value or the error.
Done = Callable[[Any, BaseException | None], None]


class Elsewhere(Protocol):
    """What runs a handler outside of the event loop."""

    def inject(self, run: Run, error: type[BaseException]) -> bool:
        """Interrupt the handler of `run`, if that is what runs there."""
        ...

    def kill(self, run: Run | None = None) -> bool:
        """End it by force; False where nothing can."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """One handler's call: `run` identifies it, so that an interruption never meets the next one."""

    run: object
    function: Callable[[], Any]
    done: Done


class SlotThread:
    """One thread that runs one call after the other."""

    def __init__(self, number: int, rest: Callable[[SlotThread], None]) -> None:
        self._calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        self._rest = rest
        self._lock = threading.Lock()
        self._running: object | None = None
        # A daemon: a handler that never returns must not keep the process from its exit.
        self._thread = threading.Thread(target=self._work, name=f"dockwork-slot-{number}", daemon=True)
        self._thread.start()

    def start(self, call: Call) -> None:
        self._calls.put(call)

    def end(self) -> None:
        """Ends the thread after what it runs now."""
        self._calls.put(None)

    def inject(self, run: object, error: type[BaseException]) -> bool:
        """Raise `error` at the next bytecode of `run`, if the thread still runs it.

        It cannot interrupt one long call into C; such a handler meets its hard timeout.
        """
        with self._lock:
            if self._running is not run:
                return False
            _set_async_exception(self._thread.ident or 0, error)
            return True

    def kill(self, run: object = None) -> bool:
        """No thread can be ended from outside."""
        return False

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            value, error = self._guarded(call)
            self._rest(self)
            call.done(value, error)
            del call, value, error

    def _guarded(self, call: Call) -> tuple[Any, BaseException | None]:
        try:
            return self._call(call)
        except BaseException as error:  # an interruption that came between the handler's end and ours
            return None, error
        finally:
            with self._lock:
                self._running = None

    def _call(self, call: Call) -> tuple[Any, BaseException | None]:
        with self._lock:
            self._running = call.run
        try:
            value = call.function()
        except BaseException as error:
            with self._lock:
                self._running = None
            return None, error
        with self._lock:
            self._running = None
        return value, None


class Threads:
    """The slot threads of a worker; a new one only when all others are busy."""

    def __init__(self) -> None:
        self._idle: list[SlotThread] = []
        self._all: list[SlotThread] = []

    def start(self, call: Call) -> SlotThread:
        try:
            thread = self._idle.pop()
        except IndexError:
            thread = SlotThread(len(self._all) + 1, self._idle.append)
            self._all.append(thread)
        thread.start(call)
        return thread

    def close(self) -> None:
        for thread in self._all:
            thread.end()


def _set_async_exception(ident: int, error: type[BaseException]) -> None:
    # Imported on the first timeout: ctypes costs a megabyte that an idle worker does not need.
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))
