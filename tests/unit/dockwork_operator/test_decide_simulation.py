"""Whole workloads on a virtual cluster: from nothing to many pods and back, and no job is ever cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.decisions import NOW_MS, a_queue
from support.simulation import Simulation


def a_simulation(pod_start_ms: int = 3000, **scaling: object) -> Simulation:
    return Simulation(queue=a_queue(scaling=scaling), pod_start_ms=pod_start_ms)


def is_done(world: Simulation) -> bool:
    return world.finished == world.entered and not world.future


def is_gone(world: Simulation) -> bool:
    return is_done(world) and not world.pods and world.replicas == 0


@pytest.mark.covers("OP-140", "OP-163")
def test_two_thousand_jobs_of_a_second_go_from_zero_to_many_and_back_to_zero() -> None:
    world = a_simulation(maxReplicas=5)
    world.run(lambda w: w.now_ms % 2000 == 0 and w.generation == 1, within_s=5)
    world.enqueue(2000, 1000)

    world.run(lambda w: w.replicas > 0, within_s=2.5)
    took = world.run(is_done, within_s=120)
    back = world.run(is_gone, within_s=300)

    assert world.peak == 5
    # 50 slots of a second each, and the start of the pods
    assert took < 60
    assert back < 240
    assert (world.finished, world.killed_busy) == (2000, 0)
    assert "WrongVictim" not in world.events
    assert world.events.count("ScaledUp") >= 1
    assert world.events.count("ScaledDown") >= 1


@pytest.mark.covers("OP-140", "OP-142")
@pytest.mark.parametrize("number", [20, 500, 8000])
def test_the_last_pod_goes_two_minutes_after_the_last_arrival_however_large_the_burst(number: int) -> None:
    world = a_simulation(maxReplicas=10)
    world.run(lambda w: w.now_ms % 2000 == 0 and w.generation == 1, within_s=5)
    world.enqueue(number, 200)
    world.run(is_done, within_s=120)
    done_s = (world.now_ms - NOW_MS) / 1000

    back = world.run(is_gone, within_s=300)

    # 50 s without an arrival, the idle minute, and the steps of a safe scale-down.
    assert done_s + back < 50 + 60 + 20 + max(done_s - 50, 0)


@pytest.mark.covers("OP-146")
def test_pods_are_ready_when_delayed_work_falls_due() -> None:
    world = a_simulation(pod_start_ms=8000)
    world.enqueue(20, 1000, in_ms=60_000)

    world.run(is_done, within_s=120)

    assert max(world.waits_ms) <= 1000


@pytest.mark.covers("OP-163", "OP-164")
def test_long_jobs_delay_a_scale_down_and_new_work_takes_it_back() -> None:
    world = a_simulation(maxReplicas=4, expectedDuration="60s")
    # Every pod gets short and long ones, so a smaller number of pods is wanted while all of them still work.
    for number in range(40):
        world.enqueue(1, 30_000 + 60_000 * (number % 5))
    world.run(lambda w: not w.jobs, within_s=60)

    world.run(lambda w: bool(w.flags), within_s=300)
    assert all(pod.ends for pod in world.pods if pod.uid in world.flags)
    world.enqueue(400, 1000)
    world.run(lambda w: not w.jobs, within_s=120)
    world.run(is_gone, within_s=1200)

    assert world.killed_busy == 0
    assert world.finished == 440


@pytest.mark.covers("OP-162", "OP-143")
def test_an_operator_that_is_replaced_in_the_middle_of_it_all_cuts_nothing_either() -> None:
    world = a_simulation(maxReplicas=6)
    world.enqueue(1500, 2000)
    world.run(lambda w: w.replicas == 6, within_s=60)
    world.restart_operator()
    world.run(is_done, within_s=200)
    world.run(lambda w: bool(w.flags), within_s=200)
    world.restart_operator()

    world.run(is_gone, within_s=400)

    assert world.killed_busy == 0


@pytest.mark.covers("OP-148")
def test_an_outage_of_redis_moves_no_pod() -> None:
    world = a_simulation(maxReplicas=6)
    world.enqueue(1000, 2000)
    world.run(lambda w: w.finished > 100, within_s=60)
    pods = world.replicas
    world.redis_up = False
    until = world.now_ms + 180_000

    world.run(lambda w: w.now_ms >= until, within_s=200)

    assert world.replicas == pods
    world.redis_up = True
    world.run(is_gone, within_s=600)
    assert (world.finished, world.killed_busy) == (1000, 0)


@pytest.mark.covers("OP-103", "OP-305")
def test_a_busy_queue_writes_its_status_at_most_every_ten_seconds_when_nothing_happens_to_it() -> None:
    world = a_simulation(minReplicas=3, maxReplicas=3)
    world.run(lambda w: len(w.pods) == 3 and all(p.ready_since_ms for p in w.pods), within_s=30)
    start, until = world.writes, world.now_ms + 300_000
    while world.now_ms < until:
        world.enqueue(3, 700)
        world.step()

    assert world.writes - start <= 31


@pytest.mark.covers("OP-140", "OP-163")
@settings(max_examples=12)
@given(
    bursts=st.lists(
        st.tuples(
            st.integers(min_value=0, max_value=120),
            st.integers(min_value=50, max_value=10_000),
            st.integers(min_value=10_000, max_value=200_000),
            st.integers(min_value=0, max_value=60),
        ),
        min_size=1,
        max_size=4,
    ),
    most=st.integers(min_value=1, max_value=6),
)
def test_any_mix_of_bursts_is_finished_within_the_limits_without_cutting_a_job(
    bursts: list[tuple[int, int, int, int]], most: int
) -> None:
    world = a_simulation(maxReplicas=most)
    for number, short_ms, long_ms, pause_s in bursts:
        for one in range(number):
            world.enqueue(1, long_ms if one % 9 == 0 else short_ms)
        until = world.now_ms + pause_s * 1000
        world.run(lambda w, until=until: w.now_ms >= until, within_s=pause_s + 1)

    world.run(is_gone, within_s=8000)

    assert world.peak <= most
    assert world.killed_busy == 0
