"""A primary that its sentinels replace: who is asked, what is believed, and what goes on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dockwork.core.states import State
from dockwork.errors import DockworkError, InvalidUrl, StoreUnavailable
from dockwork.settings import RedisSettings
from dockwork.store.connectors import Connector
from dockwork.store.protocol import Outcome, Settlement, Verdict
from dockwork.store.redis import RedisStore
from support.redis_sentinel import PRIMARY_NAME, RedisSentinel, client
from support.redis_server import CA_FILE, RedisServer, free_port
from support.store_world import ANN, BOB, QUEUE, a_beat, a_job
from support.waiting import until, until_async
from support.workers import QUEUE as WORK
from support.workers import World


@pytest.fixture
def healed(sentinel: RedisSentinel) -> Iterator[RedisSentinel]:
    """All five servers up, the replica in step, and nothing stored."""
    client(sentinel.primary()).flushall()
    yield sentinel
    for server in sentinel.servers:
        if server.is_running:
            server.resume()
        else:
            # The sentinels would tell it after 10 s.
            server.start()
            client(server).replicaof("127.0.0.1", sentinel.primary().port)
    until(lambda: in_step(sentinel), within=40, what="a replica follows the primary again")


def in_step(sentinel: RedisSentinel) -> bool:
    primary, replica = sentinel.primary(), sentinel.replica()
    info = client(replica).info("replication")
    return (
        client(primary).info("replication")["role"] == "master"
        and info.get("master_link_status") == "up"
        and info.get("master_port") == primary.port
        and sentinel.is_whole()
    )


def settings(sentinel: RedisSentinel, **more: Any) -> RedisSettings:
    said = {
        "url": sentinel.url,
        "mode": "sentinel",
        "sentinel_master": PRIMARY_NAME,
        "sentinel_password": "watch",
    }
    return RedisSettings(**{**said, **more})


@pytest.mark.covers("RT-189", "RT-190", "RT-191")
async def test_the_primary_is_found_by_any_of_the_sentinels_with_a_login_for_each_kind(
    healed: RedisSentinel,
) -> None:
    dead = f"redis://:secret@127.0.0.1:{free_port()},{healed.url.rpartition('@')[2]}"
    store = RedisStore(settings(healed, url=dead))

    await store.enqueue(QUEUE, [a_job("a")])
    channel = store.renewal_channel()
    await asyncio.to_thread(channel.connect)
    renewal = await asyncio.to_thread(channel.renew, QUEUE, [], a_beat())

    assert renewal.verdicts == ()
    assert client(healed.primary()).exists("dw:{shop/mail}:j:a") == 1
    assert "secret" not in repr(store)
    assert "watch" not in repr(store)
    await asyncio.to_thread(channel.close)
    await store.close()


@pytest.mark.covers("RT-191", "RT-194")
async def test_a_wrong_login_at_the_sentinels_and_an_unknown_name_are_told_without_the_secret(
    healed: RedisSentinel,
) -> None:
    for wrong, words in (
        ({"sentinel_password": "hunter2"}, "invalid username-password pair"),
        ({"sentinel_master": "other"}, "it watches no other"),
    ):
        store = RedisStore(replace(settings(healed, **wrong), source="DOCKWORK_REDIS_URL"))
        channel = store.renewal_channel()
        for ask in (store.open, lambda channel=channel: asyncio.to_thread(channel.connect)):
            with pytest.raises(StoreUnavailable, match=words) as refused:
                await ask()
            assert "hunter2" not in str(refused.value)
            assert str(refused.value).endswith(" (by DOCKWORK_REDIS_URL)")
        await store.close()


@pytest.mark.full
@pytest.mark.covers("RT-195", "RT-191")
async def test_sentinels_and_servers_behind_tls_are_believed_by_their_certificates() -> None:
    with RedisSentinel(tls=True, password="secret") as behind_tls:
        trusting = RedisStore(
            RedisSettings(url=behind_tls.url, mode="sentinel", sentinel_master=PRIMARY_NAME, ca_file=CA_FILE)
        )
        doubting = RedisStore(
            RedisSettings(url=behind_tls.url, mode="sentinel", sentinel_master=PRIMARY_NAME)
        )

        await trusting.enqueue(QUEUE, [a_job("a")])
        with pytest.raises(StoreUnavailable, match="certificate"):
            await doubting.open()

        await trusting.close()
        await doubting.close()


async def test_a_sentinel_that_the_url_does_not_name_is_remembered(healed: RedisSentinel) -> None:
    one = healed.sentinels[0]
    connector = Connector(settings(healed, url=f"redis://:secret@127.0.0.1:{one.port}"))
    await connector.located()
    one.kill()
    try:
        found = await connector.located()
        assert found.at == ("127.0.0.1", healed.primary().port)
        assert found.located_blocking().at == found.at
    finally:
        one.start()
    until(healed.is_whole, within=30, what="the sentinels know each other again")


@pytest.mark.covers("RT-193")
async def test_a_mode_that_the_server_is_not_of_stops_the_start(
    healed: RedisSentinel, server: RedisServer
) -> None:
    sentinel = healed.sentinels[0]
    with pytest.raises(InvalidUrl, match="of the kind sentinel, and REDIS_MODE is standalone"):
        await RedisStore(f"redis://:watch@127.0.0.1:{sentinel.port}").open()


@pytest.mark.covers("RT-126", "RT-128", "RT-197")
async def test_a_worker_goes_on_at_the_new_primary_and_no_job_runs_twice_at_once(
    healed: RedisSentinel,
) -> None:
    world = World(settings(healed, command_timeout=timedelta(seconds=2)), lease=timedelta(seconds=3))
    ran: Counter[int] = Counter()

    @world.app.job(queue=WORK)
    async def note(n: int) -> None:
        ran[n] += 1

    async with world.worker(slots=4):
        first = [await note.enqueue(n=n) for n in range(10)]
        for job in first:
            await world.until(job.id, State.COMPLETED)
        until(lambda: acknowledged(healed), within=10, what="the replica has everything")

        await asyncio.to_thread(healed.fail_over)

        async def enqueued() -> str | None:
            try:
                return (await note.options(id="later").enqueue(n=10)).id
            except DockworkError:
                return None

        assert await until_async(enqueued, within=20, what="the new primary takes a job") == "later"
        await world.until("later", State.COMPLETED, within=15)
        views = [await world.view(job.id) for job in first]

    assert [view.state for view in views] == [State.COMPLETED] * 10
    assert ran == Counter(range(11))
    await world.close()


def acknowledged(sentinel: RedisSentinel) -> bool:
    info = client(sentinel.primary()).info("replication")
    return bool(info.get("slave0", {}).get("offset") == info["master_repl_offset"])


@pytest.mark.covers("FM-20", "RT-045", "RT-068")
async def test_a_claim_that_a_failover_lost_never_shares_its_epoch_with_the_next(
    healed: RedisSentinel,
) -> None:
    store = RedisStore(settings(healed, command_timeout=timedelta(seconds=2)))
    await store.enqueue(QUEUE, [a_job("a")])
    until(lambda: acknowledged(healed), within=10, what="the replica has the job")

    behind = client(healed.replica())
    behind.config_set("masterauth", "wrong")
    behind.execute_command("CLIENT", "KILL", "TYPE", "master")
    until(
        lambda: behind.info("replication")["master_link_status"] == "down", what="the replica hears no more"
    )
    (lost,) = (await store.claim(QUEUE, ANN, number=1, slots=1)).claims
    healed.primary().kill()
    behind.config_set("masterauth", "secret")

    async def claimed() -> Any:
        try:
            return (await store.claim(QUEUE, BOB, number=1, slots=1)).claims
        except DockworkError:
            return None

    (again,) = await until_async(claimed, within=40, what="the new primary gives the job")
    old, new = [
        (
            await store.settle(
                QUEUE, owner, [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED)], number=2
            )
        )
        for owner, claim in ((ANN, lost), (BOB, again))
    ]
    assert again.job_id == lost.job_id == "a"
    assert again.lease.epoch > lost.lease.epoch
    assert (old.verdicts, new.verdicts) == ((Verdict.LOST,), (Verdict.OK,))
    await store.close()


@pytest.mark.covers("FM-20", "RT-199")
async def test_an_enqueue_says_whether_a_replica_has_the_job(healed: RedisSentinel) -> None:
    store = RedisStore(settings(healed))
    (safe,) = await store.enqueue(QUEUE, [a_job("a", replicas=1)])
    assert client(healed.replica()).exists("dw:{shop/mail}:j:a") == 1

    healed.replica().hang()
    try:
        (risky,) = await store.enqueue(QUEUE, [a_job("b", replicas=1)])
        (plain,) = await store.enqueue(QUEUE, [a_job("c")])
        (two,) = await store.enqueue(QUEUE, [a_job("d", replicas=2)])
    finally:
        healed.replica().resume()

    assert [one.replicated for one in (safe, risky, plain, two)] == [True, False, None, False]
    assert sorted([view.id for view in await store.list(QUEUE, State.READY)]) == ["a", "b", "c", "d"]
    await store.close()


@pytest.mark.covers("RT-126")
async def test_a_replica_is_not_taken_for_the_primary(healed: RedisSentinel) -> None:
    found = Connector(settings(healed)).located_blocking()
    behind = Connector(found.settings, at=("127.0.0.1", healed.replica().port))
    channel = RedisStore(settings(healed)).renewal_channel()
    channel._connector = behind

    with pytest.raises(StoreUnavailable, match="is a replica") as refused:
        await asyncio.to_thread(channel.connect)

    assert refused.value.why == "read_only"
