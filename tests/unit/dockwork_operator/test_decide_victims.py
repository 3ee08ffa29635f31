"""The safe scale-down, step by step: who goes, what is waited for, what stops it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from dockwork_operator.constants import ScaleReason
from dockwork_operator.decide.memory import ScaleDown, Stage
from dockwork_operator.decide.plan import DeletionCost, Quiesce, Scale, Unquiesce
from dockwork_operator.decide.seen import PodSeen, WorkerSeen
from dockwork_operator.decide.victims import VICTIM_COST, Fleet, Moves, choose_victims, move
from support.decisions import NOW, NOW_MS, a_pod, a_worker

TOKEN = f"scale-down-{NOW_MS}"
A, B, C = "a-uid", "b-uid", "c-uid"


def a_fleet(
    pods: tuple[PodSeen, ...],
    workers: tuple[WorkerSeen, ...] = (),
    replicas: int | None = None,
    **facts: object,
) -> Fleet:
    beats = {w.pod: (w,) for w in (workers or tuple(a_worker(p.name) for p in pods))}
    held = {w.pod: w.busy for ws in beats.values() for w in ws if w.busy}
    made: dict[str, object] = {"leased": held, "time_ms": NOW_MS, **facts}
    return Fleet(
        deployment="mail-worker",
        replicas=len(pods) if replicas is None else replicas,
        resource_version="42",
        pods=pods,
        workers=beats,
        **made,
    )


def go(fleet: Fleet, to: int, down: ScaleDown | None = None, at: timedelta = timedelta()) -> Moves:
    return move(fleet, to, down, ScaleReason.IDLE, NOW + at)


def a_down(*victims: str, **facts: object) -> ScaleDown:
    return replace(ScaleDown(token=TOKEN, victims=victims, began=NOW), **facts)


def confirmed(fleet: Fleet, *victims: str) -> Fleet:
    """The victims are flagged, hold nothing and said so."""
    beats = {
        uid: tuple(replace(w, quiesce_token=TOKEN, busy=0) for w in ws) if uid in victims else ws
        for uid, ws in fleet.workers.items()
    }
    leased = {uid: n for uid, n in fleet.leased.items() if uid not in victims}
    return replace(fleet, workers=beats, leased=leased, quiesced=dict.fromkeys(victims, TOKEN))


def costly(pod: PodSeen) -> PodSeen:
    return replace(pod, deletion_cost=VICTIM_COST)


a, b, c = a_pod("a"), a_pod("b"), a_pod("c")


# --- who -------------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-160")
def test_what_a_replica_set_kills_first_is_chosen_first() -> None:
    unscheduled = a_pod("unscheduled", node="", phase="Pending", ready=False)
    pending = a_pod("pending", phase="Pending", ready=False)
    unready = a_pod("unready", ready=False)
    fleet = a_fleet((a, unready, pending, unscheduled))

    names = [p.name for p in choose_victims(fleet, 4)]

    assert names == ["unscheduled", "pending", "unready", "a"]


@pytest.mark.covers("OP-161")
def test_of_ready_pods_the_idle_go_first_then_the_least_remaining_then_the_youngest() -> None:
    younger = a_pod("younger", created=a.created + timedelta(minutes=5))
    fleet = a_fleet(
        (a, b, c, younger),
        (
            a_worker("a", busy=1, longest_rest_ms=9000),
            a_worker("b", busy=3, longest_rest_ms=2000),
            a_worker("c"),
            a_worker("younger"),
        ),
    )
    all_busy = replace(fleet, leased={p.uid: 1 for p in fleet.pods})

    assert [p.name for p in choose_victims(fleet, 2)] == ["younger", "c"]
    assert [p.name for p in choose_victims(all_busy, 2)] == ["younger", "c"]
    assert [p.name for p in choose_victims(replace(all_busy, pods=(a, b)), 1)] == ["b"]


@pytest.mark.covers("OP-161")
def test_busy_pods_are_not_asked_to_stop_before_the_idle_ones_went() -> None:
    fleet = a_fleet((a, b, c), (a_worker("a", busy=1), a_worker("b"), a_worker("c", busy=1)))

    assert [p.name for p in choose_victims(fleet, 2)] == ["b"]


@pytest.mark.covers("OP-160")
def test_an_unready_pod_with_jobs_defers_the_scale_down() -> None:
    unready = a_pod("b", ready=False)
    fleet = a_fleet((a, unready), (a_worker("a"), a_worker("b", busy=1)))

    assert go(fleet, 1) == Moves(waits=ScaleReason.WAITING_FOR_VICTIMS)


# --- the steps -------------------------------------------------------------------------------------------


@pytest.mark.covers("OP-162", "OP-163")
def test_first_the_victims_are_flagged_and_nothing_is_scaled() -> None:
    fleet = a_fleet((a, b), (a_worker("a", busy=1), a_worker("b")))

    got = go(fleet, 1)

    assert got.actions == (Quiesce(requests={B: TOKEN}, reason="chosen to go"),)
    assert got.down == a_down(B)
    assert got.waits is ScaleReason.WAITING_FOR_VICTIMS


@pytest.mark.covers("OP-162")
def test_the_flag_is_renewed_while_a_victim_works() -> None:
    fleet = a_fleet((a, b), (a_worker("a", busy=1), a_worker("b", busy=1)), quiesced={B: TOKEN})

    got = go(fleet, 1, a_down(B), at=timedelta(seconds=30))

    assert got.actions == (Quiesce(requests={B: TOKEN}, reason="chosen to go"),)
    assert got.down == a_down(B)


@pytest.mark.covers("OP-163")
@pytest.mark.parametrize(
    "still",
    [
        {"quiesced": {}},
        {"quiesced": {B: "scale-down-1"}},
        {"leased": {B: 1}},
        {"workers": {B: (a_worker("b", quiesce_token=""),)}},
    ],
    ids=["no flag", "another's flag", "a lease", "no word from the worker"],
)
def test_nothing_goes_on_before_each_victim_is_free_and_said_so(still: dict[str, object]) -> None:
    fleet = replace(confirmed(a_fleet((a, costly(b))), B), **still)

    got = go(fleet, 1, a_down(B))

    assert [x for x in got.actions if isinstance(x, Scale | DeletionCost)] == []
    assert got.waits is ScaleReason.WAITING_FOR_VICTIMS


@pytest.mark.covers("OP-163")
def test_a_worker_that_beats_no_more_is_not_waited_for() -> None:
    silent = {B: (a_worker("b", beat_ms=NOW_MS - 16_000),)}
    fleet = replace(confirmed(a_fleet((a, costly(b))), B), workers=silent)

    assert any(isinstance(x, Scale) for x in go(fleet, 1, a_down(B)).actions)


@pytest.mark.covers("OP-165")
def test_a_confirmed_victim_gets_its_cost_once_and_survivors_none() -> None:
    fleet = confirmed(a_fleet((a, b)), B)

    got = go(fleet, 1, a_down(B))

    assert [x for x in got.actions if isinstance(x, DeletionCost)] == [
        DeletionCost(pod="b", uid=B, cost=-100, reason="chosen to go")
    ]
    assert not any(isinstance(x, Scale) for x in got.actions)
    later = go(replace(fleet, pods=(a, costly(b))), 1, a_down(B))
    assert not any(isinstance(x, DeletionCost) for x in later.actions)


@pytest.mark.covers("OP-166")
def test_then_the_scale_is_written_with_the_version_that_was_seen() -> None:
    fleet = confirmed(a_fleet((a, costly(b), c)), B)

    got = go(fleet, 2, a_down(B))

    assert got.actions == (
        Scale(name="mail-worker", to=2, seen=3, reason=ScaleReason.IDLE, resource_version="42"),
        Quiesce(requests={B: TOKEN}, reason="chosen to go"),
    )
    assert got.down == a_down(B, survivors=(A, C))


@pytest.mark.covers("OP-163")
def test_a_long_job_delays_the_scale_down_for_as_long_as_it_takes() -> None:
    fleet = a_fleet((a, b), (a_worker("a", busy=1), a_worker("b", busy=1)), quiesced={B: TOKEN})

    got = go(fleet, 1, a_down(B), at=timedelta(hours=5))

    assert got.down == a_down(B)
    assert not any(isinstance(x, Scale) for x in got.actions)


def test_pods_that_do_not_exist_yet_need_no_victims() -> None:
    fleet = a_fleet((a,), replicas=5)

    got = go(fleet, 1)

    assert got.actions == (
        Scale(name="mail-worker", to=1, seen=5, reason=ScaleReason.IDLE, resource_version="42"),
    )


# --- more is wanted meanwhile ----------------------------------------------------------------------------


@pytest.mark.covers("OP-164")
def test_when_more_is_wanted_victims_are_released_before_pods_are_added() -> None:
    fleet = replace(a_fleet((a, costly(b))), quiesced={B: TOKEN})

    got = go(fleet, 4, a_down(B))

    assert got == Moves(
        actions=(
            Unquiesce(pods=(B,), reason="pods are wanted again"),
            DeletionCost(pod="b", uid=B, cost=None, reason="no victim any more"),
            Scale(name="mail-worker", to=4, seen=2, reason=ScaleReason.IDLE),
        )
    )


@pytest.mark.covers("OP-164")
def test_when_some_are_wanted_again_the_unconfirmed_are_released() -> None:
    fleet = confirmed(a_fleet((a, b, c), (a_worker("a"), a_worker("b", busy=1), a_worker("c"))), C)
    fleet = replace(fleet, quiesced={B: TOKEN, C: TOKEN}, leased={B: 1})

    got = go(fleet, 2, a_down(B, C))

    assert got.actions[0] == Unquiesce(pods=(B,), reason="pods are wanted again")
    assert got.down == a_down(C)


@pytest.mark.covers("OP-162", "OP-164")
def test_flags_and_costs_of_a_process_before_this_one_are_taken_back() -> None:
    fleet = replace(a_fleet((a, costly(b))), quiesced={B: "scale-down-1"})

    got = go(fleet, 2)

    assert got.actions == (
        Unquiesce(pods=(B,), reason="pods are wanted again"),
        DeletionCost(pod="b", uid=B, cost=None, reason="no victim any more"),
    )


def test_another_ones_flag_is_left_alone() -> None:
    assert go(replace(a_fleet((a, b)), quiesced={B: "by-hand"}), 2) == Moves()


def test_a_pod_that_would_be_killed_before_the_victims_is_chosen_instead() -> None:
    pending = a_pod("new", phase="Pending", ready=False)
    fleet = confirmed(a_fleet((a, costly(b), pending)), B)

    got = go(fleet, 2, a_down(B), at=timedelta(seconds=5))

    assert got.down is not None
    assert got.down.victims == ("new-uid",)
    assert Unquiesce(pods=(B,), reason="pods are wanted again") in got.actions
    assert not any(isinstance(x, Scale) for x in got.actions)


# --- what stops it ---------------------------------------------------------------------------------------


@pytest.mark.covers("OP-168")
def test_two_live_versions_stop_a_scale_down_but_not_a_scale_up() -> None:
    fleet = replace(a_fleet((a, b)), rolling=True, quiesced={B: TOKEN})

    assert go(fleet, 1, a_down(B)) == Moves(
        actions=(Unquiesce(pods=(B,), reason="pods are wanted again"),),
        waits=ScaleReason.ROLLOUT_IN_PROGRESS,
    )
    assert go(fleet, 3).actions[-1] == Scale(name="mail-worker", to=3, seen=2, reason=ScaleReason.IDLE)


@pytest.mark.covers("OP-148", "OP-163")
def test_nobody_goes_while_redis_cannot_be_read() -> None:
    fleet = replace(a_fleet((a, b)), readable=False)

    assert go(fleet, 1, a_down(B)) == Moves(down=a_down(B), waits=ScaleReason.HELD)


# --- afterwards ------------------------------------------------------------------------------------------

SCALED = a_down(B, stage=Stage.SCALED, survivors=(A,), scaled_at=NOW)


@pytest.mark.covers("OP-167")
def test_the_scale_down_is_over_when_the_victims_end() -> None:
    ending = a_pod("b", terminating=True, terminating_since=NOW)
    fleet = a_fleet((a, ending), replicas=1, quiesced={B: TOKEN})

    assert go(fleet, 1, SCALED, at=timedelta(seconds=1)) == Moves()


@pytest.mark.covers("OP-167")
def test_a_pod_that_ends_in_a_victims_place_is_reported_and_the_survivor_works_again() -> None:
    taken = a_pod("a", terminating=True, terminating_since=NOW)
    fleet = replace(a_fleet((taken, costly(b)), replicas=1), quiesced={B: TOKEN})

    got = go(fleet, 1, SCALED, at=timedelta(seconds=1))

    assert got.wrong == ("a",)
    assert got.down is None
    assert got.actions == (
        Unquiesce(pods=(B,), reason="pods are wanted again"),
        DeletionCost(pod="b", uid=B, cost=None, reason="no victim any more"),
    )


@pytest.mark.covers("OP-167")
def test_an_evicted_pod_is_no_wrong_victim() -> None:
    evicted = a_pod("a", terminating=True, disrupted="EvictionByEvictionAPI")

    assert go(a_fleet((evicted, costly(b)), replicas=1), 1, SCALED, at=timedelta(seconds=1)).wrong == ()


@pytest.mark.covers("OP-167")
def test_after_30_s_a_victim_that_nobody_took_works_again() -> None:
    fleet = replace(a_fleet((a, costly(b)), replicas=1), quiesced={B: TOKEN})

    waiting = go(fleet, 1, SCALED, at=timedelta(seconds=29))
    late = go(fleet, 1, SCALED, at=timedelta(seconds=31))

    assert waiting == Moves(actions=(Quiesce(requests={B: TOKEN}, reason="chosen to go"),), down=SCALED)
    assert late.down is None
    assert late.actions[0] == Unquiesce(pods=(B,), reason="pods are wanted again")
