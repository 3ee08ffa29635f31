"""Log lines: one object a line, ids in `data`, what callers carry in `context`, and no arguments."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from dockwork.store.protocol import Claim, Lease
from dockwork.worker.logs import JsonFormatter, TextFormatter, flush_streams, get_logger
from dockwork.worker.runs import CURRENT, Run


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger("dockwork.test")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield stream
    logger.removeHandler(handler)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def a_run() -> Run:
    claim = Claim(
        lease=Lease(job_id="j-1", epoch=3),
        type="mail",
        envelope=b'{"args":{"password":"hunter2"}}',
        attempts=0,
        deliveries=1,
        created_ms=0,
        due_ms=0,
    )
    run = Run(claim, 0.0, 0)
    run.headers = {"traceparent": "00-abc", "tenant": "blue"}
    return run


@pytest.mark.covers("RT-233")
def test_a_line_has_its_event_its_pairs_and_the_job_that_it_belongs_to(written: io.StringIO) -> None:
    token = CURRENT.set(a_run())
    try:
        get_logger("test").warning("lease_lost", epoch=3)
        logging.getLogger("dockwork.test").info("what the %s says", "handler")
    finally:
        CURRENT.reset(token)
    get_logger("test").debug("too_quiet")

    ours, handlers = lines(written)
    assert set(ours) == {"ts", "level", "event", "msg", "data", "context"}
    assert (ours["level"], ours["event"], ours["msg"]) == ("warning", "lease_lost", "lease lost")
    assert ours["data"] == {"epoch": 3, "job_id": "j-1", "job_type": "mail"}
    assert ours["context"] == {"traceparent": "00-abc"}
    assert (handlers["event"], handlers["msg"]) == ("dockwork.test", "what the handler says")
    assert handlers["data"] == {"job_id": "j-1", "job_type": "mail"}
    assert "hunter2" not in written.getvalue()


@pytest.mark.covers("RT-233")
def test_a_formatter_of_the_users_own_sees_all_in_the_message(caplog: pytest.LogCaptureFixture) -> None:
    log = get_logger("test")
    with caplog.at_level(logging.INFO, "dockwork.test"):
        log.warning("run_failed", job_id="j-1", job_type="mail", attempt=2, error="ValueError")
        log.error("child_not_started", message="100 % of it is gone", job_type="mail")
        log.info("quiet")

    failed, gone, quiet = caplog.records
    assert failed.getMessage() == "run failed: job_id=j-1 job_type=mail attempt=2 error=ValueError"
    assert (
        failed.msg
        == "run failed: job_id=%(job_id)s job_type=%(job_type)s attempt=%(attempt)s error=%(error)s"
    )
    assert gone.getMessage() == "100 % of it is gone: job_type=mail"
    assert quiet.getMessage() == "quiet"


@pytest.mark.covers("RT-233")
def test_text_has_the_same_for_people() -> None:
    record = logging.LogRecord("dockwork.test", logging.INFO, "", 0, "Redis answers again", (), None)
    record.dockwork_event, record.dockwork_data = "redis_answers", {"failures": 3}

    line = TextFormatter().format(record)

    assert line.split(" ", 1)[1] == "INFO    redis_answers Redis answers again failures=3"


@pytest.mark.covers("RT-233")
def test_a_trace_that_is_a_text_stands_where_that_of_an_error_would(
    written: io.StringIO, caplog: pytest.LogCaptureFixture
) -> None:
    get_logger("test").warning("run_failed", message="100 % wrong", trace="Traceback\n  at 7 %\n", n=1)

    (line,) = lines(written)
    (record,) = caplog.records
    assert (line["msg"], line["data"], line["trace"]) == ("100 % wrong", {"n": 1}, "Traceback\n  at 7 %")
    assert TextFormatter().format(record).endswith(" 100 % wrong n=1\nTraceback\n  at 7 %")
    assert record.getMessage() == "100 % wrong: n=1\nTraceback\n  at 7 %"


def test_a_line_for_a_stream_that_a_handler_closed_is_lost_and_raises_nothing(
    written: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)  # where logging tells of a stream that fails
    monkeypatch.setattr("sys.stdout", closed)
    get_logger("test").info("before")
    handler = logging.getLogger("dockwork.test").handlers[-1]
    assert isinstance(handler, logging.StreamHandler)
    monkeypatch.setattr(handler, "stream", closed)

    get_logger("test").warning("run_failed", job_id="j-1")
    flush_streams()

    assert [line["event"] for line in lines(written)] == ["before"]
