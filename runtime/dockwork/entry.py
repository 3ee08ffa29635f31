"""The command ``dockwork``, from its first moment on: only what a signal needs is imported before a worker hears it."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command. A worker that is told to end while it still imports ends at once, with 0."""
    if sys.argv[1:2] == ["worker"]:
        # As PID 1 of a container it would not even hear a signal without a handler: the kernel drops it.
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, _end)
    from dockwork.cli import main as command

    command(prog_name="dockwork")


def _end(number: int, frame: FrameType | None) -> None:
    """Nothing was claimed yet. The worker's own traps take this handler's place."""
    os._exit(0)
