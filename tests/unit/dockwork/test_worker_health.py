"""Alive and ready, decided from one look."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dockwork.worker.health import LaneSeen, WorkerSeen, why_not_alive, why_not_ready

LANE = LaneSeen(
    queue="mail",
    lease_s=15,
    beat_s=5,
    renewal_alive=True,
    renewal_round_ago=1,
    claim_pass_ago=1,
    can_claim=True,
    quiesced=False,
)
WELL = WorkerSeen(
    started=True, draining=False, lag_s=0, over_hard_s=0, redis_up=True, answered_ago=1, lanes=(LANE,)
)


def seen(lane: dict[str, Any] | None = None, **changes: Any) -> WorkerSeen:
    return replace(WELL, lanes=(replace(LANE, **(lane or {})),), **changes)


def test_a_well_worker_is_alive_and_ready() -> None:
    assert (why_not_alive(WELL), why_not_ready(WELL)) == ("", "")


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (seen({"renewal_alive": False}), "queue mail: the renewal thread made no round for 1 s"),
        (seen({"renewal_round_ago": 31}), "queue mail: the renewal thread made no round for 31 s"),
        (seen({"claim_pass_ago": 31}), "queue mail: no claim for 31 s with free slots"),
        (seen(over_hard_s=31), "a handler blocks the event loop 31 s beyond its hard timeout"),
    ],
)
@pytest.mark.covers("RT-123")
def test_a_wedged_worker_is_not_alive(look: WorkerSeen, reason: str) -> None:
    assert why_not_alive(look) == reason


@pytest.mark.parametrize(
    "look",
    [
        seen({"claim_pass_ago": 3600, "renewal_round_ago": 12}, redis_up=False, answered_ago=3600),
        seen({"claim_pass_ago": 3600, "can_claim": False}),
        seen({"claim_pass_ago": 3600, "quiesced": True, "can_claim": False}),
        seen({"claim_pass_ago": 200}, lag_s=200),
        seen({"claim_pass_ago": 200}, draining=True),
        seen(over_hard_s=29),
        seen(started=False, redis_up=False, answered_ago=None),
    ],
    ids=[
        "Redis down for an hour",
        "all slots busy",
        "quiesced",
        "loop blocked",
        "draining",
        "soon",
        "starting",
    ],
)
@pytest.mark.covers("RT-123")
def test_what_a_restart_would_not_mend_leaves_it_alive(look: WorkerSeen) -> None:
    assert why_not_alive(look) == ""


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (seen(draining=True), "draining"),
        (seen({"keyless": True}), "queue mail: there is no key ring for its sealed values"),
        (seen(started=False), "starting"),
        (seen(started=False, failure="SchemaMismatch: 2"), "SchemaMismatch: 2"),
        (seen(answered_ago=11), "Redis does not answer"),
        (seen(answered_ago=None), "Redis does not answer"),
        (seen({"quiesced": True}), "queue mail: quiesced"),
        (seen(lag_s=5.1), "the event loop lags 5.1 s"),
    ],
)
@pytest.mark.covers("RT-124", "RT-099")
def test_a_worker_that_should_get_no_work_is_not_ready(look: WorkerSeen, reason: str) -> None:
    assert why_not_ready(look) == reason
