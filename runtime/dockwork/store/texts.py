"""Texts that a job keeps, cut to their limits with a mark (RT-138)."""

from __future__ import annotations

import json
from dataclasses import replace

from dockwork.store.protocol import Failure

MARK = "... [cut]"
REASON_BYTES = 64
EXIT_BYTES = 512
FAILURE_BYTES = 8 * 1024
#: Of a failure in an error report, which has the job's names before it and 4 KiB in all.
REPORT_BYTES = 3840
#: The largest that a queue may allow, as for results.
PROGRESS_BYTES = 64 * 1024
LOG_BYTES = 16 * 1024
LOG_LINES = 100


def cut(text: str, size: int) -> str:
    """`text` in at most `size` bytes of UTF-8, with a mark if something is missing."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= size:
        return encoded.decode()
    return encoded[: max(0, size - len(MARK))].decode("utf-8", "ignore") + MARK


def fit(text: str, size: int) -> str:
    """`text` in at most `size` bytes of UTF-8, without a mark; half a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")


def encode_failure(failure: Failure, most: int = FAILURE_BYTES) -> bytes:
    """JSON of at most 8 KiB, or `most`: a long trace loses its beginning's rest first, then the message."""
    whole = _failure_json(failure)
    if len(whole) <= most:
        return whole
    # JSON may make six bytes of one; the limit is met by halving what is left.
    size = most // 2
    while len(whole) > most:
        whole = _failure_json(
            replace(
                failure,
                error_class=cut(failure.error_class, 256),
                message=cut(failure.message, size // 4),
                trace=cut(failure.trace, size),
                worker=cut(failure.worker, 256),
            )
        )
        size //= 2
    return whole


def _failure_json(failure: Failure) -> bytes:
    values = {
        "class": failure.error_class,
        "message": failure.message,
        "trace": failure.trace,
        "worker": failure.worker,
        "at": failure.at_ms,
    }
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def decode_failure(stored: bytes) -> Failure:
    values = json.loads(stored)
    return Failure(
        error_class=values["class"],
        message=values["message"],
        trace=values["trace"],
        worker=values["worker"],
        at_ms=values["at"],
    )


def fit_progress(value: bytes, most: int = PROGRESS_BYTES) -> bytes:
    """A progress value of at most `most` bytes; what is longer becomes a JSON string of its beginning."""
    if len(value) <= most:
        return value
    size = most - 64
    text = value.decode("utf-8", "replace")
    while True:
        shorter = json.dumps(cut(text, size), ensure_ascii=False).encode()
        if len(shorter) <= most:
            return shorter
        size //= 2


def fit_log_line(line: str) -> bytes:
    """One line of a job's log, at most 4 KiB, without line breaks."""
    return cut(line.replace("\n", " ").replace("\r", " "), 4096).encode("utf-8", "replace")
