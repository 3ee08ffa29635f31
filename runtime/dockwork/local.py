"""Running a job type's function here and now, without a store: `JobType.run`."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from datetime import datetime, timedelta
from typing import Any, TypeVar

from dockwork import clock
from dockwork.core.ids import ulid
from dockwork.core.jobs import JobInfo, StopReason
from dockwork.registry import JobType

R = TypeVar("R")

log = logging.getLogger("dockwork.local")

#: What `Context.deadline` counts with where the job type names no timeout; nothing cuts a local run.
USUAL_TIMEOUT = timedelta(minutes=5)


class LocalContext:
    """A `Context` of a run that no worker holds: never asked to stop, what it saves is kept in `saved`."""

    def __init__(self, job: JobInfo, deadline: datetime) -> None:
        self.job = job
        self.deadline = deadline
        self.should_stop = False
        self.stop_reason: StopReason | None = None
        self.saved: Any = None
        self.progressed: Any = None
        self.lines: list[str] = []

    @property
    def sync(self) -> LocalSyncContext:
        return LocalSyncContext(self)

    async def progress(self, value: Any) -> None:
        self.progressed = value

    async def checkpoint(self, value: Any) -> None:
        self.saved = value

    def log(self, message: str, **fields: Any) -> None:
        self.lines.append(message)
        log.info(message, extra={"job_id": self.job.id, "fields": fields})


class LocalSyncContext:
    """The blocking calls of a `LocalContext`."""

    def __init__(self, context: LocalContext) -> None:
        self._context = context

    def progress(self, value: Any) -> None:
        self._context.progressed = value

    def checkpoint(self, value: Any) -> None:
        self._context.saved = value


async def run_here(job_type: JobType[Any, R], arguments: dict[str, Any]) -> R:
    """Call the function with checked arguments: async ones on this loop, others in a thread."""
    if job_type.context_parameter is not None:
        job = JobInfo(id=ulid(clock.now_ms(), os.urandom(10)), type=job_type.name, queue=job_type.queue)
        deadline = clock.now() + (job_type.timeout or USUAL_TIMEOUT)
        arguments = {**arguments, job_type.context_parameter: LocalContext(job, deadline)}
    if job_type.is_async:
        result: R = await job_type.fn(**arguments)
        return result
    scope = contextvars.copy_context()
    return await asyncio.get_running_loop().run_in_executor(None, lambda: scope.run(job_type.fn, **arguments))
