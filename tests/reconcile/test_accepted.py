"""What a Queue says while it cannot be carried out."""

from __future__ import annotations

import pytest

from dockwork_operator.kube.resources import QUEUES
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
