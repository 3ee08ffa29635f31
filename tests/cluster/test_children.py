"""The rendered children in a real API server: accepted as they are, owned field by field, safe under Pod Security."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dockwork_operator.decide.manifests import (
    Children,
    RedisDefaults,
    render_children,
    render_deployment,
    render_owned_queue,
)
from dockwork_operator.models.cronjobs import CronJob, parse_cronjob
from dockwork_operator.models.queues import Queue, parse_queue
from support.api_objects import a_queue, an_inline_cronjob
from support.api_requests import Api, Json

DEFAULTS = RedisDefaults()


def read(made: Json, api: Api) -> Queue:
    """The Queue as the operator reads it: created, and read back with its uid and defaults."""
    created = api.create(made)
    assert created.code == 201, created.message
    queue = parse_queue(api.get(made))
    assert isinstance(queue, Queue), queue
    return queue


def rendered(queue: Queue) -> Children:
    children = render_children(queue, DEFAULTS)
    assert isinstance(children, Children), children
    return children


def all_of(children: Children) -> list[Json]:
    return [
        child for child in (children.deployment, children.pdb, children.network_policy) if child is not None
    ]


def fields_owned_by(made: Json, manager: str) -> Mapping[str, Any]:
    """What `manager` owns by apply."""
    for entry in made["metadata"]["managedFields"]:
        if entry["manager"] == manager and entry["operation"] == "Apply":
            fields: Mapping[str, Any] = entry["fieldsV1"]
            return fields
    return {}


@pytest.mark.covers("OP-073")
def test_every_child_is_applied_strictly_and_a_second_apply_changes_nothing(api: Api, namespace: str) -> None:
    template = {
        "spec": {"containers": [{"name": "log", "image": "log:1"}], "tolerations": [{"operator": "Exists"}]}
    }
    made = a_queue(
        {
            "worker.podTemplate": template,
            "worker.env": [{"name": "A", "value": "1"}],
            "worker.envFrom": [{"secretRef": {"name": "s"}}],
            "redis.caFrom": {"configMapKeyRef": {"name": "ca", "key": "ca"}},
        },
        namespace=namespace,
    )
    for child in all_of(rendered(read(made, api))):
        first = api.apply(child)
        assert first.code == 201, first.message
        second = api.apply(child)
        assert second.code == 200, second.message
        assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


@pytest.mark.covers("OP-073", "OP-075")
def test_replicas_and_what_others_wrote_are_not_ours(api: Api, namespace: str) -> None:
    deployment = rendered(read(a_queue(namespace=namespace), api)).deployment
    assert api.apply(deployment).code == 201
    # As `kubectl rollout restart` does, and somebody's label.
    restart = {
        "spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}
    }
    assert api.merge(deployment, restart).code == 200
    assert api.merge(deployment, {"metadata": {"labels": {"team": "post"}}}).code == 200
    assert scale(api, deployment, 4) == 200

    again = api.apply(deployment)
    assert again.code == 200
    assert again.body["spec"]["replicas"] == 4
    annotations = again.body["spec"]["template"]["metadata"]["annotations"]
    assert annotations["kubectl.kubernetes.io/restartedAt"] == "now"
    assert again.body["metadata"]["labels"]["team"] == "post"
    ours = fields_owned_by(again.body, "dockwork")
    assert "f:template" in ours["f:spec"]
    assert "f:replicas" not in ours["f:spec"]


@pytest.mark.covers("OP-073")
def test_a_hand_edit_of_a_field_of_ours_is_taken_back(api: Api, namespace: str) -> None:
    deployment = rendered(read(a_queue(namespace=namespace), api)).deployment
    assert api.apply(deployment).code == 201
    assert api.merge(deployment, {"spec": {"minReadySeconds": 99}}).code == 200
    assert api.apply(deployment).body["spec"]["minReadySeconds"] == 5


def scale(api: Api, deployment: Json, replicas: int) -> int:
    """PUT /scale with the resourceVersion just read: the answer's code."""
    path = f"{api.path_of(deployment)}/scale"
    seen = api.ask("GET", path).body
    return api.ask("PUT", path, {**seen, "spec": {"replicas": replicas}}).code


@pytest.mark.covers("OP-074")
def test_creation_starts_no_pod(api: Api, namespace: str) -> None:
    queue = read(a_queue(namespace=namespace), api)
    paused, usual = render_deployment(queue, DEFAULTS, paused=True), render_deployment(queue, DEFAULTS)
    assert isinstance(paused, dict)
    assert isinstance(usual, dict)
    first = api.apply(paused)
    # Unset replicas become 1, but a paused Deployment makes no ReplicaSet.
    assert (first.body["spec"]["replicas"], first.body["spec"]["paused"]) == (1, True)
    assert scale(api, paused, 0) == 200
    last = api.apply(usual)
    assert last.body["spec"]["replicas"] == 0
    assert "paused" not in last.body["spec"]


@pytest.mark.covers("OP-072")
def test_children_name_their_queue_as_controller(api: Api, namespace: str) -> None:
    made = a_queue(namespace=namespace)
    queue = read(made, api)
    for child in all_of(rendered(queue)):
        applied = api.apply(child)
        (owner,) = applied.body["metadata"]["ownerReferences"]
        assert owner["uid"] == api.get(made)["metadata"]["uid"] == queue.uid
        assert owner["controller"] is True
        assert owner["blockOwnerDeletion"] is True


@pytest.mark.covers("OP-025")
def test_the_rendered_pod_passes_the_restricted_profile_and_a_plain_one_does_not(
    api: Api, restricted: str
) -> None:
    template = rendered(read(a_queue(namespace=restricted), api)).deployment["spec"]["template"]
    pods = f"/api/v1/namespaces/{restricted}/pods?dryRun=All&fieldValidation=Strict"
    passed = api.ask("POST", pods, pod_of(template))
    assert passed.code == 201, passed.message
    bare = {"metadata": {}, "spec": {"containers": [{"name": "worker", "image": "x"}]}}
    refused = api.ask("POST", pods, pod_of(bare))
    assert refused.code == 403
    assert 'violates PodSecurity "restricted' in refused.message


def pod_of(template: Json) -> Json:
    """A pod as a controller would make it of `template`."""
    metadata = {**template["metadata"], "name": "made-of-the-template"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.covers("OP-051")
def test_the_queue_of_an_inline_worker_is_accepted_and_applied_twice_alike(api: Api, namespace: str) -> None:
    made = an_inline_cronjob({"job.timeout": "2m", "redis": {"queue": "nightly"}})
    made["metadata"]["namespace"] = namespace
    assert api.create(made).code == 201
    cronjob = parse_cronjob(api.get(made))
    assert isinstance(cronjob, CronJob)
    owned = render_owned_queue(cronjob)
    first = api.apply(owned)
    assert first.code == 201, first.message
    assert first.body["spec"]["jobs"]["timeout"] == "2m"
    assert api.apply(owned).body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
