"""`helm test` of the installed chart."""

from __future__ import annotations

import pytest

from support.house import RELEASE, SPACE, SYSTEM, House


@pytest.mark.covers("OP-333")
@pytest.mark.timeout(600)
def test_helm_test_runs_one_job_to_completion_and_cleans_up(house: House) -> None:
    said = house.cluster.helm("test", RELEASE, "-n", SYSTEM, "--timeout", "5m", timeout=360)
    assert said.count("Phase:          Succeeded") == 5
    queues = house.cluster.kubectl("get", "queues.dockwork.dev", "-n", SPACE, "-o", "name")
    assert "selftest" not in queues
    parts = house.cluster.kubectl(
        "get", "pods,configmaps,serviceaccounts,roles,rolebindings", "-n", SPACE, "-o", "name"
    )
    assert "selftest" not in parts
