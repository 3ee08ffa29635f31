"""A Cluster whose slots move, whose nodes go, and whose servers answer for each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from dockwork.core.keys import QueueKeys, QueueName, queues_key
from dockwork.core.states import State
from dockwork.errors import DockworkError, InvalidUrl, ScriptFailed, StoreUnavailable
from dockwork.settings import RedisSettings
from dockwork.store.cluster import ClusterNodes
from dockwork.store.connectors import Connector
from dockwork.store.protocol import Outcome, Settlement, Verdict
from dockwork.store.redis import RedisStore
from dockwork.store.topology import Topology, slot_of
from support.redis_cluster import RedisCluster
from support.redis_proxy import scripted_redis
from support.redis_server import CA_FILE, RedisServer
from support.store_world import ANN, QUEUE, a_beat, a_job
from support.waiting import until_async
from support.workers import NAME, World
from support.workers import QUEUE as WORK

SLOT = slot_of(QueueKeys(QUEUE).prefix)


def settings(cluster: RedisCluster, **more: Any) -> RedisSettings:
    return RedisSettings(**{"url": cluster.url, "mode": "cluster", **more})


@pytest.fixture
def whole(cluster: RedisCluster) -> Iterator[RedisCluster]:
    """The shared Cluster, empty; slots that a test moved go home."""
    cluster.flush()
    yield cluster
    cluster.flush()
    for name in (QUEUE, NAME):
        slot = slot_of(QueueKeys(name).prefix)
        home = slot * len(cluster.nodes) // 16384
        if cluster.owner(slot) != home:
            Move(cluster, slot, home).finish()


class Move:
    """A slot on its way to another node, a step at a time."""

    def __init__(self, cluster: RedisCluster, slot: int, to: int) -> None:
        self.cluster = cluster
        self.slot = slot
        self.old, self.new = cluster.owner(slot), to
        source, target = cluster.node_id(self.old), cluster.node_id(to)
        self._ask(to, "IMPORTING", source)
        self._ask(self.old, "MIGRATING", target)

    def _ask(self, node: int, what: str, other: str) -> None:
        self.cluster.client(node).execute_command("CLUSTER", "SETSLOT", self.slot, what, other)

    def carry(self, count: int = 1000) -> int:
        """Move that many keys: how many there were."""
        source, target = self.cluster.client(self.old), self.cluster.nodes[self.new]
        keys = source.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, count)
        if keys:
            source.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def finish(self) -> None:
        """Move what is left, and say so to all nodes."""
        while self.carry():
            pass
        order = [
            self.new,
            self.old,
            *(n for n in range(len(self.cluster.nodes)) if n not in (self.new, self.old)),
        ]
        for node in order:
            self._ask(node, "NODE", self.cluster.node_id(self.new))


@pytest.mark.covers("RT-065", "FM-27")
async def test_calls_follow_a_slot_that_has_moved(whole: RedisCluster) -> None:
    store = RedisStore(settings(whole))
    channel = store.renewal_channel()
    await store.enqueue(QUEUE, [a_job("a"), a_job("b")])
    (claim,) = (await store.claim(QUEUE, ANN, number=1, slots=1)).claims
    await asyncio.to_thread(channel.connect)
    await asyncio.to_thread(channel.renew, QUEUE, [claim.lease], a_beat())
    reading = asyncio.ensure_future(store.events(QUEUE, "$", block_s=5))
    waiting = asyncio.ensure_future(waits(store))
    await until_async(lambda: blocked(whole, 2), what="both reads block")

    Move(whole, SLOT, (whole.owner(SLOT) + 1) % 3).finish()

    with pytest.raises(StoreUnavailable, match="another node"):
        await waiting
    with suppress(StoreUnavailable):
        await reading
    renewal = await until_async(lambda: renewed(channel, claim.lease), what="the renewal thread follows")
    settled = await store.settle(
        QUEUE, ANN, [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED)], number=2, claim_next=1
    )
    await store.enqueue(QUEUE, [a_job("c")])

    assert renewal.verdicts == (Verdict.OK,)
    assert settled.verdicts == (Verdict.OK,)
    assert [one.job_id for one in settled.claimed.claims] == ["b"]
    assert await store.wait(QUEUE, 5) is not None
    assert [event.ids for event in await store.events(QUEUE, "0", block_s=0)][-1] == ("c",)
    await asyncio.to_thread(channel.close)
    await store.close()


async def waits(store: RedisStore) -> None:
    while True:
        await store.wait(QUEUE, 20)


async def blocked(cluster: RedisCluster, count: int) -> bool:
    return sum(cluster.client(n).info("clients")["blocked_clients"] for n in range(3)) >= count


async def renewed(channel: Any, lease: Any) -> Any:
    try:
        return await asyncio.to_thread(channel.renew, QUEUE, [lease], a_beat())
    except StoreUnavailable:
        await asyncio.to_thread(channel.connect)
        return None


@pytest.mark.covers("RT-065", "RT-197", "FM-27")
async def test_while_a_slot_moves_no_call_runs_by_half_and_all_go_on_after_it(whole: RedisCluster) -> None:
    store = RedisStore(settings(whole, command_timeout=timedelta(seconds=20)))
    hasty = RedisStore(settings(whole, command_timeout=timedelta(seconds=0.6)))
    await store.enqueue(QUEUE, [a_job(f"j{n}") for n in range(50)])
    (claim,) = (await store.claim(QUEUE, ANN, number=1, slots=1)).claims
    await hasty.ping()

    move = Move(whole, SLOT, (whole.owner(SLOT) + 1) % 3)
    calls = []
    for count in (0, 3, 40, 1000):
        move.carry(count) if count else None
        # Each half-way state: some keys here, some there. What asks for one key is answered by whoever has it.
        assert (await store.config(QUEUE)).revision == 0
        assert await store.last_event(QUEUE) != "0-0"
        with pytest.raises(StoreUnavailable, match=r"the slot is being moved|another node"):
            await hasty.enqueue(QUEUE, [a_job("hasty")])
        calls.append(asyncio.ensure_future(store.enqueue(QUEUE, [a_job(f"late{count}")])))
        calls.append(asyncio.ensure_future(store.get(QUEUE, "j7")))
    waiting = asyncio.ensure_future(
        store.settle(QUEUE, ANN, [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED)], number=2)
    )
    await asyncio.wait(calls, timeout=0.2)
    move.finish()
    await asyncio.gather(*calls)

    assert (await waiting).verdicts == (Verdict.OK,)
    waits = {view.id for view in await store.list(QUEUE, State.READY, limit=500)}
    assert waits == {f"j{n}" for n in range(50)} - {claim.job_id} | {f"late{n}" for n in (0, 3, 40, 1000)}
    stats = await store.stats(QUEUE)
    assert (stats.totals["enqueued"], stats.totals["completed"]) == (54, 1)
    await store.close()
    await hasty.close()


@pytest.mark.covers("RT-065", "FM-27", "RT-120")
async def test_a_worker_keeps_its_jobs_over_a_moving_slot(whole: RedisCluster) -> None:
    world = World(settings(whole), lease=timedelta(seconds=5))
    ran: Counter[int] = Counter()
    release = asyncio.Event()

    @world.app.job(queue=WORK)
    async def note(n: int) -> None:
        ran[n] += 1
        if n == 0:
            await release.wait()

    slot = slot_of(QueueKeys(NAME).prefix)
    async with world.worker(slots=4):
        jobs = [await note.enqueue(n=n) for n in range(20)]
        await until_async(lambda: said(ran[0] == 1), what="the long job runs")
        move = Move(whole, slot, (whole.owner(slot) + 1) % 3)
        move.carry(5)
        await asyncio.to_thread(move.finish)
        jobs += [await note.enqueue(n=n) for n in range(20, 30)]
        release.set()
        for job in jobs:
            await world.until(job.id, State.COMPLETED, within=20)

    assert ran == Counter(range(30))
    await world.close()


async def said(value: bool) -> bool:
    return value


@pytest.mark.covers("RT-065", "RT-126")
async def test_a_node_that_dies_takes_down_its_own_queues_alone_and_comes_back() -> None:
    with RedisCluster(aof=True, options=["--cluster-require-full-coverage", "no"]) as cluster:
        store = RedisStore(settings(cluster, connect_timeout=timedelta(seconds=1)))
        queues = {cluster.owner(slot_of(QueueKeys(name).prefix)): name for name in a_queue_each()}
        for name in queues.values():
            await store.enqueue(name, [a_job("a")])
        dead = queues.pop(0)
        # Its namespace's registry is on the node that dies; queues that are new to their store need no registry.
        other = next(name for name in a_queue_each("far") if slot_owner(cluster, name) == 1)
        assert cluster.owner(slot_of(queues_key("far"))) == 0

        cluster.nodes[0].kill()

        for name in queues.values():
            await store.enqueue(name, [a_job("b")])
        with pytest.raises(DockworkError):
            await store.enqueue(dead, [a_job("b")])
        assert [one.outcome for one in await store.enqueue(other, [a_job("a")])] == ["accepted"]
        samples = await store.samples([a_request(name) for name in (dead, *queues.values())])
        assert isinstance(samples[0], StoreUnavailable)
        assert [sample.ready for sample in samples[1:] if not isinstance(sample, DockworkError)] == [2, 2]
        cluster.nodes[0].start()

        async def back() -> bool:
            with suppress(StoreUnavailable):
                return bool(await store.enqueue(dead, [a_job("c")]))
            return False

        await until_async(back, within=20, what="the node serves its queue again")
        assert [view.id for view in await store.list(dead, State.READY)] == ["a", "c"]
        await store.close()


def a_queue_each(namespace: str = "shop") -> list[QueueName]:
    return [QueueName(namespace, f"q{n}") for n in range(20)]


def slot_owner(cluster: RedisCluster, name: QueueName) -> int:
    return cluster.owner(slot_of(QueueKeys(name).prefix))


def a_request(name: QueueName) -> Any:
    from dockwork.store.protocol import SampleRequest

    return SampleRequest(queue=name, horizon_ms=0)


@pytest.mark.covers("RT-065", "RT-099", "RT-128")
async def test_the_renewal_thread_finds_a_slots_new_node_by_itself_when_the_old_one_is_dead() -> None:
    with RedisCluster(options=["--cluster-require-full-coverage", "no"]) as cluster:
        store = RedisStore(settings(cluster, connect_timeout=timedelta(seconds=1)))
        await store.enqueue(QUEUE, [a_job("a")])
        (claim,) = (await store.claim(QUEUE, ANN, number=1, slots=1)).claims
        channel = store.renewal_channel()
        await asyncio.to_thread(channel.connect)
        assert channel._lines == {}, "the map was known, so nothing had to be connected to"
        await asyncio.to_thread(channel.renew, QUEUE, [claim.lease], a_beat())

        old = cluster.owner(SLOT)
        Move(cluster, SLOT, (old + 1) % 3).finish()
        cluster.nodes[old].kill()
        with pytest.raises(DockworkError):
            await asyncio.to_thread(channel.renew, QUEUE, [claim.lease], a_beat())
        await asyncio.to_thread(channel.connect)
        renewal = await asyncio.to_thread(channel.renew, QUEUE, [claim.lease], a_beat())

        assert renewal.verdicts == (Verdict.OK,)
        await asyncio.to_thread(channel.close)
        await store.close()


@pytest.mark.full
@pytest.mark.covers("RT-065", "RT-195")
async def test_a_cluster_behind_tls_is_believed_by_its_certificates() -> None:
    with RedisCluster(tls=True) as cluster:
        trusting, doubting = RedisStore(settings(cluster), ca_file=CA_FILE), RedisStore(settings(cluster))
        for number in range(6):
            name = QueueName("shop", f"q{number}")
            await trusting.enqueue(name, [a_job("a")])
            assert (await trusting.claim(name, ANN, number=1, slots=1)).claims[0].job_id == "a"
        with pytest.raises(StoreUnavailable, match="certificate"):
            await doubting.open()
        await trusting.close()
        await doubting.close()


@pytest.mark.covers("RT-189", "RT-193", "RT-065")
async def test_a_mode_that_does_not_fit_the_server_stops_the_start(
    whole: RedisCluster, server: RedisServer
) -> None:
    with RedisServer(port=0) as alone:
        for said_mode, url, words in (
            ("standalone", whole.url, "is a server of the kind cluster, and REDIS_MODE is standalone"),
            ("cluster", alone.url, "is a server of the kind standalone, and REDIS_MODE is cluster"),
        ):
            store = RedisStore(RedisSettings(url=url, mode=said_mode))  # type: ignore[arg-type]
            channel = store.renewal_channel()
            for ask in (store.open, lambda channel=channel: asyncio.to_thread(channel.connect)):
                with pytest.raises((InvalidUrl, StoreUnavailable), match=words):
                    await ask()
            await store.close()


@pytest.mark.covers("RT-065", "RT-197", "FM-25")
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "the slot is being moved"),
        (b"-CLUSTERDOWN The cluster is down\r\n", "CLUSTERDOWN|ClusterDownError|cluster is down"),
    ],
)
async def test_a_cluster_that_cannot_serve_is_asked_again_until_the_commands_time_is_over(
    answer: bytes, words: str
) -> None:
    async with scripted_redis({b"EVALSHA": answer, b"CLUSTER": b"*0\r\n"}) as url:
        path = url.removeprefix("unix://")
        connector = OneNode(RedisSettings(mode="cluster", command_timeout=timedelta(seconds=0.2)), path=path)
        nodes = ClusterNodes(connector)
        connector.directory.move(SLOT, ("node", 1))  # type: ignore[union-attr]
        wire = await nodes.routed(SLOT)
        from dockwork.store.views import stats

        with pytest.raises(StoreUnavailable, match=words):
            await wire.call(stats(QueueKeys(QUEUE)))
        await nodes.close()


class OneNode(Connector):
    """Every node of the map is one scripted server on a unix socket."""

    def __init__(self, settings: RedisSettings, *, path: str) -> None:
        super().__init__(settings)
        object.__setattr__(self, "path", path)

    def at_node(self, place: Any) -> Connector:
        made = RedisSettings(url=f"unix://{self.path}", command_timeout=self.settings.command_timeout)  # type: ignore[attr-defined]
        return Connector(made, directory=self.directory)


async def test_keys_of_two_slots_in_one_call_are_a_defect_and_named(whole: RedisCluster) -> None:
    store = RedisStore(settings(whole))
    wire = await store._wire(QUEUE)

    with pytest.raises(ScriptFailed, match="don't hash to the same slot"):
        await wire.command("DEL", "a", "b")

    await store.close()


@pytest.mark.covers("RT-065", "RT-074")
async def test_a_cold_queue_is_heard_of_from_any_node(whole: RedisCluster) -> None:
    listener, store = RedisStore(settings(whole)), RedisStore(settings(whole))
    wakes = listener.wakes()
    coming = asyncio.ensure_future(anext(wakes))
    await until_async(lambda: subscribed(whole), what="somebody listens")
    names = a_queue_each()[:3]
    for name in names:
        await store.sample(name, horizon_ms=0, cold=True)
        await store.enqueue(name, [a_job("a")])

    found = [await asyncio.wait_for(coming, 10)]
    for _ in names[1:]:
        found.append(await asyncio.wait_for(anext(wakes), 10))
    assert sorted(found, key=str) == sorted(names, key=str)
    await wakes.aclose()  # type: ignore[attr-defined]
    await listener.close()
    await store.close()


async def subscribed(cluster: RedisCluster) -> bool:
    return any(cluster.client(node).pubsub_numpat() for node in range(3))


def test_the_map_takes_a_node_without_a_name_for_the_one_that_was_asked() -> None:
    topology = Topology()
    topology.learn(
        [[0, 8191, [b"", 7000, b"id"]], [8192, 16383, [b"b.example", 7001, b"id"], [b"c", 7002, b"id"]]], "a"
    )

    assert (topology.owner(0), topology.owner(16383)) == (("a", 7000), ("b.example", 7001))
    assert topology.nodes == (("a", 7000), ("b.example", 7001))
    topology.move(0, ("d", 1))
    assert (topology.owner(0), topology.owner(1), topology.nodes[-1]) == (("d", 1), ("a", 7000), ("d", 1))
    assert topology.others(("a", 7000), [("a", 7000), ("z", 9)]) == [("b.example", 7001), ("d", 1), ("z", 9)]


@pytest.mark.covers("RT-199", "RT-065")
async def test_one_node_that_evicts_or_keeps_no_file_is_told_for_the_whole_cluster(
    whole: RedisCluster,
) -> None:
    store = RedisStore(settings(whole))
    for node in range(3):
        whole.client(node).config_set("appendonly", "yes")
    good = await store.server()
    whole.client(2).config_set("maxmemory-policy", "allkeys-lru")
    whole.client(1).config_set("appendonly", "no")
    try:
        bad = await store.server()
    finally:
        for node in range(3):
            whole.client(node).config_set("maxmemory-policy", "noeviction")
            whole.client(node).config_set("appendonly", "no")

    assert (good["policy"], good["aof"]) == ("noeviction", True)
    assert (bad["policy"], bad["aof"]) == ("allkeys-lru", False)
    await store.close()
