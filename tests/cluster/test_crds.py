"""The CRDs in a real API server: defaults, bounds, immutable fields, subresources, what kubectl shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dockwork_operator.models.crds import CRONJOB, QUEUE, Kind
from dockwork_operator.models.cronjobs import CronJobStatus
from dockwork_operator.models.durations import format_duration, parse_duration
from dockwork_operator.models.fields import ApiModel, Bytes, Span, Whole
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.quantities import format_bytes, parse_bytes
from dockwork_operator.models.queues import QueueStatus, parse_queue
from dockwork_operator.models.schema import fields_of
from support.api_objects import GONE, a_cronjob, a_queue, an_inline_cronjob
from support.api_requests import Api, Json
from support.apiserver import ApiServer

URL = {"secretKeyRef": {"name": "my-redis", "key": "url"}}

FULL_QUEUE = {
    "redis": {
        "urlFrom": URL,
        "caFrom": {"configMapKeyRef": {"name": "my-ca", "key": "ca.crt"}},
        "prefix": "shop",
        "queue": "mail-v2",
    },
    "worker": {
        "image": "r/shop@sha256:aa",
        "app": "shop.jobs:app",
        "args": ["--queues", "mail"],
        "slots": 4,
        "resources": {
            "requests": {"cpu": 1, "memory": "1.5Gi"},
            "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"},
        },
        "env": [
            {"name": "A", "value": "1"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "DOCKWORK_LOG_LEVEL", "value": "debug"},
        ],
        "envFrom": [{"configMapRef": {"name": "settings"}}],
        "minReadySeconds": 0,
        "podTemplate": {"metadata": {"annotations": {"a": "b"}}, "spec": {"priorityClassName": "high"}},
    },
    "jobs": {
        "timeout": "1m30s",
        "maxTimeout": "2h",
        "maxAttempts": 1,
        "maxDeliveries": 2,
        "backoff": {"kind": "Fixed", "base": "250ms", "max": "1m", "jitterPercent": 0},
    },
    "limits": {"depth": 10, "bytes": 1048576, "payloadBytes": "8Mi"},
    "replicas": 3,
    "scaling": {
        "mode": "External",
        "minReplicas": 1,
        "maxReplicas": 20,
        "drainTarget": "5s",
        "targetUtilizationPercent": 65,
        "maxWait": "20s",
        "expectedDuration": "1ms",
        "fallback": {"replicas": 20, "after": "2m"},
    },
    "rollout": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "10%", "maxTerminating": 2}},
    "drain": {"gracePeriod": "1h", "requeue": "Back"},
    "pdb": {"mode": "None", "maxUnavailable": "50%"},
    "networkPolicy": {"mode": "None"},
}

FULL_CRONJOB = {
    "schedule": "H(0-29) 2 * JAN-MAR MON",
    "timeZone": "America/Argentina/Buenos_Aires",
    "dst": {"gap": "Skip", "overlap": "Both"},
    "queueRef": {"name": "mail"},
    "job": {
        "type": "report.daily",
        "args": {"day": {"of": ["week", 1, None, True, 0.5]}},
        "priority": -100,
        "timeout": "1h",
        "maxAttempts": 1,
        "expireAfter": "1h",
    },
    "missedRunPolicy": "All",
    "maxCatchUp": 100,
    "startingDeadlineSeconds": 10,
    "concurrencyPolicy": "Forbid",
    "maxPending": 1000,
    "suspend": True,
}


def empty_dropped(spec: Json) -> Json:
    """Without empty lists and objects: absent and empty are one to the operator."""
    return {
        name: empty_dropped(value) if isinstance(value, dict) else value
        for name, value in spec.items()
        if value not in ([], {})
    }


# --- what is filled in -------------------------------------------------------------------------------------


@pytest.mark.covers("OP-003")
def test_the_api_server_fills_in_what_the_model_would(api: Api, shop: str) -> None:
    for made, kind in ((a_queue(), QUEUE), (a_cronjob(), CRONJOB), (an_inline_cronjob(), CRONJOB)):
        stored = api.create(made, dry_run=True)
        assert stored.code == 201, stored.message
        by_model = kind.spec.model_validate(made["spec"]).wire()
        assert empty_dropped(stored.body["spec"]) == empty_dropped(by_model)


@pytest.mark.covers("OP-003", "OP-005")
@pytest.mark.parametrize(
    ("made", "kind"),
    [
        (a_queue(FULL_QUEUE), QUEUE),
        (a_cronjob(FULL_CRONJOB), CRONJOB),
        (an_inline_cronjob({"redis": {"urlFrom": URL}, "maxReplicas": 5}), CRONJOB),
        (a_queue({"worker": {"image": "x", "command": ["sh", "-c", "exec worker"]}}), QUEUE),
    ],
    ids=["every field of Queue", "every field of CronJob", "inline worker", "command"],
)
def test_what_is_set_is_stored_as_it_is(made: Json, kind: Kind, api: Api, shop: str) -> None:
    stored = api.create(made, dry_run=True)
    assert stored.code == 201, stored.message
    for name, value in made["spec"].items():
        if name in ("worker", "dst", "job"):
            assert {**stored.body["spec"][name], **value} == stored.body["spec"][name]
        else:
            assert stored.body["spec"][name] == value
    assert isinstance(kind.spec.model_validate(made["spec"], by_alias=True, by_name=False), ApiModel)


def test_the_full_objects_have_every_field() -> None:
    assert set(FULL_QUEUE) == {field.name for field in fields_of(QUEUE.spec)}
    assert set(FULL_CRONJOB) | {"worker", "redis", "maxReplicas"} == {
        field.name for field in fields_of(CRONJOB.spec)
    }


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "0 8 * * 1-5",
        "*/15 0-6,20 1 JAN SUN",
        "@hourly",
        "@daily",
        "@yearly",
        "@every 1h30m",
        "H H(0-6) * * *",
    ],
)
def test_schedules_that_people_type_pass(schedule: str, api: Api, shop: str) -> None:
    answer = api.create(a_cronjob({"schedule": schedule}), dry_run=True)
    assert answer.code == 201, answer.message


# --- every bound, good and bad -----------------------------------------------------------------------------

# What else must be set so that only the field's own bound can refuse.
BESIDE: dict[str, Json] = {
    "scaling.minReplicas": {"scaling.maxReplicas": 1000},
    "scaling.fallback.replicas": {"scaling.maxReplicas": 1000},
    "scaling.fallback.after": {"scaling.fallback.replicas": 1},
    "jobs.maxTimeout": {"jobs.timeout": "1s"},
    "jobs.backoff.base": {"jobs.backoff.max": "24h"},
    "jobs.backoff.max": {"jobs.backoff.base": "10ms"},
}


def bounds(model: type[ApiModel], above: str = "") -> Iterator[tuple[str, list[Any], list[Any]]]:
    """Each field with a range: its path, the values at its bounds, and those just outside."""
    for field in fields_of(model):
        path = f"{above}{field.name}"
        if field.model is not None and field.many is None:
            yield from bounds(field.model, f"{path}.")
        elif isinstance(field.marker, Whole):
            least, most = field.marker.least, field.marker.most
            yield path, [least, most], [least - 1, most + 1]
        elif type(field.marker) is Span:
            least_text, most_text = field.marker.least, field.marker.most
            tick = parse_duration("1ms")
            below, over = parse_duration(least_text) - tick, parse_duration(most_text) + tick
            yield path, [least_text, most_text], [format_duration(below), format_duration(over)]
        elif isinstance(field.marker, Bytes):
            least_text, most_text = field.marker.least, field.marker.most
            outside = [format_bytes(parse_bytes(least_text) - 1), parse_bytes(most_text) + 1]
            yield path, [least_text, most_text, parse_bytes(most_text)], outside


QUEUE_BOUNDS = list(bounds(QUEUE.spec))
CRON_BOUNDS = [bound for bound in bounds(CRONJOB.spec) if not bound[0].startswith("worker.")]


@pytest.mark.covers("OP-001", "OP-003")
@pytest.mark.parametrize(("path", "good", "bad"), QUEUE_BOUNDS, ids=[bound[0] for bound in QUEUE_BOUNDS])
def test_each_bound_of_a_queue_holds(path: str, good: list[Any], bad: list[Any], api: Api, shop: str) -> None:
    for value in good:
        answer = api.create(a_queue({**BESIDE.get(path, {}), path: value}), dry_run=True)
        assert answer.code == 201, (value, answer.message)
    for value in bad:
        answer = api.create(a_queue({**BESIDE.get(path, {}), path: value}), dry_run=True)
        assert answer.code == 422, value
        assert f"spec.{path}" in {cause["field"] for cause in answer.causes}, answer.message
        assert isinstance(parse_queue(a_queue({**BESIDE.get(path, {}), path: value})), Refused)


@pytest.mark.covers("OP-001", "OP-003")
@pytest.mark.parametrize(("path", "good", "bad"), CRON_BOUNDS, ids=[bound[0] for bound in CRON_BOUNDS])
def test_each_bound_of_a_cronjob_holds(
    path: str, good: list[Any], bad: list[Any], api: Api, shop: str
) -> None:
    make = an_inline_cronjob if path == "maxReplicas" else a_cronjob
    for value in good:
        answer = api.create(make({path: value}), dry_run=True)
        assert answer.code == 201, (value, answer.message)
    for value in bad:
        answer = api.create(make({path: value}), dry_run=True)
        assert answer.code == 422, value
        assert f"spec.{path}" in {cause["field"] for cause in answer.causes}, answer.message


@pytest.mark.covers("OP-001")
@pytest.mark.parametrize("text", ["1s", "1h30m", "1h1m1s1ms", "999999ms"])
def test_durations_that_people_type_pass(text: str, api: Api, shop: str) -> None:
    assert api.create(a_queue({"scaling.expectedDuration": text}), dry_run=True).code == 201


@pytest.mark.covers("OP-001")
@pytest.mark.parametrize(
    "text", ["1d", "1 s", "1.5s", "-1s", "1000000s", "1S", "", "1h1h1h1h1h1h1h1h1h", 60, 1.5]
)
def test_durations_of_other_kinds_do_not(text: object, api: Api, shop: str) -> None:
    answer = api.create(a_queue({"scaling.drainTarget": text}), dry_run=True)
    assert answer.code == 422
    assert "spec.scaling.drainTarget" in {cause["field"] for cause in answer.causes}


# --- names and what cannot change --------------------------------------------------------------------------


@pytest.mark.covers("OP-007")
@pytest.mark.parametrize("make", [a_queue, a_cronjob])
@pytest.mark.parametrize("name", ["x" * 64, "a.b"])
def test_a_name_is_a_dns_label_of_63_characters(make: Any, name: str, api: Api, shop: str) -> None:
    answer = api.create(make(name=name), dry_run=True)
    assert answer.code == 422
    assert "metadata.name" in {cause["field"] for cause in answer.causes}
    assert api.create(make(name="x" * 63), dry_run=True).code == 201


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ({"redis": {"queue": "a"}}, {"redis": {"queue": "b"}}, "spec.redis.queue"),
        ({"redis": {"queue": "a"}}, {"redis": {"queue": None}}, "spec.redis.queue"),
        ({"redis": {}}, {"redis": {"queue": "b"}}, "spec.redis.queue"),
        ({"redis": {"queue": "a"}}, {"redis": None}, "spec.redis"),
        ({}, {"redis": {"queue": "b"}}, "spec.redis"),
        ({"redis": {"urlFrom": URL, "prefix": "a"}}, {"redis": {"prefix": "b"}}, "spec.redis.prefix"),
    ],
)
def test_where_the_jobs_are_cannot_change(
    before: Json, after: Json, field: str, api: Api, namespace: str
) -> None:
    made = a_queue(before, namespace=namespace)
    assert api.create(made).code == 201
    answer = api.merge(made, {"spec": after})
    assert answer.code == 422, answer.body
    assert field in {cause["field"] for cause in answer.causes}
    assert "immutable" in answer.message


def test_all_else_about_redis_can_change(api: Api, namespace: str) -> None:
    made = a_queue({"redis": {"queue": "a", "urlFrom": URL}}, namespace=namespace)
    assert api.create(made).code == 201
    other = {"secretKeyRef": {"name": "other-redis", "key": "url"}}
    assert api.merge(made, {"spec": {"redis": {"urlFrom": other}}}).code == 200
    assert api.merge(made, {"spec": {"redis": {"urlFrom": None}}}).code == 200
    plain = a_queue(name="plain", namespace=namespace)
    assert api.create(plain).code == 201
    assert api.merge(plain, {"spec": {"redis": {"urlFrom": URL}}}).code == 200
    assert api.merge(plain, {"spec": {"redis": None}}).code == 200


# --- subresources ------------------------------------------------------------------------------------------

T = "2026-03-01T10:00:00Z"
CONDITION = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 1,
    "lastTransitionTime": T,
    "reason": "AsDeclared",
    "message": "3 pods ready",
}
DECISION = {
    "at": T,
    "from": 2,
    "raw": 3,
    "to": 3,
    "reason": "ArrivalRate",
    "message": "",
    "waiting": 3,
    "active": 4,
    "oldestSeconds": 0,
    "serviceMillis": 820,
    "arrivalsPerMinute": 95,
}
QUEUE_STATUS: Json = {
    "observedGeneration": 1,
    "selector": "dockwork.dev/queue=mail",
    "conditions": [CONDITION, {**CONDITION, "type": "Degraded", "reason": "CrashLoop"}],
    "redis": {"version": "7.2.5", "runID": "ab12", "policy": "noeviction", "memoryPercent": 41},
    "depth": {
        "waiting": 7, "ready": 5, "prioritized": 1, "delayed": 12, "dueSoon": 3, "active": 4, "parked": 0, "dead": 1,
        "oldestSeconds": 9, "bytes": 4096,
    },
    "workers": {
        "replicas": 3, "ready": 2, "quiesced": 0, "terminating": 0, "slots": 30, "busy": 4, "graceSeconds": 310,
        "podStartMillis": 5200,
    },
    "scaling": {
        "effective": {
            "mode": "Auto", "min": 0, "max": 10, "drainTargetSeconds": 15, "utilizationPercent": 80,
            "windowSeconds": 60,
        },
        "wanted": 3,
        "lastDecision": DECISION,
        "history": [DECISION],
        "stale": False,
    },
    "rollout": {
        "state": "Complete",
        "stableHash": "5b8c01",
        "startedAt": T,
        "interrupted": {"requeued": 0, "killed": 0},
    },
    "stranded": {"count": 2, "firstJobID": "01J", "types": ["mail.send"]},
}  # fmt: skip
CRON_STATUS: Json = {
    "observedGeneration": 1,
    "conditions": [CONDITION],
    "queue": {"name": "mail", "owned": False},
    "cursorTime": T,
    "nextTickTime": "2026-03-02T02:30:00Z",
    "nextTicks": ["2026-03-02T02:30:00Z", "2026-03-03T02:30:00Z"],
    "lastTick": {
        "scheduledFor": T, "enqueuedAt": T, "jobID": "cron-1", "outcome": "Enqueued", "by": "worker", "lagMillis": 12,
    },
    "active": [{"jobID": "cron-1", "scheduledFor": T, "state": "active"}],
    "pending": 0,
    "runs": 41,
    "missed": {"count": 6, "lastAt": T, "lastReason": "Deadline"},
    "skipped": {"count": 0, "lastReason": ""},
}  # fmt: skip


def test_the_whole_status_is_kept_and_spec_is_not_touched_by_it(api: Api, namespace: str) -> None:
    for made, status in (
        (a_queue(namespace=namespace), QUEUE_STATUS),
        (a_cronjob(namespace=namespace), CRON_STATUS),
    ):
        assert api.create(made).code == 201
        other = {"suspend": True} if made["kind"] == "CronJob" else {"replicas": 9}
        answer = api.merge(made, {"status": status, "spec": other}, below="status")
        assert answer.code == 200, answer.message
        stored = api.get(made)
        assert stored["status"] == status
        assert stored["spec"].get("replicas") is None
        assert not stored["spec"].get("suspend")
        assert stored["metadata"]["generation"] == 1


def test_these_statuses_have_every_field_of_the_models() -> None:
    queue, cronjob = QueueStatus.model_validate(QUEUE_STATUS), CronJobStatus.model_validate(CRON_STATUS)
    assert queue.wire() == QUEUE_STATUS
    assert cronjob.wire() == CRON_STATUS
    for model, status in ((QueueStatus, QUEUE_STATUS), (CronJobStatus, CRON_STATUS)):
        assert {field.name for field in fields_of(model)} == set(status)


def test_an_unknown_status_field_is_refused_by_a_strict_writer(api: Api, namespace: str) -> None:
    made = a_queue(namespace=namespace)
    assert api.create(made).code == 201
    answer = api.merge(made, {"status": {"depth": {"wating": 1}}}, below="status")
    assert answer.code == 400 or "unknown field" in answer.message


@pytest.mark.covers("OP-011")
def test_scale_reads_the_status_and_writes_spec_replicas(server: ApiServer, api: Api, namespace: str) -> None:
    made = a_queue({"scaling.mode": "External"}, namespace=namespace)
    assert api.create(made).code == 201
    assert api.merge(made, {"status": QUEUE_STATUS}, below="status").code == 200
    server.kubectl("scale", "dwq/mail", "--replicas=5", "-n", namespace)
    scale = api.ask("GET", f"{api.path_of(made)}/scale").body
    assert scale["spec"] == {"replicas": 5}
    assert scale["status"] == {"replicas": 3, "selector": "dockwork.dev/queue=mail"}
    assert api.get(made)["spec"]["replicas"] == 5
    # A removed value means: leave the fleet as it is. It is no 0.
    assert api.merge(made, {"spec": {"replicas": None}}).code == 200
    assert "replicas" not in api.get(made)["spec"]


# --- what people see ---------------------------------------------------------------------------------------


@pytest.mark.covers("OP-010", "OP-050")
def test_kubectl_get_shows_the_columns(server: ApiServer, api: Api, namespace: str) -> None:
    queue, cronjob = a_queue(namespace=namespace), a_cronjob(namespace=namespace)
    for made, status in ((queue, QUEUE_STATUS), (cronjob, CRON_STATUS)):
        assert api.create(made).code == 201
        assert api.merge(made, {"status": status}, below="status").code == 200

    head, row = server.kubectl("get", "dwq", "-n", namespace).splitlines()
    assert head.split() == [
        "NAME",
        "READY",
        "DESIRED",
        "PODS",
        "DEPTH",
        "OLDEST",
        "INFLIGHT",
        "VERSION",
        "AGE",
    ]
    assert row.split()[:-1] == ["mail", "True", "3", "2", "7", "9", "4", "5b8c01"]
    head, row = server.kubectl("get", "dwq", "-n", namespace, "-o", "wide").splitlines()
    assert head.split()[-3:] == ["REASON", "MODE", "DEGRADED"]
    assert row.split()[-3:] == ["AsDeclared", "Auto", "CrashLoop"]

    head, row = server.kubectl("get", "qcj", "-n", namespace).splitlines()
    assert head.split() == ["NAME", "SCHEDULE", "TZ", "SUSPEND", "LAST", "NEXT", "MISSED", "AGE"]
    assert row.startswith("report   30 2 * * 1-5   Etc/UTC   false")
    assert "2026-03-02T02:30:00Z   6" in row
    head, row = server.kubectl("get", "qcj", "-n", namespace, "-o", "wide").splitlines()
    assert head.split()[-3:] == ["LAG", "QUEUE", "REASON"]
    assert row.split()[-3:] == ["12", "mail", "AsDeclared"]


def test_both_kinds_come_by_their_category_and_the_built_in_cronjob_stays(
    server: ApiServer, api: Api, namespace: str
) -> None:
    for made in (a_queue(namespace=namespace), a_cronjob(namespace=namespace)):
        assert api.create(made).code == 201
    found = server.kubectl("get", "dockwork", "-n", namespace, "-o", "name").split()
    assert sorted(found) == ["cronjob.dockwork.dev/report", "queue.dockwork.dev/mail"]
    assert server.kubectl("get", "cronjob", "-n", namespace, "-o", "name") == ""
    assert sorted(server.kubectl("get", "dwq,qcj", "-n", namespace, "-o", "name").split()) == sorted(found)


def test_kubectl_explain_shows_range_default_and_meaning(server: ApiServer) -> None:
    slots = " ".join(server.kubectl("explain", "queue.spec.worker.slots").split())
    assert "Jobs that one pod runs at once. 1 to 1000. Default: 10." in slots
    requeue = server.kubectl("explain", "queue.spec.drain.requeue")
    assert "Front" in requeue
    assert "Back" in requeue
    assert "Default: Front." in requeue
    assert "timeZone" in server.kubectl("explain", "qcj.spec")
    assert "concurrencyPolicy" in server.kubectl("explain", "cronjob.spec")
    tree = server.kubectl("explain", "queue.spec", "--recursive")
    for name in (
        "urlFrom",
        "podTemplate",
        "maxTimeout",
        "targetUtilizationPercent",
        "maxTerminating",
        "gracePeriod",
    ):
        assert name in tree
    assert "missedRunPolicy" in server.kubectl("explain", "qcj.spec")


@pytest.mark.parametrize("changes", [{"scaling": GONE}, {"jobs": {}}, {"scaling": {}}, {"drain": {}}])
def test_an_empty_or_absent_object_takes_its_defaults(changes: Json, api: Api, shop: str) -> None:
    answer = api.create(a_queue(changes), dry_run=True)
    assert answer.code == 201, answer.message
    assert answer.body["spec"]["scaling"]["maxReplicas"] == 10
    assert answer.body["spec"]["jobs"]["backoff"]["max"] == "1h"
    assert answer.body["spec"]["drain"]["gracePeriod"] == "Auto"
