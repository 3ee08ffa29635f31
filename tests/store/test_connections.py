"""What happens between us and Redis: lost replies, dead connections, refusals, restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from dockwork.core.states import State
from dockwork.errors import (
    AccessDenied,
    DockworkError,
    InvalidUrl,
    OutcomeUnknown,
    ScriptFailed,
    StoreUnavailable,
)
from dockwork.settings import RedisSettings
from dockwork.store import listening, waiting
from dockwork.store.connections import Wire
from dockwork.store.protocol import Outcome, Settlement, Verdict, Wake
from dockwork.store.redis import RedisStore
from dockwork.store.scripts import script
from support.redis_proxy import RedisProxy, scripted_redis
from support.redis_server import RedisServer
from support.store_world import ANN, QUEUE, RedisWorld, a_beat, a_job
from support.waiting import until_async


@asynccontextmanager
async def proxied(server: RedisServer) -> AsyncIterator[tuple[RedisWorld, RedisProxy]]:
    """A queue whose store speaks through a proxy; the world's own client does not."""
    server.flush()
    async with RedisProxy(server.socket) as proxy:
        world = RedisWorld(RedisStore(proxy.url), server.url)
        try:
            yield world, proxy
        finally:
            await world.close()


async def eventually(world: RedisWorld) -> None:
    """The store answers again."""

    async def answers() -> bool:
        try:
            return bool(await world.store.ping())
        except StoreUnavailable:
            return False

    await until_async(answers, within=20, what="the store answers again")


@pytest.mark.covers("RT-197", "RT-066", "FM-21")
async def test_a_lost_reply_of_enqueue_is_unknown_is_not_sent_again_and_is_resolved_by_id(
    server: RedisServer,
) -> None:
    async with proxied(server) as (world, proxy):
        await world.enqueue("before")
        proxy.lose_reply(script("enqueue").sha)

        with pytest.raises(OutcomeUnknown, match="enqueue on shop/mail: the reply was lost") as unknown:
            await world.enqueue("a", "b")

        assert unknown.value.ids == ("a", "b")
        found = await unknown.value.resolve()
        assert [view.id for view in found] == ["a", "b"]
        assert (await world.totals())["enqueued"] == 3
        assert proxy.lost == 1


@pytest.mark.covers("RT-197")
async def test_an_enqueue_that_never_arrived_resolves_to_nothing(server: RedisServer) -> None:
    async with proxied(server) as (world, proxy):
        await world.enqueue("before")
        proxy.cut_before(script("enqueue").sha)

        with pytest.raises(OutcomeUnknown) as unknown:
            await world.enqueue("a")

        assert await unknown.value.resolve() == [None]


@pytest.mark.covers("RT-197", "RT-066", "RT-128", "FM-21")
async def test_a_lost_reply_of_settle_is_asked_again_by_its_number(server: RedisServer) -> None:
    async with proxied(server) as (world, proxy):
        await world.enqueue("a", "b")
        claim = await world.claim_one()
        number = world.number()

        async def settle() -> tuple[Verdict, tuple[str, ...]]:
            settled = await world.store.settle(
                world.queue,
                ANN,
                [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED)],
                number=number,
                claim_next=1,
            )
            return settled.verdicts[0], tuple(next_.job_id for next_ in settled.claimed.claims)

        proxy.lose_reply(script("settle").sha)
        with pytest.raises(OutcomeUnknown):
            await settle()

        assert await settle() == (Verdict.OK, ("b",))
        totals = await world.totals()
        assert (totals["completed"], totals["finished"], totals["claimed"]) == (1, 1, 2)


@pytest.mark.covers("RT-197", "FM-21")
@pytest.mark.parametrize(
    "name", ["start", "renew", "requeue", "progress", "promote", "reap", "expire", "trim", "cancel"]
)
async def test_after_a_lost_reply_of_any_call_the_store_goes_on(server: RedisServer, name: str) -> None:
    async with proxied(server) as (world, proxy):
        await world.enqueue("a")
        claim = await world.claim_one()
        ask = {
            "start": lambda: world.store.start(world.queue, [claim.lease]),
            "renew": lambda: world.store.renew(world.queue, [claim.lease], a_beat()),
            "requeue": lambda: world.store.requeue(world.queue, ANN, [claim.lease]),
            "progress": lambda: world.store.progress(world.queue, claim.lease, b"1"),
            "promote": lambda: world.store.promote(world.queue),
            "reap": lambda: world.store.reap(world.queue),
            "expire": lambda: world.store.expire(world.queue),
            "trim": lambda: world.store.trim(world.queue),
            "cancel": lambda: world.store.cancel(world.queue, "a"),
        }[name]
        proxy.lose_reply(script(name).sha)

        with pytest.raises(OutcomeUnknown):
            await ask()

        await ask()
        assert (await world.get("a")).id == "a"


@pytest.mark.covers("RT-197")
async def test_the_renewal_thread_asks_again_after_a_lost_reply(server: RedisServer) -> None:
    async with proxied(server) as (world, proxy):
        await world.enqueue("a")
        claim = await world.claim_one()
        channel = world.store.renewal_channel()
        await asyncio.to_thread(channel.connect)
        proxy.lose_reply(script("renew").sha)

        with pytest.raises(OutcomeUnknown, match="renew: the reply was lost"):
            await asyncio.to_thread(channel.renew, world.queue, [claim.lease], a_beat())
        with pytest.raises(StoreUnavailable):
            await asyncio.to_thread(channel.renew, world.queue, [claim.lease], a_beat())
        await asyncio.to_thread(channel.connect)

        renewal = await asyncio.to_thread(channel.renew, world.queue, [claim.lease], a_beat())
        assert renewal.verdicts == (Verdict.OK,)
        await asyncio.to_thread(channel.close)


@pytest.mark.covers("RT-198", "FM-22")
async def test_a_cancelled_call_leaves_its_late_reply_to_nobody_else(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b", "c")

    for _ in range(50):
        late = [asyncio.create_task(redis.store.get(redis.queue, "a")) for _ in range(5)]
        await asyncio.wait(late, timeout=0.0001)
        for task in late:
            task.cancel()
        view = await redis.store.get(redis.queue, "b")
        assert view is not None
        assert view.id == "b"
        await asyncio.gather(*late, return_exceptions=True)


@pytest.mark.covers("RT-198")
async def test_many_calls_share_a_connection_and_each_gets_its_own_answer(redis: RedisWorld) -> None:
    names = [f"j{n}" for n in range(300)]
    await redis.enqueue(*names)

    views = await asyncio.gather(*[redis.store.get(redis.queue, name) for name in names])

    assert [view.id for view in views if view is not None] == names


@pytest.mark.covers("RT-063")
async def test_after_a_script_flush_only_the_call_that_did_not_run_is_sent_again(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b", "c")
    await redis.redis.script_flush()

    said = await asyncio.gather(redis.enqueue("d"), redis.claim(1), redis.enqueue("e"), redis.enqueue("d"))

    assert (await redis.totals())["enqueued"] == 5
    assert len(said[1].claims) == 1
    outcomes = sorted(admission.outcome for admissions in (said[0], said[3]) for admission in admissions)
    assert outcomes == ["accepted", "duplicate"]


@pytest.mark.covers("RT-063")
async def test_replies_and_errors_are_read_without_hiredis_too(
    redis: RedisWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockwork.store.connections.find_reader", lambda: None)
    wire = await Wire.connect(redis.store._connector)
    try:
        await wire.command("HSET", "dw:hash", "a", "b")
        with pytest.raises(ScriptFailed, match="WRONGTYPE"):
            await wire.command("INCR", "dw:hash")
        long = "x" * 300_000
        await wire.command("SET", "dw:long", long)
        assert await wire.command("GET", "dw:long") == long.encode()
    finally:
        await wire.close()


@pytest.mark.covers("RT-063", "FM-23")
async def test_script_flushes_all_the_time_are_not_seen(redis: RedisWorld) -> None:
    stop = asyncio.Event()

    async def flush() -> None:
        while not stop.is_set():
            await redis.redis.script_flush()
            await asyncio.wait({stopped}, timeout=0.003)

    stopped = asyncio.create_task(stop.wait())
    flushing = asyncio.create_task(flush())
    done = 0
    for n in range(100):
        done += (await redis.enqueue(f"j{n}"))[0].outcome == "accepted"
    stop.set()
    await flushing

    assert done == 100
    assert (await redis.totals())["enqueued"] == 100


@pytest.mark.covers("RT-061", "FM-26")
async def test_a_full_redis_refuses_new_work_whole_and_finishes_running_work() -> None:
    with RedisServer() as server:
        world = RedisWorld(RedisStore(server.url), server.url)
        await world.enqueue("a", "b", "c", "d", a_job("later", due_in_ms=1000), "e")
        claims = (await world.claim(4)).claims
        channel = world.store.renewal_channel()
        await asyncio.to_thread(channel.connect)
        await world.redis.config_set("maxmemory", "1")
        before = await world.dump()

        with pytest.raises(ScriptFailed, match="script enqueue: Redis is full"):
            await world.enqueue("new", "new2")
        assert await world.dump() == before

        queue, store = world.queue, world.store
        renewal = await asyncio.to_thread(channel.renew, queue, [claim.lease for claim in claims], a_beat())
        assert renewal.verdicts == (Verdict.OK,) * 4
        assert await store.start(queue, [claims[0].lease]) == [Verdict.OK]
        assert await store.checkpoint(queue, claims[0].lease, b"1") is Verdict.OK
        assert await store.requeue(queue, ANN, [claims[3].lease]) == [Verdict.OK]
        settled = await world.settle(
            Settlement(lease=claims[0].lease, outcome=Outcome.COMPLETED, result=b"1"),
            Settlement(lease=claims[1].lease, outcome=Outcome.RETRY, delay_ms=10_000),
            Settlement(lease=claims[2].lease, outcome=Outcome.DEAD, reason="r"),
            claim_next=1,
        )
        assert settled.verdicts == (Verdict.OK,) * 3
        assert [claim.job_id for claim in settled.claimed.claims] == ["d"]
        assert await store.cancel(queue, "later") == "cancelled"
        await store.reap(queue)
        await store.trim(queue)
        assert [claim.job_id for claim in (await world.claim(5)).claims] == ["e"]
        counts = (await store.stats(queue)).counts
        assert (counts[State.COMPLETED], counts[State.DELAYED], counts[State.DEAD]) == (1, 1, 1)

        await world.redis.config_set("maxmemory", "0")
        assert [admission.outcome for admission in await world.enqueue("new")] == ["accepted"]
        await asyncio.to_thread(channel.close)
        await world.close()


@pytest.mark.covers("RT-060")
async def test_an_error_before_the_first_write_changes_nothing(redis: RedisWorld) -> None:
    """A record of the wrong type makes the last read of each script fail."""
    await redis.enqueue("a", "b")
    claims = (await redis.claim(2)).claims
    await redis.enqueue("c", a_job("d", due_in_ms=1000))
    for name in ("b", "c", "d"):
        await redis.redis.delete(redis.keys.record(name))
        await redis.redis.set(redis.keys.record(name), "not a hash")
    before = await redis.dump()
    leases = [claim.lease for claim in claims]
    calls = [
        lambda: redis.claim(5),
        lambda: redis.settle(*[Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in leases]),
        lambda: redis.store.requeue(redis.queue, ANN, leases),
        lambda: redis.store.start(redis.queue, leases),
        lambda: redis.store.renew(redis.queue, leases, None),
        lambda: redis.store.promote(redis.queue, ["d"]),
        lambda: redis.enqueue("new", "b"),
    ]

    for call in calls:
        with pytest.raises(ScriptFailed, match="WRONGTYPE"):
            await call()
        assert await redis.dump() == before


@pytest.mark.covers("RT-126", "RT-128")
async def test_killed_connections_are_replaced_and_nothing_is_lost(redis: RedisWorld) -> None:
    waiter = asyncio.create_task(redis.store.wait(redis.queue, 30))
    await redis.store.ping()
    for round_ in range(20):
        await redis.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await eventually(redis)
        assert [one.outcome for one in await redis.enqueue(f"j{round_}")] == ["accepted"]
    with pytest.raises(StoreUnavailable):
        await waiter

    assert await redis.store.wait(redis.queue, 10) == Wake(due_ms=0)
    assert (await redis.totals())["enqueued"] == 20


@pytest.mark.covers("RT-126", "RT-128", "RT-068", "FM-19")
async def test_a_killed_redis_comes_back_with_every_job_and_reaps_nobody() -> None:
    with RedisServer(aof=True) as server:
        world = RedisWorld(RedisStore(server.url), server.url)
        await world.enqueue(*[f"j{n}" for n in range(50)])
        claims = (await world.claim(10)).claims
        run_id = (await world.store.server())["run_id"]

        server.kill()
        with pytest.raises(DockworkError):
            await world.enqueue("during")
        server.start()
        await eventually(world)

        assert (await world.store.server())["run_id"] != run_id
        await world.advance(60)
        assert await world.store.reap(world.queue) == (0, 0)
        renewal = await world.store.renew(world.queue, [claim.lease for claim in claims], a_beat())
        assert renewal.verdicts == (Verdict.OK,) * 10
        settled = await world.settle(
            *[Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in claims], claim_next=50
        )
        assert settled.verdicts == (Verdict.OK,) * 10
        assert len(settled.claimed.claims) == 40
        await world.close()


@pytest.mark.covers("RT-127", "RT-197", "FM-17")
async def test_a_server_that_answers_nothing_is_given_up_by_the_watchdog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "LATE_S", 0.2)
    with RedisServer() as server:
        settings = RedisSettings(
            url=server.url, command_timeout=timedelta(seconds=0.3), connect_timeout=timedelta(seconds=1)
        )
        store = RedisStore(settings)
        await store.enqueue(QUEUE, [a_job("a")])
        assert await store.wait(QUEUE, 1) == Wake(due_ms=0)
        blocked = asyncio.create_task(store.wait(QUEUE, 0.2))
        server.hang()
        try:
            with pytest.raises(OutcomeUnknown, match="no answer in time"):
                await store.enqueue(QUEUE, [a_job("b")])
            with pytest.raises(StoreUnavailable):
                await store.enqueue(QUEUE, [a_job("c")])
            await asyncio.wait_for(asyncio.gather(blocked, return_exceptions=True), 10)
        finally:
            server.resume()
        await store.close()


@pytest.mark.covers("RT-127")
async def test_the_renewal_threads_blocking_read_has_its_watchdog_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dockwork.store import renewal

    monkeypatch.setattr(renewal, "LATE_S", 0.2)
    with RedisServer() as server:
        channel = RedisStore(server.url).renewal_channel()
        await asyncio.to_thread(channel.connect)
        server.hang()
        try:
            with pytest.raises(OutcomeUnknown, match="BLPOP: the reply was lost: TimeoutError"):
                await asyncio.to_thread(channel.wait_nudge, ANN, QUEUE, 0.1)
        finally:
            server.resume()
        await asyncio.to_thread(channel.close)


@pytest.mark.covers("RT-191", "RT-194", "RT-193", "FM-24")
async def test_a_wrong_password_is_refused_and_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with RedisServer(password="right") as server:
        right = RedisStore(server.url)
        await right.enqueue(QUEUE, [a_job("a")])
        wrong = RedisStore(server.url.replace("right", "hunter2"))
        for ask in (
            wrong.open,
            lambda: wrong.wait(QUEUE, 1),
            lambda: asyncio.to_thread(wrong.renewal_channel().connect),
        ):
            with pytest.raises(AccessDenied, match="refused the login") as denied:
                await ask()  # type: ignore[operator]
            shown: BaseException | None = denied.value
            while shown is not None:
                assert "hunter2" not in f"{shown!r} {shown}"
                shown = shown.__cause__ or shown.__context__
        assert "hunter2" not in caplog.text
        connected = server.raw("CLIENT", "LIST").decode()
        assert connected.count("name=dockwork") == 1, "a failed login closes its connection"
        await right.close()
        await wrong.close()


@pytest.mark.covers("RT-191")
async def test_a_user_in_the_url_is_an_acl_user(redis: RedisWorld) -> None:
    await redis.redis.execute_command("ACL", "SETUSER", "shop", "on", ">p+w", "~dw:*", "&dw:*", "+@all")
    path = redis.redis.connection_pool.connection_kwargs["path"]
    store = RedisStore(f"unix://shop:p+w@{path}")

    await store.enqueue(QUEUE, [a_job("a")])
    clients = await redis.redis.client_list()

    assert any(client["user"] == "shop" for client in clients)
    await store.close()
    await redis.redis.execute_command("ACL", "DELUSER", "shop")


async def test_a_command_that_the_login_may_not_run_is_named(redis: RedisWorld) -> None:
    await redis.redis.execute_command("ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-evalsha")
    path = redis.redis.connection_pool.connection_kwargs["path"]
    store = RedisStore(f"unix://poor:pw@{path}")

    with pytest.raises(AccessDenied, match="evalsha"):
        await store.enqueue(QUEUE, [a_job("a")])

    await store.close()
    await redis.redis.execute_command("ACL", "DELUSER", "poor")


@pytest.mark.covers("RT-126", "FM-25")
@pytest.mark.parametrize(
    ("answer", "error", "why"),
    [
        (b"-LOADING Redis is loading the dataset in memory\r\n", StoreUnavailable, "loading"),
        (b"-READONLY You can't write against a read only replica.\r\n", StoreUnavailable, "read_only"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", StoreUnavailable, "read_only"),
        (b"-CLUSTERDOWN The cluster is down\r\n", StoreUnavailable, "connect"),
        (b"-MISCONF Redis is configured to save RDB snapshots\r\n", StoreUnavailable, "connect"),
        (
            b"-ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -MISCONF Errors writing\r\n",
            StoreUnavailable,
            "connect",
        ),
        (b"-BUSY Redis is busy running a script\r\n", StoreUnavailable, "connect"),
        (b"-NOAUTH Authentication required.\r\n", AccessDenied, None),
        (b"-NOPERM this user has no permissions\r\n", AccessDenied, None),
        (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", ScriptFailed, None),
        (b"-ERR something else\r\n", ScriptFailed, None),
        (b"-WRONGTYPE Operation against a key\r\n", ScriptFailed, None),
    ],
)
async def test_each_refusal_of_the_server_has_its_error(
    answer: bytes, error: type[DockworkError], why: str | None
) -> None:
    async with scripted_redis({b"EVALSHA": answer, b"BZPOPMIN": answer}) as url:
        store = RedisStore(url)
        channel = store.renewal_channel()
        await asyncio.to_thread(channel.connect)

        with pytest.raises(error) as raised:
            await store.enqueue(QUEUE, [a_job("a")])
        with pytest.raises(error):
            await asyncio.to_thread(channel.renew, QUEUE, [], None)

        assert getattr(raised.value, "why", None) == why
        await asyncio.to_thread(channel.close)
        await store.close()


@pytest.mark.covers("RT-126")
async def test_a_server_that_loads_its_data_is_not_connected_to() -> None:
    loading = b"-LOADING Redis is loading the dataset in memory\r\n"
    async with scripted_redis({b"SCRIPT": loading, b"PING": loading}) as url:
        store = RedisStore(url)

        with pytest.raises(StoreUnavailable) as away:
            await store.open()
        with pytest.raises(StoreUnavailable):
            await store.wait(QUEUE, 1)

        assert away.value.why == "loading"
        await store.close()


async def test_a_server_that_is_not_there_is_named_without_its_secret() -> None:
    store = RedisStore("redis://shop:hunter2@127.0.0.1:1")

    with pytest.raises(StoreUnavailable, match=r"redis://127\.0\.0\.1:1/0 cannot be reached") as away:
        await store.open()

    assert away.value.why == "connect"
    await store.close()


#: A plain Redis waits for the rest of what it takes for a line, when it is greeted with TLS.
SOON = {"REDIS_CONNECT_TIMEOUT": "0.5"}


@asynccontextmanager
async def _says(greeting: bytes) -> AsyncIterator[int]:
    """The port of a server that says that to whoever connects, and hangs up."""

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(greeting)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.covers("RT-194")
@pytest.mark.parametrize(
    ("url", "error", "told"),
    [
        (
            "redis://{open}/99",
            InvalidUrl,
            r"/99 \(by S\): expected a database that the server has, got 99: DB index is",
        ),
        (
            "{closed}?db=99",
            InvalidUrl,
            r" \(by S\): expected a database that the server has, got 99: DB index is",
        ),
        (
            "unix://{path}",
            AccessDenied,
            r" \(by S\) refused the login: expected a user or a password, got none$",
        ),
        (
            "unix://:hunter2@{path}",
            AccessDenied,
            r" \(by S\) refused the login: .* that it knows, got others",
        ),
        (
            "redis://:hunter2@{open}",
            AccessDenied,
            r" \(by S\) refused the login: expected none, .* has no password; got one$",
        ),
        (
            "rediss://:hunter2@{open}",
            StoreUnavailable,
            r" \(by S\)(: the TLS handshake failed:| did not answer).* no TLS, its URL begins with redis://$",
        ),
        (
            "redis://:hunter2@{http}/1",
            StoreUnavailable,
            r" \(by S\): expected a Redis there, and what answered",
        ),
        (
            "redis://:hunter2@{hangs_up}",
            StoreUnavailable,
            r" \(by S\) cannot be reached: .*begins with rediss://$",
        ),
        ("unix://:hunter2@/no/such.sock", StoreUnavailable, r" \(by S\) cannot be reached: .*No such file"),
    ],
)
async def test_what_is_wrong_with_a_url_is_told_with_the_setting_that_gave_it(
    url: str, error: type[DockworkError], told: str
) -> None:
    with RedisServer(port=0) as open_, RedisServer(password="right") as closed:
        async with _says(b"HTTP/1.1 400 Bad Request\r\n\r\n") as http, _says(b"") as hangs_up:
            url = url.format(
                open=open_.url.removeprefix("redis://").removesuffix("/0"),
                closed=closed.url,
                path=closed.url.rpartition("@")[2],
                http=f"127.0.0.1:{http}",
                hangs_up=f"127.0.0.1:{hangs_up}",
            )
            for source, settings in (
                ("DOCKWORK_REDIS_URL", RedisSettings.from_environ({"DOCKWORK_REDIS_URL": url, **SOON})),
                ("redis.url", RedisSettings.from_environ(SOON, url)),
            ):
                store = RedisStore(settings)
                words = told.replace("by S", f"by {source}")
                with pytest.raises(error, match=words) as refused:
                    await store.open()
                with pytest.raises(error, match=words) as refused_thread:
                    await asyncio.to_thread(store.renewal_channel().connect)
                assert "hunter2" not in f"{refused.value} {refused_thread.value}"
                await store.close()


@pytest.mark.covers("RT-196")
async def test_after_close_a_later_call_connects_again(redis: RedisWorld) -> None:
    await redis.enqueue("a")
    await redis.store.close()

    assert [claim.job_id for claim in (await redis.claim(1)).claims] == ["a"]


@pytest.mark.covers("RT-062")
async def test_ten_thousand_ids_in_every_bulk_call(redis: RedisWorld) -> None:
    names = [f"j{n}" for n in range(10_000)]
    admitted = await redis.enqueue(*[a_job(name, due_in_ms=10**9) for name in names])

    assert {admission.outcome for admission in admitted} == {"accepted"}
    assert [admission.id for admission in admitted] == names
    assert await redis.store.promote(redis.queue, names) == 10_000
    claims = (await redis.claim(500)).claims
    leases = [claim.lease for claim in claims]
    assert len(leases) == 500
    assert (await redis.store.renew(redis.queue, leases, None)).verdicts == (Verdict.OK,) * 500
    assert await redis.store.start(redis.queue, leases) == [Verdict.OK] * 500
    assert await redis.store.requeue(redis.queue, ANN, leases) == [Verdict.OK] * 500
    again = (await redis.claim(500)).claims
    settled = await redis.settle(
        *[Settlement(lease=claim.lease, outcome=Outcome.DEAD) for claim in again], claim_next=500
    )
    assert settled.verdicts == (Verdict.OK,) * 500
    assert len(settled.claimed.claims) == 500


@pytest.mark.covers("RT-042")
async def test_a_queue_of_another_schema_version_is_not_touched(redis: RedisWorld) -> None:
    await redis.enqueue("a")
    await redis.redis.hset(redis.keys.meta, "schema", "2")
    before = await redis.dump()
    from dockwork.errors import SchemaMismatch

    for ask in (
        lambda: redis.claim(1),
        lambda: redis.enqueue("b"),
        lambda: redis.store.renew(redis.queue, [], a_beat()),
        lambda: redis.store.reap(redis.queue),
        lambda: redis.store.trim(redis.queue),
        lambda: redis.store.sample(redis.queue, horizon_ms=0),
    ):
        with pytest.raises(SchemaMismatch, match="stored schema version 2"):
            await ask()
    assert await redis.dump() == before


async def test_a_wake_subscription_survives_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "PING_S", 0.2)
    with RedisServer(aof=True) as server:
        world = RedisWorld(RedisStore(server.url), server.url)
        heard = asyncio.Event()

        async def listen() -> None:
            async for _ in world.store.wakes():
                heard.set()

        task = asyncio.create_task(listen())

        async def subscribed() -> bool:
            return bool(await world.redis.pubsub_numpat())

        await until_async(subscribed, what="subscribed")
        server.restart()
        await world.redis.connection_pool.disconnect()
        await until_async(subscribed, within=20, what="subscribed again")
        await eventually(world)
        await world.store.sample(world.queue, horizon_ms=0, cold=True)
        await world.enqueue("a")

        await asyncio.wait_for(heard.wait(), 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.close()


async def test_events_come_as_they_happen_and_after_an_id(redis: RedisWorld) -> None:
    await redis.enqueue("a")
    (first,) = await redis.store.events(redis.queue, "0", block_s=0)
    assert await redis.store.events(redis.queue, first.id, block_s=0.05) == []
    reading = asyncio.create_task(redis.store.events(redis.queue, first.id, block_s=10))
    await asyncio.wait({reading}, timeout=0.05)

    await redis.enqueue("b")

    assert [event.ids for event in await asyncio.wait_for(reading, 5)] == [("b",)]


@pytest.mark.covers("RT-126")
async def test_callers_that_wait_together_for_a_server_that_is_away_share_one_attempt() -> None:
    attempts = 0

    def refuse(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal attempts
        attempts += 1
        writer.close()

    listening_at = await asyncio.start_server(refuse, "127.0.0.1", 0)
    store = RedisStore(f"redis://127.0.0.1:{listening_at.sockets[0].getsockname()[1]}")

    answers = await asyncio.gather(*[store.ping() for _ in range(20)], return_exceptions=True)

    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert attempts == 1
    listening_at.close()
    await listening_at.wait_closed()
    await store.close()


@pytest.mark.covers("RT-098")
async def test_an_idle_store_sets_no_timers(redis: RedisWorld, server: RedisServer) -> None:
    store = RedisStore(RedisSettings(url=server.url, command_timeout=timedelta(seconds=1)))
    await store.ping()
    wire = await store._wire()

    async def at_rest() -> bool:
        return wire._watchdog is None

    await until_async(at_rest, what="the watchdog sleeps")

    assert wire.alive
    await store.close()


async def connections_of(redis: RedisWorld) -> int:
    return sum(one["name"] == "dockwork" for one in await redis.redis.client_list())


@pytest.mark.covers("RT-189")
@pytest.mark.parametrize("what", ["command", "wait", "events", "replicas"])
async def test_a_store_that_is_closed_while_it_connects_leaves_no_connection(
    server: RedisServer, redis: RedisWorld, what: str
) -> None:
    store = RedisStore(server.url)
    begin = {
        "command": store.ping,
        "wait": lambda: store.wait(redis.queue, 30),
        "events": lambda: store.events(redis.queue, "$", block_s=30),
        "replicas": lambda: store.enqueue(redis.queue, [a_job("j1", replicas=1)]),
    }[what]
    others = await connections_of(redis)
    call = asyncio.ensure_future(begin())
    await asyncio.wait({call}, timeout=0.0001)
    assert not call.done()
    await store.close()

    with pytest.raises(StoreUnavailable):
        await call

    async def gone() -> bool:
        return await connections_of(redis) == others

    await until_async(gone, within=5, what="no connection of the closed store")


@pytest.mark.covers("RT-094")
async def test_a_marker_that_a_closing_store_popped_is_given_back_and_no_connection_stays(
    server: RedisServer, redis: RedisWorld
) -> None:
    others = await connections_of(redis)
    wake = redis.keys.wake

    async def popped() -> bool:
        return not await redis.redis.exists(wake)

    for _ in range(5):
        store = RedisStore(server.url)
        assert await store.wait(redis.queue, 0.05) is None
        await redis.redis.zadd(wake, {"1": 0})
        await until_async(popped, within=5, what="the pop that was left under way")
        await store.close()
        assert await redis.redis.zcard(wake) == 1
        await redis.redis.delete(wake)

    async def gone() -> bool:
        return await connections_of(redis) == others

    await until_async(gone, within=5, what="no connection of the closed stores")
