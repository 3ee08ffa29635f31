"""The verbs of the command line that change jobs and queues, on a real Redis."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from dockwork import App, Unrecoverable
from dockwork.cli import main
from support.redis_server import RedisServer
from support.waiting import until_async

pytestmark = pytest.mark.covers("RT-218")


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(port=0) as running:
        yield running


@pytest.fixture
async def app(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[App]:
    server.flush()
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    shop = App("shop")

    @shop.job(queue="mail", retries=0)
    async def fail(name: str) -> None:
        raise Unrecoverable(f"no customer {name}")

    yield shop
    await shop.close()


def cli(*words: str) -> Result:
    """One command. In a thread: it runs a loop of its own, and the tests' plugin keeps this thread's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(CliRunner().invoke, main, list(words)).result()


def shown(*words: str, code: int = 0) -> Any:
    result = cli(*words, "-o", "json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


async def bury(app: App, count: int) -> list[str]:
    """Ids of `count` dead letters on queue mail."""
    fail = app.registry["fail"]
    ids = [(await fail.enqueue(name=str(n))).id for n in range(count)]
    worker = app.worker(queues={"mail": 4}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    for job_id in ids:
        with pytest.raises(Exception, match="no customer"):
            await app.ref("mail", job_id).result(timeout=20)
    await worker.shutdown()
    await running
    return ids


async def test_cancel_tells_of_each_job_and_refuses_what_it_cannot(app: App) -> None:
    job = await app.enqueue("later", queue="mail", delay=600)

    first = cli("cancel", "mail", job.id)
    second = shown("cancel", "mail", job.id, "unknown", code=1)

    assert (first.exit_code, first.output.strip()) == (0, f"{job.id}: cancelled (cancelled)")
    assert [each["outcome"] for each in second] == ["too_late", "missing"]


async def test_promote_makes_a_delayed_job_ready(app: App) -> None:
    job = await app.enqueue("later", queue="mail", delay=600)

    assert shown("promote", "mail", job.id) == {"queue": "mail", "promoted": 1}
    assert await job.state() == "ready"
    assert cli("promote", "mail", job.id).exit_code == 1


async def test_redrive_shows_first_and_then_puts_back_what_was_shown(app: App) -> None:
    ids = await bury(app, 3)

    shown_only = cli("redrive", "mail", "--type", "fail")
    assert shown_only.exit_code == 1
    assert "3 dead jobs on queue mail" in shown_only.output
    assert "may happen once more" in shown_only.output
    assert "--yes puts them back" in shown_only.output
    assert await app.ref("mail", ids[0]).state() == "dead"

    done = shown("redrive", "mail", "--type", "fail", "--limit", "2", "--yes")
    assert (done["found"], done["ok"], done["types"]) == (2, 2, {"fail": 2})
    states = [await app.ref("mail", each).state() for each in ids]
    assert sorted(str(state) for state in states) == ["dead", "ready", "ready"]


async def test_one_reviewed_job_is_redriven_by_its_digest_and_by_no_other(app: App) -> None:
    (job_id,) = await bury(app, 1)
    digest = shown("jobs", "mail", job_id)["digest"]

    assert cli("redrive", "mail", job_id).exit_code == 2
    assert shown("redrive", "mail", job_id, "--digest", "0" * 40, code=1)[0]["outcome"] == "conflicted"
    assert shown("redrive", "mail", job_id, "--digest", digest)[0]["outcome"] == "ok"


async def test_retry_puts_an_ended_job_back(app: App) -> None:
    (job_id,) = await bury(app, 1)

    assert shown("retry", "mail", job_id)[0]["outcome"] == "ok"
    assert cli("retry", "mail", job_id).exit_code == 1  # it waits to run already


async def test_purge_counts_first_and_then_deletes(app: App) -> None:
    ids = await bury(app, 3)

    assert shown("purge", "mail", "--state", "dead", "--older-than", "1h")["found"] == 0
    looked = cli("purge", "mail", "--state", "dead")
    assert (looked.exit_code, "3 dead jobs" in looked.output) == (1, True)
    assert shown("purge", "mail", "--state", "dead", "--yes")["deleted"] == 3
    assert await app.ref("mail", ids[0]).state() is None


async def test_pause_and_resume_refuse_what_is_so_already(app: App) -> None:
    await app.enqueue("any", queue="mail")

    assert cli("resume", "mail").exit_code == 1
    assert shown("pause", "mail") == {"queue": "mail", "paused": True, "changed": True}
    assert (await app.stats("mail")).paused
    assert cli("pause", "mail").exit_code == 1
    assert shown("resume", "mail")["changed"]


async def test_obliterate_wants_the_name_twice_and_yes(app: App) -> None:
    await app.enqueue("any", queue="mail")

    assert cli("obliterate", "mail", "--confirm", "mail").exit_code == 2
    assert cli("obliterate", "mail", "--confirm", "other", "--yes").exit_code == 2
    assert (await app.stats("mail")).totals["enqueued"] == 1
    gone = cli("obliterate", "mail", "--confirm", "mail", "--yes")
    assert (gone.exit_code, "queue mail is gone, 1 jobs with it" in gone.output) == (0, True)
    assert cli("obliterate", "mail", "--confirm", "mail", "--yes").exit_code == 1


async def test_repair_says_what_it_put_right(app: App, server: RedisServer) -> None:
    job = await app.enqueue("any", queue="mail")
    with redis.Redis.from_url(server.url) as raw:
        raw.zrem("dw:{default/mail}:ready", job.id)

    found = shown("repair", "mail")
    assert (found["no_index"], found["fixed"] >= 1) == (1, True)
    assert "0 put right" in cli("repair", "mail").output


async def test_reap_and_migrate_answer_in_figures(app: App) -> None:
    await app.enqueue("any", queue="mail")

    assert shown("reap", "mail") == {"queue": "mail", "returned": 0, "buried": 0}
    assert shown("migrate", "mail") == {"queue": "mail", "version": 1, "behind": []}


def test_no_command_shows_the_password_of_a_redis_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKWORK_REDIS_URL", "redis://:very-secret-word@127.0.0.1:1/0")
    for words in (
        ("cancel", "mail", "x"),
        ("promote", "mail"),
        ("redrive", "mail"),
        ("purge", "mail", "--state", "dead"),
        ("pause", "mail"),
        ("repair", "mail"),
        ("reap", "mail"),
        ("migrate", "mail"),
    ):
        result = cli(*words)
        assert result.exit_code == 1, result.output
        assert "very-secret-word" not in result.output
        assert "Traceback" not in result.output


async def test_a_closed_intake_refuses_and_opens_again(app: App) -> None:
    await app.enqueue("any", queue="mail")

    assert shown("close", "mail") == {"queue": "mail", "closed": True, "changed": True}
    assert cli("close", "mail").exit_code == 1
    refused = cli("enqueue", "any", "--queue", "mail")
    assert (refused.exit_code, "mail" in refused.output) == (1, True)
    assert shown("open", "mail")["changed"]
    assert cli("enqueue", "any", "--queue", "mail").exit_code == 0


async def test_stats_errors_and_workers_show_what_a_worker_did(app: App) -> None:
    await bury(app, 2)

    found = shown("stats", "mail", "--minutes", "5")
    assert (found["totals"]["dead"], found["runnable"]) == (2, 0)
    assert sum(one["finished"] for one in found["minutes"]) == 2
    told = cli("stats", "mail").output
    assert "dead 2" in told
    assert not re.search(r"\b[uw]\d+ ", told)  # buckets of histograms are for programs

    failed = shown("errors")
    assert (failed["stats"]["total"], len(failed["recent"])) == (2, 2)
    assert {one["message"] for one in failed["recent"]} == {"no customer 0", "no customer 1"}
    assert "Unrecoverable: no customer" in cli("errors", "mail", "--traces").output


async def test_workers_are_listed_and_quiesced_for_as_long_as_the_command_runs(app: App) -> None:
    worker = app.worker(queues={"mail": 4}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    try:
        rows: list[Any] = []

        async def beats() -> bool:
            rows[:] = await asyncio.to_thread(shown, "workers")
            return bool(rows)

        await until_async(beats, within=10, what="the worker beats")
        assert (rows[0]["queue"], rows[0]["slots"], rows[0]["state"]) == ("mail", 4, "Running")

        done = await asyncio.to_thread(cli, "quiesce", "mail", rows[0]["owner"], "--until-idle")
        assert done.exit_code == 0
        assert "they take nothing new; 0 of their jobs still run" in done.output
        assert "they take jobs again" in done.output
        unknown = await asyncio.to_thread(cli, "quiesce", "mail", "nobody")
        assert (unknown.exit_code, rows[0]["owner"] in unknown.output) == (2, True)
    finally:
        await worker.shutdown()
        await running


async def test_events_are_lines_and_end_when_asked_to(app: App) -> None:
    ids = await bury(app, 2)

    lines = cli("events", "mail", "--since", "0", "--only", "dead", "--count", "2", "-o", "json").output
    found = [json.loads(line) for line in lines.splitlines()]
    assert {job for one in found for job in one["ids"]} == set(ids)
    assert {one["name"] for one in found} == {"dead"}
    assert "dead" in cli("events", "mail", "--since", "0", "--only", "dead", "--for", "1").output


async def test_keys_and_reseal_count_what_is_left_under_an_older_key(
    app: App, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new = "old:" + "11" * 32, "new:" + "22" * 32
    (tmp_path / "sealed_shop.py").write_text(SEALED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("DOCKWORK_PAYLOAD_KEYS", old)
    assert cli("enqueue", "sealed_shop:app", "pay", "--args", '{"card": "4111"}').exit_code == 0
    assert shown("keys") == {"old": 1}

    monkeypatch.setenv("DOCKWORK_PAYLOAD_KEYS", f"{new},{old}")
    monkeypatch.delitem(sys.modules, "sealed_shop")
    done = shown("reseal", "sealed_shop:app", "mail")
    assert (done["written"], done["left"]) == (1, {})
    assert shown("keys", "mail") == {"new": 1}
    assert "0 sealed anew" in cli("reseal", "sealed_shop:app").output


SEALED = """
from dockwork import App, Encrypted

app = App("sealed")


@app.job(queue="mail")
async def pay(card: Encrypted[str]) -> None: ...
"""
