"""Unique, idempotency keys and Repeat as an application writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dockwork import (
    App,
    Backoff,
    Discard,
    InvalidValue,
    KeyReuse,
    Repeat,
    State,
    Unique,
    UniqueConflict,
)
from dockwork.core.repeat import NextTime, next_time
from dockwork.core.unique import arguments_digest

app = App("shop")
runs: list[int] = []


@app.job(queue="mail")
async def send(n: int = 0) -> int:
    runs.append(n)
    return n


@app.job(queue="mail", unique=Unique(), name="report")
async def report(day: str) -> None: ...


@app.job(queue="mail", repeat=Repeat.immediate(times=3), retries=0, name="flaky")
async def flaky() -> None:
    runs.append(len(runs))
    if len(runs) == 2:
        raise ValueError("once")


@app.job(queue="mail", repeat=Repeat.every(10), name="enough")
async def enough() -> None:
    runs.append(len(runs))
    if len(runs) == 2:
        raise Discard("enough")


@pytest.fixture(autouse=True)
def _no_runs() -> None:
    runs.clear()


@pytest.mark.covers("RT-008")
async def test_other_arguments_under_a_known_idempotency_key_raise_key_reuse() -> None:
    call = send.options(idempotency_key="order-7")
    async with app.testing():
        first = await call.enqueue(n=1)
        again = await call.enqueue(n=1)

        with pytest.raises(
            KeyReuse, match=f"idempotency_key: expected the type and arguments .* job {first.id}"
        ) as raised:
            await call.enqueue(n=2)

        assert (again.id, again.admission) == (first.id, "duplicate")
        assert (raised.value.field, raised.value.job_id) == ("idempotency_key", first.id)
        admissions = await app.enqueue_many([call.item(n=1), call.item(n=2)])
        assert [(one.outcome, one.reason) for one in admissions] == [
            ("duplicate", ""),
            ("rejected", "key_reuse"),
        ]


@pytest.mark.covers("RT-008")
async def test_an_idempotency_key_is_known_for_a_day_unless_the_call_says_otherwise() -> None:
    async with app.testing() as bench:
        await send.options(idempotency_key="a").enqueue()
        await send.options(idempotency_key="b", idempotency_ttl=60).enqueue()
        await bench.run_all()
        await bench.advance(61)

        assert (await send.options(idempotency_key="a").enqueue()).admission == "duplicate"
        assert (await send.options(idempotency_key="b").enqueue()).admission == "accepted"
        await bench.advance(timedelta(hours=24))
        assert (await send.options(idempotency_key="a").enqueue()).admission == "accepted"


@pytest.mark.covers("RT-009")
async def test_a_unique_key_without_a_name_is_the_type_and_its_arguments() -> None:
    async with app.testing() as bench:
        first = await report.enqueue(day="monday")

        assert (await report.enqueue(day="monday")).id == first.id
        assert (await report.enqueue(day="tuesday")).admission == "accepted"
        await bench.run_all()
        assert (await report.enqueue(day="monday")).admission == "accepted"


@pytest.mark.covers("RT-009")
async def test_a_rejected_unique_key_raises_and_names_the_holder() -> None:
    call = send.options(unique=Unique("order-7", on_conflict="reject"))
    async with app.testing():
        first = await call.enqueue()

        with pytest.raises(
            UniqueConflict, match=f"unique: expected a key that no job holds .* job {first.id}"
        ) as raised:
            await call.enqueue()

        assert raised.value.job_id == first.id


@pytest.mark.covers("RT-009")
async def test_debounce_leaves_one_job_with_the_last_arguments() -> None:
    call = send.options(unique=Unique("typing", on_conflict="debounce"), delay=5)
    async with app.testing() as bench:
        for n in range(4):
            await bench.advance(3)
            await call.enqueue(n=n)
        await bench.run_all()
        assert runs == []
        await bench.advance(5)
        await bench.run_all()

    assert runs == [3]


@pytest.mark.covers("RT-013", "FM-44")
async def test_a_repeat_ends_at_its_times_whatever_its_retries_are() -> None:
    async with app.testing() as bench:
        job = await flaky.enqueue()
        await bench.run_all()

        assert len(runs) == 3
        assert await job.state() is State.COMPLETED


@pytest.mark.covers("RT-013")
async def test_a_repeat_without_times_ends_when_its_handler_says_so() -> None:
    async with app.testing() as bench:
        job = await enough.enqueue()
        await bench.run_all()
        assert await job.state() is State.DELAYED
        await bench.advance(10)
        await bench.run_all()

        assert await job.state() is State.FAILED


@pytest.mark.covers("RT-013")
async def test_a_repeat_by_calendar_runs_at_its_instants_only() -> None:
    async with app.testing() as bench:
        job = await send.options(repeat=Repeat.cron("0 9 * * *", tz="Europe/Zurich", times=2)).enqueue()
        info = await job.info()
        assert info is not None
        assert info.state is State.DELAYED
        assert info.due_at.minute == 0
        await bench.run_all()
        assert runs == []
        await bench.advance(info.due_at - bench.now)
        await bench.run_all()
        again = await job.info()
        assert again is not None
        assert again.due_at - info.due_at in (timedelta(hours=23), timedelta(hours=24), timedelta(hours=25))
        await bench.advance(timedelta(hours=25))
        await bench.run_all()

        assert await job.state() is State.COMPLETED
        assert len(runs) == 2


def due(repeat: Repeat, *, repeated: int = 0, due_ms: int = 0, now_ms: int = 0) -> NextTime:
    return next_time(repeat, repeated=repeated, due_ms=due_ms, now_ms=now_ms, spread=0.0)


@pytest.mark.covers("RT-013")
def test_when_a_repeat_is_due_next() -> None:
    hour = Repeat.every(3600)
    assert due(hour, due_ms=1000, now_ms=2000) == (3_601_000, 0)
    assert due(hour, due_ms=1000, now_ms=8_000_000) == (
        10_801_000,
        0,
    )  # two turns were missed, and are left out
    assert due(Repeat.immediate(), now_ms=7) == (0, 0)
    policy = Repeat.backoff(Backoff.list([1, 60]))
    assert [due(policy, repeated=n, now_ms=10) for n in (0, 1, 9)] == [
        (0, 1000),
        (0, 60_000),
        (0, 60_000),
    ]
    noon = int(datetime(2030, 1, 1, 12, tzinfo=UTC).timestamp() * 1000)
    assert due(Repeat.cron("30 12 * * *"), now_ms=noon) == (noon + 30 * 60_000, 0)


@pytest.mark.covers("RT-013")
@pytest.mark.parametrize(
    "repeat",
    [
        Repeat.every(timedelta(minutes=5), times=3),
        Repeat.immediate(),
        Repeat.backoff(Backoff.exponential(2)),
        Repeat.cron("0 9 * * 1-5", tz="Europe/Zurich"),
    ],
)
def test_a_rule_survives_the_envelope(repeat: Repeat) -> None:
    assert Repeat.from_options({"repeat": repeat.to_options()}) == repeat


@pytest.mark.covers("RT-008", "RT-009", "RT-013")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Unique(""), "unique.key: expected a text of 1 to 512 bytes, got ''"),
        (lambda: Unique("k", until="ttl"), 'unique.ttl: expected a span with until="ttl", got None'),
        (lambda: Unique("k", ttl=5), 'unique.ttl: expected none with until="finish", got 5'),
        (lambda: Unique("k", until="never"), "unique.until: expected start, finish or ttl"),  # type: ignore[arg-type]
        (
            lambda: Unique("k", on_conflict="die"),  # type: ignore[arg-type]
            "unique.on_conflict: expected keep, replace, debounce or reject",
        ),
        (lambda: send.options(unique="k"), "unique: expected a Unique, got 'str'"),  # type: ignore[arg-type]
        (lambda: send.options(idempotency_key=""), "idempotency_key: expected a text of 1 to 512 bytes"),
        (
            lambda: send.options(idempotency_key="k", idempotency_ttl=1),
            "idempotency_ttl: expected 60 s to 7 days",
        ),
        (lambda: send.options(idempotency_ttl=60), "idempotency_ttl: expected an idempotency_key beside it"),
        (lambda: Repeat.every(0), "repeat.every: expected 0.01 s to"),
        (lambda: Repeat.every(1, times=0), "repeat.times: expected a whole number from 1"),
        (
            lambda: Repeat.backoff(Backoff.custom("x")),
            "repeat.backoff: expected a fixed, exponential or list",
        ),
        (lambda: Repeat.cron("61 * * * *"), "schedule: minute, character 1: expected"),
        (lambda: Repeat.cron("0 9 * * *", tz="Mars/Base"), "Mars/Base"),
        (lambda: send.options(repeat="daily"), "repeat: expected a Repeat, got 'str'"),  # type: ignore[arg-type]
    ],
)
def test_what_is_out_of_range_says_so(make: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as raised:
        make()
    assert message in str(raised.value)


@pytest.mark.covers("RT-013")
async def test_a_job_that_repeats_does_not_expire() -> None:
    async with app.testing():
        with pytest.raises(InvalidValue, match="expires: expected none for a job that repeats"):
            await send.options(repeat=Repeat.immediate(), expires=5).enqueue()


def test_a_digest_knows_no_order() -> None:
    assert arguments_digest("t", b'{"a":1,"b":2}') == arguments_digest("t", b'{"b":2,"a":1}')
    assert arguments_digest("t", b'{"a":1}') != arguments_digest("u", b'{"a":1}')
