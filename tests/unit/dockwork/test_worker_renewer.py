"""The renewal thread at its end."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace

import pytest

from dockwork.store.protocol import Owner
from dockwork.worker.renewer import Renewer


class ClosedUnderItsRead:
    """A channel whose blocking read fails, as redis-py's does, when another thread closes the connection."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.reading = threading.Event()
        self._closed = threading.Event()

    def connect(self) -> None:
        return

    def renew(self, *_: object) -> object:
        return SimpleNamespace(expires_ms=15_000, now_ms=0)

    def wait_nudge(self, *_: object) -> None:
        self.reading.set()
        self._closed.wait(10)
        raise self._error

    def close(self) -> None:
        self._closed.set()


@pytest.mark.covers("RT-110")
@pytest.mark.parametrize(
    "error", [ValueError("I/O operation on closed file"), AttributeError("'NoneType' has no 'recv'")]
)
def test_a_read_that_fails_because_the_thread_was_told_to_end_is_no_error(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    caplog.set_level(logging.INFO)
    failed: list[Exception] = []
    lane = SimpleNamespace(
        name=SimpleNamespace(queue="q"), runs={}, lease_s=15.0, renewed_at=0.0, quiesced=False
    )
    channel = ClosedUnderItsRead(error)
    renewer = Renewer(
        lane,  # type: ignore[arg-type]
        Owner(pod="p", boot="b"),
        channel,  # type: ignore[arg-type]
        beat=lambda: None,  # type: ignore[arg-type,return-value]
        deliver=lambda runs, renewal: None,
        failed=failed.append,
    )
    renewer.start()
    assert channel.reading.wait(10)
    renewer.stop()
    renewer._thread.join(10)

    assert not renewer.is_alive
    assert (caplog.messages, failed) == ([], [])
