"""How long a pod may take to end, computed from how long a job may run (OP-220)."""

from __future__ import annotations

from datetime import timedelta
from math import ceil

from dockwork_operator.models.queues import QueueSpec

MARGIN_SECONDS = 10
"""5 s for the last settles and 5 s for the exit."""

_BEFORE_END_SECONDS = 4
"""The runtime puts back 1 s before its own deadline, so what still runs is put back 5 s before the kill."""


PRE_STOP_SECONDS = 2
"""A pod told to end in its first moment: SIGTERM waits so long for Python to have a handler; it is of the grace."""


def grace_seconds(spec: QueueSpec) -> int:
    """``terminationGracePeriodSeconds`` of the worker pods: only `spec` enters, so figures never start a rollout."""
    if isinstance(spec.drain.grace_period, timedelta):
        return ceil(spec.drain.grace_period.total_seconds())
    return ceil(spec.jobs.longest.total_seconds()) + MARGIN_SECONDS


def drain_timeout_seconds(grace: int) -> int:
    """``DOCKWORK_DRAIN_TIMEOUT`` for a pod with `grace` seconds, at least 1."""
    return max(1, grace - PRE_STOP_SECONDS - _BEFORE_END_SECONDS)
