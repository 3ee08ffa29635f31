"""The verbs of the command line that change jobs and queues, on a real Redis."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
import redis
from click import unstyle
from click.testing import CliRunner, Result

from dockwork import App, Unrecoverable
from dockwork.cli import COMMANDS, main
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


async def test_edit_changes_a_waiting_job_at_the_reviewed_revision_only(app: App) -> None:
    job = await app.enqueue("later", {"n": 1}, queue="mail", delay=600)
    revision = shown("jobs", "mail", job.id)["revision"]

    words = ("edit", "mail", job.id, "--revision", str(revision))
    assert cli(*words).exit_code == 2
    assert cli(*words, "--in", "5", "--at", "2030-01-01T00:00:00Z").exit_code == 2
    assert shown(*words, "--args", '{"n": 2}', "--priority", "-3", "--in", "0")["outcome"] == "ok"
    again = cli(*words, "--priority", "5")
    assert (again.exit_code, "is not at that revision any more" in again.output) == (1, True)
    changed = shown("jobs", "mail", job.id)
    assert (changed["args"], changed["priority"], changed["state"]) == ({"n": 2}, -3, "prioritized")
    assert cli("edit", "mail", "unknown", "--revision", "0", "--priority", "1").exit_code == 1


async def test_edit_by_an_app_checks_the_arguments(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain_shop.py").write_text(SEALED.replace("Encrypted[str]", "str"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    job = await app.enqueue("pay", {"card": "1"}, queue="mail", delay=600)

    words = ("edit", "mail", job.id, "--revision", "0", "--app", "plain_shop:app")
    refused = cli(*words, "--args", '{"car": "2"}')
    assert (refused.exit_code, "argument car" in refused.output) == (1, True)
    assert shown(*words, "--args", '{"card": "2"}')["outcome"] == "ok"


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
        lines = await asyncio.to_thread(
            cli, "quiesce", "mail", rows[0]["owner"], "--until-idle", "-o", "json"
        )
        assert [json.loads(line)["event"] for line in lines.stdout.splitlines()] == [
            "quiesced", "idle", "resumed",
        ]  # fmt: skip
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


def on_a_terminal(*words: str, columns: int) -> list[str]:
    """The lines of a table command, as a terminal of that width gets them."""
    environ = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(columns)}
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(CliRunner(env=environ).invoke, main, list(words), color=True).result()
    assert done.exit_code == 0, done.output
    return [line.rstrip() for line in unstyle(done.stdout).splitlines()]


LONG = "mail.of.the.whole.company.that.has.a.very.long.name"


async def test_tables_fit_80_columns_and_keep_what_matters(app: App) -> None:
    (job_id,) = await bury(app, 1)
    await app.enqueue("report.of.all.customers.by.day", queue=LONG, delay=600)
    fail = app.registry["fail"]
    await app.schedule(fail.item(name="x"), cron="0 9 * * *", tz="America/Argentina/ComodRivadavia")
    worker = app.worker(queues={"mail": 4, LONG: 4}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    try:

        async def beats() -> bool:
            return len(await asyncio.to_thread(shown, "workers")) == 2

        await until_async(beats, within=10, what="the worker beats on both queues")
        for words, kept in (
            (("queues",), ("QUEUE", "READY", "RUNNING", "DEAD")),
            (("jobs", "mail"), ("ID", "TYPE", "REASON")),
            (("errors",), ("TYPE", "ID", "ERROR")),
            (("stats", "mail"), ("MINUTE", "FINISHED")),
            (("workers",), ("QUEUE", "WORKER", "STATE", "BUSY", "SLOTS")),
            (("schedules",), ("QUEUE", "NAME", "SCHEDULE", "NEXT")),
            (("keys",), ("KEY", "JOBS")),
            (("doctor", "mail"), ("schema", "version")),
        ):
            lines = await asyncio.to_thread(on_a_terminal, *words, columns=80)
            assert max(len(line) for line in lines if "-> " not in line) <= 80, lines
            heading = next(line for line in lines if kept[0] in line.split())
            assert set(kept) <= set(heading.split()), lines
            if words[0] in ("jobs", "errors"):
                assert any(job_id in line for line in lines), lines
            if words[0] == "queues":
                wide = await asyncio.to_thread(lambda: on_a_terminal("queues", columns=160))
                assert any("COMPLETED" in line for line in wide)
                assert any(LONG in line for line in wide)
    finally:
        await worker.shutdown()
        await running


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_help_that_says_what_it_does(name: str) -> None:
    done = cli(name, "--help")

    assert done.exit_code == 0
    assert done.output.startswith(f"Usage: main {name} [OPTIONS]")
    first = done.output.split("\n\n")[1].strip()
    assert len(first) > 20
    assert max(map(len, done.output.splitlines())) <= 80
    command = main.get_command(click.Context(main), name)
    assert command is not None
    bare = [one.name for one in command.params if isinstance(one, click.Option) and not one.help]
    assert bare == []


VERBS = """
worker dev enqueue jobs queues pause resume close open cancel retry promote redrive purge obliterate repair reap
schedules workers quiesce events stats errors keys reseal migrate bench doctor
"""


def test_every_verb_that_needs_no_http_is_there() -> None:
    assert set(VERBS.split()) <= set(COMMANDS)


@pytest.mark.covers("RT-118")
def test_a_worker_told_queues_that_cannot_be_is_a_matter_of_usage(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "queues_shop.py").write_text(SEALED)
    done = subprocess.run(
        [sys.executable, "-m", "dockwork", "worker", "queues_shop:app", "--queues", "mail=x"],
        cwd=tmp_path,
        env={**os.environ, "DOCKWORK_REDIS_URL": server.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--queues: expected queues such as" in done.stderr


#: Verbs with which one looks at what is there, or changes it: a wrong name is refused.
OF_WHAT_IS_THERE = (
    ["cancel", "nosuch", "j"],
    ["edit", "nosuch", "j", "--revision", "0", "--priority", "1"],
    ["errors", "nosuch"],
    ["jobs", "nosuch"],
    ["jobs", "nosuch", "j"],
    ["keys", "nosuch"],
    ["migrate", "nosuch"],
    ["obliterate", "nosuch", "--confirm", "nosuch", "--yes"],
    ["promote", "nosuch"],
    ["purge", "nosuch", "--state", "dead", "--yes"],
    ["quiesce", "nosuch", "w"],
    ["reap", "nosuch"],
    ["redrive", "nosuch"],
    ["redrive", "nosuch", "j", "--digest", "d"],
    ["repair", "nosuch"],
    ["retry", "nosuch", "j"],
    ["schedules", "nosuch"],
    ["schedules", "nosuch", "s", "--pause"],
    ["stats", "nosuch"],
    ["workers", "mail", "nosuch"],
)
#: Verbs that make sense before the first job: the name is only remarked upon, on stderr.
OF_WHAT_MAY_COME = (
    ["close", "nosuch"],
    ["events", "nosuch", "--for", "0.1"],
    ["open", "nosuch"],
    ["pause", "nosuch"],
    ["resume", "nosuch"],
)
#: Those that make a queue, and the one that answers by a finding. Reseal takes an app, whose queues are known.
OTHERS = {"enqueue", "doctor", "reseal"}
UNKNOWN = "dockwork: nobody has used a queue nosuch in namespace default yet; known: mail\n"


@pytest.mark.parametrize("words", OF_WHAT_IS_THERE, ids=" ".join)
async def test_a_queue_that_nobody_has_used_is_refused_with_the_names_that_there_are(
    app: App, words: list[str]
) -> None:
    await app.enqueue("fail", {"name": "ann"}, queue="mail")

    done = cli(*words)

    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.endswith(UNKNOWN)
    assert await app.queues() == ["mail"]


@pytest.mark.parametrize("words", OF_WHAT_MAY_COME, ids=" ".join)
async def test_a_switch_of_a_queue_that_is_still_to_come_is_done_and_remarked_upon(
    app: App, words: list[str]
) -> None:
    await app.enqueue("fail", {"name": "ann"}, queue="mail")

    done = cli(*words)

    assert done.stderr == UNKNOWN
    is_switched = words[0] in ("pause", "close")
    assert done.exit_code == (0 if is_switched or words[0] == "events" else 1)
    assert await app.queues() == (["mail", "nosuch"] if is_switched else ["mail"])
    if is_switched:
        assert cli("stats", "nosuch").exit_code == 0


def test_each_verb_on_a_queue_knows_what_to_do_with_a_wrong_name() -> None:
    told = {words[0] for words in (*OF_WHAT_IS_THERE, *OF_WHAT_MAY_COME)} | OTHERS
    group = main
    context = click.Context(group)
    takes = {
        name
        for name in COMMANDS
        if (command := group.get_command(context, name)) is not None
        and {"queue", "queues"} & {param.name for param in command.params}
    }

    assert takes - {"worker", "dev"} == told


async def test_one_job_is_redriven_by_its_id_and_nothing_that_chooses_among_many(app: App) -> None:
    for words, told in (
        (["j", "--digest", "d", "--type", "fail"], "--type: expected none beside an ID"),
        (["j", "--digest", "d", "--state", "dead"], "--state: expected none beside an ID"),
        (["--digest", "d"], "--digest: expected an ID beside it"),
        (["j"], "--digest: expected that of the reviewed job: dockwork jobs mail j"),
    ):
        done = cli("redrive", "mail", *words)
        assert (done.exit_code, told in done.stderr) == (2, True), done.stderr
