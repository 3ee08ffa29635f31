"""The error tree: what went wrong, in words for the person who reads the log.

A docstring is the message's first sentence. No error carries a payload or a credential.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any


class DockworkError(Exception):
    """Something in Dockwork refused or failed."""


class InvalidValue(DockworkError, ValueError):
    """A value is not what its field takes."""

    def __init__(self, field: str, *, expected: str, got: object) -> None:
        self.field = field
        self.expected = expected
        self.got = got
        super().__init__(f"{field}: expected {expected}, got {got!r}")


def require(condition: bool, field: str, *, expected: str, got: object) -> None:
    """Raise `InvalidValue` naming `field` unless `condition` holds."""
    if not condition:
        raise InvalidValue(field, expected=expected, got=got)


class InvalidArgs(DockworkError, ValueError):
    """The arguments do not fit the job type's signature. Nothing was stored.

    path            where, such as ``to.0``
    stored_schema   hash of the schema that stored arguments once passed; "" for a producer's
    """

    stored_schema: str = ""

    def __init__(self, job_type: str, path: str, *, expected: str, got: str) -> None:
        self.job_type = job_type
        self.path = path
        self.expected = expected
        self.got = got
        where = f"argument {path}" if path else "arguments"
        super().__init__(f"{job_type}: {where}: expected {expected}, got {got}")


class Undecodable(DockworkError):
    """A stored envelope cannot be read. The message says why and quotes nothing of it."""


class QueueFull(DockworkError):
    """The queue already holds as much as its limit allows. Nothing was added."""

    def __init__(self, queue: str, *, what: str, current: int, limit: int) -> None:
        self.queue = queue
        self.what = what
        self.depth = current
        self.limit = limit
        super().__init__(f"queue {queue} is full: {what} {current} of {limit}; nothing was added")


class QueueClosed(DockworkError):
    """The queue takes no new jobs. Nothing was added."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        super().__init__(f"queue {queue} is closed to new jobs; nothing was added")


class KeyReuse(DockworkError, ValueError):
    """An idempotency key was used before for other arguments. Nothing was added.

    job_id    the job that the key was used for
    """

    field = "idempotency_key"

    def __init__(self, queue: str, *, job_id: str) -> None:
        self.queue = queue
        self.job_id = job_id
        self.expected = f"the type and arguments of its first use, job {job_id}"
        self.got = "others"
        super().__init__(
            f"{self.field}: expected {self.expected} in queue {queue}, got others; nothing was added"
        )


class UniqueConflict(DockworkError):
    """Another job holds the unique key, and the new one may not take its place. Nothing was added.

    job_id    the job that holds it
    """

    field = "unique"

    def __init__(self, queue: str, *, job_id: str) -> None:
        self.queue = queue
        self.job_id = job_id
        self.expected = "a key that no job holds"
        self.got = f"that of job {job_id}"
        super().__init__(
            f"{self.field}: expected {self.expected} in queue {queue}, got {self.got}; nothing was added"
        )


class RoutingConflict(DockworkError, ValueError):
    """Two keys of one job name different partitions, so it could keep only one promise. Nothing was stored."""

    def __init__(self, field: str, *, expected: str, got: str) -> None:
        self.field = field
        self.expected = expected
        self.got = got
        super().__init__(f"{field}: expected {expected}, got {got}")


class TooLarge(DockworkError, ValueError):
    """A value exceeds its size limit. Nothing was stored."""

    def __init__(self, what: str, *, size: int, limit: int) -> None:
        self.what = what
        self.size = size
        self.limit = limit
        super().__init__(f"{what}: {size} bytes are more than the limit of {limit}")


class SchemaMismatch(DockworkError):
    """The data in Redis was written by another version that this code cannot read."""

    def __init__(self, *, found: int, readable: int) -> None:
        self.found = found
        self.readable = readable
        super().__init__(f"stored schema version {found}; this version of dockwork reads {readable}")


class StoreUnavailable(DockworkError):
    """Redis could not be reached, and nothing was sent.

    why       ``connect``, ``tls``, ``timeout``, ``loading`` or ``read_only``
    """

    def __init__(self, message: str = "Redis could not be reached", why: str = "connect") -> None:
        self.why = why
        super().__init__(message)


class OutcomeUnknown(DockworkError):
    """The reply was lost: the call may or may not have been carried out.

    ids       the job ids that the call named, to ask by
    """

    def __init__(
        self,
        message: str,
        ids: Sequence[str] = (),
        resolve: Callable[[], Awaitable[Any]] | None = None,
    ) -> None:
        self.ids = tuple(ids)
        self._resolve = resolve
        super().__init__(message)

    async def resolve(self) -> Any:
        """Ask by id what became of the call: one value per id, in order; None where nothing is stored."""
        if self._resolve is None:
            return [None for _ in self.ids]
        return await self._resolve()


class UnknownReply(DockworkError):
    """A script answered something that this version does not understand."""

    def __init__(self, script: str, reply: object) -> None:
        self.script = script
        super().__init__(f"script {script}: unknown reply {reply!r}")


class ScriptFailed(DockworkError):
    """Redis refused or failed to run a script."""

    def __init__(self, script: str, reason: str) -> None:
        self.script = script
        self.reason = reason
        super().__init__(f"script {script}: {reason}")


class AccessDenied(DockworkError):
    """Redis refused the login, or the login may not run a command."""


class InvalidUrl(DockworkError, ValueError):
    """A Redis URL cannot be used. The message never quotes it."""


class EncryptionError(DockworkError):
    """Values of this job type are sealed, and there is no key ring that could do it. Nothing was stored."""


class DecryptionError(EncryptionError):
    """A stored value cannot be opened. The message names the job type and the field, never the value."""

    def __init__(self, job_type: str, field: str, why: str) -> None:
        self.job_type = job_type
        self.field = field
        self.why = why
        super().__init__(f"{job_type}: {field} cannot be opened: {why}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_type, self.field, self.why)


class JobFailed(DockworkError):
    """The job ended without a result."""

    def __init__(self, job_id: str, state: str, reason: str) -> None:
        self.job_id = job_id
        self.state = state
        self.reason = reason
        super().__init__(f"job {job_id} is {state}: {reason}")


def text_of(error: BaseException) -> str:
    """What `error` says, though its ``__str__`` may itself be broken."""
    try:
        return str(error)
    except Exception:  # the user's code: an error that cannot be told is still that error
        return f"({type(error).__qualname__} without a text: its __str__ fails)"


# What a handler raises to say how its run ended.

#: Ten years, as for any delay of a job.
_LONGEST_S = 3653 * 24 * 3600


def _seconds(after: float | timedelta, field: str) -> float:
    if isinstance(after, timedelta):
        after = after.total_seconds()
    fits = isinstance(after, int | float) and not isinstance(after, bool) and 0 <= after <= _LONGEST_S
    require(fits, field, expected="seconds or a timedelta, 0 to ten years", got=after)
    return after


class Retry(DockworkError):
    """Run again after `after`, seconds or a timedelta, or by the backoff: a failed attempt."""

    def __init__(self, after: float | timedelta | None = None, reason: str = "retry") -> None:
        self.after = None if after is None else _seconds(after, "Retry.after")
        self.reason = reason
        super().__init__(reason)

    def __reduce__(self) -> tuple[Any, ...]:  # from a process pool, an error comes pickled
        return type(self), (self.after, self.reason)


class Snooze(DockworkError):
    """Run again after `after`, seconds or a timedelta; no counter changes."""

    def __init__(self, after: float | timedelta) -> None:
        self.after = _seconds(after, "Snooze.after")
        super().__init__(f"snoozed for {self.after} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.after,)


class Discard(DockworkError):
    """End the job as failed, without a dead letter."""


class Unrecoverable(DockworkError):
    """Bury the job at once: no retry can help."""


class Cancelled(DockworkError):
    """End the job as cancelled."""


class Interrupted(DockworkError):
    """The worker drains: put the job back; no counter changes."""


class TimedOut(DockworkError):
    """The run took longer than its timeout: a failed attempt."""
