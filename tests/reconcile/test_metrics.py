"""What /metrics shows of a Queue and a CronJob, and that it vanishes with them."""

from __future__ import annotations

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dockwork.core.keys import QueueName
from dockwork.store.protocol import NewJob
from dockwork.store.redis import RedisStore
from dockwork_operator.kube.resources import CRONJOBS, QUEUES
from support.operators import Cluster, running, settings_for
from support.waiting import until_async

OF_THE_OPERATOR = {
    "leader", "build_info", "reconcile_seconds", "keys_waiting", "tick_lag_seconds", "api_requests", "redis_up",
    "redis_seconds", "clock_skew_seconds", "status_writes", "watch_stale", "reconcile_errors",
}  # fmt: skip
OF_A_QUEUE = {
    "jobs", "throttled_jobs", "oldest_wait_seconds", "service_seconds", "arrivals_per_second", "replicas",
    "stranded_jobs",
    "condition",
}  # fmt: skip
OF_A_CRONJOB = {
    "last_tick_timestamp_seconds", "next_tick_timestamp_seconds", "lag_seconds", "ticks", "plan_remaining",
}  # fmt: skip


async def read(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        assert answer.content_type == "text/plain"
        families = text_string_to_metric_families(await answer.text())
        return {
            family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families
        }


@pytest.mark.covers("OP-308")
async def test_every_figure_is_there_and_series_of_deleted_objects_vanish(
    shop: Cluster, store: RedisStore
) -> None:
    queue = QueueName(shop.namespace, "mail")
    async with running(settings_for(shop.namespace), shop.login) as operator:
        await shop.queue(scaling={"minReplicas": 1})
        await shop.cronjob(schedule="@every 1s", queueRef={"name": "mail"})
        await shop.wait_deployment(replicas=1)
        await shop.run_pods(1)
        job = NewJob(id="j", type="mail.send", envelope=b"{}", due_in_ms=3_600_000, sealed="k1")
        await store.enqueue(queue, [job])
        await shop.wait_condition("Ready", "True")

        async def complete() -> dict[str, list[tuple[dict[str, str], float]]] | None:
            shown = await read(operator.probes.port)
            rows = {labels["state"]: value for labels, value in shown.get("dockwork_queue_jobs", [])}
            return (
                shown
                if rows.get("delayed") == 1
                and shown.get("dockwork_sealed_jobs")
                and shown.get("dockwork_cron_lag_seconds")
                else None
            )

        shown = await until_async(complete, within=60)
        assert shown is not None
        at = {"namespace": shop.namespace, "name": "mail"}
        assert {f"dockwork_operator_{name}" for name in OF_THE_OPERATOR} <= shown.keys()
        assert {f"dockwork_queue_{name}" for name in OF_A_QUEUE} <= shown.keys()
        assert {f"dockwork_cron_{name}" for name in OF_A_CRONJOB} <= shown.keys()
        assert {"dockwork_scale_decisions", "dockwork_rollout_info"} <= shown.keys()
        assert {"dockwork_scale_down_wrong_victim", "dockwork_jobs_interrupted"} <= shown.keys()
        assert shown["dockwork_sealed_jobs"] == [({**at, "key_id": "k1"}, 1.0)]
        assert shown["dockwork_operator_leader"] == [({}, 1.0)]
        assert ({**at, "type": "Ready"}, 1.0) in shown["dockwork_queue_condition"]
        assert [value for _, value in shown["dockwork_operator_redis_up"]] == [1.0]

        await shop.delete(CRONJOBS, "report")
        await shop.delete(QUEUES, "mail")

        async def vanished() -> bool:
            return shop.namespace not in operator.metrics.text().decode().replace(f"/{shop.namespace}", "")

        await until_async(vanished, within=60)
