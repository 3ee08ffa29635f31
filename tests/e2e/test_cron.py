"""Schedules on a real cluster: each instant exactly once, whoever dies."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

from support.house import SPACE, SYSTEM, House, Redis
from support.waiting import until

pytestmark = pytest.mark.timeout(600)

KILLS = 20 if os.environ.get("DOCKWORK_TEST_FULL") else 3


def a_cronjob(name: str, **spec: object) -> dict[str, object]:
    return {
        "apiVersion": "dockwork.dev/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": SPACE},
        "spec": spec,
    }


def kill_the_leader_at_a_multiple_of(seconds: int, house: House, now: Callable[[], float]) -> None:
    """End the leading operator just before the next such second, and wait for its successor."""
    leader = until(house.leader, within=60, every=0.2, what="a leader")
    due = (now() // seconds + 1) * seconds
    until(lambda: now() >= due - 0.2, within=seconds + 5, every=0.02, what="just before the second")
    house.kill_now(SYSTEM, leader)
    until(lambda: house.leader() not in ("", leader), within=60, every=0.5, what="a new leader")


@pytest.mark.covers("OP-253", "OP-250")
def test_the_leader_is_killed_at_the_cron_second_and_each_instant_is_one_job(
    house: House, redis_of: Redis
) -> None:
    house.queue("ticks", scaling={"minReplicas": 0, "maxReplicas": 1})
    house.cluster.apply(
        a_cronjob(
            "each-five",
            schedule="@every 5s",
            queueRef={"name": "ticks"},
            job={"type": "work", "args": {"run": "ticks", "key": "tick"}},
        )
    )
    client = redis_of.client()
    pattern = f"dw:{{{SPACE}/ticks}}:"

    def fired() -> list[int]:
        """The instants of the jobs that the schedule made, from their ids."""
        ids: set[str] = set()
        for _entry, fields in client.xrange(f"{pattern}ev"):  # type: ignore[union-attr]
            ids.update(i for i in fields.get("ids", "").split(",") if i.startswith("cron-"))
        return sorted(int(i.rsplit("-", 1)[1]) for i in ids)

    def now() -> float:
        """Redis TIME, in seconds."""
        whole, micros = client.time()  # type: ignore[misc]
        return float(whole) + float(micros) / 1e6

    until(fired, within=60, every=0.5, what="a first tick")
    for _ in range(KILLS):
        kill_the_leader_at_a_multiple_of(5, house, now)

    end = now()
    until(lambda: fired()[-1] >= end * 1000, within=60, every=0.5, what="the ticks go on")
    instants = fired()
    steps = {later - earlier for earlier, later in itertools.pairwise(instants)}
    assert steps == {5000}, f"an instant is missing or double: {instants}"
    house.cluster.kubectl("delete", "queuecronjobs.dockwork.dev", "each-five", "-n", SPACE)
    house.delete("ticks")


@pytest.mark.covers("OP-051", "OP-146")
def test_an_inline_worker_is_there_for_its_tick_and_gone_after_it(house: House, redis_of: Redis) -> None:
    house.cluster.apply(
        a_cronjob(
            "alone",
            schedule="* * * * *",
            worker={
                "image": "dockwork-e2e:1",
                "app": "e2e_app.jobs:app",
                "minReadySeconds": 0,
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
            },
            job={"type": "work", "args": {"run": "alone", "key": "tick"}},
        )
    )
    until(lambda: redis_of.counts("alone", "ended").get("tick"), within=150, every=1, what="a tick ran")
    owner = house.cluster.get("queues.dockwork.dev", "alone", namespace=SPACE)["metadata"]["ownerReferences"][
        0
    ]
    assert owner["kind"] == "CronJob"
    house.cluster.kubectl("delete", "queuecronjobs.dockwork.dev", "alone", "-n", SPACE)
    until(
        lambda: not house.cluster.get("queues.dockwork.dev", "alone", namespace=SPACE), within=60, every=1,
        what="the owned Queue is collected",
    )  # fmt: skip
