"""CronJobs: planned, ticked at the instant without a worker, removed, owned Queues."""

from __future__ import annotations

import pytest

from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.store.redis import RedisStore
from dockwork_operator.kube.resources import CRONJOBS, QUEUES
from support.operators import Cluster, MovableClock, running, settings_for
from support.waiting import until_async


@pytest.mark.covers("OP-250", "OP-054")
async def test_ticks_land_at_their_instants_without_workers_and_end_with_the_cronjob(
    shop: Cluster, store: RedisStore
) -> None:
    queue, time = QueueName(shop.namespace, "mail"), MovableClock()
    async with running(settings_for(shop.namespace), shop.login, now=time):
        await shop.queue()
        await shop.cronjob(schedule="@every 1s", queueRef={"name": "mail"})
        await shop.wait_condition("Accepted", "True", name="report", resource=CRONJOBS)

        async def ticked() -> bool:
            return len(await store.list(queue, State.READY)) >= 3

        await until_async(ticked, within=60)
        jobs = await store.list(queue, State.READY)
        for job in jobs:
            assert job.scheduled_for_ms is not None
            assert job.scheduled_for_ms % 1000 == 0
            assert job.created_ms - job.scheduled_for_ms < 1000
        assert len({job.scheduled_for_ms for job in jobs}) == len(jobs)
        await shop.wait_status(
            "report", resource=CRONJOBS, lastTick=lambda tick: tick and tick["by"] == "operator"
        )

        await shop.delete(CRONJOBS, "report")

        async def gone() -> bool:
            return await store.cron_states(queue) == []

        await until_async(gone, within=2)


@pytest.mark.covers("OP-054", "OP-268")
async def test_a_cronjob_that_was_deleted_while_nobody_looked_is_swept(
    shop: Cluster, store: RedisStore
) -> None:
    queue = QueueName(shop.namespace, "mail")
    async with running(settings_for(shop.namespace), shop.login):
        await shop.queue()
        await shop.cronjob("kept", queueRef={"name": "mail"})
        await shop.cronjob("lost", queueRef={"name": "mail"})

        async def both() -> bool:
            return len(await store.cron_states(queue)) == 2

        await until_async(both, within=60)
    await shop.delete(CRONJOBS, "lost")
    async with running(settings_for(shop.namespace), shop.login):

        async def one_left() -> bool:
            return len(await store.cron_states(queue)) == 1

        await until_async(one_left, within=60)


async def test_an_inline_worker_makes_an_owned_queue(shop: Cluster, store: RedisStore) -> None:
    async with running(settings_for(shop.namespace), shop.login):
        await shop.cronjob("nightly", worker={"image": "example.org/shop:1", "app": "shop.jobs:app"})
        await shop.wait_condition("Accepted", "True", name="nightly", resource=CRONJOBS)
        owned = await shop.get(QUEUES, "nightly")
        assert owned is not None
        assert owned["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
        await shop.wait_deployment("nightly-worker", replicas=0)
        queue = QueueName(shop.namespace, "nightly")

        async def planned() -> bool:
            return [state.planned > 0 for state in await store.cron_states(queue)] == [True]

        await until_async(planned, within=60)
