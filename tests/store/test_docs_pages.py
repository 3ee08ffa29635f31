"""The pages beside the guides: every snippet runs with a worker on a real Redis; every link leads somewhere."""

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
from dockwork.worker.worker import Worker
from support.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
PAGES = ["docs/concepts.md", "docs/guides/cron.md", "docs/guides/migration.md", "docs/guides/recovery.md"]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(port=0) as running:
        yield running


def snippets(page: str) -> list[tuple[int, str]]:
    """(lines before it, text) of each Python block."""
    text = (ROOT / page).read_text()
    return [(text[: found.start(1)].count("\n"), found[1]) for found in FENCE.finditer(text)]


@pytest.mark.covers("RT-260", "RT-261")
@pytest.mark.parametrize("page", PAGES)
async def test_every_snippet_runs(page: str, server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    monkeypatch.setenv("DOCKWORK_NAMESPACE", Path(page).stem)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    found = snippets(page)
    workers: list[tuple[Worker, asyncio.Task[int]]] = []
    served: set[str] = set()
    try:
        for line, text in found:
            tree = ast.parse(text)
            # What a block declares is served before the block asks for results.
            declared = [node for node in tree.body if not _waits(node)]
            rest = [node for node in tree.body if _waits(node)]
            await _run(declared, line, page, module)
            app: App = module.app
            if set(app.registry.queues()) - served:
                # A page declares more queues as it goes.
                served |= set(app.registry.queues())
                worker = app.worker(queues=dict.fromkeys(served, 2), trap_signals=False)
                workers.append((worker, asyncio.create_task(worker.run())))
            await _run(rest, line, page, module)
    finally:
        for worker, running in workers:
            await worker.shutdown()
            await running
        await module.app.close()
    assert len(found) >= 2


def _waits(node: ast.stmt) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    return any(isinstance(each, ast.Await) for each in ast.walk(node)) or isinstance(node, ast.Assert)


async def _run(body: list[ast.stmt], line: int, page: str, module: types.ModuleType) -> None:
    tree = ast.increment_lineno(ast.Module(body=body, type_ignores=[]), line)
    code = compile(tree, str(ROOT / page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, module.__dict__)
    if inspect.isawaitable(result):
        await result


@pytest.mark.covers("RT-260")
def test_every_link_of_the_docs_leads_to_a_page_that_is_there() -> None:
    broken = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", page.read_text()):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


@pytest.mark.covers("RT-260")
def test_each_of_the_promised_pages_is_there() -> None:
    wanted = {"concepts.md", "architecture.md", "performance.md"}
    wanted |= {
        f"guides/{name}.md"
        for name in ("jobs", "workers", "recovery", "production", "migration", "configuration")
    }
    assert [name for name in sorted(wanted) if not (ROOT / "docs" / name).is_file()] == []


@pytest.mark.covers("RT-261")
def test_the_promises_are_said_in_so_many_words() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    for said in ("At least once", "Put-back jobs start anew", "idempotent", "as far as\nRedis keeps"):
        assert said in text
    assert "Dockwork is as durable as its Redis" in (ROOT / "docs/guides/production.md").read_text()
    assert "keep secrets out" in (ROOT / "docs/guides/production.md").read_text()
