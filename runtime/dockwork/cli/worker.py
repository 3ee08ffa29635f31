"""``dockwork worker shop.jobs:app``: run an app's jobs until told to stop."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from dockwork.cli.apps import load_app
from dockwork.cli.exits import AppFailed
from dockwork.cli.importing import collector_at_rest
from dockwork.core.slots import Slots, parse_slots
from dockwork.errors import DockworkError, InvalidUrl, InvalidValue
from dockwork.settings import Settings
from dockwork.worker import logs
from dockwork.worker.logs import configure, get_logger
from dockwork.worker.loops import run_to_end, spare_collector

log = get_logger("cli")

USAGE, REFUSED = 2, 3


@click.command("worker")
@click.argument("app")
@click.option(
    "--queues",
    help="Queues to serve, each with slots of its own, and slots that they share: mail=8,default=2,*=4. "
    "By weight: mail=8:3,default=2:1,*=4; in the order of the list: *=4:strict. DOCKWORK_QUEUES beats it.",
)
@click.option("--concurrency", type=click.IntRange(1, 1000), help="Slots in all. Default: the CPUs granted.")
@click.option("--max-jobs", type=click.IntRange(1), help="Drain and end with 0 after so many jobs.")
@click.option("--max-rss", help="The same above so much memory: 512Mi.")
@click.option("--max-jobs-per-child", type=click.IntRange(1), help="Jobs of a child process. Default: 1000.")
@click.option("--max-rss-per-child", help="Memory of a child process after a job, such as 512Mi.")
@click.option("--show-jobs", is_flag=True, help="Log each job that ends, and of a failure the trace.")
def worker(
    app: str,
    queues: str | None,
    concurrency: int | None,
    max_jobs: int | None,
    max_rss: str | None,
    max_jobs_per_child: int | None,
    max_rss_per_child: str | None,
    show_jobs: bool,
) -> None:
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
        slots = _slots(queues or "")
        with collector_at_rest():  # it imports the half of what a worker needs
            built = loaded.worker(
                queues=slots.queues or None,
                shared=slots.shared,
                concurrency=concurrency,
                max_jobs=max_jobs,
                max_rss=max_rss,
                max_jobs_per_child=max_jobs_per_child,
                max_rss_per_child=max_rss_per_child,
            )
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
    spare_collector()
    _end(run_to_end(built.run))


def _slots(text: str) -> Slots:
    try:
        return parse_slots(text, "--queues")
    except InvalidValue as error:
        raise click.UsageError(str(error)) from None


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
