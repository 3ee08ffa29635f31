"""What a CronJob gets: entry and plan in Redis, its owned Queue, status, events; and every reason for a refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockwork.core.codec import open_envelope
from dockwork.core.cron import Calendar, Dst, parse_schedule, tzdata_version
from dockwork_operator.decide.cron_seen import (
    CronPlan,
    CronSeen,
    LedgerSeen,
    PutSchedule,
    RemoveSchedule,
    ScheduleSeen,
    SuspendSchedule,
    TargetSeen,
    TickSchedule,
)
from dockwork_operator.decide.drift import marked
from dockwork_operator.decide.manifests import render_owned_queue
from dockwork_operator.decide.plan import ApplyChild, DeleteChild, Event, EventType
from dockwork_operator.decide.seen import RedisFailure, child_seen
from dockwork_operator.decide.ticks import choose_orphans, decide_cronjob
from dockwork_operator.models.cronjobs import CronJob, CronJobStatus, parse_cronjob
from dockwork_operator.models.objects import ObjectRef, Refused

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
NOW_MS = 1_777_636_800_000
HOUR_MS = 3_600_000
UID = "2b7c"
MAIL = ObjectRef(namespace="shop", name="mail")
REPORT = ObjectRef(namespace="shop", name="report")


def raw_cronjob(generation: int = 1, deleting: bool = False, **spec: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {"schedule": "0 * * * *", "job": {"type": "report.daily"}, **spec}
    if "worker" not in whole:
        whole.setdefault("queueRef", {"name": "mail"})
    meta: dict[str, Any] = {"name": "report", "namespace": "shop", "uid": UID, "generation": generation}
    if deleting:
        meta["deletionTimestamp"] = "2026-05-01T12:00:00Z"
    return {"metadata": meta, "spec": whole}


def a_cronjob(generation: int = 1, **spec: Any) -> CronJob:
    cronjob = parse_cronjob(raw_cronjob(generation, **spec))
    assert isinstance(cronjob, CronJob), cronjob
    return cronjob


def a_queue(name: str = "mail", *, owner: str = "", accepted: bool | None = True, **more: Any) -> TargetSeen:
    meta: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    if owner:
        meta["ownerReferences"] = [{"kind": "CronJob", "name": "x", "uid": owner, "controller": True}]
    raw = {"metadata": meta, **more.pop("live", {})}
    return TargetSeen(namespace="shop", child=child_seen(raw, "Queue"), accepted=accepted, **more)


def hash_of(schedule: str, zone: str = "Etc/UTC") -> str:
    return Calendar(schedule=parse_schedule(schedule, seed="shop/report"), zone=zone, dst=Dst()).hash


def an_entry(**more: Any) -> ScheduleSeen:
    """The entry of `a_cronjob()`, complete and quiet: the last tick was at 12:00, the next is at 13:00."""
    whole: dict[str, Any] = {
        "uid": UID, "schedule_hash": hash_of("0 * * * *"), "generation": 1, "cursor_ms": NOW_MS,
        "next_ms": NOW_MS + HOUR_MS, "planned": 64, "last_planned_ms": NOW_MS + 64 * HOUR_MS,
        "tzdata": tzdata_version(), "refreshed_ms": NOW_MS,
    }  # fmt: skip
    return ScheduleSeen(**(whole | more))


def a_world(schedule: ScheduleSeen | None = None, **more: Any) -> CronSeen:
    whole: dict[str, Any] = {"target": a_queue(), "ledger": LedgerSeen(now_ms=NOW_MS, schedule=schedule)}
    return CronSeen(**(whole | more))


def put_of(plan: CronPlan) -> PutSchedule:
    (put,) = (action for action in plan.actions if isinstance(action, PutSchedule))
    return put


def condition(plan: CronPlan, kind: str) -> Mapping[str, Any]:
    assert plan.status is not None
    found = {c["type"]: c for c in plan.status["conditions"]}
    return found[kind]  # type: ignore[no-any-return]


def told(schedule: ScheduleSeen | None = None, **spec: Any) -> dict[str, Any]:
    """The status that stands after a quiet reconcile of `schedule`."""
    status = decide_cronjob(a_cronjob(**spec), a_world(schedule or an_entry()), NOW).status
    assert status is not None
    return dict(status)


# --- the entry ---------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-251", "OP-256")
def test_a_new_cronjob_gets_an_entry_and_a_plan_that_begins_now() -> None:
    plan = decide_cronjob(a_cronjob(), a_world(), NOW)

    put = put_of(plan)
    assert (put.queue, put.generation, put.reason) == (MAIL, 1, "Created")
    assert (put.from_ms, put.decided_ms, put.reset, put.left_out) == (NOW_MS, None, False, 0)
    assert put.instants_ms == tuple(NOW_MS + n * HOUR_MS for n in range(1, 65))
    assert put.settings.uid == UID
    assert (
        Calendar.from_json(put.settings.calendar).hash == put.settings.schedule_hash == hash_of("0 * * * *")
    )
    assert put.settings.tzdata == tzdata_version()
    assert plan.requeue_after is not None
    assert plan.requeue_after <= timedelta(seconds=1)


def test_the_entry_says_all_that_the_spec_says() -> None:
    cronjob = a_cronjob(
        schedule="@every 90s",
        job={
            "type": "mail.send", "args": {"to": ["ä"], "n": [], "big": 2**53 + 1}, "priority": -5, "timeout": "30s",
            "maxAttempts": 2, "expireAfter": "1h",
        },
        missedRunPolicy="All", maxCatchUp=7, startingDeadlineSeconds=60, concurrencyPolicy="Forbid", maxPending=3,
        suspend=True,
    )  # fmt: skip

    settings = put_of(decide_cronjob(cronjob, a_world(), NOW)).settings

    job = settings.job
    assert (job.type, job.priority, job.timeout_ms, job.max_attempts, job.expires_in_ms) == (
        "mail.send", -5, 30_000, 2, 3_600_000,
    )  # fmt: skip
    envelope = open_envelope(job.envelope)
    assert json.loads(envelope.args) == {"to": ["ä"], "n": [], "big": 2**53 + 1}
    assert envelope.headers == {"dockwork-schedule": "shop/report"}
    assert (settings.missed_run_policy, settings.max_catch_up, settings.starting_deadline_ms) == (
        "All",
        7,
        60_000,
    )
    assert (settings.concurrency_policy, settings.max_pending, settings.suspended) == ("Forbid", 3, True)
    assert settings.every_ms == 90_000


@pytest.mark.covers("OP-257", "OP-251", "OP-258", "OP-265")
@pytest.mark.parametrize(
    ("entry", "spec", "reason"),
    [
        ({"generation": 0, "schedule_hash": "other"}, {}, "ScheduleChanged"),
        ({"generation": 0}, {"missedRunPolicy": "Skip"}, "SpecChanged"),
        ({"suspended": False}, {"suspend": True}, "Suspended"),
        ({"suspended": True, "next_ms": None}, {}, "Resumed"),
        ({"tzdata": "2020a"}, {}, "ZoneDataRenewed"),
        ({"planned": 47}, {}, "PlanLow"),
        ({"planned": 1000, "last_planned_ms": NOW_MS + 35 * HOUR_MS}, {}, "PlanLow"),
        ({"refreshed_ms": NOW_MS - 6 * HOUR_MS}, {}, "Refresh"),
    ],
)
def test_an_entry_is_written_again_when_it_is_not_what_it_should_be(
    entry: dict[str, Any], spec: dict[str, Any], reason: str
) -> None:
    plan = decide_cronjob(a_cronjob(**spec), a_world(an_entry(**entry)), NOW)

    put = put_of(plan)
    assert put.reason == reason
    assert put.reset is (reason == "ZoneDataRenewed")
    if reason in {"PlanLow", "Refresh", "SpecChanged"}:
        assert put.from_ms == an_entry(**entry).last_planned_ms
        assert all(at > put.from_ms for at in put.instants_ms)


@pytest.mark.covers("OP-257")
def test_a_changed_schedule_is_planned_from_now() -> None:
    plan = decide_cronjob(a_cronjob(2, schedule="30 6 * * *"), a_world(an_entry()), NOW)

    put = put_of(plan)
    assert (put.from_ms, put.generation, len(put.instants_ms)) == (NOW_MS, 2, 64)
    assert put.instants_ms[0] == NOW_MS + 18 * HOUR_MS + HOUR_MS // 2


@pytest.mark.covers("OP-256", "OP-253")
def test_an_entry_of_a_newer_generation_is_left_alone() -> None:
    plan = decide_cronjob(a_cronjob(1), a_world(an_entry(generation=2)), NOW)

    assert plan.actions == ()


def test_a_burst_with_a_long_pause_after_it_is_not_planned_again_and_again() -> None:
    # 120 ticks on Sunday morning and none for a week: Saturday evening the plan ends soon, and lacks nothing.
    sunday = NOW_MS + 36 * HOUR_MS
    entry = an_entry(
        schedule_hash=hash_of("* 0-1 * * 0"),
        next_ms=sunday,
        refreshed_ms=sunday - HOUR_MS,
        planned=120,
        last_planned_ms=sunday + 119 * 60_000,
    )
    evening = LedgerSeen(now_ms=sunday - HOUR_MS, schedule=entry)

    plan = decide_cronjob(a_cronjob(schedule="* 0-1 * * 0"), a_world(ledger=evening), NOW)

    assert plan.actions == ()


@pytest.mark.covers("OP-252")
def test_after_a_long_absence_the_plan_goes_on_from_its_end() -> None:
    end = NOW_MS - 1200 * 60_000
    entry = an_entry(
        schedule_hash=hash_of("* * * * *"), cursor_ms=end, next_ms=None, planned=0, last_planned_ms=end
    )

    put = put_of(decide_cronjob(a_cronjob(schedule="* * * * *"), a_world(entry), NOW))

    assert (put.reason, put.from_ms, put.left_out) == ("PlanLow", end, 700)
    assert put.instants_ms[0] == NOW_MS - 499 * 60_000
    assert len(put.instants_ms) == 2000


@pytest.mark.covers("OP-250")
def test_the_operator_ticks_at_the_instant() -> None:
    quiet = decide_cronjob(a_cronjob(), a_world(an_entry()), NOW)
    due = decide_cronjob(a_cronjob(), a_world(an_entry(next_ms=NOW_MS)), NOW)

    assert quiet.actions == ()
    assert quiet.requeue_after == timedelta(hours=1)
    assert due.actions == (TickSchedule(queue=MAIL, uid=UID, reason="Due"),)


@pytest.mark.covers("OP-255")
def test_only_redis_time_counts() -> None:
    ahead, behind = NOW + timedelta(hours=5), NOW - timedelta(hours=5)

    plans = [decide_cronjob(a_cronjob(), a_world(an_entry()), at) for at in (ahead, behind)]
    created = [put_of(decide_cronjob(a_cronjob(), a_world(), at)) for at in (ahead, behind)]

    assert all(plan.actions == () and plan.requeue_after == timedelta(hours=1) for plan in plans)
    assert {put.instants_ms[0] for put in created} == {NOW_MS + HOUR_MS}


@pytest.mark.covers("OP-258")
def test_a_suspended_cronjob_is_quiet_and_says_so() -> None:
    entry = an_entry(suspended=True, next_ms=None)

    plan = decide_cronjob(a_cronjob(suspend=True), a_world(entry, status=told()), NOW)

    assert plan.actions == ()
    assert plan.requeue_after is None
    assert plan.status is not None
    assert (plan.status["nextTickTime"], plan.status["nextTicks"]) == (None, [])
    assert condition(plan, "Suspended")["reason"] == "BySpec"
    assert plan.events == (Event(reason="CronSuspended", message="no ticks: by spec.suspend"),)


@pytest.mark.covers("OP-054")
def test_deleting_removes_the_entry_by_its_uid() -> None:
    cronjob = parse_cronjob(raw_cronjob(deleting=True))

    plan = decide_cronjob(cronjob, a_world(an_entry()), NOW)

    assert plan.actions == (RemoveSchedule(queue=MAIL, uid=UID, reason="Deleted"),)


@pytest.mark.covers("OP-054")
def test_the_sweep_removes_what_two_full_lists_lack() -> None:
    found = {MAIL: ["gone", "here", "new", "just-deleted"], REPORT: ["gone"]}

    orphans = choose_orphans(found, frozenset({"here", "new"}), frozenset({"here", "just-deleted"}))

    assert orphans == (
        RemoveSchedule(queue=MAIL, uid="gone", reason="Orphaned"),
        RemoveSchedule(queue=REPORT, uid="gone", reason="Orphaned"),
    )


# --- data loss and moves -----------------------------------------------------------------------------------


@pytest.mark.covers("OP-254")
def test_an_entry_that_redis_lost_begins_where_it_had_decided() -> None:
    status = {**told(), "cursorTime": "2026-05-01T09:00:00Z"}

    plan = decide_cronjob(a_cronjob(), a_world(status=status), NOW)

    put = put_of(plan)
    assert (put.reason, put.decided_ms, put.from_ms) == (
        "DataLost",
        NOW_MS - 3 * HOUR_MS,
        NOW_MS - 3 * HOUR_MS,
    )
    assert put.instants_ms[:3] == (NOW_MS - 2 * HOUR_MS, NOW_MS - HOUR_MS, NOW_MS)
    assert [event.reason for event in plan.events] == ["RedisDataLost"]


@pytest.mark.covers("OP-254")
def test_a_cursor_behind_the_status_is_told_to_the_ledger_once() -> None:
    entry = an_entry(cursor_ms=NOW_MS - 2 * HOUR_MS, next_ms=NOW_MS - HOUR_MS)

    plan = decide_cronjob(a_cronjob(), a_world(entry, status=told()), NOW)
    again = decide_cronjob(a_cronjob(), a_world(replace(entry, lost_ms=NOW_MS), status=told()), NOW)

    assert (put_of(plan).reason, put_of(plan).decided_ms) == ("DataLost", NOW_MS)
    assert again.actions == (TickSchedule(queue=MAIL, uid=UID, reason="Due"),)


@pytest.mark.covers("OP-254", "OP-257")
@pytest.mark.parametrize(
    "status",
    [
        {"observedGeneration": 0},
        {"queue": {"name": "other"}},
        {"conditions": [{"type": "Suspended", "status": "True"}]},
        {"cursorTime": None},
    ],
)
def test_a_status_about_something_else_lets_a_new_entry_begin_now(status: dict[str, Any]) -> None:
    before = {**told(), "cursorTime": "2026-05-01T09:00:00Z", **status}

    put = put_of(decide_cronjob(a_cronjob(), a_world(status=before), NOW))

    assert (put.reason, put.decided_ms, put.from_ms) == ("Created", None, NOW_MS)


@pytest.mark.covers("OP-264")
def test_another_queue_gets_the_schedule_with_its_cursor_and_then_the_old_one_forgets_it() -> None:
    old = an_entry(cursor_ms=NOW_MS - HOUR_MS)
    status = {**told(), "queue": {"name": "mail", "owned": False}}
    cronjob = a_cronjob(2, queueRef={"name": "post"})
    post = ObjectRef(namespace="shop", name="post")

    def decide(here: ScheduleSeen | None, there: ScheduleSeen | None) -> tuple[Any, ...]:
        seen = a_world(here, target=a_queue("post"), previous=a_queue("mail"), status=status)
        ledger = LedgerSeen(now_ms=NOW_MS, schedule=there)
        return decide_cronjob(cronjob, replace(seen, previous_ledger=ledger), NOW).actions

    first = decide(None, old)
    put, removed = decide(None, replace(old, suspended=True))
    last = decide(an_entry(generation=2), replace(old, suspended=True))

    assert first == (SuspendSchedule(queue=MAIL, uid=UID, reason="Moved"),)
    assert isinstance(put, PutSchedule)
    assert (put.queue, put.decided_ms) == (post, NOW_MS - HOUR_MS)
    assert put.instants_ms[0] == NOW_MS
    assert removed == RemoveSchedule(queue=MAIL, uid=UID, reason="Moved")
    assert last == (removed,)


# --- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-052")
@pytest.mark.parametrize(
    ("spec", "world", "reason", "message"),
    [
        (
            {"schedule": "0 25 * * *"}, {}, "ScheduleInvalid",
            "spec.schedule: hour, character 3: expected 0-23, a-b, a list, */n, * or H, got '25'",
        ),
        ({"schedule": "0 0 31 2 *"}, {}, "ScheduleNeverFires", "spec.schedule: expected a time that comes again"),
        ({"timeZone": "Europe/Atlantis"}, {}, "TimeZoneUnknown", "spec.timeZone: expected an IANA name"),
        ({}, {"target": None}, "QueueNotFound", "spec.queueRef.name: expected a Queue of namespace shop, got 'mail'"),
        (
            {"job": {"type": "x", "timeout": "10m"}}, {"target": a_queue(max_timeout=timedelta(minutes=5))},
            "TimeoutAboveQueueMax", "spec.job.timeout: expected at most 300s (Queue mail), got 600s",
        ),
        (
            {"worker": {"image": "r/x:1", "app": "x:app"}}, {"owned": a_queue("report"), "target": a_queue("report")},
            "NameConflict", "spec.worker: expected no other Queue named report, got one owned by no controller",
        ),
    ],
)  # fmt: skip
def test_what_the_schema_cannot_refuse_is_refused_by_name_and_suspends_the_entry(
    spec: dict[str, Any], world: dict[str, Any], reason: str, message: str
) -> None:
    running = a_world(an_entry(), **world)

    plan = decide_cronjob(a_cronjob(**spec), running, NOW)

    accepted = condition(plan, "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", reason)
    assert accepted["message"].startswith(message)
    assert condition(plan, "Ready")["reason"] == "NotAccepted"
    assert condition(plan, "Stalled")["status"] == "True"
    assert condition(plan, "Suspended")["reason"] == "NotAccepted"
    where = running.target
    suspended = () if where is None else (
        SuspendSchedule(queue=ObjectRef(namespace="shop", name=where.child.name), uid=UID, reason="NotAccepted"),
    )  # fmt: skip
    assert plan.actions == suspended
    assert ("Rejected", EventType.WARNING) in [(event.reason, event.type) for event in plan.events]


@pytest.mark.covers("OP-052")
def test_a_spec_that_cannot_be_read_suspends_the_entry_too() -> None:
    refused = parse_cronjob(raw_cronjob(job={"type": "x", "priority": 1000}))
    assert isinstance(refused, Refused)

    plan = decide_cronjob(refused, a_world(an_entry()), NOW)
    later = decide_cronjob(refused, a_world(an_entry(suspended=True, next_ms=None)), NOW)

    assert condition(plan, "Accepted")["reason"] == "InvalidField"
    assert plan.actions == (SuspendSchedule(queue=MAIL, uid=UID, reason="NotAccepted"),)
    assert later.actions == ()


@pytest.mark.covers("OP-052", "OP-258")
def test_a_repaired_cronjob_goes_on_from_now() -> None:
    plan = decide_cronjob(a_cronjob(), a_world(an_entry(suspended=True, next_ms=None)), NOW)

    assert put_of(plan).reason == "Resumed"
    assert put_of(plan).settings.suspended is False


# --- the owned Queue ---------------------------------------------------------------------------------------

WORKER = {"image": "r/shop:1", "app": "shop.jobs:app"}


def an_owned_queue(cronjob: CronJob, **more: Any) -> TargetSeen:
    manifest = marked(render_owned_queue(cronjob))
    live = {**manifest, "metadata": {**manifest["metadata"], "uid": "uid-report"}}
    return TargetSeen(namespace="shop", child=child_seen(live, "Queue"), **more)


@pytest.mark.covers("OP-051")
def test_an_inline_worker_makes_a_queue_of_the_same_name_with_no_pod_between_ticks() -> None:
    cronjob = a_cronjob(worker=WORKER, job={"type": "x", "timeout": "2m"}, maxReplicas=2)

    plan = decide_cronjob(cronjob, a_world(target=None, ledger=LedgerSeen()), NOW)

    (apply,) = plan.actions
    assert isinstance(apply, ApplyChild)
    assert (apply.kind, apply.name, apply.reason) == ("Queue", "report", "Missing")
    assert apply.manifest["spec"]["scaling"] == {"minReplicas": 0, "maxReplicas": 2}
    assert apply.manifest["spec"]["jobs"] == {"timeout": "2m"}
    assert apply.manifest["metadata"]["ownerReferences"][0]["uid"] == UID
    assert condition(plan, "Ready")["reason"] == "FirstContact"
    assert plan.status is not None
    assert plan.status["queue"] == {"name": "report", "owned": True}


@pytest.mark.covers("OP-051")
def test_the_owned_queue_is_kept_as_declared_and_then_left_alone() -> None:
    cronjob = a_cronjob(worker=WORKER)
    owned = an_owned_queue(cronjob)
    edited = an_owned_queue(a_cronjob(worker={**WORKER, "image": "r/shop:2"}))

    quiet = decide_cronjob(cronjob, a_world(an_entry(), target=owned, owned=owned), NOW)
    drifted = decide_cronjob(cronjob, a_world(an_entry(), target=edited, owned=edited), NOW)

    assert quiet.actions == ()
    assert [(a.reason, a.name) for a in drifted.actions if isinstance(a, ApplyChild)] == [
        ("Drifted", "report")
    ]


def test_an_owned_queue_that_is_not_wanted_any_more_goes_once_its_ledger_is_empty() -> None:
    owned = an_owned_queue(a_cronjob(worker=WORKER))
    status = {**told(), "queue": {"name": "report", "owned": True}}
    busy = a_world(
        an_entry(), owned=owned, previous=owned, status=status,
        previous_ledger=LedgerSeen(now_ms=NOW_MS, schedule=an_entry(suspended=True)),
    )  # fmt: skip

    first = decide_cronjob(a_cronjob(), busy, NOW)
    then = decide_cronjob(a_cronjob(), replace(busy, previous_ledger=LedgerSeen(now_ms=NOW_MS)), NOW)

    assert first.actions == (RemoveSchedule(queue=REPORT, uid=UID, reason="Moved"),)
    assert then.actions == (DeleteChild(kind="Queue", name="report", uid="uid-report", reason="NotWanted"),)


# --- status and events -------------------------------------------------------------------------------------


@pytest.mark.covers("OP-050")
def test_the_status_shows_the_ledger_and_is_a_status_of_the_model() -> None:
    last = {
        "at": str(NOW_MS), "decided": str(NOW_MS + 12), "id": f"cron-{UID}-{NOW_MS}", "outcome": "fired",
        "by": "worker", "reason": "",
    }  # fmt: skip
    missed = {"at": str(NOW_MS - HOUR_MS), "decided": str(NOW_MS - HOUR_MS), "reason": "Deadline"}
    entry = an_entry(
        runs=41, missed=2, skipped=1, last=last, last_missed=missed, active=(f"cron-{UID}-{NOW_MS}",), pending=1,
        last_skipped={"at": str(NOW_MS), "decided": str(NOW_MS), "reason": "StillRunning"},
    )  # fmt: skip

    plan = decide_cronjob(a_cronjob(), a_world(entry), NOW)

    assert plan.status == {
        "observedGeneration": 1,
        "queue": {"name": "mail", "owned": False},
        "cursorTime": "2026-05-01T12:00:00Z",
        "nextTickTime": "2026-05-01T13:00:00Z",
        "nextTicks": ["2026-05-01T13:00:00Z", "2026-05-01T14:00:00Z", "2026-05-01T15:00:00Z"],
        "lastTick": {
            "scheduledFor": "2026-05-01T12:00:00Z", "enqueuedAt": "2026-05-01T12:00:00Z",
            "jobID": f"cron-{UID}-{NOW_MS}", "outcome": "Enqueued", "by": "worker", "lagMillis": 12,
        },
        "active": [{"jobID": f"cron-{UID}-{NOW_MS}", "scheduledFor": "2026-05-01T12:00:00Z"}],
        "pending": 1,
        "runs": 41,
        "missed": {"count": 2, "lastAt": "2026-05-01T11:00:00Z", "lastReason": "Deadline"},
        "skipped": {"count": 1, "lastAt": "2026-05-01T12:00:00Z", "lastReason": "StillRunning"},
        "conditions": plan.status["conditions"] if plan.status else None,
    }  # fmt: skip
    CronJobStatus.model_validate(plan.status)
    said = {c["type"]: (c["status"], c["reason"]) for c in plan.status["conditions"]}
    assert said == {
        "Accepted": ("True", "Valid"), "Ready": ("True", "AsDeclared"), "Suspended": ("False", "Active"),
        "MissedRuns": ("True", "Deadline"),
    }  # fmt: skip
    # Running jobs are followed each 10 s.
    assert plan.requeue_after == timedelta(seconds=10)


@pytest.mark.covers("OP-052")
def test_missed_runs_holds_for_a_day() -> None:
    missed = {"at": str(NOW_MS), "decided": str(NOW_MS), "reason": "Policy"}
    entry = an_entry(missed=1, last_missed=missed)
    day = timedelta(hours=24)

    early = decide_cronjob(a_cronjob(), a_world(entry), NOW + day - timedelta(seconds=1))
    late = decide_cronjob(a_cronjob(), a_world(entry), NOW + day)

    assert condition(early, "MissedRuns")["status"] == "True"
    assert condition(late, "MissedRuns")["status"] == "False"


def test_an_unchanged_status_is_not_written() -> None:
    plan = decide_cronjob(a_cronjob(), a_world(an_entry(), status=told()), NOW + timedelta(hours=3))

    assert (plan.status, plan.events) == (None, ())


def test_ticks_reach_the_status_each_ten_seconds_and_conditions_at_once() -> None:
    entry = an_entry(runs=5)
    seen = a_world(entry, status=told(), written_at=NOW - timedelta(seconds=4))

    early = decide_cronjob(a_cronjob(), seen, NOW)
    later = decide_cronjob(a_cronjob(), replace(seen, written_at=NOW - timedelta(seconds=10)), NOW)
    refused = decide_cronjob(a_cronjob(timeZone="No/Where"), seen, NOW)

    assert (early.status, early.events, early.requeue_after) == (None, (), timedelta(seconds=6))
    assert later.status is not None
    assert later.events == (Event(reason="CronFired", message="5 ticks enqueued"),)
    assert refused.status is not None


@pytest.mark.covers("OP-267")
def test_missed_and_skipped_ticks_are_one_warning_each() -> None:
    entry = an_entry(
        missed=3, last_missed={"at": str(NOW_MS), "decided": str(NOW_MS), "reason": "Policy"},
        skipped=1, last_skipped={"at": str(NOW_MS), "decided": str(NOW_MS), "reason": "QueueFull"},
    )  # fmt: skip

    plan = decide_cronjob(a_cronjob(), a_world(entry, status=told()), NOW)

    assert plan.events == (
        Event(
            reason="CronMissed", message="3 ticks missed; the last was due 2026-05-01T12:00:00Z: Policy",
            type=EventType.WARNING,
        ),
        Event(
            reason="CronSkipped", message="1 tick skipped; the last was due 2026-05-01T12:00:00Z: QueueFull",
            type=EventType.WARNING,
        ),
    )  # fmt: skip


def test_a_lost_redis_keeps_the_figures_and_does_not_flip_ready() -> None:
    ledger = LedgerSeen(failure=RedisFailure.CONNECT_FAILED, message="connection refused")
    status = told(an_entry(runs=41))

    before = decide_cronjob(a_cronjob(), a_world(ledger=ledger), NOW)
    after = decide_cronjob(a_cronjob(), a_world(ledger=ledger, status=status), NOW)

    assert before.actions == after.actions == ()
    ready = condition(before, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "FirstContact")
    assert "connection refused" in ready["message"]
    assert condition(after, "Ready")["status"] == "True"
    assert after.status is not None
    assert after.status["runs"] == 41
    assert after.requeue_after == timedelta(seconds=5)


def test_a_queue_that_is_not_accepted_gets_no_entry() -> None:
    target = a_queue(accepted=False, refusal="Redis queue shop/mail belongs to other/mail")

    plan = decide_cronjob(a_cronjob(), a_world(target=target), NOW)

    assert plan.actions == ()
    assert "belongs to other/mail" in condition(plan, "Ready")["message"]
