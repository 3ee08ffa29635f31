"""A job that kills its workers is buried alone: the jobs beside it are separated from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from dockwork.core.states import State
from dockwork.store.protocol import NewJob, Outcome, Owner, QueueConfig, RevokeCause, Settlement
from support.crashes import Fleet, Plan
from support.redis_server import RedisServer
from support.store_world import ANN, BOB, Job, RedisWorld, World, a_beat, a_failure, a_job
from support.worker_app import app as declared
from support.workers import NAME, Process
from support.workers import World as Workers

CONTAINER = {"DOCKWORK_POD_UID": "pod-1", "DOCKWORK_CONTAINER": "worker", "DOCKWORK_QUEUES": "work=10"}


async def crash(world: World, owner: Owner = ANN) -> None:
    await world.store.revoke(world.queue, str(owner), RevokeCause.DIED, "exit code 3")


async def suspects(world: World, *jobs: NewJob) -> None:
    """These jobs were in two crashes, and all are due again."""
    await world.enqueue(*jobs)
    for _ in range(2):
        assert len((await world.claim(len(jobs))).claims) == len(jobs)
        await crash(world)
    await world.advance(len(jobs) + 1)


@pytest.mark.covers("RT-134")
@pytest.mark.parametrize("limit", [3, 5])
async def test_nine_jobs_beside_one_that_kills_its_worker_complete(world: World, limit: int) -> None:
    names = [f"j{n}" for n in range(10)]
    await world.enqueue(*[a_job(name, max_deliveries=limit) for name in names])
    for _ in range(60):
        claims = {claim.job_id: claim.lease for claim in (await world.claim(10)).claims}
        if "j4" in claims:
            await crash(world)
        else:
            done = [Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in claims.values()]
            await world.settle(*done)
        # Longer than any wait of a suspect, as is the back-off of a container.
        await world.advance(20)

    picture = await world.picture()
    assert {state: len(jobs) for state, jobs in picture.items()} == {State.COMPLETED: 9, State.DEAD: 1}
    assert picture[State.DEAD][0].deliveries == limit
    assert max(job.interruptions for job in picture[State.COMPLETED]) == 2


@pytest.mark.covers("RT-134")
async def test_a_second_crash_sets_jobs_aside_a_second_apart(redis: RedisWorld) -> None:
    await redis.enqueue("a", "b", "c")
    await redis.claim(3)
    await crash(redis)
    assert list(await redis.picture()) == [State.READY]
    await redis.claim(3)
    await redis.redis.delete(redis.keys.wake)
    await crash(redis)

    due = [score // 1024 for _, score in await redis.redis.zrange(redis.keys.delayed, 0, -1, withscores=True)]
    assert [at - due[0] for at in due] == [0, 1000, 2000]
    assert await redis.redis.zscore(redis.keys.wake, "due") == due[0]
    assert (await redis.events())[-2:] == [
        ("stalled", ("a", "b", "c"), "died"),
        ("delayed", ("a", "b", "c"), "suspect"),
    ]


@pytest.mark.covers("RT-134")
async def test_a_suspect_waits_longer_with_each_crash_and_a_minute_at_most(redis: RedisWorld) -> None:
    await redis.enqueue(a_job("a", max_deliveries=20))
    waits = []
    for _ in range(10):
        await redis.claim_one()
        before = await redis.store.ping()
        await crash(redis)
        due = await redis.redis.zscore(redis.keys.delayed, "a")
        waits.append(0 if due is None else round((due // 1024 - before) / 1000))
        await redis.advance(61)

    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.covers("RT-134", "RT-071")
async def test_a_worker_runs_one_suspect_and_the_others_hold_nobody_up(world: World) -> None:
    await suspects(world, *[a_job(name) for name in ("a", "b", "c")])
    await world.enqueue("new1", "new2", "new3")

    claimed = await world.claim(3)
    # No place is lost to a suspect that has to wait.
    assert [claim.job_id for claim in claimed.claims] == ["a", "new1", "new2"]
    assert claimed.next_at_ms is not None
    assert 0 < claimed.next_at_ms - claimed.now_ms <= 1000, "the worker is told when to look again"
    await world.advance(3)
    assert [claim.job_id for claim in (await world.claim(3, BOB)).claims] == ["b", "new3"], "another has none"

    # Back at its old place, before what came later, once it may run alone.
    await world.enqueue("new4")
    await world.advance(3)
    settled = await world.settle(
        Settlement(lease=claimed.claims[0].lease, outcome=Outcome.COMPLETED), claim_next=2
    )
    assert [claim.job_id for claim in settled.claimed.claims] == ["c", "new4"]


@pytest.mark.covers("RT-134")
async def test_a_suspect_that_runs_for_ten_minutes_keeps_the_others_away_no_longer(world: World) -> None:
    await suspects(world, a_job("a"), a_job("b"))
    claim = await world.claim_one()
    for _ in range(59):
        await world.advance(10)
        await world.store.renew(world.queue, [claim.lease], a_beat())
        assert (await world.claim(5)).claims == ()
    await world.advance(11)

    assert [one.job_id for one in (await world.claim(5)).claims] == ["b"]


@pytest.mark.covers("RT-134", "RT-074")
async def test_leases_that_end_for_the_second_time_make_suspects_too(world: World) -> None:
    await world.enqueue("a", "b")
    for _ in range(2):
        await world.claim(2)
        await world.lose_leases()
        assert await world.store.reap(world.queue) == (2, 0)

    assert [job.id for job in (await world.picture())[State.DELAYED]] == ["a", "b"]


@pytest.mark.covers("RT-134", "RT-033")
async def test_failed_attempts_are_no_crashes(world: World) -> None:
    await world.enqueue(a_job("a", max_deliveries=3))
    for _ in range(4):
        await world.end(await world.claim_one(), Outcome.RETRY, failure=a_failure())
    await world.claim_one()
    await crash(world)

    (job,) = (await world.picture())[State.READY]
    assert (job.id, job.attempts, job.deliveries) == ("a", 4, 5), (
        "its first crash: neither buried nor suspect"
    )


@pytest.mark.covers("RT-134")
@pytest.mark.parametrize(
    "plan",
    [
        Plan(slots=10, limit=2),
        Plan(slots=10, limit=3),
        Plan(slots=10, limit=5, at_once=True),
        Plan(slots=10, limit=3, crash_s=30, run_s=(20, 40, 60, 90)),
        Plan(slots=10, limit=5, workers=3, crash_s=4),
        Plan(slots=100, limit=3, crash_s=4, at_once=True),
        Plan(slots=100, limit=5),
    ],
    ids=repr,
)
async def test_in_a_fleet_that_restarts_with_back_off_the_culprit_alone_is_buried(plan: Plan) -> None:
    result = await Fleet(plan).run()

    assert (result.culprit, result.crashes) == (State.DEAD, plan.limit)
    assert (result.buried, result.charged <= 2) == (0, True)


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
async def workers(own_server: RedisServer) -> AsyncIterator[Workers]:
    own_server.flush()
    world = Workers(own_server.url)
    yield world
    await world.close()


@pytest.mark.covers("RT-134")
async def test_nine_jobs_complete_beside_one_that_ends_the_process(workers: Workers, tmp_path: Path) -> None:
    release = tmp_path / "release"
    await workers.store.configure(NAME, QueueConfig(max_deliveries=3), None)
    items = [declared.registry["until_file"].options().item(path=str(release)) for _ in range(9)]
    items.insert(4, declared.registry["ends_its_process"].options().item())
    ids = [(await workers.app.submit(item)).id for item in items]
    culprit = ids.pop(4)

    def start(name: str) -> Process:
        return Process(workers.url, tmp_path, name=name, lease=60, environ=CONTAINER).start()

    for number in range(2):
        with start(f"worker{number}") as worker:
            assert worker.wait() == 3
    release.touch()
    with start("worker2") as worker:
        assert worker.wait(40) == 3
    with start("worker3"):
        views = [await workers.until(one, State.COMPLETED, State.DEAD, within=40) for one in ids]
        assert (await workers.view(culprit)).state is State.DEAD

    assert {view.state for view in views} == {State.COMPLETED}
    assert worker.receipts().count("ends_its_process began") == 3


@pytest.mark.covers("RT-134")
async def test_parked_suspects_are_separated_too(world: World) -> None:
    await suspects(world, a_job("a"), a_job("b"))
    for _ in range(2):
        await world.end(await world.claim_one(), Outcome.PARKED, park_type="t@h")
        await world.advance(3)
    assert [job.id for job in (await world.picture())[State.PARKED]] == ["a", "b"]

    assert [claim.job_id for claim in (await world.claim(5, BOB, ["t@h"])).claims] == ["a"]
    assert await world.picture() == {
        State.ACTIVE: [Job("a", State.ACTIVE, deliveries=3, interruptions=2, owner=str(BOB))],
        State.DELAYED: [Job("b", State.DELAYED, deliveries=2, interruptions=2)],
    }
    await world.advance(3)
    assert [claim.job_id for claim in (await world.claim(5)).claims] == ["b"]
