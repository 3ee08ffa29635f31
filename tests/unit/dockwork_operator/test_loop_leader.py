"""The Lease in virtual time: taken, renewed, lost, released, and a write guard that never trusts old news."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from dockwork_operator.errors import Conflict, NotLeading, Unreachable
from dockwork_operator.kube.lease import LeaseRecord
from dockwork_operator.loop.leader import DURATION, Leader

pytestmark = pytest.mark.looptime


class FakeLease:
    """One Lease in memory, with the resource version as precondition."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.down = False
        self.writes = 0

    async def read(self) -> LeaseRecord | None:
        self._check()
        return self.record

    async def write(
        self, holder: str, seen: LeaseRecord | None, now: datetime, duration: timedelta
    ) -> LeaseRecord:
        self._check()
        if (self.record.version if self.record else "") != (seen.version if seen else ""):
            raise Conflict("stale", verb="update", resource="leases")
        self.writes += 1
        self.record = LeaseRecord(uid="u1", version=str(self.writes), holder=holder, duration=duration)
        return self.record

    def _check(self) -> None:
        if self.down:
            raise Unreachable("down", verb="get", resource="leases")


class Replica:
    """A leader election participant and what it was told."""

    def __init__(self, lease: FakeLease, name: str) -> None:
        self.heard: list[str] = []
        self.leader = Leader(
            lease,  # type: ignore[arg-type]
            identity=name,
            now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
            gained=lambda: self.heard.append("gained"),
            lost=lambda why: self.heard.append("lost"),
        )


async def run_for(seconds: float, *replicas: Replica) -> None:
    stop = asyncio.Event()
    tasks = [asyncio.create_task(replica.leader.run(stop)) for replica in replicas]
    await asyncio.wait(tasks, timeout=seconds)
    stop.set()
    await asyncio.gather(*tasks)


@pytest.mark.covers("OP-302")
async def test_one_of_two_leads_and_the_other_follows() -> None:
    lease = FakeLease()
    one, two = Replica(lease, "one"), Replica(lease, "two")
    await run_for(60, one, two)
    assert (one.heard, two.heard) == (["gained"], [])
    one.leader.guard()
    with pytest.raises(NotLeading):
        two.leader.guard()


@pytest.mark.covers("OP-302")
async def test_a_released_lease_has_a_successor_at_its_next_try() -> None:
    lease = FakeLease()
    one, two = Replica(lease, "one"), Replica(lease, "two")
    await run_for(3, one, two)
    await one.leader.release()
    await two.leader.run_once()
    assert two.leader.fresh
    assert not one.leader.fresh


@pytest.mark.covers("OP-302")
async def test_after_a_kill_the_successor_waits_for_the_whole_lease() -> None:
    lease = FakeLease()
    one, two = Replica(lease, "one"), Replica(lease, "two")
    await run_for(1, one, two)
    began = asyncio.get_running_loop().time()
    stop = asyncio.Event()
    follower = asyncio.create_task(two.leader.run(stop))
    while not two.heard:
        await asyncio.wait({follower}, timeout=0.5)
    took = asyncio.get_running_loop().time() - began
    stop.set()
    await follower
    assert DURATION.total_seconds() - 2 <= took <= DURATION.total_seconds() + 3


@pytest.mark.covers("OP-302")
async def test_the_same_pod_that_comes_back_is_someone_else() -> None:
    lease = FakeLease()
    await run_for(1, Replica(lease, "operator-0-aaaa"))
    again = Replica(lease, "operator-0-bbbb")
    await run_for(10, again)
    assert again.heard == []


@pytest.mark.covers("OP-302")
async def test_who_cannot_renew_for_ten_seconds_stops_writing_and_ends() -> None:
    lease = FakeLease()
    one = Replica(lease, "one")
    await run_for(1, one)
    lease.down = True
    await run_for(7, one)
    assert one.heard == ["gained"]
    await run_for(8, one)
    assert one.heard == ["gained", "lost"]
    with pytest.raises(NotLeading):
        one.leader.guard()


@pytest.mark.covers("OP-302")
async def test_a_frozen_leader_may_not_write_when_it_thaws() -> None:
    lease = FakeLease()
    one = Replica(lease, "one")
    await run_for(1, one)
    assert lease.record is not None
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=12)
    assert one.leader.leading
    with pytest.raises(NotLeading):
        one.leader.guard()


async def test_a_lease_that_was_taken_away_is_noticed_at_the_next_renewal() -> None:
    lease = FakeLease()
    one = Replica(lease, "one")
    await run_for(1, one)
    assert lease.record is not None
    lease.record = replace(lease.record, holder="two", version="77")
    await one.leader.run_once()
    assert one.heard == ["gained", "lost"]
