"""``dockwork doctor`` and its likes on real servers: what it finds, how it ends, what it leaves behind."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result

from dockwork import App
from dockwork.cli import main
from support.redis_server import RedisServer
from support.waiting import until, until_async

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


@pytest.mark.covers("RT-218")
async def test_bench_tells_figures_and_keeps_nothing(url: str) -> None:
    done = cli("bench", "--jobs", "300", "--payload", "100", "--slots", "20", "-o", "json")

    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["jobs"], found["payload"], found["slots"]) == (300, 100, 20)
    assert (found["lost"], found["duplicated"]) == (0, 0)
    assert min(found["enqueued_per_s"], found["run_per_s"], found["round_trip_ms"]) > 0
    assert keys_of(url) == []
    assert logging.getLogger("dockwork").isEnabledFor(logging.WARNING)


@pytest.mark.covers("RT-218")
async def test_bench_leaves_a_namespace_with_queues_alone_unless_told(url: str) -> None:
    async with App("shop") as app:
        await app.enqueue("any", queue="mail")
        kept = keys_of(url)

        refused = cli("bench", "--jobs", "10")
        assert (refused.exit_code, "has queues already (mail)" in refused.output) == (1, True)
        done = cli("bench", "--jobs", "10", "--yes")
        assert (done.exit_code, "each job ran once" in done.output) == (0, True)
        assert await app.queues() == ["mail"]
    assert keys_of(url) == kept


def _hear_sigint() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.covers("RT-218")
def test_bench_that_is_interrupted_deletes_its_queue(url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dockwork", "bench", "--jobs", "200000"],
        env={**os.environ, "DOCKWORK_REDIS_URL": url},
        stderr=subprocess.PIPE,
        text=True,
        # A shell gives its background jobs, and so their children, an ignored SIGINT.
        preexec_fn=_hear_sigint,
    )
    try:
        assert process.stderr is not None
        assert "queue bench-" in process.stderr.readline()

        until(lambda: any(key.endswith(b":ready") for key in keys_of(url)), within=30, what="stored jobs")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 1
    finally:
        process.kill()
        process.communicate()
    assert keys_of(url) == []


@pytest.mark.covers("RT-218")
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_what_the_shell_runs(shell: str) -> None:
    done = cli("completion", shell)
    assert (done.exit_code, "_DOCKWORK_COMPLETE" in done.output) == (0, True)


def completed(*words: str) -> list[str]:
    """What the Tab key offers behind these words; the last one is begun."""
    with ThreadPoolExecutor(1) as pool:
        shell = ShellComplete(main, {}, "dockwork", "_DOCKWORK_COMPLETE")
        found = pool.submit(shell.get_completions, list(words[:-1]), words[-1]).result()
        return [one.value for one in found]


@pytest.mark.covers("RT-218")
async def test_commands_options_and_queues_are_completed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("re") == ["reap", "redrive", "repair", "reseal", "resume", "retry"]
    assert completed("--ver") == ["--version"]
    assert "--state" in completed("purge", "mail", "--st")
    async with App("shop") as app:
        await app.enqueue("any", queue="mail")
        await app.enqueue("any", queue="other")
    assert completed("pause", "ma") == ["mail"]
    assert completed("doctor", "mail", "") == ["mail", "other"]
    assert completed("jobs", "-n", "elsewhere", "") == []

    monkeypatch.setenv("DOCKWORK_REDIS_URL", "redis://127.0.0.1:1")
    assert completed("pause", "") == []
    monkeypatch.setenv("DOCKWORK_REDIS_URL", "no url at all")
    assert completed("pause", "") == []
