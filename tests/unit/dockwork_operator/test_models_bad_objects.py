"""Each bad object becomes a value that names the field: the model agrees with the API server on what is bad."""

from __future__ import annotations

import pytest

from dockwork_operator.decide.manifests import RedisDefaults, render_children
from dockwork_operator.models.cronjobs import CronJob, parse_cronjob
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue, parse_queue
from support.api_objects import BAD, Bad, a_cronjob, a_queue, an_inline_cronjob


def refusal_of(made: dict[str, object]) -> Refused | None:
    """What the operator says about `made`, by the same functions that its reconcile calls."""
    if made["kind"] == "CronJob":
        cronjob = parse_cronjob(made)
        return cronjob if isinstance(cronjob, Refused) else None
    queue = parse_queue(made)
    if isinstance(queue, Refused):
        return queue
    children = render_children(queue, RedisDefaults())
    return children if isinstance(children, Refused) else None


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.made['kind']}: {bad.id}")
def test_a_bad_object_is_a_value_that_names_its_field(bad: Bad) -> None:
    refused = refusal_of(bad.made)
    assert refused is not None
    # The field itself, or the item of the list or map where the API server names only the whole.
    assert (
        refused.field == bad.field
        or refused.field.startswith(f"{bad.field}[")
        or refused.field.startswith(f"{bad.field}.")
    )
    assert bad.says in refused.message
    assert refused.field in refused.message
    assert refused.reason == "InvalidField"


@pytest.mark.parametrize(
    "made", [a_queue(), a_cronjob(), an_inline_cronjob()], ids=["queue", "cronjob", "inline"]
)
def test_the_objects_that_the_bad_ones_are_made_from_are_good(made: dict[str, object]) -> None:
    assert refusal_of(made) is None


def test_a_secret_in_a_bad_value_is_not_repeated() -> None:
    bad = a_queue({"worker.env": [{"name": "A", "value": "hunter2", "twice": 1}, {"value": "hunter2"}]})
    refused = parse_queue(bad)
    assert isinstance(refused, Refused)
    assert "hunter2" not in refused.message
    assert refused.field == "spec.worker.env[1]"


def test_a_null_field_takes_its_default() -> None:
    queue = parse_queue(a_queue({"scaling": None, "jobs": {"timeout": None}}))
    cronjob = parse_cronjob(a_cronjob({"maxPending": None}))
    assert isinstance(queue, Queue)
    assert isinstance(cronjob, CronJob)
    assert queue.spec.scaling.max_replicas == 10
    assert queue.spec.jobs.timeout.total_seconds() == 300
