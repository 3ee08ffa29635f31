"""``dockwork worker shop.jobs:app``: run an app's jobs until told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from types import FrameType
from typing import Any, NoReturn

import click

from dockwork.cli.apps import load_app
from dockwork.cli.exits import AppFailed
from dockwork.errors import DockworkError, InvalidUrl, InvalidValue
from dockwork.settings import Settings, parse_queues
from dockwork.worker import logs
from dockwork.worker.logs import configure, get_logger

log = get_logger("cli")

USAGE, REFUSED, INTERNAL = 2, 3, 70


@click.command("worker")
@click.argument("app")
@click.option("--queues", help="Queues to serve, with slots: mail=8,default=2. DOCKWORK_QUEUES beats it.")
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Slots in all. Default: the CPUs granted.")
@click.option("--show-jobs", is_flag=True, help="Log each job that ends, and of a failure the trace.")
def worker(app: str, queues: str | None, concurrency: int | None, show_jobs: bool) -> None:
    """Run the jobs of APP, such as shop.jobs:app, until SIGTERM.

    Redis and everything else come from the environment. Exit codes: 0 drained or put back, 2 usage,
    3 start refused, 4 no Redis at the end (leases bring the jobs back), 70 internal.
    """
    signal.signal(signal.SIGTERM, _end_before_start)
    try:
        settings = Settings.from_environ(os.environ)
    except DockworkError as error:
        _refuse(error)
    configure(settings.log_level, settings.log_format)
    if show_jobs:
        logs.show_jobs()
    try:
        loaded = load_app(app)
        served = None if queues is None else parse_queues(queues, "--queues")
        built = loaded.worker(queues=served, concurrency=concurrency)
    except (InvalidUrl, InvalidValue) as error:
        _refuse(error)
    except click.ClickException:
        raise
    except AppFailed as failed:
        log.error("app_failed", message=str(failed), exc_info=failed.error)
        _end(REFUSED)
    except Exception as error:
        log.error("app_failed", message=f"{app} gives no worker", exc_info=error)
        _end(REFUSED)
    _end(_run(built.run()))


def _run(work: Coroutine[Any, Any, int]) -> int:
    """The exit code of `work`. Not `asyncio.run`: it waits for tasks and threads that may never end."""
    loop = _new_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(work)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else INTERNAL
    except Exception as error:
        log.error("worker_failed", exc_info=error)
        return INTERNAL


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _end_before_start(number: int, frame: FrameType | None) -> None:
    """SIGTERM while the app is imported: nothing was claimed yet. The kernel drops it for PID 1 without a handler."""
    _end(0)


def _refuse(error: DockworkError) -> NoReturn:
    print(f"dockwork worker: {error}", file=sys.stderr)
    _end(REFUSED)


def _end(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
