"""Renews leases and beats from an OS thread with its own connection, so that a blocked event loop keeps its jobs.

The thread's sleep is the blocking read of nudges: a cancel or a quiesce reaches a running job at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from dockwork import clock
from dockwork.errors import ScriptFailed, UnknownReply
from dockwork.store.protocol import Heartbeat, Owner, Renewal, RenewalChannel
from dockwork.worker.lane import Lane
from dockwork.worker.logs import get_logger
from dockwork.worker.reconnect import LOST, choose_pause
from dockwork.worker.runs import Phase, Run

log = get_logger("renewer")

# A third, not half: one renewal may be lost and the next still comes before the expiry.
# Rejected: renewing per job. 200 slots were 200 round trips; one script renews them all.
RENEW_AT = 1 / 3
#: Leases in one call.
CHUNK = 500
#: Between two beats of a worker that was asked to quiesce, whose answer somebody waits for.
QUIESCED_EVERY = 2.0
#: A drain's end does not wait longer for a renewal that gets no answer.
LAST_RENEWAL_WITHIN = 1.0
#: Many nudges in a row are one renewal.
NUDGE_GAP = 0.05


class Renewer:
    """The renewal thread of one lane.

    deliver      called on this thread with the runs and what Redis said of them
    answered     called on this thread after each answer
    passed_at    monotonic seconds of the thread's last round, answered or not
    """

    def __init__(
        self,
        lane: Lane,
        owner: Owner,
        channel: RenewalChannel,
        *,
        beat: Callable[[], Heartbeat],
        deliver: Callable[[Sequence[Run], Renewal], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._lane = lane
        self._owner = owner
        self._channel = channel
        self._beat = beat
        self._deliver = deliver
        self._failed = failed
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._failures = 0
        self._sent_at = 0.0
        self.passed_at = clock.monotonic()
        self._thread = threading.Thread(
            target=self._run, name=f"dockwork-renew-{lane.name.queue}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No renewal begins after this returns; one under way is waited for, a moment."""
        self._stop.set()
        in_time = self._lock.acquire(timeout=LAST_RENEWAL_WITHIN)
        self._channel.close()  # this also ends a read that waits for a nudge
        if in_time:
            self._lock.release()

    @property
    def every(self) -> float:
        """Seconds between two renewals."""
        every = self._lane.lease_s * RENEW_AT
        return min(every, QUIESCED_EVERY) if self._lane.quiesced else every

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def run_once(self) -> None:
        """Renew every lease that the lane holds, and beat."""
        with self._lock:
            if self._stop.is_set():
                return
            runs = _held(self._lane)
            sent_at = self._sent_at = clock.monotonic()
            beat: Heartbeat | None = self._beat()
            for first in range(0, max(len(runs), 1), CHUNK):
                chunk = runs[first : first + CHUNK]
                renewal = self._channel.renew(self._lane.name, [run.lease for run in chunk], beat)
                beat = None
                self._lane.renewed_at = sent_at
                self._lane.lease_s = max((renewal.expires_ms - renewal.now_ms) / 1000, 0.1)
                self._deliver(chunk, renewal)

    def _run(self) -> None:
        connected = False
        while not self._stop.is_set():
            self.passed_at = clock.monotonic()
            try:
                if not connected:
                    self._channel.connect()
                    connected = True
                self.run_once()
                self._failures = 0
                self._sleep()
            except LOST as error:
                connected = False
                self._fail(error)
            except (ScriptFailed, UnknownReply) as error:
                log.error("renew_failed", error=str(error), queue=self._lane.name.queue)
                self._fail(error)
            except Exception as error:  # a defect must not end the only thread that keeps the leases
                if self._stop.is_set():
                    return  # its channel was closed under its blocking read
                log.error("renewer_failed", exc_info=error)
                self._fail(error)

    def _sleep(self) -> None:
        if self._stop.is_set():
            return
        left = self._sent_at + self.every - clock.monotonic()
        if left > 0 and self._channel.wait_nudge(self._owner, self._lane.name, left) is not None:
            self._stop.wait(NUDGE_GAP)

    def _fail(self, error: Exception) -> None:
        if self._stop.is_set():
            return
        self._failures += 1
        self._failed(error)
        self._stop.wait(choose_pause(self._failures, clock.spread()))


def _held(lane: Lane) -> list[Run]:
    """The runs whose leases we hold. The loop changes the table meanwhile, so a torn look is taken again."""
    while True:
        try:
            return [run for run in list(lane.runs.values()) if run.phase is not Phase.GONE]
        except RuntimeError:
            continue
