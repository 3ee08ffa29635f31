"""A peer on a Redis of its own: what a workload needs to store jobs, run them, and read the meters."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchkit.meters import cpu_of_process, cpu_of_tree
from benchkit.peers import BENCH, ROOT, Peer
from support.redis_server import RedisServer, die_with_parent

#: Bytes of a line of receipts: number, blank, microseconds, newline.
LINE = 26
#: Numbers from here on are not counted; see bench/peers/kit.py.
UNCOUNTED = 90_000_000
HELD = 99_999_999
#: AOF each second, and no rewrite in the middle of a measurement.
EVERYSEC = ("--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")


@dataclass(frozen=True)
class Meters:
    """CPU seconds of the worker tree and of Redis, and what Redis was asked, at one moment."""

    at: float
    worker: float
    redis: float
    commands: int
    reads: int

    def since(self, before: Meters) -> Meters:
        return Meters(
            self.at - before.at,
            self.worker - before.worker,
            self.redis - before.redis,
            self.commands - before.commands,
            self.reads - before.reads,
        )


class Stage:
    """A fresh Redis (loopback, AOF everysec, rewrite off), the receipts, and the processes of one peer."""

    def __init__(self, peer: Peer, environ: Mapping[str, str] | None = None) -> None:
        self.peer = peer
        self.folder = Path(tempfile.mkdtemp(prefix="dwb"))
        self.server = RedisServer(port=0, aof=True, folder=self.folder, options=EVERYSEC)
        self._started: list[subprocess.Popen[bytes]] = []
        self._environ = dict(environ or {})

    def __enter__(self) -> Stage:
        self.server.start()
        path = os.pathsep.join(str(part) for part in (BENCH / "peers", ROOT / "runtime"))
        self.environ = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHONDONTWRITEBYTECODE": "1",
            "BENCH_URL": self.server.url,
            "BENCH_RECEIPTS": str(self.folder / "receipts"),
            "BENCH_SENT": str(self.folder / "sent"),
            "DOCKWORK_REDIS_URL": self.server.url,
            "RQ_REDIS_URL": self.server.url,
            **self.peer.environ,
            **self._environ,
        }
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            self.kill(process)
        self.server.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- processes

    def produce(self, verb: str, count: int = 0) -> dict[str, float]:
        """Let the peer's program store jobs: seconds and CPU of the storing alone, and Redis' CPU beside it."""
        before = cpu_of_process(self.server.pid)
        command = [*self.peer.program, verb, str(count)]
        done = subprocess.run(
            command, env=self.environ, cwd=self.folder, capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            raise RuntimeError(f"{self.peer.name} {verb}: {done.stderr[-500:]}")
        redis = cpu_of_process(self.server.pid) - before
        said: dict[str, float] = json.loads(done.stdout.splitlines()[-1]) if verb != "hold" else {}
        return {**said, "redis": redis}

    def start(self, command: Sequence[str] | None = None, more: Mapping[str, str] | None = None) -> Any:
        """Start a worker, or `command`, with its log in the folder."""
        name = f"log{len(self._started)}"
        with (self.folder / name).open("wb") as log:
            process = subprocess.Popen(
                command or self.peer.worker,
                env={**self.environ, **(more or {})},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self._started.append(process)
        return process

    def kill(self, process: Any) -> None:
        """SIGKILL a process and what it started."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-500:] for path in sorted(self.folder.glob("log?")))

    # --- meters

    def meters(self, process: Any) -> Meters:
        """What all clocks say now. Asking costs Redis two commands in one read."""
        answer = self.server.raw("INFO", "stats").decode(errors="replace")
        info = dict(row.split(":", 1) for row in answer.splitlines() if ":" in row)
        return Meters(
            time.monotonic(),
            cpu_of_tree(process.pid),
            cpu_of_process(self.server.pid),
            int(info["total_commands_processed"]),
            int(info["total_reads_processed"]),
        )

    def used_memory(self) -> int:
        info = self.server.raw("INFO", "memory").decode(errors="replace")
        return int(info.split("used_memory:", 1)[1].split()[0])

    # --- receipts

    def seen(self) -> int:
        """Receipts so far."""
        try:
            return (self.folder / "receipts").stat().st_size // LINE
        except OSError:
            return 0

    def receipts(self) -> list[tuple[int, float]]:
        """Number and time in seconds of each, oldest first, without the uncounted."""
        return [each for each in read_lines(self.folder / "receipts") if each[0] < UNCOUNTED]

    def held(self) -> int:
        return sum(n == HELD for n, _ in read_lines(self.folder / "receipts"))

    def until(self, count: int, within: float) -> bool:
        """Whether so many receipts were there in time."""
        deadline = time.monotonic() + within
        while self.seen() < count:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    def delays_ms(self) -> list[float]:
        """Start minus sent (or due) of each job that ran, in ms."""
        first = dict(reversed(self.receipts()))
        return [(first[n] - at) * 1000 for n, at in read_lines(self.folder / "sent") if n in first]

    def forget(self) -> None:
        """Begin the receipts anew, for the next workload on this Redis; the handlers' files stay open."""
        for name in ("receipts", "sent"):
            if (self.folder / name).exists():
                os.truncate(self.folder / name, 0)


def read_lines(path: Path) -> list[tuple[int, float]]:
    if not path.exists():
        return []
    data = path.read_bytes()
    return [(int(data[at : at + 8]), int(data[at + 9 : at + 25]) / 1e6) for at in range(0, len(data), LINE)]


def tally(numbers: Iterable[int], count: int) -> dict[str, int]:
    """Lost and duplicated of jobs 0 to `count` - 1."""
    counts = Counter(numbers)
    ran = sum(n in counts for n in range(count))
    return {"lost": count - ran, "duplicated": sum(counts.values()) - len(counts)}
