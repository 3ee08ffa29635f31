"""The table of situations: which conditions hold, and what tools such as `kubectl wait` and helm make of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from dockwork_operator.decide.memory import Memory
from dockwork_operator.decide.plan import ApplyFailure, Event, EventType, FailureKind
from dockwork_operator.decide.queue import decide_queue
from dockwork_operator.decide.seen import (
    ConditionSeen,
    ContainerEnd,
    ContainerSeen,
    QueueSeen,
    RedisFailure,
    RedisSeen,
    SecretSeen,
    SecretState,
    ServerSeen,
    pod_seen,
)
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue
from support.decisions import (
    LONG_AGO,
    NOW,
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
    settled,
)

QUEUE = a_queue()
BAD = Refused(field="spec.worker.slots", expected="a whole number from 1 to 1000", got="0")
DOWN = redis(failure=RedisFailure.CONNECT_FAILED, message="connection refused")
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "AsDeclared",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def kstatus(found: dict[str, tuple[str, str]]) -> str:
    """What kstatus computes of these conditions (observedGeneration is the object's)."""
    if found.get("Reconciling", ("", ""))[0] == "True":
        return "InProgress"
    if found.get("Stalled", ("", ""))[0] == "True":
        return "Failed"
    return "InProgress" if found["Ready"][0] != "True" else "Current"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A situation of the table, and what must hold in it. `says` wins over the four columns' defaults."""

    name: str
    world: QueueSeen
    memory: Memory = field(default_factory=a_memory)
    queue: Queue | Refused = QUEUE
    accepted: bool = True
    ready: bool = True
    reconciling: str = ""
    stalled: str = ""
    says: dict[str, tuple[str, str]] = field(default_factory=dict)
    kstatus: str = "Current"


OLD_POD = a_pod("old", template_hash="before", replica_set="rs-0")
OVERDUE = {
    "Progressing": ConditionSeen(type="Progressing", status="False", reason="ProgressDeadlineExceeded")
}
CRASHING = ContainerSeen(
    name="worker",
    restarts=4,
    running=False,
    waiting="CrashLoopBackOff",
    last_end=ContainerEnd(exit_code=3, reason="Error"),
)
UNREADY = a_memory(not_ready_since=NOW - timedelta(minutes=3))
#: The status of a Queue whose version had ready pods.
TRIED = {
    "conditions": [READY],
    "observedGeneration": 1,
    "rollout": {"state": "Complete", "stableHash": hash_of(QUEUE)},
}
IMAGELESS = ContainerSeen(name="worker", running=False, waiting="ImagePullBackOff", waiting_message="gone")

ROWS = (
    Row(
        name="steady at 0 pods, never had any",
        world=a_world(QUEUE),
        says={"Ready": ("True", "Untried"), "ScalingActive": ("True", "Auto")},
    ),
    Row(
        name="steady at 0 pods, had some",
        world=a_world(QUEUE, status=TRIED),
        says={"Ready": ("True", "AsDeclared"), "Progressing": ("False", "Complete")},
    ),
    Row(
        name="the first pods start",
        world=a_world(QUEUE, deployment=a_deployment(QUEUE, 1), pods=(a_pod("a", ready=False),)),
        ready=False,
        reconciling="WorkersUnavailable",
        says={"Ready": ("False", "WorkersUnavailable"), "Progressing": ("True", "RolloutInProgress")},
        kstatus="InProgress",
    ),
    Row(
        name="the first pods cannot start",
        world=a_world(
            QUEUE,
            deployment=a_deployment(QUEUE, 1),
            pods=(a_pod("a", ready=False, containers=(IMAGELESS,)),),
        ),
        ready=False,
        reconciling="WorkersUnavailable",
        says={"Ready": ("False", "WorkersUnavailable"), "Degraded": ("True", "PodsCannotStart")},
        kstatus="InProgress",
    ),
    Row(
        name="from 0 pods, of a version that had some",
        world=a_world(
            QUEUE, deployment=a_deployment(QUEUE, 1), pods=(a_pod("a", ready=False),), status=TRIED
        ),
        says={"Ready": ("True", "AsDeclared"), "Progressing": ("False", "Complete")},
    ),
    Row(
        name="from 0 pods, only another version had some",
        world=a_world(
            QUEUE,
            deployment=a_deployment(QUEUE, 1),
            pods=(a_pod("a", ready=False),),
            status={**TRIED, "rollout": {"state": "Complete", "stableHash": "before"}},
        ),
        ready=False,
        reconciling="WorkersUnavailable",
        kstatus="InProgress",
    ),
    Row(
        name="deadline passed, there were never pods that served",
        world=a_world(
            QUEUE, deployment=a_deployment(QUEUE, 1, conditions=OVERDUE), pods=(a_pod("a", ready=False),)
        ),
        memory=UNREADY,
        ready=False,
        stalled="ProgressDeadlineExceeded",
        kstatus="Failed",
    ),
    Row(
        name="steady with pods",
        world=a_world(
            QUEUE,
            deployment=a_deployment(QUEUE, 1),
            pods=(a_pod("a"),),
            redis=redis(a_sample(active=4, workers=(a_worker("a", busy=4),))),
        ),
        says={"Progressing": ("False", "Complete"), "Degraded": ("False", "None")},
    ),
    Row(
        name="max binds",
        world=a_world(QUEUE, redis=redis(a_sample(ready=99_999))),
        says={"ScalingLimited": ("True", "MaxReplicas")},
    ),
    Row(
        name="stranded",
        world=a_world(QUEUE, redis=redis(a_sample(parked=1, parked_types={"mail.fax": 1}))),
        memory=a_memory(stranded_since=NOW - timedelta(seconds=61)),
        says={"StrandedJobs": ("True", "UnknownType")},
    ),
    Row(
        name="unsafe Redis: eviction",
        world=a_world(QUEUE, redis=replace(redis(), server=ServerSeen(version="7", policy="allkeys-lru"))),
        says={"RedisSafe": ("False", "EvictionPolicy")},
    ),
    Row(
        name="unsafe Redis: memory",
        world=a_world(QUEUE, redis=replace(redis(), server=ServerSeen(version="7", memory_percent=81))),
        says={"RedisSafe": ("False", "MemoryHigh")},
    ),
    Row(
        name="unsafe Redis: clock",
        world=a_world(QUEUE, redis=replace(redis(), server=ServerSeen(version="7"), skew_ms=-1500)),
        says={"RedisSafe": ("False", "ClockSkew")},
    ),
    Row(
        name="a clock that is nearly right",
        world=a_world(QUEUE, redis=replace(redis(), server=ServerSeen(version="7"), skew_ms=900)),
        says={"RedisSafe": ("True", "Safe")},
    ),
    Row(
        name="new, children being made",
        world=a_world(QUEUE, deployment=None, children=()),
        ready=False,
        reconciling="Creating",
        says={"Ready": ("False", "WorkersUnavailable")},
        kstatus="InProgress",
    ),
    Row(
        name="bad spec",
        world=a_world(QUEUE, redis=redis()),
        queue=BAD,
        accepted=False,
        ready=False,
        stalled="NotAccepted",
        says={"Accepted": ("False", "InvalidField"), "ScalingActive": ("False", "NotAccepted")},
        kstatus="Failed",
    ),
    Row(
        name="Redis never reached",
        world=a_world(QUEUE, deployment=None, children=(), redis=DOWN),
        memory=a_memory(redis_reached=False, run_id="", configured=None, owned=False),
        ready=False,
        says={"Ready": ("False", "FirstContact"), "RedisReachable": ("False", "ConnectFailed")},
        kstatus="InProgress",
    ),
    Row(
        name="Redis lost later",
        world=a_world(QUEUE, deployment=a_deployment(QUEUE, 2), redis=DOWN, status=TRIED),
        says={
            "RedisReachable": ("False", "ConnectFailed"),
            "ScalingActive": ("False", "RedisUnreachable"),
        },
    ),
    Row(
        name="rolling",
        world=a_world(QUEUE, deployment=a_deployment(QUEUE, 2), pods=(a_pod("a"), OLD_POD)),
        reconciling="RolloutInProgress",
        says={"Progressing": ("True", "RolloutInProgress")},
        kstatus="InProgress",
    ),
    Row(
        name="deadline passed, old pods serve",
        world=a_world(
            QUEUE,
            deployment=a_deployment(QUEUE, 1, conditions=OVERDUE),
            pods=(OLD_POD, a_pod("new", ready=False)),
        ),
        stalled="ProgressDeadlineExceeded",
        says={"Progressing": ("False", "ProgressDeadlineExceeded")},
        kstatus="Failed",
    ),
    Row(
        name="wanted > 0, no pod ready for 3 min",
        world=a_world(QUEUE, deployment=a_deployment(QUEUE, 1), pods=(a_pod("a", ready=False),)),
        memory=UNREADY,
        ready=False,
        says={"Ready": ("False", "WorkersUnavailable"), "Degraded": ("False", "None")},
        kstatus="InProgress",
    ),
    Row(
        name="wanted > 0, no pod ready for 3 min, crashing",
        world=a_world(
            QUEUE,
            deployment=a_deployment(QUEUE, 1),
            pods=(a_pod("a", ready=False, containers=(CRASHING,)),),
        ),
        memory=UNREADY,
        ready=False,
        says={"Ready": ("False", "WorkersUnavailable"), "Degraded": ("True", "CrashLoop")},
        kstatus="InProgress",
    ),
    Row(
        name="403 on an apply",
        world=a_world(QUEUE, status=TRIED),
        memory=a_memory(
            failure=ApplyFailure(
                kind=FailureKind.FORBIDDEN, message="no", verb="patch", resource="deployments.apps"
            )
        ),
        stalled="Forbidden",
        says={"Ready": ("True", "AsDeclared"), "Degraded": ("True", "Forbidden")},
        kstatus="Failed",
    ),
)


@pytest.mark.covers("OP-110", "OP-111")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_conditions_of_each_situation(row: Row) -> None:
    got = conditions(decide_queue(row.queue, row.world, row.memory, NOW))

    assert got["Accepted"][0] == str(row.accepted)
    assert got["Ready"][0] == str(row.ready)
    assert got.get("Reconciling") == (("True", row.reconciling) if row.reconciling else None)
    assert got.get("Stalled") == (("True", row.stalled) if row.stalled else None)
    assert {kind: got[kind] for kind in row.says} == row.says
    assert kstatus(got) == row.kstatus


@pytest.mark.covers("OP-110", "OP-020")
@pytest.mark.parametrize("state", [state for state in SecretState if state is not SecretState.FOUND])
def test_without_its_secret_a_queue_reaches_no_redis(state: SecretState) -> None:
    reached = {"type": "RedisReachable", "status": "True", "reason": "Connected"}
    secret = SecretSeen(state=state, message="Secret shop/its-own cannot be read")
    world = a_world(QUEUE, secret=secret, redis=RedisSeen(asked=False), status={"conditions": [reached]})

    plan = decide_queue(QUEUE, world, a_memory(), NOW)

    assert conditions(plan)["RedisReachable"] == ("False", str(state))
    assert message(plan, "RedisReachable") == "Secret shop/its-own cannot be read"


@pytest.mark.covers("OP-110", "OP-112")
def test_a_version_is_complete_once_a_pod_of_it_was_ready_and_that_is_told_once() -> None:
    def told(pods: int, ready: bool, before: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
        some = tuple(a_pod(f"p{number}", ready=ready) for number in range(pods))
        world = a_world(QUEUE, deployment=a_deployment(QUEUE, pods), pods=some, status=before)
        plan = decide_queue(QUEUE, world, a_memory(), NOW)
        assert plan.status is not None
        return plan.status, [event.reason for event in plan.events]

    starting, none = told(1, ready=False, before={})
    away, nor_now = told(0, ready=False, before=starting)
    complete, once = told(1, ready=True, before=starting)
    again, _ = told(1, ready=False, before={**complete, "observedGeneration": 1})

    states = [each["rollout"]["state"] for each in (starting, away, complete, again)]
    assert states == ["Progressing", "Complete", "Complete", "Complete"]
    assert starting["rollout"]["startedAt"] == NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert "RolloutPromoted" not in none + nor_now
    assert once.count("RolloutPromoted") == 1


@pytest.mark.covers("OP-110")
def test_a_forbidden_apply_names_verb_and_resource() -> None:
    row = next(row for row in ROWS if row.name == "403 on an apply")

    plan = decide_queue(row.queue, row.world, row.memory, NOW)

    assert message(plan, "Stalled") == "the operator may not patch deployments.apps: no"


@pytest.mark.covers("OP-111")
@pytest.mark.parametrize("failure", list(RedisFailure))
def test_a_lost_redis_never_flips_ready_though_it_turns_all_pods_unready(failure: RedisFailure) -> None:
    world = a_world(
        QUEUE,
        deployment=a_deployment(QUEUE, 2),
        pods=(a_pod("a", ready=False), a_pod("b", ready=False)),
        redis=redis(failure=failure, message="gone"),
        status=TRIED,
    )
    memory = a_memory(redis_lost_since=LONG_AGO, not_ready_since=LONG_AGO)

    got = conditions(decide_queue(QUEUE, world, memory, NOW))

    assert got["Ready"] == ("True", "AsDeclared")
    assert got["RedisReachable"] == ("False", str(failure))


@pytest.mark.covers("OP-110")
def test_a_version_that_never_ran_says_why_and_an_overdue_one_speaks_of_old_pods_only_if_there_are() -> None:
    def told(name: str, condition: str) -> str:
        row = next(row for row in ROWS if row.name == name)
        return message(decide_queue(row.queue, row.world, row.memory, NOW), condition)

    why = "no worker pod of this version has been ready yet: "
    why += "container worker of pod a cannot start: ImagePullBackOff: gone"
    for condition in ("Ready", "Reconciling", "Progressing"):
        assert told("the first pods cannot start", condition) == why
    late = "the rollout made no progress within its deadline"
    assert told("deadline passed, there were never pods that served", "Stalled") == late
    assert told("deadline passed, old pods serve", "Stalled") == f"{late}; the old pods go on"


@pytest.mark.covers("OP-110")
def test_why_no_node_takes_a_pod_is_said_in_the_scheduler_s_words() -> None:
    words = "0/1 nodes are available: 1 Insufficient cpu."
    pod = pod_seen(
        {
            "metadata": {
                "name": "a",
                "uid": "u",
                "labels": {"dockwork.dev/template-hash": hash_of(QUEUE)},
            },
            "status": {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": words}],
            },
        }
    )
    world = a_world(QUEUE, deployment=a_deployment(QUEUE, 1), pods=(pod,))

    ready = message(decide_queue(QUEUE, world, a_memory(), NOW), "Ready")

    assert ready == f"no worker pod of this version has been ready yet: not scheduled: {words} (a)"


@pytest.mark.covers("OP-110")
def test_a_restart_does_not_begin_the_three_minutes_anew() -> None:
    """The Deployment knows since when it lacks pods; a process that goes on trusts its own eyes."""
    lacking = ConditionSeen(type="Available", status="False", since=NOW - timedelta(minutes=4))
    world = a_world(
        QUEUE,
        deployment=a_deployment(QUEUE, 1, conditions={"Available": lacking}),
        pods=(a_pod("a", ready=False),),
        status=TRIED,
    )
    unasked = replace(world, redis=RedisSeen())

    first = decide_queue(QUEUE, unasked, a_memory(status=TRIED), NOW)
    after = decide_queue(QUEUE, world, first.memory, NOW)
    knows = decide_queue(QUEUE, world, a_memory(looked_ms=1), NOW)

    assert conditions(after)["Ready"] == ("False", "WorkersUnavailable")
    assert conditions(knows)["Ready"] == ("True", "AsDeclared")


@pytest.mark.covers("OP-110")
def test_what_one_version_proved_does_not_pass_over_to_the_next_by_a_refusal_or_a_lost_redis() -> None:
    status = {**TRIED, "rollout": {"state": "Complete", "stableHash": "before"}}
    refused = ApplyFailure(kind=FailureKind.FORBIDDEN, message="no")
    for world, memory in (
        (a_world(QUEUE, status=status), a_memory(failure=refused)),
        (a_world(QUEUE, status=status, deployment=a_deployment(QUEUE, 1), redis=DOWN), a_memory()),
    ):
        assert conditions(decide_queue(QUEUE, world, memory, NOW))["Ready"] == ("True", "Untried")


@pytest.mark.covers("OP-110", "OP-111")
def test_bursts_of_a_version_that_ran_once_never_flip_ready_also_after_a_restart() -> None:
    idle, up = a_deployment(QUEUE), a_deployment(QUEUE, 1)
    starting, ready = (a_pod("a", ready=False),), (a_pod("a"),)
    world, memory, said = a_world(QUEUE), a_memory(), []
    for deployment, pods in ((idle, ()), (up, starting), (up, ready), (idle, ()), (up, starting)):
        world, memory = settled(QUEUE, replace(world, deployment=deployment, pods=pods), memory)
        memory = a_memory()
        found = {c["type"]: c["reason"] for c in world.status["conditions"]}
        said.append(found["Ready"])
    assert said == ["Untried", "WorkersUnavailable", "AsDeclared", "AsDeclared", "AsDeclared"]


@pytest.mark.covers("OP-110")
def test_every_condition_names_the_generation_it_speaks_of() -> None:
    queue = a_queue(7)
    plan = decide_queue(queue, a_world(queue), a_memory(queue), NOW)

    assert plan.status is not None
    assert plan.status["observedGeneration"] == 7
    assert {c["observedGeneration"] for c in plan.status["conditions"]} == {7}


@pytest.mark.covers("OP-110")
def test_a_transition_time_moves_only_with_the_status() -> None:
    stored = [
        {**READY, "reason": "Old"},
        {**READY, "type": "RedisReachable", "status": "False", "reason": "Timeout"},
    ]
    world = a_world(QUEUE, status={"conditions": stored, "observedGeneration": 1})

    plan = decide_queue(QUEUE, world, a_memory(), NOW)

    assert plan.status is not None
    times = {c["type"]: c["lastTransitionTime"] for c in plan.status["conditions"]}
    assert times["Ready"] == "2026-01-01T00:00:00Z"
    assert times["RedisReachable"] == "2026-03-02T12:00:00Z"


@pytest.mark.covers("OP-101")
def test_pods_that_the_cluster_refuses_are_reported_in_its_words() -> None:
    words = 'pods "mail-worker-1" is forbidden: violates PodSecurity "restricted:latest"'
    refused = ConditionSeen(type="ReplicaFailure", status="True", reason="FailedCreate", message=words)
    deployment = a_deployment(QUEUE, 1, conditions={"ReplicaFailure": refused})

    plan = decide_queue(QUEUE, a_world(QUEUE, deployment=deployment), a_memory(), NOW)

    assert conditions(plan)["Degraded"] == ("True", "ApplyRejected")
    assert message(plan, "Degraded") == words


@pytest.mark.covers("OP-101")
def test_a_rejected_apply_is_reported_in_the_servers_words() -> None:
    failure = ApplyFailure(kind=FailureKind.REJECTED, message="exceeded quota: pods")

    plan = decide_queue(QUEUE, a_world(QUEUE), a_memory(failure=failure), NOW)

    assert conditions(plan)["Degraded"] == ("True", "ApplyRejected")
    assert conditions(plan)["Ready"] == ("False", "ApplyFailed")
    assert message(plan, "Ready") == "exceeded quota: pods"


def test_why_no_pod_is_ready_is_said_in_ready() -> None:
    row = next(row for row in ROWS if row.name.endswith("crashing"))

    plan = decide_queue(row.queue, row.world, row.memory, NOW)

    assert message(plan, "Ready") == (
        "no worker pod has been ready for 3 min: CrashLoopBackOff (exit code 3, Error) (a)"
    )
    assert message(plan, "Degraded").startswith("container worker of pod a ends again and again (exit code 3")


# --- what the pods say -------------------------------------------------------------------------------------


def crashing(words: str, name: str = "worker") -> QueueSeen:
    container = replace(
        CRASHING, name=name, last_end=ContainerEnd(exit_code=3, reason="Error", message=words)
    )
    pods = (a_pod("a", ready=False, containers=(container,)),)
    return a_world(QUEUE, deployment=a_deployment(QUEUE, 1), pods=pods)


@pytest.mark.covers("OP-110")
def test_a_crash_loop_is_told_with_the_worker_s_last_line_or_where_to_look() -> None:
    def told(words: str, name: str = "worker") -> str:
        return message(decide_queue(QUEUE, crashing(words, name), a_memory(), NOW), "Degraded")

    what = "of pod a ends again and again (exit code 3, Error)"
    assert told("first\nno module shop\n") == f"container worker {what}: no module shop"
    assert told("") == f"container worker {what}; see kubectl logs a -c worker --previous"
    assert told("its own", "sidecar") == f"container sidecar {what}; see kubectl logs a -c sidecar --previous"
    assert told("x" * 500 + " the cause").endswith(": " + "x" * 66 + "…" + "x" * 123 + " the cause")


def unable(waiting: str, **pod: Any) -> QueueSeen:
    container = ContainerSeen(name="worker", running=False, waiting=waiting, waiting_message="no such image")
    pods = (a_pod("a", ready=False, containers=(container,), **pod),)
    return a_world(QUEUE, deployment=a_deployment(QUEUE, 1), pods=pods)


@pytest.mark.covers("OP-110")
@pytest.mark.parametrize(
    "waiting", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"]
)
def test_a_pod_that_cannot_start_degrades_at_once_and_is_told_once(waiting: str) -> None:
    words = f"container worker of pod a cannot start: {waiting}: no such image"
    first = decide_queue(QUEUE, unable(waiting), a_memory(), NOW)
    assert conditions(first)["Degraded"] == ("True", "PodsCannotStart")
    assert message(first, "Degraded") == words
    assert Event(reason="PodsCannotStart", message=words, type=EventType.WARNING) in first.events

    assert first.status is not None
    again = replace(unable("ErrImagePull"), status=first.status)
    assert "PodsCannotStart" not in {
        event.reason for event in decide_queue(QUEUE, again, a_memory(), NOW).events
    }
    well = a_world(QUEUE, deployment=a_deployment(QUEUE, 1), pods=(a_pod("a"),), status=first.status)
    assert conditions(decide_queue(QUEUE, well, a_memory(), NOW))["Degraded"] == ("False", "None")


@pytest.mark.covers("OP-110")
def test_only_pods_of_the_current_version_that_wait_for_a_person_cannot_start() -> None:
    for world in (
        unable("ImagePullBackOff", template_hash="before"),
        unable("ImagePullBackOff", terminating=True),
        unable("ContainerCreating"),
    ):
        assert conditions(decide_queue(QUEUE, world, a_memory(), NOW))["Degraded"] == ("False", "None")


def test_a_pod_s_own_words_are_read_from_its_status() -> None:
    raw = {
        "metadata": {"name": "a", "uid": "u"},
        "status": {
            "containerStatuses": [
                {
                    "name": "worker",
                    "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
                    "lastState": {"terminated": {"exitCode": 3, "message": "no module shop"}},
                }
            ]
        },
    }
    container = pod_seen(raw).worker
    assert container is not None
    assert (container.waiting, container.waiting_message) == ("ErrImagePull", "no such image")
    assert container.last_end == ContainerEnd(exit_code=3, message="no module shop")
