"""What Prometheus' own client says of every Python process, for a worker whose app does not use that client.

The same names and meanings, read when they are asked for; where /proc does not say something, it is left out.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dockwork.worker.exposition import Family

PROC = Path("/proc")


def process_families() -> Iterator[Family]:
    """Everything that can be read now."""
    yield from _of_the_collector()
    yield _of_the_interpreter()
    for read in (_of_memory, _of_time, _of_files):
        yield from _if_it_can(read)


def _if_it_can(read: Callable[[], Iterable[Family]]) -> Iterable[Family]:
    try:
        return list(read())
    except (OSError, IndexError, ValueError):
        return ()


def _of_the_collector() -> Iterator[Family]:
    stats = gc.get_stats()
    for name, text, key in (
        ("python_gc_objects_collected", "Objects collected during gc", "collected"),
        ("python_gc_objects_uncollectable", "Uncollectable objects found during GC", "uncollectable"),
        ("python_gc_collections", "Number of times this generation was collected", "collections"),
    ):
        samples = [({"generation": str(number)}, each[key]) for number, each in enumerate(stats)]
        yield Family(name, text, "counter", samples)


def _of_the_interpreter() -> Family:
    major, minor, patch = platform.python_version_tuple()
    labels = {
        "implementation": platform.python_implementation(),
        "major": major,
        "minor": minor,
        "patchlevel": patch,
        "version": platform.python_version(),
    }
    return Family("python_info", "Python platform information", "gauge", [(labels, 1)])


def _stat() -> list[str]:
    """The fields of /proc/self/stat after the program's name."""
    return (PROC / "self/stat").read_text().rpartition(")")[2].split()


def _of_memory() -> Iterator[Family]:
    fields = _stat()
    virtual, resident = int(fields[20]), int(fields[21]) * resource.getpagesize()
    yield Family("process_virtual_memory_bytes", "Virtual memory size in bytes.", "gauge", [({}, virtual)])
    yield Family("process_resident_memory_bytes", "Resident memory size in bytes.", "gauge", [({}, resident)])


def _of_time() -> Iterator[Family]:
    booted = next(
        int(line.split()[1]) for line in (PROC / "stat").read_text().splitlines() if line.startswith("btime ")
    )
    started = booted + int(_stat()[19]) / os.sysconf("SC_CLK_TCK")
    text = "Start time of the process since unix epoch in seconds."
    yield Family("process_start_time_seconds", text, "gauge", [({}, started)])
    used = resource.getrusage(resource.RUSAGE_SELF)
    text = "Total user and system CPU time spent in seconds."
    yield Family("process_cpu_seconds", text, "counter", [({}, used.ru_utime + used.ru_stime)])


def _of_files() -> Iterator[Family]:
    opened = len(os.listdir(PROC / "self/fd"))
    yield Family("process_open_fds", "Number of open file descriptors.", "gauge", [({}, opened)])
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limit = sys.maxsize if most == resource.RLIM_INFINITY else most
    yield Family("process_max_fds", "Maximum number of open file descriptors.", "gauge", [({}, limit)])
