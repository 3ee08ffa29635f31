"""The guides' snippets, run: what the documentation says is what happens."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import os
import re
import shlex
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from dockwork import App, Settings
from dockwork.cli import COMMANDS, main
from dockwork.core.slots import parse_slots
from dockwork.worker.metrics import WorkerFigures, render
from dockwork_operator.metrics import Metrics
from support.redis_server import RedisServer
from support.waiting import until_async

GUIDES = Path(__file__).parents[2] / "docs" / "guides"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(port=0) as running:
        yield running


def blocks(guide: str, language: str) -> list[tuple[int, str]]:
    """(first line, text) of each fenced block."""
    text = (GUIDES / guide).read_text()
    fence = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(text[: found.start(1)].count("\n"), found[1]) for found in fence.finditer(text)]


def a_guide(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An empty Redis in the environment, and a module for the snippets."""
    server.flush()
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)
    return module


async def run_block(text: str, line: int, guide: str, module: types.ModuleType) -> None:
    code = compile("\n" * line + text, str(GUIDES / guide), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, module.__dict__)
    if inspect.isawaitable(result):
        await result


async def test_the_jobs_guide_runs_from_top_to_bottom(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = a_guide(server, monkeypatch)
    (line, first), *rest = blocks("jobs.md", "python")
    await run_block(first, line, "jobs.md", module)
    app: App = module.app
    worker = app.worker(queues={"mail": 4}, trap_signals=False)
    running = asyncio.create_task(worker.run())

    try:
        for line, text in rest:
            if ".sync." not in text or "def " in text or "await " in text:
                await run_block(text, line, "jobs.md", module)
            else:  # a blocking call would keep the worker's loop from its work
                code = compile(text, "jobs.md", "exec")
                await asyncio.to_thread(exec, code, module.__dict__)
    finally:
        await worker.shutdown()
        await running
        app.sync.close()
        await app.close()

    assert len(rest) == 12
    assert app.registry.queue_configs["mail"].max_depth == 100_000


@pytest.mark.parametrize("guide", ["events.md", "middleware.md"])
async def test_a_guide_with_a_worker_runs_from_top_to_bottom(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, guide: str
) -> None:
    module = a_guide(server, monkeypatch)
    (line, first), *rest = blocks(guide, "python")
    await run_block(first, line, guide, module)
    app: App = module.app
    worker = app.worker(queues={"mail": 4}, trap_signals=False)
    running = asyncio.create_task(worker.run())

    try:
        for line, text in rest:
            if "app.sync." not in text:
                await run_block(text, line, guide, module)
            else:  # a blocking call would keep the worker's loop from its work
                await asyncio.to_thread(exec, compile(text, guide, "exec"), module.__dict__)
    finally:
        await worker.shutdown()
        await running
        app.sync.close()
        await app.close()

    assert len(rest) >= 4


async def test_the_workers_guide_runs_from_top_to_bottom(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a_guide(server, monkeypatch)
    *declared, (line, running) = blocks("workers.md", "python")
    # A file: the child process of its handler has to import it.
    (tmp_path / "workers_guide.py").write_text("\n\n".join(text for _, text in declared))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("workers_guide")
    await run_block(running, line, "workers.md", module)
    app: App = module.app

    assert len(declared) == 2
    assert (app.registry["render"].isolation, module.running.result()) == ("process", 0)
    assert (await app.stats("mail")).counts["completed"] == 1
    await app.close()


def test_each_worker_command_of_the_workers_guide_is_one() -> None:
    lines = [
        line.partition("#")[0].split()
        for _, text in blocks("workers.md", "sh")
        for line in text.splitlines()
        if line.startswith("dockwork worker")
    ]
    command = main.get_command(click.Context(main), "worker")
    assert command is not None

    assert len(lines) == 6
    for words in lines:
        context = command.make_context("worker", words[2:])
        assert parse_slots(context.params["queues"] or "mail").queues


async def test_the_configuration_guides_snippets_run() -> None:
    module = types.ModuleType("guide")
    for line, text in blocks("configuration.md", "python"):
        await run_block(text, line, "configuration.md", module)

    assert module.app.settings.redis.host == "redis.example"


def test_each_variable_of_the_configuration_guide_is_read_and_no_other() -> None:
    from dockwork import settings

    text = (GUIDES / "configuration.md").read_text()
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    documented = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    read = {name for _, names, _ in settings._REDIS_FIELDS for name in names}
    read |= {"REDIS_URL", "REDIS_URL_FILE"}
    read |= {f"DOCKWORK_{name}" for _, name, _ in settings._FIELDS}

    assert documented == read


def test_each_default_of_the_configuration_guide_is_the_default() -> None:
    text = (GUIDES / "configuration.md").read_text()
    told = dict(re.findall(r"^\| `((?:DOCKWORK|REDIS)_[A-Z_]+)` \| `([^`]+)` \|", text, re.MULTILINE))
    plain = Settings.from_environ({})

    assert Settings.from_environ(told) == plain
    assert len(told) >= 10


def test_each_command_of_the_cli_guide_exists_with_its_options() -> None:
    lines = [
        line
        for _, text in blocks("cli.md", "sh")
        for line in text.splitlines()
        if line.startswith("dockwork ")
    ]

    assert len(lines) >= 8
    for line in lines:
        name = line.split()[1]
        command = main.get_command(click.Context(main), name)
        assert command is not None
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<= )--?[a-z-]+", line)) <= known, line
    table = (GUIDES / "cli.md").read_text()
    assert set(re.findall(r"^\| `dockwork ([a-z]+)", table, re.MULTILINE)) == set(COMMANDS)
    for name in COMMANDS:
        assert CliRunner().invoke(main, [name, "--help"]).exit_code == 0


@pytest.mark.parametrize("guide", sorted(path.name for path in GUIDES.glob("*.md")))
def test_each_command_of_a_guide_takes_the_words_that_it_is_given(guide: str) -> None:
    group = main
    for _, text in blocks(guide, "sh"):
        for line in text.splitlines():
            if not line.startswith("dockwork "):
                continue
            name, *words = shlex.split(line.partition(">")[0], comments=True)[1:]
            command = group.get_command(click.Context(group), name)
            assert command is not None, line
            command.make_context(name, words)  # raises what the terminal would show


def test_each_figure_that_a_guide_names_is_there() -> None:
    operator = Metrics().text().decode()
    worker = render(WorkerFigures(lag_s=0.0, reconnects=0, unknown=0)).decode()
    there = set(re.findall(r"^# HELP (\w+)", operator + worker, re.MULTILINE))
    told = {
        name
        for path in GUIDES.glob("*.md")
        for name in re.findall(r"`(dockwork_[a-z_]+[a-z])[`{]", path.read_text())
    }

    assert len(told) >= 7
    assert told <= there
    assert "dockwork_loop_lag_seconds" in told


def test_the_environment_of_the_tests_says_nothing() -> None:
    assert [name for name in os.environ if name.startswith(("DOCKWORK_REDIS", "REDIS_"))] == []


def test_the_options_table_is_that_of_app_job() -> None:
    table = (GUIDES / "jobs.md").read_text().split("What `@app.job` takes:")[1].split("## ")[0]
    documented = re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)
    parameters: Any = inspect.signature(App.job).parameters

    assert documented == [
        name for name, parameter in parameters.items() if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]


async def test_the_uniqueness_guide_runs_from_top_to_bottom(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = a_guide(server, monkeypatch)
    for line, text in blocks("uniqueness.md", "python"):
        await run_block(text, line, "uniqueness.md", module)

    assert (await module.app.stats("mail")).totals["debounced"] == 2
    await module.app.close()


async def test_the_actions_guide_runs_from_top_to_bottom(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = a_guide(server, monkeypatch)
    for line, text in blocks("actions.md", "python"):
        await run_block(text, line, "actions.md", module)
        if "app.worker(" in text:
            working = asyncio.create_task(module.worker.run())
            await until_async(lambda: _is_dead(module.bad))
            await module.worker.shutdown()
            await working
    totals = module.done, module.found.fixed

    assert (totals[0].ok, totals[1]) == (1, 0)
    await module.app.close()


async def _is_dead(job: Any) -> bool:
    return await job.state() == "dead"
