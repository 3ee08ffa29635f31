"""The states of a job, the moves between them, and the reasons that go with a move."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a job is. It is in exactly one state; a state's name is its event's name."""

    READY = "ready"
    PRIORITIZED = "prioritized"
    DELAYED = "delayed"
    ACTIVE = "active"
    PROCESSING = "processing"
    COMPLETED = "completed"
    FAILED = "failed"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    PARKED = "parked"
    #: Computed: a ready or prioritized job of a paused queue.
    PAUSED = "paused"


#: Names that only the event stream knows.
ONLY_EVENTS = frozenset({"progress", "stalled", "resumed", "obliterated"})

WAITING = frozenset({State.READY, State.PRIORITIZED, State.DELAYED, State.PARKED, State.PAUSED})
RUNNING = frozenset({State.ACTIVE, State.PROCESSING})
ENDED = frozenset({State.COMPLETED, State.FAILED, State.DEAD, State.EXPIRED, State.CANCELLED})

_CLAIMABLE = frozenset({State.READY, State.PRIORITIZED})

#: A suspect, set aside so that jobs of one crash come back one by one.
_ASIDE = frozenset({State.DELAYED})

#: From a state to those that one script may move a job to. A state without a row fails a test.
MOVES: Mapping[State, frozenset[State]] = {
    State.READY: _ASIDE | {State.ACTIVE, State.EXPIRED, State.CANCELLED, State.PRIORITIZED, State.DEAD},
    State.PRIORITIZED: _ASIDE | {State.ACTIVE, State.EXPIRED, State.CANCELLED, State.READY, State.DEAD},
    State.DELAYED: _CLAIMABLE | {State.EXPIRED, State.CANCELLED},
    State.PAUSED: _CLAIMABLE | {State.EXPIRED, State.CANCELLED},
    State.PARKED: _CLAIMABLE | _ASIDE | {State.ACTIVE, State.EXPIRED, State.CANCELLED},
    State.ACTIVE: _CLAIMABLE | _ASIDE | {State.PROCESSING, State.PARKED, State.DEAD},
    State.PROCESSING: _CLAIMABLE
    | {State.COMPLETED, State.FAILED, State.DEAD, State.CANCELLED, State.DELAYED, State.PARKED},
    State.COMPLETED: frozenset(),
    State.FAILED: _CLAIMABLE,
    State.DEAD: _CLAIMABLE,
    State.EXPIRED: _CLAIMABLE,
    State.CANCELLED: _CLAIMABLE,
}
