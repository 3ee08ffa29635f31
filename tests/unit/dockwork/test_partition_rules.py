"""Which partition a job goes to, what each has of the limits, and how workers share slots between them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork import App
from dockwork.core.keys import MAX_PARTITIONS, QueueName
from dockwork.core.partitions import cursor, cursors_of, entry_order, partition_names, partition_of, share_of
from dockwork.core.unique import key_hash
from dockwork.errors import InvalidValue
from dockwork.store.event_calls import check_since
from dockwork.store.partition_shares import share_config, share_events
from dockwork.store.partitioned import route
from dockwork.store.protocol import EventOptions, JobKeys, NewJob, QueueConfig, RateLimit
from dockwork.worker.places import Places


def a_job(**more: Any) -> NewJob:
    return NewJob(**{"id": "a", "type": "t", "envelope": b"{}", **more})


@pytest.mark.covers("RT-046")
def test_a_job_goes_by_its_concurrency_unique_or_idempotency_key_else_by_its_id() -> None:
    by_key = partition_of(key_hash("ann"), 16)

    assert route(a_job(concurrency_key="ann"), 16) == by_key
    assert route(a_job(keys=JobKeys(unique=key_hash("ann"))), 16) == by_key
    assert route(a_job(keys=JobKeys(idempotency=key_hash("ann"))), 16) == by_key
    assert route(a_job(concurrency_key="ann", keys=JobKeys(unique=key_hash("ann"))), 16) == by_key
    assert route(a_job(), 16) == partition_of("a", 16)
    assert route(a_job(concurrency_key="ann", keys=JobKeys(unique=key_hash("bob"))), 16) is None


@pytest.mark.covers("RT-046")
def test_where_a_key_goes_is_the_same_for_every_release() -> None:
    # Jobs are stored by it: another answer would lose them.
    assert [partition_of(key, 64) for key in ("a", "order-7", "01M8Q993CY3E633K2P0H35HW3W", "ü")] == [
        3, 26, 25, 21,
    ]  # fmt: skip


@pytest.mark.covers("RT-046")
def test_ids_spread_over_all_partitions() -> None:
    found = Counter(partition_of(f"job-{number}", 8) for number in range(8000))

    assert set(found) == set(range(8))
    assert max(found.values()) < 1.2 * min(found.values())


@pytest.mark.covers("RT-046")
@given(st.integers(0, 10**12), st.integers(1, MAX_PARTITIONS))
def test_the_shares_of_a_limit_add_up_to_it_and_differ_by_one_at_most(limit: int, count: int) -> None:
    shares = [share_of(limit, number, count) for number in range(count)]

    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1


@pytest.mark.covers("RT-046")
def test_the_limits_of_a_queue_are_split_and_those_of_a_job_are_not() -> None:
    whole = QueueConfig(
        max_depth=10, max_bytes=1001, concurrency=5, rate=RateLimit(7, 60_000), per_key=2, max_payload=99,
        timeout_ms=5, keep={"completed_count": 9, "completed_age_ms": 3_600_000, "failed_count": 2, "bytes": 0},
    )  # fmt: skip
    parts = [share_config(whole, number, 4) for number in range(4)]

    assert [part.max_depth for part in parts] == [3, 3, 2, 2]
    assert sum(part.max_bytes or 0 for part in parts) == 1001
    assert [part.concurrency for part in parts] == [2, 1, 1, 1]
    assert [part.rate for part in parts] == [RateLimit(count, 60_000) for count in (2, 2, 2, 1)]
    assert {(part.per_key, part.max_payload, part.timeout_ms) for part in parts} == {(2, 99, 5)}
    assert [part.keep["completed_count"] for part in parts] == [3, 2, 2, 2]
    assert {part.keep["completed_age_ms"] for part in parts} == {3_600_000}
    assert {(part.keep["failed_count"], part.keep["bytes"]) for part in parts} == {(1, 0)}


@pytest.mark.covers("RT-046")
def test_the_defaults_of_a_queue_are_split_too() -> None:
    parts = [share_config(QueueConfig(), number, 3) for number in range(3)]

    assert sum(part.max_depth or 0 for part in parts) == 1_000_000
    assert sum(part.max_bytes or 0 for part in parts) == 2 * 1024**3
    assert sum(part.keep["completed_count"] for part in parts) == 1000
    assert sum(share_events(EventOptions(), n, 3).max_bytes or 0 for n in range(3)) == 64 * 1024**2


@pytest.mark.covers("RT-046")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partitions": 0}, "partitions: expected 1 to 64, got 0"),
        ({"partitions": 65}, "partitions: expected 1 to 64, got 65"),
        ({"partitions": True}, "partitions: expected 1 to 64, got True"),
        ({"partitions": 4, "max_depth": 3}, "max_depth: expected at least 4, one for each partition, got 3"),
        (
            {"partitions": 4, "concurrency": 3},
            "concurrency: expected at least 4, one for each partition, got 3",
        ),
    ],
)
def test_a_number_or_a_limit_that_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        App("shop").queue("mail", **options)


def test_a_queue_of_one_partition_keeps_its_name() -> None:
    queue = QueueName("shop", "mail")

    assert partition_names(queue, 1) == (queue,)
    assert [str(name) for name in partition_names(queue, 2)] == ["shop/mail/0", "shop/mail/1"]


def test_a_place_in_the_events_of_all_partitions_is_read_again() -> None:
    place = cursor("7-1", ["5-0", "7-1", "0-0"])

    assert check_since(place) == place
    assert cursors_of(place, 3) == ["5-0", "7-1", "0-0"]
    assert cursors_of("9-0", 3) == ["9-0"] * 3
    assert entry_order(place) == (7, 1)
    with pytest.raises(InvalidValue, match="since: expected an id that a queue of 2 partitions gave"):
        cursors_of(place, 2)


class FakeLane:
    """What `Places` sees of a lane."""

    def __init__(self, places: Places, *, wants: bool = True) -> None:
        self.taken = 0
        self.wants = wants
        self.woken = 0
        self.stuck: set[str] = set()
        self._places = places
        places.join(self)

    def wake(self) -> None:
        self.woken += 1

    def take(self) -> int:
        room = self._places.room(self)
        self.taken += room
        if room:
            self._places.took(self)
        return room

    def end(self, count: int = 1) -> None:
        self.taken -= count
        self._places.freed(self)


@pytest.mark.covers("RT-046")
def test_one_partition_with_work_has_all_slots() -> None:
    places = Places(8)
    busy, _idle = FakeLane(places), FakeLane(places, wants=False)

    assert busy.take() == 8
    busy.end(3)
    assert (busy.take(), places.free) == (3, 0)


@pytest.mark.covers("RT-046")
def test_partitions_with_work_have_equal_shares_and_keep_what_they_free() -> None:
    places = Places(9)
    lanes = [FakeLane(places) for _ in range(4)]

    assert [lane.take() for lane in lanes] == [2, 2, 2, 2]
    assert [lane.take() for lane in lanes] == [1, 0, 0, 0]
    lanes[1].end()
    assert (lanes[2].take(), lanes[1].take()) == (0, 1)


@pytest.mark.covers("RT-046", "RT-106")
def test_runs_that_are_stuck_in_any_partition_count_together() -> None:
    places = Places(4)
    first, second = FakeLane(places), FakeLane(places)

    first.stuck.add("a")
    second.stuck.add("b")

    assert places.stuck == 2


@pytest.mark.covers("RT-046")
def test_a_partition_that_gets_work_later_is_served_next() -> None:
    places = Places(4)
    first, second = FakeLane(places), FakeLane(places, wants=False)
    assert first.take() == 4

    second.wants = True
    assert second.take() == 0
    first.end()

    assert second.woken > 0
    assert (first.take(), second.take()) == (0, 1)


@pytest.mark.covers("RT-046")
@given(st.integers(1, 3), st.integers(4, 8))
def test_with_fewer_slots_than_partitions_each_has_its_turn(slots: int, count: int) -> None:
    places = Places(slots)
    lanes = [FakeLane(places) for _ in range(count)]
    served: Counter[int] = Counter()

    for _ in range(3 * count):
        for number, lane in enumerate(lanes):
            served[number] += lane.take()
        assert sum(lane.taken for lane in lanes) <= slots
        for lane in lanes:
            if lane.taken:
                lane.end()

    assert min(served.values()) > 0
    assert max(served.values()) - min(served.values()) <= 1
