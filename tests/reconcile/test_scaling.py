"""0 -> N -> 0: a Queue and the work in Redis on one side, the Deployment and its status on the other."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from dockwork.core.keys import QueueName
from dockwork.store.protocol import NewJob
from dockwork.store.redis import RedisStore
from dockwork_operator.kube.credentials import Login
from dockwork_operator.kube.resources import DEPLOYMENTS, QUEUES, ObjectKey
from support.faults import FaultyProxy
from support.operators import Cluster, MovableClock, Worker, running, settings_for
from support.redis_server import RedisServer
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
        writes = list(proxy.writes("/deployments/"))
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
            asked = [worker for worker in fleet if worker.asked]
            return asked if len(asked) > 1 else []  # the first may hear of it a beat before the second

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


@pytest.mark.covers("OP-142")
async def test_at_no_pods_the_first_job_asks_for_one_within_a_second(
    shop: Cluster, store: RedisStore, redis: RedisServer
) -> None:
    """With a tick of 30 s: it is the word of Redis that wakes the operator."""
    queue = QueueName(shop.namespace, "mail")
    async with running(settings_for(shop.namespace, tick=timedelta(seconds=30)), shop.login) as operator:
        await shop.queue()
        await shop.wait_deployment(replicas=0)
        await shop.run_pods(0)
        await shop.wait_condition("Ready", "True")

        async def listens() -> bool:
            return b":1" in redis.raw("PUBSUB", "NUMPAT") or b"dw:wake" in redis.raw("PUBSUB", "CHANNELS")

        await until_async(listens, within=60)
        key = ObjectKey(QUEUES, shop.namespace, "mail")
        link = operator.links.of(key)
        assert link is not None
        await link.look(key)  # the queue wants no pod, so it is cold from here on
        loop = asyncio.get_running_loop()
        began = loop.time()
        await store.enqueue(queue, jobs(1))

        async def asked() -> bool:
            deployment = operator.cache.get(DEPLOYMENTS, shop.namespace, "mail-worker")
            return deployment is not None and deployment["spec"].get("replicas") == 1

        await until_async(asked, within=60, every=0.005)
        assert loop.time() - began <= 1.0


@pytest.mark.covers("OP-011", "OP-103")
async def test_in_external_mode_the_queues_own_scale_is_obeyed(shop: Cluster) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue(scaling={"mode": "External"})
        await shop.wait_deployment(replicas=0)
        await shop.run_pods(0)
        await shop.wait_condition("ScalingActive", "True", "External")
        await shop.patch(QUEUES, "mail", {"spec": {"replicas": 4}}, subresource="scale")
        await shop.wait_deployment(replicas=4)
        await shop.run_pods(4)
        scale = await shop.kube.get_scale(QUEUES, shop.namespace, "mail")
        assert scale["spec"]["replicas"] == 4
        await shop.wait_status(workers__replicas=4)
        scale = await shop.kube.get_scale(QUEUES, shop.namespace, "mail")
        assert scale["status"]["selector"] == "dockwork.dev/queue=mail"
        assert scale["status"]["replicas"] == 4


@pytest.mark.covers("OP-011")
async def test_in_auto_mode_replicas_are_ignored_and_that_is_said_once(shop: Cluster) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue(replicas=5)
        await shop.wait_deployment(replicas=0)
        (event,) = await shop.wait_events("ReplicasIgnored")
        assert event["count"] == 1
        assert "ignored" in event["message"]


@pytest.mark.covers("OP-027")
async def test_limits_reach_redis_without_a_new_pod(
    shop: Cluster, store: RedisStore, proxy: FaultyProxy, proxied: Login
) -> None:
    queue = QueueName(shop.namespace, "mail")
    async with running(settings_for(shop.namespace), proxied):
        await shop.queue()
        await shop.wait_deployment(replicas=0)
        await shop.run_pods(0)
        await shop.wait_condition("Ready", "True")
        proxy.forget()
        raw = await shop.queue(limits={"depth": 5}, jobs={"maxAttempts": 9})

        async def configured() -> bool:
            config = await store.config(queue)
            return (config.max_depth, config.max_attempts) == (5, 9)

        await until_async(configured, within=60)
        assert (await store.config(queue)).generation == raw["metadata"]["generation"]
        assert proxy.writes("/deployments/") == []


@pytest.mark.covers("OP-168")
async def test_nothing_shrinks_while_two_versions_live(shop: Cluster, store: RedisStore) -> None:
    queue, time = QueueName(shop.namespace, "mail"), MovableClock()
    async with running(settings_for(shop.namespace), shop.login, now=time):
        await shop.queue(scaling={"minReplicas": 2})
        await shop.wait_deployment(replicas=2)
        fleet = [Worker(store, queue, pod) for pod in await shop.run_pods(2)]
        await shop.wait_condition("Ready", "True")
        new = {"image": "example.org/shop:2", "app": "shop.jobs:app"}
        await shop.queue(scaling={"minReplicas": 2}, worker=new)
        await shop.wait_status(rollout__state="Progressing")
        fleet += [Worker(store, queue, pod) for pod in await shop.run_pods(1)]
        time.ahead = timedelta(minutes=3)
        await shop.queue(scaling={"minReplicas": 0}, worker=new)
        await until_async(lambda: beat_all(fleet, shop, 2), within=60)
        await shop.wait_status(
            scaling__lastDecision=lambda last: last and last["reason"] == "RolloutInProgress"
        )
        assert not any(worker.asked for worker in fleet)
