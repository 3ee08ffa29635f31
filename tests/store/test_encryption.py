"""Sealed values from enqueue to dead letter, on Redis and in memory: rule by rule, the secret looked for everywhere."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import re
import sys
import types
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pytest
from click.testing import CliRunner
from pydantic import AfterValidator

from dockwork import (
    App,
    Backoff,
    Context,
    DecryptionError,
    Discard,
    Encrypted,
    Encryption,
    EncryptionError,
    JobFailed,
    Keep,
    KeyReuse,
    Repeat,
    Retry,
    State,
    Unique,
    UniqueConflict,
)
from dockwork.cli import main
from dockwork.core.codec import Envelope, open_envelope, seal
from dockwork.core.keys import QueueName
from dockwork.core.sealed import KeyRing, bound_to, key_of
from dockwork.core.states import ENDED
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import JobView, Lease, NewJob, Owner, Reseal, Resealing, Store
from dockwork.store.redis import RedisStore
from dockwork.testing.runner import Pass
from dockwork.worker import lane
from dockwork.worker.logs import SHOWN_JOBS, TextFormatter, show_jobs
from support import sealed_app
from support.redis_server import RedisServer
from support.store_world import RedisWorld
from support.waiting import until_async

T = TypeVar("T")

ONE, TWO = "k1:" + "11" * 32, "k2:" + "22" * 32
BOTH = f"{TWO},{ONE}"
MAIL = QueueName("shop", "mail")
ANN = Owner(pod="pod", boot="boot")
NUMBERS = itertools.count(1)
SECRET = "t0p-s3cret-words"
#: A sealed value, wherever it stands.
SEALED = re.compile(r"dwe1:([a-z0-9_-]{1,16}):[A-Za-z0-9_-]{38,}")


def picky(value: str) -> str:
    if value.startswith("picky"):
        raise RuntimeError(f"I do not like {value}")
    return value


class Shop:
    """Apps with the same job types and different keys, on one store."""

    def __init__(self, store: Store, url: str = "") -> None:
        self.store = store
        self.url = url
        self.seen: list[Any] = []
        self.act: Callable[[Context, str], Any] = lambda ctx, body: body

    def app(self, keys: str | None = ONE, **more: Any) -> App:
        app = App("shop", namespace="shop", store=self.store, encryption=Encryption(keys=keys, **more))

        @app.job(queue="mail", retries=1, backoff=Backoff.fixed(3600))
        async def send(ctx: Context, to: str, body: Encrypted[str], n: int = 0) -> Encrypted[Any]:
            self.seen.append((to, body, ctx.saved))
            result = self.act(ctx, body)
            return await result if asyncio.iscoroutine(result) else result

        @app.job(queue="mail", retries=0)
        def post(to: str, body: Encrypted[str]) -> str:
            self.seen.append((to, body, None))
            return "posted"

        @app.job(queue="mail", retries=0)
        async def checked(body: Annotated[Encrypted[str], AfterValidator(picky)]) -> None:
            self.seen.append(body)

        return app

    def stranger(self) -> App:
        """A producer that knows none of the types."""
        return App("shop", namespace="shop", store=self.store)

    async def work(self, app: App) -> list[str]:
        """Run what is due until nothing is."""
        return await Pass(self.store, app.registry, tuple(app.middlewares)).run(MAIL, 1000)

    async def args(self, job_id: str) -> dict[str, Any]:
        """The arguments of a job as they are stored."""
        view = await self.store.get(MAIL, job_id)
        assert view is not None
        args: dict[str, Any] = json.loads(open_envelope(view.envelope).args)
        return args

    async def all(self) -> str:
        """Everything that the store holds, as text."""
        if isinstance(self.store, MemoryStore):
            return repr(vars(self.store._queue(MAIL)))
        world = RedisWorld(RedisStore(self.url), self.url, MAIL)
        try:
            return repr(await world.dump())
        finally:
            await world.close()

    async def scan(self) -> dict[str, int]:
        """Jobs per key id, by looking at all that is stored of each."""
        counts: Counter[str] = Counter()
        for state in State:
            if state is State.PAUSED:
                continue
            for view in await self.store.list(MAIL, state, limit=500):
                whole = view.envelope + b" " + (view.checkpoint or b"") + b" " + (view.result or b"")
                counts.update(set(SEALED.findall(whole.decode())))
        return dict(counts)


@pytest.fixture(params=["redis", "memory"])
async def shop(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[Shop]:
    if request.param == "redis":
        server.flush()
        made = Shop(RedisStore(server.url), server.url)
    else:
        made = Shop(MemoryStore())
    yield made
    await made.store.close()


def sealed(key: str, value: Any, job_type: str = "send", field: str = "body") -> str:
    """A value as a producer with `key` seals it."""
    name, _, digits = key.partition(":")
    return KeyRing({name: bytes.fromhex(digits)}).seal(json.dumps(value).encode(), bound_to(job_type, field))


# --- everywhere, and opened just before the run


@pytest.mark.covers("RT-170", "RT-179", "FM-62")
async def test_what_a_run_leaves_is_sealed_or_scrubbed_and_the_next_run_has_it_in_plain(shop: Shop) -> None:
    app = shop.app()

    async def fail(ctx: Context, body: str) -> None:
        await ctx.checkpoint({"got": body, "n": 1})
        await ctx.progress({"last": f"<{body}>"})
        ctx.log(f"tried {body}", body=body)
        try:
            raise KeyError(body)
        except KeyError as error:
            raise ValueError(f"no luck with {body!r}") from error

    shop.act = fail
    job = await send_of(app).enqueue("ann", SECRET)
    assert key_of((await shop.args(job.id))["body"]) == "k1"
    await shop.work(app)

    info = await job.info()
    assert info is not None
    assert (info.state, info.attempts) == (State.DELAYED, 1)
    assert key_of(info.checkpoint) == "k1"
    assert info.progress == {"last": "<[REDACTED]>"}
    assert json.loads(info.log[0])["msg"] == "tried [REDACTED]"
    assert info.failures[0].message == "no luck with '[REDACTED]'"
    assert "KeyError: '[REDACTED]'" in info.failures[0].trace
    assert [report.message for report in await app.errors("mail")] == ["no luck with '[REDACTED]'"]
    assert SECRET not in await shop.all()

    shop.act = lambda ctx, body: {"said": body}
    await shop.store.promote(MAIL, [job.id])
    await shop.work(app)

    assert shop.seen == [("ann", SECRET, None), ("ann", SECRET, {"got": SECRET, "n": 1})]
    assert await job.result(timeout=5) == {"said": SECRET}
    done = await job.info()
    assert done is not None
    assert key_of(done.result) == "k1"
    assert done.checkpoint is None
    assert SECRET not in await shop.all()


@pytest.mark.covers("RT-170", "RT-179")
async def test_a_discarded_job_keeps_its_reason_without_the_value(shop: Shop) -> None:
    app = shop.app()

    def discard(ctx: Context, body: str) -> None:
        raise Discard(f"spam: {body}")

    shop.act = discard
    job = await send_of(app).enqueue("ann", SECRET)
    await shop.work(app)

    info = await job.info()
    assert info is not None
    assert (info.state, info.reason) == (State.FAILED, "spam: [REDACTED]")
    with pytest.raises(JobFailed) as caught:
        await job.result(timeout=1)
    assert SECRET not in str(caught.value) + await shop.all()


@pytest.mark.covers("RT-170")
async def test_a_function_in_a_thread_and_the_sync_twin_seal_alike(shop: Shop) -> None:
    app = shop.app()
    producer = apart(shop, app)

    def enqueue() -> str:
        try:
            return producer.sync.enqueue("post", {"to": "ann", "body": SECRET}, queue="mail").id
        finally:
            producer.sync.close()

    job_id = await asyncio.to_thread(enqueue)
    assert key_of((await shop.args(job_id))["body"]) == "k1"
    assert SECRET not in await shop.all()
    await shop.work(app)

    assert shop.seen == [("ann", SECRET, None)]
    assert await app.ref("mail", job_id).result(timeout=5) == "posted"
    assert await app.keys("mail") == {}


# --- rotation


@pytest.mark.covers("RT-173", "RT-172", "RT-182")
async def test_a_retry_seals_again_with_the_current_key(shop: Shop) -> None:
    old, new = shop.app(ONE), shop.app(BOTH)

    async def fail(ctx: Context, body: str) -> None:
        raise ValueError("again")

    job = await send_of(old).enqueue("ann", SECRET)
    await shop.store.checkpoint(
        MAIL, (await claim(shop)).lease, json.dumps(sealed(ONE, 7, field="@checkpoint")).encode()
    )
    await give_back(shop)
    assert await new.keys("mail") == await shop.scan() == {"k1": 1}
    shop.act = fail
    await shop.work(new)

    view = await shop.store.get(MAIL, job.id)
    assert view is not None
    assert view.sealed == "ak2,ck2"
    assert key_of((await shop.args(job.id))["body"]) == "k2"
    assert await new.keys("mail") == await shop.scan() == {"k2": 1}
    shop.act = lambda ctx, body: None
    await shop.store.promote(MAIL, [job.id])
    await shop.work(shop.app(TWO))
    assert shop.seen[-1] == ("ann", SECRET, 7)
    assert await new.keys("mail") == await shop.scan() == {}


@pytest.mark.covers("RT-173")
async def test_a_checkpoint_of_the_run_itself_is_not_written_over_by_the_older_one(shop: Shop) -> None:
    old, new = shop.app(ONE), shop.app(BOTH)

    async def fail(ctx: Context, body: str) -> None:
        await ctx.checkpoint((ctx.saved or 0) + 1)
        raise ValueError("again")

    shop.act = fail
    job = await send_of(old).options(retries=5).enqueue("ann", SECRET)
    for app in (old, new, new):
        await shop.work(app)
        await shop.store.promote(MAIL, [job.id])
    await shop.work(new)

    assert [saved for _, _, saved in shop.seen] == [None, 1, 2, 3]


@pytest.mark.covers("RT-173", "RT-180")
async def test_an_edit_seals_with_the_current_key_and_takes_its_own_sealed_values_back(shop: Shop) -> None:
    old, new = shop.app(ONE), shop.app(BOTH)
    job = await send_of(old).enqueue_in(3600, "ann", SECRET)
    seen = await job.info()
    assert seen is not None
    assert seen.args is not None

    same = {**seen.args, "to": "bob"}
    assert await new.edit("mail", job.id, seen.revision, args=same) == "ok"
    assert key_of((await shop.args(job.id))["body"]) == "k2"
    assert await new.keys("mail") == {"k2": 1}
    await new.edit("mail", job.id, seen.revision + 1, args={"to": "eve", "body": seen.args["body"]})
    await shop.store.promote(MAIL, [job.id])
    await shop.work(new)

    # The first value stood in the job that was edited; the second came from elsewhere, and is just a text.
    assert shop.seen == [("eve", seen.args["body"], None)]


@pytest.mark.covers("RT-173", "RT-174")
async def test_a_redrive_seals_with_the_current_key_in_the_same_step(shop: Shop) -> None:
    old, new = shop.app(ONE), shop.app(BOTH)

    def bury(ctx: Context, body: str) -> None:
        raise ValueError("no")

    shop.act = bury
    jobs = [await send_of(old).options(retries=0).enqueue("ann", f"{SECRET}{n}") for n in range(3)]
    await shop.work(old)
    seen = await jobs[0].info()
    assert seen is not None

    assert await new.redrive(seen.id, seen.digest, queue="mail") == "ok"
    assert await new.redrive(seen.id, seen.digest, queue="mail") == "conflicted"
    assert (await new.redrive_all(await new.plan_redrive("mail"))).ok == 2
    assert await new.keys("mail") == await shop.scan() == {"k2": 3}
    shop.act = lambda ctx, body: None
    await shop.work(shop.app(TWO))
    assert sorted(body for _, body, _ in shop.seen[3:]) == [f"{SECRET}{n}" for n in range(3)]


# --- what cannot be opened


@pytest.mark.covers("RT-174", "FM-62")
@pytest.mark.parametrize("how", ["field", "type", "altered", "cut", "stranger", "checkpoint"])
async def test_what_cannot_be_opened_is_dead_as_it_is_and_never_runs(shop: Shop, how: str) -> None:
    app = shop.app()
    good = sealed(ONE, SECRET)
    body = {
        "field": sealed(ONE, SECRET, field="to"),
        "type": sealed(ONE, SECRET, job_type="post"),
        "altered": good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
        "cut": good[:24],
        "stranger": sealed(TWO, SECRET),
        "checkpoint": good,
    }[how]
    schema = app.registry["send"].schema_hash
    envelope = seal(Envelope(type="send", args=json.dumps({"to": "a", "body": body}).encode(), schema=schema))
    await shop.store.enqueue(
        MAIL, [NewJob(id="a", type="send", envelope=envelope, sealed=key_of(body) or "k1")]
    )
    if how == "checkpoint":
        wrong = json.dumps(sealed(ONE, SECRET)).encode()
        await shop.store.checkpoint(MAIL, (await claim(shop)).lease, wrong)
        await give_back(shop)
    await shop.work(app)

    view = await shop.store.get(MAIL, "a")
    assert view is not None
    assert (view.state, view.reason, view.envelope) == (State.DEAD, "decryption_error", envelope)
    assert shop.seen == []
    told = view.failures[0]
    assert told.error_class == "dockwork.errors.DecryptionError"
    field = "@checkpoint" if how == "checkpoint" else "body"
    assert told.message.startswith(f"send: {field} cannot be opened: ")
    assert body not in told.message + told.trace
    assert SECRET not in await shop.all()
    info = await app.ref("mail", "a").info()
    assert info is not None
    if how == "stranger":
        both = shop.app(f"{ONE},{TWO}")
        assert await both.redrive("a", info.digest, queue="mail") == "ok"
        await shop.work(both)
        assert shop.seen == [("a", SECRET, None)]


@pytest.mark.covers("RT-175")
async def test_pinned_names_outlive_a_rename_and_an_unpinned_rename_is_dead(shop: Shop) -> None:
    def renamed(pinned: bool) -> App:
        app = App("shop", namespace="shop", store=shop.store, encryption=Encryption(keys=ONE))
        if pinned:

            @app.job(name="send", queue="mail")
            async def deliver(to: str, text: Encrypted[str, Literal["body"]], n: int = 0) -> None:
                shop.seen.append((to, text))
        else:

            @app.job(name="send", queue="mail")
            async def deliver(to: str, text: Encrypted[str], n: int = 0) -> None:
                shop.seen.append((to, text))

        return app

    before = shop.app()
    lost = await send_of(before).enqueue("ann", SECRET)
    await shop.work(renamed(pinned=False))
    kept = await send_of(before).enqueue("bob", SECRET)
    await shop.work(renamed(pinned=True))

    info = await lost.info()
    assert info is not None
    assert (info.state, info.reason) == (State.DEAD, "decryption_error")
    assert "send: body cannot be opened" in info.failures[0].message
    assert shop.seen == [("bob", SECRET)]
    assert await kept.state() is State.COMPLETED
    by_old_name = await renamed(pinned=True).enqueue("send", {"to": "c", "body": SECRET}, queue="mail")
    assert key_of((await shop.args(by_old_name.id))["body"]) == "k1"
    assert await before.redrive(info.id, info.digest, queue="mail") == "ok"
    await shop.work(before)
    assert ("ann", SECRET, None) in shop.seen


async def test_a_worker_of_before_parks_a_job_whose_field_is_sealed_now(shop: Shop) -> None:
    before = App("shop", namespace="shop", store=shop.store)

    @before.job(name="send", queue="mail")
    async def old_send(to: str, body: str, n: int = 0) -> None:
        shop.seen.append((to, body))

    app = shop.app()
    job = await send_of(app).enqueue("ann", SECRET)
    await shop.work(before)
    assert (shop.seen, await job.state()) == ([], State.PARKED)
    await shop.work(app)
    assert shop.seen == [("ann", SECRET, None)]


# --- no keys


@pytest.mark.covers("RT-176")
async def test_without_a_ring_nothing_is_stored_and_a_worker_does_not_start(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    for keys, said in (
        (None, "there is no key for encrypted values: set DOCKWORK_PAYLOAD_KEY to what `openssl rand"),
        ("k1:abc", "key 1: expected 32 bytes"),
    ):
        app = shop.app(keys)
        with pytest.raises(EncryptionError, match=said):
            await send_of(app).enqueue("ann", SECRET)
        with pytest.raises(EncryptionError, match=said):
            await app.enqueue("send", {"to": "ann", "body": SECRET}, queue="mail")
        with pytest.raises(EncryptionError, match=said):
            await app.enqueue_many([send_of(app).item("ann", SECRET)])

        assert await app.worker(queues={"mail": 1}, trap_signals=False).run() == 3
        assert said in caplog.text
    assert not any((await shop.store.stats(MAIL)).counts.values())
    assert SECRET not in caplog.text


@pytest.mark.covers("RT-176")
async def test_a_job_met_without_keys_goes_back_uncounted_and_claims_stop(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lane.FAILED_FOR == 5.0
    monkeypatch.setattr(lane, "FAILED_FOR", 0.5)
    file = tmp_path / "keys"
    file.write_text(ONE)
    app = shop.app(None, file=file)
    worker = app.worker(queues={"mail": 2}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    await until_async(partial(answer, lambda: worker.is_running))

    file.unlink()
    jobs = [await send_of(shop.app(ONE)).enqueue("ann", SECRET) for _ in range(2)]
    views = await until_async(lambda: put_back(shop, [job.id for job in jobs]))
    stopped_for = worker.lanes[0]._failed_until - asyncio.get_running_loop().time()

    assert 0 < stopped_for <= 0.5
    for view in views:
        assert (view.state, view.attempts, view.deliveries) == (State.READY, 0, 0)
        assert view.failures == ()
    totals = (await shop.store.stats(MAIL)).totals
    assert totals["interrupted:no_keys"] >= 1
    file.write_text(ONE)
    assert [await job.result(timeout=10) for job in jobs] == [SECRET, SECRET]
    await worker.shutdown()
    assert await running == 0


# --- plain values


@pytest.mark.covers("RT-177", "RT-182")
async def test_an_older_plain_value_runs_and_is_sealed_at_the_next_write(shop: Shop) -> None:
    app = shop.app()
    job = await shop.stranger().enqueue("send", {"to": "ann", "body": SECRET}, queue="mail")
    assert SECRET in await shop.all()
    info = await app.ref("mail", job.id).info()
    assert info is not None
    assert info.args == {"to": "ann", "body": "[withheld: not sealed]"}

    def fail(ctx: Context, body: str) -> None:
        raise Retry(after=3600, reason=f"not yet {body}")

    shop.act = fail
    await shop.work(app)

    assert shop.seen == [("ann", SECRET, None)]
    assert key_of((await shop.args(job.id))["body"]) == "k1"
    assert await app.keys("mail") == await shop.scan() == {"k1": 1}
    assert SECRET not in await shop.all()


@pytest.mark.covers("RT-177")
async def test_where_plain_values_are_refused_the_job_is_dead_without_its_arguments(shop: Shop) -> None:
    app = shop.app(allow_plaintext=False)
    job = await shop.stranger().enqueue("send", {"to": "ann", "body": SECRET}, queue="mail")
    await shop.work(app)

    info = await app.ref("mail", job.id).info()
    assert info is not None
    assert (info.state, info.reason, info.args) == (State.DEAD, "decryption_error", {})
    assert info.failures[0].message == (
        "send: body cannot be opened: it is not sealed, and plain values are refused"
    )
    assert shop.seen == []
    assert SECRET not in await shop.all()
    assert (await shop.store.stats(MAIL)).bytes == 0
    sealed_one = await send_of(app).enqueue("ann", SECRET)
    await shop.work(app)
    assert await sealed_one.result(timeout=5) == SECRET


@pytest.mark.covers("RT-178", "FM-62")
async def test_a_parse_error_of_such_a_type_says_nothing_of_the_payload(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    app, stranger = shop.app(), shop.stranger()
    wrong = await stranger.enqueue("send", {"to": "ann", "body": {SECRET: SECRET}}, queue="mail")
    raising = await stranger.enqueue("checked", {"body": f"picky {SECRET}"}, queue="mail")
    torn = b'{"v":1,"type":"send","args":{"body":"' + SECRET.encode()
    await shop.store.enqueue(MAIL, [NewJob(id="torn", type="send", envelope=torn)])
    await shop.work(app)

    views = {name: await shop.store.get(MAIL, name) for name in (wrong.id, raising.id, "torn")}
    said = {view.id: (view.state, view.reason) for view in views.values() if view is not None}
    assert said == {
        wrong.id: (State.DEAD, "invalid_args"),
        raising.id: (State.DEAD, "attempts"),
        "torn": (State.DEAD, "undecodable"),
    }
    for view in views.values():
        assert view is not None
        assert all(SECRET not in failure.message + failure.trace for failure in view.failures)
    assert SECRET not in caplog.text
    # What can be read is sealed where it lies; what cannot keeps its bytes, for repair by hand.
    assert key_of((await shop.args(wrong.id))["body"]) == "k1"
    assert views["torn"] is not None
    assert views["torn"].envelope == torn
    assert shop.seen == []


# --- who seals


@pytest.mark.covers("RT-180")
async def test_plain_values_by_name_in_bulk_and_by_the_command_are_sealed_before_they_are_stored(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = shop.app()
    plain = {"to": "ann", "body": SECRET}
    jobs = [await app.enqueue("send", plain, queue="mail")]
    admissions = await app.enqueue_many([app.item("send", plain, queue="mail"), send_of(app).item(**plain)])
    module = types.ModuleType("sealed_shop")
    module.app = apart(shop, app)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sealed_shop", module)
    command = ["enqueue", "sealed_shop:app", "send", "--args", json.dumps(plain), "-o", "json"]
    done = await asyncio.to_thread(CliRunner().invoke, main, command)

    assert done.exit_code == 0, done.output
    ids = [jobs[0].id, *(admission.id for admission in admissions), json.loads(done.output)["id"]]
    for job_id in ids:
        assert key_of((await shop.args(job_id))["body"]) == "k1"
    assert SECRET not in await shop.all()
    assert await app.keys("mail") == {"k1": 4}


@pytest.mark.covers("RT-181")
async def test_no_job_is_found_by_its_sealed_form_and_digests_skip_it_without_a_digest_key(
    shop: Shop,
) -> None:
    app, counting = shop.app(), shop.app(digest_key=b"0123456789abcdef")
    first = await send_of(app).options(idempotency_key="a").enqueue("ann", SECRET)
    again = await send_of(app).options(idempotency_key="a").enqueue("ann", SECRET)
    other = await send_of(app).options(idempotency_key="a").enqueue("ann", "another text")
    assert first.id == again.id == other.id
    with pytest.raises(KeyReuse):
        await send_of(app).options(idempotency_key="a").enqueue("bob", SECRET)

    one = await send_of(counting).options(idempotency_key="b").enqueue("ann", SECRET)
    assert (await send_of(counting).options(idempotency_key="b").enqueue("ann", SECRET)).id == one.id
    with pytest.raises(KeyReuse):
        await send_of(counting).options(idempotency_key="b").enqueue("ann", "another text")
    same = [await send_of(counting).options(unique=Unique()).enqueue("ann", SECRET) for _ in range(2)]
    assert same[0].id == same[1].id
    assert SECRET not in await shop.all()


# --- counting and sealing anew


@pytest.mark.covers("RT-182", "RT-173", "FM-62")
@pytest.mark.parametrize("seed", range(20 if os.environ.get("DOCKWORK_TEST_FULL") else 2))
async def test_the_counts_per_key_equal_a_full_scan_whatever_happens(shop: Shop, seed: int) -> None:
    dice = random.Random(seed)
    apps = [shop.app(ONE), shop.app(BOTH), shop.app(f"{ONE},{TWO}")]

    async def act(ctx: Context, body: str) -> Any:
        if dice.random() < 0.4:
            await ctx.checkpoint(body)
        fate = dice.random()
        if fate < 0.3:
            raise Retry(after=3600)
        if fate < 0.4:
            raise Discard("no")
        return body if fate < 0.8 else None

    async def enqueue(app: App) -> None:
        options: dict[str, Any] = dice.choice(
            [{}, {"retries": 0}, {"keep": Keep.none}, {"repeat": Repeat.every(3600, times=3)},
             {"unique": Unique(str(dice.randrange(3)), on_conflict="replace")}]
        )  # fmt: skip
        with suppress(UniqueConflict):
            await send_of(app).options(**options).enqueue("ann", SECRET)

    async def some(*states: State) -> str | None:
        ids = [view.id for state in states for view in await shop.store.list(MAIL, state, limit=500)]
        return dice.choice(ids) if ids else None

    shop.act = act
    for step in range(40):
        app = dice.choice(apps)
        match dice.randrange(9):
            case 0 | 1 | 2:
                await enqueue(app)
            case 3 | 4:
                await shop.work(app)
            case 5:
                if job_id := await some(State.DELAYED):
                    await shop.store.promote(MAIL, [job_id])
            case 6:
                if job_id := await some(State.DEAD, State.FAILED, State.CANCELLED):
                    await app.retry("mail", job_id)
            case 7:
                if job_id := await some(State.READY, State.DELAYED):
                    await shop.store.cancel(MAIL, job_id)
            case 8:
                await dice.choice([app.reseal, app.repair, lambda queue: trim(shop)])("mail")
        assert await app.keys("mail") == await shop.scan(), (seed, step)
        assert (await shop.store.sample(MAIL, horizon_ms=0)).sealed == await app.keys("mail"), (seed, step)

    await apps[1].reseal("mail")
    assert set(await apps[1].keys("mail")) <= {"k2"}
    for state in sorted(ENDED):
        await apps[1].purge(await apps[1].plan_purge("mail", state=state))
    assert await apps[1].keys("mail") == await shop.scan()
    await apps[1].obliterate("mail", confirm="mail")
    assert await apps[1].keys("mail") == {}


@pytest.mark.covers("RT-183", "RT-182")
async def test_reseal_rewrites_waiting_and_kept_jobs_and_is_repeatable(shop: Shop) -> None:
    old, new, stranger = shop.app(ONE), shop.app(BOTH), shop.stranger()

    def act(ctx: Context, body: str) -> str:
        if body.startswith("bury"):
            raise Discard("no")
        return body

    shop.act = act
    done = await send_of(old).enqueue("ann", "done " + SECRET)
    buried = await send_of(old).enqueue("ann", "bury " + SECRET)
    await shop.work(old)
    waiting = [
        await send_of(old).enqueue("ann", SECRET),
        await send_of(old).enqueue_in(3600, "ann", SECRET),
        await send_of(old).options(priority=-5).enqueue("ann", SECRET),
    ]
    plain = await stranger.enqueue("send", {"to": "ann", "body": SECRET}, queue="mail")
    foreign = await stranger.enqueue("unknown", {"x": sealed(ONE, 1, "unknown", "x")}, queue="mail")
    before = {job.id: (await shop.store.get(MAIL, job.id)) for job in (done, buried, *waiting, plain)}
    assert await new.keys("mail") == {"k1": 6}
    told: list[int] = []

    report = await new.reseal("mail", told=lambda so_far: told.append(so_far.written))

    assert (report.written, report.unknown, report.refused, report.left) == (6, 1, 0, {"k1": 1})
    assert told[-1] == 6
    assert await new.keys("mail") == await shop.scan() == {"k1": 1, "k2": 6}
    for job_id, old_view in before.items():
        view = await shop.store.get(MAIL, job_id)
        assert view is not None
        assert old_view is not None
        assert (view.state, view.attempts, view.deliveries) == (
            old_view.state,
            old_view.attempts,
            old_view.deliveries,
        )
        assert view.revision == old_view.revision + 1
    assert (await new.reseal("mail")).written == 0
    assert SECRET not in await shop.all()
    assert not (await new.repair("mail")).counters
    await shop.store.promote(MAIL, [waiting[1].id])
    await shop.work(shop.app(TWO))
    assert [body for _, body, _ in shop.seen[2:]] == [SECRET] * 4
    typed = new.client.ref("mail", done.id, job_type=new.registry["send"])
    assert await typed.result(timeout=5) == "done " + SECRET
    assert await foreign.state() is State.PARKED


@pytest.mark.covers("RT-183")
async def test_reseal_writes_over_nothing_that_changed_meanwhile(shop: Shop) -> None:
    old, new = shop.app(ONE), shop.app(BOTH)
    edited = await send_of(old).enqueue("ann", SECRET)
    taken = await send_of(old).enqueue("ann", SECRET)
    page = await shop.store.sealed(MAIL, State.READY, offset=0, key="k2", types=["send"])
    changes = [
        Reseal(id=job.id, digest=job.digest, keys="ak2", envelope=job.envelope.replace(b"k1", b"k2"))
        for job in page.jobs
    ]
    assert [change.id for change in changes] == [edited.id, taken.id]
    await new.edit("mail", edited.id, 0, args={"to": "bob", "body": SECRET})
    await new.reprioritise("mail", taken.id, 0, -5)
    assert (await claim(shop)).job_id == taken.id
    gone = Reseal(id="nobody", digest=changes[0].digest, keys="ak2", envelope=b"{}")

    said = await shop.store.reseal(MAIL, [*changes, gone])

    assert said == [Resealing.CONFLICTED, Resealing.RUNNING, Resealing.MISSING]
    assert (await shop.args(edited.id))["to"] == "bob"


@pytest.mark.covers("RT-183", "RT-177")
async def test_reseal_leaves_what_it_cannot_open_and_names_it(shop: Shop) -> None:
    lost = await send_of(shop.app("gone:" + "33" * 32)).enqueue("ann", SECRET)
    plain = await shop.stranger().enqueue("send", {"to": "ann", "body": SECRET}, queue="mail")
    strict = shop.app(BOTH, allow_plaintext=False)

    report = await strict.reseal("mail")

    assert (report.written, report.refused, set(report.unopened)) == (0, 2, {lost.id, plain.id})
    assert report.left == {"gone": 1}
    with pytest.raises(EncryptionError):
        await shop.app(None).reseal("mail")


@pytest.mark.covers("RT-182", "RT-183")
async def test_schedules_count_with_their_keys_and_are_sealed_anew(shop: Shop) -> None:
    old, new = shop.app(ONE), shop.app(BOTH)
    await old.schedule(send_of(old).options(priority=-3).item("ann", SECRET), every=3600, name="hourly")
    await old.schedule(old.registry["post"].item("ann", SECRET), cron="0 9 * * *")
    await shop.stranger().schedule(
        shop.stranger().item("send", {"to": "plain", "body": SECRET}, queue="mail"), every=60, name="plain"
    )
    assert await new.keys("mail") == {"k1": 2}
    before = await shop.store.cron_states(MAIL)

    report = await new.reseal("mail")

    assert (report.written, report.refused, report.left) == (3, 0, {})
    assert await new.keys("mail") == {"k2": 3}
    assert SECRET not in await shop.all()
    after = {state.uid: (state.schedule_hash, state.next_ms) for state in await shop.store.cron_states(MAIL)}
    assert after == {state.uid: (state.schedule_hash, state.next_ms) for state in before}
    assert (await new.reseal("mail")).written == 0
    said = await shop.store.reseal_schedule(MAIL, "hourly", "0" * 40, key="k2", envelope=b"{}")
    gone = await shop.store.reseal_schedule(MAIL, "nobody", "0" * 40, key="k2", envelope=b"{}")
    assert (said, gone) == (Resealing.CONFLICTED, Resealing.MISSING)
    await tick_now(shop, "hourly")
    await shop.work(shop.app(TWO))
    assert ("ann", SECRET, None) in shop.seen
    for uid in after:
        await new.unschedule(uid, queue="mail")
    assert await new.keys("mail") == await shop.scan()


@pytest.mark.covers("RT-170", "RT-182")
async def test_a_result_alone_may_be_sealed(shop: Shop) -> None:
    app = shop.app()

    @app.job(queue="mail")
    async def look_up(name: str) -> Encrypted[str]:
        return f"{name}: {SECRET}"

    @app.job(queue="mail")
    async def nothing(name: str) -> Encrypted[str | None]:
        return None

    job, empty = await look_up.enqueue("ann"), await nothing.enqueue("ann")
    assert await app.keys("mail") == {}
    await shop.work(app)

    assert await job.result(timeout=5) == f"ann: {SECRET}"
    assert await app.ref("mail", job.id).result(timeout=5) == f"ann: {SECRET}"
    assert await empty.result(timeout=5) is None
    assert SECRET not in await shop.all()
    assert await app.keys("mail") == await shop.scan() == {"k1": 1}


async def test_a_result_that_cannot_be_opened_says_so(shop: Shop) -> None:
    job = await send_of(shop.app(ONE)).enqueue("ann", SECRET)
    await shop.work(shop.app(ONE))
    stranger = shop.app(TWO)

    typed = stranger.client.ref("mail", job.id, job_type=stranger.registry["send"])
    with pytest.raises(DecryptionError, match="send: @result cannot be opened: key k1 is not in the ring"):
        await typed.result(timeout=5)
    with pytest.raises(DecryptionError, match="send: @result cannot be opened"):
        await stranger.ref("mail", job.id).result(timeout=5)
    untyped = await shop.stranger().ref("mail", job.id).result(timeout=5)
    assert key_of(untyped) == "k1", "who does not know the type cannot know that its result is sealed"


async def test_a_repeating_job_is_sealed_anew_after_each_run(shop: Shop) -> None:
    old, new = shop.app(ONE), shop.app(BOTH)
    job = await send_of(old).options(repeat=Repeat.immediate(times=2)).enqueue("ann", SECRET)
    await shop.work(new)

    assert [body for _, body, _ in shop.seen] == [SECRET, SECRET]
    assert await new.keys("mail") == await shop.scan() == {"k2": 1}
    typed = new.client.ref("mail", job.id, job_type=new.registry["send"])
    assert await typed.result(timeout=5) == SECRET


async def test_the_bench_of_an_apps_own_tests_needs_no_key_and_shows_what_was_enqueued() -> None:
    shop = Shop(MemoryStore())
    app = shop.app(None)
    async with app.testing() as bench:
        job = await send_of(app).enqueue("ann", SECRET)
        bench.assert_enqueued(send_of(app), body=SECRET)
        assert bench.jobs("mail")[0].args == {"to": "ann", "body": SECRET}
        (ran,) = await bench.run_all()
        assert key_of(ran.result) == "test"
        assert await job.result(timeout=5) == SECRET
    with pytest.raises(EncryptionError):
        await send_of(app).enqueue("ann", SECRET)


# --- the whole of it, looked at from outside


@pytest.fixture(scope="module")
def recorder() -> Iterator[RedisServer]:
    """A Redis whose files are not compressed, so that what they hold can be looked for."""
    with RedisServer(aof=True, options=["--rdbcompression", "no"]) as running:
        yield running


@pytest.mark.covers("FM-62", "RT-170", "RT-179")
async def test_no_dump_no_command_no_event_and_no_log_has_a_secret(
    recorder: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("DEBUG")
    show_jobs()
    shop = Shop(RedisStore(recorder.url), recorder.url)
    app, new = shop.app(ONE), shop.app(BOTH)
    world = RedisWorld(shop.store, recorder.url, MAIL)  # type: ignore[arg-type]
    reports: list[str] = []
    app.on_error(lambda report: reports.append(f"{report.message} {report.trace}"))
    commands: list[str] = []

    async def act(ctx: Context, body: str) -> str:
        ctx.log(body, body=body)
        await ctx.progress(body)
        await ctx.checkpoint([body])
        if "fail" in body:
            raise ValueError({"body": body, "as": json.dumps(body), "b": body.encode()})
        return body

    async def listen(ready: asyncio.Event) -> None:
        async with world.redis.monitor() as monitor:
            ready.set()
            async for each in monitor.listen():
                commands.append(str(each["command"]))

    ready = asyncio.Event()
    listening = asyncio.create_task(listen(ready))
    await ready.wait()
    try:
        shop.act = act
        for n, body in enumerate((SECRET, f"fail {SECRET}", f"fail again {SECRET}")):
            await send_of(app).options(idempotency_key=str(n), unique=Unique()).enqueue(str(n), body)
        await shop.work(app)
        for view in await shop.store.list(MAIL, State.DELAYED):
            await shop.store.promote(MAIL, [view.id])
        await shop.work(new)
        await new.reseal("mail")
        await new.redrive_all(await new.plan_redrive("mail"))
        await shop.work(new)
        await world.redis.echo("the end")
        await until_async(partial(answer, lambda: "the end" in "".join(commands)))
        await world.redis.execute_command("SAVE")
        files = [path for path in recorder.folder.rglob("*") if path.is_file() and path.suffix != ".log"]
        whole = b"".join(path.read_bytes() for path in files)
        events = await world.events()
        dump = await shop.all()
    finally:
        listening.cancel()
        SHOWN_JOBS.setLevel("CRITICAL")
        await world.close()

    assert len(files) >= 2
    assert b"dwe1:k1:" in whole
    assert b"dwe1:k2:" in whole
    assert len(reports) >= 2
    assert len(shop.seen) >= 5
    for name, text in {
        "files": whole.decode("latin-1"),
        "commands": "".join(commands),
        "events": str(events),
        "dump": dump,
        "reports": str(reports),
        "log": caplog.text + "".join(str(vars(record)) for record in caplog.records),
    }.items():
        assert SECRET not in text, name
        assert "dwe1" in text or name in ("events", "reports", "log"), name
    assert "[REDACTED]" in str(reports)
    failed = [record for record in caplog.records if getattr(record, "dockwork_event", "") == "run_failed"]
    assert failed
    for line in (TextFormatter().format(record) for record in failed):
        first, second, *_ = line.splitlines()
        assert "[REDACTED]" in first
        assert " job_type=send " in first, "the pairs stand before the trace, as of any other type"
        assert second.startswith("Traceback ")


@pytest.mark.covers("RT-170", "RT-179")
async def test_a_child_process_opens_and_seals_as_its_worker_does(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.flush()
    monkeypatch.setenv("DOCKWORK_REDIS_URL", server.url)
    monkeypatch.setenv("DOCKWORK_NAMESPACE", "shop")
    monkeypatch.setenv("DOCKWORK_PAYLOAD_KEYS", BOTH)
    monkeypatch.setenv("PYTHONPATH", str(Path(sealed_app.__file__).parents[1]))
    monkeypatch.delitem(vars(sealed_app.app), "settings", raising=False)
    shop = Shop(RedisStore(server.url), server.url)
    worker = sealed_app.app.worker(queues={"mail": 1}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    try:
        job = await sealed_app.charge.enqueue(SECRET)
        card, pid, saved = await job.result(timeout=30)
        info = await job.info()
        kept = await shop.all()
    finally:
        await worker.shutdown()
        await running
        await sealed_app.app.close()
        await shop.store.close()

    assert (card, saved) == (SECRET, {"card": SECRET})
    assert pid != os.getpid()
    assert info is not None
    assert info.failures[0].message == "declined: [REDACTED]"
    assert info.progress == "charging [REDACTED]"
    assert SECRET not in kept


async def answer(ask: Callable[[], T]) -> T:
    return ask()


def apart(shop: Shop, app: App) -> App:
    """The same job types for another thread: on Redis with connections of its own."""
    if not shop.url:
        return app
    made = App("shop", namespace="shop", redis=shop.url)
    for job_type in app.registry.values():
        made.registry.add(job_type)
    return made


def send_of(app: App) -> Any:
    return app.registry["send"]


async def claim(shop: Shop) -> Any:
    (one,) = (await shop.store.claim(MAIL, ANN, number=next(NUMBERS), slots=1)).claims
    return one


async def give_back(shop: Shop) -> None:
    running = [
        view for state in (State.ACTIVE, State.PROCESSING) for view in await shop.store.list(MAIL, state)
    ]
    await shop.store.requeue(MAIL, ANN, [Lease(view.id, view.epoch) for view in running])


async def put_back(shop: Shop, ids: list[str]) -> list[JobView] | None:
    """These jobs, when all of them were put back at least once."""
    views = [view for job_id in ids if (view := await shop.store.get(MAIL, job_id)) is not None]
    back = all(view.interruptions >= 1 and view.state is State.READY for view in views)
    return views if back and len(views) == len(ids) else None


async def tick_now(shop: Shop, uid: str) -> None:
    """Let an interval's instant come now."""
    if isinstance(shop.store, MemoryStore):
        shop.store.advance(3600)
        await shop.store.tick(MAIL, uid)
        return
    world = RedisWorld(RedisStore(shop.url), shop.url, MAIL)
    try:
        state = json.loads(await world.redis.hget(world.keys.cron, uid))
        await world.redis.hset(
            world.keys.cron, uid, json.dumps({**state, "cursor": state["cursor"] - 3_600_000})
        )
        await world.redis.zadd(world.keys.cron_at, {uid: 0})
        await world.store.tick(MAIL, uid)
    finally:
        await world.close()


async def trim(shop: Shop) -> None:
    await shop.store.trim(MAIL)
