"""What the project shows is accepted by a real API server, unknown fields refused."""

from __future__ import annotations

from typing import Any

import pytest

from support.api_requests import Api
from support.examples import shown_objects

SHOWN = shown_objects()


@pytest.mark.parametrize(("where", "made"), SHOWN, ids=[where for where, _ in SHOWN])
def test_what_is_shown_is_accepted(where: str, made: dict[str, Any], api: Api, shop: str) -> None:
    placed = {**made, "metadata": {**made["metadata"], "namespace": shop}}
    answer = api.create(placed, dry_run=True)
    assert answer.code == 201, (where, answer.message)
