"""One API server for all tests of this tier, one namespace and an emptied Redis for each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dockwork.store.redis import RedisStore
from dockwork_operator.kube.credentials import KubeConfigFile
from support.apiserver import ApiServer
from support.faults import FaultyProxy
from support.operators import NUMBERS, Cluster, login_of
from support.redis_server import RedisServer
from support.waiting import until

CRDS = Path(__file__).parents[2] / "crds" / "crds.yaml"


def pytest_configure(config: pytest.Config) -> None:
    # The fault-injecting proxy cuts TLS connections in the middle, as faults do; nobody says farewell on those.
    config.addinivalue_line("filterwarnings", "ignore:unclosed:ResourceWarning")


@pytest.fixture(scope="session")
def api_server() -> Iterator[ApiServer]:
    """etcd and kube-apiserver with our CRDs."""
    with ApiServer() as server:
        server.kubectl("apply", "--server-side", "-f", str(CRDS))
        for name in ("queues", "queuecronjobs"):
            until(
                lambda name=name: server.try_kubectl("get", f"{name}.dockwork.dev", "-A").returncode == 0,
                within=30,
            )
        yield server


@pytest.fixture
async def cluster(api_server: ApiServer) -> AsyncIterator[Cluster]:
    """A namespace of its own, as an administrator."""
    made = Cluster(login_of(api_server.kubeconfig), f"t{next(NUMBERS)}")
    await made.open()
    yield made
    await made.close()


@pytest.fixture(scope="session")
def redis_process() -> Iterator[RedisServer]:
    with RedisServer(port=0, password="s3cret-of-redis") as server:
        yield server


@pytest.fixture
def redis(redis_process: RedisServer) -> RedisServer:
    """The default Redis of the tests, emptied."""
    redis_process.flush()
    return redis_process


@pytest.fixture
async def store(redis: RedisServer) -> AsyncIterator[RedisStore]:
    """What producers and workers would do."""
    made = RedisStore(redis.url)
    yield made
    await made.close()


@pytest.fixture
async def shop(cluster: Cluster, redis: RedisServer) -> Cluster:
    """A namespace with the Secret of the default Redis."""
    await cluster.make_secret({"url": redis.url})
    return cluster


@pytest.fixture
async def proxy(api_server: ApiServer) -> AsyncIterator[FaultyProxy]:
    """Between the operator and the API server."""
    made = FaultyProxy(api_server)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def proxied(proxy: FaultyProxy, tmp_path: Path) -> KubeConfigFile:
    """A login by way of the proxy."""
    return login_of(proxy.kubeconfig(tmp_path))
