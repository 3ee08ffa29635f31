"""`dockwork-operator run`: the operator as a process. In a pod it is PID 1."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence

import dockwork
from dockwork.errors import InvalidValue
from dockwork_operator.errors import ConfigurationError
from dockwork_operator.kube.credentials import Login, find_login
from dockwork_operator.logs import EventLog, configure_logging
from dockwork_operator.settings import Settings

log = EventLog("dockwork_operator")

#: Seconds from the wish to end until the process is ended by force; a pod's grace is 30 s.
END_WITHIN = 25.0


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 ended as told, 1 must be started again, 2 wrong settings or arguments."""
    parser = argparse.ArgumentParser(prog="dockwork-operator", description="The Dockwork operator.")
    parser.add_argument("--version", action="version", version=dockwork.__version__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("run", help="watch Queues and CronJobs, and run their workers")
    parser.parse_args(argv)
    return run(os.environ)


def run(environ: Mapping[str, str]) -> int:
    """Run until SIGTERM or SIGINT, or until something makes a new start necessary."""
    try:
        settings = Settings.from_environ(environ)
        login = find_login(environ)
    except (InvalidValue, ConfigurationError) as error:
        print(f"dockwork-operator: {error}", file=sys.stderr)  # noqa: T201
        return 2
    configure_logging(settings.log_level)
    # kopf asks for it before our identity reaches it, and a uid without passwd entry has no other.
    os.environ.setdefault("POD_ID", settings.pod_name)
    try:
        code = asyncio.run(_run(settings, login))
    except Exception as error:
        log.failure("ended_by_error", error)
        code = 1
    _leave(code)
    return code


async def _run(settings: Settings, login: Login) -> int:
    # Imported late: wrong settings are told without the second that these imports take.
    from dockwork_operator.process import Operator

    operator = Operator(settings, login, ending=lambda: end_by_force_after(END_WITHIN))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, operator.stop)
    log.info("started", version=dockwork.__version__, identity=operator.leader.identity)
    code = await operator.run()
    log.info("ended", code=code, reason=operator.failure)
    return code


def end_by_force_after(seconds: float) -> None:
    """A thread that ends the process if it still lives then: PID 1 ignores a SIGKILL that it sends itself."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


def _leave(code: int) -> None:
    """Flush and leave at once: the watches' thread may sit in a request that nobody waits for."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
