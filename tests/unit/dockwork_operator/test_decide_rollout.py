"""Rolling updates: what is shown, what makes them wait, and whom they interrupt."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dockwork_operator.constants import ScaleReason
from dockwork_operator.decide.memory import Interrupted, ScaleDown
from dockwork_operator.decide.plan import ApplyChild, Count, Scale
from dockwork_operator.decide.queue import decide_queue
from dockwork_operator.decide.rollout import count_interrupted, must_pause, see_rollout, share
from dockwork_operator.decide.seen import ConditionSeen, ContainerEnd, ContainerSeen, PodSeen
from support.decisions import (
    NOW,
    OPERATOR,
    a_deployment,
    a_memory,
    a_pod,
    a_queue,
    a_sample,
    a_worker,
    a_world,
    conditions,
    hash_of,
    message,
    redis,
)

OLD = a_queue(1)
NEW = a_queue(2, worker={"image": "r/shop:2", "app": "shop.jobs:app"})
HASH = hash_of(NEW)


def old_pod(name: str, **facts: Any) -> PodSeen:
    return a_pod(name, OLD, replica_set="rs-old", **facts)


def new_pod(name: str, **facts: Any) -> PodSeen:
    return a_pod(name, NEW, replica_set="rs-new", **facts)


def a_rolling_world(*pods: PodSeen, **facts: Any) -> Any:
    return a_world(
        NEW,
        deployment=a_deployment(NEW, len(pods), **facts),
        pods=pods,
        redis=redis(a_sample(config_generation=2)),
    )


# --- what is shown ---------------------------------------------------------------------------------------


@pytest.mark.covers("OP-201")
def test_a_new_template_is_applied_and_shown_until_every_pod_has_it() -> None:
    declared = a_world(
        NEW, deployment=a_deployment(OLD, 1), pods=(old_pod("a"),), redis=redis(a_sample(config_generation=2))
    )
    half = a_rolling_world(new_pod("n"), old_pod("a"))
    done = a_rolling_world(new_pod("n"))

    def shown(world: Any) -> tuple[str, str]:
        return conditions(decide_queue(NEW, world, a_memory(NEW), NOW))["Progressing"]

    first = decide_queue(NEW, declared, a_memory(NEW), NOW)
    assert [(a.kind, a.reason) for a in first.actions if isinstance(a, ApplyChild)] == [
        ("Deployment", "the template changed")
    ]
    assert shown(declared) == shown(half) == ("True", "RolloutInProgress")
    assert shown(done) == ("False", "Complete")
    plan = decide_queue(NEW, half, a_memory(NEW), NOW)
    assert message(plan, "Progressing") == "1 of 2 pods are new and ready, 1 are old"


@pytest.mark.covers("OP-201")
def test_a_broken_image_leaves_the_old_pods_and_ready_alone() -> None:
    broken = new_pod(
        "n",
        ready=False,
        containers=(ContainerSeen(name="worker", running=False, waiting="ImagePullBackOff"),),
    )

    plan = decide_queue(NEW, a_rolling_world(old_pod("a"), broken), a_memory(NEW), NOW)

    assert conditions(plan)["Ready"] == ("True", "Untried")
    assert [a for a in plan.actions if isinstance(a, Scale)] == []


@pytest.mark.covers("OP-203")
def test_a_passed_deadline_is_reported_with_its_cause_and_nothing_is_rolled_back() -> None:
    overdue = {
        "Progressing": ConditionSeen(type="Progressing", status="False", reason="ProgressDeadlineExceeded")
    }
    waiting = ContainerSeen(name="worker", running=False, waiting="ImagePullBackOff")
    world = a_rolling_world(
        old_pod("a"), new_pod("n", ready=False, containers=(waiting,)), conditions=overdue
    )

    plan = decide_queue(NEW, world, a_memory(NEW), NOW)

    assert plan.actions == ()
    assert conditions(plan)["Stalled"] == ("True", "ProgressDeadlineExceeded")
    assert message(plan, "Stalled") == (
        "the rollout made no progress within its deadline; the old pods go on: "
        "container worker of pod n cannot start: ImagePullBackOff"
    )
    assert plan.status is not None
    assert plan.status["rollout"]["state"] == "Stalled"


def test_the_deadline_of_an_older_template_is_no_news() -> None:
    overdue = {
        "Progressing": ConditionSeen(type="Progressing", status="False", reason="ProgressDeadlineExceeded")
    }

    assert not see_rollout(a_deployment(OLD, 1, conditions=overdue), (old_pod("a"),), HASH).overdue


@pytest.mark.covers("OP-168")
@pytest.mark.parametrize(
    ("pods", "two"),
    [
        ((new_pod("n"), new_pod("m")), False),
        ((new_pod("n"), old_pod("a")), True),
        ((new_pod("n"), old_pod("a", terminating=True)), False),
        ((new_pod("n"), new_pod("restarted", created=NOW)), False),
        ((new_pod("n"), replace(new_pod("m"), replica_set="rs-restart")), True),
        ((old_pod("a"),), True),
    ],
    ids=["one", "two", "the old one ends", "a younger pod", "kubectl rollout restart", "just applied"],
)
def test_whether_two_replica_sets_live(pods: tuple[PodSeen, ...], two: bool) -> None:
    assert see_rollout(a_deployment(NEW, len(pods)), pods, HASH).two_live is two


@pytest.mark.covers("OP-168")
def test_no_scale_down_while_two_versions_live_and_the_decision_says_why() -> None:
    plan = decide_queue(NEW, a_rolling_world(new_pod("n"), old_pod("a")), a_memory(NEW, asked=2), NOW)

    assert plan.actions == ()
    assert plan.status is not None
    assert plan.status["scaling"]["lastDecision"]["reason"] == ScaleReason.ROLLOUT_IN_PROGRESS


# --- what makes it wait ----------------------------------------------------------------------------------


@pytest.mark.covers("OP-202")
@pytest.mark.parametrize(
    ("of", "wanted", "pods"), [("100%", 3, 3), ("25%", 10, 3), ("50%", 1, 1), (4, 10, 4), ("100%", 0, 0)]
)
def test_a_share_of_the_wanted_pods_is_rounded_up(of: str | int, wanted: int, pods: int) -> None:
    assert share(of, wanted) == pods


@pytest.mark.covers("OP-202")
def test_a_rollout_pauses_while_too_many_old_pods_still_finish_their_jobs() -> None:
    ending = tuple(old_pod(f"e{i}", terminating=True) for i in range(2))
    queue = a_queue(2, worker=NEW.spec.worker.wire(), scaling={"minReplicas": 2})
    world = replace(a_rolling_world(new_pod("n"), old_pod("a"), *ending), deployment=a_deployment(queue, 2))

    paused = decide_queue(queue, world, a_memory(queue, asked=2), NOW)
    fewer = decide_queue(queue, replace(world, pods=world.pods[:-1]), a_memory(queue, asked=2), NOW)

    (apply,) = (a for a in paused.actions if isinstance(a, ApplyChild))
    assert apply.manifest["spec"]["paused"] is True
    assert [a for a in fewer.actions if isinstance(a, ApplyChild)] == []


@pytest.mark.covers("OP-202")
def test_without_a_rollout_terminating_pods_pause_nothing() -> None:
    ending = tuple(new_pod(f"e{i}", terminating=True) for i in range(9))

    assert not must_pause(see_rollout(a_deployment(NEW, 1), (new_pod("n"), *ending), HASH), "100%", 1)


@pytest.mark.covers("OP-200")
def test_an_operator_upgrade_rolls_only_so_many_queues_at_once_a_new_spec_waits_for_nobody() -> None:
    world = a_world(
        NEW,
        deployment=a_deployment(OLD, 1),
        pods=(old_pod("a"),),
        redis=redis(a_sample(config_generation=2)),
        operator=replace(OPERATOR, rollouts=5, max_rollouts=5),
    )
    upgrade = replace(world, status={"observedGeneration": 2})

    def applies(one: Any) -> int:
        return len(
            [a for a in decide_queue(NEW, one, a_memory(NEW), NOW).actions if isinstance(a, ApplyChild)]
        )

    assert applies(world) == 1
    assert applies(upgrade) == 0
    assert conditions(decide_queue(NEW, upgrade, a_memory(NEW), NOW))["Progressing"] == ("False", "Held")
    assert applies(replace(upgrade, operator=replace(OPERATOR, rollouts=4))) == 1


# --- whom it interrupts ----------------------------------------------------------------------------------

METRIC = "dockwork_jobs_interrupted_total"


@pytest.mark.covers("OP-223")
@pytest.mark.parametrize(
    ("pod", "cause"),
    [
        (new_pod("p", terminating=True, deletion_cost=-100), "scale_down"),
        (old_pod("p", terminating=True), "rollout"),
        (new_pod("p", terminating=True, disrupted="EvictionByEvictionAPI"), "eviction"),
        (new_pod("p", terminating=True), "eviction"),
        (new_pod("p"), "crash"),
    ],
    ids=["scale_down", "rollout", "eviction", "deleted by hand", "restarted by its probe"],
)
def test_jobs_that_a_stopping_worker_puts_back_are_counted_once_by_cause(pod: PodSeen, cause: str) -> None:
    before = a_memory(abandoned=4, leased={"p-uid": 3})
    sample = a_sample(totals={"abandoned": 7})

    memory, counts = count_interrupted(before, (pod,), sample, HASH)
    memory, again = count_interrupted(memory, (pod,), sample, HASH)

    assert counts == (Count(metric=METRIC, by=3, labels={"cause": cause}),)
    assert again == ()
    assert memory.interrupted == Interrupted(requeued=3, killed=0)


@pytest.mark.covers("OP-223")
def test_a_pod_that_is_gone_before_its_last_word_still_has_its_cause() -> None:
    down = ScaleDown(token="t", victims=("p-uid",), began=NOW)
    ending = new_pod("p", terminating=True)
    memory = a_memory(scale_down=down, abandoned=0, leased={"p-uid": 2})

    memory, _ = count_interrupted(memory, (ending,), a_sample(leased={"p-uid": 2}), HASH)
    memory, _ = count_interrupted(replace(memory, scale_down=None), (), a_sample(leased={"p-uid": 2}), HASH)
    memory, counts = count_interrupted(memory, (), a_sample(totals={"abandoned": 2}), HASH)

    assert counts == (Count(metric=METRIC, by=2, labels={"cause": "scale_down"}),)
    assert memory.endings == {}


@pytest.mark.covers("OP-223")
def test_jobs_of_two_pods_are_told_apart_by_whose_leases_went() -> None:
    memory = a_memory(abandoned=0, leased={"a-uid": 5, "b-uid": 1})
    pods = (old_pod("a", terminating=True), new_pod("b", terminating=True, deletion_cost=-100))
    sample = a_sample(totals={"abandoned": 3}, leased={"a-uid": 3})

    _, counts = count_interrupted(memory, pods, sample, HASH)

    assert counts == (
        Count(metric=METRIC, by=2, labels={"cause": "rollout"}),
        Count(metric=METRIC, by=1, labels={"cause": "scale_down"}),
    )


def test_what_was_put_back_before_the_first_look_is_not_counted() -> None:
    _, counts = count_interrupted(a_memory(), (), a_sample(totals={"abandoned": 9}), HASH)

    assert counts == ()


@pytest.mark.covers("OP-223")
def test_jobs_of_a_container_that_died_are_counted_as_killed_once() -> None:
    killed = ContainerSeen(
        name="worker", restarts=1, last_end=ContainerEnd(exit_code=137, reason="OOMKilled")
    )
    memory = a_memory(leased={"p-uid": 4})

    memory, counts = count_interrupted(memory, (new_pod("p", containers=(killed,)),), a_sample(), HASH)
    memory, again = count_interrupted(memory, (new_pod("p", containers=(killed,)),), a_sample(), HASH)

    assert counts == (Count(metric=METRIC, by=4, labels={"cause": "crash"}),)
    assert again == ()
    assert memory.interrupted == Interrupted(requeued=0, killed=4)


@pytest.mark.covers("OP-223")
def test_a_worker_that_ends_well_interrupts_nothing() -> None:
    done = ContainerSeen(name="worker", running=False, ended=ContainerEnd(exit_code=0, reason="Completed"))
    memory = a_memory(leased={"p-uid": 4})

    _, counts = count_interrupted(memory, (new_pod("p", containers=(done,)),), a_sample(), HASH)

    assert counts == ()


# --- stranded jobs ---------------------------------------------------------------------------------------

PARKED = a_sample(parked=3, parked_types={"mail.fax": 2, "mail.telex@ab12": 1}, parked_first="job-1")


@pytest.mark.covers("OP-218")
def test_jobs_of_a_type_that_nobody_knows_are_stranded_after_a_minute() -> None:
    young = decide_queue(OLD, a_world(OLD, redis=redis(PARKED)), a_memory(), NOW)
    later = decide_queue(OLD, a_world(OLD, redis=redis(PARKED)), young.memory, NOW + timedelta(seconds=60))

    assert conditions(young)["StrandedJobs"] == ("False", "None")
    assert conditions(later)["StrandedJobs"] == ("True", "UnknownType")
    assert message(later, "StrandedJobs") == (
        "no live worker knows mail.fax, mail.telex@ab12; the first is job-1"
    )
    assert later.status is not None
    assert set(map(str, later.status["stranded"].values())) == {
        "3",
        "job-1",
        "['mail.fax', 'mail.telex@ab12']",
    }
    assert "JobsStranded" in [e.reason for e in later.events]


@pytest.mark.covers("OP-218")
def test_a_worker_that_knows_the_type_or_a_rollout_that_may_bring_it_ends_the_wait() -> None:
    memory = a_memory(stranded_since=NOW - timedelta(minutes=5))
    knowing = replace(PARKED, workers=(a_worker("a", schemas={"mail.fax": "cd34", "mail.telex": "ab12"}),))
    rolling = replace(
        a_rolling_world(new_pod("n"), old_pod("a")), redis=redis(replace(PARKED, config_generation=2))
    )

    known = decide_queue(OLD, a_world(OLD, redis=redis(knowing)), memory, NOW)
    coming = decide_queue(NEW, rolling, replace(memory, configured=a_memory(NEW).configured), NOW)

    assert conditions(known)["StrandedJobs"] == ("False", "None")
    assert conditions(coming)["StrandedJobs"] == ("False", "None")
    assert known.memory.stranded_since is None
    other = replace(PARKED, workers=(a_worker("a", schemas={"mail.fax": "cd34", "mail.telex": "ef56"}),))
    stranded = decide_queue(OLD, a_world(OLD, redis=redis(other)), memory, NOW)
    assert message(stranded, "StrandedJobs") == "no live worker knows mail.telex@ab12; the first is job-1"
