"""When a status is news, what it contains, and which events go with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from dockwork_operator.decide.plan import Event, EventType
from dockwork_operator.decide.queue import decide_queue
from dockwork_operator.decide.seen import QueueSeen, RedisFailure, ServerSeen
from dockwork_operator.decide.status import HISTORY, has_moved, is_news, transitions
from dockwork_operator.models.conditions import StatusCondition
from support.decisions import (
    NOW,
    NOW_MS,
    RUN,
    a_condition,
    a_deployment,
    a_memory,
    a_pod,
    a_queue,
    a_sample,
    a_worker,
    a_world,
    redis,
    settled,
)

QUEUE = a_queue()
JUST_NOW = NOW - timedelta(seconds=9)
A_WHILE_AGO = NOW - timedelta(seconds=10)


def a_status(**facts: Any) -> dict[str, Any]:
    return {
        "observedGeneration": 1,
        "conditions": [{"type": "Ready", "status": "True", "reason": "AsDeclared", "message": "fine"}],
        "depth": {"ready": 100, "oldestSeconds": 0},
        "workers": {"ready": 2, "busy": 10},
        "scaling": {"wanted": 2},
        **facts,
    }


# --- is it news ------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-103")
def test_an_unchanged_status_is_never_written() -> None:
    assert not is_news(a_status(), a_status(), None, NOW)


@pytest.mark.covers("OP-103")
@pytest.mark.parametrize(
    "news",
    [
        {"observedGeneration": 2},
        {"scaling": {"wanted": 3}},
        {"conditions": [{"type": "Ready", "status": "False", "reason": "AsDeclared", "message": "fine"}]},
        {"conditions": [{"type": "Ready", "status": "True", "reason": "Other", "message": "fine"}]},
        {"conditions": []},
    ],
    ids=["generation", "wanted", "status of a condition", "reason", "a condition less"],
)
def test_what_people_and_tools_wait_for_is_written_at_once(news: dict[str, Any]) -> None:
    assert is_news(a_status(), a_status(**news), NOW, NOW)


@pytest.mark.covers("OP-103")
@pytest.mark.parametrize(
    ("depth", "counts"),
    [(110, False), (111, True), (90, False), (89, True), (0, True)],
)
def test_depth_counts_after_ten_seconds_and_more_than_a_tenth(depth: int, counts: bool) -> None:
    moved = a_status(depth={"ready": depth, "oldestSeconds": 0})

    assert is_news(a_status(), moved, A_WHILE_AGO, NOW) is counts
    assert is_news(a_status(), moved, None, NOW) is counts
    assert not is_news(a_status(), moved, JUST_NOW, NOW)


@pytest.mark.covers("OP-103")
def test_from_zero_is_always_a_large_move() -> None:
    assert has_moved(0, 1)
    assert has_moved(None, 1)
    assert not has_moved(None, 0)


@pytest.mark.covers("OP-103")
@pytest.mark.parametrize(
    "news",
    [
        {"workers": {"ready": 1, "busy": 10}},
        {"conditions": [{"type": "Ready", "status": "True", "reason": "AsDeclared", "message": "new"}]},
    ],
    ids=["ready pods", "the text of a condition"],
)
def test_small_exact_changes_wait_for_the_pace_and_then_count(news: dict[str, Any]) -> None:
    assert not is_news(a_status(), a_status(**news), JUST_NOW, NOW)
    assert is_news(a_status(), a_status(**news), A_WHILE_AGO, NOW)


@pytest.mark.covers("OP-103", "OP-105")
def test_a_world_that_agrees_needs_no_action_and_no_status() -> None:
    seen, memory = settled(QUEUE, a_world(QUEUE), a_memory())

    plan = decide_queue(QUEUE, seen, memory, NOW + timedelta(seconds=2))

    assert (plan.actions, plan.status, plan.events) == ((), None, ())


@pytest.mark.covers("OP-105")
def test_a_process_that_starts_over_an_agreeing_world_touches_only_the_owner_record() -> None:
    queue = a_queue(scaling={"minReplicas": 1})
    world = a_world(
        queue,
        deployment=a_deployment(queue, 1),
        pods=(a_pod("a", queue),),
        redis=redis(a_sample(workers=(a_worker("a"),))),
    )
    seen, _ = settled(queue, world, a_memory(queue))
    newborn = replace(a_memory(queue), since=NOW, configured=None, configured_at=None, owned=False)

    plan = decide_queue(queue, seen, newborn, NOW)

    assert [type(action).__name__ for action in plan.actions] == ["Configure"]
    assert plan.status is None


# --- contents --------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-110")
def test_the_status_shows_the_queue_and_its_fleet() -> None:
    queue = a_queue(scaling={"minReplicas": 2})
    sample = a_sample(
        ready=3, prioritized=1, delayed=7, due=2, due_soon=4, active=4, dead=1, oldest_ms=2900, bytes=9
    )
    sample = replace(sample, workers=(a_worker("a", busy=4), a_worker("gone", beat_ms=NOW_MS - 16_000)))
    pods = (a_pod("a", queue), a_pod("b", queue, ready=False), a_pod("c", queue, terminating=True))
    world = a_world(queue, deployment=a_deployment(queue, 2), pods=pods, redis=redis(sample))

    status = decide_queue(queue, world, a_memory(queue), NOW).status

    assert status is not None
    assert status["selector"] == "dockwork.dev/queue=mail"
    assert status["depth"] == {
        "waiting": 6,
        "ready": 3,
        "prioritized": 1,
        "delayed": 7,
        "dueSoon": 4,
        "active": 4,
        "parked": 0,
        "dead": 1,
        "oldestSeconds": 2,
        "bytes": 9,
    }
    assert status["workers"] == {
        "replicas": 2,
        "ready": 1,
        "quiesced": 0,
        "terminating": 1,
        "slots": 10,
        "busy": 4,
        "graceSeconds": 310,
        "podStartMillis": 10_000,
    }
    assert status["scaling"]["effective"] == {
        "mode": "Auto",
        "min": 2,
        "max": 10,
        "drainTargetSeconds": 15,
        "utilizationPercent": 80,
        "windowSeconds": 60,
    }


@pytest.mark.covers("OP-151")
def test_a_decision_is_kept_with_what_it_was_made_from() -> None:
    seen, memory = settled(QUEUE, a_world(QUEUE), a_memory())
    more = replace(seen, redis=redis(a_sample(time_ms=NOW_MS + 2000, ready=900, oldest_ms=1500)))

    status = decide_queue(QUEUE, more, memory, NOW + timedelta(seconds=2)).status

    assert status is not None
    assert status["scaling"]["wanted"] == 6
    assert status["scaling"]["lastDecision"] == {
        "at": "2026-03-02T12:00:02Z",
        "from": 0,
        "raw": 6,
        "to": 6,
        "reason": "FromZero",
        "message": "FromZero: 900 jobs wait, 0 run, 1 s each; the formula says 6",
        "waiting": 900,
        "active": 0,
        "oldestSeconds": 1,
        "serviceMillis": 1000,
        "arrivalsPerMinute": 0,
    }
    assert status["scaling"]["history"][-1] == status["scaling"]["lastDecision"]


@pytest.mark.covers("OP-151")
def test_pods_for_jobs_that_are_due_soon_are_not_said_to_be_for_jobs_that_wait() -> None:
    seen, memory = settled(QUEUE, a_world(QUEUE), a_memory())
    soon = replace(seen, redis=redis(a_sample(time_ms=NOW_MS + 2000, due_soon=30)))

    status = decide_queue(QUEUE, soon, memory, NOW + timedelta(seconds=2)).status

    assert status is not None
    decision = status["scaling"]["lastDecision"]
    assert decision["reason"] == "Prewarm"
    assert decision["message"].startswith("Prewarm: 30 jobs are due soon, 0 run")


@pytest.mark.covers("OP-151")
def test_only_the_last_twenty_decisions_are_kept() -> None:
    seen, memory = settled(QUEUE, a_world(QUEUE), a_memory())
    for step in range(HISTORY + 5):
        at = NOW + timedelta(seconds=10 * (step + 1))
        sample = a_sample(time_ms=NOW_MS + 10_000 * (step + 1), ready=150 * (step % 2 + 1))
        seen, memory = settled(QUEUE, replace(seen, redis=redis(sample)), memory, at)

    history = seen.status["scaling"]["history"]
    assert len(history) == HISTORY
    assert all(one["to"] == two["from"] for one, two in pairwise(history))


def test_figures_stay_as_they_were_while_redis_cannot_be_read() -> None:
    world = a_world(
        QUEUE, redis=redis(a_sample(ready=5)), deployment=a_deployment(QUEUE, 1), pods=(a_pod("a"),)
    )
    seen, memory = settled(QUEUE, world, a_memory())
    lost = replace(seen, redis=redis(failure=RedisFailure.TIMEOUT, message="no answer in 2 s"))

    status = decide_queue(QUEUE, lost, memory, NOW + timedelta(seconds=2)).status

    assert status is not None
    assert status["depth"]["ready"] == 5
    assert status["scaling"]["stale"] is True


# --- events ----------------------------------------------------------------------------------------------


def after(kind: str, status: str, reason: str = "Some", message: str = "why") -> StatusCondition:
    return StatusCondition(type=kind, status=status, reason=reason, message=message, last_transition_time=NOW)


WARNING, NORMAL = EventType.WARNING, EventType.NORMAL


@pytest.mark.covers("OP-104", "OP-112")
@pytest.mark.parametrize(
    ("old", "new", "events"),
    [
        (None, after("Accepted", "False"), (Event(reason="Rejected", message="why", type=WARNING),)),
        (None, after("Accepted", "True"), ()),
        (
            a_condition("RedisReachable", "True"),
            after("RedisReachable", "False"),
            (Event(reason="RedisUnreachable", message="why", type=WARNING),),
        ),
        (
            a_condition("RedisReachable", "False"),
            after("RedisReachable", "True"),
            (Event(reason="RedisRecovered", message="Redis can be read again"),),
        ),
        (None, after("RedisReachable", "True"), ()),
        (a_condition("RedisReachable", "False"), after("RedisReachable", "False"), ()),
        (None, after("RedisSafe", "False"), (Event(reason="RedisUnsafe", message="why", type=WARNING),)),
        (None, after("StrandedJobs", "True"), (Event(reason="JobsStranded", message="why", type=WARNING),)),
        (None, after("Paused", "True"), (Event(reason="Paused", message="why"),)),
        (
            a_condition("Paused", "True"),
            after("Paused", "False"),
            (Event(reason="Resumed", message="claims go on"),),
        ),
        (
            a_condition("Degraded", "False", "None"),
            after("Degraded", "True", "CrashLoop"),
            (Event(reason="WorkerCrashLooping", message="why", type=WARNING),),
        ),
        (
            a_condition("Degraded", "True", "CrashLoop"),
            after("Degraded", "True", "NameConflict"),
            (Event(reason="NameConflict", message="why", type=WARNING),),
        ),
        (
            a_condition("Degraded", "False", "None"),
            after("Degraded", "True", "ReplicasContested"),
            (Event(reason="ReplicasContested", message="why", type=WARNING),),
        ),
        (a_condition("Degraded", "True", "CrashLoop"), after("Degraded", "False", "None"), ()),
    ],
)
def test_a_transition_is_one_event(old: Any, new: StatusCondition, events: tuple[Event, ...]) -> None:
    assert transitions({} if old is None else {old.type: old}, (new,)) == events


def events_of(world: QueueSeen, queue: Any = QUEUE, memory: Any = None) -> dict[str, str]:
    return {e.reason: e.message for e in decide_queue(queue, world, memory or a_memory(), NOW).events}


@pytest.mark.covers("OP-104", "OP-112")
def test_scaling_tells_from_where_to_where_and_why() -> None:
    world = a_world(QUEUE, redis=redis(a_sample(ready=900)))

    told = events_of(world)

    assert (
        told["ScaledUp"] == "from 0 to 6 pods: FromZero: 900 jobs wait, 0 run, 1 s each; the formula says 6"
    )


@pytest.mark.covers("OP-011", "OP-112")
def test_replicas_that_nobody_heeds_are_told_once_and_stay_in_scaling_active() -> None:
    queue = a_queue(2, replicas=5)
    world = a_world(queue, redis=redis(a_sample(config_generation=2)), status={"observedGeneration": 1})

    told = events_of(world, queue, a_memory(queue))
    seen, memory = settled(queue, world, a_memory(queue))
    again = decide_queue(queue, seen, memory, NOW + timedelta(seconds=20))

    assert told["ReplicasIgnored"] == "spec.replicas (5) is ignored: scaling.mode is Auto"
    active = next(c for c in seen.status["conditions"] if c["type"] == "ScalingActive")
    assert active["message"] == "spec.replicas (5) is ignored: scaling.mode is Auto, not External"
    assert again.events == ()


@pytest.mark.covers("OP-112")
def test_a_rollout_is_told_when_it_starts_and_when_it_is_over() -> None:
    old = a_queue(1)
    new = a_queue(2, worker={"image": "r/shop:2", "app": "shop.jobs:app"})
    rolling = a_world(new, deployment=a_deployment(old, 1), redis=redis(a_sample(config_generation=2)))
    done = replace(
        rolling,
        deployment=a_deployment(new, 1),
        pods=(a_pod("n", new),),
        status={"rollout": {"state": "Progressing"}, "observedGeneration": 2},
    )

    assert "RolloutStarted" in events_of(rolling, new, a_memory(new))
    assert "RolloutPromoted" in events_of(done, new, a_memory(new))


@pytest.mark.covers("OP-112", "OP-148")
def test_lost_data_is_told() -> None:
    gone = a_world(QUEUE, redis=redis(a_sample(owner=None)))

    assert "RedisDataLost" in events_of(gone)
    assert "RedisDataLost" not in events_of(a_world(QUEUE))


def test_the_run_id_is_the_newest_one_seen() -> None:
    server = ServerSeen(version="7.2.5", run_id=RUN)
    world = a_world(QUEUE, redis=replace(redis(a_sample(run_id="run-2")), server=server))

    status = decide_queue(QUEUE, world, a_memory(), NOW).status

    assert status is not None
    assert "run-2" in status["redis"].values()
