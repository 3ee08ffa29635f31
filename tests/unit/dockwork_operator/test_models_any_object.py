"""Whatever a spec holds, reading it never raises: it is an object or a refusal that names a field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork_operator.decide.manifests import Children, RedisDefaults, render_children
from dockwork_operator.models.cronjobs import CronJob, CronJobSpec, parse_cronjob
from dockwork_operator.models.fields import ApiModel
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue, QueueSpec, parse_queue
from dockwork_operator.models.schema import fields_of
from support.api_objects import a_cronjob, a_queue


def names_of(*models: type[ApiModel]) -> set[str]:
    found = set()
    for model in models:
        for field in fields_of(model):
            found.add(field.name)
            if field.model is not None:
                found |= names_of(field.model)
    return found


NAMES = st.sampled_from(
    sorted(
        names_of(QueueSpec, CronJobSpec)
        | {
            "metadata",
            "spec",
            "containers",
            "name",
            "env",
            "value",
            "volumes",
            "labels",
            "dockwork.dev/queue",
            "x",
        }
    )
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(
        ["", "worker", "5m", "1d", "Auto", "None", "25%", "256Ki", "a:b", "DOCKWORK_X", "* * * * *"]
    ),
    st.text(max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(NAMES, below, max_size=4),
    max_leaves=20,
)


@given(NAMES, VALUES)
def test_any_value_of_any_field_of_a_queue_is_read_or_refused(name: str, value: Any) -> None:
    for changes in (
        {name: value},
        {f"worker.{name}": value},
        {"worker.podTemplate": {"spec": {name: value}}},
    ):
        read = parse_queue(a_queue(changes))
        made = render_children(read, RedisDefaults()) if isinstance(read, Queue) else read
        assert isinstance(made, Refused | Children)
        if isinstance(made, Refused):
            assert made.field.startswith("spec")
            assert len(made.message) < 1000
        else:
            json.dumps(made.deployment)


@given(NAMES, VALUES)
def test_any_value_of_any_field_of_a_cronjob_is_read_or_refused(name: str, value: Any) -> None:
    for changes in ({name: value}, {f"job.{name}": value}):
        read = parse_cronjob(a_cronjob(changes))
        assert isinstance(read, Refused | CronJob)
        if isinstance(read, Refused):
            assert read.field.startswith("spec")


@pytest.mark.parametrize("spec", [None, [], "x", 3, {}])
def test_a_spec_that_is_no_object_is_refused(spec: object) -> None:
    for read in (parse_queue({"spec": spec}), parse_cronjob({"spec": spec})):
        assert isinstance(read, Refused)
