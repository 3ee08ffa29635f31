"""How slots that queues share are dealt out, and how they are written down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork.core.slots import Shared, Slots, parse_slots
from dockwork.errors import InvalidValue
from dockwork.settings import Settings
from dockwork.worker.slots import QueueSlots, SharedSlots


class FakeLane:
    """Takes what it is given at once, and says what it wants."""

    def __init__(self, slots: QueueSlots) -> None:
        self.slots = slots
        self.taken = 0
        self.backlog = 0
        self.woken = 0
        slots.join(self)

    @property
    def wants(self) -> bool:
        return self.backlog > 0

    def wake(self) -> None:
        self.woken += 1

    def claim(self) -> int:
        """Take as much as there is and may be taken."""
        count = min(self.slots.room(self), self.backlog)
        self.taken += count
        self.backlog -= count
        if count:
            self.slots.took(self)
        return count

    def finish(self, count: int = 1) -> None:
        self.taken -= count
        self.slots.freed(self)


def deal(shared: Shared, **own: int) -> dict[str, FakeLane]:
    """A lane for each queue."""
    dealt = SharedSlots(shared)
    return {queue: FakeLane(dealt.add(queue, slots)) for queue, slots in own.items()}


@pytest.mark.covers("RT-091")
def test_a_queues_own_slots_are_no_others_and_shared_ones_are_everybodys() -> None:
    lanes = deal(Shared(slots=4), mail=8, rest=2)
    lanes["mail"].backlog = 100
    assert lanes["mail"].claim() == 12, "its own and all that are shared"
    lanes["rest"].backlog = 100
    assert lanes["rest"].claim() == 2, "its own, which nobody else could take"
    lanes["mail"].finish()
    assert lanes["rest"].woken == 1
    assert (lanes["rest"].claim(), lanes["mail"].claim()) == (1, 0)


@pytest.mark.covers("RT-091")
def test_by_weight_each_queue_gets_its_part_and_gives_nothing_away_that_others_want() -> None:
    lanes = deal(Shared(slots=12, weights={"mail": 3}), mail=0, rest=0, idle=5)
    for name in ("mail", "rest"):
        lanes[name].backlog = 1_000
    while lanes["mail"].claim() or lanes["rest"].claim():
        pass
    assert (lanes["mail"].taken, lanes["rest"].taken) == (9, 3)
    for _ in range(20):
        # Who frees a slot gets it back while the parts are even: nothing goes to and fro.
        for name, other in (("mail", "rest"), ("rest", "mail")):
            lanes[name].finish()
            assert lanes[other].claim() == 0
            assert lanes[name].claim() == 1
    lanes["mail"].backlog = 0
    lanes["mail"].finish(9)
    assert lanes["rest"].claim() == 9, "what nobody else wants"


@pytest.mark.covers("RT-091")
def test_in_strict_order_the_first_queue_with_work_gets_every_shared_slot() -> None:
    lanes = deal(Shared(slots=2, order="strict"), first=0, second=0, third=1)
    for lane in lanes.values():
        lane.backlog = 10
    assert lanes["third"].claim() == 1, "its own"
    assert lanes["second"].claim() == 0
    assert lanes["first"].claim() == 2
    lanes["first"].finish()
    assert (lanes["second"].claim(), lanes["first"].claim()) == (0, 1)
    lanes["first"].backlog = 0
    lanes["first"].finish(2)
    assert (lanes["third"].claim(), lanes["second"].claim()) == (0, 2)


def test_a_single_shared_slot_goes_round() -> None:
    lanes = deal(Shared(slots=1), a=0, b=0, c=0)
    for lane in lanes.values():
        lane.backlog = 100
    ran: list[str] = []
    for _ in range(30):
        ran += [name for name, lane in lanes.items() if lane.claim()]
        lanes[ran[-1]].finish()
    assert {name: ran.count(name) for name in lanes} == {"a": 10, "b": 10, "c": 10}


@pytest.mark.covers("RT-091")
@given(
    shared=st.builds(
        Shared,
        slots=st.integers(0, 5),
        weights=st.dictionaries(st.sampled_from("abc"), st.integers(1, 4)),
    )
    | st.builds(Shared, slots=st.integers(0, 5), order=st.just("strict")),
    own=st.fixed_dictionaries({name: st.integers(0, 3) for name in "abc"}),
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 6)), max_size=40),
)
def test_no_slot_is_taken_twice_and_none_lies_idle_while_somebody_wants_it(
    shared: Shared, own: dict[str, int], steps: list[tuple[str, int]]
) -> None:
    lanes = deal(shared, **own)
    for name, change in steps:
        lane = lanes[name]
        if change > 0:
            lane.backlog += change
        else:
            lane.finish(min(lane.taken, -change))
        while sum(each.claim() for each in lanes.values()):
            pass
        used = {each: max(lanes[each].taken - own[each], 0) for each in lanes}
        assert sum(used.values()) <= shared.slots
        for each, other in lanes.items():
            if other.backlog:
                assert other.taken >= own[each]
                assert sum(used.values()) == shared.slots


@pytest.mark.covers("RT-091")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", Slots(queues={})),
        ("mail", Slots(queues={"mail": None})),
        ("mail=8, default=2", Slots(queues={"mail": 8, "default": 2})),
        ("mail=8,default,*=4", Slots(queues={"mail": 8, "default": None}, shared=Shared(slots=4))),
        ("a=0:3,b=2,*=4", Slots(queues={"a": 0, "b": 2}, shared=Shared(slots=4, weights={"a": 3}))),
        ("a=1,b=2,*=4:strict", Slots(queues={"a": 1, "b": 2}, shared=Shared(slots=4, order="strict"))),
        ("*=4:weighted,a:2", Slots(queues={"a": None}, shared=Shared(slots=4, weights={"a": 2}))),
    ],
)
def test_slots_are_written_in_one_line(text: str, expected: Slots) -> None:
    assert parse_slots(text) == expected
    assert list(parse_slots(text).queues) == list(expected.queues)
    said = Settings.from_environ({"DOCKWORK_QUEUES": text, "DOCKWORK_NAMESPACE": "n"})
    assert (said.queues, said.shared) == (expected.queues, expected.shared)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a=1,a=2", "each once"),
        ("a=x", "each once"),
        ("a=-1", "each once"),
        ("a=1:x,*=2", "each once"),
        ("*=1,*=2", "each once"),
        ("*", "each once"),
        ("*=2:fair", "each once"),
        ("a=1:2", "weights only beside shared slots"),
        ("a=1:0,*=2", r"weights\.a 1 to 1000"),
        ("a=1:2,*=2:strict", "none where the order is strict"),
        ("*=1001,a=1", "0 to 1000 slots"),
        ("a/b=1", "A-Z a-z 0-9"),
    ],
)
def test_a_line_that_says_no_slots_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidValue, match=f"^QUEUES: expected .*{reason}"):
        parse_slots(text, "QUEUES")


def test_a_queue_without_a_slot_of_its_own_needs_shared_ones() -> None:
    with pytest.raises(InvalidValue, match="DOCKWORK_QUEUES: expected 1 to 1000 slots a queue, or 0 where"):
        Settings(queues={"mail": 0})
