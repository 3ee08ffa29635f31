"""huey on Redis."""

from __future__ import annotations

import time
from datetime import datetime

import kit
from huey import RedisHuey

huey = RedisHuey("bench", url=kit.URL, results=False, utc=True)


@huey.task(name="noop")
def noop(n: int, body: str) -> None:
    kit.receipt(n)


@huey.task(name="hold")
def hold(n: int) -> None:
    kit.receipt(n)
    time.sleep(kit.HOLD_S)


def put_at(n: int, at: float) -> None:
    noop.schedule((n, kit.BODY), eta=datetime.fromtimestamp(at))  # naive and local is what it takes


if __name__ == "__main__":
    import huey_peer  # the registry names a task by its module, which must be the worker's

    kit.main_sync(lambda n: huey_peer.noop(n, kit.BODY), huey_peer.put_at, lambda: huey_peer.hold(kit.HELD))
