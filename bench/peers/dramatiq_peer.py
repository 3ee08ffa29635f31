"""dramatiq on Redis."""

from __future__ import annotations

import time

import dramatiq
import kit
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=kit.URL))


@dramatiq.actor
def noop(n: int, body: str) -> None:
    kit.receipt(n)


@dramatiq.actor
def hold(n: int) -> None:
    kit.receipt(n)
    time.sleep(kit.HOLD_S)


def put_at(n: int, at: float) -> None:
    noop.send_with_options(args=(n, kit.BODY), delay=max(0, round((at - time.time()) * 1000)))


if __name__ == "__main__":
    kit.main_sync(lambda n: noop.send(n, kit.BODY), put_at, lambda: hold.send(kit.HELD))
