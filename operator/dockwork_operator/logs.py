"""Log lines as JSON: an event name and pairs, one line per decision that changed something.

Values are names, numbers and our own sentences. A URL, a Secret's content or a payload is never one of them.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO


class EventLog:
    """Writes `log.info("scaled", object="Queue/shop/mail", to=3)` style lines through the standard library."""

    def __init__(self, name: str) -> None:
        self._log = logging.getLogger(name)

    def debug(self, event: str, **pairs: object) -> None:
        self._log.debug(event, extra={"pairs": pairs})

    def info(self, event: str, **pairs: object) -> None:
        self._log.info(event, extra={"pairs": pairs})

    def warning(self, event: str, **pairs: object) -> None:
        self._log.warning(event, extra={"pairs": pairs})

    def error(self, event: str, **pairs: object) -> None:
        self._log.error(event, extra={"pairs": pairs})

    def failure(self, event: str, error: BaseException, **pairs: object) -> None:
        """An error of our own code, with its trace: the only place where one is written."""
        self._log.error(event, extra={"pairs": {**pairs, "error": str(error), "trace": _trace(error)}})


class JsonLines(logging.Formatter):
    """One JSON object per record; records of other libraries carry their text as the event."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line.update(getattr(record, "pairs", {}))
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = str(record.exc_info[1])
        return json.dumps(line, default=str, ensure_ascii=False)


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Send every logger's records to `stream` (stderr) as JSON lines; other libraries' only from warnings on."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("dockwork_operator").setLevel(level.upper())
    # kopf warns at each start that signals are not its business in a thread; that is as we want it.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-12, chain=False))[-4000:]
