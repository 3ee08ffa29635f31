"""A user's pod template over ours: what merges, what replaces, what may not be set."""

from __future__ import annotations

from typing import Any

import pytest

from dockwork_operator.decide.manifests import RedisDefaults, render_template
from dockwork_operator.decide.merge import merge_pod_template
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue, parse_queue
from support.api_objects import GONE, a_queue

pytestmark = pytest.mark.covers("OP-024")


def rendered(fragment: dict[str, Any], changes: dict[str, Any] | None = None) -> dict[str, Any]:
    queue = parse_queue(a_queue({**(changes or {}), "worker.podTemplate": fragment}))
    assert isinstance(queue, Queue)
    template = render_template(queue, RedisDefaults())
    assert isinstance(template, dict), template
    return template


def container(template: dict[str, Any], name: str = "worker") -> dict[str, Any]:
    return next(each for each in template["spec"]["containers"] if each["name"] == name)


def test_objects_merge_field_by_field() -> None:
    template = rendered(
        {
            "metadata": {"labels": {"team": "post"}, "annotations": {"a": "b"}},
            "spec": {"securityContext": {"runAsUser": 1000}, "nodeSelector": {"disk": "ssd"}},
        }
    )
    assert template["metadata"]["labels"]["team"] == "post"
    assert template["metadata"]["labels"]["dockwork.dev/queue"] == "mail"
    assert template["spec"]["securityContext"]["runAsUser"] == 1000
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["nodeSelector"] == {"disk": "ssd"}


def test_the_worker_container_merges_and_others_are_added() -> None:
    template = rendered(
        {
            "spec": {
                "containers": [
                    {"name": "worker", "imagePullPolicy": "Always", "workingDir": "/srv"},
                    {
                        "name": "log",
                        "image": "log:1",
                        "command": ["log"],
                        "livenessProbe": {"exec": {"command": ["x"]}},
                    },
                ],
                "initContainers": [{"name": "migrate", "image": "m:1"}],
            }
        }
    )
    assert [each["name"] for each in template["spec"]["containers"]] == ["worker", "log"]
    assert container(template)["imagePullPolicy"] == "Always"
    assert container(template)["command"] == ["dockwork", "worker", "shop.jobs:app"]
    assert container(template, "log")["command"] == ["log"]
    assert template["spec"]["initContainers"] == [{"name": "migrate", "image": "m:1"}]


def test_ports_merge_by_number_mounts_by_path_spreads_by_key_pull_secrets_by_name() -> None:
    template = rendered(
        {
            "spec": {
                "containers": [
                    {
                        "name": "worker",
                        "ports": [{"containerPort": 8080, "name": "web"}, {"containerPort": 9000}],
                        "volumeMounts": [{"mountPath": "/data", "name": "data"}],
                    }
                ],
                "volumes": [{"name": "data", "emptyDir": {}}],
                "topologySpreadConstraints": [
                    {"topologyKey": "kubernetes.io/hostname", "maxSkew": 3},
                    {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
                ],
                "imagePullSecrets": [{"name": "r"}],
            }
        }
    )
    made = container(template)
    assert made["ports"] == [
        {"name": "web", "containerPort": 8080, "protocol": "TCP"},
        {"containerPort": 9000},
    ]
    assert [mount["mountPath"] for mount in made["volumeMounts"]] == ["/tmp", "/etc/dockwork/redis", "/data"]
    first, second = template["spec"]["topologySpreadConstraints"]
    assert (first["maxSkew"], first["whenUnsatisfiable"]) == (3, "ScheduleAnyway")
    assert second["topologyKey"] == "zone"
    assert template["spec"]["imagePullSecrets"] == [{"name": "r"}]


def test_a_volume_or_a_variable_has_one_source_so_it_is_replaced_whole() -> None:
    template = rendered(
        {
            "spec": {
                "containers": [
                    {
                        "name": "worker",
                        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {"medium": "Memory"}}],
            }
        },
        {"worker.env": [{"name": "A", "value": "1"}]},
    )
    assert {"name": "tmp", "emptyDir": {"medium": "Memory"}} in template["spec"]["volumes"]
    assert [entry for entry in container(template)["env"] if entry["name"] == "A"] == [
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    ]


def test_every_other_list_replaces_ours() -> None:
    fragment = {
        "spec": {
            "containers": [{"name": "worker", "securityContext": {"capabilities": {"drop": ["NET_RAW"]}}}]
        }
    }
    assert container(rendered(fragment))["securityContext"]["capabilities"] == {"drop": ["NET_RAW"]}
    tolerations = [{"key": "spot", "operator": "Exists"}]
    assert rendered({"spec": {"tolerations": tolerations}})["spec"]["tolerations"] == tolerations


def test_a_null_changes_nothing() -> None:
    template = rendered({"metadata": None, "spec": {"securityContext": None, "containers": None}})
    assert template == rendered({})
    deep = rendered(
        {"spec": {"affinity": {"podAffinity": None}, "tolerations": [{"key": "a", "value": None}]}}
    )
    assert deep["spec"]["affinity"] == {}
    assert deep["spec"]["tolerations"] == [{"key": "a"}]


def test_the_command_may_be_set_where_it_is_the_user_s_anyway() -> None:
    fragment = {"spec": {"containers": [{"name": "worker", "command": ["other"]}]}}
    template = rendered(fragment, {"worker.app": GONE, "worker.command": ["mine"]})
    assert container(template)["command"] == ["other"]


def test_variables_that_are_the_user_s_to_set_pass_here_too() -> None:
    fragment = {
        "spec": {"containers": [{"name": "worker", "env": [{"name": "DOCKWORK_LEASE", "value": "30s"}]}]}
    }
    assert {"name": "DOCKWORK_LEASE", "value": "30s"} in container(rendered(fragment))["env"]


def test_neither_side_is_changed_by_the_merge() -> None:
    ours = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "worker", "env": []}]}}
    theirs = {
        "metadata": {"labels": {"b": "2"}},
        "spec": {"containers": [{"name": "worker", "env": [{"name": "X"}]}]},
    }
    before = repr((ours, theirs))
    merged = merge_pod_template(ours, theirs, command_is_ours=True)
    assert not isinstance(merged, Refused)
    assert repr((ours, theirs)) == before


@pytest.mark.parametrize(
    ("fragment", "field"),
    [
        ({"spec": {"containers": [{"name": "worker", "startupProbe": {}}]}}, "spec.containers[worker].startupProbe"),
        ({"spec": {"containers": [{"name": "worker", "readinessProbe": {}}]}},
         "spec.containers[worker].readinessProbe"),
        ({"metadata": {"labels": {"dockwork.dev/track": "x"}}}, "metadata.labels[dockwork.dev/track]"),
        ({"metadata": {"labels": {"dockwork.dev/template-hash": "x"}}}, "metadata.labels[dockwork.dev/template-hash]"),
        ({"spec": {"securityContext": "none"}}, "spec.securityContext"),
        ({"spec": {"nodeSelector": {"gpu": True}}}, "spec.nodeSelector[gpu]"),
        ({"spec": {"containers": [{"name": "worker", "ports": [{"containerPort": "80"}]}]}},
         "spec.containers[worker].ports[0].containerPort"),
        ({"spec": {"topologySpreadConstraints": "x"}}, "spec.topologySpreadConstraints"),
        ({"spec": {"containers": [{"name": "worker", "command": "run"}]}}, "spec.containers[worker].command"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_path(fragment: dict[str, Any], field: str) -> None:
    queue = parse_queue(a_queue({"worker.podTemplate": fragment}))
    assert isinstance(queue, Queue)
    refused = render_template(queue, RedisDefaults())
    assert isinstance(refused, Refused)
    assert refused.field == f"spec.worker.podTemplate.{field}"
    assert refused.message.startswith(f"spec.worker.podTemplate.{field}: expected ")
