"""The scaling formula: what it asks for, why, and what it never does."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork_operator.constants import ScaleReason
from dockwork_operator.decide.memory import Rates
from dockwork_operator.decide.scaling import (
    WINDOW,
    Fallback,
    Load,
    Policy,
    Wanted,
    blind,
    external,
    next_rates,
    tick,
)
from support.decisions import NOW, NOW_MS

IDLE = Rates(service_s=1.0, time_ms=NOW_MS - 2000)


def a_policy(**facts: object) -> Policy:
    made = Policy(
        slots=10,
        target_s=15,
        utilization=0.8,
        window=WINDOW,
        max_wait_s=60,
        longest_s=300,
        least=0,
        most=20,
    )
    return replace(made, **facts)


def a_load(**facts: object) -> Load:
    return replace(Load(time_ms=NOW_MS), **facts)


def want(load: Load, rates: Rates = IDLE, policy: Policy | None = None, **how: object) -> Wanted:
    window = how.get("window", ((NOW - timedelta(seconds=59), 0),))
    return tick(load, rates, policy or a_policy(), window, bool(how.get("warm", True)), NOW)


# --- figures ---------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-140")
def test_arrivals_are_smoothed_over_15_s_and_finishes_over_60_s() -> None:
    load = a_load(entered=200, finished=40, active=30)

    rates = next_rates(replace(IDLE, entered=100, finished=20), load, a_policy())

    assert rates.arrivals == pytest.approx(50 * (1 - math.exp(-2 / 15)))
    assert rates.finishes == pytest.approx(10 * (1 - math.exp(-2 / 60)))
    assert rates.active == pytest.approx(30 * (1 - math.exp(-2 / 60)))


@pytest.mark.covers("OP-140")
def test_service_time_is_active_over_finishes_once_jobs_finish() -> None:
    steady = Rates(service_s=1.0, active=30, finishes=10, time_ms=NOW_MS - 2000, finished=0)

    assert next_rates(steady, a_load(active=30, finished=20), a_policy()).service_s == pytest.approx(3.0)


@pytest.mark.covers("OP-140")
def test_service_time_stays_below_the_longest_timeout_and_above_a_millisecond() -> None:
    slow = Rates(service_s=1.0, active=1000, finishes=0.1, time_ms=NOW_MS)
    fast = Rates(service_s=1.0, active=0, finishes=100, time_ms=NOW_MS)

    assert want(a_load(time_ms=NOW_MS + 1000, active=1000), slow).rates.service_s == 300
    assert want(a_load(time_ms=NOW_MS + 1000, finished=100), fast).rates.service_s == 0.001


@pytest.mark.covers("OP-141")
def test_running_jobs_raise_the_service_time_only_while_little_finishes() -> None:
    load = a_load(active=5, mean_elapsed_s=90)
    busy = replace(IDLE, finishes=1.0, active=5.0)

    assert next_rates(IDLE, load, a_policy()).service_s == 180
    assert next_rates(busy, load, a_policy()).service_s < 10


@pytest.mark.covers("OP-140")
def test_arrivals_are_none_once_none_came_for_fifty_seconds() -> None:
    rates = next_rates(replace(IDLE, arrivals=500.0), a_load(entered=1000), a_policy())
    assert rates.arrivals > 400

    faded = next_rates(rates, a_load(time_ms=NOW_MS + 49_000, entered=1000), a_policy())
    quiet = next_rates(faded, a_load(time_ms=NOW_MS + 50_000, entered=1000), a_policy())
    again = next_rates(quiet, a_load(time_ms=NOW_MS + 52_000, entered=1100), a_policy())

    assert faded.arrivals > 1
    assert quiet.arrivals == 0
    assert again.arrivals == pytest.approx(50 * (1 - math.exp(-2 / 15)))


def test_the_same_sample_twice_changes_no_figure() -> None:
    rates = next_rates(IDLE, a_load(entered=10), a_policy())

    assert next_rates(rates, a_load(entered=10), a_policy()) == rates


@pytest.mark.parametrize(
    "load",
    [
        a_load(run_id="another", entered=500, finished=500),
        a_load(entered=3, finished=900),
        a_load(time_ms=NOW_MS - 4000, entered=900, finished=900),
    ],
    ids=["another server", "a counter fell", "time fell"],
)
def test_no_rate_is_taken_across_a_failover(load: Load) -> None:
    before = replace(IDLE, entered=400, finished=400, arrivals=7.0, finishes=2.0)

    after = next_rates(before, load, a_policy())

    assert (after.arrivals, after.finishes) == (7.0, 2.0)
    assert (after.entered, after.finished) == (load.entered, load.finished)


# --- the number and its reason ---------------------------------------------------------------------------


@pytest.mark.covers("OP-140", "OP-151")
@pytest.mark.parametrize(
    ("load", "rates", "to", "reason"),
    [
        (a_load(claimable=900, oldest_s=1), IDLE, 6, ScaleReason.FROM_ZERO),
        (a_load(claimable=900, current=2), IDLE, 6, ScaleReason.BACKLOG),
        (a_load(claimable=1), IDLE, 1, ScaleReason.FROM_ZERO),
        (a_load(due_soon=30), IDLE, 1, ScaleReason.PREWARM),
        (a_load(due_soon=600, current=1), IDLE, 4, ScaleReason.PREWARM),
        (a_load(active=45, busy=45, current=2), IDLE, 5, ScaleReason.BUSY),
        (
            a_load(active=20, busy=20, current=3, entered=80, finished=80),
            Rates(service_s=1.0, arrivals=40, active=40, finishes=40, time_ms=NOW_MS - 2000),
            5,
            ScaleReason.ARRIVAL_RATE,
        ),
        (a_load(claimable=900, current=6), IDLE, 6, ScaleReason.STEADY),
        (a_load(), IDLE, 0, ScaleReason.STEADY),
        (a_load(current=2), IDLE, 0, ScaleReason.IDLE),
        (a_load(claimable=99_999, current=2), IDLE, 20, ScaleReason.MAX_REPLICAS),
        (a_load(unregistered=1), IDLE, 1, ScaleReason.UNREGISTERED_TYPES),
    ],
    ids=lambda value: str(value) if isinstance(value, ScaleReason) else "",
)
def test_the_number_of_pods_and_its_reason(load: Load, rates: Rates, to: int, reason: ScaleReason) -> None:
    got = want(load, rates)

    assert (got.to, got.reason) == (to, reason)


@pytest.mark.covers("OP-151")
def test_the_minimum_is_a_reason_of_its_own() -> None:
    got = want(a_load(current=3), policy=a_policy(least=3))

    assert (got.to, got.raw, got.reason) == (3, 0, ScaleReason.MIN_REPLICAS)


@pytest.mark.covers("OP-140")
def test_arrivals_are_believed_up_to_three_times_the_finishes_and_five() -> None:
    flood = Rates(service_s=1.0, arrivals=1000, active=10, finishes=10, time_ms=NOW_MS)

    # 35 per second of 1 s each at 80 % on 10 slots
    assert want(a_load(time_ms=NOW_MS, active=10, busy=10), flood).raw == 5


@pytest.mark.covers("OP-140")
def test_a_job_that_waits_too_long_adds_one_pod_once_all_are_ready() -> None:
    late = a_load(claimable=5, oldest_s=61, current=3, ready_pods=3)

    assert (want(late).to, want(late).reason) == (4, ScaleReason.OLDEST_WAIT)
    assert want(replace(late, ready_pods=2)).raw == 1


@pytest.mark.covers("OP-140")
def test_a_paused_queue_asks_for_what_runs_and_nothing_else() -> None:
    load = a_load(paused=True, claimable=900, active=15, busy=15, current=5)

    got = want(load, replace(IDLE, arrivals=50))

    assert (got.to, got.reason) == (2, ScaleReason.PAUSED)
    assert want(replace(load, active=0, busy=0), replace(IDLE, arrivals=50)).to == 0


@pytest.mark.covers("OP-140")
def test_throttled_jobs_do_not_scale_up() -> None:
    assert want(a_load(claimable=900, throttled=900)).to == 0


@pytest.mark.covers("RT-156", "OP-140")
def test_no_more_pods_than_the_queues_limits_keep_busy() -> None:
    slots = a_policy().slots
    free = want(a_load(claimable=9000))
    few = want(a_load(claimable=9000, concurrency=2 * slots))
    slow = want(a_load(claimable=9000, starts_per_s=1.0))
    busy = want(a_load(claimable=9000, concurrency=1, active=3 * slots, busy=3 * slots, current=3))

    assert free.to > 2
    assert (few.to, few.reason) == (2, ScaleReason.CONCURRENCY)
    assert (slow.to, slow.reason) == (1, ScaleReason.RATE)
    assert busy.to == 3, "what runs keeps its pods"
    assert want(a_load(concurrency=5)).to == 0


@pytest.mark.covers("OP-147")
def test_parked_jobs_count_as_one_only_for_a_template_that_never_registered() -> None:
    assert want(a_load(unregistered=1)).to == 1
    assert want(a_load(unregistered=0)).to == 0


# --- down ------------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-140", "OP-151")
def test_pods_go_only_to_the_largest_figure_of_the_last_minute() -> None:
    busy = a_load(current=8, active=10, busy=10)
    window = ((NOW - timedelta(seconds=61), 9), (NOW - timedelta(seconds=40), 4))

    got = want(busy, window=window)

    assert (got.to, got.raw, got.reason) == (4, 1, ScaleReason.STABILIZING)
    assert got.window == ((NOW - timedelta(seconds=40), 4), (NOW, 1))


@pytest.mark.covers("OP-143", "OP-151")
def test_a_process_that_has_just_begun_goes_up_at_once_and_down_not_yet() -> None:
    assert want(a_load(current=5), warm=False, window=()).to == 5
    assert want(a_load(current=5), warm=False, window=()).reason is ScaleReason.WARMING_UP
    assert want(a_load(claimable=900, current=1), warm=False, window=()).to == 6


# --- without a sample ------------------------------------------------------------------------------------


@pytest.mark.covers("OP-148")
def test_an_unreadable_redis_holds_and_then_falls_back_upwards_only() -> None:
    fallback = Fallback(replicas=4, after=timedelta(seconds=60))
    minute = timedelta(seconds=60)

    def said(current: int, lost_for: timedelta, what: Fallback | None) -> tuple[int, ScaleReason]:
        wanted = blind(current, lost_for, what, IDLE, most=20)
        return wanted.to, wanted.reason

    assert said(2, timedelta(hours=1), None) == (2, ScaleReason.HELD)
    assert said(2, timedelta(seconds=59), fallback) == (2, ScaleReason.HELD)
    assert said(2, minute, fallback) == (4, ScaleReason.FALLBACK)
    assert said(9, minute, fallback) == (9, ScaleReason.FALLBACK)


@pytest.mark.covers("OP-011")
def test_mode_external_obeys_without_min_and_max() -> None:
    assert external(50, 3, IDLE).to == 50
    assert external(None, 3, IDLE).to == 3
    assert external(0, 3, IDLE).reason is ScaleReason.EXTERNAL


# --- properties ------------------------------------------------------------------------------------------

counts = st.integers(min_value=0, max_value=5000)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    active = draw(counts)
    return Load(
        time_ms=NOW_MS,
        entered=draw(counts),
        finished=draw(counts),
        claimable=draw(counts),
        due_soon=draw(counts),
        throttled=draw(counts),
        concurrency=draw(st.none() | st.integers(min_value=1, max_value=5000)),
        starts_per_s=draw(st.none() | st.floats(min_value=0.001, max_value=500)),
        oldest_s=draw(st.floats(min_value=0, max_value=1000)),
        active=active,
        busy=draw(st.integers(min_value=0, max_value=active)),
        mean_elapsed_s=draw(st.floats(min_value=0, max_value=100)),
        unregistered=draw(st.integers(min_value=0, max_value=1)),
        paused=draw(st.booleans()),
        current=draw(st.integers(min_value=0, max_value=30)),
        ready_pods=draw(st.integers(min_value=0, max_value=30)),
    )


@st.composite
def some_rates(draw: st.DrawFn) -> Rates:
    rate = st.floats(min_value=0, max_value=500)
    return Rates(
        service_s=draw(st.floats(min_value=0.001, max_value=300)),
        arrivals=draw(rate),
        active=draw(rate),
        finishes=draw(rate),
        time_ms=NOW_MS,
    )


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    least = draw(st.integers(min_value=0, max_value=10))
    return a_policy(
        slots=draw(st.integers(min_value=1, max_value=50)),
        target_s=draw(st.floats(min_value=1, max_value=600)),
        utilization=draw(st.integers(min_value=10, max_value=100)) / 100,
        least=least,
        most=draw(st.integers(min_value=max(least, 1), max_value=100)),
    )


@pytest.mark.covers("OP-140")
@given(loads(), some_rates(), policies(), st.booleans())
def test_the_number_is_within_the_limits_and_serves_what_runs(
    load: Load, rates: Rates, policy: Policy, warm: bool
) -> None:
    got = want(load, rates, policy, warm=warm)

    assert policy.least <= got.to <= policy.most
    assert got.to >= min(policy.most, math.ceil(load.busy / policy.slots))


@pytest.mark.covers("OP-140")
@given(
    loads(),
    some_rates(),
    policies(),
    st.integers(min_value=0, max_value=5000),
    st.integers(min_value=0, max_value=500),
    st.floats(min_value=0, max_value=500),
)
def test_more_work_never_asks_for_fewer_pods(
    load: Load, rates: Rates, policy: Policy, waiting: int, busy: int, age: float
) -> None:
    more = replace(
        load,
        claimable=load.claimable + waiting,
        active=load.active + busy,
        busy=load.busy + busy,
        oldest_s=load.oldest_s + age,
    )

    assert want(more, rates, policy).to >= want(load, rates, policy).to


@pytest.mark.covers("OP-140")
@given(loads(), some_rates(), policies())
def test_constant_input_comes_to_rest(load: Load, rates: Rates, policy: Policy) -> None:
    window: tuple[tuple[object, int], ...] = ()
    current, seen = load.current, []
    for step in range(policy.most + 45):
        now = NOW + timedelta(seconds=2 * step)
        asked = replace(load, current=current, ready_pods=current)
        got = tick(asked, rates, policy, window, step >= 30, now)
        current, window = got.to, got.window
        seen.append(current)

    assert len(set(seen[-5:])) == 1


@pytest.mark.covers("OP-140")
@given(policies(), st.integers(min_value=0, max_value=30))
def test_no_work_ends_at_the_minimum_after_one_window(policy: Policy, current: int) -> None:
    window: tuple[tuple[object, int], ...] = ((NOW - timedelta(seconds=1), 99),)
    rates = Rates(service_s=1.0, time_ms=NOW_MS)
    for second in range(0, 64, 2):
        now = NOW + timedelta(seconds=second)
        got = tick(Load(time_ms=NOW_MS, current=current), rates, policy, window, True, now)
        current, window = got.to, got.window

    assert current == policy.least
