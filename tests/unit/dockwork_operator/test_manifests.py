"""What a Queue declares, rendered: names, labels, owners, the worker pod's contract, hash, grace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork_operator.decide.grace import drain_timeout_seconds, grace_seconds
from dockwork_operator.decide.manifests import (
    Children,
    RedisDefaults,
    render_children,
    render_deployment,
    render_owned_queue,
    render_template,
    template_hash,
)
from dockwork_operator.decide.names import pod_selector, short_name, worker_name
from dockwork_operator.models.cronjobs import CronJob, parse_cronjob
from dockwork_operator.models.queues import Queue, parse_queue
from support.api_objects import GONE, a_cronjob, a_queue, an_inline_cronjob

GOLDEN = Path(__file__).with_name("template_hashes.json")
DEFAULTS = RedisDefaults()


def read(changes: dict[str, Any] | None = None, *, name: str = "mail") -> Queue:
    queue = parse_queue(a_queue(changes, name=name))
    assert isinstance(queue, Queue), queue
    return queue


def children(
    changes: dict[str, Any] | None = None, *, name: str = "mail", defaults: RedisDefaults = DEFAULTS
) -> Children:
    made = render_children(read(changes, name=name), defaults)
    assert isinstance(made, Children), made
    return made


def pod(changes: dict[str, Any] | None = None, *, defaults: RedisDefaults = DEFAULTS) -> dict[str, Any]:
    template = children(changes, defaults=defaults).deployment["spec"]["template"]
    assert isinstance(template, dict)
    return template


def worker(changes: dict[str, Any] | None = None, *, defaults: RedisDefaults = DEFAULTS) -> dict[str, Any]:
    (container,) = pod(changes, defaults=defaults)["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def variables(changes: dict[str, Any] | None = None, *, defaults: RedisDefaults = DEFAULTS) -> dict[str, Any]:
    return {e["name"]: e.get("value", e.get("valueFrom")) for e in worker(changes, defaults=defaults)["env"]}


# --- names, labels, owners ---------------------------------------------------------------------------------


@pytest.mark.covers("OP-070")
def test_a_long_name_is_shortened_and_says_whose_it_is() -> None:
    assert worker_name("mail") == "mail-worker"
    assert worker_name("x" * 39) == "x" * 39 + "-worker"
    # The digest is that of the whole name: printf with 40 x | sha256sum
    assert worker_name("x" * 40) == "x" * 30 + "-bd913ff6-worker"
    assert worker_name("x" * 40) != worker_name("x" * 41)


@pytest.mark.covers("OP-070")
@given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
def test_every_child_name_leaves_room_for_a_pod_s_name(queue: str) -> None:
    name = worker_name(queue)
    assert len(name) <= 46
    # <deployment>-<10 of the ReplicaSet>-<5 of the pod>: within the 63 characters of a host name
    assert len(name) + 11 + 6 <= 63
    assert (short_name(queue) == queue) == (len(queue) <= 39)


@pytest.mark.covers("OP-071")
def test_labels_are_on_every_child_and_the_selector_is_queue_and_track() -> None:
    made = children()
    labels = {
        "app.kubernetes.io/name": "mail",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "dockwork",
        "dockwork.dev/queue": "mail",
        "dockwork.dev/track": "stable",
    }
    for child in (made.deployment, made.pdb, made.network_policy):
        assert child is not None
        assert child["metadata"]["labels"] == labels
    assert made.deployment["spec"]["selector"] == {
        "matchLabels": {"dockwork.dev/queue": "mail", "dockwork.dev/track": "stable"}
    }
    on_pods = made.deployment["spec"]["template"]["metadata"]["labels"]
    assert on_pods == {**labels, "dockwork.dev/template-hash": made.template_hash}
    assert pod_selector("mail") == "dockwork.dev/queue=mail"


@pytest.mark.covers("OP-072")
def test_every_child_is_owned_by_its_queue_in_the_same_namespace() -> None:
    made = children()
    for child in (made.deployment, made.pdb, made.network_policy):
        assert child is not None
        assert child["metadata"]["namespace"] == "shop"
        assert child["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "dockwork.dev/v1alpha1",
                "kind": "Queue",
                "name": "mail",
                "uid": "uid-mail",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]


@pytest.mark.covers("OP-073", "OP-074")
def test_the_deployment_never_says_how_many_and_is_paused_only_for_its_creation() -> None:
    queue = read({"replicas": 3, "scaling": {"minReplicas": 2}})
    usual, first = render_deployment(queue, DEFAULTS), render_deployment(queue, DEFAULTS, paused=True)
    assert isinstance(usual, dict)
    assert isinstance(first, dict)
    assert "replicas" not in usual["spec"]
    assert "paused" not in usual["spec"]
    assert first == {**usual, "spec": {**usual["spec"], "paused": True}}


# --- the worker pod ----------------------------------------------------------------------------------------


@pytest.mark.covers("OP-025")
def test_python_is_the_container_s_first_process_and_answers_on_8080() -> None:
    container = worker()
    assert container["command"] == ["dockwork", "worker", "shop.jobs:app"]
    assert "args" not in container
    assert [port["containerPort"] for port in container["ports"]] == [8080]
    probes = {
        name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert probes == {
        "startupProbe": {"path": "/livez", "port": 8080},
        "livenessProbe": {"path": "/livez", "port": 8080},
        "readinessProbe": {"path": "/readyz", "port": 8080},
    }
    assert variables()["DOCKWORK_PROBE_ADDR"] == "0.0.0.0:8080"


@pytest.mark.covers("OP-025")
def test_the_pod_is_as_the_restricted_profile_wants_it() -> None:
    spec = pod()["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"name": "tmp", "mountPath": "/tmp"} in container["volumeMounts"]
    assert {"name": "tmp", "emptyDir": {}} in spec["volumes"]


@pytest.mark.covers("OP-025", "OP-220")
def test_sigterm_comes_when_python_hears_it_and_the_put_back_still_ends_before_the_kill() -> None:
    for changes in ({}, {"drain.gracePeriod": "5s"}, {"jobs.timeout": "1s"}):
        assert worker(changes)["lifecycle"] == {"preStop": {"sleep": {"seconds": 2}}}
        grace = pod(changes)["spec"]["terminationGracePeriodSeconds"]
        assert 2 + int(variables(changes)["DOCKWORK_DRAIN_TIMEOUT"]) < grace
    own = {"preStop": {"exec": {"command": ["true"]}}}
    fragment = {"spec": {"containers": [{"name": "worker", "lifecycle": own}]}}
    assert worker({"worker.podTemplate": fragment})["lifecycle"] == own


@pytest.mark.covers("OP-025")
def test_the_end_of_a_failed_worker_s_log_is_kept_in_the_pod() -> None:
    assert worker()["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_a_command_of_the_user_s_replaces_ours_and_args_follow_it() -> None:
    container = worker(
        {"worker.app": GONE, "worker.command": ["python", "-m", "w"], "worker.args": ["--x", "y"]}
    )
    assert container["command"] == ["python", "-m", "w"]
    assert container["args"] == ["--x", "y"]


def test_the_environment_is_the_contract_with_the_runtime() -> None:
    assert variables({"drain.requeue": "Back", "worker.slots": 3, "jobs.timeout": "30s"}) == {
        "DOCKWORK_NAMESPACE": "shop",
        "DOCKWORK_QUEUES": "mail",
        "DOCKWORK_CONCURRENCY": "3",
        "DOCKWORK_REDIS_URL_FILE": "/etc/dockwork/redis/url",
        "DOCKWORK_DRAIN_TIMEOUT": "34",
        "DOCKWORK_DRAIN_REQUEUE": "back",
        "DOCKWORK_POD_UID": {"fieldRef": {"fieldPath": "metadata.uid"}},
        "DOCKWORK_POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "DOCKWORK_CONTAINER": "worker",
        "DOCKWORK_TEMPLATE_HASH": {
            "fieldRef": {"fieldPath": "metadata.labels['dockwork.dev/template-hash']"}
        },
        "DOCKWORK_PROBE_ADDR": "0.0.0.0:8080",
        "DOCKWORK_LOG_FORMAT": "json",
    }


def test_a_variable_that_is_the_user_s_to_set_replaces_ours() -> None:
    made = worker(
        {"worker.env": [{"name": "DOCKWORK_LOG_FORMAT", "value": "text"}, {"name": "A", "value": "$(B)"}]}
    )
    named = [entry for entry in made["env"] if entry["name"] in ("DOCKWORK_LOG_FORMAT", "A")]
    assert named == [{"name": "DOCKWORK_LOG_FORMAT", "value": "text"}, {"name": "A", "value": "$(B)"}]


@pytest.mark.covers("OP-020", "OP-021")
def test_the_default_redis_is_a_mounted_file_of_the_queue_s_own_namespace() -> None:
    spec = pod(defaults=RedisDefaults(secret="shared", url_key="redis-url"))["spec"]
    volume = {
        "name": "dockwork-redis",
        "secret": {"secretName": "shared", "items": [{"key": "redis-url", "path": "url"}]},
    }
    assert volume in spec["volumes"]
    mount = {"name": "dockwork-redis", "mountPath": "/etc/dockwork/redis", "readOnly": True}
    assert mount in spec["containers"][0]["volumeMounts"]
    assert "secretKeyRef" not in json.dumps(spec)


@pytest.mark.covers("OP-021")
def test_a_redis_of_its_own_with_a_ca_is_two_mounted_files() -> None:
    changes = {
        "redis.urlFrom": {"secretKeyRef": {"name": "mine", "key": "uri"}},
        "redis.caFrom": {"configMapKeyRef": {"name": "certs", "key": "ca.crt"}},
        "redis.prefix": "other",
        "redis.queue": "letters",
    }
    spec = pod(changes, defaults=RedisDefaults(ca_key="ca"))["spec"]
    assert spec["volumes"][1:] == [
        {
            "name": "dockwork-redis",
            "secret": {"secretName": "mine", "items": [{"key": "uri", "path": "url"}]},
        },
        {
            "name": "dockwork-redis-ca",
            "configMap": {"name": "certs", "items": [{"key": "ca.crt", "path": "ca"}]},
        },
    ]
    seen = variables(changes)
    assert seen["DOCKWORK_REDIS_CA_FILE"] == "/etc/dockwork/redis-ca/ca"
    assert (seen["DOCKWORK_NAMESPACE"], seen["DOCKWORK_QUEUES"]) == ("other", "letters")


def test_the_default_ca_goes_with_the_default_redis_only() -> None:
    with_ca = RedisDefaults(ca_key="ca")
    assert variables(defaults=with_ca)["DOCKWORK_REDIS_CA_FILE"] == "/etc/dockwork/redis-ca/ca"
    own = {"redis.urlFrom": {"secretKeyRef": {"name": "mine", "key": "url"}}}
    assert "DOCKWORK_REDIS_CA_FILE" not in variables(own, defaults=with_ca)
    by_secret = {"redis.caFrom": {"secretKeyRef": {"name": "certs", "key": "ca"}}}
    volumes = pod(by_secret)["spec"]["volumes"]
    assert volumes[-1]["secret"] == {"secretName": "certs", "items": [{"key": "ca", "path": "ca"}]}


def test_workers_spread_over_nodes() -> None:
    (spread,) = pod()["spec"]["topologySpreadConstraints"]
    assert spread["topologyKey"] == "kubernetes.io/hostname"
    assert spread["labelSelector"]["matchLabels"] == {
        "dockwork.dev/queue": "mail",
        "dockwork.dev/track": "stable",
    }


def test_the_rolling_update_is_as_declared() -> None:
    changes = {"rollout.rollingUpdate": {"maxSurge": 2, "maxUnavailable": "10%"}, "worker.minReadySeconds": 7}
    spec = children(changes).deployment["spec"]
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 2, "maxUnavailable": "10%"},
    }
    assert spec["minReadySeconds"] == 7


# --- grace (OP-220) ----------------------------------------------------------------------------------------


@pytest.mark.covers("OP-220")
@pytest.mark.parametrize(
    ("changes", "grace", "put_back_after"),
    [
        ({}, 310, 304),
        ({"jobs.timeout": "1500ms"}, 12, 6),
        ({"jobs": {"timeout": "1m", "maxTimeout": "2h"}}, 7210, 7204),
        ({"drain.gracePeriod": "90s", "jobs.timeout": "1h"}, 90, 84),
        ({"drain.gracePeriod": "5s"}, 5, 1),
    ],
)
def test_grace_follows_the_longest_job(changes: dict[str, Any], grace: int, put_back_after: int) -> None:
    assert grace_seconds(read(changes).spec) == grace
    assert drain_timeout_seconds(grace) == put_back_after
    made = children(changes)
    assert made.grace_seconds == grace
    assert made.deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == grace
    assert variables(changes)["DOCKWORK_DRAIN_TIMEOUT"] == str(put_back_after)


# --- hash (OP-200, OP-027) ---------------------------------------------------------------------------------


@pytest.mark.covers("OP-027", "OP-200")
@pytest.mark.parametrize(
    "changes",
    [
        {"jobs.maxAttempts": 9},
        {"jobs.backoff.base": "5s"},
        {"limits.depth": 5},
        {"scaling": {"minReplicas": 1, "maxReplicas": 3, "drainTarget": "1m"}},
        {"replicas": 5},
        {"pdb.mode": "None"},
        {"networkPolicy.mode": "None"},
        {"rollout.rollingUpdate.maxSurge": 1},
        {"worker.minReadySeconds": 60},
        # The same grace by another road.
        {"jobs": {"timeout": "1m", "maxTimeout": "5m"}},
    ],
)
def test_what_needs_no_new_pods_leaves_the_template_alone(changes: dict[str, Any]) -> None:
    assert children(changes).deployment["spec"]["template"] == children().deployment["spec"]["template"]
    assert children(changes).template_hash == children().template_hash


@pytest.mark.covers("OP-200")
@pytest.mark.parametrize(
    "changes",
    [
        {"worker.image": "r/shop:1.5"},
        {"worker.slots": 11},
        {"worker.env": [{"name": "A", "value": "1"}]},
        {"jobs.maxTimeout": "1h"},
        {"drain.requeue": "Back"},
        {"worker.podTemplate": {"metadata": {"annotations": {"a": "b"}}}},
        {"redis.queue": "other"},
    ],
)
def test_what_a_pod_is_made_of_changes_the_hash(changes: dict[str, Any]) -> None:
    assert children(changes).template_hash != children().template_hash


@pytest.mark.covers("OP-200")
def test_the_hash_does_not_hash_itself_and_ignores_the_order_of_keys() -> None:
    template = render_template(read(), DEFAULTS)
    assert isinstance(template, dict)
    again = json.loads(json.dumps(template, sort_keys=True))
    assert template_hash(again) == template_hash(template) == children().template_hash


@pytest.mark.covers("OP-200")
def test_the_hashes_are_those_of_the_last_release() -> None:
    """A changed hash rolls every worker of every user at an upgrade: it must be meant."""
    kept: dict[str, str] = json.loads(GOLDEN.read_text())
    assert hashes() == kept


def hashes() -> dict[str, str]:
    """Of every kind of template that a Queue can declare."""
    own_redis = {
        "redis.urlFrom": {"secretKeyRef": {"name": "mine", "key": "url"}},
        "redis.caFrom": {"secretKeyRef": {"name": "mine", "key": "ca"}},
    }
    sidecar = {"worker.podTemplate": {"spec": {"containers": [{"name": "log", "image": "log:1"}]}}}
    return {
        "plain": children().template_hash,
        "own redis": children(own_redis).template_hash,
        "command": children(
            {"worker.app": GONE, "worker.command": ["run"], "worker.args": ["x"]}
        ).template_hash,
        "sidecar": children(sidecar).template_hash,
        "env": children({"worker.env": [{"name": "A", "value": "1"}], "worker.envFrom": []}).template_hash,
    }


# --- PDB, NetworkPolicy, owned Queue -----------------------------------------------------------------------


@pytest.mark.covers("OP-222")
def test_the_pdb_lets_unready_pods_go_and_never_blocks_a_drain() -> None:
    pdb = children({"pdb.maxUnavailable": "20%"}).pdb
    assert pdb is not None
    assert pdb["spec"] == {
        "selector": {"matchLabels": {"dockwork.dev/queue": "mail"}},
        "maxUnavailable": "20%",
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    assert pdb["metadata"]["name"] == "mail-worker"
    assert children({"pdb.mode": "None"}).pdb is None


def test_the_network_policy_opens_the_probe_port_alone() -> None:
    policy = children().network_policy
    assert policy is not None
    assert policy["spec"] == {
        "podSelector": {"matchLabels": {"dockwork.dev/queue": "mail"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": 8080}]}],
    }
    assert children({"networkPolicy.mode": "None"}).network_policy is None


@pytest.mark.covers("OP-051")
def test_an_inline_worker_is_a_queue_of_the_cronjob_s_name_that_rests_at_no_pods() -> None:
    made = an_inline_cronjob(
        {"job.timeout": "20m", "redis": {"queue": "nightly"}, "maxReplicas": 4}, name="report"
    )
    cronjob = parse_cronjob(made)
    assert isinstance(cronjob, CronJob)
    owned = render_owned_queue(cronjob)
    assert owned["metadata"]["name"] == "report"
    assert owned["metadata"]["ownerReferences"][0]["kind"] == "CronJob"
    assert owned["metadata"]["ownerReferences"][0]["uid"] == "uid-report"
    queue = parse_queue(owned)
    assert isinstance(queue, Queue)
    assert (queue.spec.scaling.min_replicas, queue.spec.scaling.max_replicas) == (0, 4)
    assert queue.spec.jobs.timeout.total_seconds() == 1200
    assert (queue.redis_namespace, queue.redis_queue) == ("shop", "nightly")
    assert queue.spec.worker == cronjob.spec.worker
    assert cronjob.queue_name == "report"


@pytest.mark.covers("OP-051")
def test_an_inline_worker_without_limits_has_one_pod_at_most() -> None:
    cronjob = parse_cronjob(an_inline_cronjob())
    assert isinstance(cronjob, CronJob)
    owned = render_owned_queue(cronjob)
    assert owned["spec"]["scaling"] == {"minReplicas": 0, "maxReplicas": 1}
    assert "jobs" not in owned["spec"]
    by_ref = parse_cronjob(a_cronjob())
    assert isinstance(by_ref, CronJob)
    assert by_ref.queue_name == "mail"
    with pytest.raises(ValueError, match="only a CronJob with a worker"):
        render_owned_queue(by_ref)
