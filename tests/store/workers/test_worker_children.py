"""Job types with ``isolation="process"``: where they run, how they are stopped, and what their deaths cost."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dockwork.core.states import State
from dockwork.errors import InvalidValue
from dockwork.worker import children
from dockwork.worker.worker import Worker
from support import worker_app
from support.waiting import until, until_async
from support.workers import NAME, QUEUE, Process, World

LEASE = 1.5


@pytest.fixture
def here(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The processes' app, run by a worker of this process: only its children are processes."""
    monkeypatch.setenv("DOCKWORK_REDIS_URL", world.url)
    monkeypatch.setenv("RECEIPTS", str(tmp_path / "receipts"))
    monkeypatch.setenv("PYTHONPATH", str(Path(worker_app.__file__).parents[1]))
    yield world


def receipts() -> list[str]:
    return worker_app.receipts()


async def until_receipt(start: str) -> str:
    async def found() -> str | None:
        return next((line for line in receipts() if line.startswith(start)), None)

    line = await until_async(found, within=20, what=f"a receipt {start!r}")
    assert line is not None
    return line


async def result(world: World, job_id: str) -> Any:
    import json

    view = await world.until(job_id, State.COMPLETED, within=20)
    return json.loads(view.result or b"null")


@pytest.mark.covers("RT-104")
async def test_handlers_run_in_warm_children_with_their_context(here: World) -> None:
    async with here.worker(app=worker_app.app) as worker:
        assert worker.children is not None
        (warm,) = worker.children.pids
        n, pid, in_main = await result(here, await here.declared("in_child", n=1))
        assert (n, pid, in_main) == (1, warm, True)
        job = await here.declared("on_childs_loop", n=5)
        assert await result(here, job) == [5, warm]
        view = await here.view(job)
        assert (view.progress, view.checkpoint) == (b'{"at":6}', None)
        assert '"msg":"began","n":5' in view.log[0]
        assert receipts().count("up") == 2, "the lifespan is opened once a process"
    assert here.code == 0
    assert receipts().count("down") == 2
    assert not Path(f"/proc/{warm}").exists()
