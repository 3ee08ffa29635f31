"""Backoff: how long to wait after a failed attempt."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork import App, Backoff, InvalidValue
from dockwork.core.retry import DEFAULT_BACKOFF, next_delay


def seconds(backoff: Backoff, attempts: int, spread: float = 0.0) -> float:
    return next_delay(backoff, attempts, spread).total_seconds()


@pytest.mark.covers("RT-130")
def test_each_kind_waits_as_it_says() -> None:
    assert [seconds(Backoff.fixed(7), n) for n in (1, 2, 9)] == [7, 7, 7]
    assert [seconds(Backoff.exponential(1, factor=3, max=20, jitter="none"), n) for n in (1, 2, 3, 4, 99)] == [
        1, 3, 9, 20, 20,
    ]  # fmt: skip
    assert [seconds(Backoff.list([1, timedelta(minutes=1), 5]), n) for n in (1, 2, 3, 4)] == [1, 60, 5, 5]


@pytest.mark.covers("RT-130")
def test_jitter_takes_off_up_to_all_half_or_nothing() -> None:
    full, equal, none = (Backoff.exponential(8, jitter=j) for j in ("full", "equal", "none"))  # type: ignore[arg-type]

    assert [seconds(b, 1, 0.5) for b in (full, equal, none)] == [4, 6, 8]
    assert [seconds(b, 1, 0.999) for b in (full, equal, none)] == pytest.approx([0.008, 4.004, 8])


@given(
    base=st.floats(0.01, 100), factor=st.floats(1, 10), most=st.floats(0.01, 10_000),
    attempts=st.integers(1, 10_000), spread=st.floats(0, 1, exclude_max=True),
)  # fmt: skip
@pytest.mark.covers("RT-130")
def test_exponential_is_never_over_its_cap_nor_below_zero(
    base: float, factor: float, most: float, attempts: int, spread: float
) -> None:
    backoff = Backoff.exponential(base, factor=factor, max=most)

    assert (
        timedelta(0)
        <= next_delay(backoff, attempts, spread)
        <= timedelta(seconds=most) + timedelta(microseconds=1)
    )


@pytest.mark.covers("RT-130")
def test_without_a_backoff_the_default_counts() -> None:
    app = App("shop")

    assert Backoff.exponential(1, max=3600, jitter="full") == DEFAULT_BACKOFF
    assert app.registry.retry_delay(None, 3, 0.0, ValueError()) == timedelta(seconds=4)


@pytest.mark.covers("RT-130")
def test_a_custom_backoff_is_the_apps_function() -> None:
    app = App("shop")

    @app.backoff("by-error")
    def by_error(attempts: int, error: BaseException) -> float:
        return attempts * (10 if isinstance(error, TimeoutError) else 1)

    delay = app.registry.retry_delay(Backoff.custom("by-error"), 2, 0.9, TimeoutError())

    assert delay == timedelta(seconds=20)


@pytest.mark.covers("RT-130")
def test_a_custom_backoff_that_raises_or_is_unknown_counts_as_the_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("shop")

    @app.backoff("broken")
    def broken(attempts: int, error: BaseException) -> float:
        raise KeyError("no")

    with caplog.at_level(logging.WARNING):
        delays = [
            app.registry.retry_delay(Backoff.custom(n), 2, 0.0, ValueError()) for n in ("broken", "unknown")
        ]

    assert delays == [timedelta(seconds=2)] * 2
    assert [record.message for record in caplog.records] == ["backoff_failed"] * 2


@pytest.mark.parametrize(
    "backoff",
    [
        Backoff.fixed(0.25),
        Backoff.exponential(2, factor=5, max=60, jitter="equal"),
        Backoff.list([1, 2]),
    ],
)
def test_json_in_redis_gives_the_same_backoff_again(backoff: Backoff) -> None:
    assert Backoff.from_json(backoff.to_json()) == backoff


def test_what_an_operator_writes_is_read() -> None:
    found = Backoff.from_json(b'{"kind":"exponential","base_ms":500,"max_ms":60000,"jitter_percent":30}')

    assert (seconds(found, 1), seconds(found, 2, 0.5), seconds(found, 50)) == (0.5, 0.85, 60)


@pytest.mark.parametrize("text", ["", "[]", '{"kind":"never"}', '{"kind":"fixed","steps_ms":["x"]}'])
def test_broken_json_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidValue, match="backoff: expected a backoff as JSON"):
        Backoff.from_json(text)


@pytest.mark.parametrize(
    "bad", [lambda: Backoff.fixed(-1), lambda: Backoff.list([]), lambda: Backoff.exponential(1, factor=0)]
)
def test_impossible_backoffs_cannot_be_built(bad: object) -> None:
    with pytest.raises(InvalidValue, match=r"backoff"):
        bad()  # type: ignore[operator]
