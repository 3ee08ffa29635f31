"""What every tier shares: an environment without our variables, and examples that a busy machine cannot fail."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is.
settings.register_profile("house", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("house")

for _name in [n for n in os.environ if n.startswith(("DOCKWORK_", "REDIS_"))]:
    # The bed and the cache are the machine's, not a setting of the software under test.
    if _name not in {
        "DOCKWORK_BED",
        "DOCKWORK_CACHE",
        "DOCKWORK_KEEP",
        "DOCKWORK_TEST_FULL",
        "DOCKWORK_TEST_KUBECONFIG",
    }:
        del os.environ[_name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is marked `full` to ``make test-full``: left out, not skipped."""
    if os.environ.get("DOCKWORK_TEST_FULL"):
        return
    long = [item for item in items if item.get_closest_marker("full")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
