"""How a run ended: an exception and the facts become one decision. Pure; the dice are thrown by the caller."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from dockwork.core.durations import to_ms
from dockwork.core.jobs import StopReason
from dockwork.errors import Cancelled, Discard, Interrupted, Retry, Snooze, TimedOut, Unrecoverable, text_of
from dockwork.store.protocol import Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of a run when it ends.

    attempts    failed before this one
    stopped     why the runtime stopped it, if it did
    """

    attempts: int
    max_attempts: int
    dead_letter: bool = True
    stopped: StopReason | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What becomes of the job.

    outcome     None = put back: nothing counts
    failed      the attempt counts as failed, and the error is kept
    """

    outcome: Outcome | None
    delay_ms: int = 0
    reason: str = ""
    failed: bool = False


PUT_BACK = Decision(outcome=None)
CANCELLED = Decision(outcome=Outcome.CANCELLED, reason="cancelled")


def decide_outcome(error: BaseException, facts: Facts, backoff: Callable[[int], timedelta]) -> Decision:
    """What an error that ended a run does to its job.

    backoff    the wait after so many failed attempts
    """
    # The runtime's own wish comes first: what a handler raises while it is being stopped is a consequence.
    if facts.stopped is StopReason.CANCEL:
        return CANCELLED
    if facts.stopped in (StopReason.DRAIN, StopReason.LOST):
        return PUT_BACK
    match error:
        case Interrupted():
            return PUT_BACK
        case Cancelled():
            return CANCELLED
        case Snooze():
            return Decision(outcome=Outcome.SNOOZE, delay_ms=_ms(error.after), reason="snooze")
        case Discard():
            return Decision(outcome=Outcome.FAILED, reason=text_of(error) or "discarded", failed=True)
        case Unrecoverable():
            return Decision(outcome=Outcome.DEAD, reason=text_of(error) or "unrecoverable", failed=True)
        case Retry(after=float() | int()):
            return _failed_attempt(facts, lambda _: timedelta(seconds=max(error.after or 0, 0)))
    return _failed_attempt(facts, backoff)


def told_error(error: BaseException, stopped: StopReason | None, timeout_s: float) -> BaseException:
    """The error to keep with the job: a run that was cancelled for its timeout failed by `TimedOut`."""
    if stopped is StopReason.TIMEOUT and isinstance(error, CancelledError | TimedOut):
        return TimedOut(f"the run took longer than its timeout of {timeout_s:g} s")
    return error


def _failed_attempt(facts: Facts, backoff: Callable[[int], timedelta]) -> Decision:
    failed = facts.attempts + 1
    if failed < facts.max_attempts:
        delay_ms = to_ms(backoff(failed))
        return Decision(outcome=Outcome.RETRY, delay_ms=delay_ms, reason="retry", failed=True)
    gone = Outcome.DEAD if facts.dead_letter else Outcome.FAILED
    return Decision(outcome=gone, reason="attempts", failed=True)


def _ms(after_s: float | None) -> int:
    return max(round((after_s or 0) * 1000), 0)
