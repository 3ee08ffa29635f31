"""How a worker's slots are dealt out: some to each queue alone, others to whichever queue has work. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from dockwork.core.keys import QueueName
from dockwork.errors import InvalidValue, require

#: Who gets a shared slot that several queues want: by weight, or the queue that is named first.
Order = Literal["weighted", "strict"]

#: What stands for the shared slots where queues are listed: no queue can be called so.
SHARED = "*"

_PART = re.compile(r"(?P<name>[^=:]+)(=(?P<slots>[0-9]{1,4}))?(:(?P<rule>[a-z]+|[0-9]{1,4}))?")


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The slots that a worker's queues share.

    slots      besides those that each queue has for itself, 0 to 1000
    order      "weighted": each slot goes to the queue that has fewest of them for its weight; "strict": to the
               queue that is named first
    weights    queue -> 1 to 1000; 1 where nothing is said
    """

    slots: int = 0
    order: Order = "weighted"
    weights: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        slots: object = self.slots
        fits = isinstance(slots, int) and not isinstance(slots, bool) and 0 <= slots <= 1000
        require(fits, "shared", expected="0 to 1000 slots", got=slots)
        require(self.order in ("weighted", "strict"), "order", expected="weighted or strict", got=self.order)
        for queue, weight in self.weights.items():
            heavy = isinstance(weight, int) and not isinstance(weight, bool) and 1 <= weight <= 1000
            require(heavy, f"weights.{queue}", expected="1 to 1000", got=weight)
        strict_or_none = self.order == "weighted" or not self.weights
        require(strict_or_none, "weights", expected="none where the order is strict", got=dict(self.weights))

    def weight_of(self, queue: str) -> int:
        return self.weights.get(queue, 1)


@dataclass(frozen=True, kw_only=True)
class Slots:
    """What a text such as ``mail=8:3,default=2,*=4`` says.

    queues    queue -> its own slots, or None for a share of what is left of all slots; in order
    """

    queues: Mapping[str, int | None]
    shared: Shared = Shared()


def parse_slots(text: str, name: str = "queues") -> Slots:
    """``mail=8:3,default=2:1,*=4``: queues with slots of their own and weights, and the slots that they share.

    ``*=4:strict`` gives a shared slot to the first of the queues that has work.
    Raises    InvalidValue naming `name`
    """

    def refuse() -> NoReturn:
        expected = "queues such as mail=8,default=2, each once, and perhaps *=4 for slots that they share"
        raise InvalidValue(name, expected=expected, got=text)

    queues: dict[str, int | None] = {}
    weights: dict[str, int] = {}
    shared: tuple[int, Order] | None = None
    for part in filter(None, (each.strip() for each in text.split(","))):
        found = _PART.fullmatch(part)
        if found is None:
            refuse()
        queue, slots, rule = found["name"], found["slots"], found["rule"]
        if queue == SHARED:
            if shared is not None or slots is None or rule not in (None, "weighted", "strict"):
                refuse()
            shared = int(slots), "strict" if rule == "strict" else "weighted"
            continue
        if queue in queues or (rule is not None and not rule.isdecimal()):
            refuse()
        try:
            queues[QueueName("default", queue).queue] = None if slots is None else int(slots)
        except InvalidValue as error:
            raise InvalidValue(name, expected=error.expected, got=queue) from None
        if rule is not None:
            weights[queue] = int(rule)
    count, order = shared or (0, "weighted")
    if weights and not count:
        raise InvalidValue(name, expected="weights only beside shared slots, such as *=4", got=text)
    try:
        return Slots(queues=queues, shared=Shared(slots=count, order=order, weights=weights))
    except InvalidValue as error:
        raise InvalidValue(name, expected=f"{error.field} {error.expected}", got=text) from None
