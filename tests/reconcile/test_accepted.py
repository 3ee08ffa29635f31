"""What a Queue says while it cannot be carried out."""

from __future__ import annotations

import pytest

from dockwork_operator.kube.resources import QUEUES, SECRETS
from dockwork_operator.observe import secrets
from support.operators import Cluster, running, settings_for


@pytest.mark.covers("OP-020")
async def test_a_missing_default_secret_is_named_and_found_when_it_appears(cluster: Cluster) -> None:
    async with running(settings_for(cluster.namespace), cluster.login):
        await cluster.queue()
        await cluster.wait_condition("Accepted", "False", "SecretNotFound")
        assert "dockwork-redis" in await cluster.message("Accepted")
        assert await cluster.deployment() is None

        await cluster.make_secret({"other": "redis://127.0.0.1:1"})
        await cluster.wait_condition("Accepted", "False", "SecretKeyMissing")
        assert "has no key url" in await cluster.message("Accepted")


@pytest.mark.covers("OP-020", "OP-021")
async def test_an_unreachable_redis_is_a_condition_without_the_password(cluster: Cluster) -> None:
    await cluster.make_secret({"url": "redis://:s3cret@127.0.0.1:1/0"})
    async with running(settings_for(cluster.namespace), cluster.login):
        await cluster.queue()
        await cluster.wait_condition("RedisReachable", "False", "ConnectFailed")
        raw = await cluster.get(QUEUES, "mail")
        assert "s3cret" not in str(raw)
        assert "127.0.0.1:1" in await cluster.message("RedisReachable")
        await cluster.wait_condition("Ready", "False")


@pytest.mark.covers("OP-020", "OP-110")
async def test_a_secret_that_is_deleted_later_leaves_no_redis_reachable(
    shop: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "KEPT_FOR", 1.0)
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue()
        await shop.wait_condition("RedisReachable", "True", "Connected")

        await shop.delete(SECRETS, "dockwork-redis")

        await shop.wait_condition("Accepted", "False", "SecretNotFound")
        await shop.wait_condition("RedisReachable", "False", "SecretNotFound")


@pytest.mark.covers("OP-110")
async def test_a_version_whose_pods_never_became_ready_is_not_complete(shop: Cluster) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue(scaling={"minReplicas": 1})
        await shop.wait_deployment(replicas=1)
        await shop.run_pods(1, ready=0)
        await shop.wait_status(rollout__state="Progressing")
        assert (await shop.condition("Progressing"))[:2] == ("True", "RolloutInProgress")

        await shop.run_pods(1)
        await shop.wait_status(rollout__state="Complete")
        await shop.wait_events("RolloutPromoted")
