"""After a failure: when may a key act again?"""

from __future__ import annotations

from datetime import timedelta

import pytest

from dockwork_operator.apply.carry_out import failure_of
from dockwork_operator.decide.plan import ApplyFailure, FailureKind
from dockwork_operator.errors import (
    Busy,
    Conflict,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    Rejected,
    Unreachable,
)
from dockwork_operator.kube.resources import QUEUES, ObjectKey
from dockwork_operator.loop.pace import Pace

MAIL = ObjectKey(QUEUES, "shop", "mail")


def a_failure(kind: FailureKind, retry_after: float | None = None) -> ApplyFailure:
    after = timedelta(seconds=retry_after) if retry_after is not None else None
    return ApplyFailure(kind=kind, message="injected", retry_after=after)


@pytest.mark.covers("OP-101")
async def test_a_conflict_is_tried_again_at_once_three_times_then_backs_off() -> None:
    pace = Pace(lambda: 0.5)
    waits = [pace.failed(MAIL, 1, a_failure(FailureKind.CONFLICT)) for _ in range(5)]
    assert waits == [0.0, 0.0, 0.0, 6.0, 12.0]


@pytest.mark.covers("OP-101")
async def test_a_wait_ends_with_a_new_generation_of_the_spec() -> None:
    pace = Pace(lambda: 0.5)
    assert pace.failed(MAIL, 1, a_failure(FailureKind.BUSY, retry_after=300)) == 300.0
    assert not pace.may_act(MAIL, 1)
    assert pace.may_act(MAIL, 2)


@pytest.mark.covers("OP-101")
async def test_a_busy_server_is_given_at_least_the_time_it_asked_for() -> None:
    pace = Pace(lambda: 0.0)
    assert pace.failed(MAIL, 1, a_failure(FailureKind.BUSY, retry_after=7)) == 7.0
    waits = [pace.failed(MAIL, 1, a_failure(FailureKind.BUSY)) for _ in range(9)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]  # jitter takes off up to a half


async def test_success_forgets_every_failure() -> None:
    pace = Pace(lambda: 0.5)
    pace.failed(MAIL, 1, a_failure(FailureKind.REJECTED))
    pace.went_well(MAIL)
    assert pace.may_act(MAIL, 1)


@pytest.mark.covers("OP-101")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NotFound, FailureKind.CONFLICT),
        (Conflict, FailureKind.CONFLICT),
        (Gone, FailureKind.CONFLICT),
        (Forbidden, FailureKind.FORBIDDEN),
        (Rejected, FailureKind.REJECTED),
        (Busy, FailureKind.BUSY),
        (Unreachable, FailureKind.BUSY),
    ],
)
def test_each_refusal_of_the_api_server_has_its_kind(error: type[KubeError], kind: FailureKind) -> None:
    failure = failure_of(error("no", verb="patch", resource="deployments.apps"))
    assert failure.kind is kind
    assert (failure.verb, failure.resource, failure.message) == ("patch", "deployments.apps", "no")
