"""What is to be done: the frozen outputs of `decide_queue`, and how their outcome comes back.

Every action knows its reason. `apply` carries the actions out in the order of `Plan.actions` (Redis config,
template, un-quiesce, scale, quiesce, cost, delete), stops at the first failure, then writes the status and
emits the events. What was really done returns as `Applied`, and `memory.remember` folds it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from dockwork_operator.decide.seen import OwnerSeen

if TYPE_CHECKING:
    from dockwork_operator.decide.memory import Memory


# --- actions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueSettings:
    """What the runtime reads in Redis: the operator's part of the queue's configuration (OP-027).

    The fields are those of the store's `QueueConfig` with the same names.
    """

    generation: int
    held: bool = False
    closed: bool = False
    timeout_ms: int | None = None
    max_timeout_ms: int | None = None
    max_attempts: int | None = None
    max_deliveries: int | None = None
    backoff: str | None = None
    max_depth: int | None = None
    max_bytes: int | None = None
    max_payload: int | None = None
    keep: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Configure:
    """Write `settings` and renew the owner record, unless another Queue owns the Redis queue."""

    settings: QueueSettings
    owner: OwnerSeen
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyChild:
    """Server-side apply of `manifest` (manager `dockwork`, force)."""

    manifest: Mapping[str, Any]
    reason: str

    @property
    def kind(self) -> str:
        return str(self.manifest["kind"])

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """PUT `/scale` of the Deployment `name`.

    seen              `spec.replicas` that the decision was made on: another value is a conflict
    resource_version  if given, the precondition as it is (every scale-down); else the one read just before
    """

    name: str
    to: int
    seen: int
    reason: str
    resource_version: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Quiesce:
    """Flag pods in Redis for 60 s: UID -> token. Given again at each tick while it is wanted."""

    requests: Mapping[str, str]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unquiesce:
    """Let these pods (UIDs) claim again."""

    pods: tuple[str, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeletionCost:
    """Set the pod's deletion cost annotation to `cost`, or remove it (None), if its UID is still `uid`."""

    pod: str
    uid: str
    cost: int | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeleteChild:
    """Delete an object with a uid precondition."""

    kind: str
    name: str
    uid: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Upkeep:
    """What workers do while there are any: promote due jobs, reap ended leases, expire, trim (OP-146)."""

    promote: bool = True
    reap: bool = True
    expire: bool = True
    trim: bool = True
    reason: str


Action = Configure | ApplyChild | Unquiesce | Scale | Quiesce | DeletionCost | DeleteChild | Upkeep


# --- events, plan ------------------------------------------------------------------------------------------


class EventType(StrEnum):
    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One transition, for `kubectl describe`. of: the action that it tells of; not done, not told."""

    reason: str
    message: str
    type: EventType = EventType.NORMAL
    of: Action | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """An increase of a counter metric of the operator, such as wrong victims or interrupted jobs."""

    metric: str
    by: int = 1
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """The decision of one reconcile.

    status         the whole status to write; None = what is stored says it already
    requeue_after  look again then, if nothing wakes the key before; None = the tick and the resync suffice
    memory         what to remember if nothing had to be done; `remember` adds what was done
    left_to        UID of the Lease of another installation that looks after the object, "" if none does
    """

    actions: tuple[Action, ...] = ()
    status: Mapping[str, Any] | None = None
    events: tuple[Event, ...] = ()
    counts: tuple[Count, ...] = ()
    requeue_after: timedelta | None = None
    memory: Memory
    generation: int = 0  #: of the spec that it was decided for
    left_to: str = ""


# --- the outcome -------------------------------------------------------------------------------------------


class FailureKind(StrEnum):
    """How an action failed; what follows is OP-101's."""

    CONFLICT = "Conflict"  #: 409 or 404: observe again
    FORBIDDEN = "Forbidden"  #: 403
    REJECTED = "ApplyRejected"  #: 422, quota, admission
    BUSY = "Busy"  #: 429, 5xx, no connection
    REDIS = "Redis"  #: the store was lost between the sample and the action
    OWNED = "QueueConflict"  #: the owner record belongs to another Queue


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyFailure:
    """The first action that failed, in the server's words. `verb` and `resource` as RBAC names them."""

    kind: FailureKind
    message: str
    verb: str = ""
    resource: str = ""
    retry_after: timedelta | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Applied:
    """What of a plan was carried out, in order, and what stopped it."""

    done: tuple[Action, ...] = ()
    failure: ApplyFailure | None = None
    status_written: bool = False
