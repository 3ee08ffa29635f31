"""What the project shows is valid: each manifest of examples/, the guides and the README passes the model."""

from __future__ import annotations

from typing import Any

import pytest

from dockwork_operator.decide.manifests import Children, RedisDefaults, render_children
from dockwork_operator.models.cronjobs import CronJob, parse_cronjob
from dockwork_operator.models.objects import Refused
from dockwork_operator.models.queues import Queue, parse_queue
from support.examples import shown_objects

SHOWN = shown_objects()


@pytest.mark.parametrize(("where", "made"), SHOWN, ids=[where for where, _ in SHOWN])
def test_what_is_shown_is_valid_for_the_model(where: str, made: dict[str, Any]) -> None:
    if made["kind"] == "CronJob":
        cronjob = parse_cronjob(made)
        assert isinstance(cronjob, CronJob), cronjob
        return
    queue = parse_queue(made)
    assert isinstance(queue, Queue), queue
    assert isinstance(render_children(queue, RedisDefaults()), Children)


def test_both_kinds_are_shown_in_the_example() -> None:
    kinds = {made["kind"] for where, made in SHOWN if where.startswith("examples/thumbnails")}
    assert kinds == {"Queue", "CronJob"}


def test_the_reader_of_examples_would_find_a_bad_one() -> None:
    where, made = next((where, made) for where, made in SHOWN if made["kind"] == "Queue")
    bad = {**made, "spec": {**made["spec"], "pausd": True}}
    assert isinstance(parse_queue(bad), Refused), where
