"""One API server for all tests of this tier, one namespace and an emptied Redis for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.apiserver import ApiServer
from support.operators import NUMBERS, Cluster, login_of
from support.waiting import until

CRDS = Path(__file__).parents[2] / "crds" / "crds.yaml"


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """etcd and kube-apiserver with our CRDs."""
    with ApiServer() as server:
        server.kubectl("apply", "--server-side", "-f", str(CRDS))
        for name in ("queues", "queuecronjobs"):
            until(lambda name=name: server.try_kubectl("get", f"{name}.dockwork.dev", "-A").returncode == 0, within=30)
        yield server


@pytest.fixture
async def cluster(api_server: ApiServer) -> AsyncIterator[Cluster]:
    """A namespace of its own, as an administrator."""
    made = Cluster(login_of(api_server.kubeconfig), f"t{next(NUMBERS)}")
    await made.open()
    yield made
    await made.close()
