"""Whether a worker lives and is ready: decided from one look at it, without asking Redis. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: A renewal thread that made no round for so many beats is dead or hung.
MISSED_BEATS = 3
#: A claim loop with free slots makes a pass at least each 15 s.
CLAIM_PASS_WITHIN_S = 30.0
#: What a handler may block the loop beyond its hard timeout.
BLOCKED_OVER_HARD_S = 30.0
#: The last answer of Redis may be so old.
ANSWER_WITHIN_S = 10.0
#: Of the lease: a loop that lags more is near to losing jobs.
LAG_OF_LEASE = 1 / 3


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSeen:
    """One queue's share of the worker.

    renewal_round_ago, claim_pass_ago    seconds
    can_claim                            a slot is free, and claims are allowed
    keyless                              jobs with sealed values came, and there was no key ring to open them with
    """

    queue: str
    lease_s: float
    beat_s: float
    renewal_alive: bool
    renewal_round_ago: float
    claim_pass_ago: float
    can_claim: bool
    quiesced: bool
    keyless: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSeen:
    """One look at the worker.

    started         connected, registered, and its lanes claim
    lag_s           how long the event loop has not answered
    over_hard_s     how long a handler has blocked the loop beyond its hard timeout; 0 = it does not
    redis_up        the last call was answered
    answered_ago    seconds; None = never
    """

    started: bool
    draining: bool
    lag_s: float
    over_hard_s: float
    redis_up: bool
    answered_ago: float | None
    failure: str = ""
    lanes: tuple[LaneSeen, ...] = ()


def why_not_alive(seen: WorkerSeen) -> str:
    """Why a restart would help, or "". A Redis outage is no reason: the next process would meet it too."""
    if seen.over_hard_s > BLOCKED_OVER_HARD_S:
        return f"a handler blocks the event loop {seen.over_hard_s:.0f} s beyond its hard timeout"
    if not seen.started:
        return ""
    for lane in seen.lanes:
        if not lane.renewal_alive or lane.renewal_round_ago > _longest_round(lane):
            return f"queue {lane.queue}: the renewal thread made no round for {lane.renewal_round_ago:.0f} s"
        # A blocked loop makes no pass either, and has its own rule above.
        blocked = seen.lag_s > CLAIM_PASS_WITHIN_S
        stale = lane.claim_pass_ago > CLAIM_PASS_WITHIN_S
        if stale and lane.can_claim and seen.redis_up and not blocked and not seen.draining:
            return f"queue {lane.queue}: no claim for {lane.claim_pass_ago:.0f} s with free slots"
    return ""


def why_not_ready(seen: WorkerSeen) -> str:
    """Why no work should be expected of this worker now, or ""."""
    if seen.draining:
        return "draining"
    if not seen.started:
        return seen.failure or "starting"
    if seen.answered_ago is None or seen.answered_ago > ANSWER_WITHIN_S:
        return "Redis does not answer"
    if seen.failure:
        return seen.failure
    for lane in seen.lanes:
        if lane.quiesced:
            return f"queue {lane.queue}: quiesced"
        if lane.keyless:
            return f"queue {lane.queue}: there is no key ring for its sealed values"
        if seen.lag_s > lane.lease_s * LAG_OF_LEASE:
            return f"the event loop lags {seen.lag_s:.1f} s"
    return ""


def _longest_round(lane: LaneSeen) -> float:
    # A round may also wait for a connection that is refused or silent: that is an outage, not a dead thread.
    return MISSED_BEATS * lane.beat_s + 15.0
