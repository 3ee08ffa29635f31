"""docs/guides/redis.md, run: its snippets, its URLs, and its ACL user with everything that users of Dockwork do."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import sys
import types
from contextlib import ExitStack, aclosing
from pathlib import Path
from typing import Any

import pytest

from dockwork.core.states import State
from dockwork.settings import RedisSettings
from dockwork.store.addresses import parse_urls
from support.redis_cluster import RedisCluster
from support.redis_server import RedisServer
from support.workers import QUEUE, World

TEXT = (Path(__file__).parents[2] / "docs" / "guides" / "redis.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.covers("RT-260")
async def test_the_snippets_run(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.flush()
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    module = types.ModuleType("guide")
    monkeypatch.setitem(sys.modules, "guide", module)
    for text in blocks("python"):
        code = compile(text, "redis.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, module.__dict__)
        if inspect.isawaitable(result):
            await result

    assert await module.app.ref("orders", "order-7").state() is State.READY
    await module.app.close()


@pytest.mark.covers("RT-190", "RT-260")
def test_each_url_of_the_table_is_taken_in_its_mode() -> None:
    rows = re.findall(r"^\| `((?:rediss?|unix)://[^`]+)` \| (.*) \|$", TEXT, re.MULTILINE)

    assert len(rows) == 8
    for url, meaning in rows:
        mode = next(
            (mode for mode in ("sentinel", "cluster") if f"REDIS_MODE={mode}" in meaning), "standalone"
        )
        assert len(parse_urls(url, mode)) == url.count(",") + 1


@pytest.mark.covers("RT-189", "RT-260")
def test_the_variables_of_each_mode_are_settings() -> None:
    for text in blocks("sh"):
        environ = dict(line.removeprefix("export ").split("=", 1) for line in text.splitlines())
        found = RedisSettings.from_environ(environ)
        assert (found.mode, found.url) == (environ["DOCKWORK_REDIS_MODE"], environ["DOCKWORK_REDIS_URL"])


@pytest.mark.covers("RT-191", "RT-260")
@pytest.mark.parametrize("mode", ["standalone", pytest.param("cluster", marks=pytest.mark.full)])
async def test_the_acl_user_of_the_guide_may_do_all_that_is_needed_and_no_more(mode: str) -> None:
    (rule,) = blocks("text")
    options = ["--user", *rule.split()[1:]]
    with ExitStack() as stack:
        if mode == "standalone":
            started: Any = stack.enter_context(RedisServer(port=0, options=options))
        else:
            started = stack.enter_context(RedisCluster(options=options))
        url = started.url.replace("redis://", "redis://shop:secret@")
        await use_everything(World(RedisSettings(url=url, mode=mode)))  # type: ignore[arg-type]


async def use_everything(world: World) -> None:
    app = world.app

    @app.job(queue=QUEUE)
    async def add(n: int) -> int:
        return n + 1

    @app.job(queue=QUEUE, retries=0)
    async def fail() -> None:
        raise ValueError("no")

    waiting = await add.options(delay=3600).enqueue(n=0)
    urgent = await add.options(priority=-1, replicas=1).enqueue(n=1)
    async with world.worker():
        assert await urgent.result(timeout=15) == 2
        failed = await fail.enqueue()
        await world.until(failed.id, State.DEAD)
    assert await waiting.cancel() == "cancelled"
    assert (await app.stats(QUEUE)).counts[State.DEAD] == 1
    assert [report.id for report in await app.errors(QUEUE)] == [failed.id]
    async with aclosing(app.events(QUEUE, since="0")) as events:
        assert (await anext(events)).ids == (waiting.id,)
    assert await app.queues() == [QUEUE]
    assert await app.pause(QUEUE)
    assert await app.resume(QUEUE)
    assert (await app.repair(QUEUE)).checked == 3
    listening = world.store.wakes()
    coming = asyncio.ensure_future(anext(listening))
    await asyncio.wait({coming}, timeout=0.2)
    assert not coming.done() or coming.exception() is None
    coming.cancel()
    await asyncio.gather(coming, return_exceptions=True)
    assert (await app.obliterate(QUEUE, confirm=QUEUE)).done
    wire = await world.store._wire()
    for forbidden in (("FLUSHALL",), ("KEYS", "*"), ("CONFIG", "GET", "*"), ("GET", "other")):
        with pytest.raises(Exception, match=r"NOPERM|permission"):
            await wire.command(*forbidden)
    await world.close()
