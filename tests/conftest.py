"""What every tier shares: an environment without our variables."""

from __future__ import annotations

import os

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
