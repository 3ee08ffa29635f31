"""What must not happen when things go wrong: handlers, pods, Redis, the operator. Nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from dockwork.core.states import State
from support.cluster import CommandFailed
from support.house import SPACE, SYSTEM, House, Redis
from support.producer import Producer
from support.waiting import until

pytestmark = pytest.mark.timeout(600)

SMALL = {"minReplicas": 1, "maxReplicas": 3}


def ended(redis_of: Redis, run_name: str, wanted: int) -> Callable[[], bool]:
    """Whether `wanted` jobs left their receipt; survives a Redis that is restarting."""

    def ask() -> bool:
        try:
            return len(redis_of.counts(run_name, "ended")) >= wanted
        except (OSError, CommandFailed):  # the pod behind the port-forward went
            redis_of.renew()
        except Exception as error:  # redis' own connection errors derive from Exception only
            if "redis" not in type(error).__module__:
                raise
            redis_of.renew()
        return False

    return ask


@pytest.mark.covers("RT-133", "RT-134", "RT-105")
def test_handlers_that_raise_hang_or_end_the_process_harm_only_their_own_job(
    house: House, redis_of: Redis, producer: Producer
) -> None:
    house.queue("naughty", scaling=SMALL, jobs={"maxDeliveries": 3})
    bad = {
        "raises": producer.enqueue("naughty", "raises", {"run": "naughty", "key": "raises"}),
        "hangs": producer.enqueue("naughty", "hangs", {"run": "naughty", "key": "hangs"}),
        "exits": producer.enqueue("naughty", "exits", {"run": "naughty", "key": "exits"}),
    }
    good = [f"k{n}" for n in range(50)]
    producer.enqueue_many("naughty", "work", [{"run": "naughty", "key": k, "seconds": 0.1} for k in good])

    until(ended(redis_of, "naughty", len(good)), within=150, every=0.5, what="the good jobs ended")

    def buried() -> bool:
        views = {name: producer.job("naughty", job_id) for name, job_id in bad.items()}
        return all(view is not None and view.state is State.DEAD for view in views.values())

    until(buried, within=180, every=1, what="the bad jobs are dead letters")
    reasons = {name: producer.job("naughty", job_id).reason for name, job_id in bad.items()}  # type: ignore[union-attr]
    assert reasons["exits"].startswith("max_deliveries")
    assert producer.job("naughty", bad["raises"]).attempts == 3  # type: ignore[union-attr]
    assert set(redis_of.counts("naughty", "ended")) == set(good)
    house.delete("naughty")


@pytest.mark.covers("OP-218", "RT-129")
def test_an_unknown_job_type_is_parked_reported_and_run_by_the_release_that_knows_it(
    house: House, redis_of: Redis, producer: Producer
) -> None:
    house.queue("stranger", scaling=SMALL)
    job_id = producer.enqueue("stranger", "newer", {"run": "stranger", "key": "one"})
    until(
        lambda: house.condition("stranger", "StrandedJobs").get("status") == "True",
        within=180,
        every=2,
        what="the Queue reports stranded jobs",
    )
    assert house.status("stranger")["stranded"]["firstJobID"] == job_id
    assert house.status("stranger")["stranded"]["types"] == ["newer"]

    house.queue("stranger", version="2", scaling=SMALL)

    until(ended(redis_of, "stranger", 1), within=120, every=1, what="the new release ran it")
    until(
        lambda: house.condition("stranger", "StrandedJobs").get("status") != "True", within=60, every=1,
        what="nothing is stranded any more",
    )  # fmt: skip
    house.delete("stranger")


@pytest.mark.covers("RT-126", "RT-128")
def test_the_redis_pod_is_deleted_under_load_and_nothing_is_lost(
    house: House, redis_of: Redis, producer: Producer
) -> None:
    house.queue("outage", scaling={"minReplicas": 2, "maxReplicas": 2})
    keys = [f"k{n}" for n in range(400)]
    producer.enqueue_many("outage", "work", [{"run": "outage", "key": k, "seconds": 0.5} for k in keys])
    until(ended(redis_of, "outage", 40), within=120, every=0.5, what="the first jobs ended")

    house.cluster.kubectl("delete", "pod", house.redis_pod(), "-n", SYSTEM, "--wait=false")

    until(ended(redis_of, "outage", len(keys)), within=180, every=1, what="every job ended")
    assert set(redis_of.counts("outage", "ended")) == set(keys)
    restarts = [
        status["restartCount"]
        for pod in house.pods("outage")
        for status in pod["status"].get("containerStatuses", [])
    ]
    assert restarts == [0] * len(restarts), "an outage of Redis restarts no worker"
    house.delete("outage")


@pytest.mark.covers("RT-120")
def test_a_worker_that_is_killed_loses_no_job(house: House, redis_of: Redis, producer: Producer) -> None:
    house.queue("killed", scaling={"minReplicas": 2, "maxReplicas": 2})
    keys = [f"k{n}" for n in range(120)]
    producer.enqueue_many("killed", "work", [{"run": "killed", "key": k, "seconds": 1} for k in keys])
    until(ended(redis_of, "killed", 10), within=120, every=0.2, what="the first jobs ended")

    victim = house.live_pods("killed")[0]["metadata"]["name"]
    house.kill_now(SPACE, victim)

    until(ended(redis_of, "killed", len(keys)), within=120, every=0.5, what="every job ended")
    began = redis_of.counts("killed", "began")
    assert set(began) == set(keys)
    again = [key for key, times in began.items() if times > 1]
    assert len(again) <= 10, "only what the killed worker held ran again"
    house.delete("killed")


@pytest.mark.covers("OP-162", "OP-302")
def test_the_leader_is_killed_in_the_middle_of_a_scale_down_and_no_job_is_cut(
    house: House, redis_of: Redis, producer: Producer
) -> None:
    house.queue("leaderless", scaling={"minReplicas": 3, "maxReplicas": 3})
    until(lambda: len(house.live_pods("leaderless")) == 3, within=120, every=0.5, what="three pods")
    keys = [f"k{n}" for n in range(20)]
    producer.enqueue_many(
        "leaderless", "work", [{"run": "leaderless", "key": k, "seconds": 20} for k in keys]
    )
    until(
        lambda: len(redis_of.counts("leaderless", "began")) == len(keys),
        within=60,
        every=0.5,
        what="all jobs run",
    )
    house.queue("leaderless", scaling={"minReplicas": 0, "maxReplicas": 1})
    leader = until(house.leader, within=60, every=0.5, what="a leader")

    house.kill_now(SYSTEM, leader)

    until(ended(redis_of, "leaderless", len(keys)), within=120, every=0.5, what="every job ended")
    assert redis_of.counts("leaderless", "began") == dict.fromkeys(keys, 1)
    until(lambda: house.pods("leaderless") == [], within=240, every=1, what="no pod is left")
    house.delete("leaderless")


@pytest.mark.covers("RT-194", "OP-304")
def test_a_wrong_password_is_a_condition_and_a_log_line_without_the_secret(house: House) -> None:
    secret = "hunter2-not-the-password"
    house.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "dockwork-redis-wrong", "namespace": SPACE},
            "stringData": {"url": f"redis://:{secret}@dockwork-redis.{SYSTEM}.svc:6379/0"},
        }
    )
    house.queue(
        "locked-out",
        redis={"urlFrom": {"secretKeyRef": {"name": "dockwork-redis-wrong", "key": "url"}}},
        scaling={"minReplicas": 1, "maxReplicas": 1},
    )
    seen = until(
        lambda: house.condition("locked-out", "RedisReachable").get("reason"),
        within=60,
        every=1,
        what="a condition",
    )
    assert seen == "AuthFailed"
    told = json.dumps(house.cluster.get("queues.dockwork.dev", "locked-out", namespace=SPACE))
    for pod in house.operators():
        told += house.cluster.kubectl("logs", pod["metadata"]["name"], "-n", SYSTEM)
    told += house.cluster.kubectl("get", "events", "-n", SPACE, "-o", "json")
    assert secret not in told
    house.delete("locked-out")
