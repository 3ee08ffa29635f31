"""Log lines: an event's name and pairs, as JSON or text, each with the job that it belongs to."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from dockwork.worker.runs import CURRENT

ROOT = "dockwork"

#: Off unless `show_jobs` is called: a line a job is much, and an error's message may hold what the user put in it.
SHOWN_JOBS = logging.getLogger(f"{ROOT}.jobs")
SHOWN_JOBS.setLevel(logging.CRITICAL)

#: Headers that callers use to join logs of several programs; they go into `context`.
CARRIED = frozenset(
    {"traceparent", "tracestate", "trace_id", "correlation_id", "correlation-id", "request_id"}
)


class Logger:
    """Writes events with pairs. The name of an event has no values in it."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, *, message: str = "", **data: Any) -> None:
        self._write(logging.DEBUG, event, message, data)

    def info(self, event: str, *, message: str = "", **data: Any) -> None:
        self._write(logging.INFO, event, message, data)

    def warning(
        self,
        event: str,
        *,
        message: str = "",
        exc_info: BaseException | None = None,
        trace: str = "",
        **data: Any,
    ) -> None:
        """`trace` stands for `exc_info` where the error itself must not be told, but a text of it may."""
        self._write(logging.WARNING, event, message, data, exc_info, trace)

    def error(
        self, event: str, *, message: str = "", exc_info: BaseException | None = None, **data: Any
    ) -> None:
        self._write(logging.ERROR, event, message, data, exc_info)

    def _write(
        self,
        level: int,
        event: str,
        message: str,
        data: Mapping[str, Any],
        error: BaseException | None = None,
        trace: str = "",
    ) -> None:
        if self._logger.isEnabledFor(level):
            said = message or event.replace("_", " ")
            extra = {
                "dockwork_event": event,
                "dockwork_data": data,
                "dockwork_said": said,
                "dockwork_trace": trace.rstrip(),
            }
            # Our formatters write the pairs by themselves. Another's knows the message alone: they are its arguments.
            # They stand in it by name: who counts messages by their text still sees one text for each event.
            text, pairs = said, " ".join(f"{name}=%({name})s" for name in data)
            if pairs:
                text = f"{said.replace('%', '%%')}: {pairs}"
            if trace:
                text += f"\n{trace.rstrip()}".replace("%", "%%" if data else "%")
            # A handler may have closed our stream, or hung its own filters in: a line that is lost must end nothing.
            with suppress(Exception):
                self._logger.log(level, text, *([data] if data else []), extra=extra, exc_info=error)


def get_logger(name: str) -> Logger:
    return Logger(f"{ROOT}.{name}")


class JsonFormatter(logging.Formatter):
    """``{"ts", "level", "event", "msg", "data", "context"}``, one object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _instant(record),
            "level": record.levelname.lower(),
            "event": _event(record),
            "msg": _said(record),
            "data": _data(record),
            "context": _context(),
        }
        if trace := _trace(self, record):
            line["trace"] = trace
        return json.dumps(line, default=str, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """The same for people: time, level, event, message, pairs."""

    def format(self, record: logging.LogRecord) -> str:
        pairs = " ".join(f"{name}={value}" for name, value in {**_data(record), **_context()}.items())
        parts = (_instant(record), f"{record.levelname:<7}", _event(record), _said(record), pairs)
        line = " ".join(part for part in parts if part)
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_info:
        return formatter.formatException(record.exc_info)
    return str(getattr(record, "dockwork_trace", ""))


_CONFIGURED: list[tuple[str, Literal["json", "text"]]] = []


def configured() -> tuple[str, Literal["json", "text"]] | None:
    """Level and format, if `configure` was called: a child process logs as its worker does."""
    return _CONFIGURED[-1] if _CONFIGURED else None


def configure(level: str, format: Literal["json", "text"], stream: TextIO | None = None) -> None:
    """Send every log line of this process to `stream` (standard error) in one format."""
    _CONFIGURED[:] = [(level, format)]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def flush_streams() -> None:
    """Before an end that flushes nothing by itself; a stream that somebody closed has nothing left."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def show_jobs() -> None:
    """Let each job that ends have a line, and a failure its message and its trace."""
    SHOWN_JOBS.setLevel(logging.NOTSET)


def jobs_are_shown() -> bool:
    return SHOWN_JOBS.isEnabledFor(logging.ERROR)


def _instant(record: logging.LogRecord) -> str:
    return (
        datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _event(record: logging.LogRecord) -> str:
    return getattr(record, "dockwork_event", "") or record.name


def _said(record: logging.LogRecord) -> str:
    said: str | None = getattr(record, "dockwork_said", None)
    return record.getMessage() if said is None else said


def _data(record: logging.LogRecord) -> dict[str, Any]:
    data = dict(getattr(record, "dockwork_data", {}))
    run = CURRENT.get()
    if run is not None:
        data.setdefault("job_id", run.lease.job_id)
        data.setdefault("job_type", run.claim.type)
    return data


def _context() -> dict[str, str]:
    run = CURRENT.get()
    if run is None:
        return {}
    return {name: value for name, value in run.headers.items() if name.lower() in CARRIED}
