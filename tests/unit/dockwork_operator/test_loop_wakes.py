"""The queue of keys: coalescing, order, and never one key twice at a time."""

from __future__ import annotations

import asyncio

import pytest

from dockwork_operator.kube.resources import QUEUES, ObjectKey
from dockwork_operator.loop.wakes import Wakes


def key(name: str) -> ObjectKey:
    return ObjectKey(QUEUES, "shop", name)


async def taken(wakes: Wakes, count: int) -> list[str]:
    return [(await wakes.take()).name for _ in range(count)]


@pytest.mark.covers("OP-100")
async def test_a_key_that_is_put_often_waits_once() -> None:
    wakes = Wakes()
    for _ in range(3):
        wakes.put(key("a"))
    wakes.put(key("b"))
    assert len(wakes) == 2
    assert await taken(wakes, 2) == ["a", "b"]
    assert len(wakes) == 0


@pytest.mark.covers("OP-100")
async def test_keys_with_waiting_work_come_first() -> None:
    wakes = Wakes()
    wakes.put(key("idle"))
    wakes.put(key("later-urgent"))
    wakes.put(key("urgent"), urgent=True)
    wakes.put(key("later-urgent"), urgent=True)
    assert await taken(wakes, 3) == ["urgent", "later-urgent", "idle"]


@pytest.mark.covers("OP-100")
async def test_a_key_that_is_put_while_it_is_worked_on_comes_again_only_after_that() -> None:
    wakes = Wakes()
    wakes.put(key("a"))
    first = await wakes.take()
    wakes.put(key("a"))
    wakes.put(key("a"), urgent=True)
    assert len(wakes) == 0
    waiting = asyncio.create_task(wakes.take())
    await asyncio.wait({waiting}, timeout=0.02)
    assert not waiting.done()
    wakes.done(first)
    assert await waiting == key("a")
    wakes.done(key("a"))
    assert len(wakes) == 0


async def test_of_two_later_wakes_the_earlier_one_counts() -> None:
    wakes = Wakes()
    wakes.put_later(key("a"), 60)
    wakes.put_later(key("a"), 0.01)
    wakes.put_later(key("a"), 30)
    async with asyncio.timeout(5):
        assert await wakes.take() == key("a")
    wakes.done(key("a"))
    wakes.put_later(key("a"), 60)
    wakes.forget(key("a"))
    wakes.close()
    assert len(wakes) == 0
