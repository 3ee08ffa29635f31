"""One reconcile of a Queue: which actions, in which order, and when none at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dockwork_operator.constants import ScaleReason
from dockwork_operator.decide.contact import settings_of
from dockwork_operator.decide.drift import marked
from dockwork_operator.decide.memory import remember, seed_memory, untried
from dockwork_operator.decide.plan import (
    Action,
    Applied,
    ApplyChild,
    ApplyFailure,
    Configure,
    DeleteChild,
    FailureKind,
    Plan,
    Quiesce,
    Scale,
    Unquiesce,
    Upkeep,
)
from dockwork_operator.decide.queue import Sampling, decide_queue, sampling
from dockwork_operator.decide.seen import (
    ChildSeen,
    OwnerSeen,
    RedisFailure,
    SecretSeen,
    SecretState,
    ServerSeen,
    child_seen,
)
from dockwork_operator.models.objects import Refused
from support.decisions import (
    LEASE,
    NOW,
    NOW_MS,
    OURS,
    UID,
    a_deployment,
    a_memory,
    a_pod,
    a_queue,
    a_sample,
    a_worker,
    a_world,
    children_of,
    conditions,
    live,
    message,
    other_children,
    redis,
    settled,
)

QUEUE = a_queue()
WORKER = "mail-worker"
SOON = timedelta(seconds=2)


def applied(plan: Plan) -> list[tuple[str, str]]:
    """kind and reason of each child that is applied."""
    return [(a.kind, a.reason) for a in plan.actions if isinstance(a, ApplyChild)]


def of(plan: Plan, kind: type[Action]) -> list[Action]:
    return [a for a in plan.actions if isinstance(a, kind)]


def a_child(kind: str, *, spec: Mapping[str, Any] | None = None, **facts: Any) -> ChildSeen:
    """An object of our child's name that is somebody else's."""
    child = ChildSeen(kind=kind, name=WORKER, uid="theirs", resource_version="1", live={"spec": spec or {}})
    return replace(child, **facts)


# --- creation --------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-074")
def test_a_deployment_is_made_paused_then_sized_then_let_go() -> None:
    plan = decide_queue(QUEUE, a_world(QUEUE, deployment=None), a_memory(), NOW)

    manifest = children_of(QUEUE).deployment
    assert plan.actions == (
        ApplyChild(
            manifest=marked({**manifest, "spec": {**manifest["spec"], "paused": True}}),
            reason="created, without pods",
        ),
        Scale(name=WORKER, to=0, seen=1, reason="created"),
        ApplyChild(manifest=marked(manifest), reason="created"),
    )


@pytest.mark.covers("OP-074")
def test_a_creation_that_was_interrupted_goes_on_where_it_stopped() -> None:
    manifest = children_of(QUEUE).deployment
    half = a_deployment(QUEUE, 1, paused=True, started=False)

    plan = decide_queue(QUEUE, a_world(QUEUE, deployment=half), a_memory(), NOW)

    assert plan.actions == (
        Scale(name=WORKER, to=0, seen=1, reason="created"),
        ApplyChild(manifest=marked(manifest), reason="creation goes on"),
    )


@pytest.mark.covers("OP-011", "OP-074")
@pytest.mark.parametrize(
    ("spec", "to"),
    [
        ({"scaling": {"mode": "External", "minReplicas": 2}}, 2),
        ({"scaling": {"mode": "External", "minReplicas": 2}, "replicas": 40}, 40),
        ({"scaling": {"minReplicas": 3}}, 3),
    ],
    ids=["External starts at the minimum", "External obeys", "Auto"],
)
def test_how_many_pods_a_new_queue_starts_with(spec: dict[str, Any], to: int) -> None:
    queue = a_queue(**spec)

    plan = decide_queue(queue, a_world(queue, deployment=None), a_memory(queue), NOW)

    assert of(plan, Scale) == [Scale(name=WORKER, to=to, seen=1, reason="created")]


@pytest.mark.covers("OP-076")
def test_other_children_that_are_missing_are_made() -> None:
    plan = decide_queue(QUEUE, a_world(QUEUE, children=()), a_memory(), NOW)

    assert applied(plan) == [("PodDisruptionBudget", "created"), ("NetworkPolicy", "created")]


# --- drift -----------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-076")
def test_a_hand_edit_of_what_we_own_is_repaired_and_what_others_own_is_left() -> None:
    manifest = children_of(QUEUE).deployment
    edited = live(manifest)
    edited["spec"] = json.loads(json.dumps(edited["spec"]))
    edited["spec"]["template"]["spec"]["containers"][0]["image"] = "r/shop:evil"
    extended = live(manifest)
    extended["spec"] = json.loads(json.dumps(extended["spec"]))
    extended["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "now"

    def plan_for(raw: dict[str, Any]) -> Plan:
        deployment = a_deployment(QUEUE, child=child_seen(raw, "Deployment"))
        return decide_queue(QUEUE, a_world(QUEUE, deployment=deployment), a_memory(), NOW)

    assert applied(plan_for(edited)) == [("Deployment", "differs from what is declared")]
    assert plan_for(extended).actions == ()


@pytest.mark.covers("OP-076", "OP-305")
def test_an_apply_that_changed_nothing_is_tried_again_only_after_ten_minutes_or_a_change() -> None:
    other_words = live(children_of(QUEUE).deployment)
    other_words["spec"] = {**other_words["spec"], "minReadySeconds": 4}
    edited = {**other_words, "spec": {**other_words["spec"], "minReadySeconds": 3}}

    def world(raw: dict[str, Any]) -> Any:
        return a_world(QUEUE, deployment=a_deployment(QUEUE, child=child_seen(raw, "Deployment")))

    first = decide_queue(QUEUE, world(other_words), a_memory(), NOW)
    memory = remember(first, Applied(done=first.actions), NOW)
    failed = remember(first, Applied(failure=ApplyFailure(kind=FailureKind.BUSY, message="503")), NOW)
    held = untried(first, Applied(), NOW)

    def again(raw: dict[str, Any], after: timedelta, known: Any = memory) -> int:
        return len(
            applied(decide_queue(QUEUE, world(raw), replace(known, configured_at=NOW + after), NOW + after))
        )

    assert len(applied(first)) == 1
    assert again(other_words, SOON) == 0
    assert again(other_words, timedelta(minutes=10)) == 1
    assert again(edited, SOON) == 1
    assert again(other_words, SOON, failed) == 1
    assert again(other_words, SOON, held) == 1


@pytest.mark.covers("OP-076")
def test_a_changed_budget_is_applied_and_nothing_else() -> None:
    queue = a_queue(pdb={"mode": "Auto", "maxUnavailable": 3})
    world = a_world(queue, children=other_children(a_queue()))

    assert applied(decide_queue(queue, world, a_memory(queue), NOW)) == [
        ("PodDisruptionBudget", "differs from what is declared")
    ]


# --- others' objects, garbage ----------------------------------------------------------------------------


@pytest.mark.covers("OP-078")
def test_an_object_of_a_childs_name_that_is_not_ours_is_left_alone() -> None:
    budget, policy = other_children(QUEUE)
    world = a_world(QUEUE, children=(a_child("PodDisruptionBudget"), policy))

    plan = decide_queue(QUEUE, world, a_memory(), NOW)

    assert plan.actions == ()
    assert conditions(plan)["Degraded"] == ("True", "NameConflict")
    assert "annotate it with dockwork.dev/adoptable-by=mail" in message(plan, "Degraded")
    assert budget.name == WORKER


@pytest.mark.covers("OP-078")
def test_a_foreign_deployment_stops_the_creation() -> None:
    foreign = a_deployment(QUEUE, 3, child=a_child("Deployment"))

    plan = decide_queue(QUEUE, a_world(QUEUE, deployment=foreign), a_memory(), NOW)

    assert plan.actions == ()
    assert conditions(plan)["Ready"] == ("False", "ApplyFailed")
    assert conditions(plan)["Degraded"] == ("True", "NameConflict")


@pytest.mark.covers("OP-078", "OP-112")
def test_an_object_that_its_owner_hands_over_is_adopted() -> None:
    handed = {"dockwork.dev/adoptable-by": "mail"}
    selector = {"selector": {"matchLabels": {"dockwork.dev/queue": "mail", "dockwork.dev/track": "stable"}}}
    child = a_child("Deployment", annotations=handed, spec=selector)

    plan = decide_queue(
        QUEUE, a_world(QUEUE, deployment=a_deployment(QUEUE, 0, child=child)), a_memory(), NOW
    )

    assert applied(plan) == [("Deployment", "adopted")]
    assert "Adopted" in [e.reason for e in plan.events]


@pytest.mark.covers("OP-078")
@pytest.mark.parametrize(
    ("facts", "says"),
    [
        (
            {"spec": {"selector": {"matchLabels": {"app": "mail"}}}},
            "Deployment mail-worker has another selector, which cannot be changed: it cannot be adopted",
        ),
        (
            {"owner_uid": "x", "owner": "Rollout/mail"},
            "Deployment mail-worker belongs to Rollout/mail; it is left alone",
        ),
    ],
    ids=["another selector", "another controller"],
)
def test_what_cannot_be_adopted_says_why(facts: dict[str, Any], says: str) -> None:
    child = a_child("Deployment", annotations={"dockwork.dev/adoptable-by": "mail"}, **facts)

    plan = decide_queue(
        QUEUE, a_world(QUEUE, deployment=a_deployment(QUEUE, 0, child=child)), a_memory(), NOW
    )

    assert plan.actions == ()
    assert message(plan, "Degraded") == says


@pytest.mark.covers("OP-079")
def test_what_is_not_declared_any_more_is_deleted_by_uid_and_only_if_ours() -> None:
    queue = a_queue(pdb={"mode": "None"})
    budget, policy = other_children(a_queue())
    theirs = a_child("NetworkPolicy", name="other")
    world = a_world(queue, children=(budget, policy, theirs))

    plan = decide_queue(queue, world, a_memory(queue), NOW)

    assert plan.actions == (
        DeleteChild(
            kind="PodDisruptionBudget",
            name=WORKER,
            uid="PodDisruptionBudget-uid",
            reason="not declared any more",
        ),
    )


@pytest.mark.covers("OP-079")
def test_an_unwanted_deployment_goes_only_when_its_pods_have_drained() -> None:
    old = ChildSeen(kind="Deployment", name="mail-old", uid="old", resource_version="1", owner_uid=UID)
    draining = replace(old, live={"status": {"replicas": 1}})

    def deleted(child: ChildSeen) -> list[str]:
        world = a_world(QUEUE, children=(*other_children(QUEUE), child))
        return [
            a.name for a in decide_queue(QUEUE, world, a_memory(), NOW).actions if isinstance(a, DeleteChild)
        ]

    assert deleted(draining) == []
    assert deleted(old) == ["mail-old"]


# --- not accepted ----------------------------------------------------------------------------------------


@pytest.mark.covers("OP-106")
def test_a_bad_spec_over_good_children_touches_nothing() -> None:
    seen, memory = settled(
        QUEUE, a_world(QUEUE, deployment=a_deployment(QUEUE, 2), pods=(a_pod("a"), a_pod("b"))), a_memory()
    )
    refused = Refused(field="spec.worker.slots", expected="a whole number from 1 to 1000", got="0")

    plan = decide_queue(refused, replace(seen, generation=2), memory, NOW + SOON)

    assert plan.actions == ()
    assert message(plan, "Accepted") == "spec.worker.slots: expected a whole number from 1 to 1000, got 0"
    assert plan.status is not None
    assert plan.status["depth"] == seen.status["depth"]
    assert [e.reason for e in plan.events] == ["Rejected"]


@pytest.mark.covers("OP-024", "OP-106")
def test_a_pod_template_that_overrides_ours_is_refused_by_path() -> None:
    queue = a_queue(
        worker={
            "image": "r/shop:1",
            "app": "shop.jobs:app",
            "podTemplate": {"spec": {"terminationGracePeriodSeconds": 1}},
        }
    )

    plan = decide_queue(queue, a_world(QUEUE), a_memory(), NOW)

    assert plan.actions == ()
    assert conditions(plan)["Accepted"] == ("False", "InvalidField")
    assert "terminationGracePeriodSeconds" in message(plan, "Accepted")


@pytest.mark.covers("OP-020")
@pytest.mark.parametrize("state", [s for s in SecretState if s is not SecretState.FOUND])
def test_a_missing_secret_is_said_by_name_and_nothing_is_touched(state: SecretState) -> None:
    secret = SecretSeen(state=state, message="Secret dockwork-redis")

    plan = decide_queue(QUEUE, a_world(QUEUE, secret=secret, deployment=None), a_memory(), NOW)

    assert plan.actions == ()
    assert conditions(plan)["Accepted"] == ("False", str(state))
    assert message(plan, "Accepted") == "Secret dockwork-redis"


# --- the owner record ------------------------------------------------------------------------------------

OTHER = OwnerSeen(operator=LEASE, namespace="shop", name="letters", uid="other")


@pytest.mark.covers("OP-022")
def test_a_second_queue_of_a_redis_queue_writes_nothing_and_names_the_owner() -> None:
    plan = decide_queue(QUEUE, a_world(QUEUE, redis=redis(a_sample(owner=OTHER))), a_memory(), NOW)

    assert plan.actions == ()
    assert conditions(plan)["Accepted"] == ("False", "QueueConflict")
    assert "belongs to Queue shop/letters" in message(plan, "Accepted")


@pytest.mark.covers("OP-022")
def test_the_same_name_under_the_same_lease_takes_over_at_once() -> None:
    before = replace(OURS, uid="deleted-and-made-anew")
    memory = a_memory(configured=None, configured_at=None, owned=False)

    plan = decide_queue(QUEUE, a_world(QUEUE, redis=redis(a_sample(owner=before))), memory, NOW)

    assert of(plan, Configure) == [
        Configure(settings=settings_of(QUEUE.spec, 1), owner=OURS, reason="the settings changed")
    ]


@pytest.mark.covers("OP-022")
def test_a_reinstalled_operator_asks_again_until_the_record_was_not_renewed() -> None:
    before = replace(OURS, operator="the lease of the last installation")
    world = a_world(QUEUE, redis=redis(a_sample(owner=before)))
    memory = a_memory(configured=None, configured_at=None, owned=False)

    plan = decide_queue(QUEUE, world, memory, NOW)

    assert [type(a).__name__ for a in plan.actions] == ["Configure"]
    assert plan.left_to == "the lease of the last installation"
    assert plan.status is None
    assert plan.events == ()


@pytest.mark.covers("OP-022")
def test_a_refusal_by_the_record_itself_is_a_conflict_too() -> None:
    memory = a_memory(configured=None, configured_at=None, owned=False)
    world = a_world(QUEUE, redis=redis(a_sample(owner=None)))
    first = decide_queue(QUEUE, world, memory, NOW)
    failure = ApplyFailure(kind=FailureKind.OWNED, message="belongs to Queue shop/letters")

    plan = decide_queue(QUEUE, world, remember(first, Applied(failure=failure), NOW), NOW + SOON)

    assert conditions(plan)["Accepted"] == ("False", "QueueConflict")
    assert [type(a).__name__ for a in plan.actions] == ["Configure"]


@pytest.mark.covers("OP-022")
def test_the_record_is_renewed_before_another_could_take_it() -> None:
    def actions(age: int) -> list[str]:
        memory = a_memory(configured_at=NOW - timedelta(seconds=age))
        return [a.reason for a in decide_queue(QUEUE, a_world(QUEUE), memory, NOW).actions]

    assert actions(9) == []
    assert actions(10) == ["renew the owner record"]


# --- Redis -----------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-023")
def test_a_server_that_is_too_old_is_not_accepted() -> None:
    old = ServerSeen(version="5.0", too_old="Redis 5.0 is older than 6.2")

    plan = decide_queue(QUEUE, a_world(QUEUE, redis=replace(redis(), server=old)), a_memory(), NOW)

    assert plan.actions == ()
    assert conditions(plan)["Accepted"] == ("False", "RedisUnsupported")
    assert message(plan, "Accepted") == "Redis 5.0 is older than 6.2"


@pytest.mark.covers("OP-023")
def test_an_unsafe_server_is_said_and_used() -> None:
    unsafe = ServerSeen(version="7.2.5", policy="allkeys-lru")
    world = a_world(QUEUE, redis=replace(redis(a_sample(ready=10)), server=unsafe))

    plan = decide_queue(QUEUE, world, a_memory(), NOW)

    assert message(plan, "RedisSafe").startswith("maxmemory-policy is allkeys-lru")
    assert of(plan, Scale) == [Scale(name=WORKER, to=1, seen=0, reason=ScaleReason.FROM_ZERO)]


@pytest.mark.covers("OP-023")
def test_a_command_that_the_acl_refuses_is_named() -> None:
    refused = redis(failure=RedisFailure.SCRIPTS_REFUSED, message="may not run EVALSHA")

    plan = decide_queue(QUEUE, a_world(QUEUE, redis=refused), a_memory(), NOW)

    assert conditions(plan)["RedisReachable"] == ("False", "ScriptsRefused")
    assert message(plan, "RedisReachable") == "may not run EVALSHA"


@pytest.mark.covers("OP-027")
def test_a_change_of_jobs_or_limits_goes_to_redis_and_restarts_no_pod() -> None:
    queue = a_queue(
        2,
        jobs={"timeout": "2m", "maxTimeout": "5m", "backoff": {"kind": "Fixed", "base": "10s"}},
        limits={"depth": 7, "bytes": "1Mi", "payloadBytes": "1Ki"},
    )
    world = a_world(queue, deployment=a_deployment(QUEUE, 1), pods=(a_pod("a"),))

    plan = decide_queue(queue, world, a_memory(a_queue()), NOW)

    assert [a.reason for a in of(plan, Configure)] == ["the settings changed"]
    assert applied(plan) == []
    settings = settings_of(queue.spec, 2)
    assert plan.actions[0] == Configure(settings=settings, owner=OURS, reason="the settings changed")
    assert (settings.generation, settings.timeout_ms, settings.max_timeout_ms) == (2, 120_000, 300_000)
    assert (settings.max_depth, settings.max_bytes, settings.max_payload) == (7, 2**20, 2**10)
    assert json.loads(settings.backoff or "") == {
        "kind": "fixed",
        "base_ms": 10_000,
        "max_ms": 3_600_000,
        "jitter_percent": 100,
    }


@pytest.mark.covers("OP-027")
def test_settings_that_redis_lost_are_written_again() -> None:
    world = a_world(QUEUE, redis=redis(a_sample(config_generation=0)))

    assert [a.reason for a in decide_queue(QUEUE, world, a_memory(), NOW).actions] == [
        "Redis does not have the settings"
    ]


def test_a_sample_from_before_our_write_says_nothing_about_it() -> None:
    memory = a_memory(configured_ms=NOW_MS - 2000)
    world = a_world(QUEUE, redis=redis(a_sample(owner=None, config_generation=0)))

    plan = decide_queue(QUEUE, world, memory, NOW)

    assert plan.actions == ()
    assert plan.memory.frozen_until is None


@pytest.mark.covers("OP-027")
def test_nothing_is_sent_to_a_redis_that_cannot_be_read_but_children_are_kept() -> None:
    lost = redis(failure=RedisFailure.TIMEOUT, message="no answer in 2 s")
    queue = a_queue(2, worker={"image": "r/shop:2", "app": "shop.jobs:app"})
    world = a_world(queue, deployment=a_deployment(QUEUE, 1), redis=lost)

    plan = decide_queue(queue, world, a_memory(), NOW)

    assert applied(plan) == [("Deployment", "the template changed")]
    assert len(plan.actions) == 1


@pytest.mark.covers("OP-110")
def test_no_worker_is_made_before_the_first_contact() -> None:
    lost = redis(failure=RedisFailure.AUTH_FAILED, message="wrong password")
    memory = seed_memory({}, timedelta(seconds=1), NOW)

    plan = decide_queue(QUEUE, a_world(QUEUE, deployment=None, children=(), redis=lost), memory, NOW)

    assert plan.actions == ()
    assert plan.requeue_after == SOON


# --- upkeep at no workers --------------------------------------------------------------------------------


@pytest.mark.covers("OP-146")
def test_without_workers_the_operator_promotes_reaps_expires_and_trims() -> None:
    sample = a_sample(delayed=3, workers=(a_worker("gone", beat_ms=NOW_MS - 16_000),))

    plan = decide_queue(QUEUE, a_world(QUEUE, redis=redis(sample)), a_memory(), NOW)

    assert of(plan, Upkeep) == [Upkeep(reason="no worker beats")]


@pytest.mark.covers("OP-146")
def test_while_a_worker_beats_upkeep_is_its_work() -> None:
    sample = a_sample(delayed=3, workers=(a_worker("a"),))

    assert of(decide_queue(QUEUE, a_world(QUEUE, redis=redis(sample)), a_memory(), NOW), Upkeep) == []


def test_an_empty_queue_is_only_trimmed_and_only_once_a_minute() -> None:
    def upkeep(age: int) -> list[Action]:
        memory = a_memory(upkeep_at=NOW - timedelta(seconds=age))
        return of(decide_queue(QUEUE, a_world(QUEUE), memory, NOW), Upkeep)

    assert upkeep(59) == []
    assert upkeep(60) == [Upkeep(promote=False, reap=False, expire=False, reason="no worker beats")]


@pytest.mark.covers("OP-146")
def test_the_sample_looks_as_far_ahead_as_a_pod_needs_and_marks_an_idle_queue_cold() -> None:
    queue = a_queue(scaling={"drainTarget": "30s"})
    world = a_world(queue)
    hash_now = children_of(queue).template_hash

    busy = sampling(queue, world, a_memory(queue, pod_start_s=4.0, wanted=2))
    idle = sampling(queue, world, a_memory(queue, wanted=0))

    assert busy == Sampling(horizon_ms=34_000, template_hash=hash_now, cold=False)
    assert idle.cold


# --- scaling ---------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-142")
def test_the_first_job_of_an_idle_queue_is_a_scale_write_in_the_same_reconcile() -> None:
    plan = decide_queue(QUEUE, a_world(QUEUE, redis=redis(a_sample(ready=1))), a_memory(), NOW)

    assert of(plan, Scale) == [Scale(name=WORKER, to=1, seen=0, reason=ScaleReason.FROM_ZERO)]


@pytest.mark.covers("OP-011")
def test_external_goes_where_the_replicas_field_says_and_down_safely() -> None:
    queue = a_queue(scaling={"mode": "External", "maxReplicas": 2}, replicas=1)
    pods = (a_pod("a", queue), a_pod("b", queue))
    sample = a_sample(active=1, leased={"a-uid": 1}, workers=(a_worker("a", busy=1), a_worker("b")))
    down = a_world(queue, deployment=a_deployment(queue, 2), pods=pods, redis=redis(sample))
    up = a_queue(scaling={"mode": "External", "maxReplicas": 2}, replicas=30)

    asked = [
        a.requests for a in decide_queue(queue, down, a_memory(queue), NOW).actions if isinstance(a, Quiesce)
    ]
    assert [list(requests) for requests in asked] == [["b-uid"]]
    assert [a.to for a in decide_queue(up, down, a_memory(up), NOW).actions if isinstance(a, Scale)] == [30]


@pytest.mark.covers("OP-011")
def test_external_without_a_number_leaves_the_replicas_as_they_are() -> None:
    queue = a_queue(scaling={"mode": "External"})
    world = a_world(queue, deployment=a_deployment(queue, 7), redis=redis(a_sample(ready=900)))

    assert decide_queue(queue, world, a_memory(queue), NOW).actions == (Upkeep(reason="no worker beats"),)


@pytest.mark.covers("OP-143", "OP-151")
def test_a_new_process_holds_what_the_last_one_had_and_says_so() -> None:
    world = a_world(QUEUE, deployment=a_deployment(QUEUE, 5), pods=(a_pod("a"),))

    plan = decide_queue(QUEUE, world, a_memory(since=NOW - timedelta(seconds=59)), NOW)

    assert of(plan, Scale) == []
    assert plan.status is not None
    assert plan.status["scaling"]["lastDecision"]["reason"] == "WarmingUp"


@pytest.mark.covers("OP-143")
def test_a_new_process_takes_service_time_and_arrivals_from_the_status() -> None:
    seen, _ = settled(QUEUE, a_world(QUEUE, redis=redis(a_sample(ready=10))), a_memory())
    last = {**seen.status["scaling"]["lastDecision"], "serviceMillis": 4200, "arrivalsPerMinute": 90}
    status = {**seen.status, "scaling": {**seen.status["scaling"], "lastDecision": last}}

    memory = seed_memory(status, timedelta(seconds=1), NOW)
    unknown = seed_memory({}, timedelta(seconds=7), NOW)

    assert (memory.rates.service_s, memory.rates.arrivals) == (4.2, 1.5)
    assert (unknown.rates.service_s, unknown.rates.arrivals) == (7.0, 0.0)
    assert memory.wanted == 1


@pytest.mark.covers("OP-148")
def test_redis_lost_holds_then_falls_back_up() -> None:
    queue = a_queue(scaling={"fallback": {"replicas": 4, "after": "30s"}})
    lost = redis(failure=RedisFailure.CONNECT_FAILED, message="refused")
    world = a_world(queue, deployment=a_deployment(queue, 2), redis=lost)

    def plan(age: int) -> Plan:
        memory = a_memory(queue, redis_lost_since=NOW - timedelta(seconds=age), asked=2)
        return decide_queue(queue, world, memory, NOW)

    assert plan(29).actions == ()
    assert plan(30).actions == (Scale(name=WORKER, to=4, seen=2, reason=ScaleReason.FALLBACK),)
    assert conditions(plan(30))["ScalingActive"] == ("False", "Fallback")


@pytest.mark.covers("OP-148")
@pytest.mark.parametrize(
    "sample", [a_sample(run_id="run-2"), a_sample(owner=None)], ids=["another run id", "our record is gone"]
)
def test_after_a_data_loss_nothing_shrinks_and_nothing_rolls_for_a_minute(sample: Any) -> None:
    queue = a_queue(2, worker={"image": "r/shop:2", "app": "shop.jobs:app"})
    world = a_world(queue, deployment=a_deployment(QUEUE, 3), pods=(a_pod("a"), a_pod("b"), a_pod("c")))
    memory = a_memory(QUEUE)
    frozen = decide_queue(queue, replace(world, redis=redis(sample)), memory, NOW)

    assert [type(a).__name__ for a in frozen.actions] == ["Configure"]
    assert conditions(frozen)["Progressing"] == ("False", "Held")
    assert frozen.status is not None
    assert frozen.status["scaling"]["lastDecision"]["reason"] == "Held"
    after = remember(frozen, Applied(done=frozen.actions, status_written=True), NOW)
    calm = replace(world, redis=redis(a_sample(run_id=sample.run_id, config_generation=2)))
    thawed = decide_queue(queue, calm, after, NOW + timedelta(seconds=61))
    assert ("Deployment", "the template changed") in applied(thawed)


@pytest.mark.covers("OP-148")
def test_while_frozen_up_is_still_allowed() -> None:
    memory = a_memory(frozen_until=NOW + timedelta(seconds=30))

    plan = decide_queue(QUEUE, a_world(QUEUE, redis=redis(a_sample(ready=900))), memory, NOW)

    assert [a.to for a in plan.actions if isinstance(a, Scale)] == [6]


@pytest.mark.covers("OP-077")
def test_replicas_that_something_else_writes_are_taken_back_and_then_contested() -> None:
    queue = a_queue(scaling={"minReplicas": 2})
    world = a_world(queue, deployment=a_deployment(queue, 9))
    ago = NOW - timedelta(seconds=20)
    once = a_memory(queue, asked=2, asked_at=ago)
    often = a_memory(
        queue, asked=2, asked_at=ago, contested=(NOW - timedelta(minutes=2), NOW - timedelta(minutes=1))
    )

    first, third = decide_queue(queue, world, once, NOW), decide_queue(queue, world, often, NOW)

    assert [a.to for a in first.actions if isinstance(a, Scale)] == [2]
    assert conditions(first)["Degraded"] == ("False", "None")
    assert of(third, Scale) == []
    assert conditions(third)["Degraded"] == ("True", "ReplicasContested")
    assert "ReplicasContested" in [e.reason for e in third.events]
    minute = replace(often, asked_at=NOW - timedelta(seconds=60))
    assert [a.to for a in decide_queue(queue, world, minute, NOW).actions if isinstance(a, Scale)] == [2]


def test_unquiesce_comes_before_scale_and_quiesce_after_it() -> None:
    token = f"scale-down-{NOW_MS}"
    sample = a_sample(ready=900, quiesced={"b-uid": token}, workers=(a_worker("a"), a_worker("b")))
    pods = (a_pod("a"), a_pod("b"))
    world = a_world(QUEUE, deployment=a_deployment(QUEUE, 2), pods=pods, redis=redis(sample))

    plan = decide_queue(QUEUE, world, a_memory(), NOW)

    assert [type(a) for a in plan.actions] == [Unquiesce, Scale]


# --- deletion, refusals by the API server ----------------------------------------------------------------


@pytest.mark.covers("OP-030")
def test_a_queue_that_is_being_deleted_is_left_to_garbage_collection() -> None:
    world = a_world(QUEUE, deleting=True, redis=redis(a_sample(ready=900)))

    assert decide_queue(QUEUE, world, a_memory(), NOW) == Plan(memory=a_memory())


@pytest.mark.covers("OP-101")
def test_what_the_api_server_forbids_is_asked_again_after_five_minutes_and_stops_nothing_else() -> None:
    world = a_world(QUEUE, children=(), redis=redis(a_sample(ready=1)))
    plan = decide_queue(QUEUE, world, a_memory(), NOW)
    failed = plan.actions.index(next(a for a in plan.actions if isinstance(a, ApplyChild)))
    no = ApplyFailure(kind=FailureKind.FORBIDDEN, message="no", verb="patch", resource="poddisruptionbudgets")

    memory = remember(plan, Applied(done=plan.actions[:failed], failure=no), NOW)
    again = decide_queue(QUEUE, world, memory, NOW + SOON)
    memory = remember(again, Applied(done=again.actions), NOW + SOON)

    assert applied(again) == [("NetworkPolicy", "created")]
    assert len(of(again, Scale)) == 1
    assert conditions(again)["Stalled"] == ("True", "Forbidden")
    assert memory.failure == no
    later = decide_queue(QUEUE, world, memory, NOW + timedelta(minutes=5))
    assert ("PodDisruptionBudget", "created") in applied(later)
    assert remember(later, Applied(done=later.actions), NOW + timedelta(minutes=5)).failure is None


@pytest.mark.covers("OP-101")
def test_a_refused_creation_is_not_half_done_and_a_new_spec_is_tried_at_once() -> None:
    world = a_world(QUEUE, deployment=None)
    plan = decide_queue(QUEUE, world, a_memory(), NOW)
    no = ApplyFailure(kind=FailureKind.REJECTED, message="exceeded quota")

    memory = remember(plan, Applied(failure=no), NOW)

    assert decide_queue(QUEUE, world, memory, NOW + SOON).actions == ()
    changed = decide_queue(a_queue(2), replace(world, generation=2), memory, NOW + SOON)
    assert len(applied(changed)) == 2


@pytest.mark.covers("OP-101")
def test_a_conflict_is_no_failure_of_the_queue() -> None:
    plan = decide_queue(QUEUE, a_world(QUEUE, redis=redis(a_sample(ready=1))), a_memory(), NOW)

    memory = remember(plan, Applied(failure=ApplyFailure(kind=FailureKind.CONFLICT, message="409")), NOW)

    assert memory.failure is None
    assert memory.asked is None
