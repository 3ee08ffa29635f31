"""One run of one claimed job, from the claim's reply to the settle's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import ContextVar
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from dockwork.core.jobs import StopReason
from dockwork.store.protocol import Claim, Lease, Settlement

if TYPE_CHECKING:
    from dockwork.core.repeat import Repeat
    from dockwork.worker.guards import Guard
    from dockwork.worker.threads import Elsewhere


class Phase(Enum):
    RUNNING = auto()
    SETTLING = auto()  #: its outcome is known and travels with the next settle
    RETURNING = auto()  #: it is being put back; an outcome that still comes is dropped
    GONE = auto()  #: settled, put back or lost: the lease is no longer ours


# On Python 3.11 a member looked up in its class costs more than the rest of the line it stands in, and a job's
# phase is looked at ten times.
RUNNING, SETTLING, RETURNING, GONE = Phase.RUNNING, Phase.SETTLING, Phase.RETURNING, Phase.GONE


#: Where no time is known yet.
NEVER = float("inf")
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Outputs(Protocol):
    """What a context may still hold of its run when the handler is over."""

    @property
    def has_lines(self) -> bool: ...
    async def flush_lines(self) -> None: ...
    def take_progress(self) -> bytes | None: ...


class Run:
    """What the worker knows of one delivery.

    started_at, soft_at, hard_at    seconds of this process' monotonic clock
    started_ms                      Redis TIME
    settlement                      None with phase SETTLING: completed, and nothing is left of it
    task                            while its handler runs; a task holds its context, and that holds the run
    """

    __slots__ = (
        "announced",
        "began",
        "claim",
        "context",
        "elsewhere",
        "guard",
        "hard_at",
        "headers",
        "job_id",
        "lease",
        "over",
        "phase",
        "plain",
        "repeat",
        "settlement",
        "soft_at",
        "started_at",
        "started_ms",
        "stop_reason",
        "task",
        "timeout_s",
    )

    def __init__(self, claim: Claim, started_at: float, started_ms: int) -> None:
        self.claim = claim
        self.lease: Lease = claim[0]
        self.job_id = self.lease[0]
        self.started_at = started_at
        self.started_ms = started_ms
        self.timeout_s = 0.0
        self.soft_at = NEVER
        self.hard_at = NEVER
        self.phase = RUNNING
        self.stop_reason: StopReason | None = None
        self.headers: Mapping[str, str] = _NO_HEADERS
        self.settlement: Settlement | None = None
        self.context: Outputs | None = None
        self.guard: Guard | None = None  #: where the job type seals values
        self.task: asyncio.Task[None] | None = None
        self.elsewhere: Elsewhere | None = None  #: the thread or the child process that has its handler
        self.repeat: Repeat | None = None
        self.began = False  #: the handler's task made its first step
        self.over = False  #: the handler returned or raised
        self.plain = False  #: its settlement could not be sent and was replaced by a plain failed attempt
        self.announced = False  #: `start` was sent

    def __repr__(self) -> str:
        return f"Run({self.claim.type} {self.lease.job_id} epoch={self.lease.epoch} {self.phase.name})"


#: The run that the current task or thread belongs to: logs name it.
CURRENT: ContextVar[Run | None] = ContextVar("dockwork_run", default=None)
