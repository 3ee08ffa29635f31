"""One installation serves the whole tier, in namespaces of its own; each test has queues of its own.

The tests run one after the other: some of them restart Redis or the operator.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from support.cluster import Cluster
from support.house import SPACE, House, Redis, bed, install, remove
from support.producer import Producer
from support.waiting import until


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what the cluster looked like, before the next one changes it."""
    report = yield
    house = getattr(item, "funcargs", {}).get("house")
    if report.failed and isinstance(house, House):
        report.sections.append(("the cluster when it failed", house.picture()))
    return report


@pytest.fixture(scope="session")
def house() -> Iterator[House]:
    cluster = Cluster.of_bed()
    if not os.environ.get("DOCKWORK_KEEP"):
        remove(cluster)  # what a killed run left would be counted as this one's
    bed("build", "tests/e2e/app", "--tag", "dockwork-e2e:1", "--build-arg", "VERSION=1")
    bed("build", "tests/e2e/app", "--tag", "dockwork-e2e:2", "--build-arg", "VERSION=2")
    bed("load", "dockwork-e2e:1", "dockwork-e2e:2")
    install(cluster)
    yield House(cluster=cluster)
    if not os.environ.get("DOCKWORK_KEEP"):
        remove(cluster)


@pytest.fixture(scope="session")
def redis_of(house: House) -> Iterator[Redis]:
    until(
        lambda: house.cluster.get("secret", "dockwork-redis", namespace=SPACE),
        within=60,
        what="the Redis Secret",
    )
    found = Redis(house=house)
    yield found
    found.renew()


@pytest.fixture
def producer(redis_of: Redis) -> Iterator[Producer]:
    with Producer(redis_of.url(), namespace=SPACE) as made:
        yield made
