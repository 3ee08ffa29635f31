"""What handlers leave behind: one line for each moment of a run, appended whole by one write.

A killed process loses no receipt that it wrote, and several processes may write to one file. The time is the
machine's monotonic clock, the same in every process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSeen:
    """One run of a handler, from its receipts.

    ended     None: its process did not live to see the end
    failed    it raised on purpose, so that another attempt follows
    """

    job: str
    attempt: int
    worker: str
    began: float
    ended: float | None = None
    failed: bool = False


class Receipts:
    """A file of receipts, open for appending."""

    def __init__(self, path: str | Path, worker: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._worker = worker

    def write(self, moment: str, job: str, attempt: int) -> None:
        """Append a line. moment: B began, E ended well, F failed on purpose."""
        line = f"{moment} {job} {attempt} {self._worker} {time.monotonic():.6f}\n"
        os.write(self._file, line.encode())


def read_receipts(path: Path) -> list[RunSeen]:
    """Every run that began, in the order of their beginnings."""
    open_: dict[tuple[str, int, str], RunSeen] = {}
    runs: list[RunSeen] = []
    for moment, job, attempt, worker, at in _lines(path):
        key = job, attempt, worker
        if moment == "B":
            again = open_.get(key)
            if again is not None:
                runs.append(again)
            open_[key] = RunSeen(job=job, attempt=attempt, worker=worker, began=at)
        else:
            runs.append(replace(open_.pop(key), ended=at, failed=moment == "F"))
    return sorted([*runs, *open_.values()], key=lambda run: run.began)


def _lines(path: Path) -> Iterator[tuple[str, str, int, str, float]]:
    if not path.exists():
        return
    with path.open() as file:
        for line in file:
            moment, job, attempt, worker, at = line.split()
            yield moment, job, int(attempt), worker, float(at)
