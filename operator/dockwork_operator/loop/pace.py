"""When a key that failed may act again (OP-101).

What the API server refuses (403, 422) is held back by the decision itself, for that object only; here is the pace of
conflicts, of a busy or unreachable API server, and of our own errors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dockwork_operator.decide.plan import ApplyFailure, FailureKind
from dockwork_operator.kube.resources import ObjectKey

#: Conflicts in a row after which the key backs off: somebody else writes all the time.
CONFLICTS_AT_ONCE = 3
SHORTEST, LONGEST = 1.0, 60.0


@dataclass(slots=True)
class _Trouble:
    generation: int
    times: int = 0
    until: float = 0.0


class Pace:
    """Counts the failures in a row of each key and says until when it holds back.

    spread     draws a number in [0, 1) for jitter
    """

    def __init__(self, spread: Callable[[], float]) -> None:
        self._spread = spread
        self._troubles: dict[ObjectKey, _Trouble] = {}

    def may_act(self, key: ObjectKey, generation: int) -> bool:
        """Whether actions may be tried now; a new generation of the spec ends every wait."""
        trouble = self._troubles.get(key)
        if trouble is None:
            return True
        if trouble.generation != generation:
            del self._troubles[key]
            return True
        return asyncio.get_running_loop().time() >= trouble.until

    def went_well(self, key: ObjectKey) -> None:
        self._troubles.pop(key, None)

    def failed(self, key: ObjectKey, generation: int, failure: ApplyFailure | None) -> float:
        """Seconds until the next try of the actions; `failure` None is an error of our own."""
        trouble = self._troubles.setdefault(key, _Trouble(generation))
        trouble.generation = generation
        trouble.times += 1
        wait = self._wait(trouble.times, failure)
        trouble.until = asyncio.get_running_loop().time() + wait
        return wait

    def forget(self, key: ObjectKey) -> None:
        self._troubles.pop(key, None)

    def _wait(self, times: int, failure: ApplyFailure | None) -> float:
        match failure:
            case ApplyFailure(kind=FailureKind.CONFLICT) if times <= CONFLICTS_AT_ONCE:
                return 0.0
            case ApplyFailure(kind=FailureKind.REDIS | FailureKind.OWNED):
                return 0.0  # the next round tells
            case ApplyFailure(retry_after=after) if after is not None:
                return max(after.total_seconds(), self._backoff(times))
            case _:
                return self._backoff(times)

    def _backoff(self, times: int) -> float:
        """1 to 60 s, doubling; up to a half of it is drawn."""
        return float(min(LONGEST, SHORTEST * 2.0 ** (times - 1)) * (0.5 + self._spread() / 2))
