"""What a run may cost: timeouts, attempts and backoff, by precedence call, job type, queue, default. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from dockwork.core.retry import DEFAULT_BACKOFF, Backoff
from dockwork.errors import InvalidValue
from dockwork.store.protocol import Claim, QueueConfig

DEFAULT_TIMEOUT_S = 300.0
DEFAULT_ATTEMPTS = 4

#: From the soft timeout, when a run is asked to stop, to the hard one, when it is given up.
HARD_AFTER_S = 10.0

#: Bytes of a result, a checkpoint and a progress value, where the queue says nothing.
RESULT_CAP = 64 * 1024
CHECKPOINT_CAP = 64 * 1024
PROGRESS_CAP = 4 * 1024

#: Bytes of the trace that a failure keeps: its head and, longer, its tail. The store's own limit is above it.
TRACE_CAP = 6 * 1024


class Declared(Protocol):
    """The options that a job type says for itself; None = the queue's."""

    @property
    def retries(self) -> int | None: ...
    @property
    def timeout(self) -> timedelta | None: ...
    @property
    def backoff(self) -> Backoff | None: ...
    @property
    def dead_letter(self) -> bool: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """The options of one job type on one queue, before a call's own.

    most_s    no timeout may be longer, whoever says it
    """

    timeout_s: float = DEFAULT_TIMEOUT_S
    most_s: float | None = None
    max_attempts: int = DEFAULT_ATTEMPTS
    backoff: Backoff = DEFAULT_BACKOFF
    dead_letter: bool = True


def choose_policy(declared: Declared | None, queue: QueueConfig) -> Policy:
    """What the job type says, else the queue, else the default; a broken backoff in Redis counts as none."""
    timeout_s = DEFAULT_TIMEOUT_S if queue.timeout_ms is None else queue.timeout_ms / 1000
    attempts = DEFAULT_ATTEMPTS if queue.max_attempts is None else queue.max_attempts
    backoff = queue_backoff(queue) or DEFAULT_BACKOFF
    dead_letter = True
    if declared is not None:
        timeout_s = timeout_s if declared.timeout is None else declared.timeout.total_seconds()
        attempts = attempts if declared.retries is None else declared.retries + 1
        backoff = declared.backoff or backoff
        dead_letter = declared.dead_letter
    most_s = None if queue.max_timeout_ms is None else queue.max_timeout_ms / 1000
    return Policy(
        timeout_s=timeout_s, most_s=most_s, max_attempts=attempts, backoff=backoff, dead_letter=dead_letter
    )


def queue_backoff(queue: QueueConfig) -> Backoff | None:
    """The queue's own backoff, or None where nobody wrote one that can be read."""
    if queue.backoff is None:
        return None
    try:
        return Backoff.from_json(queue.backoff)
    except InvalidValue:
        return None


def timeout_of(claim: Claim, policy: Policy) -> float:
    """Seconds that this run may take before it is asked to stop."""
    timeout_s = policy.timeout_s if claim.timeout_ms is None else claim.timeout_ms / 1000
    return timeout_s if policy.most_s is None else min(timeout_s, policy.most_s)


def attempts_of(claim: Claim, policy: Policy) -> int:
    """Failed attempts after which the job is given up."""
    return policy.max_attempts if claim.max_attempts is None else claim.max_attempts
