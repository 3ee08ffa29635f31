"""When a job that repeats is due again after a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dockwork import clock
from dockwork.core.repeat import Repeat, next_time
from dockwork.errors import DockworkError
from dockwork.store.protocol import Claim, Outcome, Settlement
from dockwork.worker.logs import get_logger

log = get_logger("run")


def repeat_of(options: Mapping[str, Any], job_id: str) -> Repeat | None:
    """The rule in an envelope's options; one that this version cannot read ends with this run, and is logged."""
    try:
        return Repeat.from_options(options)
    except DockworkError as error:
        log.warning("repeat_unreadable", job_id=job_id, error=str(error))
        return None


def with_next_time(repeat: Repeat, claim: Claim, settlement: Settlement, now_ms: int) -> Settlement:
    """`settlement` with the time at which the job is due next, if this outcome ends no more than a run.

    1. The handler returned, or
    2. the retries of this turn are used up: the next turn comes all the same.
    Whatever the handler ends itself (Discard, Unrecoverable, Cancelled) ends the repeating, too.
    """
    used_up = settlement.outcome in (Outcome.DEAD, Outcome.FAILED) and settlement.reason == "attempts"
    if settlement.outcome is not Outcome.COMPLETED and not used_up:
        return settlement
    planned_ms = claim.due_ms if claim.scheduled_for_ms is None else claim.scheduled_for_ms
    try:
        following = next_time(
            repeat, repeated=claim.repeated, due_ms=planned_ms, now_ms=now_ms, spread=clock.spread()
        )
    except DockworkError as error:  # a calendar without another instant
        log.warning("repeat_ended", job_id=claim.job_id, error=str(error))
        return settlement
    return settlement._replace(next_due_ms=following.at_ms, delay_ms=following.after_ms)
