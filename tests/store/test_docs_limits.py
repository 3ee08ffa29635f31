"""The guide on limits, run: its snippets do what it says, and its table is that of the code."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import types
from pathlib import Path

import pytest

from dockwork import App
from dockwork.registry import Defaults
from dockwork.store.protocol import RateLimit
from support.redis_server import RedisServer

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "limits.md"
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


async def run(text: str, line: int, module: types.ModuleType) -> None:
    code = compile("\n" * line + text, str(GUIDE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, module.__dict__)
    if inspect.isawaitable(result):
        await result


@pytest.mark.covers("RT-260")
async def test_the_limits_guide_runs_from_top_to_bottom(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.flush()
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    module = types.ModuleType("guide")
    monkeypatch.setitem(__import__("sys").modules, "guide", module)
    text = GUIDE.read_text()
    (line, first), *rest = [(text[: found.start(1)].count("\n"), found[1]) for found in FENCE.finditer(text)]
    await run(first, line, module)
    app: App = module.app
    worker = app.worker(queues={"mail": 4}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    try:
        for line, block in rest:
            await run(block, line, module)
    finally:
        await worker.shutdown()
        await running
        await app.close()

    assert len(rest) == 6
    assert module.written.outcome == "written"
    config = app.registry.config_of("mail")
    assert config is not None
    assert (config.rate, config.concurrency, config.max_attempts) == (RateLimit(2000, 60_000), 80, 6)


def test_the_guides_table_has_every_default_of_an_app() -> None:
    table = GUIDE.read_text().split("| option of `App(defaults=...)` |")[1]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    documented = set(re.findall(r"`([a-z_]+)`", " ".join(rows)))

    assert documented == set(Defaults.__annotations__) - {"partitions", "events", "events_max_bytes"}
