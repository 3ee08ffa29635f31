"""What each partition of a queue has of its limits, and when a queue may change its number of partitions.

It may when none of the old ones has a job, ended ones included: no job is ever moved from one partition to another.
"""

from __future__ import annotations

from dataclasses import replace

from dockwork.core.keys import QueueName
from dockwork.core.partitions import check_share, partition_names, share_of
from dockwork.errors import InvalidValue
from dockwork.store.event_calls import STREAM_BYTES
from dockwork.store.protocol import EventOptions, QueueConfig, RateLimit, Store

#: What counts where nobody says otherwise, as the scripts have it.
MAX_DEPTH = 1_000_000
MAX_BYTES = 2 * 1024**3
KEEP = {"completed_count": 1000, "failed_count": 10_000, "bytes": 256 * 1024**2}


async def refuse_if_used(store: Store, queue: QueueName, count: int, wanted: int) -> None:
    """Raises InvalidValue if any of the `count` partitions that there are holds a job."""
    stats = [await store.stats(name) for name in partition_names(queue, count)]
    jobs = sum(sum(one.counts.values()) for one in stats)
    if jobs:
        expected = f"{count}, with which {jobs} jobs are stored (obliterate the queue first)"
        raise InvalidValue(f"partitions of queue {queue.queue}", expected=expected, got=wanted)


def check_shares(config: QueueConfig, count: int) -> None:
    """Refuse a limit of which a partition would get nothing. Raises InvalidValue naming it."""
    for name in ("max_depth", "max_bytes", "concurrency"):
        check_share(name, getattr(config, name), count)
    if config.rate is not None:
        check_share("rate", config.rate.count, count)


def share_config(config: QueueConfig, number: int, count: int) -> QueueConfig:
    """The options of partition `number`: limits of the whole queue are split so that the parts add up.

    What counts per job, or per concurrency key (which has one partition), stays whole. A count of kept jobs that is
    smaller than the partitions keeps one in each. Raises InvalidValue for a limit of which one would get nothing.
    """
    check_shares(config, count)
    keep = {
        name: limit if limit <= 0 or name.endswith("_ms") else max(1, share_of(limit, number, count))
        for name, limit in {**KEEP, **config.keep}.items()
    }
    rate = config.rate
    if rate is not None:
        rate = RateLimit(share_of(rate.count, number, count), rate.per_ms)
    whole = config.concurrency
    return replace(
        config,
        max_depth=share_of(MAX_DEPTH if config.max_depth is None else config.max_depth, number, count),
        max_bytes=share_of(MAX_BYTES if config.max_bytes is None else config.max_bytes, number, count),
        rate=rate,
        concurrency=None if whole is None else share_of(whole, number, count),
        keep=keep,
    )


def share_events(options: EventOptions, number: int, count: int) -> EventOptions:
    """Where the events of partition `number` go, and its part of what they may weigh."""
    size = STREAM_BYTES if options.max_bytes is None else options.max_bytes
    return replace(options, max_bytes=share_of(size, number, count))
