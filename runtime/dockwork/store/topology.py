"""Who serves which slot of a Redis Cluster, as far as it is known.

Every connection that is made asks its node for the whole map, and each MOVED corrects one slot. Nothing is asked in
between: a map that is wrong shows itself by the next answer, and that answer says who is right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from redis.crc import key_slot

from dockwork.store.sentinel import Place

SLOTS = 16384


class Topology:
    """The map of one Cluster. Threads share it: a new map takes the old one's place as a whole."""

    def __init__(self) -> None:
        self._owners: list[Place | None] = [None] * SLOTS
        self.nodes: tuple[Place, ...] = ()

    def node_of(self, key: str) -> Place | None:
        """The primary that serves `key`; None if nobody told yet."""
        return self.owner(slot_of(key))

    def owner(self, slot: int) -> Place | None:
        return self._owners[slot]

    def learn(self, slots: Sequence[Any], asked: str) -> None:
        """Take over the answer of CLUSTER SLOTS. A node without a name of its own is where it was `asked`."""
        owners: list[Place | None] = [None] * SLOTS
        nodes: dict[Place, None] = {}
        for first, last, primary, *_replicas in slots:
            name = primary[0].decode() if primary[0] else ""
            place = (name if name not in ("", "?") else asked, int(primary[1]))
            nodes[place] = None
            owners[int(first) : int(last) + 1] = [place] * (int(last) + 1 - int(first))
        if nodes:
            self._owners, self.nodes = owners, tuple(nodes)

    def move(self, slot: int, place: Place) -> None:
        """`place` serves `slot` now."""
        self._owners[slot] = place
        if place not in self.nodes:
            self.nodes = (*self.nodes, place)

    def any_of(self, seeds: Sequence[Place]) -> Place:
        """A node to ask for anything: one of those known or named."""
        return random.choice([*self.nodes, *seeds])

    def others(self, place: Place, seeds: Sequence[Place]) -> list[Place]:
        """Whom to ask when `place` is silent: those known first, then those named."""
        return [node for node in dict.fromkeys([*self.nodes, *seeds]) if node != place]


@lru_cache(maxsize=4096)
def slot_of(key: str) -> int:
    """The slot of a key: CRC16 of what stands in its braces."""
    return key_slot(key.encode())
