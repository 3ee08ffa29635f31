"""A worker's slots where queues share some: each queue has its own, the others go to whoever wants them.

A queue's own slots are never another's. A shared slot that is free goes to the queues that want more than their own:
one after the other to the queue that then has fewest for its weight, or in strict order to the one that is named
first. So a queue gets back what it frees while the shares are even, and none starves by weight.
"""

from __future__ import annotations

from dockwork.core.slots import Shared
from dockwork.worker.places import Places, Sharing


class SharedSlots:
    """The shared slots of one worker, and the queues that may take them, in their order."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._queues: list[QueueSlots] = []
        self._turn = 0

    def next_turn(self) -> int:
        self._turn += 1
        return self._turn

    def add(self, queue: str, own: int) -> QueueSlots:
        """The slots of one more queue: `own` for itself."""
        slots = QueueSlots(own, self.shared.weight_of(queue), self)
        self._queues.append(slots)
        return slots

    @property
    def free(self) -> int:
        return max(self.shared.slots - sum(each.used for each in self._queues), 0)

    def room(self, queue: QueueSlots) -> int:
        """How many shared slots `queue` may take now."""
        free = self.free
        others = [each for each in self._queues if each is not queue and each.wants_shared]
        if not free or not others:
            return free
        if self.shared.order == "strict":
            first = min(self._queues.index(each) for each in others)
            return free if self._queues.index(queue) < first else 0
        return self._deal(queue, others, free)

    def freed(self, queue: QueueSlots) -> None:
        """A shared slot may be free: the others look."""
        for each in self._queues:
            if each is not queue:
                each.wake()

    def _deal(self, queue: QueueSlots, others: list[QueueSlots], free: int) -> int:
        """What `queue` has of `free` slots when they are dealt out one by one."""
        used = {each: each.used for each in (queue, *others)}
        before = used[queue]
        for _ in range(free):
            # Among equals the one whose turn was longest ago, so that even a single slot goes round.
            least = min(used, key=lambda each: ((used[each] + 1) / each.weight, each.served))
            used[least] += 1
        return used[queue] - before


class QueueSlots(Places):
    """The slots of one queue, for its lane or the lanes of its partitions."""

    def __init__(self, own: int, weight: int, shared: SharedSlots) -> None:
        super().__init__(own)
        self.own = own
        self.weight = weight
        self.served = 0  #: the turn in which it last took a shared slot
        self._shared = shared

    @property
    def taken(self) -> int:
        return sum(lane.taken for lane in self._lanes)

    @property
    def used(self) -> int:
        """Shared slots that it has."""
        return max(self.taken - self.own, 0)

    @property
    def wants_shared(self) -> bool:
        return self.taken >= self.own and any(lane.wants for lane in self._lanes)

    def room(self, lane: Sharing) -> int:
        taken = self.taken
        self.total = max(taken, self.own) + self._shared.room(self)
        return super().room(lane)

    def took(self, lane: Sharing) -> None:
        if self.used:
            self.served = self._shared.next_turn()
        super().took(lane)

    def freed(self, lane: Sharing) -> None:
        super().freed(lane)
        self._shared.freed(self)

    def wake(self) -> None:
        """Let the lanes that want one look for a slot."""
        for lane in self._lanes:
            if lane.wants:
                lane.wake()
