"""Two replicas as processes: the leader dies in the worst second."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.store.protocol import JobView
from dockwork.store.redis import RedisStore
from dockwork_operator.kube.resources import CRONJOBS, LEASES
from support.apiserver import ApiServer
from support.operators import NUMBERS, Cluster
from support.waiting import until_async

LEASE = "dockwork-operator"


class Replica:
    """`dockwork-operator run` as a process of its own, as its container would run it."""

    def __init__(self, number: int, cluster: Cluster, kubeconfig: Path, log: Path) -> None:
        environ = {
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(kubeconfig),
            "DOCKWORK_WATCH_NAMESPACES": cluster.namespace,
            "DOCKWORK_TICK_SECONDS": "0.5",
            "DOCKWORK_HTTP_ADDR": f"127.0.0.1:{21400 + number}",
            "DOCKWORK_LOG_LEVEL": "debug",
            "POD_NAMESPACE": cluster.namespace,
            "POD_NAME": f"operator-{number}",
        }
        self.log = log
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "dockwork_operator", "run"], env=environ, stdout=sink, stderr=sink
            )
        self.name = f"operator-{number}"

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def ended(self) -> int | None:
        return self._process.poll()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
        self._process.wait(30)


Replicas = Callable[[Cluster], Replica]


@pytest.fixture
async def replicas(api_server: ApiServer, tmp_path: Path) -> AsyncIterator[Replicas]:
    """Starts a replica for the namespace of a cluster; all are gone at the end."""
    started: list[Replica] = []

    def start(cluster: Cluster) -> Replica:
        number = len(started)
        started.append(Replica(number, cluster, api_server.kubeconfig, tmp_path / f"operator-{number}.log"))
        return started[-1]

    yield start
    for replica in started:
        replica.end()


async def holder(shop: Cluster) -> str:
    raw = await shop.get(LEASES, LEASE)
    return str(((raw or {}).get("spec") or {}).get("holderIdentity") or "")


async def holds(shop: Cluster, replica: Replica) -> bool:
    return (await holder(shop)).startswith(replica.name)


@pytest.mark.covers("OP-253", "OP-302")
@pytest.mark.timeout(180)
async def test_a_killed_leader_costs_and_doubles_no_tick_and_a_frozen_one_writes_nothing(
    shop: Cluster, store: RedisStore, replicas: Replicas
) -> None:
    """Two installations side by side: after each misfortune a whole Lease must pass."""
    elsewhere = Cluster(shop.login, f"t{next(NUMBERS)}")
    await elsewhere.open()
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(kill_at_the_cron_second(shop, store, replicas))
            group.create_task(freeze_and_thaw(elsewhere, replicas))
    finally:
        await elsewhere.close()


async def kill_at_the_cron_second(shop: Cluster, store: RedisStore, replicas: Replicas) -> None:
    queue = QueueName(shop.namespace, "mail")
    first, second = replicas(shop), replicas(shop)
    await until_async(lambda: _somebody(shop), within=90)
    leader, standby = (first, second) if await holds(shop, first) else (second, first)
    await shop.queue()
    await shop.cronjob(schedule="@every 1s", queueRef={"name": "mail"}, missedRunPolicy="All", maxCatchUp=100)
    await shop.wait_status("report", resource=CRONJOBS, runs=lambda runs: runs and runs >= 1, within=90)

    # Just before a whole second of Redis TIME, with the tick under way or about to be.
    await until_async(lambda: _late_in_the_second(store), within=30, every=0.002)
    leader.signal(signal.SIGKILL)
    await until_async(lambda: holds(shop, standby), within=60, every=0.2)
    taken_ms = await store.ping()
    assert leader.ended() == -signal.SIGKILL

    async def went_on() -> bool:
        (state,) = await store.cron_states(queue)
        return state.cursor_ms > taken_ms

    await until_async(went_on, within=60, every=0.1)
    instants = sorted(job.scheduled_for_ms or 0 for job in await all_jobs(store, queue))
    assert len(instants) >= 15
    assert len(instants) == len(set(instants)), "a tick was doubled"
    assert [b - a for a, b in pairwise(instants)] == [1000] * (len(instants) - 1), "a tick was lost"


async def freeze_and_thaw(elsewhere: Cluster, replicas: Replicas) -> None:
    one = replicas(elsewhere)
    await until_async(lambda: holds(elsewhere, one), within=90, every=0.1)
    two = replicas(elsewhere)
    one.signal(signal.SIGSTOP)
    await until_async(lambda: holds(elsewhere, two), within=90, every=0.2)
    one.signal(signal.SIGCONT)
    await until_async(lambda: _ended(one), within=60)
    assert one.ended() == 1
    assert "lease_lost" in one.log.read_text()
    assert await holds(elsewhere, two)


async def all_jobs(store: RedisStore, queue: QueueName) -> list[JobView]:
    found: list[JobView] = []
    while page := await store.list(queue, State.READY, offset=len(found), limit=100):
        found += page
    return found


async def _somebody(shop: Cluster) -> bool:
    return bool(await holder(shop))


async def _late_in_the_second(store: RedisStore) -> bool:
    return await store.ping() % 1000 > 985


@pytest.mark.covers("OP-302")
async def test_told_to_end_it_gives_the_lease_back_and_exits_with_0(
    shop: Cluster, replicas: Replicas
) -> None:
    one = replicas(shop)
    await until_async(lambda: holds(shop, one), within=90)
    await shop.queue()
    await shop.wait_deployment(replicas=0)
    loop = asyncio.get_running_loop()
    began = loop.time()
    one.signal(signal.SIGTERM)
    await until_async(lambda: _ended(one), within=30)
    assert one.ended() == 0
    assert loop.time() - began < 25
    assert await holder(shop) == ""


async def _ended(replica: Replica) -> bool:
    return replica.ended() is not None


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        (
            "DOCKWORK_TICK_SECONDS",
            "soon",
            "DOCKWORK_TICK_SECONDS: expected a number from 0.2 to 60, got 'soon'",
        ),
        ("DOCKWORK_WATCH_NAMESPACES", "*,shop", "DOCKWORK_WATCH_NAMESPACES: expected * alone"),
        ("KUBECONFIG", "", "no API server to talk to"),
    ],
)
def test_wrong_settings_are_named_at_once(variable: str, value: str, expected: str) -> None:
    environ = {"PATH": os.environ["PATH"], "KUBECONFIG": "/nowhere", variable: value}
    done = subprocess.run(
        [sys.executable, "-m", "dockwork_operator", "run"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert expected in done.stderr
