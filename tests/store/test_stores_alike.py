"""The store in memory and the one on Redis say the same, whatever is done to them (RT-019)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from dockwork.core.states import ENDED, State
from dockwork.errors import QueueFull, TooLarge
from dockwork.store.memory import MemoryStore
from dockwork.store.protocol import (
    Admission,
    Claimed,
    EventMode,
    EventOptions,
    JobChange,
    JobKeys,
    Lease,
    NewJob,
    OnConflict,
    Outcome,
    Owner,
    OwnerRecord,
    Put,
    QueueConfig,
    QueueErrors,
    RateLimit,
    Resealed,
    RevokeCause,
    Sample,
    Settlement,
    WorkerState,
)
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_world import ANN, BOB, MemoryWorld, RedisWorld, World, a_beat, a_failure, a_job

# Time passes in steps of 100 s, and every span that a call is given ends 50 s beside them: however slow the machine is,
# both stores agree on what is over.
STEP_S = 100.0
SPANS_MS = [50_000, 150_000, 250_000]
JOBS = [f"j{n}" for n in range(40)]
OWNERS = [ANN, BOB]
TYPES = ["t", "t@h", "u"]
OWNED = [None, *[OwnerRecord(operator=o, namespace="shop", name=n, uid=n) for o in "ab" for n in "xy"]]

keys = st.builds(
    JobKeys,
    unique=st.sampled_from(["", "aa", "bb"]),
    until=st.sampled_from(["start", "finish", "finish", "ttl"]),
    ttl_ms=st.sampled_from([50_000, 250_000]),
    on_conflict=st.sampled_from(list(OnConflict)),
    idempotency=st.sampled_from(["", "cc"]),
    idempotency_ttl_ms=st.sampled_from(SPANS_MS),
    digest=st.sampled_from(["dd", "ee"]),
)
changes = st.builds(
    JobChange,
    envelope=st.sampled_from([None, b"[]", b"x" * 30]),
    priority=st.sampled_from([1, -2, 0, 3]),
    due_in_ms=st.sampled_from([None, None, 0, *SPANS_MS]),
)
jobs = st.builds(
    lambda name, **more: a_job(name, **more),
    st.sampled_from(JOBS),
    type=st.sampled_from(["t", "u"]),
    priority=st.sampled_from([0, 0, 0, -2, 3]),
    due_in_ms=st.sampled_from([0, 0, 0, *SPANS_MS]),
    expires_in_ms=st.sampled_from([None, None, *SPANS_MS]),
    max_deliveries=st.sampled_from([None, 1, 2]),
    timeout_ms=st.sampled_from([None, 5_000, 10_000]),
    keep=st.sampled_from([None, None, "none", "forever", "50000,1,10", ",2,", ",,30"]),
    envelope=st.sampled_from([b"{}", b"x" * 40]),
    concurrency_key=st.sampled_from([None, None, "k", "l"]),
    per_key=st.sampled_from([None, None, 2]),
    keys=st.none() | st.none() | keys,
    repeat=st.sampled_from([None, None, None, 0, 3]),
    sealed=st.sampled_from(["", "", "k1", "k1,k2"]),
)
configs = st.builds(
    QueueConfig,
    held=st.sampled_from([False] * 7 + [True]),
    closed=st.sampled_from([False] * 7 + [True]),
    max_depth=st.sampled_from([None, None, 3]),
    max_bytes=st.sampled_from([None, None, 90]),
    max_payload=st.sampled_from([None, None, 20]),
    max_timeout_ms=st.sampled_from([None, 7_000]),
    max_deliveries=st.sampled_from([None, 1, 3]),
    lease_ms=st.sampled_from([None, 150_000]),
    rate=st.sampled_from([None, None, RateLimit(3, 150_000), RateLimit(2, 50_000)]),
    concurrency=st.sampled_from([None, None, 2, 4]),
    per_key=st.sampled_from([None, None, 2]),
    keep=st.fixed_dictionaries(
        {
            "completed_age_ms": st.sampled_from([50_000, 150_000, -1, 0]),
            "completed_count": st.sampled_from([2, -1, 0]),
            "failed_age_ms": st.sampled_from([50_000, 250_000, -1]),
            "failed_count": st.sampled_from([2, -1]),
            "bytes": st.sampled_from([30, -1]),
        }
    ),
    generation=st.integers(1, 3),
)
leases = st.integers(0, 4)
owners = st.sampled_from(OWNERS)
known = st.lists(st.sampled_from(TYPES), unique=True, max_size=3)
delays = st.sampled_from([0, *SPANS_MS])
end = st.tuples(
    st.sampled_from([Outcome.COMPLETED] * 4 + list(Outcome)), st.booleans(), st.sampled_from(TYPES)
)
ends = st.lists(st.tuples(leases, end), max_size=3)
some_jobs = st.sampled_from(JOBS[:12])
pods = owners.map(lambda owner: owner.pod)
backs = st.lists(leases, max_size=3)


def step(name: str, *args: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *args)


def operation(name: str, *args: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return step("operate", st.just(name), *args)


def an_event_mode(mode: EventMode) -> EventOptions:
    return EventOptions(mode=mode)


operations = st.one_of(
    operation("cancel", some_jobs),
    step("force_cancel", some_jobs),
    step("redrive", st.lists(some_jobs, max_size=3), st.booleans()),
    step("edit", some_jobs, st.sampled_from([0, 0, 0, 1]), changes),
    step("edit", some_jobs, st.sampled_from([0, 0, 0, 1]), changes),
    step("purge", st.sampled_from(sorted(ENDED)), st.sampled_from([None, 50_000, 250_000])),
    operation("revoke", owners.map(str), st.sampled_from(list(RevokeCause)), st.sampled_from(["", "OOM"])),
    operation("configure", configs, st.sampled_from(OWNED)),
    operation("quiesce", st.dictionaries(pods, st.sampled_from(["t1", "t2"]))),
    operation("unquiesce", st.lists(pods, max_size=2)),
    operation("register", st.sampled_from(["", "hash"]), known.map(lambda n: dict.fromkeys(n, ("h", b"{}")))),
    st.sampled_from(
        [
            ("operate", "leave", o, a_beat(o, state=WorkerState.DRAINING, drained=1, requeued=2))
            for o in OWNERS
        ]
    ),
    step("pause", st.booleans(), st.sampled_from([False, False, True])),
    operation("set_events", st.sampled_from([EventMode.STREAM] * 3 + list(EventMode)).map(an_event_mode)),
)
upkeep = st.one_of(
    operation("promote", st.none() | st.lists(some_jobs | st.just("unknown"), max_size=3)),
    st.sampled_from([("operate", name) for name in ("reap", "expire", "trim")]),
)
running = st.one_of(
    step("start", backs),
    step("renew", backs, owners, st.integers(0, 4)),
    step("requeue", backs, st.sampled_from(list(Put))),
    step("child_died", backs),
    step("write", leases, st.sampled_from(["progress", "checkpoint", "sealed", "log"])),
)
work = step("work", owners, st.integers(1, 4), known, st.lists(end, min_size=1, max_size=4), delays)
steps = st.one_of(
    step("enqueue", st.lists(jobs, min_size=1, max_size=6)),
    work,
    work,
    step("claim", owners, st.integers(0, 4), known, st.booleans()),
    step("settle", owners, ends, st.integers(0, 3), delays),
    running,
    upkeep,
    operations,
    step("pass_time", st.sampled_from([1, 1, 2, 7])),
    step("fall_silent", st.sampled_from([1, 2])),
)


#: What a settle writes anew, by what else is drawn for it.
RESEALED = {
    (True, "t"): Resealed("rk3"),
    (True, "u"): Resealed("ak2,ck2,rk3", b"sealed anew", b'"dwe1:k2:AAAA"'),
    (False, "u"): Resealed("a", b"withheld"),
}


def a_settlement(lease: Lease, delay: int, outcome: Outcome, failed: bool, type_: str) -> Settlement:
    return Settlement(
        lease=lease,
        outcome=outcome,
        delay_ms=delay,
        reason="why" if failed else "",
        failure=a_failure(type_) if failed else None,
        result=b"12345" if failed else None,
        progress=b"0.5" if failed else None,
        park_type=type_,
        next_due_ms=0 if type_ == "u" else None,
        resealed=RESEALED.get((failed, type_)),
    )


class Follower(MemoryWorld):
    """A queue in memory whose time follows that of the other store, and never moves by itself."""

    def number(self, owner: Owner = ANN) -> int:
        return World.number(self, owner)


class Pair:
    """A queue in each store, to which the same is done; each remembers the leases that it handed out."""

    def __init__(self, redis: RedisWorld) -> None:
        self.memory = MemoryStore()
        self.worlds: tuple[World, ...] = (redis, Follower(self.memory))
        self.leases: dict[int, list[Lease]] = {0: [], 1: []}
        self._last_ms = 0

    async def close(self) -> None:
        redis = self.worlds[0]
        assert isinstance(redis, RedisWorld)
        await redis.close()

    def lease(self, world: int, back: int) -> Lease:
        mine = self.leases[world]
        return mine[-1 - back] if back < len(mine) else Lease(job_id="j0", epoch=1)

    async def do(self, call: Callable[[World, Callable[[int], Lease]], Awaitable[Any]]) -> None:
        """Do the same to both, and hold the answers against each other."""
        await self._until_the_next_ms()
        answers = []
        for at, world in enumerate(self.worlds):
            answer = await call(world, lambda back, at=at: self.lease(at, back))  # type: ignore[misc]
            claimed = answer if isinstance(answer, Claimed) else getattr(answer, "claimed", None)
            if claimed is not None:
                self.leases[at] += [claim.lease for claim in claimed.claims]
            answers.append(plain(answer))
        assert answers[0] == answers[1]

    async def _until_the_next_ms(self) -> None:
        """What ends in one millisecond is in no order, and a server may be that fast. Memory follows its clock."""
        while (now := await self.worlds[0].store.ping()) == self._last_ms:
            continue
        if self._last_ms:
            self.memory.advance((now - self._last_ms) / 1000)
        self._last_ms = now

    async def compare(self) -> None:
        redis, memory = [await picture(world) for world in self.worlds]
        assert redis == memory


def plain(answer: Any) -> Any:
    """An answer without what is the time of a call, epochs included."""
    match answer:
        case Claimed():
            claims = [
                (
                    c.job_id,
                    c.type,
                    c.envelope,
                    c.attempts,
                    c.deliveries,
                    c.priority,
                    c.timeout_ms,
                    c.checkpoint,
                )
                for c in answer.claims
            ]
            return claims, answer.more, answer.refused, answer.config_revision, answer.next_at_ms is None
        case Sample():
            # A hash of long values is in no order.
            beats = sorted((replace(beat, beat_ms=0) for beat in answer.workers), key=lambda beat: beat.owner)
            return replace(
                answer, time_ms=0, run_id="", oldest_ms=0, totals=counted(answer.totals), workers=tuple(beats)
            )
    if hasattr(answer, "claimed"):
        return answer.verdicts, plain(answer.claimed)
    if hasattr(answer, "expires_ms"):
        return answer.verdicts, answer.quiesce, answer.config_revision, answer.next_at_ms is None
    return answer


def counted(totals: Any) -> dict[str, int]:
    """Totals without those that measure how long something took."""
    timed = ("wait_ms", "run_ms")
    return {name: number for name, number in totals.items() if name not in timed and not name[1:].isdecimal()}


async def picture(world: World) -> dict[str, Any]:
    """Everything that anybody can see of the queue, times left out."""
    store, queue = world.store, world.queue
    stats, sample, events, config, queues, *rest = await asyncio.gather(
        store.stats(queue),
        store.sample(queue, horizon_ms=100_000),
        store.events(queue, "0", block_s=0),
        store.config(queue),
        store.queues(queue.namespace),
        *[store.predecessors(queue, replace(owner, boot="new")) for owner in OWNERS],
        *[store.list(queue, state, limit=500) for state in State],
    )
    listed: list[Any] = rest[len(OWNERS) :]
    return {
        "stats": replace(stats, totals=counted(stats.totals), oldest_wait_ms=0),
        "oldest": round(stats.oldest_wait_ms / 50_000),
        "sample": plain(sample),
        "lists": {
            state: [timeless(view) for view in views] for state, views in zip(State, listed, strict=True)
        },
        "events": [(e.name, e.ids, e.reason, dict(e.data)) for e in events],
        "config": config,
        "errors": told(await store.errors(queue, limit=200)),
        "queues": queues,
        "keys": dict(await store.key_ids(queue)),
        "predecessors": rest[: len(OWNERS)],
    }


def told(errors: QueueErrors) -> Any:
    """Error reports and figures per type, times left out."""
    reports = [replace(report, at_ms=0) for report in errors.recent]
    return reports, {kind: replace(figures, run_ms=0) for kind, figures in errors.by_type.items()}


def timeless(view: Any) -> Any:
    """A view whose times are counted in spans from its creation."""
    names = ("due_ms", "expires_ms", "started_ms", "ended_ms")
    since = {
        name: None if getattr(view, name) is None else round((getattr(view, name) - view.created_ms) / 50_000)
        for name in names
    }
    # The instant of a repeat is a time of day, which on Redis does not move with `advance`.
    scheduled = None if view.scheduled_for_ms is None else 0
    return replace(view, created_ms=0, epoch=0, digest="", scheduled_for_ms=scheduled, **since)


class BothStores(RuleBasedStateMachine):
    """Any mix of calls: the answers are compared with each call, and all that can be seen after it."""

    server: RedisServer

    def __init__(self) -> None:
        super().__init__()
        self.server.flush()
        # Not asyncio.run: it would put away the loop that the plugin keeps for the other tests.
        self.loop = asyncio.new_event_loop()
        self.pair = Pair(RedisWorld(RedisStore(self.server.url), self.server.url))

    def teardown(self) -> None:
        with closing(self.loop):
            self.loop.run_until_complete(self.pair.close())

    def do(self, call: Callable[[World, Callable[[int], Lease]], Awaitable[Any]]) -> None:
        self.loop.run_until_complete(self.pair.do(call))

    @invariant()
    def look_the_same(self) -> None:
        self.loop.run_until_complete(self.pair.compare())

    @initialize(new=st.lists(jobs, min_size=4, max_size=8))
    def begin(self, new: list[NewJob]) -> None:
        self.enqueue(new)

    @rule(step=steps)
    def play(self, step: tuple[Any, ...]) -> None:
        """One rule for all: of several, some would be left out of most runs."""
        getattr(self, step[0])(*step[1:])

    def enqueue(self, new: list[NewJob]) -> None:
        async def call(world: World, lease: Any) -> list[Admission]:
            return await world.enqueue(*new)

        self.do(call)

    def claim(self, owner: Owner, slots: int, known: Sequence[str], again: bool) -> None:
        async def call(world: World, lease: Any) -> Claimed:
            return await world.claim(slots, owner, known)

        async def ask_again(world: World, lease: Any) -> Claimed:
            number = world._numbers[str(owner)]
            return await world.store.claim(world.queue, owner, number=number, slots=slots, known=known)

        self.do(call)
        if again:
            self.do(ask_again)

    def settle(self, owner: Owner, ends: list[Any], claim_next: int, delay: int) -> None:
        async def call(world: World, lease: Any) -> Any:
            settlements = [a_settlement(lease(back), delay, *rest) for back, rest in ends]
            return await world.settle(*settlements, owner=owner, claim_next=claim_next)

        self.do(call)

    def work(self, owner: Owner, slots: int, known: Sequence[str], ends: list[Any], delay: int) -> None:
        """Claim some jobs and end them, or the last of them."""

        async def settle(world: World, lease: Any) -> Any:
            settlements = [a_settlement(lease(back), delay, *rest) for back, rest in enumerate(ends)]
            return await world.settle(*settlements, owner=owner)

        self.claim(owner, slots, known, False)
        self.do(settle)

    def start(self, backs: list[int]) -> None:
        self.do(lambda world, lease: world.store.start(world.queue, [lease(back) for back in backs]))

    def renew(self, backs: list[int], owner: Owner, busy: int) -> None:
        beat = a_beat(owner, busy=busy, jobs=(("j0", 1, 2),), types=("t",), schemas={"t": "h"})
        self.do(lambda world, lease: world.store.renew(world.queue, [lease(back) for back in backs], beat))

    def requeue(self, backs: list[int], put: Put) -> None:
        self.do(
            lambda world, lease: world.store.requeue(
                world.queue, ANN, [lease(back) for back in backs], put=put
            )
        )

    def child_died(self, backs: list[int]) -> None:
        self.do(
            lambda world, lease: world.store.child_died(
                world.queue, [(lease(back), "signal 11") for back in backs]
            )
        )

    def write(self, back: int, what: str) -> None:
        value: Any = ["a", "", "ü\nb"] if what == "log" else b"7"
        if what == "sealed":
            what, value = "checkpoint", b'"dwe1:k4:AAAA"'
        self.do(lambda world, lease: getattr(world.store, what)(world.queue, lease(back), value))

    def operate(self, name: str, *args: Any) -> None:
        self.do(lambda world, lease: getattr(world.store, name)(world.queue, *args))

    def force_cancel(self, job: str) -> None:
        self.do(lambda world, lease: world.store.cancel(world.queue, job, force=True))

    def redrive(self, names: list[str], reviewed: bool) -> None:
        async def call(world: World, lease: Any) -> Any:
            digests = {}
            for name in names if reviewed else ():
                view = await world.store.get(world.queue, name, digest=True)
                digests[name] = "" if view is None else view.digest
            return await world.store.redrive(world.queue, [(name, digests.get(name, "")) for name in names])

        self.do(call)

    def edit(self, job: str, revision: int, change: JobChange) -> None:
        async def call(world: World, lease: Any) -> Any:
            try:
                return await world.store.edit(world.queue, job, revision, change)
            except (TooLarge, QueueFull) as refused:
                return str(refused)

        self.do(call)

    def purge(self, state: State, older_ms: int | None) -> None:
        async def call(world: World, lease: Any) -> Any:
            before = None if older_ms is None else await world.store.ping() - older_ms
            counted = await world.store.count_purge(world.queue, state, before)
            done = await world.store.purge(world.queue, counted)
            return counted.count, done.deleted, done.left.count, done.conflicted

        self.do(call)

    def pause(self, expected: bool, wanted: bool) -> None:
        self.do(lambda world, lease: world.store.set_paused(world.queue, expected=expected, wanted=wanted))

    def pass_time(self, count: int) -> None:
        self.do(lambda world, lease: world.advance(count * STEP_S))

    def fall_silent(self, count: int) -> None:
        self.do(lambda world, lease: world.fall_silent(count * STEP_S))


@pytest.mark.covers("RT-019", "RT-030")
def test_any_mix_of_calls_has_the_same_answers_and_leaves_the_same_in_both_stores(
    server: RedisServer,
) -> None:
    class Machine(BothStores):
        pass

    Machine.server = server
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            # Shrinking would take minutes: an example is hundreds of round trips.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )
