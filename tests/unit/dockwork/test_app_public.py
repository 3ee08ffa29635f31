"""The public names, and what the app object promises without a server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from mypy import api as mypy

import dockwork
from dockwork import App, Backoff, Context, InvalidArgs, InvalidValue, JobRef, Keep, State
from dockwork.client import job_of
from dockwork.core.ids import ulid
from dockwork.core.sizes import parse_size
from dockwork.store.protocol import JobView

ROOT = Path(__file__).parents[3]

PUBLIC = """
AccessDenied Admission Admitted App Backoff Cancelled Context Counts DecryptionError Discard DockworkError
Encrypted Encryption EncryptionError ErrorReport ErrorStats Event Gap Interrupted InvalidArgs InvalidUrl
InvalidValue Item Job JobFailed JobInfo JobRef JobType Keep KeyReuse OutcomeUnknown Queue QueueClosed
QueueFull Rate RedisSettings Registry Repeat Retry RoutingConflict SchemaMismatch Sealed Settings Shared Snooze State
StopReason StoreUnavailable TimedOut TooLarge Unique UniqueConflict Unrecoverable __version__
"""


def test_the_public_names_are_these() -> None:
    assert sorted(dockwork.__all__) == sorted(PUBLIC.split())
    assert set(dockwork.__all__) <= set(dir(dockwork))
    for name in dockwork.__all__:
        assert getattr(dockwork, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Celery'"):
        _ = dockwork.Celery


def test_importing_the_package_loads_nothing_of_it() -> None:
    script = "import sys, dockwork; print([m for m in sys.modules if m.startswith(('dockwork.', 'redis', 'pydantic'))])"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "['dockwork.version']\n"


@pytest.mark.covers("RT-005")
def test_objects_are_built_from_names_without_io_and_without_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> Any:
        raise AssertionError("no I/O, no loop")

    monkeypatch.setattr("socket.socket.connect", forbidden)
    monkeypatch.setattr("pathlib.Path.read_text", forbidden)
    monkeypatch.setattr("asyncio.new_event_loop", forbidden)

    app = App("shop", redis="redis://nowhere.invalid:1")
    queue = app.queue("mail", max_depth=10)
    ref = app.ref("mail", "order-7")

    assert (queue.name, queue.ref("order-7"), ref.id, ref.queue) == ("mail", ref, "order-7", "mail")
    assert isinstance(ref, JobRef)
    assert app.sync.ref("mail", "order-7").id == "order-7"
    for bad in (lambda: App("a b"), lambda: app.queue("a/b"), lambda: app.ref("mail", "a b")):
        with pytest.raises(InvalidValue):
            bad()


TYPED = """
from typing import Annotated, Literal

from dockwork import App, Context, Encrypted, JobRef, Sealed

app = App("shop")

@app.job(queue="mail")
async def send(ctx: Context, to: list[str], body: str = "") -> int:
    return len(to)

@app.job()
def add(a: int, b: int) -> str:
    return str(a + b)

@app.job()
async def pay(
    card: Encrypted[str], pin: Encrypted[int, Literal["pin"]], by: Annotated[str, Sealed("who")]
) -> Encrypted[int]:
    return len(card.upper() + by) + pin

async def use() -> None:
    paid: int = await (await pay.enqueue("4111", 1, by="ann")).result()
    good: JobRef[int] = await send.enqueue(["a"], body="x")
    number: int = await good.result()
    text: str = add.sync.enqueue(1, b=2).result()
    await send.enqueue_in(5, to=["a"])
    await add.run(1, 2)
    await app.enqueue_many([send.item(["a"]), add.item(1, 2)])
    await send.options(priority=3).enqueue(["a"])
"""

WRONG = {
    'await send.enqueue("a")': "incompatible type",
    "await send.enqueue()": "Missing positional argument",
    'await send.enqueue(["a"], subject="x")': "Unexpected keyword argument",
    'add.sync.enqueue(1, "2")': "incompatible type",
    'await send.options(prioriti=3).enqueue(["a"])': "Unexpected keyword argument",
    'x: str = await send.run(["a"])': "Incompatible types in assignment",
    'await pay.enqueue(4111, 1, by="ann")': "incompatible type",
    'await send.enqueue_in("soon", ["a"])': "incompatible type",
}


@pytest.mark.covers("RT-002")
def test_a_type_checker_sees_wrong_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = TYPED.rstrip().splitlines()
    source = "\n".join([*lines, *(f"    {line}" for line in WRONG)]) + "\n"
    (tmp_path / "snippet.py").write_text(source)
    monkeypatch.setenv("MYPYPATH", str(ROOT / "runtime"))

    config = ("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache"))
    said, problems, _ = mypy.run([*config, "--no-error-summary", str(tmp_path / "snippet.py")])

    assert problems == ""
    told = {int(line.split(":")[1]): line for line in said.splitlines() if ": error:" in line}
    assert sorted(told) == list(range(len(lines) + 1, len(lines) + 1 + len(WRONG))), said
    for number, words in enumerate(WRONG.values(), start=len(lines) + 1):
        assert words in told[number]


async def test_run_calls_the_function_here_and_now() -> None:
    app = App("shop", redis="redis://nowhere.invalid:1")
    seen: list[Any] = []

    @app.job(queue="mail")
    async def send(ctx: Context, to: list[str]) -> int:
        seen.append((ctx.job.type, ctx.job.queue, ctx.job.attempt, ctx.should_stop, ctx.saved))
        await ctx.progress(0.5)
        await ctx.checkpoint({"at": 1})
        ctx.log("sent", n=1)
        seen.append(ctx.saved)
        return len(to)

    @app.job(timeout=60)
    def add(a: int, ctx: Context, b: int = 2) -> int:
        ctx.sync.progress(1)
        ctx.sync.checkpoint(a)
        seen.append(timedelta(seconds=50) < ctx.deadline - dockwork_now() < timedelta(seconds=61))
        return a + b

    assert await send.run(["a", "b"]) == 2
    assert await add.run(a=40) == 42  # type: ignore[call-arg]
    assert seen == [("send", "mail", 1, False, None), {"at": 1}, True]
    with pytest.raises(InvalidArgs, match="argument a: expected a valid integer"):
        await add.run(a="x")  # type: ignore[call-arg, arg-type]


def dockwork_now() -> Any:
    from dockwork import clock

    return clock.now()


def test_a_name_belongs_to_one_function() -> None:
    app = App("shop")

    @app.job(name="send")
    def one() -> None: ...

    with pytest.raises(InvalidValue, match=r"job type send: expected a name that .*one does not have yet"):

        @app.job(name="send")
        def two() -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 101}, {"retries": -1}, {"timeout": 0}, {"queue": "a b"}, {"name": "x" * 65}, {"name": "a@b"},
        {"max_deliveries": 0}, {"expires": -1},
    ],
)  # fmt: skip
def test_impossible_options_are_refused_at_declaration(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(options)).replace("name", "job type")):
        App("shop").job(**options)(lambda: None)


def test_a_call_wants_a_delay_or_a_time() -> None:
    app = App("shop")

    @app.job()
    def add(a: int) -> int:
        return a

    with pytest.raises(InvalidValue, match="expected delay or at, not both"):
        add.options(delay=1, at=dockwork_now())
    with pytest.raises(InvalidValue, match="options: expected one of"):
        add.options(prio=1)  # type: ignore[call-arg]


def test_queue_options_of_code_are_those_of_the_store() -> None:
    app = App("shop")
    app.queue(
        "mail", timeout=60, max_timeout=120, retries=2, max_deliveries=3, backoff=Backoff.fixed(5), max_depth=10,
        max_bytes="1Gi", max_payload="64Ki", lease=30,
    )  # fmt: skip

    found = app.registry.queue_configs["mail"]

    assert (found.timeout_ms, found.max_timeout_ms, found.max_attempts, found.max_deliveries) == (
        60_000,
        120_000,
        3,
        3,
    )
    assert (found.max_depth, found.max_bytes, found.max_payload, found.lease_ms) == (
        10,
        1 << 30,
        65_536,
        30_000,
    )
    assert found.backoff is not None
    assert Backoff.from_json(found.backoff) == Backoff.fixed(5)
    app.queue("brief", keep=Keep.for_(60, count=5, bytes=1000))
    assert app.registry.queue_configs["brief"].keep == {
        "completed_age_ms": 60_000,
        "completed_count": 5,
        "bytes": 1000,
    }
    for options in ({"lease": 1}, {"backoff": Backoff.custom("x")}, {"max_bytes": "lots"}, {"rate": 5}):
        with pytest.raises(InvalidValue):
            app.queue("mail", **options)  # type: ignore[arg-type]


def test_a_worker_serves_the_queues_of_its_types_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("shop", redis="redis://nowhere.invalid:1")
    with pytest.raises(InvalidValue, match="queues: expected a queue to serve"):
        app.worker()

    @app.job(queue="mail")
    def one() -> None: ...

    @app.job(queue="other")
    def two() -> None: ...

    assert app.worker(concurrency=5).queues == {"mail": 3, "other": 2}
    assert app.worker(queues={"mail": 7}).queues == {"mail": 7}
    monkeypatch.setenv("DOCKWORK_QUEUES", "third=4")
    again = App("shop", redis="redis://nowhere.invalid:1")
    assert again.worker(queues={"mail": 7}).queues == {"third": 4}


def test_a_broken_job_type_stops_the_start_of_a_worker() -> None:
    app = App("shop")

    @app.job(queue="mail", backoff=Backoff.custom("unknown"))
    def one() -> None: ...

    with pytest.raises(InvalidValue, match="backoff of one: expected one of the registered ones"):
        app.worker()


def test_a_decorator_without_parentheses_says_what_to_write() -> None:
    app = App("shop")

    with pytest.raises(TypeError, match=r"write @app\.job\(\)"):

        @app.job  # type: ignore[arg-type]
        def one() -> None: ...


def test_calling_a_job_type_says_what_to_call_instead() -> None:
    app = App("shop")

    @app.job()
    def one() -> None: ...

    with pytest.raises(TypeError, match=r"one is a job type: use \.run\(\) here and now, or \.enqueue\(\)"):
        one()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("theirs", "ours"), [("delay", "enqueue"), ("apply_async", "enqueue"), ("send", "enqueue")]
)
def test_a_peers_word_on_a_job_type_is_answered_with_ours(theirs: str, ours: str) -> None:
    @App("shop").job()
    def one() -> None:
        return None

    with pytest.raises(
        AttributeError, match=rf"no attribute '{theirs}'; Dockwork's word for it is \.{ours}\(\)"
    ):
        getattr(one, theirs)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        getattr(one, "nothing")  # noqa: B009


def test_parameters_without_a_name_are_refused_at_the_declaration() -> None:
    app = App("shop")

    with pytest.raises(
        InvalidValue, match=r"job type many: expected parameters that are bound by name, got '\*to'"
    ):

        @app.job()
        def many(*to: str) -> None: ...

    assert dict(app.registry) == {}


def test_an_app_has_one_lifespan() -> None:
    app = App("shop")

    @app.lifespan
    @asynccontextmanager
    async def first(_: App) -> Any:
        yield

    with pytest.raises(InvalidValue, match="lifespan: expected one for an app"):
        app.lifespan(first)


async def test_a_blocking_call_on_its_own_thread_is_refused_instead_of_waiting_for_itself() -> None:
    app = App("shop", redis="redis://nowhere.invalid:1")

    @app.job()
    async def outer() -> int:
        return inner.sync.run()

    @app.job()
    async def inner() -> int:
        return 1

    with pytest.raises(RuntimeError, match="would wait for itself"):
        await asyncio.to_thread(outer.sync.run)
    assert await outer.run() == 1
    app.sync.close()


def test_keep_is_written_as_a_record_holds_it() -> None:
    assert [keep.encode() for keep in (Keep.none, Keep.forever, Keep.for_(3600), Keep(count=5, bytes=9))] == [
        "none", "forever", "3600000,,", ",5,9",
    ]  # fmt: skip
    with pytest.raises(InvalidValue, match=r"keep\.count"):
        Keep(count=-1)
    with pytest.raises(InvalidValue, match=r"keep\.age: expected a timedelta; .* seconds too, got 3600"):
        Keep(age=3600)  # type: ignore[arg-type]


def test_ids_sort_by_time_and_follow_the_ulid_specification() -> None:
    assert ulid(1469918176385, bytes(10)) == "01ARYZ6S410000000000000000"
    assert ulid(0, b"\xff" * 10) == "0000000000ZZZZZZZZZZZZZZZZ"
    assert ulid(1000, b"\xff" * 10) < ulid(1001, bytes(10))


@pytest.mark.parametrize(("text", "size"), [("1024", 1024), (7, 7), ("64Ki", 65536), ("2Gi", 2 << 30)])
def test_sizes_are_powers_of_1024(text: int | str, size: int) -> None:
    assert parse_size(text, "max_bytes") == size


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.covers("RT-002")
@pytest.mark.parametrize(
    ("arguments", "path", "expected", "got"),
    [
        ({"a": "\ud800"}, "a", "text in UTF-8", "str"),
        ({"a": [1, {"x": "\ud800"}]}, "a.1.x", "text in UTF-8", "str"),
        ({"a": {"\ud800": 1}}, "a", "text in UTF-8", "dict"),
        ({"a": [object()]}, "a.0", "a value that JSON can carry", "object"),
        ({"a": nested(5000)}, "a", "a value that is not nested so deeply", "list"),
    ],
)
def test_arguments_that_json_cannot_carry_are_refused_with_their_path(
    arguments: dict[str, Any], path: str, expected: str, got: str
) -> None:
    app = App("shop", redis="redis://127.0.0.1:1")

    @app.job(queue="work")
    def known(a: Any) -> None: ...

    for type_ in ("known", "unknown"):
        with pytest.raises(InvalidArgs) as refused:
            app.item(type_, arguments, queue="work")
        assert (refused.value.job_type, refused.value.path) == (type_, path)
        assert (refused.value.expected, refused.value.got) == (expected, got)


@pytest.mark.covers("RT-002")
def test_names_and_arguments_of_an_unknown_type_are_refused_as_what_they_are() -> None:
    app = App("shop", redis="redis://127.0.0.1:1")

    with pytest.raises(InvalidArgs, match="t: argument a: expected text in UTF-8, got bytes"):
        app.item("t", {"a": b"\xff"}, queue="work")
    with pytest.raises(InvalidArgs, match="t: arguments: expected values by name, got list"):
        app.item("t", [1], queue="work")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="job type: expected 1 to 64 bytes"):
        app.item("\ud800", {}, queue="work")
    with pytest.raises(InvalidValue, match="id: expected 1 to 64 characters"):
        app.item("t", {}, queue="work", id="\ud800")


def test_a_time_beyond_the_calendar_is_its_last_and_not_an_error() -> None:
    view = JobView(id="a", type="t", state=State.DELAYED, due_ms=10**20, envelope=b"{}", created_ms=0)

    assert job_of(view, "work").due_at == datetime.max.replace(tzinfo=UTC)
