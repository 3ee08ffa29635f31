"""A sorted set in memory: members in the order of their scores, as Redis keeps one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable


class Index:
    """Members with whole-number scores; equal scores go by member."""

    def __init__(self) -> None:
        self._scores: dict[str, int] = {}
        self._order: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, member: str) -> bool:
        return member in self._scores

    def add(self, member: str, score: int) -> None:
        """Put `member` at `score`, wherever it was."""
        self.remove(member)
        self._scores[member] = score
        insort(self._order, (score, member))

    def remove(self, member: str) -> bool:
        """Take `member` out. Answers whether it was there."""
        score = self._scores.pop(member, None)
        if score is None:
            return False
        del self._order[bisect_left(self._order, (score, member))]
        return True

    def remove_all(self, members: Iterable[str]) -> None:
        for member in members:
            self.remove(member)

    def pop_first(self) -> tuple[int, str]:
        """Take the member with the lowest score out. Raises IndexError if there is none."""
        score, member = self._order.pop(0)
        del self._scores[member]
        return score, member

    def first(self) -> int | None:
        """The lowest score."""
        return self._order[0][0] if self._order else None

    def page(self, offset: int, limit: int) -> list[str]:
        """Members by rank, lowest first."""
        return [member for _, member in self._order[offset : offset + limit]]

    def newest(self, offset: int, limit: int) -> list[str]:
        """Members by rank, highest first."""
        return [member for _, member in self._order[::-1][offset : offset + limit]]

    def last(self) -> str | None:
        """The member with the highest score."""
        return self._order[-1][1] if self._order else None

    def between(self, low: int | None, high: int | None, limit: int) -> list[str]:
        """Members with scores from `low` to `high`, both included; None is no limit."""
        first, end = self._span(low, high)
        return [member for _, member in self._order[first : min(end, first + limit)]]

    def count(self, low: int | None, high: int | None) -> int:
        """How many `between` would find."""
        first, end = self._span(low, high)
        return max(end - first, 0)

    def _span(self, low: int | None, high: int | None) -> tuple[int, int]:
        first = 0 if low is None else bisect_left(self._order, (low, ""))
        end = len(self._order) if high is None else bisect_left(self._order, (high + 1, ""))
        return first, end
