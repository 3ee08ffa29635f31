"""Partitions of a queue: which one a job belongs to, and each one's share of the limits."""

from __future__ import annotations

import re
from zlib import crc32

from dockwork.core.keys import MAX_PARTITIONS, QueueName
from dockwork.errors import InvalidValue, require


def check_partitions(count: object) -> int:
    """`count` itself, if a queue may have so many partitions."""
    fits = isinstance(count, int) and not isinstance(count, bool) and 1 <= count <= MAX_PARTITIONS
    require(fits, "partitions", expected=f"1 to {MAX_PARTITIONS}", got=count)
    assert isinstance(count, int)
    return count


def partition_names(queue: QueueName, count: int) -> tuple[QueueName, ...]:
    """The queue as the store knows it: itself, or one name per partition."""
    if count == 1:
        return (queue,)
    return tuple(QueueName(queue.namespace, queue.queue, number) for number in range(count))


def partition_of(key: str, count: int) -> int:
    """The partition that everything with `key` goes to. The same in every process and release."""
    return crc32(key.encode("utf-8", "surrogatepass")) % count


def share_of(limit: int, number: int, count: int) -> int:
    """Partition `number`'s part of `limit`: the parts of all add up to it."""
    return limit // count + (number < limit % count)


def check_share(field: str, limit: int | None, count: int) -> None:
    """Refuse a limit of which a partition would get nothing. Raises InvalidValue."""
    if limit is not None and limit < count:
        raise InvalidValue(field, expected=f"at least {count}, one for each partition", got=limit)


# --- where a reader of events has come to, in every partition ----------------------------------------------

_ENTRY = r"[0-9]+-[0-9]+"
#: The id of an entry, then after a slash where each partition has been read to.
CURSOR = re.compile(rf"{_ENTRY}/{_ENTRY}(\.{_ENTRY})*\Z")


def cursors_of(since: str, count: int) -> list[str]:
    """Where to read each partition from: a cursor's own places, else `since` for all. Raises InvalidValue."""
    _, slash, places = since.partition("/")
    if not slash:
        return [since] * count
    found = places.split(".")
    expected = f"an id that a queue of {count} partitions gave"
    require(len(found) == count, "since", expected=expected, got=since)
    return found


def cursor(entry: str, places: list[str]) -> str:
    """The id of an event in a queue with partitions, to resume from."""
    return f"{entry}/{'.'.join(places)}"


def entry_order(entry: str) -> tuple[int, int]:
    """Sorts ids of entries by time."""
    ms, _, number = entry.partition("/")[0].partition("-")
    return int(ms), int(number or 0)
