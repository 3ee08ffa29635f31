"""What a worker does while nothing runs: as little as it may."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from dockwork.core.keys import QueueName
from dockwork.worker import health
from dockwork.worker.lag import LagWatch
from dockwork.worker.probes import ProbeServer
from dockwork.worker.supervisor import Supervisor
from dockwork.worker.upkeep import Kept, Upkeep
from dockwork.worker.waiter import Waiter

NAME = QueueName("shop", "mail")


class Upkept:
    """A store with one thing of each kind to do; answers when told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer = asyncio.Event()
        self.left = {"promote": 1, "expire": 1, "trim": 1}

    def __getattr__(self, verb: str) -> Any:
        async def ask(queue: QueueName) -> Any:
            self.asked.append(verb)
            await self.answer.wait()
            if verb in self.left:
                left, self.left[verb] = self.left[verb], 0
                return left
            return {"refill": [], "tick": [], "reap": (1, 0)}[verb]

        return ask


@pytest.mark.covers("RT-098", "FM-61")
async def test_a_pass_of_upkeep_asks_everything_at_once() -> None:
    store = Upkept()
    lane: Any = SimpleNamespace(name=NAME, store=store)
    passing = asyncio.ensure_future(Upkeep(lane).run_once())
    for _ in range(10):
        await asyncio.sleep(0)  # noqa: TID251
    assert sorted(store.asked) == ["expire", "promote", "reap", "refill", "tick", "trim"]

    store.answer.set()

    assert await passing == Kept(promoted=1, returned=1, expired=1, trimmed=1)
    assert sorted(store.asked[6:]) == ["expire", "promote", "trim"], "until nothing is left"


@pytest.mark.covers("RT-124", "FM-61")
@pytest.mark.parametrize(("lease_s", "most"), [(15.0, 15.0), (60.0, health.ANSWER_WITHIN_S - 1)])
async def test_redis_is_asked_often_enough_for_readiness_and_not_more(lease_s: float, most: float) -> None:
    blocks: list[float] = []

    async def wait(queue: QueueName, seconds: float) -> None:
        blocks.append(seconds)

    short = asyncio.Event()
    short.set()
    lane: Any = SimpleNamespace(
        name=NAME,
        short=short,
        places=None,
        free=1,
        lease_s=lease_s,
        store=SimpleNamespace(wait=wait),
        link=SimpleNamespace(answered=lambda: None),
        passed=lambda: None,
    )
    await Waiter(lane).run_once()

    assert blocks[0] <= most
    assert blocks[0] < health.CLAIM_PASS_WITHIN_S
    # A renewal comes each third of the lease.
    assert min(blocks[0], lease_s / 3) < health.ANSWER_WITHIN_S


@pytest.mark.covers("FM-61")
async def test_the_loop_of_a_worker_with_nothing_to_run_is_looked_at_less() -> None:
    watched: Any = SimpleNamespace(shortest_lease_s=lambda: 15.0, is_idle=lambda: False)
    supervisor = Supervisor(watched, LagWatch(asyncio.get_running_loop(), threading.get_ident()), None)
    assert supervisor.look_again_in() == 1.0

    watched.is_idle = lambda: True

    assert 3.0 <= supervisor.look_again_in() <= 15.0 * health.LAG_OF_LEASE


def test_a_look_that_is_far_off_keeps_no_end_waiting() -> None:
    server = ProbeServer("127.0.0.1:0", {})
    polling = threading.Thread(target=server.poll, args=(300.0,), daemon=True)
    polling.start()

    server.wake()
    polling.join(20)

    assert not polling.is_alive()
    for _ in range(2_000):  # nobody listens any more, and that keeps nobody either
        server.wake()
    server.poll(0)
    server.close()
    server.wake()
