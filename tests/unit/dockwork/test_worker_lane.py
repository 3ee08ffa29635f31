"""A lane's slots and calls, against a store whose answers the test gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from dockwork.core.jobs import StopReason
from dockwork.core.keys import QueueName
from dockwork.errors import OutcomeUnknown, ScriptFailed
from dockwork.store.protocol import (
    Claim,
    Claimed,
    Done,
    Lease,
    Outcome,
    Owner,
    Put,
    QueueConfig,
    Renewal,
    Settled,
    Settlement,
    Verdict,
)
from dockwork.worker.lane import Lane
from dockwork.worker.reconnect import Link
from dockwork.worker.runs import Run
from support.waiting import until_async

NAME = QueueName("test", "work")

#: Every bench that the test made.
BENCHES: list[Bench] = []


@pytest.fixture(autouse=True)
async def nothing_outlives_a_test() -> AsyncIterator[None]:
    yield
    while BENCHES:
        await BENCHES.pop().close()


class Asked:
    """One call that the lane made, and the answer that the test gives it."""

    def __init__(self, what: str, **said: Any) -> None:
        self.what = what
        self.said = said
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"{self.what}({self.said})"


class ScriptedStore:
    """Notes each call and answers when told to."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.settlements: list[Settlement] = []  #: of the last settle

    async def claim(
        self, queue: QueueName, owner: Owner, *, number: int, slots: int, known: Sequence[str]
    ) -> Any:
        return await self._note(Asked("claim", number=number, slots=slots, known=tuple(known)))

    async def settle(
        self,
        queue: QueueName,
        owner: Owner,
        settlements: Sequence[Settlement],
        *,
        done: Sequence[Done],
        number: int,
        claim_next: int,
        known: Sequence[str],
    ) -> Any:
        ids = [settlement.lease.job_id for settlement in settlements]
        ids += [lease.job_id for lease, _ in done]
        self.settlements = list(settlements)
        return await self._note(Asked("settle", number=number, slots=claim_next, ids=ids))

    async def requeue(
        self, queue: QueueName, owner: Owner, leases: Sequence[Lease], *, put: Put, reason: str = ""
    ) -> Any:
        return await self._note(Asked("requeue", ids=[lease.job_id for lease in leases], put=put))

    async def start(self, queue: QueueName, leases: Sequence[Lease]) -> Any:
        return await self._note(Asked("start", ids=[lease.job_id for lease in leases]))

    async def _note(self, asked: Asked) -> Any:
        self.asked.append(asked)
        return await asked.answer


class Hands:
    """Tools and runner of the lane: begins runs that end when the test says."""

    known: Sequence[str] = ("t",)
    drain_deadline: datetime | None = None

    def __init__(self, store: Any) -> None:
        self.store = store
        self.owner = Owner(pod="pod", boot="boot")
        self.link = Link()
        self.begun: list[str] = []
        self.stopped: list[tuple[str, StopReason]] = []
        self.stuck_calls = 0
        self.owned: list[asyncio.Future[Any]] = []

    def look(self) -> None:
        return

    def begin(self, run: Run) -> None:
        self.begun.append(run.lease.job_id)
        run.began = True
        run.task = asyncio.get_running_loop().create_future()  # type: ignore[assignment]

    def stop(self, run: Run, reason: StopReason) -> None:
        self.stopped.append((run.lease.job_id, reason))

    def fail_plainly(self, run: Run, message: str) -> Settlement | None:
        return Settlement(lease=run.lease, outcome=Outcome.RETRY, reason=message)

    def close(self) -> None:
        return

    def own(self, work: Awaitable[None]) -> None:
        self.owned.append(asyncio.ensure_future(work))

    def stuck(self, lane: Lane) -> None:
        self.stuck_calls += 1


class Bench:
    """A lane and everything around it."""

    def __init__(self, slots: int) -> None:
        self.store = ScriptedStore()
        self.hands = Hands(self.store)
        self.lane = Lane(NAME, slots, self.hands, QueueConfig(), lease_s=15)
        self.lane.runner = self.hands
        BENCHES.append(self)

    async def close(self) -> None:
        """Leave nothing under way: what is unanswered is cancelled, and what that starts too."""
        self.lane.stop_claiming()
        while True:
            await self.lane.close()
            for owned in self.hands.owned:
                owned.cancel()
            await asyncio.gather(*self.hands.owned, return_exceptions=True)
            self.hands.owned.clear()
            for _ in range(3):  # an end is noticed in the next turns of the loop
                await asyncio.sleep(0)  # noqa: TID251
            if not self.lane._calls and not self.hands.owned:
                return

    def in_ms(self, ms: int) -> int:
        """So far in the future by Redis' clock, as the lane knows it."""
        return int(self.lane._redis_ms()) + ms

    def next_in(self, ms: int) -> Claimed:
        """Nothing to claim now; Redis' clock went as ours did."""
        return replace(claims(), now_ms=self.in_ms(0), next_at_ms=self.in_ms(ms))

    async def next(self, count: int = 1) -> list[Asked]:
        """The next calls, once there are so many."""

        async def there() -> bool:
            return len(self.store.asked) >= count

        await until_async(there, within=5, every=0.001, what=f"{count} calls")
        taken, self.store.asked = self.store.asked[:count], self.store.asked[count:]
        return taken

    async def none(self) -> None:
        """No call comes: everything that is due on the loop has run."""
        for _ in range(20):
            await asyncio.sleep(0)  # noqa: TID251
        assert self.store.asked == []

    def end(self, *ids: str) -> None:
        for job_id in ids:
            run = self.lane.runs[job_id]
            run.over = True
            self.lane.finish(run, Settlement(lease=run.lease, outcome=Outcome.COMPLETED))


def claims(*ids: str, more: bool = False, **said: Any) -> Claimed:
    return Claimed(claims=tuple(a_claim(job_id) for job_id in ids), more=more, now_ms=1000, **said)


def a_claim(job_id: str, epoch: int = 1) -> Claim:
    return Claim(
        lease=Lease(job_id=job_id, epoch=epoch),
        type="t",
        envelope=b"",
        attempts=0,
        deliveries=1,
        created_ms=0,
        due_ms=0,
    )


def settled(count: int, *ids: str, verdict: Verdict = Verdict.OK) -> Settled:
    return Settled(verdicts=(verdict,) * count, claimed=claims(*ids))


@pytest.mark.covers("RT-093", "RT-090")
async def test_claims_ask_for_the_free_slots_in_batches_of_64_and_never_for_more() -> None:
    bench = Bench(slots=100)

    bench.lane.hunger()
    (first,) = await bench.next()
    assert first.said["slots"] == 64
    await bench.none()  # whether there is more is what its answer says

    first.answer.set_result(claims(*[f"a{n}" for n in range(64)]))
    (second,) = await bench.next()
    assert second.said["slots"] == 36
    assert bench.lane.free == 0
    second.answer.set_result(claims(*[f"b{n}" for n in range(36)]))
    await bench.none()
    assert (bench.lane.busy, bench.lane.free) == (100, 0)


@pytest.mark.covers("RT-093", "RT-094")
async def test_a_marker_for_one_job_costs_one_claim_however_many_slots_are_free() -> None:
    bench = Bench(slots=500)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims())
    await bench.none()

    bench.lane.woken(0)
    (claim,) = await bench.next()
    await bench.none()
    # One that is popped meanwhile asks again: the claim under way may have looked before its job was there.
    bench.lane.woken(0)
    (again,) = await bench.next()
    await bench.none()

    claim.answer.set_result(claims("a"))
    again.answer.set_result(claims())
    await bench.none()


async def test_what_ends_in_one_tick_travels_in_one_call_that_claims_as_many() -> None:
    bench = Bench(slots=4)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", "b", "c", "d"))
    await bench.none()

    bench.end("a", "b")

    (settle,) = await bench.next()
    assert settle.said == {"number": 2, "slots": 2, "ids": ["a", "b"]}


@pytest.mark.parametrize(("slots", "gathers"), [(32, True), (8, False)])
async def test_a_full_lane_gathers_what_ends_shortly_after_a_settle_and_a_small_one_does_not(
    slots: int, gathers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dockwork.worker.lane.GATHER_S", 3600.0)
    bench = Bench(slots)
    bench.lane._settled_at = -3600.0
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims(*[f"j{n}" for n in range(slots)]))
    await bench.none()

    bench.end("j0")
    (first,) = await bench.next()
    assert first.said["ids"] == ["j0"]  # nothing was settled lately: at once
    first.answer.set_result(settled(1, "k0"))
    await bench.none()

    bench.end("j1")
    if gathers:
        await bench.none()
        bench.end("j2", "j3", "j4")
        (enough,) = await bench.next()
        assert enough.said["ids"] == ["j1", "j2", "j3", "j4"]
    else:
        (alone,) = await bench.next()
        assert alone.said["ids"] == ["j1"]


async def test_what_is_gathered_goes_when_its_time_is_over() -> None:
    bench = Bench(slots=32)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims(*[f"j{n}" for n in range(32)]))
    await bench.none()
    bench.end("j0")
    (first,) = await bench.next()
    first.answer.set_result(settled(1, "k0"))
    bench.end("j1")

    (second,) = await bench.next()

    assert second.said["ids"] == ["j1"]


async def test_no_end_waits_for_a_batch_and_two_calls_are_under_way_at_most() -> None:
    bench = Bench(slots=5)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", "b", "c", "d", "e"))
    await bench.none()

    bench.end("a")
    (first,) = await bench.next()
    bench.end("b")
    (second,) = await bench.next()
    bench.end("c")
    await bench.none()
    bench.end("d")
    await bench.none()
    first.answer.set_result(settled(1, "f"))
    (third,) = await bench.next()

    assert (second.said["ids"], third.said["ids"]) == (["b"], ["c", "d"])
    assert third.said["slots"] == 2, "b's slot is still asked for by the second call"
    assert bench.hands.begun[-1] == "f"


@pytest.mark.covers("RT-066")
async def test_a_lost_reply_is_asked_again_under_the_same_number() -> None:
    bench = Bench(slots=2)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_exception(OutcomeUnknown("cut"))
    (again,) = await bench.next()
    assert again.said == claim.said
    again.answer.set_result(claims("a"))
    await bench.none()

    bench.end("a")
    (settle,) = await bench.next()
    settle.answer.set_exception(OutcomeUnknown("cut"))
    (repeated,) = await bench.next()

    assert repeated.said == settle.said
    assert "a" in bench.lane.runs, "the lease is kept until an answer says otherwise"
    repeated.answer.set_result(settled(1))
    await bench.none()
    assert bench.lane.runs == {}


@pytest.mark.covers("RT-094")
async def test_a_marker_is_answered_by_a_claim_even_when_no_slot_is_free() -> None:
    bench = Bench(slots=1)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a"))
    await bench.none()

    bench.lane.woken(0)

    (answer,) = await bench.next()
    assert (answer.what, answer.said["slots"]) == ("claim", 0)


async def test_a_marker_that_comes_while_a_claim_is_under_way_is_answered_after_it() -> None:
    bench = Bench(slots=1)
    bench.lane.hunger()
    (claim,) = await bench.next()

    bench.lane.woken(0)
    (zero,) = await bench.next()
    assert zero.said["slots"] == 0, "the only slot is asked for already"
    claim.answer.set_result(claims())
    zero.answer.set_result(claims(more=True))

    (again,) = await bench.next()
    assert again.said["slots"] == 1


async def test_a_short_claim_waits_and_a_full_one_goes_on() -> None:
    bench = Bench(slots=4)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", more=True))
    (more,) = await bench.next()
    assert not bench.lane.short.is_set()
    more.answer.set_result(claims("b"))
    await bench.none()

    assert bench.lane.short.is_set()


@pytest.mark.covers("RT-096", "RT-095")
async def test_a_due_time_is_met_by_a_timer_and_who_does_not_hold_its_marker_comes_later() -> None:
    loop = asyncio.get_running_loop()
    bench = Bench(slots=1)
    bench.lane.hunger()
    (claim,) = await bench.next()
    begun = loop.time()
    claim.answer.set_result(claims(next_at_ms=1050))
    (other,) = await bench.next()
    waited = loop.time() - begun
    assert waited >= 0.29

    other.answer.set_result(claims())
    await bench.none()
    begun = loop.time()
    bench.lane.woken(bench.in_ms(60))
    (holder,) = await bench.next()

    assert 0.055 <= loop.time() - begun < 0.25
    holder.answer.set_result(claims())


@pytest.mark.covers("RT-096")
async def test_who_holds_the_marker_of_a_due_time_holds_it_beyond_a_claim_that_came_back_full() -> None:
    loop = asyncio.get_running_loop()
    bench = Bench(slots=1)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims())
    await bench.none()
    bench.lane.woken(bench.in_ms(10))
    (due,) = await bench.next()
    due.answer.set_result(claims("a", more=True))
    await bench.none()

    bench.end("a")
    (settle,) = await bench.next()
    begun = loop.time()
    settle.answer.set_result(Settled(verdicts=(Verdict.OK,), claimed=bench.next_in(60)))
    (holder,) = await bench.next()

    assert holder.what == "claim"
    assert 0.055 <= loop.time() - begun < 0.25
    holder.answer.set_result(claims())


@pytest.mark.covers("RT-096")
async def test_a_marker_that_is_popped_while_an_earlier_timer_runs_is_handed_on_by_that_ones_claim() -> None:
    loop = asyncio.get_running_loop()
    bench = Bench(slots=1)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims(next_at_ms=1000))  # known, not held: 250 ms later
    await bench.none()
    bench.lane.woken(bench.in_ms(400))
    (early,) = await bench.next()
    begun = loop.time()
    early.answer.set_result(bench.next_in(60))
    (holder,) = await bench.next()

    assert 0.055 <= loop.time() - begun < 0.25
    holder.answer.set_result(claims())


class Clock:
    """This process' monotonic clock, as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 500.0
        monkeypatch.setattr("dockwork.clock.monotonic", lambda: self.now)


async def told(bench: Bench, time: Clock, redis_ms: int, *, there: float, back: float) -> None:
    """A claim whose way there and back takes so many seconds; Redis looks at its clock between the two."""
    bench.lane.hunger()
    (claim,) = await bench.next()
    time.now += there + back
    claim.answer.set_result(replace(claims(), now_ms=redis_ms))
    await bench.none()


@pytest.mark.covers("RT-096")
async def test_a_reply_that_was_held_up_does_not_set_the_time_back(monkeypatch: pytest.MonkeyPatch) -> None:
    time, bench = Clock(monkeypatch), Bench(slots=1)
    await told(bench, time, 7_000_000, there=0.001, back=0.001)
    time.now += 1
    # Redis looks at its clock at once, and writes to its disk for 200 ms before it answers.
    await told(bench, time, 7_001_002, there=0.001, back=0.2)

    assert bench.lane._redis_ms() == pytest.approx(7_001_202, abs=1)


@pytest.mark.covers("RT-096")
async def test_a_clock_of_redis_that_was_set_back_or_forth_is_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time, bench = Clock(monkeypatch), Bench(slots=1)
    await told(bench, time, 7_000_000, there=0.001, back=0.001)
    await told(bench, time, 6_990_000, there=0.001, back=0.001)
    assert bench.lane._redis_ms() == pytest.approx(6_990_001, abs=2)

    await told(bench, time, 7_500_000, there=0.001, back=0.001)
    assert bench.lane._redis_ms() == pytest.approx(7_500_001, abs=2)


@pytest.mark.covers("RT-122")
async def test_a_quiesced_lane_claims_nothing_until_a_renewal_says_so() -> None:
    bench = Bench(slots=2)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a"))
    await bench.none()
    run = bench.lane.runs["a"]

    bench.lane.renewed([run], a_renewal(Verdict.OK, quiesce="token-1"))
    bench.end("a")
    (settle,) = await bench.next()
    assert settle.said["slots"] == 0
    settle.answer.set_result(settled(1))
    await bench.none()
    assert not bench.lane.short.is_set(), "a quiesced worker pops no marker"

    bench.lane.renewed([], a_renewal(quiesce=""))
    (claim,) = await bench.next()
    assert claim.said["slots"] == 2


async def test_a_claim_refused_for_a_quiesce_stops_claims_before_any_renewal() -> None:
    bench = Bench(slots=2)
    bench.lane.hunger()
    (claim,) = await bench.next()

    claim.answer.set_result(claims(refused="quiesced"))
    await bench.none()

    assert bench.lane.quiesced
    assert not bench.lane.short.is_set()


@pytest.mark.covers("RT-100")
async def test_the_outcome_of_a_lost_run_is_dropped_and_its_slot_stays_taken_until_it_ends() -> None:
    bench = Bench(slots=1)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a"))
    await bench.none()
    run = bench.lane.runs["a"]

    bench.lane.renewed([run], a_renewal(Verdict.LOST))

    assert bench.hands.stopped == [("a", StopReason.LOST)]
    assert bench.lane.runs == {}
    assert bench.lane.free == 0
    run.over = True
    bench.lane.finish(run, Settlement(lease=run.lease, outcome=Outcome.COMPLETED))
    (again,) = await bench.next()
    assert (again.what, again.said["slots"]) == ("claim", 1)
    again.answer.set_result(claims())


@pytest.mark.covers("RT-102")
async def test_an_id_that_comes_back_while_its_old_run_lives_waits_for_its_end() -> None:
    bench = Bench(slots=2)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", more=True))
    (second,) = await bench.next()
    old = bench.lane.runs["a"]
    second.answer.set_result(Claimed(claims=(a_claim("a", epoch=2),), now_ms=1000))
    await bench.none()

    assert bench.hands.begun == ["a"]
    assert bench.hands.stopped == [("a", StopReason.LOST)]
    old.over = True
    bench.lane.finish(old, Settlement(lease=old.lease, outcome=Outcome.COMPLETED))

    assert bench.hands.begun == ["a", "a"]
    assert bench.lane.runs["a"].lease.epoch == 2
    assert bench.lane.busy == 1


@pytest.mark.covers("RT-106")
async def test_a_run_given_up_at_its_hard_timeout_is_settled_and_keeps_its_slot() -> None:
    bench = Bench(slots=3)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", "b", "c"))
    await bench.none()
    run = bench.lane.runs["a"]

    bench.lane.abandon(run, Settlement(lease=run.lease, outcome=Outcome.DEAD))

    (settle,) = await bench.next()
    assert settle.said == {"number": 2, "slots": 0, "ids": ["a"]}
    assert (bench.lane.busy, bench.hands.stuck_calls) == (3, 0)
    other = bench.lane.runs["b"]
    bench.lane.abandon(other, Settlement(lease=other.lease, outcome=Outcome.DEAD))
    assert bench.hands.stuck_calls == 1, "two of three slots are more than half"


async def test_one_settlement_that_redis_refuses_does_not_hold_the_others() -> None:
    bench = Bench(slots=2)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", "b"))
    await bench.none()
    bench.end("a", "b")
    (both,) = await bench.next()
    both.answer.set_exception(ScriptFailed("settle", "broken"))

    one, other = await bench.next(2)
    assert [one.said["ids"], other.said["ids"]] == [["a"], ["b"]]
    one.answer.set_exception(ScriptFailed("settle", "broken"))
    other.answer.set_result(settled(1))

    (claim,) = await bench.next()
    assert claim.said["slots"] == 2
    assert bench.lane.runs == {}


async def test_an_outcome_that_cannot_be_sent_is_a_failed_attempt_and_costs_the_others_nothing() -> None:
    bench = Bench(slots=2)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", "b"))
    await bench.none()
    bench.end("a", "b")
    (both,) = await bench.next()
    cannot = UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
    both.answer.set_exception(cannot)

    one, other = await bench.next(2)
    other.answer.set_result(settled(1))
    one.answer.set_exception(cannot)
    (again,) = await bench.next()
    assert (again.what, again.said["ids"]) == ("settle", ["a"])
    (sent,) = bench.store.settlements
    assert (sent.outcome, sent.reason) == (
        Outcome.RETRY,
        "its outcome could not be sent: UnicodeEncodeError",
    )
    again.answer.set_result(settled(1))
    (claim,) = await bench.next()
    await bench.none()

    assert claim.said["slots"] == 2
    assert bench.lane.runs == {}
    assert bench.lane.tally.ended == 2
    assert bench.hands.owned == []


async def test_what_a_defect_left_unsettled_goes_back_and_the_defect_is_told() -> None:
    bench = Bench(slots=2)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", "b"))
    await bench.none()
    bench.end("a", "b")
    (both,) = await bench.next()
    bench.lane.stop_claiming()
    both.answer.set_result(settled(1))  # a verdict too few

    (back,) = await bench.next()
    assert (back.what, back.said["ids"]) == ("requeue", ["b"])
    back.answer.set_result([Verdict.OK])
    await bench.none()

    assert bench.lane.quiet.is_set()
    (defect,) = bench.hands.owned
    with pytest.raises(ValueError, match="zip"):
        await defect


@pytest.mark.covers("RT-101")
async def test_nothing_is_claimed_while_renewal_has_failed_for_a_lease() -> None:
    bench = Bench(slots=2)
    bench.lane.renewed_at -= 16

    bench.lane.hunger()
    (claim,) = await bench.next()
    assert claim.said["slots"] == 0
    claim.answer.set_result(claims(more=True))
    await bench.none()

    bench.lane.renewed_at += 16
    bench.lane.renewed([], a_renewal())
    (claim,) = await bench.next()
    assert claim.said["slots"] == 2


@pytest.mark.covers("RT-114")
async def test_once_claims_have_stopped_none_is_made() -> None:
    bench = Bench(slots=2)
    bench.lane.hunger()
    (claim,) = await bench.next()
    claim.answer.set_result(claims("a", more=True))
    (more,) = await bench.next()
    bench.lane.stop_claiming()
    more.answer.set_result(claims())
    bench.end("a")
    (settle,) = await bench.next()

    assert (settle.what, settle.said["slots"]) == ("settle", 0)
    settle.answer.set_result(settled(1))
    bench.lane.hunger()
    await bench.none()
    assert bench.lane.quiet.is_set()


def a_renewal(*verdicts: Verdict, quiesce: str = "") -> Renewal:
    return Renewal(verdicts=verdicts, now_ms=1000, expires_ms=16_000, quiesce=quiesce)
