"""CPU and memory of processes, from the kernel; nothing is asked of the software under test."""

from __future__ import annotations

import os
import time
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
#: The kernel's number of "the CPU clock of a whole process", beside its inverted id.
_PROCESS_CLOCK = 2


def cpu_of_process(pid: int) -> float:
    """CPU seconds of all its threads, ended ones included, to the nanosecond; 0 if it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
    except OSError:
        return 0.0


def tree(pid: int) -> list[int]:
    """A process and its living descendants."""
    found, waiting = [], [pid]
    while waiting:
        each = waiting.pop()
        try:
            for task in Path(f"/proc/{each}/task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue
        found.append(each)
    return found


def cpu_of_tree(pid: int) -> float:
    """CPU seconds of a process, its living descendants, and the dead ones that were waited for."""
    return sum(cpu_of_process(each) + _waited_for(each) for each in tree(pid))


def _waited_for(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[13]) + int(fields[14])) / _TICKS


def rss_of_tree(pid: int) -> float:
    """Resident MiB of a process and its descendants; pages that they share count in each."""
    return sum(map(_rss, tree(pid)))


def _rss(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def machine() -> dict[str, object]:
    """What the figures were taken on."""
    model = next(
        (
            row.partition(":")[2].strip()
            for row in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in row
        ),
        "unknown",
    )
    return {
        "cpus": os.cpu_count(),
        "model": model,
        "kernel": os.uname().release,
        "machine": os.uname().machine,
    }
