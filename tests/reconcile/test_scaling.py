"""0 -> N -> 0: a Queue and the work in Redis on one side, the Deployment and its status on the other."""

from __future__ import annotations


from datetime import timedelta

import pytest
from dockwork.core.keys import QueueName
from dockwork.store.protocol import Heartbeat, NewJob, WorkerState
from dockwork.store.redis import RedisStore
from support.faults import FaultyProxy
from dockwork_operator.kube.client import Object
from dockwork_operator.kube.credentials import Login
from support.operators import Cluster, MovableClock, running, settings_for
from support.waiting import until_async


def jobs(count: int, first: int = 0) -> list[NewJob]:
    return [NewJob(id=f"j{first + n}", type="mail.send", envelope=b"{}") for n in range(count)]


@pytest.mark.covers("OP-073", "OP-074")
async def test_a_new_idle_queue_gets_a_deployment_that_never_asked_for_a_pod(
    shop: Cluster, proxy: FaultyProxy, proxied: Login
) -> None:
    async with running(settings_for(shop.namespace), proxied):
        await shop.queue()
        deployment = await shop.wait_deployment(replicas=0)
        writes = [seen for seen in proxy.writes("/deployments/")]
        assert [(seen.method, seen.path.split("/")[-1]) for seen in writes] == [
            ("PATCH", "mail-worker"),
            ("PUT", "scale"),
            ("PATCH", "mail-worker"),
        ]
        assert writes[0].body["spec"]["paused"] is True
        assert "replicas" not in writes[0].body["spec"]
        assert writes[1].body["spec"]["replicas"] == 0
        assert "paused" not in writes[2].body["spec"]
        assert deployment["metadata"]["ownerReferences"][0]["kind"] == "Queue"
        managers = {entry["manager"] for entry in deployment["metadata"]["managedFields"]}
        assert "dockwork" in managers


@pytest.mark.covers("OP-100", "OP-142", "OP-166")
async def test_jobs_bring_pods_and_their_end_takes_them_away(shop: Cluster, store: RedisStore) -> None:
    queue = QueueName(shop.namespace, "mail")
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue(worker={"image": "example.org/shop:1", "app": "shop.jobs:app", "slots": 2})
        await shop.wait_deployment(replicas=0)
        await shop.run_pods(0)
        await shop.wait_condition("Ready", "True")

        await store.enqueue(queue, jobs(60))

        await shop.wait_status(scaling__wanted=lambda wanted: wanted >= 1)
        deployment = await shop.deployment()
        assert deployment is not None
        assert deployment["spec"]["replicas"] >= 1
        assert await shop.wait_events("ScaledUp")


@pytest.mark.covers("OP-100", "OP-162", "OP-166", "OP-305")
async def test_a_scale_down_quiesces_first_and_goes_on_when_the_victims_said_so(
    shop: Cluster, store: RedisStore, proxy: FaultyProxy, proxied: Login
) -> None:
    queue, time = QueueName(shop.namespace, "mail"), MovableClock()
    async with running(settings_for(shop.namespace), proxied, now=time):
        await shop.queue(scaling={"minReplicas": 3})
        await shop.wait_deployment(replicas=3)
        pods = await shop.run_pods(3)
        fleet = [Worker(store, queue, pod) for pod in pods]
        for worker in fleet:
            await worker.beat()
        await shop.wait_condition("Ready", "True")
        time.ahead = timedelta(minutes=3)
        await shop.queue(scaling={"minReplicas": 1})

        async def asked_to_quiesce() -> list[Worker]:
            for worker in fleet:
                await worker.beat()
            return [worker for worker in fleet if worker.asked]

        victims = await until_async(asked_to_quiesce, within=60)
        assert len(victims) == 2
        assert (await shop.deployment() or {})["spec"]["replicas"] == 3
        proxy.forget()
        for victim in victims:
            victim.acknowledged = victim.asked
        await until_async(lambda: beat_all(fleet, shop, 1), within=60)

        costs = proxy.writes("/pods/")
        assert {seen.path.split("/")[-1] for seen in costs} == {victim.name for victim in victims}
        (scale,) = proxy.writes("/scale")
        assert scale.body["spec"]["replicas"] == 1
        assert scale.body["metadata"]["resourceVersion"]
        status_writes = proxy.writes("/status")
        assert len(costs) + 1 + len(status_writes) <= 2 + 3 + 2


async def beat_all(fleet: list[Worker], shop: Cluster, replicas: int) -> bool:
    for worker in fleet:
        await worker.beat()
    deployment = await shop.deployment()
    return deployment is not None and deployment["spec"].get("replicas") == replicas


class Worker:
    """What a worker pod says in Redis."""

    def __init__(self, store: RedisStore, queue: QueueName, pod: Object) -> None:
        self._store, self._queue, self._pod = store, queue, pod
        self.name = str(pod["metadata"]["name"])
        self.asked = ""
        self.acknowledged = ""

    async def beat(self, *, busy: int = 0) -> None:
        meta = self._pod["metadata"]
        beat = Heartbeat(
            owner=f"{meta['uid']}/boot",
            pod=meta["uid"],
            container="worker",
            pod_name=self.name,
            template_hash=meta["labels"]["dockwork.dev/template-hash"],
            slots=10,
            busy=busy,
            state=WorkerState.QUIESCED if self.acknowledged else WorkerState.RUNNING,
            quiesce_token=self.acknowledged,
        )
        self.asked = (await self._store.renew(self._queue, [], beat)).quiesce
