"""The actions as an application calls them, on Redis and in memory, and their blocking twin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockwork import App, Backoff, InvalidArgs, InvalidValue, State, Unrecoverable
from dockwork.actions import MAY_REPEAT
from dockwork.core.keys import QueueName
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import Acted, Owner, Store
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_world import a_beat
from support.waiting import until_async

ANN = Owner(pod="pod", boot="b")


class Shop:
    """An app on one store, and the queue `mail` of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.app = app = App("shop", namespace="shop", store=store)
        self.broken = True

        @app.job(queue="mail", retries=0, backoff=Backoff.fixed(60))
        async def send(to: str, n: int = 0) -> None:
            if self.broken:
                raise Unrecoverable("no such address")

        self.send = send

    async def work(self) -> None:
        """Run what waits until nothing does."""
        worker = self.app.worker(queues={"mail": 4}, trap_signals=False)
        running = asyncio.create_task(worker.run())
        await until_async(self._is_idle)
        await worker.shutdown()
        await running

    async def _is_idle(self) -> bool:
        counts = (await self.store.stats(QueueName("shop", "mail"))).counts
        return not any(counts[state] for state in (State.READY, State.PRIORITIZED, State.ACTIVE))


@pytest.fixture(params=["redis", "memory"])
async def shop(request: pytest.FixtureRequest, server: RedisServer) -> AsyncIterator[Shop]:
    if request.param == "redis":
        server.flush()
        store: Any = RedisStore(server.url)
    else:
        store = MemoryStore(ticking=True)
    made = Shop(store)
    yield made
    await made.app.close()
    await store.close()


@pytest.mark.covers("RT-024", "RT-069", "RT-142")
async def test_a_dead_letter_is_reviewed_and_put_back(shop: Shop) -> None:
    job = await shop.send.enqueue("ann")
    await shop.work()

    (seen,) = [each async for each in shop.app.jobs("mail", state="dead")]

    assert (seen.id, len(seen.digest)) == (job.id, 40)
    info = await job.info()
    assert info is not None
    assert info.digest == seen.digest
    assert await shop.app.redrive(seen.id, "0" * 40) == "conflicted"
    assert await shop.app.redrive(seen.id, seen.digest) == "ok"
    assert await shop.app.redrive(seen.id, seen.digest) == "conflicted"
    assert await shop.app.redrive("nobody", seen.digest, queue="mail") == "missing"
    shop.broken = False
    await shop.work()
    assert await job.state() is State.COMPLETED
    with pytest.raises(InvalidValue, match="digest: expected that of the job as it was reviewed"):
        await job.redrive("")


@pytest.mark.covers("RT-024", "RT-142")
async def test_a_filter_is_previewed_and_says_that_effects_may_repeat(shop: Shop) -> None:
    for n in range(3):
        await shop.send.enqueue("ann", n)
    await shop.work()

    plan = await shop.app.plan_redrive("mail", type="send", limit=2)

    assert (plan.count, dict(plan.types), dict(plan.reasons)) == (2, {"send": 2}, {"no such address": 2})
    assert plan.warning == MAY_REPEAT
    assert "may happen once more" in MAY_REPEAT
    assert (await shop.app.plan_redrive("mail", type="other")).count == 0
    assert (await shop.app.plan_redrive("mail", type="send", limit=2)).digest == plan.digest
    heard: list[tuple[int, int]] = []
    done = await shop.app.redrive_all(plan, progress=lambda at, of: heard.append((at, of)))
    assert (done.ok, done.conflicted, heard[-1]) == (2, (), (2, 2))
    again = await shop.app.redrive_all(plan)
    assert (again.ok, len(again.conflicted)) == (0, 2)


@pytest.mark.covers("RT-024")
async def test_retry_runs_whatever_can_run_again(shop: Shop) -> None:
    dead = await shop.send.enqueue("ann")
    await shop.work()
    later = await shop.send.enqueue_in(3600, "bob")
    waiting = await shop.send.enqueue("cy")

    assert [await one.retry() for one in (dead, later, waiting)] == ["ok", "ok", "conflicted"]
    assert await shop.app.retry("mail", "nobody") == "missing"
    assert await later.state() is State.READY
    await shop.store.claim(QueueName("shop", "mail"), ANN, number=1, slots=1)
    assert await waiting.retry() == "running"


@pytest.mark.covers("RT-024", "RT-070")
async def test_a_waiting_job_is_edited_at_its_revision(shop: Shop) -> None:
    job = await shop.send.options(headers={"trace": "t"}).enqueue("ann")

    assert await job.edit(0, args={"to": "bob", "n": 2}) == "ok"
    assert await job.edit(0, args={"to": "cy"}) == "conflicted"
    info = await job.info()
    assert info is not None
    assert (info.args, info.headers, info.revision) == ({"to": "bob", "n": 2}, {"trace": "t"}, 1)
    with pytest.raises(InvalidArgs, match="argument n: expected"):
        await shop.app.edit("mail", job.id, 1, args={"to": "bob", "n": "many"})
    assert await shop.app.reprioritise("mail", job.id, 1, -5) == "ok"
    assert await shop.app.edit("mail", job.id, 2, at=datetime.now(UTC) + timedelta(hours=1)) == "ok"  # noqa: TID251
    assert await job.state() is State.DELAYED
    assert await job.promote() == "ok"
    assert await job.promote() == "missing"
    assert await job.state() is State.PRIORITIZED
    assert await shop.app.edit("mail", "nobody", 0, args={}) == "missing"


@pytest.mark.covers("RT-024", "RT-070")
async def test_a_purge_deletes_what_was_counted(shop: Shop) -> None:
    for n in range(3):
        await shop.send.enqueue("ann", n)
    await shop.work()

    plan = await shop.app.plan_purge("mail", state="dead")
    assert plan.count == 3
    assert (await shop.app.plan_purge("mail", state="dead", older_than=3600)).count == 0
    first = [job async for job in shop.app.jobs("mail", state="dead")][-1]
    await shop.app.redrive(first.id, first.digest)
    assert await shop.app.purge(plan) == PurgeOf(0, conflicted=True)
    assert await shop.app.purge(await shop.app.plan_purge("mail", state="dead")) == PurgeOf(2)
    assert (await shop.app.stats("mail")).counts[State.DEAD] == 0


def PurgeOf(deleted: int, *, conflicted: bool = False) -> Any:
    from dockwork.actions import PurgeResult

    return PurgeResult(deleted=deleted, conflicted=conflicted)


@pytest.mark.covers("RT-024", "RT-070")
async def test_pause_resume_reap_repair_migrate_and_obliterate(shop: Shop) -> None:
    app = shop.app
    await shop.send.enqueue("ann")

    assert [await app.pause("mail"), await app.pause("mail"), await app.resume("mail")] == [True, False, True]
    assert await app.set_paused("mail", expected=True, wanted=False) is False
    reaped = await app.reap("mail")
    assert (reaped.returned, reaped.buried) == (0, 0)
    repaired = await app.repair("mail")
    assert (repaired.checked, repaired.fixed, repaired.busy) == (1, 0, False)
    assert (await app.migrate("mail")).behind == ()
    with pytest.raises(InvalidValue, match="version: expected 1 to 1"):
        await app.migrate("mail", 2)
    with pytest.raises(InvalidValue, match="confirm: expected the queue's name, mail, got 'mial'"):
        await app.obliterate("mail", confirm="mial")
    gone = await app.obliterate("mail", confirm="mail")
    assert (gone.done, gone.deleted) == (True, 1)
    assert "mail" not in await app.queues()
    assert (await app.obliterate("mail", confirm="mail")).missing


@pytest.mark.covers("RT-024", "RT-108")
async def test_an_obliterated_queue_is_its_workers_again(shop: Shop) -> None:
    stopped = asyncio.Event()

    @shop.app.job(queue="mail", name="long")
    async def long() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    worker = shop.app.worker(queues={"mail": 2}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    job = await long.enqueue()
    await until_async(lambda: _is(job, State.PROCESSING))

    assert (await shop.app.obliterate("mail", confirm="mail")).done
    await asyncio.wait_for(stopped.wait(), 10)
    shop.broken = False
    again = await shop.send.enqueue("ann")
    await until_async(lambda: _is(again, State.COMPLETED))

    assert await job.state() is None
    await worker.shutdown()
    await running


async def _is(job: Any, state: State) -> bool:
    return await job.state() is state


@pytest.mark.covers("RT-024")
async def test_workers_are_listed_and_asked_to_take_nothing_new(shop: Shop) -> None:
    name = QueueName("shop", "mail")
    await shop.send.enqueue("ann")
    await shop.send.enqueue("bob")
    await shop.store.renew(name, [], a_beat(ANN))
    await shop.store.claim(name, ANN, number=1, slots=1)

    (worker,) = await shop.app.workers("mail")
    assert worker.owner == str(ANN)
    assert await shop.app.quiesce("mail", worker.pod) == {ANN.pod: 1}
    assert (await shop.store.claim(name, ANN, number=2, slots=1)).refused == "quiesced"
    await shop.app.unquiesce("mail", worker.pod)
    assert len((await shop.store.claim(name, ANN, number=3, slots=1)).claims) == 1


@pytest.mark.covers("RT-004", "RT-024")
def test_the_blocking_twin_has_every_action(server: RedisServer) -> None:
    server.flush()
    app = App("shop", namespace="shop", redis=server.url)

    @app.job(queue="mail")
    def send(to: str) -> None: ...

    try:
        job = send.sync.options(delay=60).enqueue("ann")
        assert app.sync.pause("mail")
        assert app.sync.resume("mail")
        assert job.edit(0, args={"to": "bob"}) is Acted.OK
        assert job.reprioritise(1, 5) is Acted.OK
        assert job.promote() is Acted.OK
        assert job.cancel(force=True) == "cancelled"
        info = job.info()
        assert info is not None
        assert app.sync.redrive(job.id, info.digest) is Acted.OK
        assert job.retry() is Acted.CONFLICTED
        job.cancel()
        assert app.sync.redrive_all(app.sync.plan_redrive("mail", state="cancelled")).ok == 1
        assert app.sync.promote("mail") == 0
        job.cancel()
        assert app.sync.purge(app.sync.plan_purge("mail", state="cancelled")).deleted == 1
        assert app.sync.repair("mail").fixed == 0
        assert app.sync.reap("mail").returned == 0
        assert app.sync.migrate("mail").version == 1
        assert app.sync.obliterate("mail", confirm="mail").done
    finally:
        app.sync.close()


def test_app_and_twin_have_the_same_actions() -> None:
    from dockwork.app_actions import AppActions, SyncActions

    names = {name for name in vars(AppActions) if not name.startswith("_")} - {"client", "registry"}
    assert names == {name for name in vars(SyncActions) if not name.startswith("_")}


@pytest.mark.covers("RT-024", "RT-046")
async def test_actions_reach_every_partition(server: RedisServer) -> None:
    server.flush()
    app = App("shop", namespace="shop", redis=server.url)
    app.queue("mail", partitions=3)

    @app.job(queue="mail")
    async def send(n: int) -> None: ...

    try:
        jobs = [await send.enqueue_in(3600, n) for n in range(12)]
        assert await jobs[0].edit(0, priority=5) == "ok"
        assert await app.promote("mail", jobs[0].id, jobs[1].id) == 2
        for job in jobs:
            assert await job.cancel() == "cancelled"
        plan = await app.plan_redrive("mail", state="cancelled")
        assert (plan.count, len(plan.picks)) == (12, 3)
        info = await jobs[3].info()
        assert info is not None
        assert await app.redrive(jobs[3].id, info.digest) == "ok"
        done = await app.redrive_all(plan)
        assert (done.ok, done.conflicted) == (11, (jobs[3].id,))
        await jobs[5].cancel()
        purged = await app.purge(await app.plan_purge("mail", state="cancelled"))
        assert purged.deleted == 1
        assert (await app.repair("mail")).checked == 11
        gone = await app.obliterate("mail", confirm="mail")
        assert (gone.done, gone.deleted) == (True, 11)
        assert await app.queues() == []
    finally:
        await app.close()
