"""Slots that several lanes share: the partitions of a queue.

A lane may take all while no other wants any. Where several want, each has an equal share, and claims again for what it
frees itself; where there are fewer slots than lanes they take turns. (Handing each freed slot to whoever holds least
made 2,747 calls for 2,000 jobs of four partitions on 8 slots; shares make 1,160.)
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Protocol


class Sharing(Protocol):
    """What is seen of a lane."""

    @property
    def taken(self) -> int:
        """Slots that its handlers and its claims under way have."""
        ...

    @property
    def stuck(self) -> Sized:
        """Runs of it that ignore their hard timeout."""
        ...

    @property
    def wants(self) -> bool:
        """There may be work for it, and it may claim."""
        ...

    def wake(self) -> None:
        """Look again for a free slot."""
        ...


class Places:
    """`total` slots for the lanes that join."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._lanes: list[Sharing] = []
        self._served: dict[int, int] = {}
        self._turn = 0

    def join(self, lane: Sharing) -> None:
        self._lanes.append(lane)
        self._turn += 1
        self._served[id(lane)] = self._turn

    @property
    def free(self) -> int:
        return max(self.total - sum(lane.taken for lane in self._lanes), 0)

    @property
    def stuck(self) -> int:
        """Slots of all lanes whose runs ignore their hard timeout."""
        return sum(len(lane.stuck) for lane in self._lanes)

    def room(self, lane: Sharing) -> int:
        """How many slots `lane` may take now."""
        free = self.free
        others = [one for one in self._lanes if one is not lane and one.wants]
        if not free or not others:
            return free
        share = self.total // sum(1 for one in self._lanes if one.wants or one.taken)
        if not share:
            # Fewer slots than lanes: one each, in turns.
            return int(self._rank(lane) < min(map(self._rank, others)))
        if lane.taken < share:
            return min(free, share - lane.taken)
        return 0 if any(one.taken < share for one in others) else 1

    def took(self, lane: Sharing) -> None:
        """`lane` claims: the next turn is another's."""
        self._turn += 1
        self._served[id(lane)] = self._turn
        self.freed(lane)

    def freed(self, lane: Sharing) -> None:
        """A slot of `lane` is free, or not asked for any more: the others look."""
        for one in self._lanes:
            if one is not lane and one.wants:
                one.wake()

    def _rank(self, lane: Sharing) -> tuple[int, int]:
        return lane.taken, self._served[id(lane)]
