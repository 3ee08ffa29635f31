"""The peers: how each is started on its cheapest setting, and what that setting guarantees."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parent


def cache_folder() -> Path:
    """Where environments and programs of the bench are built, outside of the checkout."""
    given = os.environ.get("DOCKWORK_CACHE")
    xdg = os.environ.get("XDG_CACHE_HOME")
    cache = Path(given) if given else (Path(xdg) if xdg else Path.home() / ".cache") / "dockwork"
    return cache / "bench"


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One entry of the comparison.

    kind        dockwork, python, node, go: which ratios it takes part in
    jobs        of A and C; fewer for the slow ones, and the tables say so
    settings    concurrency and what else was set
    guarantee   what that setting does when a worker is killed in the middle of a job
    program     the command of the five verbs of bench/peers/kit.py
    worker      the command of a worker
    helper      a second process that delayed jobs need
    environ     besides the common variables
    bulk        whether it has a bulk call
    """

    name: str
    version: str
    kind: str
    settings: str
    guarantee: str
    program: tuple[str, ...]
    worker: tuple[str, ...]
    jobs: int = 20_000
    helper: tuple[str, ...] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    bulk: bool = False


def _venv(name: str, program: str) -> str:
    return str(cache_folder() / name / "bin" / program)


def _python(name: str, venv: str = "python") -> tuple[str, ...]:
    return (_venv(venv, "python"), str(BENCH / "peers" / f"{name}_peer.py"))


def dockwork_version() -> str:
    from dockwork.version import __version__

    return __version__


def _dockwork() -> list[Peer]:
    plain = Peer(
        name="dockwork",
        version=dockwork_version(),
        kind="dockwork",
        settings="100 slots; 1,000 completed jobs kept for an hour, with results, receipts, events",
        guarantee="at least once: lease 15 s, renewed; fenced by epochs; a settled job never runs again",
        program=(sys.executable, str(BENCH / "peers" / "dockwork_peer.py")),
        worker=(sys.executable, "-m", "dockwork", "worker", "dockwork_peer:app"),
        environ={
            "DOCKWORK_NAMESPACE": "bench",
            "DOCKWORK_QUEUES": "bench=100",
            "DOCKWORK_LOG_LEVEL": "ERROR",
        },
        bulk=True,
    )
    return [
        plain,
        replace(
            plain,
            name="dockwork, none kept",
            settings="100 slots; completed jobs deleted in the settle, as BullMQ is set here",
            environ={**plain.environ, "BENCH_KEEP": "none"},
        ),
        replace(
            plain,
            name="dockwork, /metrics",
            settings="100 slots; with probes and /metrics served",
            environ={**plain.environ, "DOCKWORK_PROBE_ADDR": "127.0.0.1:0"},
        ),
    ]


def _python_peers() -> list[Peer]:
    return [
        Peer(
            name="taskiq",
            version="0.13.0, taskiq-redis 1.2.4",
            kind="python",
            settings="stream broker, 1 worker process, 100 tasks, no results; scheduler at 1 s for E",
            guarantee="acknowledged after the run; taken over after 10 min, when a new message arrives",
            program=_python("taskiq"),
            worker=(
                _venv("python", "taskiq"),
                *("worker", "taskiq_peer:broker", "--workers", "1", "--max-async-tasks", "100"),
                *("--log-level", "ERROR", "--no-parse"),
            ),
            helper=(
                _venv("python", "taskiq"),
                *("scheduler", "taskiq_peer:scheduler", "--update-interval", "1", "--log-level", "ERROR"),
            ),
            jobs=10_000,
        ),
        Peer(
            name="dramatiq",
            version="2.2.1",
            kind="python",
            settings="1 process, 8 threads",
            guarantee="acknowledged after the run; a dead worker's jobs come back after 60 s or more, by chance",
            program=_python("dramatiq"),
            worker=(_venv("python", "dramatiq"), "dramatiq_peer", "--processes", "1", "--threads", "8"),
            jobs=10_000,
        ),
        Peer(
            name="saq",
            version="0.26.4",
            kind="python",
            settings="concurrency 50, ttl -1 (nothing kept)",
            guarantee="swept after its timeout (10 s by default), run again only if retries are set (1 try by default)",
            program=_python("saq", "saq"),
            worker=(_venv("saq", "saq"), "saq_peer.settings"),
            jobs=10_000,
        ),
        Peer(
            name="arq",
            version="0.28.0",
            kind="python",
            settings="max_jobs 100, results not kept, poll 50 ms (0.5 s by default)",
            guarantee="runs again once its in-progress key of 310 s has expired",
            program=_python("arq", "arq"),
            worker=(_venv("arq", "arq"), "arq_peer.WorkerSettings"),
            jobs=5_000,
        ),
        Peer(
            name="streaq",
            version="7.2.0",
            kind="python",
            settings="concurrency 64, ttl 0",
            guarantee="at least once: stream, idle time-out 60 s",
            program=_python("streaq"),
            worker=(_venv("python", "streaq"), "run", "streaq_peer:worker"),
            jobs=5_000,
            bulk=True,
        ),
        Peer(
            name="huey",
            version="3.5.4",
            kind="python",
            settings="8 threads, no results",
            guarantee="popped before the run: a crash loses the job",
            program=_python("huey"),
            worker=(_venv("python", "huey_consumer"), "huey_peer.huey", "-k", "thread", "-w", "8", "-q"),
            jobs=10_000,
        ),
        Peer(
            name="celery",
            version="5.7.0",
            kind="python",
            settings="10 threads, no results, no gossip, mingle or heartbeat",
            guarantee="acknowledged before the run (its default): a crash loses the job",
            program=_python("celery"),
            worker=(
                _venv("python", "celery"),
                *("-A", "celery_peer", "worker", "--pool", "threads", "-c", "10", "-l", "ERROR"),
                *("--without-gossip", "--without-mingle", "--without-heartbeat"),
            ),
            jobs=5_000,
        ),
        Peer(
            name="rq",
            version="3.0.0",
            kind="python",
            settings="SimpleWorker (no fork), result_ttl 0, with scheduler",
            guarantee="ends in the failed registry, is not run again",
            program=_python("rq"),
            worker=(
                _venv("python", "rq"),
                *("worker", "-w", "rq.worker.SimpleWorker", "--with-scheduler", "--quiet", "bench"),
            ),
            jobs=1_000,
            bulk=True,
        ),
    ]


def _others() -> list[Peer]:
    node, go = (
        ("node", str(cache_folder() / "bullmq" / "peer.mjs")),
        (str(cache_folder() / "asynq" / "asynq"),),
    )
    return [
        Peer(
            name="bullmq",
            version="6.7.0, ioredis 6.0.0",
            kind="node",
            settings="concurrency 50, removeOnComplete",
            guarantee="at least once: lock 30 s, stalled check each 30 s",
            program=node,
            worker=(*node, "worker"),
            bulk=True,
        ),
        Peer(
            name="asynq",
            version="0.26.0",
            kind="go",
            settings="concurrency 50, no retention",
            guarantee="at least once: lease 30 s, recoverer each minute",
            program=go,
            worker=(*go, "worker"),
        ),
    ]


def all_peers() -> list[Peer]:
    """Ours first, then the Python ones, then the rest."""
    return [*_dockwork(), *_python_peers(), *_others()]
