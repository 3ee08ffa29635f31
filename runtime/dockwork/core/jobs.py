"""What a handler and its caller see of a job: `Context`, `JobInfo`, `Keep`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from dockwork.core.durations import Span, to_ms, to_span
from dockwork.errors import require

JOB_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")

#: Bytes of a job type's name.
LONGEST_TYPE = 64

LOWEST_PRIORITY = -100
HIGHEST_PRIORITY = 100


def check_job_id(job_id: str) -> str:
    """`job_id` itself, if it may name a job."""
    require(
        isinstance(job_id, str) and JOB_ID.fullmatch(job_id) is not None,
        "id",
        expected="1 to 64 characters of A-Z a-z 0-9 . _ : -",
        got=job_id,
    )
    return job_id


def check_job_type(name: str) -> str:
    """`name` itself, if it may name a job type."""
    fits = isinstance(name, str) and 0 < len(name.encode("utf-8", "replace")) <= LONGEST_TYPE
    # "@" joins a type and its schema hash in the name of a parked index.
    readable = fits and name.isprintable() and "@" not in name
    require(readable, "job type", expected="1 to 64 bytes, printable, without @", got=name)
    return name


def check_priority(priority: int) -> int:
    """`priority` itself, if a job may have it: the lower, the sooner."""
    require(
        isinstance(priority, int)
        and not isinstance(priority, bool)
        and LOWEST_PRIORITY <= priority <= HIGHEST_PRIORITY,
        "priority",
        expected="a whole number from -100 to 100",
        got=priority,
    )
    return priority


class StopReason(StrEnum):
    """Why a handler is asked to stop."""

    DRAIN = "drain"
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    #: The lease is another worker's now: whatever this run still does counts for nothing.
    LOST = "lost"


@dataclass(frozen=True, kw_only=True, slots=True)
class JobInfo:
    """The job that runs.

    attempt         1 for the first run; failed runs before this one, plus 1
    delivery        how often the job was claimed, this time included
    scheduled_for   the instant of the schedule's tick that made this job, if one did
    """

    id: str
    type: str
    queue: str
    attempt: int = 1
    delivery: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    scheduled_for: datetime | None = None


class SyncContext(Protocol):
    """The calls of `Context` that wait, for handlers that run in a thread."""

    def progress(self, value: Any) -> None:
        """Publish how far the job is: any JSON value, at most 4 KiB; written at most every 200 ms."""
        ...

    def checkpoint(self, value: Any) -> None:
        """Save `value` for the next run, which reads it as `saved`. Raises Interrupted during a drain."""
        ...


@runtime_checkable
class Context(Protocol):
    """What a running handler may ask and say. Annotate one parameter with it: ``ctx: Context``."""

    @property
    def job(self) -> JobInfo: ...

    @property
    def deadline(self) -> datetime:
        """When the run must be over (UTC): the earlier of the timeout and a drain's end."""
        ...

    @property
    def should_stop(self) -> bool:
        """True from the first of drain, cancel and timeout on."""
        ...

    @property
    def stop_reason(self) -> StopReason | None:
        """Why `should_stop` is true."""
        ...

    @property
    def saved(self) -> Any:
        """What an earlier run saved by `checkpoint`, or None."""
        ...

    @property
    def sync(self) -> SyncContext:
        """The same calls for a handler that runs in a thread."""
        ...

    async def progress(self, value: Any) -> None:
        """Publish how far the job is: any JSON value, at most 4 KiB; written at most every 200 ms."""
        ...

    async def checkpoint(self, value: Any) -> None:
        """Save `value` for the next run, which reads it as `saved`. Raises Interrupted during a drain."""
        ...

    def log(self, message: str, **fields: Any) -> None:
        """Keep a line with the job: the last 100 lines, 16 KiB in all. From any thread."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Keep:
    """How long completed jobs of a type stay to be looked at: each limit holds, the oldest go first.

    age       after the end
    count     jobs
    bytes     of their records
    """

    age: timedelta | None = None
    count: int | None = None
    bytes: int | None = None

    #: Kept until the memory for ended jobs is used up.
    forever: ClassVar[Keep]
    #: Deleted in the moment of completion.
    none: ClassVar[Keep]

    def __post_init__(self) -> None:
        require(
            self.age is None or isinstance(self.age, timedelta),
            "keep.age",
            expected="a timedelta; Keep.for_ takes seconds too",
            got=self.age,
        )
        for name in ("count", "bytes"):
            value = getattr(self, name)
            require(
                value is None or (isinstance(value, int) and value >= 0),
                f"keep.{name}",
                expected="a whole number, 0 or more",
                got=value,
            )

    @classmethod
    def for_(cls, age: Span, *, count: int | None = None, bytes: int | None = None) -> Keep:
        """Kept for `age` (seconds or a timedelta), and at most `count` jobs and `bytes`."""
        return cls(age=to_span(age, "keep.age"), count=count, bytes=bytes)

    def encode(self) -> str:
        """As a job's record holds it: ``none``, ``forever`` or ``<age_ms>,<count>,<bytes>`` with holes."""
        if self is Keep.none:
            return "none"
        if self is Keep.forever:
            return "forever"
        age = None if self.age is None else to_ms(self.age)
        return ",".join("" if limit is None else str(limit) for limit in (age, self.count, self.bytes))


Keep.forever = Keep()
Keep.none = Keep(count=0)
