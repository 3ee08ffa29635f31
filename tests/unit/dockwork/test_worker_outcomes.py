"""What an ended run does to its job."""

from __future__ import annotations

import asyncio
import pickle
from datetime import timedelta
from typing import Any

import pytest

from dockwork.core.jobs import StopReason
from dockwork.core.retry import Backoff
from dockwork.errors import (
    Cancelled,
    Discard,
    Interrupted,
    InvalidValue,
    Retry,
    Snooze,
    TimedOut,
    Unrecoverable,
)
from dockwork.store.protocol import Claim, Lease, Outcome, QueueConfig
from dockwork.worker.outcomes import CANCELLED, PUT_BACK, Decision, Facts, decide_outcome, told_error
from dockwork.worker.policies import (
    DEFAULT_ATTEMPTS,
    DEFAULT_TIMEOUT_S,
    Policy,
    attempts_of,
    choose_policy,
    timeout_of,
)

FRESH = Facts(attempts=0, max_attempts=4)
LAST = Facts(attempts=3, max_attempts=4)


def two_seconds(failed: int) -> timedelta:
    return timedelta(seconds=2 * failed)


@pytest.mark.parametrize(
    ("error", "facts", "decision"),
    [
        (
            ValueError("no"),
            FRESH,
            Decision(outcome=Outcome.RETRY, delay_ms=2000, reason="retry", failed=True),
        ),
        (ValueError("no"), LAST, Decision(outcome=Outcome.DEAD, reason="attempts", failed=True)),
        (
            Retry(after=30),
            FRESH,
            Decision(outcome=Outcome.RETRY, delay_ms=30_000, reason="retry", failed=True),
        ),
        (Retry(), FRESH, Decision(outcome=Outcome.RETRY, delay_ms=2000, reason="retry", failed=True)),
        (Retry(after=30), LAST, Decision(outcome=Outcome.DEAD, reason="attempts", failed=True)),
        (Retry(after=0), FRESH, Decision(outcome=Outcome.RETRY, delay_ms=0, reason="retry", failed=True)),
        (Snooze(5), LAST, Decision(outcome=Outcome.SNOOZE, delay_ms=5000, reason="snooze")),
        (Discard("spam"), FRESH, Decision(outcome=Outcome.FAILED, reason="spam", failed=True)),
        (Unrecoverable("gone"), FRESH, Decision(outcome=Outcome.DEAD, reason="gone", failed=True)),
        (Cancelled(), FRESH, CANCELLED),
        (Interrupted(), LAST, PUT_BACK),
        (SystemExit(1), LAST, Decision(outcome=Outcome.DEAD, reason="attempts", failed=True)),
        (
            asyncio.CancelledError(),
            FRESH,
            Decision(outcome=Outcome.RETRY, delay_ms=2000, reason="retry", failed=True),
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
@pytest.mark.covers("RT-133")
def test_what_a_handler_raises_decides(error: BaseException, facts: Facts, decision: Decision) -> None:
    assert decide_outcome(error, facts, two_seconds) == decision


@pytest.mark.covers("RT-133")
def test_a_type_without_dead_letters_fails_when_its_attempts_are_used() -> None:
    facts = Facts(attempts=3, max_attempts=4, dead_letter=False)

    got = decide_outcome(ValueError("no"), facts, two_seconds)

    assert got == Decision(outcome=Outcome.FAILED, reason="attempts", failed=True)


@pytest.mark.parametrize(
    ("stopped", "decision"),
    [
        (StopReason.CANCEL, CANCELLED),
        (StopReason.DRAIN, PUT_BACK),
        (StopReason.LOST, PUT_BACK),
        (StopReason.TIMEOUT, Decision(outcome=Outcome.RETRY, delay_ms=2000, reason="retry", failed=True)),
    ],
)
def test_the_runtime_that_stopped_a_run_has_the_last_word(stopped: StopReason, decision: Decision) -> None:
    facts = Facts(attempts=0, max_attempts=4, stopped=stopped)

    assert decide_outcome(RuntimeError("while being stopped"), facts, two_seconds) == decision


@pytest.mark.covers("RT-105")
def test_a_run_that_was_cancelled_for_its_timeout_failed_by_it() -> None:
    told = told_error(asyncio.CancelledError(), StopReason.TIMEOUT, 1.5)

    assert isinstance(told, TimedOut)
    assert str(told) == "the run took longer than its timeout of 1.5 s"
    error = ValueError("something else")
    assert told_error(error, StopReason.TIMEOUT, 1.5) is error


class Said:
    """The options of a job type."""

    def __init__(
        self,
        retries: int | None = None,
        timeout: timedelta | None = None,
        backoff: Backoff | None = None,
        dead_letter: bool = True,
    ) -> None:
        self.retries = retries
        self.timeout = timeout
        self.backoff = backoff
        self.dead_letter = dead_letter


def a_claim(timeout_ms: int | None = None, max_attempts: int | None = None) -> Claim:
    return Claim(
        lease=Lease(job_id="a", epoch=1),
        type="t",
        envelope=b"",
        attempts=0,
        deliveries=1,
        created_ms=0,
        due_ms=0,
        timeout_ms=timeout_ms,
        max_attempts=max_attempts,
    )


def test_a_call_beats_the_job_type_beats_the_queue_beats_the_default() -> None:
    queue = QueueConfig(timeout_ms=20_000, max_attempts=7, backoff=Backoff.fixed(9).to_json())
    silent, spoken = Said(), Said(retries=1, timeout=timedelta(seconds=10), backoff=Backoff.fixed(3))

    by_default = choose_policy(silent, QueueConfig())
    by_queue = choose_policy(silent, queue)
    by_type = choose_policy(spoken, queue)

    assert (by_default.timeout_s, by_default.max_attempts) == (DEFAULT_TIMEOUT_S, DEFAULT_ATTEMPTS)
    assert (by_queue.timeout_s, by_queue.max_attempts, by_queue.backoff) == (20, 7, Backoff.fixed(9))
    assert (by_type.timeout_s, by_type.max_attempts, by_type.backoff) == (10, 2, Backoff.fixed(3))
    call = a_claim(timeout_ms=1500, max_attempts=1)
    assert (timeout_of(call, by_type), attempts_of(call, by_type)) == (1.5, 1)
    assert (timeout_of(a_claim(), by_type), attempts_of(a_claim(), by_type)) == (10, 2)


def test_no_timeout_passes_the_longest_of_the_queue() -> None:
    policy = choose_policy(Said(timeout=timedelta(seconds=60)), QueueConfig(max_timeout_ms=30_000))

    assert timeout_of(a_claim(), policy) == 30
    assert timeout_of(a_claim(timeout_ms=90_000), policy) == 30
    assert timeout_of(a_claim(timeout_ms=5_000), policy) == 5


@pytest.mark.covers("RT-130")
def test_a_backoff_that_nobody_can_read_never_stops_a_retry() -> None:
    assert choose_policy(None, QueueConfig(backoff="{broken")) == Policy()


@pytest.mark.parametrize(
    "after", [float("nan"), float("inf"), 1e300, 1e17, -1, "5", True, timedelta(days=3654)]
)
def test_a_wait_that_no_job_can_have_is_refused_where_it_is_written(after: Any) -> None:
    for told in (Retry, Snooze):
        with pytest.raises(InvalidValue, match=rf"{told.__name__}.after: expected seconds or a timedelta"):
            told(after)


def test_a_timedelta_is_a_wait_and_survives_a_pickle() -> None:
    retry, snooze = pickle.loads(pickle.dumps((Retry(timedelta(minutes=1)), Snooze(timedelta(hours=1)))))

    assert decide_outcome(retry, FRESH, two_seconds).delay_ms == 60_000
    assert decide_outcome(snooze, FRESH, two_seconds).delay_ms == 3_600_000
