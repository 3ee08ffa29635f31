"""RQ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import kit
from redis import Redis
from rq import Queue

queue = Queue("bench", connection=Redis.from_url(kit.URL))


def noop(n: int, body: str) -> None:
    kit.receipt(n)


def hold(n: int) -> None:
    kit.receipt(n)
    time.sleep(kit.HOLD_S)


def put_at(n: int, at: float) -> None:
    queue.enqueue_at(datetime.fromtimestamp(at, UTC), "rq_peer.noop", n, kit.BODY, result_ttl=0)


def put_many(numbers: Sequence[int]) -> None:
    queue.enqueue_many(
        [Queue.prepare_data("rq_peer.noop", args=(n, kit.BODY), result_ttl=0) for n in numbers]
    )


if __name__ == "__main__":
    kit.main_sync(
        lambda n: queue.enqueue("rq_peer.noop", n, kit.BODY, result_ttl=0),
        put_at,
        lambda: queue.enqueue("rq_peer.hold", kit.HELD),
        put_many=put_many,
    )
