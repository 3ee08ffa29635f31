"""The ledger on a real Redis: exactly one job per instant, whoever ticks, whatever is lost or restarted between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis.asyncio import Redis

from dockwork.core.cron import Calendar, parse_schedule, tzdata_version
from dockwork.core.keys import QueueKeys, QueueName
from dockwork.errors import InvalidValue, OutcomeUnknown, StoreUnavailable
from dockwork.store.protocol import Claimed, NewJob, Outcome, Owner, Settlement
from dockwork.store.redis import RedisStore
from support.cron_world import UID, CronWorld, an_entry, cron_world
from support.redis_server import RedisServer
from support.waiting import until_async

OWNER = Owner(pod="pod-1", boot="boot-1")
DAY = 86_400


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with RedisServer() as server:
        yield server.url


@pytest.fixture
async def world(url: str) -> AsyncIterator[CronWorld]:
    async with cron_world(url) as world:
        yield world


async def claim(world: CronWorld, slots: int = 10, number: int = 1) -> Claimed:
    return await world.store.claim(world.queue, OWNER, number=number, slots=slots)


async def finish(
    world: CronWorld, claimed: Claimed, outcome: Outcome = Outcome.COMPLETED, **more: Any
) -> None:
    settlements = [Settlement(lease=claim.lease, outcome=outcome, **more) for claim in claimed.claims]
    await world.store.settle(world.queue, OWNER, settlements, number=1_000)


# --- one job per instant -----------------------------------------------------------------------------------


@pytest.mark.covers("OP-253", "OP-250", "FM-41")
async def test_ten_tickers_at_once_make_one_job_per_instant(world: CronWorld) -> None:
    instants = [n / 20 for n in range(1, 31)]
    await world.plan(instants)

    async def tick_until_none_is_left() -> None:
        while (state := await one_look()).next_ms is not None:
            # A process that is new each time, and one that has been there: both tick what is due.
            fresh = RedisStore(world.url)
            try:
                await fresh.tick(world.queue)
                await world.store.tick(world.queue, state.uid)
            finally:
                await fresh.close()

    async def one_look() -> Any:
        return await world.state()

    await asyncio.gather(*(tick_until_none_is_left() for _ in range(10)))

    expected = [world.job_id(at) for at in instants]
    assert await world.fired() == expected
    assert await world.jobs() == sorted(expected)
    state = await world.state()
    assert (state.runs, state.missed, state.skipped, state.next_ms) == (30, 0, 0, None)


@pytest.mark.covers("OP-253", "FM-42")
async def test_a_redis_that_is_killed_between_any_two_steps_makes_one_job_per_instant() -> None:
    with RedisServer(aof=True) as server:
        async with cron_world(server.url) as world:
            await world.plan([-4, -3, -2, 60], since=-10)
            server.restart()
            first = await until_async(lambda: answered(world.tick), within=20)
            server.restart()
            again = await until_async(lambda: answered(world.tick), within=20)
            server.restart()
            (claimed,) = await until_async(lambda: answered(lambda: claim(world)), within=20)

            expected = [world.job_id(at) for at in (-4, -3, -2)]
            assert first == [[(-4, "fired", ""), (-3, "fired", ""), (-2, "fired", "")]]
            assert again == [[]]
            assert [one.job_id for one in claimed.claims] == expected == await world.fired()
            state = await world.state()
            assert (state.runs, state.next_ms) == (3, world.second(60))


async def answered(call: Callable[[], Awaitable[Any]]) -> list[Any]:
    """The answer in a list; an empty list while Redis is away, for a call that may be made again."""
    try:
        return [await call()]
    except (StoreUnavailable, OutcomeUnknown):
        return []


@pytest.mark.covers("OP-250")
async def test_a_claim_ticks_and_takes_the_job_along(world: CronWorld) -> None:
    await world.plan([-2, 60], since=-10)

    claimed = await claim(world)

    (job,) = claimed.claims
    assert job.job_id == world.job_id(-2)
    assert (job.type, job.envelope) == ("report.daily", b'{"v":1,"type":"report.daily"}')
    assert job.scheduled_for_ms == job.due_ms == world.second(-2)
    assert claimed.next_at_ms is not None
    assert claimed.next_at_ms <= world.second(60)
    assert (await world.state()).last["by"] == "worker"
    # The operator comes second and does nothing.
    assert await world.tick() == []
    assert (await world.state()).runs == 1


@pytest.mark.covers("OP-250")
async def test_a_waiting_worker_learns_the_next_instant(world: CronWorld) -> None:
    await world.plan([30, 90])

    wake = await world.store.wait(world.queue, 5)

    assert wake is not None
    assert wake.due_ms == world.second(30)


@pytest.mark.covers("OP-253")
async def test_a_tick_makes_exactly_what_an_enqueue_makes(world: CronWorld, url: str) -> None:
    other = QueueName("shop", "post")
    job = NewJob(
        id="template", type="report.daily", envelope=b'{"v":1}', priority=-7, timeout_ms=9_000, max_attempts=2,
        max_deliveries=3, expires_in_ms=60_000,
    )  # fmt: skip
    for keys in (world.keys, QueueKeys(other)):
        await world.redis.set(keys.cold, "a-channel")
    async with Redis.from_url(url) as listener, listener.pubsub() as heard:
        await heard.subscribe("a-channel")
        assert (await heard.get_message(timeout=5) or {})["type"] == "subscribe"

        await world.plan([-2], an_entry(job=job), since=-10)
        await world.tick()
        times = {"due_at_ms": world.second(-2), "scheduled_for_ms": world.second(-2)}
        same = NewJob(
            **{**{name: getattr(job, name) for name in job.__slots__}, **times, "id": world.job_id(-2)}
        )
        await world.store.enqueue(other, [same])

        for _ in range(2):
            assert (await heard.get_message(timeout=5) or {})["type"] == "message"
    assert await seen_in(world, world.keys) == await seen_in(world, QueueKeys(other))


async def seen_in(world: CronWorld, keys: QueueKeys) -> dict[str, Any]:
    """All of a queue but its schedules; what is a time of the call, or made of one, is left out."""
    found: dict[str, Any] = {}
    async for key in world.redis.scan_iter(match=f"{keys.prefix.replace('{', '[{]')}*"):
        name, kind = key.decode()[len(keys.prefix) :], await world.redis.type(key)
        if name.startswith(("cron", "tick", "plan")):
            continue
        if kind == b"hash":
            found[name] = await world.redis.hgetall(key)
            found[name].pop(b"c", None)
        elif kind == b"zset":
            found[name] = dict(await world.redis.zrange(key, 0, -1, withscores=True))
            found[name].pop(b"cron", None)
        elif kind == b"stream":
            found[name] = [fields for _, fields in await world.redis.xrange(key)]
        else:
            found[name] = await world.redis.get(key)
    return found


@pytest.mark.covers("OP-253")
async def test_a_full_redis_leaves_the_tick_undecided_and_running_work_goes_on(world: CronWorld) -> None:
    await world.store.enqueue(world.queue, [NewJob(id="a", type="x", envelope=b"{}")])
    await world.plan([-2, 60], since=-10)
    before = await world.state()
    await world.redis.config_set("maxmemory", "1")
    try:
        (failed,) = await world.store.tick(world.queue)
        claimed = await claim(world)
        during = await world.state()
    finally:
        await world.redis.config_set("maxmemory", "0")

    assert (failed.uid, failed.outcome) == (UID, "failed")
    assert "OOM" in failed.reason
    assert [one.job_id for one in claimed.claims] == ["a"]
    assert (during.cursor_ms, during.runs, during.next_ms) == (before.cursor_ms, 0, before.next_ms)
    assert await world.tick(UID) == [(-2, "fired", "")]


async def test_many_due_schedules_are_all_ticked_and_a_full_redis_ends_the_call(world: CronWorld) -> None:
    uids = [f"uid-{n:02}" for n in range(20)]
    for uid in uids:
        await world.plan([-2, 60], an_entry(uid=uid), since=-10)
    await world.redis.config_set("maxmemory", "1")
    try:
        failed = await world.store.tick(world.queue)
    finally:
        await world.redis.config_set("maxmemory", "0")

    ticked = await world.store.tick(world.queue)

    assert [one.outcome for one in failed] == ["failed"] * 8
    assert sorted(one.uid for one in ticked if one.outcome == "fired") == uids


@pytest.mark.covers("OP-253", "FM-42")
async def test_a_broken_entry_keeps_no_other_from_its_tick(world: CronWorld) -> None:
    await world.plan([-3], an_entry(uid="broken"), since=-10)
    await world.plan([-2], since=-10)
    await world.redis.hset(world.keys.cron, "broken:entry", "{")

    ticked = await world.store.tick(world.queue)

    assert [(t.uid, t.outcome) for t in ticked] == [("broken", "failed"), (UID, "fired")]
    assert await world.store.tick(world.queue) == []


# --- missed-run policies -----------------------------------------------------------------------------------


@pytest.mark.covers("OP-252")
@pytest.mark.parametrize(
    ("policy", "fresh", "expected"),
    [
        ("Skip", [], "mmm"),
        ("Latest", [], "mmf"),
        ("All", [], "mff"),
        ("Skip", [-5], "mmmf"),
        ("Latest", [-5], "mmmf"),
        ("All", [-5], "mfff"),
    ],
)
async def test_the_missed_run_policy_decides_about_what_nobody_ticked(
    world: CronWorld, policy: str, fresh: list[float], expected: str
) -> None:
    entry = an_entry(missed_run_policy=policy, max_catch_up=2)
    await world.plan([-300, -200, -100, *fresh, 60], entry, since=-DAY)

    ticked = await world.tick()

    words = {"m": ("missed", "Policy"), "f": ("fired", "")}
    assert ticked == [
        (at, *words[letter]) for at, letter in zip([-300, -200, -100, *fresh], expected, strict=True)
    ]
    state = await world.state()
    assert (state.runs, state.missed) == (expected.count("f"), expected.count("m"))
    assert state.missed_by == {"Policy": expected.count("m")}
    assert await world.tick() == []


@pytest.mark.covers("OP-252", "OP-267")
async def test_the_deadline_ends_a_ticks_time(world: CronWorld) -> None:
    entry = an_entry(missed_run_policy="All", starting_deadline_ms=30_000)
    await world.plan([-100, -31, -29, -5, 60], entry, since=-DAY)

    assert await world.tick() == [
        (-100, "missed", "Deadline"),
        (-31, "missed", "Deadline"),
        (-29, "fired", ""),
        (-5, "fired", ""),
    ]
    state = await world.state()
    assert state.missed_by == {"Deadline": 2}
    assert (state.last_missed["at"], state.last_missed["reason"]) == (str(world.second(-31)), "Deadline")
    assert (state.last["at"], state.last["outcome"], state.last["by"]) == (
        str(world.second(-5)),
        "fired",
        "operator",
    )


@pytest.mark.covers("OP-252")
async def test_a_missed_tick_of_an_interval_is_counted_however_many_there_were(world: CronWorld) -> None:
    entry = an_entry(every_ms=1_000, missed_run_policy="Skip")
    await world.plan([], entry, since=-3 * 3600)

    ticked = await world.store.tick(world.queue)
    state = await world.state()

    # The last minute is fresh, all before it is missed; an answer tells the newest hundred.
    assert len(ticked) == 100
    assert 60 <= state.runs <= 61
    assert 10_800 <= state.runs + state.missed <= 10_802
    assert all(t.at_ms % 1_000 == 0 for t in ticked)
    assert state.next_ms is not None
    assert state.next_ms % 1_000 == 0


# --- concurrency -------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-259")
@pytest.mark.parametrize("where", ["waiting", "running", "waiting for its retry"])
async def test_forbid_skips_while_a_job_has_not_ended(world: CronWorld, where: str) -> None:
    await world.plan([-3, 60], an_entry(concurrency_policy="Forbid"), since=-10)
    await world.tick()
    if where != "waiting":
        claimed = await claim(world)
        if where != "running":
            await finish(world, claimed, Outcome.RETRY, delay_ms=60_000)
    await world.change(planned_to=world.second(60), cursor=world.second(-3))
    await world.redis.zadd(world.keys.plan(UID), {str(world.second(-1)): world.second(-1)})

    ticked = await world.tick(UID)

    assert ticked == [(-1, "skipped", "StillRunning")]
    state = await world.state()
    assert (state.runs, state.missed, state.skipped, state.skipped_by) == (1, 0, 1, {"StillRunning": 1})
    assert state.active == (world.job_id(-3),)
    assert await world.jobs() == [world.job_id(-3)]


@pytest.mark.covers("OP-259")
@pytest.mark.parametrize("how", ["completed", "dead", "without a record"])
async def test_forbid_goes_on_once_the_job_has_ended_or_its_record_is_gone(
    world: CronWorld, how: str
) -> None:
    await world.plan([-3, 60], an_entry(concurrency_policy="Forbid"), since=-10)
    await world.tick()
    claimed = await claim(world)
    if how == "without a record":
        await world.redis.delete(world.keys.record(world.job_id(-3)))
    else:
        await finish(world, claimed, Outcome.COMPLETED if how == "completed" else Outcome.DEAD)
    await world.change(cursor=world.second(-3))
    await world.redis.zadd(world.keys.plan(UID), {str(world.second(-1)): world.second(-1)})

    assert await world.tick(UID) == [(-1, "fired", "")]


@pytest.mark.covers("OP-259", "OP-252")
async def test_forbid_lets_only_one_of_several_due_ticks_through(world: CronWorld) -> None:
    entry = an_entry(concurrency_policy="Forbid", missed_run_policy="All")
    await world.plan([-300, -200, -2, 60], entry, since=-DAY)

    assert await world.tick() == [
        (-300, "fired", ""),
        (-200, "skipped", "StillRunning"),
        (-2, "skipped", "StillRunning"),
    ]


@pytest.mark.covers("OP-252")
async def test_max_pending_bounds_what_waits_but_not_the_catch_up(world: CronWorld) -> None:
    narrow = an_entry(missed_run_policy="All", max_pending=1)
    wide = an_entry(uid="wide", missed_run_policy="All", max_pending=3)
    for entry in (narrow, wide):
        await world.plan([-300, -200, -4, -3, 60], entry, since=-DAY)

    assert await world.tick(UID) == [
        (-300, "fired", ""),
        (-200, "fired", ""),
        (-4, "skipped", "Pending"),
        (-3, "skipped", "Pending"),
    ]
    assert await world.tick("wide") == [
        (-300, "fired", ""),
        (-200, "fired", ""),
        (-4, "fired", ""),
        (-3, "skipped", "Pending"),
    ]
    assert ((await world.state()).pending, (await world.state("wide")).pending) == (2, 3)


@pytest.mark.covers("OP-262")
async def test_a_paused_queue_takes_ticks_up_to_max_pending(world: CronWorld) -> None:
    await world.plan([-4, -3, -2, 60], an_entry(max_pending=2), since=-10)
    await world.store.set_paused(world.queue, expected=False, wanted=True)

    assert await world.tick() == [(-4, "fired", ""), (-3, "fired", ""), (-2, "skipped", "Pending")]
    assert (await claim(world)).claims == ()


@pytest.mark.covers("OP-252", "OP-267")
@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        ({"max_depth": 0}, "QueueFull"),
        ({"max_bytes": 1}, "QueueFull"),
        ({"closed": 1}, "QueueClosed"),
        ({"max_payload": 1}, "TooLarge"),
        ({"max_timeout": 1}, "TimeoutAboveQueueMax"),
    ],
)
async def test_a_queue_that_refuses_the_job_skips_the_tick(
    world: CronWorld, meta: dict[str, int], reason: str
) -> None:
    job = NewJob(id="t", type="x", envelope=b'{"v":1}', timeout_ms=1_000)
    await world.plan([-2, 60], an_entry(job=job), since=-10)
    await world.redis.hset(world.keys.meta, mapping=meta)

    assert await world.tick() == [(-2, "skipped", reason)]
    assert await world.jobs() == []
    assert (await world.state()).next_ms == world.second(60)


# --- edits, suspension, removal ----------------------------------------------------------------------------


@pytest.mark.covers("OP-256", "FM-43")
async def test_a_new_schedule_does_nothing_for_the_past(world: CronWorld) -> None:
    await world.plan([-3600, -2, 60])

    assert await world.tick(UID) == []
    state = await world.state()
    assert (state.missed, state.next_ms) == (0, world.second(60))
    assert state.cursor_ms >= world.began_ms


@pytest.mark.covers("OP-257", "FM-43")
async def test_another_schedule_begins_now_and_drops_the_old_plan(world: CronWorld) -> None:
    await world.plan([-100, 60, 120], since=-DAY)

    await world.plan([-50, -1, 90], an_entry(schedule="b"), generation=2)

    assert await world.tick(UID) == []
    state = await world.state()
    assert (state.next_ms, state.planned, state.missed) == (world.second(90), 1, 0)
    assert await world.redis.zrange(world.keys.plan(UID), 0, -1) == [str(world.second(90)).encode()]


@pytest.mark.covers("OP-257", "FM-43")
async def test_any_other_edit_keeps_cursor_and_plan(world: CronWorld) -> None:
    await world.plan([-100, 60], an_entry(missed_run_policy="Skip"), since=-DAY)
    before = await world.state()

    await world.plan([120], an_entry(missed_run_policy="Latest"), generation=2, from_ms=world.second(60))

    state = await world.state()
    assert (state.cursor_ms, state.next_ms, state.planned) == (before.cursor_ms, before.next_ms, 2)
    assert await world.tick() == [(-100, "fired", "")]


@pytest.mark.covers("OP-258", "FM-43")
async def test_suspended_ticks_are_neither_made_nor_missed(world: CronWorld) -> None:
    await world.plan([-30, -20, 60], since=-DAY)

    await world.plan([], an_entry(suspended=True), generation=2)
    suspended, while_suspended = await world.state(), await world.tick(UID)
    claimed = await claim(world)
    await world.plan([], an_entry(), generation=3)
    resumed = await world.state()

    assert (suspended.suspended, suspended.next_ms, while_suspended, claimed.claims) == (True, None, [], ())
    assert (resumed.suspended, resumed.next_ms, resumed.missed) == (False, world.second(60), 0)
    assert resumed.cursor_ms >= world.began_ms
    assert await world.tick(UID) == []


@pytest.mark.covers("OP-258", "OP-052")
async def test_an_entry_can_be_suspended_by_uid_alone(world: CronWorld) -> None:
    await world.plan([-2, 60], since=-10)

    assert await world.store.suspend(world.queue, UID) == "ok"
    assert await world.store.suspend(world.queue, "unknown") == "stale"

    assert (await world.state()).suspended
    assert await world.tick(UID) == []
    await world.plan([], an_entry())
    state = await world.state()
    assert (state.suspended, state.next_ms, state.missed) == (False, world.second(60), 0)


@pytest.mark.covers("OP-054", "FM-43")
async def test_removing_leaves_nothing_but_the_jobs(world: CronWorld) -> None:
    await world.plan([-2, 60], since=-10)
    await world.plan([-2, 60], an_entry(uid="other"), since=-10)
    await world.tick()

    assert await world.store.unplan(world.queue, UID)
    assert not await world.store.unplan(world.queue, UID)

    assert [state.uid for state in await world.store.cron_states(world.queue)] == ["other"]
    assert await world.redis.zrange(world.keys.cron_at, 0, -1) == [b"other"]
    assert await world.redis.zrange(world.keys.tick, 0, -1) == [f"other:{world.second(-2)}".encode()]
    assert await world.redis.exists(world.keys.plan(UID)) == 0
    assert sorted(await world.redis.hkeys(world.keys.cron)) == [b"other", b"other:entry", b"other:env"]
    assert await world.jobs() == sorted([world.job_id(-2), world.job_id(-2, "other")])


@pytest.mark.covers("OP-256", "OP-054", "FM-43")
async def test_the_same_name_again_is_a_new_schedule(world: CronWorld) -> None:
    await world.plan([-20, 60], since=-DAY)
    await world.tick()
    await world.store.unplan(world.queue, UID)

    await world.plan([-20, -10, 60], an_entry(uid="second"))

    assert await world.tick("second") == []
    assert (await world.state("second")).runs == 0


@pytest.mark.covers("OP-253")
async def test_an_older_generation_and_a_plan_with_a_hole_are_stale(world: CronWorld) -> None:
    await world.plan([60, 120], generation=2)
    before = await world.dump()

    assert await world.plan([60, 120], an_entry(missed_run_policy="Skip"), generation=1) == "stale"
    assert await world.plan([240], generation=2, from_ms=world.second(180)) == "stale"

    assert await world.dump() == before
    assert await world.plan([180], generation=2, from_ms=world.second(120)) == "ok"


@pytest.mark.covers("OP-265")
async def test_renewed_zone_data_plans_the_future_anew_and_keeps_what_is_due(world: CronWorld) -> None:
    await world.plan([-2, 60, 120], since=-10)

    await world.plan([-1, 90, 150], reset=True)

    assert await world.tick() == [(-2, "fired", "")]
    planned = await world.redis.zrange(world.keys.plan(UID), 0, -1)
    assert planned == [str(world.second(at)).encode() for at in (90, 150)]


@pytest.mark.covers("OP-264")
async def test_a_schedule_that_moves_to_another_queue_neither_loses_nor_doubles_a_tick(
    world: CronWorld,
) -> None:
    post, instants = QueueName("shop", "post"), [-5, -4, -3, -2, 60]
    await world.plan(instants, since=-10)
    # As if only the first two were due when the old entry was suspended.
    await world.change(planned_to=world.second(-4))
    await world.redis.zremrangebyscore(world.keys.plan(UID), f"({world.second(-4)}", "+inf")
    await world.tick()

    for _ in range(2):  # a crash in between repeats all of it
        await world.store.suspend(world.queue, UID)
        cursor = (await world.state()).cursor_ms
        await world.store.plan(
            post,
            an_entry(),
            [world.second(at) for at in instants],
            generation=2,
            reset=False,
            decided_ms=cursor,
        )
    await world.store.unplan(world.queue, UID)

    ticked = await world.store.tick(post)
    assert await world.fired() == [world.job_id(-5), world.job_id(-4)]
    assert world.seconds(ticked) == [(-3, "fired", ""), (-2, "fired", "")]
    assert await world.store.tick(world.queue, UID) == []


# --- losses ------------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-254")
async def test_a_failover_that_loses_entry_and_job_together_makes_both_again(world: CronWorld) -> None:
    await world.plan([-3, -2, 60], since=-10)
    before = await world.dump()
    await world.tick()

    await world.restore(before)

    assert await world.tick() == [(-3, "fired", ""), (-2, "fired", "")]
    assert await world.fired() == [world.job_id(-3), world.job_id(-2)]


@pytest.mark.covers("OP-254")
@pytest.mark.parametrize("kept", ["record", "ledger"])
async def test_a_job_or_ledger_entry_that_still_exists_makes_none_twice(world: CronWorld, kept: str) -> None:
    await world.plan([-3, -2, 60], since=-10)
    before = await world.dump()
    await world.tick()
    plan, cron, cron_at = world.keys.plan(UID), world.keys.cron, world.keys.cron_at

    await world.restore(before, only=[plan, cron, cron_at, *([world.keys.tick] if kept == "record" else [])])
    if kept == "ledger":
        await world.redis.delete(*(world.keys.record(job_id) for job_id in await world.jobs()))

    assert await world.tick() == [(-3, "already", ""), (-2, "already", "")]
    assert await world.fired() == [world.job_id(-3), world.job_id(-2)]
    state = await world.state()
    assert (state.next_ms, state.runs, state.last) == (world.second(60), 0, {})


@pytest.mark.covers("OP-254")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("Skip", [(-5, "missed", "RedisDataLost"), (-4, "missed", "RedisDataLost"), (-1, "fired", "")]),
        ("Latest", [(-5, "missed", "RedisDataLost"), (-4, "missed", "RedisDataLost"), (-1, "fired", "")]),
        ("All", [(-5, "fired", ""), (-4, "fired", ""), (-1, "fired", "")]),
    ],
)
async def test_a_cursor_behind_what_was_decided_is_a_loss_that_the_policy_decides(
    world: CronWorld, policy: str, expected: list[tuple[float, str, str]]
) -> None:
    entry = an_entry(missed_run_policy=policy)
    await world.plan([-5, -4, -1, 60], entry, since=-10)

    # The status said: decided up to 3 s ago. Redis knows nothing of it.
    await world.plan([], entry, since=-3)

    assert await world.tick() == expected


@pytest.mark.covers("OP-254")
async def test_latest_makes_up_for_the_newest_lost_tick_where_none_is_fresh(world: CronWorld) -> None:
    await world.plan([-5, -4, 60], since=-10)

    await world.plan([], since=-3)

    assert await world.tick() == [(-5, "missed", "RedisDataLost"), (-4, "fired", "")]


@pytest.mark.covers("OP-254")
async def test_an_entry_that_was_lost_whole_begins_where_the_status_says(world: CronWorld) -> None:
    await world.plan([-5, -4, -1, 60], since=-3)

    assert await world.tick() == [(-1, "fired", "")]


@pytest.mark.covers("OP-255", "FM-45")
async def test_a_clock_that_was_set_back_repeats_nothing(world: CronWorld) -> None:
    await world.plan([-3, -2, 60], since=-10)
    await world.tick()
    # As if the clock had been an hour ahead when all this was decided.
    await world.change(cursor=world.second(3600), planned_to=world.second(7200))
    await world.redis.zadd(
        world.keys.plan(UID), {str(world.second(at)): world.second(at) for at in (-3, -2, -1, 60, 5400)}
    )
    await world.redis.zadd(world.keys.cron_at, {UID: world.second(-3)})

    assert await world.tick() == []
    assert (await claim(world)).claims[0].job_id == world.job_id(-3)

    state = await world.state()
    assert (state.runs, state.cursor_ms, state.next_ms) == (2, world.second(3600), world.second(5400))
    assert len(await world.jobs()) == 2


@pytest.mark.covers("OP-255", "FM-45")
async def test_an_edit_while_the_clock_is_behind_keeps_the_cursor(world: CronWorld) -> None:
    await world.plan([60, 7200], since=3600)

    await world.plan([60, 5400], an_entry(schedule="b"), generation=2)

    state = await world.state()
    assert (state.cursor_ms, state.next_ms) == (world.second(3600), world.second(5400))


# --- plans -------------------------------------------------------------------------------------------------


def hourly(tzdata: str = "") -> dict[str, str]:
    calendar = Calendar(schedule=parse_schedule("@hourly"))
    return {"schedule": calendar.hash, "calendar": calendar.to_json(), "tzdata": tzdata or tzdata_version()}


def hours_after(ms: int, count: int) -> list[int]:
    start = datetime.fromtimestamp(ms / 1000, UTC).replace(minute=0, second=0, microsecond=0)
    return [round((start + timedelta(hours=n)).timestamp() * 1000) for n in range(1, count + 1)]


async def plan_hours(world: CronWorld, count: int, *, since: float = 0, **more: str) -> list[int]:
    instants = hours_after(world.second(since), count)
    entry = an_entry(**{**hourly(), **more})
    decided = world.second(since) if since else None
    await world.store.plan(world.queue, entry, instants, generation=1, reset=False, decided_ms=decided)
    return instants


@pytest.mark.covers("OP-251")
async def test_a_worker_refills_a_plan_below_16_instants(world: CronWorld) -> None:
    planned = await plan_hours(world, 15)

    assert await world.store.refill(world.queue) == [UID]

    state = await world.state()
    assert (state.planned, state.next_ms) == (64, planned[0])
    found = [int(at) for at in await world.redis.zrange(world.keys.plan(UID), 0, -1)]
    assert found == hours_after(world.began_ms, 64)
    assert await world.store.refill(world.queue) == []


@pytest.mark.covers("OP-251")
async def test_a_worker_leaves_a_long_plan_and_newer_zone_data_alone(world: CronWorld) -> None:
    await plan_hours(world, 16)
    before = await world.dump()
    assert await world.store.refill(world.queue) == []
    assert await world.dump() == before

    await world.redis.flushdb()
    await plan_hours(world, 3, tzdata="2999a")
    assert await world.store.refill(world.queue) == []
    assert (await world.state()).planned == 3


@pytest.mark.covers("OP-251")
async def test_a_refill_does_not_count_as_an_operators_visit_and_seven_days_stop_an_entry(
    world: CronWorld,
) -> None:
    await world.plan([-2, 60], since=-10)
    await world.change(refreshed=world.second(-7 * DAY - 1))

    assert await world.tick() == []
    assert (await world.state()).next_ms is None
    assert (await claim(world)).claims == ()

    # An operator comes back: it goes on, and the policy decides about what was missed.
    await world.plan([], an_entry())
    assert await world.tick() == [(-2, "fired", "")]


@pytest.mark.covers("OP-252")
async def test_what_lies_beyond_the_plan_stays_undecided(world: CronWorld) -> None:
    await world.plan([-20], since=-DAY)

    first = await world.tick()
    await world.plan([-10, 60], from_ms=world.second(-20))

    assert (first, await world.tick()) == ([(-20, "fired", "")], [(-10, "fired", "")])


@pytest.mark.covers("OP-252")
async def test_when_all_were_away_longer_than_the_plan_the_newest_tick_runs_once(world: CronWorld) -> None:
    planned = await plan_hours(world, 5, since=-100 * 3600)
    # Nobody can know yet which missed tick is the latest.
    assert await world.store.tick(world.queue) == []

    assert await world.store.refill(world.queue) == [UID]
    ticked = await world.store.tick(world.queue)

    every = hours_after(planned[0] - 1, 200)
    due = [at for at in every if at <= (await world.state()).cursor_ms]
    # Within a minute of the hour the newest tick is fresh, else it was missed and is made up for: fired both times.
    assert [t.at_ms for t in ticked if t.outcome == "fired"] == due[-1:]
    state = await world.state()
    assert (state.runs, state.missed, state.planned) == (1, len(due) - 1, 64)
    (job,) = (await claim(world)).claims
    assert job.scheduled_for_ms == due[-1]


@pytest.mark.covers("OP-252")
async def test_what_a_plan_leaves_out_was_missed(world: CronWorld) -> None:
    await world.plan([-100, 60], since=-DAY)

    await world.plan([], left_out=700, from_ms=world.second(60))

    assert (await world.state()).missed == 700


async def test_the_ledger_keeps_a_day_and_at_most_2000_ticks_of_a_schedule(world: CronWorld) -> None:
    await world.plan([-2, 60], since=-10)
    old = [f"{UID}:{world.second(-DAY - 60 - n)}" for n in range(5)]
    young = [f"{UID}:{world.second(-10 - n)}" for n in range(2100)]
    for of_other in (f"other:{world.second(-DAY - 60)}", f"other:{world.second(-9)}"):
        await world.redis.zadd(world.keys.tick, {of_other: 0})
    await world.plan([-2, 60], an_entry(uid="other"), since=-10)
    await world.redis.zadd(world.keys.tick, dict.fromkeys([*old, *young], 0))

    await world.tick()

    kept = [member.decode() for member in await world.redis.zrange(world.keys.tick, 0, -1)]
    mine = [member for member in kept if member.startswith(UID)]
    assert len(mine) == 2000
    assert mine[-1] == f"{UID}:{world.second(-2)}"
    assert mine[0] > max(old)
    others = [member for member in kept if member.startswith("other")]
    assert others == [f"other:{world.second(at)}" for at in (-9, -2)]


# --- ends and jitter ---------------------------------------------------------------------------------------


async def test_until_is_inclusive_and_max_runs_counts_jobs(world: CronWorld) -> None:
    await world.plan([-4, -3, -2, 60], an_entry(until_ms=world.second(-3)), since=-10)
    await world.plan([-4, -3, -2, 60], an_entry(uid="twice", max_runs=2), since=-10)

    assert sorted(await world.tick()) == [
        (-4, "fired", ""),
        (-4, "fired", ""),
        (-3, "fired", ""),
        (-3, "fired", ""),
    ]

    for uid in (UID, "twice"):
        state = await world.state(uid)
        assert (state.runs, state.missed, state.next_ms) == (2, 0, None)


async def test_jitter_delays_the_job_by_the_same_seconds_each_time_and_keeps_its_instant(
    world: CronWorld,
) -> None:
    entry = an_entry(jitter_ms=3_600_000)
    instants = [-4.0, -3.0, -2.0, -1.0]
    due = []
    for _ in range(2):
        await world.redis.flushdb()
        await world.plan([*instants, 60], entry, since=-10)
        await world.tick()
        records = [await world.redis.hmget(world.keys.record(world.job_id(at)), "d", "sf") for at in instants]
        due.append([(int(d) - int(sf), int(sf)) for d, sf in records])

    assert due[0] == due[1]
    assert [sf for _, sf in due[0]] == [world.second(at) for at in instants]
    late = [delay for delay, _ in due[0]]
    assert all(0 <= delay <= 3_600_000 and delay % 1_000 == 0 for delay in late)
    assert len(set(late)) > 1


# --- what is refused before it is sent ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (an_entry(uid="a:b"), "uid: expected a uid without a colon"),
        (an_entry(uid="x" * 46), "uid: expected at most 45 characters"),
        (
            an_entry(concurrency_policy="Replace"),
            "concurrency_policy: expected Allow or Forbid, got 'Replace'",
        ),
        (an_entry(missed_run_policy="Some"), "missed_run_policy: expected Skip, Latest or All, got 'Some'"),
        (an_entry(max_catch_up=101), "max_catch_up: expected 1 to 100, got 101"),
        (an_entry(job=NewJob(id="t", type="x", envelope=b"", due_in_ms=5)), "job: expected no times"),
    ],
)
async def test_an_entry_that_the_scripts_would_misread_is_refused(
    world: CronWorld, entry: Any, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        await world.plan([60], entry)
    with pytest.raises(InvalidValue, match="instants: expected at most 2000, got 2001"):
        await world.plan([60] * 2001)
    assert await world.store.cron_states(world.queue) == []


async def test_the_state_of_no_schedule_is_no_question(world: CronWorld) -> None:
    await world.plan([60])

    assert await world.store.cron_states(world.queue, []) == []
    assert await world.store.cron_states(world.queue, ["unknown"]) == []
    assert [s.uid for s in await world.store.cron_states(world.queue, ["unknown", UID])] == [UID]


async def test_a_tick_lands_at_its_instant_when_a_worker_claims(world: CronWorld) -> None:
    await world.plan([0.4, 60])

    async def claimed() -> Claimed | None:
        found = await world.store.claim(world.queue, OWNER, number=next(numbers), slots=1)
        return found if found.claims else None

    numbers = iter(range(1, 10_000))
    found = await until_async(claimed, within=5)

    assert found is not None
    assert 0 <= found.now_ms - world.second(0.4) < 5_000
