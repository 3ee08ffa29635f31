"""``dockwork doctor`` and its likes on real servers: what it finds, how it ends, what it leaves behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from dockwork import App
from dockwork.cli import main
from support.redis_server import RedisServer
from support.waiting import until_async

#: As the guide on Redis has it.
RIGHTS = "-@all +@read +@write +@connection +@scripting +@pubsub -@dangerous +info +time +wait +cluster|slots"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    users = [f"shop on >secret-a ~dw:* &dw:* {RIGHTS}", f"poor on >secret-b ~dw:* &dw:* {RIGHTS} -hset -zadd"]
    with RedisServer(port=0, users=users) as running:
        yield running


@pytest.fixture
def url(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> str:
    server.flush()
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    return server.url


def cli(*words: str) -> Result:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(CliRunner().invoke, main, list(words)).result()


def findings(*words: str, code: int = 0) -> dict[tuple[str, str], dict[str, Any]]:
    """By (queue, check)."""
    result = cli("doctor", *words, "-o", "json")
    assert result.exit_code == code, result.output
    return {(one["queue"], one["check"]): one for one in json.loads(result.stdout)}


def keys_of(url: str) -> list[bytes]:
    """Keys that stay. The events of a queue that was obliterated live a minute more."""
    with redis.Redis.from_url(url) as raw:
        return sorted(key for key in raw.keys("*") if not 0 < raw.ttl(key) <= 60)


@pytest.mark.covers("RT-219")
async def test_a_server_in_order_passes_and_keeps_nothing_of_the_visit(url: str) -> None:
    found = findings()

    checks = {"clock", "server", "eviction", "durability", "memory", "access", "scripts"}
    assert {check for _, check in found} == checks
    assert {one["level"] for key, one in found.items() if key != ("", "durability")} == {"ok"}
    assert "the login may do all that is needed" in found["", "access"]["words"]
    assert keys_of(url) == []
    told = cli("doctor")
    assert (told.exit_code, "1 to look at" in told.output) == (0, True)
    assert "-> CONFIG SET appendonly yes" in told.output


@pytest.mark.covers("RT-219")
async def test_a_queue_is_looked_at_from_all_sides(url: str) -> None:
    async with App("shop") as app:
        await app.enqueue("any", queue="mail", idempotency_key="once")
        with redis.Redis.from_url(url) as raw:
            raw.hset("dw:{default/mail}:meta", "paused", "1")
        found = findings("mail", "nope")
        assert found["mail", "schema"]["words"] == "version 1"
        assert found["mail", "keys"]["words"] == "1 idempotency key remembered"
        assert found["mail", "paused"]["remedy"] == "dockwork resume mail"
        assert found["mail", "workers"]["words"].startswith("none; 1 job due")
        assert found["nope", "known"]["level"] == "warn"

        worker = app.worker(queues={"mail": 4}, trap_signals=False)
        running = asyncio.create_task(worker.run())
        try:

            async def seen() -> bool:
                one = (await asyncio.to_thread(findings))["mail", "workers"]
                return bool(one["words"].startswith("1 worker, 0 of 4 slots busy"))

            await until_async(seen, within=10, what="doctor sees the worker")
        finally:
            await worker.shutdown()
            await running


@pytest.mark.covers("RT-219")
async def test_an_unknown_version_of_the_data_is_bad(url: str) -> None:
    async with App("shop") as app:
        await app.enqueue("any", queue="mail")
    with redis.Redis.from_url(url) as raw:
        (field,) = [name for name in raw.hkeys("dw:{default/mail}:meta") if name.startswith(b"schema")]
        raw.hset("dw:{default/mail}:meta", field, "99")

    found = findings(code=1)["mail", "schema"]
    assert (found["level"], found["remedy"]) == ("bad", "Run a newer dockwork.")
    assert "stored schema version 99" in found["words"]


@pytest.mark.covers("RT-219")
async def test_eviction_is_bad_and_the_exit_code_says_so(url: str) -> None:
    with redis.Redis.from_url(url) as raw:
        raw.config_set("maxmemory-policy", "allkeys-lru")
        try:
            found = findings(code=1)["", "eviction"]
        finally:
            raw.config_set("maxmemory-policy", "noeviction")
    assert "allkeys-lru" in found["words"]
    assert "CONFIG SET maxmemory-policy noeviction" in found["remedy"]


@pytest.mark.covers("RT-219")
async def test_a_poor_login_is_told_which_commands_it_lacks_and_no_password_shows(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKWORK_REDIS_URL", url.replace("//", "//shop:secret-a@"))
    assert findings()["", "access"]["level"] == "ok"

    monkeypatch.setenv("DOCKWORK_REDIS_URL", url.replace("//", "//poor:secret-b@"))
    found = findings(code=1)
    assert found["", "access"]["words"] == "the login may not run HSET, ZADD"
    assert found["", "access"]["remedy"] == "Add to its ACL: +hset +zadd"
    assert found["", "scripts"]["level"] == "bad"
    assert "secret-b" not in str(found) + cli("doctor").output

    monkeypatch.setenv("DOCKWORK_REDIS_URL", url.replace("//", "//shop:wrong-word@"))
    found = findings(code=1)
    assert list(found) == [("", "connection")]
    assert "wrong-word" not in str(found) + cli("doctor").output


@pytest.mark.covers("RT-219")
async def test_a_server_that_is_not_there_is_one_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKWORK_REDIS_URL", "redis://:very-secret@127.0.0.1:1/0")

    result = cli("doctor")
    assert result.exit_code == 1
    assert result.output.startswith("bad ")
    assert "127.0.0.1:1" in result.output
    assert "very-secret" not in result.output
