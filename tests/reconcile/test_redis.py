"""Redis is away, slow, wrong, shared or unsafe: told without a secret, and nothing else suffers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.store.protocol import NewJob, OwnerRecord, QueueConfig
from dockwork.store.redis import RedisStore
from dockwork_operator.kube.resources import QUEUES
from dockwork_operator.logs import configure_logging
from support.operators import Cluster, MovableClock, running, settings_for
from support.redis_server import RedisServer
from support.waiting import until_async

PASSWORD = "0nly-for-this-test"


@pytest.fixture
def other_redis() -> Iterator[RedisServer]:
    """A server that a test may break."""
    with RedisServer(port=0, password=PASSWORD) as server:
        yield server


async def on_its_own_redis(shop: Cluster, server: RedisServer, name: str = "mail", **spec: object) -> None:
    await shop.make_secret({"url": server.url}, "its-own")
    await shop.queue(name, redis={"urlFrom": {"secretKeyRef": {"name": "its-own", "key": "url"}}}, **spec)


@pytest.mark.covers("OP-102", "OP-148", "OP-111")
async def test_a_redis_that_goes_away_flips_its_condition_and_not_ready_and_comes_back(
    shop: Cluster, other_redis: RedisServer
) -> None:
    time = MovableClock()
    async with running(settings_for(shop.namespace), shop.login, now=time):
        await on_its_own_redis(shop, other_redis, scaling={"minReplicas": 2, "fallback": {"replicas": 5}})
        await shop.wait_deployment(replicas=2)
        await shop.run_pods(2)
        await shop.wait_condition("Ready", "True")

        other_redis.kill()
        await shop.wait_condition("RedisReachable", "False", "ConnectFailed")
        await shop.wait_condition("ScalingActive", "False", "RedisUnreachable")
        assert (await shop.condition("Ready"))[0] == "True"
        await shop.wait_status(scaling__stale=True)
        await shop.wait_events("RedisUnreachable")
        deployment = await shop.deployment()
        assert deployment is not None
        assert deployment["spec"]["replicas"] == 2

        time.ahead = timedelta(seconds=90)
        await shop.wait_deployment(replicas=5)
        await shop.wait_condition("ScalingActive", "False", "Fallback")

        other_redis.start()
        await shop.wait_condition("RedisReachable", "True")
        await shop.wait_events("RedisRecovered")


@pytest.mark.covers("OP-102")
async def test_a_redis_that_hangs_delays_only_its_own_queues(
    shop: Cluster, other_redis: RedisServer, store: RedisStore
) -> None:
    async with running(settings_for(shop.namespace), shop.login) as operator:
        await on_its_own_redis(shop, other_redis, "slow")
        await shop.queue("quick")
        for name in ("slow", "quick"):
            await shop.wait_deployment(f"{name}-worker", replicas=0)
            await shop.run_pods(0, f"{name}-worker")
            await shop.wait_condition("Ready", "True", name=name)
        other_redis.hang()
        try:
            await shop.wait_condition("RedisReachable", "False", "Timeout", name="slow")
            loop = asyncio.get_running_loop()
            began = loop.time()
            await shop.queue("quick", scaling={"minReplicas": 1})
            await shop.wait_deployment("quick-worker", replicas=1)
            assert loop.time() - began < 1.9, "it waited for the one that hangs"
            assert operator.health.why_not_live() == ""
        finally:
            other_redis.resume()
        await shop.wait_condition("RedisReachable", "True", name="slow")


@pytest.mark.covers("OP-020", "OP-021", "OP-304")
async def test_a_wrong_password_is_a_condition_and_a_log_line_without_it(
    shop: Cluster, other_redis: RedisServer, capfd: pytest.CaptureFixture[str]
) -> None:
    configure_logging("debug")
    wrong = other_redis.url.replace(PASSWORD, "wr0ng-pass")
    await shop.make_secret({"url": wrong}, "its-own")
    async with running(settings_for(shop.namespace), shop.login) as operator:
        redis = {"urlFrom": {"secretKeyRef": {"name": "its-own", "key": "url"}}}
        await shop.queue(redis=redis)
        await shop.wait_condition("RedisReachable", "False", "AuthFailed")
        everything = str(await shop.get(QUEUES, "mail")) + str(await shop.events())
        everything += operator.metrics.text().decode() + "".join(capfd.readouterr())
        assert "wr0ng-pass" not in everything
        assert PASSWORD not in everything

        # The repaired Secret is found without a restart.
        await shop.make_secret({"url": other_redis.url}, "its-own")
        await shop.wait_condition("RedisReachable", "True")
        assert PASSWORD not in "".join(capfd.readouterr())


@pytest.mark.covers("OP-023")
async def test_an_eviction_policy_is_unsafe_and_said(shop: Cluster, other_redis: RedisServer) -> None:
    other_redis.raw("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    async with running(settings_for(shop.namespace), shop.login):
        await on_its_own_redis(shop, other_redis)
        await shop.wait_condition("RedisSafe", "False", "EvictionPolicy")
        assert "allkeys-lru" in await shop.message("RedisSafe")
        await shop.wait_deployment()
        status = await shop.wait_status(redis__policy="allkeys-lru")
        assert status["redis"]["version"]


@pytest.mark.covers("OP-022")
async def test_a_redis_queue_of_another_is_left_alone(shop: Cluster, store: RedisStore) -> None:
    queue = QueueName(shop.namespace, "mail")
    other = OwnerRecord(operator="another-installation", namespace="else", name="where", uid="u-else")
    await store.configure(queue, QueueConfig(generation=3, max_depth=77), other)
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue()
        await shop.wait_condition("Accepted", "False", "QueueConflict")
        assert "else/where" in await shop.message("Accepted")
        assert (await store.config(queue)).max_depth == 77
        assert await shop.deployment() is None


@pytest.mark.covers("OP-022")
async def test_a_queue_that_is_made_anew_takes_its_redis_queue_over_at_once(
    shop: Cluster, store: RedisStore
) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue()
        await shop.wait_deployment(replicas=0)
        await shop.delete(QUEUES, "mail")
        await shop.kube.list_all(QUEUES, shop.namespace)
        raw = await shop.queue()
        await shop.wait_condition("Accepted", "True")

        async def owned() -> bool:
            sample = await store.sample(QueueName(shop.namespace, "mail"), horizon_ms=0)
            return sample.owner is not None and sample.owner.uid == raw["metadata"]["uid"]

        await until_async(owned, within=60)


@pytest.mark.covers("OP-146", "OP-148")
async def test_without_workers_the_operator_promotes_what_falls_due(shop: Cluster, store: RedisStore) -> None:
    queue = QueueName(shop.namespace, "mail")
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue()
        await shop.wait_deployment(replicas=0)
        await shop.run_pods(0)
        await shop.wait_condition("Ready", "True")
        await store.enqueue(queue, [NewJob(id="later", type="mail.send", envelope=b"{}", due_in_ms=1500)])

        async def promoted() -> bool:
            job = await store.get(queue, "later")
            return job is not None and job.state is State.READY

        await until_async(promoted, within=60)
        await shop.wait_deployment(replicas=1)
