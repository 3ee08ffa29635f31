"""Limits and defaults as code says them, and a rate against a model of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dockwork import App, Backoff, Encrypted, InvalidValue, Keep, QueueClosed, Rate, Repeat
from dockwork.core.keys import QueueName
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import (
    NewJob,
    Outcome,
    Owner,
    OwnerRecord,
    QueueConfig,
    RateLimit,
    Settlement,
)

QUEUE = QueueName("default", "mail")
OWNER = Owner(pod="pod", boot="boot")


def an_app(**more: Any) -> App:
    return App("shop", namespace="default", store=MemoryStore(), **more)


def config_of(app: App, queue: str = "mail") -> QueueConfig:
    found = app.registry.config_of(queue)
    assert found is not None
    return found


# --- Rate and the options of a queue


def test_a_rate_takes_a_number_and_a_period_and_nothing_else() -> None:
    assert (Rate(100, per=60).per_ms, Rate(5).per_ms) == (60_000, 1000)
    assert Rate(5, per=timedelta(minutes=1)) == Rate(5, per=timedelta(seconds=60))
    for count, per, told in [
        (0, 1, "rate: expected a whole number from 1 to 1000000, got 0"),
        (True, 1, "rate: expected a whole number"),
        (1, 0.05, "rate.per: expected 0.1 s to 86400 s, got 0.05"),
    ]:
        with pytest.raises(InvalidValue, match=told):
            Rate(count, per=per)


@pytest.mark.covers("RT-150", "RT-152", "RT-153", "RT-154")
def test_a_queues_limits_reach_its_config() -> None:
    app = an_app()

    app.queue("mail", rate=Rate(100, per=60), concurrency=50, per_key=2, max_depth=9, max_bytes="1Gi")

    found = config_of(app)
    assert (found.rate, found.concurrency, found.per_key) == (RateLimit(100, 60_000), 50, 2)
    assert (found.max_depth, found.max_bytes) == (9, 2**30)


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("rate", 5, "rate: expected a Rate, such as Rate"),
        ("concurrency", 0, "concurrency: expected a whole number from 1 to 100000, got 0"),
        ("per_key", 1.5, "per_key: expected a whole number from 1 to 100000, got 1.5"),
        ("keep_failed", Keep(bytes=5), "keep_failed: expected an age or a count; bytes are keep_bytes"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_by_its_name(option: str, value: Any, told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        an_app().queue("mail", **{option: value})


# --- concurrency keys


def new_job(item: Any) -> NewJob:
    job: NewJob = item.new_job(lambda: "id")
    return job


@pytest.mark.covers("RT-153", "RT-001")
def test_a_job_types_key_is_the_value_of_its_parameter_and_a_calls_own_beats_it() -> None:
    app = an_app()

    @app.job(concurrency_key="account", per_key=3)
    async def bill(account: int = 7, note: str = "") -> None: ...

    @app.job(concurrency_key=["account", "note"])
    async def send(account: int, note: str) -> None: ...

    seven, given = new_job(bill.item()), new_job(bill.item(account=7, note="x"))
    other, named = new_job(bill.item(8)), new_job(bill.options(concurrency_key="eight", per_key=1).item(8))
    assert seven.concurrency_key == given.concurrency_key, "the default is a value like any other"
    assert seven.concurrency_key != other.concurrency_key
    assert (seven.per_key, named.per_key, named.concurrency_key) == (3, 1, "eight")
    both = new_job(send.item(7, "a"))
    assert both.concurrency_key not in (new_job(send.item(7, "b")).concurrency_key, seven.concurrency_key)
    assert both.per_key is None
    by_name = new_job(app.item("bill", {"account": 7}, queue="mail"))
    assert by_name.concurrency_key == seven.concurrency_key


def test_a_key_that_no_argument_can_be_is_refused() -> None:
    app = an_app()

    @app.job(concurrency_key="acount")
    async def misspelt(account: int) -> None: ...

    @app.job(concurrency_key="secret")
    async def sealed(secret: Encrypted[str]) -> None: ...

    with pytest.raises(InvalidValue, match=r"a parameter of misspelt \(account\), got 'acount'"):
        misspelt.item(7)
    with pytest.raises(InvalidValue, match="a parameter that is not sealed"):
        sealed.item("x")
    with pytest.raises(InvalidValue, match="concurrency_key of empty: expected a parameter's name"):

        @app.job(concurrency_key=[])
        async def empty(account: int) -> None: ...

    with pytest.raises(InvalidValue, match="concurrency_key: expected 1 to 256 characters"):
        misspelt.options(concurrency_key="")


# --- who says something last


@pytest.mark.covers("RT-001")
def test_a_default_of_the_app_counts_where_its_queue_says_nothing() -> None:
    app = an_app(
        defaults={
            "queue": "mail",
            "timeout": 5,
            "retries": 1,
            "max_deliveries": 2,
            "backoff": Backoff.fixed(3),
            "expires": 60,
            "max_depth": 10,
            "max_bytes": "1Mi",
            "max_payload": "1Ki",
            "lease": 20,
            "keep": Keep.for_(30, count=5),
            "keep_failed": Keep(count=6),
            "keep_bytes": "2Mi",
            "rate": Rate(7),
            "concurrency": 8,
            "per_key": 9,
            "max_timeout": 100,
            "max_result": "100Ki",
            "max_checkpoint": "200Ki",
            "max_progress": "1Ki",
            "hard_after": 0.5,
        }
    )
    app.queue("post", timeout=6, max_depth=11, keep_failed=Keep(age=timedelta(seconds=1)))

    mail, post = config_of(app), config_of(app, "post")

    assert mail == QueueConfig(
        timeout_ms=5000, max_attempts=2, max_deliveries=2, backoff=Backoff.fixed(3).to_json(), max_depth=10,
        max_bytes=2**20, max_payload=1024, lease_ms=20_000, rate=RateLimit(7, 1000), concurrency=8, per_key=9,
        max_timeout_ms=100_000, max_result=102_400, max_checkpoint=204_800, max_progress=1024, hard_after_ms=500,
        keep={
            "completed_age_ms": 30_000, "completed_count": 5, "failed_age_ms": -1, "failed_count": 6,
            "bytes": 2 * 2**20,
        },
    )  # fmt: skip
    assert (post.timeout_ms, post.max_depth, post.max_attempts) == (6000, 11, 2)
    assert (post.keep["failed_age_ms"], post.keep["failed_count"], post.keep["completed_count"]) == (
        1000,
        -1,
        5,
    )


@pytest.mark.covers("RT-001")
def test_expiry_and_queue_go_by_call_then_type_then_queue_then_app() -> None:
    app = an_app(defaults={"queue": "mail", "expires": 60})
    app.queue("post", expires=50)

    @app.job()
    async def plain() -> None: ...

    @app.job(queue="post")
    async def letter() -> None: ...

    @app.job(queue="post", expires=40)
    async def quick() -> None: ...

    @app.job(repeat=Repeat.every(5))
    async def again() -> None: ...

    assert (plain.queue, letter.queue) == ("mail", "post")
    calls = [
        plain.item(), letter.item(), quick.item(), quick.options(expires=30).item(),
        plain.options(queue="post").item(), app.item("unknown", {}, queue="post"), again.item(),
    ]  # fmt: skip
    assert [new_job(item).expires_in_ms for item in calls] == [
        60_000, 50_000, 40_000, 30_000, 50_000, 50_000, None,
    ]  # fmt: skip
    assert new_job(an_app().item("unknown", {}, queue="post")).expires_in_ms is None


@pytest.mark.covers("RT-001")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"timeout": -1}, "timeout: expected"),
        ({"partitions": 2}, "defaults: expected options of all queues, got 'partitions'"),
        ({"colour": 1}, "queue option: expected one of"),
        ({"queue": "a/b"}, "queue: expected 1 to 63 characters"),
        ({"expires": "soon"}, "expires: expected seconds"),
    ],
)
def test_a_default_that_cannot_be_is_refused_when_the_app_is_made(wrong: Any, told: str) -> None:
    with pytest.raises(InvalidValue, match=told):
        an_app(defaults=wrong)


@pytest.mark.covers("RT-001", "RT-157")
async def test_options_that_an_operator_wrote_stand_and_the_answer_names_the_queue() -> None:
    app = an_app()
    mail = app.queue("mail", max_depth=5, concurrency=2)
    app.queue("post", concurrency=3)
    record = OwnerRecord(operator="o", namespace="shop", name="letters", uid="u")
    store = app.make_store()
    for queue in ("mail", "post"):
        await store.configure(QueueName("default", queue), QueueConfig(generation=1, max_depth=9), record)

    said = await mail.configure()

    assert (said.outcome, str(said)) == ("conflicted", "conflicted: Queue shop/letters has the say")
    found = await store.config(QUEUE)
    assert (found.max_depth, found.concurrency) == (9, 2)
    assert (await app.configure("post")).outcome == "written", "it says nothing that a Queue object says"
    assert (await mail.configure(force=True)).outcome == "written"
    assert (await store.config(QUEUE)).max_depth == 5
    with pytest.raises(
        InvalidValue, match="queue: expected one of which the code says something, got 'other'"
    ):
        await app.configure("other")


@pytest.mark.covers("RT-155")
async def test_an_intake_is_closed_and_opened_by_hand() -> None:
    app = an_app()
    mail = app.queue("mail")

    @app.job(queue="mail")
    async def send() -> None: ...

    assert (await mail.close_intake(), await mail.close_intake()) == (True, False)
    with pytest.raises(QueueClosed):
        await send.enqueue()
    assert (await mail.open_intake(), await mail.open_intake()) == (True, False)
    await send.enqueue()
    assert (await mail.stats()).runnable == 1
    assert (await mail.figures(2))[-1].arrived + (await mail.figures(2))[0].arrived == 1
    assert await asyncio.to_thread(app.sync.close_intake, "mail")
    assert await asyncio.to_thread(app.sync.open_intake, "mail")
    assert sum(one.arrived for one in await asyncio.to_thread(app.sync.figures, "mail", 2)) == 1
    app.sync.close()


# --- a rate against what it promises

steps = st.lists(st.tuples(st.integers(0, 900), st.integers(1, 6)), min_size=1, max_size=60)


async def starts_of(rate: RateLimit, plan: Sequence[tuple[int, int]]) -> list[int]:
    """When jobs start, if after each pause of so many ms a worker asks for so many."""
    store = MemoryStore()
    await store.configure(QUEUE, QueueConfig(rate=rate, lease_ms=3_600_000), None)
    await store.enqueue(QUEUE, [NewJob(id=f"j{n}", type="t", envelope=b"{}") for n in range(400)])
    starts: list[int] = []
    for number, (pause_ms, asked) in enumerate(plan, 1):
        store.advance(pause_ms / 1000)
        claimed = await store.claim(QUEUE, OWNER, number=number, slots=asked)
        starts += [claimed.now_ms] * len(claimed.claims)
        assert len(claimed.claims) == asked or claimed.next_at_ms is not None
    return starts


@pytest.mark.covers("RT-150")
@settings(max_examples=30, deadline=None)
@given(plan=steps, count=st.integers(1, 7), per_ms=st.sampled_from([100, 101, 777, 1000, 2500]))
def test_no_window_sees_more_starts_than_the_rate_allows(
    plan: list[tuple[int, int]], count: int, per_ms: int
) -> None:
    # Not asyncio.run: it would put away the loop that the plugin keeps for the other tests.
    with closing(asyncio.new_event_loop()) as loop:
        starts = loop.run_until_complete(starts_of(RateLimit(count, per_ms), plan))

    for first, later in zip(starts, starts[count:], strict=False):
        assert later - first >= per_ms, f"{count + 1} starts within {later - first} ms"


@pytest.mark.covers("RT-150")
@pytest.mark.parametrize(("count", "per_ms"), [(1, 100), (5, 1000), (100, 60_000), (3, 101)])
async def test_with_work_at_hand_the_rate_is_used_to_a_fiftieth(count: int, per_ms: int) -> None:
    store = MemoryStore()
    await store.configure(QUEUE, QueueConfig(rate=RateLimit(count, per_ms), lease_ms=3_600_000), None)
    await store.enqueue(QUEUE, [NewJob(id=f"j{n}", type="t", envelope=b"{}") for n in range(count * 21)])
    begun, started, number = await store.ping(), 0, 0
    while started < count * 21:
        number += 1
        claimed = await store.claim(QUEUE, OWNER, number=number, slots=500)
        started += len(claimed.claims)
        await store.settle(
            QUEUE,
            OWNER,
            [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in claimed.claims],
            number=number + 100_000,
        )
        if started < count * 21:
            assert claimed.next_at_ms is not None
            store.advance((claimed.next_at_ms - await store.ping()) / 1000)

    assert await store.ping() - begun <= 20 * 1.02 * per_ms
