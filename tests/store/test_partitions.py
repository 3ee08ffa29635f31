"""A queue in partitions, as producers, workers and those who look at it meet it: on Redis, on a Cluster, in memory."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from dockwork import App, Unique
from dockwork.core.keys import QueueName
from dockwork.core.partitions import partition_names, partition_of
from dockwork.core.states import State
from dockwork.core.unique import key_hash
from dockwork.errors import InvalidValue, RoutingConflict
from dockwork.settings import RedisSettings, Settings
from dockwork.store.memory import MemoryStore
from dockwork.store.partitioned import partitioned
from dockwork.store.protocol import CronEntry, Heartbeat, Store
from dockwork.store.redis import RedisStore
from dockwork.worker.worker import Worker
from support.redis_cluster import RedisCluster
from support.redis_server import RedisServer
from support.store_world import a_job
from support.waiting import until_async

COUNT = 4
MAIL = QueueName("default", "mail")
PARTS = partition_names(MAIL, COUNT)

MakeStore = Callable[[], Store]


@pytest.fixture(params=[pytest.param("redis", marks=pytest.mark.full), "cluster", "memory"])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    """Stores on the same empty place, one for each call."""
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("server")
        server.flush()
        return lambda: RedisStore(server.url)
    if request.param == "cluster":
        cluster: RedisCluster = request.getfixturevalue("cluster")
        cluster.flush()
        return lambda: RedisStore(RedisSettings(url=cluster.url, mode="cluster"))
    memory = MemoryStore(ticking=True)
    return lambda: memory


@pytest.fixture
async def app(make_store: MakeStore) -> AsyncIterator[App]:
    app = an_app(make_store)
    yield app
    await app.close()


def an_app(make_store: MakeStore, **options: Any) -> App:
    app = App("tests", namespace="default", store=make_store)
    app.queue("mail", **{"partitions": COUNT, **options})

    @app.job(queue="mail", concurrency_key="to")
    async def by_key(to: str, n: int) -> int:
        return n

    @app.job(queue="mail")
    async def send(n: int) -> int:
        return n

    return app


@asynccontextmanager
async def at_work(app: App, slots: int = 4) -> AsyncIterator[Worker]:
    settings = Settings(
        namespace="default", queues={"mail": slots}, trap_signals=False, drain_timeout=timedelta(seconds=5)
    )
    worker = app.worker(settings=settings)
    running = asyncio.ensure_future(worker.run())

    async def runs() -> bool:
        assert not running.done(), running.result()
        return worker.is_running

    try:
        await until_async(runs, what="the worker runs")
        yield worker
    finally:
        await worker.shutdown()
        await running


async def where(store: Store) -> dict[str, int]:
    """The partition that has each waiting job."""
    found: dict[str, int] = {}
    for number, name in enumerate(PARTS):
        found.update({view.id: number for view in await store.list(name, State.READY, limit=500)})
    return found


@pytest.mark.covers("RT-046", "RT-006")
async def test_jobs_go_by_their_key_or_their_id_and_a_bulk_call_keeps_its_order(
    app: App, make_store: MakeStore
) -> None:
    send = app.registry["send"]
    items = [send.options(id=f"j{n}").item(n=n) for n in range(20)]
    items += [send.options(id=f"k{n}", concurrency_key="ann").item(n=n) for n in range(3)]
    items += [send.options(id="u", unique=Unique("ann")).item(n=1)]
    admissions = await app.enqueue_many(items)

    store = make_store()
    found = await where(store)
    assert [one.id for one in admissions] == [item.options.id for item in items]
    assert {id: found[id] for id in found if id.startswith("j")} == {
        f"j{n}": partition_of(f"j{n}", COUNT) for n in range(20)
    }
    assert {found[id] for id in ("k0", "k1", "k2", "u")} == {partition_of(key_hash("ann"), COUNT)}
    assert await store.queues("default") == [MAIL]
    assert await store.partitions(MAIL) == COUNT
    await store.close()


@pytest.mark.covers("RT-046", "RT-006")
async def test_two_different_keys_raise_routing_conflict_and_store_nothing(app: App) -> None:
    by_key, send = app.registry["by_key"], app.registry["send"]
    torn = by_key.options(unique=Unique("order-7"))

    with pytest.raises(RoutingConflict, match="expected one key, as each key of a job names a partition"):
        await torn.enqueue(to="ann", n=1)
    said = await app.enqueue_many([torn.item(to="ann", n=1), send.item(n=1)])

    assert [(one.outcome, one.reason) for one in said] == [("rejected", "routing"), ("accepted", "")]
    assert (await app.stats("mail")).counts[State.READY] == 1


@pytest.mark.covers("RT-046")
async def test_a_worker_serves_all_partitions_with_its_slots_and_results_are_found(app: App) -> None:
    running = most = 0
    ran: Counter[int] = Counter()

    @app.job(queue="mail")
    async def slow(n: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.to_thread(ran.update, [n])
        running -= 1
        return n

    refs = [await slow.enqueue(n=n) for n in range(60)]
    keyed = await app.registry["by_key"].enqueue(to="ann", n=7)
    async with at_work(app, slots=3) as worker:
        assert await keyed.result(timeout=20) == 7
        assert [await ref.result(timeout=20) for ref in refs] == list(range(60))
        assert [lane.name for lane in worker.lanes] == list(PARTS)
        (figures,) = worker.figures().lanes
        assert (figures.queue, figures.slots, figures.settled) == ("mail", 3, 61)

    assert most <= 3
    assert ran == Counter(range(60))
    stats = await app.stats("mail")
    assert (stats.counts[State.COMPLETED], stats.totals["completed"]) == (61, 61)


@pytest.mark.covers("RT-046", "RT-071")
async def test_each_partition_keeps_its_order(app: App) -> None:
    order: list[int] = []

    @app.job(queue="mail")
    async def note(n: int) -> None:
        order.append(n)

    refs = [await note.enqueue(n=n) for n in range(40)]
    async with at_work(app, slots=1):
        for ref in refs:
            await ref.result(timeout=20)

    mine: dict[int, list[int]] = {}
    for n in order:
        mine.setdefault(partition_of(refs[n].id, COUNT), []).append(n)
    assert set(mine) == set(range(COUNT))
    assert all(part == sorted(part) for part in mine.values())


@pytest.mark.covers("RT-046")
async def test_lists_cancels_and_stats_are_those_of_the_whole_queue(app: App) -> None:
    send, by_key = app.registry["send"], app.registry["by_key"]
    ids = [(await send.enqueue(n=n)).id for n in range(12)]
    keyed = await by_key.enqueue(to="ann", n=1)

    listed = [job.id async for job in app.jobs("mail", state="ready")]
    some = [job.id async for job in app.jobs("mail", state="ready", limit=5)]
    store = partitioned(app.make_store())
    paged = [
        view.id for at in range(0, 15, 2) for view in await store.list(MAIL, State.READY, offset=at, limit=2)
    ]

    await store.close()
    assert sorted(listed) == sorted([*ids, keyed.id])
    assert some == listed[:5]
    assert paged == listed
    assert (await app.ref("mail", keyed.id).cancel(), await app.ref("mail", ids[0]).cancel()) == (
        "cancelled", "cancelled",
    )  # fmt: skip
    assert await app.ref("mail", "nobody").cancel() == "missing"
    assert (await app.ref("mail", keyed.id).state(), await app.ref("mail", "nobody").state()) == (
        State.CANCELLED, None,
    )  # fmt: skip
    stats = await app.stats("mail")
    assert (stats.counts[State.READY], stats.counts[State.CANCELLED], stats.totals["enqueued"]) == (11, 2, 13)


@pytest.mark.covers("RT-046", "RT-018")
async def test_events_of_all_partitions_are_read_together_and_again_from_any_of_them(app: App) -> None:
    send = app.registry["send"]
    ids = [(await send.enqueue(n=n)).id for n in range(10)]
    seen: list[Any] = []
    async with aclosing(app.events("mail", since="0")) as events:
        async for event in events:
            seen.append(event)
            if len(seen) == 10:
                break

    again: list[Any] = []
    async with aclosing(app.events("mail", since=seen[4].id)) as events:
        last = await send.enqueue(n=10)
        async for event in events:
            again.append(event)
            if len(again) == 6:
                break

    assert sorted(id for event in seen for id in event.ids) == sorted(ids)
    # The last one may share its millisecond with one of another partition, and then stands before it.
    assert [event.ids for event in again if event.ids != (last.id,)] == [event.ids for event in seen[5:]]
    assert (last.id,) in [event.ids for event in again]


@pytest.mark.covers("RT-046")
async def test_a_schedule_ticks_in_the_partition_of_its_uid(app: App, make_store: MakeStore) -> None:
    store = partitioned(make_store(), lambda queue: COUNT)
    now = await store.ping()
    uids = [f"u{n}" for n in range(6)]
    for uid in uids:
        entry = CronEntry(uid=uid, schedule_hash="s", job=a_job(uid))
        await store.plan(
            MAIL, entry, [now - 1000, now + 3_600_000], generation=1, reset=False, decided_ms=now - 2000
        )

    ticked = await store.tick(MAIL)

    assert sorted(one.uid for one in ticked) == uids
    assert [state.uid for state in await store.cron_states(MAIL, ["u3", "u0"])] == ["u3", "u0"]
    assert sorted(state.uid for state in await store.cron_states(MAIL)) == uids
    plain = make_store()
    held = {
        uid: [state.uid for state in await plain.cron_states(PARTS[partition_of(uid, COUNT)])] for uid in uids
    }
    assert all(uid in found for uid, found in held.items())
    assert await store.unplan(MAIL, "u0") is True
    assert await store.unplan(MAIL, "u0") is False
    await plain.close()
    await store.close()


@pytest.mark.covers("RT-046", "RT-025")
async def test_a_workers_own_schedules_are_in_a_partition_that_is_served(
    app: App, make_store: MakeStore
) -> None:
    @app.cron("@hourly", name="beat")
    @app.job(queue="mail")
    async def beat() -> None: ...

    async with at_work(app):
        store = make_store()
        places = {name: [state.uid for state in await store.cron_states(name)] for name in (MAIL, *PARTS)}
        (known,) = await partitioned(store).cron_states(MAIL)

    home = PARTS[partition_of("beat", COUNT)]
    assert {name: uids for name, uids in places.items() if uids} == {home: ["beat"]}
    assert known.next_ms is not None
    await store.close()


@pytest.mark.full
@pytest.mark.covers("RT-046", "RT-122")
async def test_a_worker_is_seen_once_and_held_in_every_partition(app: App, make_store: MakeStore) -> None:
    release = asyncio.Event()

    @app.job(queue="mail")
    async def waits(n: int) -> None:
        await release.wait()

    store = partitioned(make_store())
    async with at_work(app, slots=4) as worker:
        refs = [await waits.enqueue(n=n) for n in range(8)]
        beat = await until_async(lambda: seen_busy(store, 4), within=15, what="beats tell of every slot")
        await store.quiesce(MAIL, {worker.owner.pod: "token"})
        await until_async(lambda: is_quiesced(worker), what="every lane has heard of it")
        release.set()
        await until_async(lambda: runs(worker, 0), what="what ran has ended")
        ended = [await ref.state() for ref in refs].count(State.COMPLETED)
        await store.unquiesce(MAIL, [worker.owner.pod])
        for ref in refs:
            await ref.result(timeout=20)
    await store.close()

    assert beat is not None
    assert (beat.slots, beat.busy, len(beat.jobs)) == (4, 4, 4)
    assert ended == 4


async def seen_busy(store: Store, count: int) -> Heartbeat | None:
    (beat,) = (await store.sample(MAIL, horizon_ms=0)).workers
    return beat if beat.busy == count else None


async def runs(worker: Worker, count: int) -> bool:
    return sum(lane.busy for lane in worker.lanes) == count and not any(lane._calls for lane in worker.lanes)


async def is_quiesced(worker: Worker) -> bool:
    return all(lane.quiesced for lane in worker.lanes)


@pytest.mark.covers("RT-046", "RT-154")
async def test_a_limit_holds_over_all_partitions_together(make_store: MakeStore) -> None:
    app = an_app(make_store, max_depth=10)
    send = app.registry["send"]
    async with at_work(app):
        pass  # a worker writes the options
    counts = await app.enqueue_many([send.item(n=n) for n in range(200)], returning="counts")

    store = make_store()
    assert (counts.accepted, counts.rejected) == (10, 190)
    assert [(await store.config(name)).max_depth for name in PARTS] == [3, 3, 2, 2]
    await app.close()
    await store.close()


@pytest.mark.covers("RT-046")
async def test_another_number_of_partitions_is_refused_while_there_are_jobs_and_taken_when_there_are_none(
    make_store: MakeStore,
) -> None:
    first, other, unsaid = an_app(make_store), an_app(make_store, partitions=2), App("x", store=make_store)
    ref = await first.registry["send"].enqueue(n=1)

    with pytest.raises(
        InvalidValue, match="partitions of queue mail: expected 4, with which 1 jobs are stored"
    ):
        await other.registry["send"].enqueue(n=1)
    worker = other.worker(settings=Settings(namespace="default", queues={"mail": 1}, trap_signals=False))
    assert await worker.run() == 3

    # Who says nothing goes by what there is.
    assert await unsaid.ref("mail", ref.id).state() is State.READY
    store = make_store()
    assert (await first.client.obliterate("mail", confirm="mail")).done
    await other.registry["send"].enqueue(n=1)
    assert await store.partitions(MAIL) == 2
    for app in (first, other, unsaid):
        await app.close()
    await store.close()


@pytest.mark.covers("RT-046")
async def test_a_producer_that_lives_on_hears_of_a_new_number_within_a_minute(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockwork.store.partitioned.ASK_AGAIN_S", 0.0)
    store, new = make_store(), make_store()
    producer = partitioned(store)
    await new.partitions(MAIL, COUNT)
    await producer.enqueue(MAIL, [a_job("a")])
    for name in PARTS:
        while not ((at := await new.obliterate(name, "token")).done or at.missing):
            pass
    await new.partitions(MAIL, 2)

    await producer.enqueue(MAIL, [a_job("a")])

    found = [[view.id for view in await new.list(name, State.READY)] for name in partition_names(MAIL, 2)]
    assert sorted(found) == [[], ["a"]]
    await store.close()
    await new.close()


async def test_a_producer_that_came_first_without_a_number_makes_one_partition(make_store: MakeStore) -> None:
    unsaid, app = App("x", namespace="default", store=make_store), an_app(make_store)
    await unsaid.enqueue("send", {"n": 1}, queue="mail")

    with pytest.raises(InvalidValue, match="expected 1, with which 1 jobs are stored"):
        await app.registry["send"].enqueue(n=1)

    await unsaid.close()
    await app.close()
