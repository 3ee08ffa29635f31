"""The thread that answers probes, watches the loop, and ends a drain that the loop is too blocked to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from dockwork import clock
from dockwork.worker import health, metrics
from dockwork.worker.lag import LagWatch
from dockwork.worker.logs import get_logger
from dockwork.worker.probes import Answer, ProbeServer

log = get_logger("supervisor")

#: Seconds between two looks at the loop, if a fifteenth of the lease is not shorter.
LOOK_EVERY = 1.0
LOOK_OF_LEASE = 1 / 15
#: While nothing runs, only each fourth is taken: the looks were half of what an idle worker's CPU did (measured).
IDLE_LOOK = 4


class Watched(Protocol):
    """What the supervisor sees of a worker. Every method may be called from its thread."""

    def look(self) -> health.WorkerSeen: ...
    def figures(self) -> metrics.WorkerFigures: ...
    def shortest_lease_s(self) -> float: ...
    def is_idle(self) -> bool:
        """It claims and runs nothing, and does not drain."""
        ...

    def watch_memory(self) -> None:
        """Begin a drain when the process has grown too large."""
        ...

    def rescue_is_due(self, now: float) -> bool:
        """A drain is over time, and the event loop does nothing about it."""
        ...

    def rescue(self) -> None:
        """Put back what runs from this thread, and end the process."""
        ...


class Supervisor:
    """Runs until `stop`; answers only when an address is given."""

    def __init__(self, watched: Watched, lag: LagWatch, address: str | None) -> None:
        self._watched = watched
        self._lag = lag
        self._stop = threading.Event()
        self._blocked = False
        routes: dict[str, Callable[[], Answer]] = {
            "/livez": self._livez,
            "/readyz": self._readyz,
            "/metrics": self._metrics,
        }
        self._server = None if address is None else ProbeServer(address, routes)
        self._thread = threading.Thread(target=self._run, name="dockwork-supervisor", daemon=True)

    @property
    def port(self) -> int | None:
        return None if self._server is None else self._server.port

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._server is not None:
            self._server.wake()
        self._thread.join(LOOK_EVERY + 1)
        if self._server is not None and not self._thread.is_alive():
            self._server.close()

    def run_once(self) -> None:
        """Look at the loop once, and act on what is seen."""
        self._lag.post()
        lag = self._lag.seconds
        if lag > self._watched.shortest_lease_s() * health.LAG_OF_LEASE:
            if not self._blocked:  # once per block
                self._blocked = True
                log.warning("loop_blocked", lag_s=round(lag, 3), frame=self._lag.frame())
        else:
            self._blocked = False
        self._watched.watch_memory()
        if self._watched.rescue_is_due(clock.monotonic()):
            log.error("loop_blocked_in_drain", frame=self._lag.frame())
            self._watched.rescue()

    def look_again_in(self) -> float:
        """Seconds until the next look."""
        every = min(LOOK_EVERY, self._watched.shortest_lease_s() * LOOK_OF_LEASE)
        return every * IDLE_LOOK if self._watched.is_idle() else every

    def _run(self) -> None:
        look_at = 0.0
        while not self._stop.is_set():
            now = clock.monotonic()
            if now >= look_at:
                self._guarded()
                look_at = now + self.look_again_in()
            left = max(look_at - clock.monotonic(), 0)
            if self._server is None:
                self._stop.wait(left)
            else:
                self._server.poll(left)

    def _guarded(self) -> None:
        try:
            self.run_once()
        except Exception as error:  # a watcher that dies takes every probe with it
            log.error("supervisor_failed", exc_info=error)

    def _livez(self) -> Answer:
        return _say(health.why_not_alive(self._watched.look()))

    def _readyz(self) -> Answer:
        return _say(health.why_not_ready(self._watched.look()))

    def _metrics(self) -> Answer:
        text = metrics.render(self._watched.figures())
        return Answer(200, text, "text/plain; version=0.0.4; charset=utf-8")


def _say(reason: str) -> Answer:
    return Answer(503, f"{reason}\n".encode()) if reason else Answer(200, b"ok\n")
