"""`helm test` of the installed chart."""

from __future__ import annotations

import pytest

from support.house import RELEASE, SPACE, SYSTEM, House


@pytest.mark.covers("OP-333")
@pytest.mark.timeout(420)
def test_helm_test_runs_one_job_to_completion_and_cleans_up(house: House) -> None:
    house.cluster.helm("test", RELEASE, "-n", SYSTEM, "--timeout", "5m", timeout=360)
    said = house.cluster.kubectl("logs", "-n", SPACE, f"{RELEASE}-selftest")
    for step in (
        "applied",
        "accepted by the operator",
        "one job run to completion",
        "back to no pods",
        "removed",
    ):
        assert step in said
    queues = house.cluster.kubectl("get", "queues.dockwork.dev", "-n", SPACE, "-o", "name")
    assert "selftest" not in queues
    parts = house.cluster.kubectl(
        "get", "configmaps,serviceaccounts,roles,rolebindings", "-n", SPACE, "-o", "name"
    )
    assert "selftest" not in parts, "only the test's own pod stays, for its log"
