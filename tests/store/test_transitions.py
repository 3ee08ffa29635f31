"""Each transition by whole state: seed, act, compare everything, what must not change included."""

from __future__ import annotations

import pytest

from dockwork.core.states import State
from dockwork.errors import TooLarge
from dockwork.store.protocol import (
    Admission,
    Admitted,
    Outcome,
    Owner,
    Put,
    RevokeCause,
    Settlement,
    Verdict,
)
from support.store_world import ANN, BOB, Job, World, a_beat, a_failure, a_job

ACCEPTED, DUPLICATE = Admitted.ACCEPTED, Admitted.DUPLICATE


async def test_new_jobs_land_in_the_state_that_their_options_mean(world: World) -> None:
    admitted = await world.enqueue(
        a_job("plain"), a_job("urgent", priority=-5), a_job("later", due_in_ms=60_000), a_job("plain")
    )

    assert admitted == [
        Admission(id="plain", outcome=ACCEPTED, state=State.READY),
        Admission(id="urgent", outcome=ACCEPTED, state=State.PRIORITIZED),
        Admission(id="later", outcome=ACCEPTED, state=State.DELAYED),
        Admission(id="plain", outcome=DUPLICATE, state=State.READY),
    ]
    assert await world.picture() == {
        State.READY: [Job("plain", State.READY)],
        State.PRIORITIZED: [Job("urgent", State.PRIORITIZED)],
        State.DELAYED: [Job("later", State.DELAYED)],
    }
    assert await world.events() == [
        ("ready", ("plain",), ""),
        ("prioritized", ("urgent",), ""),
        ("delayed", ("later",), ""),
    ]


@pytest.mark.covers("RT-007")
async def test_a_known_id_gives_that_job_in_whatever_state_it_is(world: World) -> None:
    await world.enqueue("a")
    await world.end(await world.claim_one(), Outcome.COMPLETED)

    (admission,) = await world.enqueue(a_job("a", envelope=b"other"))

    assert admission == Admission(id="a", outcome=DUPLICATE, state=State.COMPLETED)
    assert await world.picture() == {
        State.COMPLETED: [Job("a", State.COMPLETED, deliveries=1, envelope=False)]
    }


@pytest.mark.covers("RT-011")
async def test_a_past_time_means_ready_and_a_delay_is_kept_to_the_millisecond(world: World) -> None:
    now = await world.store.ping()
    await world.enqueue(
        a_job("past", due_at_ms=now - 5000), a_job("soon", due_in_ms=1), a_job("far", due_in_ms=10**11)
    )

    past, far = await world.get("past"), await world.get("far")

    assert (past.state, past.due_ms) == (State.READY, now - 5000)
    assert far.due_ms - far.created_ms == 10**11


async def test_a_claim_hands_over_everything_that_a_run_needs(world: World) -> None:
    job = a_job("a", priority=3, max_attempts=7, timeout_ms=9000, scheduled_for_ms=123, expires_in_ms=60_000)
    await world.enqueue(job)

    claimed = await world.claim(owner=ANN)

    (claim,) = claimed.claims
    assert (claim.job_id, claim.type, claim.envelope) == ("a", "t", job.envelope)
    assert (claim.attempts, claim.deliveries, claim.priority) == (0, 1, 3)
    assert (claim.max_attempts, claim.timeout_ms, claim.scheduled_for_ms) == (7, 9000, 123)
    assert claim.due_ms == claim.created_ms
    assert claim.checkpoint is None
    assert (claimed.more, claimed.refused) == (False, "")
    assert await world.picture() == {State.ACTIVE: [Job("a", State.ACTIVE, deliveries=1, owner=str(ANN))]}


@pytest.mark.covers("RT-071", "RT-010")
async def test_jobs_are_claimed_by_priority_and_in_their_order_within_one(world: World) -> None:
    await world.enqueue(
        a_job("r1"), a_job("late", priority=5), a_job("r2"), a_job("first", priority=-100),
        a_job("second", priority=-1), a_job("first2", priority=-100), a_job("later", priority=100), a_job("r3"),
    )  # fmt: skip

    claimed = [claim.job_id for claim in (await world.claim(10)).claims]

    assert claimed == ["first", "first2", "second", "r1", "r2", "r3", "late", "later"]


@pytest.mark.covers("RT-071")
async def test_parked_jobs_of_a_known_type_are_claimed_before_all_others(world: World) -> None:
    await world.enqueue("a")
    await world.end(await world.claim_one(), Outcome.PARKED, park_type="t@abc")
    await world.enqueue(a_job("urgent", priority=-100), "b")

    unknowing = await world.claim(1, known=["t"])
    knowing = await world.claim(2, owner=BOB, known=["t@abc", "other"])

    assert [claim.job_id for claim in unknowing.claims] == ["urgent"]
    assert [claim.job_id for claim in knowing.claims] == ["a", "b"]


@pytest.mark.covers("RT-129", "RT-033")
async def test_a_parked_job_waits_uncharged_and_is_counted_by_type(world: World) -> None:
    await world.enqueue("a")

    await world.end(await world.claim_one(), Outcome.PARKED, park_type="t@abc")

    assert await world.picture() == {State.PARKED: [Job("a", State.PARKED)]}
    assert (await world.store.stats(world.queue)).parked_types == {"t@abc": 1}
    await world.claim(1, owner=BOB, known=["t@abc"])
    assert (await world.store.stats(world.queue)).parked_types == {}


@pytest.mark.covers("RT-032", "RT-031")
async def test_a_job_that_ends_before_its_start_was_sent_shows_all_states_in_order(world: World) -> None:
    await world.enqueue("a")
    await world.end(await world.claim_one(), Outcome.COMPLETED)

    assert await world.events() == [
        ("ready", ("a",), ""),
        ("active", ("a",), ""),
        ("processing", ("a",), ""),
        ("completed", ("a",), ""),
    ]


@pytest.mark.covers("RT-032")
async def test_a_start_that_was_sent_is_told_once(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()

    assert await world.store.start(world.queue, [claim.lease]) == [Verdict.OK]
    assert await world.store.start(world.queue, [claim.lease]) == [Verdict.OK]

    assert await world.picture() == {
        State.PROCESSING: [Job("a", State.PROCESSING, deliveries=1, owner=str(ANN))]
    }
    await world.end(claim, Outcome.COMPLETED)
    assert [name for name, _, _ in await world.events()] == ["ready", "active", "processing", "completed"]


async def test_a_completed_job_keeps_its_result_and_loses_its_envelope(world: World) -> None:
    await world.enqueue("a")
    await world.end(await world.claim_one(), Outcome.COMPLETED, result=b'{"x":1}')

    view = await world.get("a")

    assert (view.result, view.envelope, view.state) == (b'{"x":1}', b"", State.COMPLETED)
    assert (await world.store.stats(world.queue)).bytes == 0


@pytest.mark.covers("RT-138")
async def test_a_result_over_its_cap_completes_the_job_and_leaves_its_size(world: World) -> None:
    await world.enqueue("a")
    await world.end(await world.claim_one(), Outcome.COMPLETED, result=b"x" * 1_100_000)

    view = await world.get("a")

    assert (view.state, view.result, view.result_dropped) == (State.COMPLETED, None, 1_100_000)


@pytest.mark.covers("RT-138")
async def test_errors_logs_and_progress_are_cut_with_a_mark_and_a_checkpoint_is_refused(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()

    await world.store.progress(world.queue, claim.lease, b'"' + b"p" * 90_000 + b'"')
    await world.store.log(world.queue, claim.lease, ["short", "x" * 9000])
    with pytest.raises(TooLarge, match=r"checkpoint: 1100000 bytes are more than the limit of 1048576"):
        await world.store.checkpoint(world.queue, claim.lease, b"c" * 1_100_000)
    await world.end(claim, Outcome.DEAD, failure=a_failure("m" * 20_000), reason="attempts")

    view = await world.get("a")
    assert view.progress is not None
    assert len(view.progress) <= 65_536
    assert b"[cut]" in view.progress
    assert view.log[0] == "short"
    assert view.log[1].endswith("[cut]")
    (failure,) = view.failures
    assert "[cut]" in failure.message
    assert failure.error_class == "ValueError"
    assert view.checkpoint is None


@pytest.mark.covers("RT-014")
async def test_a_log_keeps_its_last_hundred_lines_and_16_kib(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()

    for first in range(0, 150, 50):
        await world.store.log(world.queue, claim.lease, [f"line {n}" for n in range(first, first + 50)])
    many = (await world.get("a")).log
    await world.store.log(world.queue, claim.lease, ["y" * 3000] * 10)
    large = (await world.get("a")).log

    assert many == tuple(f"line {n}" for n in range(50, 150))
    assert sum(len(line) + 1 for line in large) <= 16 * 1024
    assert large[-1] == "y" * 3000


@pytest.mark.covers("RT-033", "RT-132")
async def test_a_failed_attempt_is_delayed_and_remembers_its_last_five_errors(world: World) -> None:
    await world.enqueue("a")
    for attempt in range(1, 8):
        claim = await world.claim_one()
        await world.end(claim, Outcome.RETRY, delay_ms=5000, failure=a_failure(f"no. {attempt}"))
        assert await world.picture() == {
            State.DELAYED: [Job("a", State.DELAYED, attempts=attempt, deliveries=attempt)]
        }
        await world.advance(6)

    view = await world.get("a")

    assert [failure.message for failure in view.failures] == [f"no. {n}" for n in range(3, 8)]


async def test_a_retry_without_delay_is_claimed_by_the_same_call(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()

    settled = await world.settle(Settlement(lease=claim.lease, outcome=Outcome.RETRY), claim_next=1)

    (again,) = settled.claimed.claims
    assert (again.job_id, again.attempts, again.deliveries) == ("a", 1, 2)
    assert again.lease.epoch > claim.lease.epoch


@pytest.mark.covers("RT-033")
async def test_a_snooze_charges_nothing(world: World) -> None:
    await world.enqueue("a")

    await world.end(await world.claim_one(), Outcome.SNOOZE, delay_ms=5000)

    assert await world.picture() == {State.DELAYED: [Job("a", State.DELAYED)]}


@pytest.mark.covers("RT-133")
@pytest.mark.parametrize(
    ("outcome", "state"),
    [(Outcome.DEAD, State.DEAD), (Outcome.FAILED, State.FAILED), (Outcome.CANCELLED, State.CANCELLED)],
)
async def test_a_job_that_ends_badly_keeps_its_envelope_and_the_reason(
    world: World, outcome: Outcome, state: State
) -> None:
    await world.enqueue("a")

    await world.end(await world.claim_one(), outcome, reason="attempts used", failure=a_failure("last"))

    assert await world.picture() == {
        state: [Job("a", state, attempts=1, deliveries=1, reason="attempts used")]
    }
    assert [failure.message for failure in (await world.get("a")).failures] == ["last"]
    assert (await world.events())[-1] == (state.value, ("a",), "attempts used")


@pytest.mark.covers("RT-033")
async def test_a_discard_without_an_error_is_no_attempt(world: World) -> None:
    await world.enqueue("a")

    await world.end(await world.claim_one(), Outcome.FAILED, reason="not needed")

    assert await world.picture() == {
        State.FAILED: [Job("a", State.FAILED, deliveries=1, reason="not needed")]
    }


@pytest.mark.covers("RT-135", "FM-58")
async def test_an_undecodable_job_is_dead_with_its_bytes_and_its_batch_goes_on(world: World) -> None:
    await world.enqueue(a_job("broken", envelope=b"\xff\x00{"), "b")
    broken, fine = (await world.claim(2)).claims

    await world.settle(
        Settlement(lease=broken.lease, outcome=Outcome.DEAD, reason="undecodable"),
        Settlement(lease=fine.lease, outcome=Outcome.COMPLETED),
    )

    view = await world.get("broken")
    assert (view.state, view.reason, view.envelope) == (State.DEAD, "undecodable", b"\xff\x00{")
    assert (await world.get("b")).state is State.COMPLETED


@pytest.mark.covers("RT-040", "RT-043", "FM-55")
@pytest.mark.parametrize("put", [Put.FRONT, Put.BACK])
async def test_an_envelope_survives_every_transition_byte_for_byte(world: World, put: Put) -> None:
    envelope = b'{"args":{"a":[],"b":{},"n":9223372036854775808,"f":1.0,"s":"\xf0\x9f\x8e\x89\\u0000"}}\x00'
    await world.enqueue(a_job("a", envelope=envelope, due_in_ms=1000))
    await world.store.promote(world.queue, ["a"])
    await world.store.requeue(world.queue, ANN, [(await world.claim_one()).lease], put=put)
    await world.end(await world.claim_one(), Outcome.RETRY, delay_ms=1000)
    await world.advance(2)
    await world.end(await world.claim_one(), Outcome.PARKED, park_type="t")
    (claim,) = (await world.claim(1, known=["t"])).claims
    await world.end(claim, Outcome.SNOOZE, delay_ms=1000)
    await world.advance(2)
    await world.claim_one()
    await world.lose_leases()
    await world.store.reap(world.queue)
    await world.claim_one()
    await world.store.revoke(world.queue, str(ANN), RevokeCause.EVICTED)
    await world.end(await world.claim_one(), Outcome.DEAD)
    assert (await world.get("a")).envelope == envelope
    await world.store.redrive(world.queue, [("a", "")])
    claim = await world.claim_one()

    assert claim.envelope == envelope


@pytest.mark.covers("RT-033", "RT-111")
async def test_put_back_in_front_a_job_has_its_old_place_and_no_counter_changed(world: World) -> None:
    await world.enqueue("a", "b", a_job("p", priority=-1))
    claims = (await world.claim(2)).claims

    said = await world.store.requeue(world.queue, ANN, [claim.lease for claim in claims])

    assert said == [Verdict.OK, Verdict.OK]
    assert await world.picture() == {
        State.READY: [Job("a", State.READY, interruptions=1), Job("b", State.READY)],
        State.PRIORITIZED: [Job("p", State.PRIORITIZED, interruptions=1)],
    }
    assert ("ready", ("a",), "drained") in await world.events()


async def test_put_back_at_the_end_a_job_waits_behind_the_others(world: World) -> None:
    await world.enqueue("a", "b")
    claim = await world.claim_one()

    await world.store.requeue(world.queue, ANN, [claim.lease], put=Put.BACK)

    assert await world.ids(State.READY) == ["b", "a"]


@pytest.mark.covers("RT-015")
async def test_a_checkpoint_is_the_next_runs_and_goes_with_completion(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()
    assert await world.store.checkpoint(world.queue, claim.lease, b"[7]") is Verdict.OK
    await world.store.requeue(world.queue, ANN, [claim.lease])

    again = await world.claim_one()
    await world.end(again, Outcome.COMPLETED)

    assert again.checkpoint == b"[7]"
    assert (await world.get("a")).checkpoint is None


async def test_progress_is_kept_and_told_and_implies_the_start(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()

    assert await world.store.progress(world.queue, claim.lease, b"0.5") is Verdict.OK

    view = await world.get("a")
    assert (view.progress, view.state) == (b"0.5", State.PROCESSING)
    assert [name for name, _, _ in await world.events()] == ["ready", "active", "processing", "progress"]


@pytest.mark.covers("RT-014")
async def test_the_last_progress_travels_with_the_settle_and_comes_before_it(world: World) -> None:
    await world.enqueue("a")
    await world.end(await world.claim_one(), Outcome.COMPLETED, progress=b"1.0")

    assert (await world.get("a")).progress == b"1.0"
    assert [name for name, _, _ in await world.events()][-3:] == ["processing", "progress", "completed"]


@pytest.mark.covers("RT-072")
async def test_due_jobs_are_promoted_oldest_first_however_late(world: World) -> None:
    await world.enqueue(
        a_job("third", due_in_ms=3000), a_job("first", due_in_ms=1000), a_job("second", due_in_ms=2000, priority=4),
        a_job("never", due_in_ms=10**9),
    )  # fmt: skip
    await world.advance(86_400)

    moved = await world.store.promote(world.queue)

    assert moved == 3
    assert await world.picture() == {
        State.READY: [Job("first", State.READY), Job("third", State.READY)],
        State.PRIORITIZED: [Job("second", State.PRIORITIZED)],
        State.DELAYED: [Job("never", State.DELAYED)],
    }


@pytest.mark.covers("RT-072")
async def test_more_due_jobs_than_one_call_takes_are_all_promoted(world: World) -> None:
    await world.enqueue(*[a_job(f"j{n}", due_in_ms=1000) for n in range(1000)])
    await world.advance(2)

    assert await world.store.promote(world.queue) == 1000
    assert (await world.store.stats(world.queue)).counts[State.READY] == 1000


async def test_chosen_jobs_are_promoted_before_they_are_due(world: World) -> None:
    await world.enqueue(a_job("a", due_in_ms=10**9), a_job("b", due_in_ms=10**9), "c")

    assert await world.store.promote(world.queue, ["b", "b", "c", "unknown"]) == 1

    assert await world.picture() == {
        State.READY: [Job("c", State.READY), Job("b", State.READY)],
        State.DELAYED: [Job("a", State.DELAYED)],
    }


@pytest.mark.covers("RT-120")
async def test_a_lease_that_ran_out_brings_the_job_back_to_its_place(world: World) -> None:
    await world.enqueue("a", "b")
    await world.claim_one()
    await world.lose_leases()

    reaped = await world.store.reap(world.queue)

    assert reaped == (1, 0)
    assert await world.picture() == {
        State.READY: [Job("a", State.READY, deliveries=1, interruptions=1), Job("b", State.READY)]
    }
    assert (await world.events())[-2:] == [("stalled", ("a",), "lease_expired"), ("ready", ("a",), "")]


@pytest.mark.covers("RT-120")
async def test_a_living_owners_job_is_not_taken_by_one_that_starts(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one(ANN)
    await world.store.reap(world.queue)
    await world.advance(10)
    await world.store.renew(world.queue, [claim.lease], a_beat(ANN))
    await world.advance(10)

    assert (await world.claim(5, owner=BOB)).claims == ()
    assert await world.store.reap(world.queue) == (0, 0)


@pytest.mark.covers("RT-134")
async def test_a_job_that_keeps_killing_its_worker_is_dead_after_its_last_delivery(world: World) -> None:
    await world.enqueue(a_job("poison", max_deliveries=3))
    for delivery in range(1, 4):
        await world.claim_one()
        await world.lose_leases()
        reaped = await world.store.reap(world.queue)
        assert reaped == ((1, 0) if delivery < 3 else (0, 1))
        await world.advance(2)

    assert await world.picture() == {
        State.DEAD: [Job("poison", State.DEAD, deliveries=3, interruptions=3, reason="max_deliveries")]
    }


@pytest.mark.covers("RT-120", "RT-134")
async def test_a_dead_containers_jobs_come_back_at_once_with_the_reason_on_record(world: World) -> None:
    await world.enqueue(a_job("a", max_deliveries=1), "b", "c")
    await world.claim(2, owner=ANN)
    await world.claim(1, owner=BOB)

    revoked = await world.store.revoke(world.queue, str(ANN), RevokeCause.DIED, "OOMKilled, exit code 137")

    assert revoked == 2
    assert await world.picture() == {
        State.DEAD: [
            Job(
                "a",
                State.DEAD,
                deliveries=1,
                interruptions=1,
                reason="max_deliveries: OOMKilled, exit code 137",
            )
        ],
        State.READY: [Job("b", State.READY, deliveries=1, interruptions=1)],
        State.ACTIVE: [Job("c", State.ACTIVE, deliveries=1, owner=str(BOB))],
    }


@pytest.mark.covers("RT-107", "FM-36")
async def test_a_dead_child_costs_its_job_a_delivery_and_leaves_how_it_ended(world: World) -> None:
    await world.enqueue("a", a_job("b", max_deliveries=1), "c")
    a, b, c = [claim.lease for claim in (await world.claim(3, owner=ANN)).claims]

    deaths = [
        (a, "signal 11 (SIGSEGV)"),
        (b, "exit code 3"),
        (a, "again"),
        (c._replace(epoch=c.epoch + 1), "stale"),
    ]
    verdicts = await world.store.child_died(world.queue, deaths)

    assert verdicts == [Verdict.OK, Verdict.OK, Verdict.LOST, Verdict.LOST]
    assert await world.picture() == {
        State.READY: [Job("a", State.READY, deliveries=1, interruptions=1)],
        State.DEAD: [
            Job("b", State.DEAD, deliveries=1, interruptions=1, reason="max_deliveries: exit code 3")
        ],
        State.ACTIVE: [Job("c", State.ACTIVE, deliveries=1, owner=str(ANN))],
    }
    views = [await world.store.get(world.queue, one) for one in "abc"]
    assert [view and view.exit for view in views] == ["signal 11 (SIGSEGV)", "exit code 3", ""]


async def test_an_evicted_owners_jobs_come_back_uncharged(world: World) -> None:
    await world.enqueue("a")
    await world.claim(1, owner=ANN)

    await world.store.revoke(world.queue, str(ANN), RevokeCause.EVICTED)

    assert await world.picture() == {State.READY: [Job("a", State.READY, interruptions=1)]}
    assert (await world.events())[-1] == ("ready", ("a",), "revoked")


@pytest.mark.covers("RT-120")
async def test_predecessors_are_the_owners_that_beat_from_the_same_container(world: World) -> None:
    again = Owner(pod=ANN.pod, boot="00000000000000cc", container=ANN.container)
    sidecar = Owner(pod=ANN.pod, boot="00000000000000dd", container="other")
    for owner in (ANN, BOB, sidecar, again):
        await world.store.renew(world.queue, [], a_beat(owner))

    assert await world.store.predecessors(world.queue, again) == [str(ANN)]


@pytest.mark.covers("RT-136", "RT-012")
async def test_a_job_out_of_time_never_runs(world: World) -> None:
    await world.enqueue(a_job("old", expires_in_ms=1000), a_job("young", expires_in_ms=60_000), "plain")
    await world.advance(2)

    claimed = await world.claim(10)

    assert [claim.job_id for claim in claimed.claims] == ["young", "plain"]
    assert (await world.picture())[State.EXPIRED] == [Job("old", State.EXPIRED, reason="out of time")]


@pytest.mark.covers("RT-136", "RT-012")
async def test_waiting_jobs_out_of_time_end_though_nobody_claims_them(world: World) -> None:
    await world.enqueue("parks")
    await world.enqueue(
        a_job("ready", expires_in_ms=1000), a_job("prio", priority=1, expires_in_ms=1000),
        a_job("delayed", due_in_ms=5000, expires_in_ms=1000), a_job("later", due_in_ms=9000, expires_in_ms=5000),
    )  # fmt: skip
    await world.advance(7)

    assert await world.store.expire(world.queue) == 3

    picture = await world.picture()
    assert {job.id for job in picture[State.EXPIRED]} == {"ready", "prio", "delayed"}
    assert [job.id for job in picture[State.DELAYED]] == ["later"]
    assert [job.id for job in picture[State.READY]] == ["parks"]


@pytest.mark.covers("RT-136", "RT-129")
async def test_a_parked_job_expires_where_it_waits(world: World) -> None:
    await world.enqueue(a_job("a", expires_in_ms=1000))
    await world.end(await world.claim_one(), Outcome.PARKED, park_type="t")
    await world.advance(2)

    assert await world.store.expire(world.queue) == 1

    assert await world.picture() == {State.EXPIRED: [Job("a", State.EXPIRED, reason="out of time")]}
    assert (await world.store.stats(world.queue)).parked_types == {}


async def test_a_job_that_was_started_in_time_is_not_expired_when_it_comes_back(world: World) -> None:
    await world.enqueue(a_job("a", expires_in_ms=1000))
    claim = await world.claim_one()
    await world.store.start(world.queue, [claim.lease])
    await world.advance(2)
    await world.store.requeue(world.queue, ANN, [claim.lease])

    assert (await world.claim_one()).job_id == "a"


async def test_cancelling_a_waiting_job_ends_it(world: World) -> None:
    await world.enqueue("a", a_job("b", priority=2), a_job("c", due_in_ms=9000), "d")

    said = [await world.store.cancel(world.queue, name) for name in ("b", "c", "a", "a", "unknown")]

    assert said == ["cancelled", "cancelled", "cancelled", "too_late", "missing"]
    picture = await world.picture()
    assert {job.id for job in picture[State.CANCELLED]} == {"a", "b", "c"}
    assert [job.id for job in picture[State.READY]] == ["d"]


async def test_cancelling_a_running_job_flags_it_until_its_worker_says_so(world: World) -> None:
    await world.enqueue("a")
    claim = await world.claim_one()

    assert await world.store.cancel(world.queue, "a") == "flagged"

    assert (await world.store.renew(world.queue, [claim.lease], None)).verdicts == (Verdict.CANCEL,)
    assert await world.store.start(world.queue, [claim.lease]) == [Verdict.CANCEL]
    assert await world.store.progress(world.queue, claim.lease, b"1") is Verdict.CANCEL
    await world.end(claim, Outcome.CANCELLED)
    assert await world.ids(State.CANCELLED) == ["a"]


async def test_a_flagged_job_whose_worker_died_is_cancelled_at_the_next_claim(world: World) -> None:
    await world.enqueue("a", "b")
    await world.claim_one()
    await world.store.cancel(world.queue, "a")
    await world.store.revoke(world.queue, str(ANN), RevokeCause.DIED)

    assert [claim.job_id for claim in (await world.claim(5)).claims] == ["b"]
    assert await world.ids(State.CANCELLED) == ["a"]


@pytest.mark.covers("FM-35")
async def test_pausing_moves_no_job_and_stops_claims(world: World) -> None:
    await world.enqueue("a", a_job("b", priority=1))
    running = await world.claim_one()
    await world.enqueue("c")

    assert await world.store.set_paused(world.queue, expected=False, wanted=True)

    assert not await world.store.set_paused(world.queue, expected=False, wanted=True)
    assert (await world.claim(5)).refused == "paused"
    assert await world.ids(State.PAUSED) == ["b", "c"]
    assert (await world.get("c")).state is State.PAUSED
    assert (await world.store.stats(world.queue)).counts[State.PAUSED] == 2
    assert (await world.end(running, Outcome.COMPLETED)).verdicts == (Verdict.OK,)
    assert await world.store.set_paused(world.queue, expected=True, wanted=False)
    assert [claim.job_id for claim in (await world.claim(5)).claims] == ["c", "b"]


@pytest.mark.covers("RT-031")
async def test_resuming_is_one_event_however_many_jobs_wait(world: World) -> None:
    await world.enqueue("a", "b", "c")
    await world.store.set_paused(world.queue, expected=False, wanted=True)
    await world.store.set_paused(world.queue, expected=True, wanted=False)

    event = (await world.store.events(world.queue, "0", block_s=0))[-1]

    assert (event.name, event.ids, dict(event.data)) == ("resumed", (), {"count": "3", "seq": "3"})


@pytest.mark.covers("RT-047", "RT-048")
async def test_another_process_with_the_same_names_shows_and_serves_the_same(world: World) -> None:
    await world.enqueue("a", a_job("b", due_in_ms=9000))
    await world.claim_one()

    before = await world.picture()
    await world.store.close()

    assert await world.picture() == before


async def test_a_queues_names_are_known_to_its_namespace(world: World) -> None:
    await world.enqueue("a")

    assert await world.store.queues("shop") == [world.queue]
    assert await world.store.queues("elsewhere") == []


@pytest.mark.covers("RT-066")
async def test_settling_and_claiming_the_next_is_one_call(world: World) -> None:
    await world.enqueue("a", "b", "c")
    first = await world.claim(2)

    settled = await world.settle(
        *[Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in first.claims], claim_next=2
    )

    assert settled.verdicts == (Verdict.OK, Verdict.OK)
    assert [claim.job_id for claim in settled.claimed.claims] == ["c"]
    assert not settled.claimed.more


async def test_a_claim_says_when_the_next_is_worth_it_and_whether_more_is_left(world: World) -> None:
    now = await world.store.ping()
    await world.enqueue("a", "b", a_job("c", due_at_ms=now + 5000))

    first, rest, none = await world.claim(1), await world.claim(1), await world.claim(5)

    assert (first.more, first.next_at_ms) == (True, now + 5000)
    assert (rest.more, rest.next_at_ms) == (False, now + 5000)
    assert not none.more
    assert none.claims == ()
