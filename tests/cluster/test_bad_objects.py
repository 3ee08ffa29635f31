"""Every bad object of the table meets a refusal that names its field: the API server's, or the operator's."""

from __future__ import annotations

import re

import pytest

from support.api_objects import BAD, Bad, a_queue
from support.api_requests import Answer, Api

SERVER = [bad for bad in BAD if bad.by == "server"]
OPERATOR = [bad for bad in BAD if bad.by == "operator"]


def _name(bad: Bad) -> str:
    return f"{bad.made['kind']}: {bad.id}"


def _fields(answer: Answer) -> set[str]:
    """Every field that the refusal names: those of the causes, and unknown ones, which have no cause."""
    unknown = re.findall(r'unknown field "([^"]+)"', answer.message)
    return {str(cause["field"]) for cause in answer.causes} | set(unknown)


@pytest.mark.covers("OP-007", "OP-005")
@pytest.mark.parametrize("bad", SERVER, ids=_name)
def test_the_api_server_refuses_it_and_names_the_field(bad: Bad, api: Api, shop: str) -> None:
    answer = api.create(bad.made, dry_run=True)
    assert answer.code in (400, 422), answer.body
    fields = _fields(answer)
    # The field itself, or the item of the list or map that it is.
    assert any(f"{field}.".startswith((f"{bad.field}.", f"{bad.field}[")) for field in fields), answer.message
    assert bad.says in answer.message


@pytest.mark.covers("OP-005")
@pytest.mark.parametrize("bad", OPERATOR, ids=_name)
def test_the_api_server_cannot_see_it_so_the_operator_must(bad: Bad, api: Api, shop: str) -> None:
    # tests/unit proves that the operator's models refuse each of these by name.
    assert api.create(bad.made, dry_run=True).code == 201


def test_the_table_is_long_enough() -> None:
    assert len(SERVER) + len(OPERATOR) >= 40
    assert len({_name(bad) for bad in BAD}) == len(BAD)


@pytest.mark.covers("OP-007")
def test_one_refusal_names_every_wrong_field_of_its_pass(api: Api, shop: str) -> None:
    by_schema = api.create(a_queue({"worker.slots": 0, "pdb.mode": "x", "drain.requeue": "x"}), dry_run=True)
    assert {"spec.worker.slots", "spec.pdb.mode", "spec.drain.requeue"} <= _fields(by_schema)
    by_rules = api.create(
        a_queue(
            {
                "scaling": {"minReplicas": 9, "maxReplicas": 1},
                "drain.gracePeriod": "1s",
                "jobs.timeout": "1ms",
            }
        ),
        dry_run=True,
    )
    assert {"spec.scaling.minReplicas", "spec.drain.gracePeriod", "spec.jobs.timeout"} <= _fields(by_rules)
