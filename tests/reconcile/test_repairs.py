"""The world differs from what is declared: repaired, left alone, or told; and nothing is written without a reason."""

from __future__ import annotations

import pytest

from dockwork.core.keys import QueueName
from dockwork.store.protocol import NewJob, OwnerRecord, QueueConfig
from dockwork.store.redis import RedisStore
from dockwork_operator.kube.credentials import Login
from dockwork_operator.kube.resources import (
    BUDGETS,
    CRONJOBS,
    DEPLOYMENTS,
    NETWORK_POLICIES,
    QUEUES,
    Resource,
)
from dockwork_operator.process import Operator
from support.faults import FaultyProxy
from support.operators import Cluster, running, settings_for
from support.waiting import until_async


async def settled(shop: Cluster) -> None:
    """A Queue that is as declared, with the status that says so."""
    await shop.queue()
    await shop.wait_deployment(replicas=0)
    await shop.run_pods(0)
    await shop.wait_condition("Ready", "True")


@pytest.mark.covers("OP-105", "OP-305", "OP-103")
async def test_a_restart_over_a_world_that_agrees_writes_nothing_but_the_lease(
    shop: Cluster, proxy: FaultyProxy, proxied: Login
) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        for name in ("one", "two", "three"):
            await shop.queue(name)
            await shop.wait_deployment(f"{name}-worker", replicas=0)
            await shop.run_pods(0, f"{name}-worker")
            await shop.wait_condition("Ready", "True", name=name)
        await shop.cronjob("nightly", queueRef={"name": "one"})
        await shop.wait_status("nightly", resource=CRONJOBS, nextTickTime=bool)
    async with running(settings_for(shop.namespace), proxied) as operator:
        # Every object was looked at, and every Redis queue was sampled several times since.
        await until_async(lambda: _rounds(operator, 8), within=60)
        assert [str(seen) for seen in proxy.writes()] == []
        assert proxy.paths("PUT .*/leases/")


@pytest.mark.covers("OP-022")
async def test_a_queue_that_another_installation_looks_after_is_left_alone_with_its_status(
    shop: Cluster, store: RedisStore, proxy: FaultyProxy, proxied: Login
) -> None:
    raw = await shop.queue()
    uid = str(raw["metadata"]["uid"])
    other = OwnerRecord(operator="another-installation", namespace=shop.namespace, name="mail", uid=uid)
    await store.configure(QueueName(shop.namespace, "mail"), QueueConfig(generation=1), other)
    async with running(settings_for(shop.namespace), proxied) as operator:
        await until_async(lambda: _rounds(operator, 3), within=60)
        assert [str(seen) for seen in proxy.writes()] == []
        # The other one is silent for 15 s from now on: then it is ours.
        await shop.wait_deployment(replicas=0)
        await shop.wait_condition("Accepted", "True")


async def _rounds(operator: Operator, count: int) -> bool:
    rounds = sum(
        sample.value
        for metric in operator.metrics.redis_seconds.collect()
        for sample in metric.samples
        if sample.name.endswith("_count")
    )
    return bool(rounds >= count)


@pytest.mark.covers("OP-076")
async def test_a_hand_edit_is_repaired_and_other_peoples_fields_stay(shop: Cluster) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        await settled(shop)
        edit = {"metadata": {"labels": {"theirs": "1"}}, "spec": {"minReadySeconds": 77}}
        await shop.patch(DEPLOYMENTS, "mail-worker", edit)

        async def repaired() -> bool:
            raw = await shop.deployment()
            return raw is not None and raw["spec"]["minReadySeconds"] == 5

        await until_async(repaired, within=60)
        raw = await shop.deployment()
        assert raw is not None
        assert raw["metadata"]["labels"]["theirs"] == "1"


@pytest.mark.covers("OP-076")
@pytest.mark.parametrize("resource", [DEPLOYMENTS, BUDGETS, NETWORK_POLICIES], ids=str)
async def test_a_deleted_child_is_made_again(shop: Cluster, resource: Resource) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        await settled(shop)
        before = await shop.get(resource, "mail-worker")
        assert before is not None
        await shop.delete(resource, "mail-worker")

        async def again() -> bool:
            raw = await shop.get(resource, "mail-worker")
            return raw is not None and raw["metadata"]["uid"] != before["metadata"]["uid"]

        await until_async(again, within=60)


@pytest.mark.covers("OP-078")
async def test_a_foreign_object_of_a_childs_name_is_left_alone_until_it_is_handed_over(shop: Cluster) -> None:
    foreign = {
        "metadata": {"name": "mail-worker"},
        "spec": {"maxUnavailable": 3, "selector": {"matchLabels": {"app": "theirs"}}},
    }
    await shop.apply(BUDGETS, foreign)
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue()
        await shop.wait_condition("Degraded", "True", "NameConflict")
        raw = await shop.get(BUDGETS, "mail-worker")
        assert raw is not None
        assert raw["spec"]["maxUnavailable"] == 3
        assert "ownerReferences" not in raw["metadata"]
        await shop.wait_deployment(replicas=0)

        handed_over = {"metadata": {"annotations": {"dockwork.dev/adoptable-by": "mail"}}}
        await shop.patch(BUDGETS, "mail-worker", handed_over)

        async def adopted() -> bool:
            raw = await shop.get(BUDGETS, "mail-worker")
            return raw is not None and raw["metadata"].get("ownerReferences", [{}])[0].get("kind") == "Queue"

        await until_async(adopted, within=60)
        await shop.wait_condition("Degraded", "False")


@pytest.mark.covers("OP-079")
async def test_a_child_that_is_not_declared_any_more_is_deleted(
    shop: Cluster, proxy: FaultyProxy, proxied: Login
) -> None:
    async with running(settings_for(shop.namespace), proxied):
        await settled(shop)
        budget = await shop.get(BUDGETS, "mail-worker")
        assert budget is not None
        await shop.queue(pdb={"mode": "None"})

        async def gone() -> bool:
            return await shop.get(BUDGETS, "mail-worker") is None

        await until_async(gone, within=60)
        (deletion,) = proxy.writes("DELETE")
        assert deletion.body["preconditions"] == {"uid": budget["metadata"]["uid"]}


@pytest.mark.covers("OP-106")
async def test_a_bad_new_spec_leaves_good_children_as_they_were(shop: Cluster) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        await settled(shop)
        before = await shop.deployment()
        template = {"spec": {"automountServiceAccountToken": True}}
        await shop.queue(
            worker={"image": "example.org/shop:2", "app": "shop.jobs:app", "podTemplate": template}
        )
        await shop.wait_condition("Accepted", "False", "InvalidField")
        assert "automountServiceAccountToken" in await shop.message("Accepted")
        after = await shop.deployment()
        assert before is not None
        assert after is not None
        assert after["spec"] == before["spec"]
        await shop.queue(worker={"image": "example.org/shop:3", "app": "shop.jobs:app"})
        await shop.wait_condition("Accepted", "True")


@pytest.mark.covers("OP-030")
async def test_a_deleted_queue_has_no_finalizer_and_leaves_its_data(
    shop: Cluster, store: RedisStore, proxy: FaultyProxy, proxied: Login
) -> None:
    queue = QueueName(shop.namespace, "mail")
    async with running(settings_for(shop.namespace), proxied) as operator:
        await settled(shop)
        await store.enqueue(queue, [NewJob(id="kept", type="mail.send", envelope=b"{}", due_in_ms=3_600_000)])
        raw = await shop.get(QUEUES, "mail")
        assert raw is not None
        assert not raw["metadata"].get("finalizers")
        await shop.delete(QUEUES, "mail")
        assert await shop.get(QUEUES, "mail") is None

        async def forgotten() -> bool:
            return operator.cache.count(QUEUES) == 0 and 'name="mail"' not in operator.metrics.text().decode()

        await until_async(forgotten, within=60)
        assert await store.get(queue, "kept") is not None
        assert proxy.writes("DELETE") == []


@pytest.mark.covers("OP-103", "OP-104")
async def test_a_queue_becomes_ready_with_few_status_writes_and_one_event_each(
    shop: Cluster, proxy: FaultyProxy, proxied: Login
) -> None:
    async with running(settings_for(shop.namespace), proxied):
        await settled(shop)
        writes = proxy.writes("/status")
        assert 1 <= len(writes) <= 4
        assert {seen.query for seen in writes} == {"fieldManager=dockwork&fieldValidation=Strict"}
        names = [(event["reason"], event["count"]) for event in await shop.events()]
        assert len(names) == len(set(names))
