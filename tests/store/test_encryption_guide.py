"""The guide on encrypted values: its snippets run, and it states the limits."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from dockwork import App
from support.redis_server import RedisServer

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "encryption.md"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(port=0) as running:
        yield running


async def _run(nodes: list[ast.stmt], line: int, module: types.ModuleType) -> None:
    tree = ast.Module(body=nodes, type_ignores=[])
    ast.increment_lineno(tree, line)
    code = compile(tree, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, module.__dict__)
    if inspect.isawaitable(result):
        await result


@pytest.mark.covers("RT-175", "RT-183")
async def test_the_snippets_run_from_top_to_bottom(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    monkeypatch.setenv("DOCKWORK_PAYLOAD_KEYS", "k2:" + "22" * 32 + ",k1:" + "11" * 32)
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)
    text = GUIDE.read_text()
    fence = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    (first, *rest) = fence.finditer(text)
    *declared, enqueued, checked = ast.parse(first[1]).body
    await _run(declared, text[: first.start(1)].count("\n"), module)
    app: App = module.app
    worker = app.worker(queues={"mail": 2}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    try:
        await _run([enqueued, checked], text[: first.start(1)].count("\n"), module)
        for found in rest:
            await _run(ast.parse(found[1]).body, text[: found.start(1)].count("\n"), module)
    finally:
        await worker.shutdown()
        await running
        await app.close()

    assert len(rest) == 4


@pytest.mark.covers("RT-184")
def test_the_limits_are_stated() -> None:
    limits = GUIDE.read_text().split("## Limits")[1]

    for words in (
        "not bound to the job's id",
        "plain in the memory",
        "size",
        "Rotate before 2^32 seals",
        "can be put in",
    ):
        assert words in limits
