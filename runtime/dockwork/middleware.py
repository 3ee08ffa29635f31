"""What runs around each enqueue: the functions of `App.enqueue_middleware`.

A bulk call runs them around each of its items at the same time, up to the point where the item would be stored; only
when all have come so far is anything stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from dockwork.errors import InvalidValue
from dockwork.registry import Item
from dockwork.store.protocol import Admission

#: The rest of an enqueue: stores the item, or gives it to the next middleware.
EnqueueNext = Callable[[Item[Any]], Awaitable[Admission]]
#: Around each enqueue: ``await fn(item, call_next)``. What it returns is not used.
EnqueueMiddleware = Callable[[Item[Any], EnqueueNext], Awaitable[Any]]


class _Passage:
    """One item on its way through the middlewares."""

    def __init__(self) -> None:
        self.item: Item[Any] | None = None
        self.admission: Admission | None = None

    async def run(
        self, middlewares: Sequence[EnqueueMiddleware], item: Item[Any], store: EnqueueNext
    ) -> tuple[Item[Any], Admission]:
        """The item as it was stored, and its admission. Raises what a middleware raises."""

        async def innermost(item: Item[Any]) -> Admission:
            if not isinstance(item, Item):
                raise InvalidValue("call_next", expected="an item", got=type(item).__name__)
            if self.item is not None:
                raise InvalidValue("call_next", expected="one call for an item", got="a second one")
            self.item = item
            self.admission = await store(item)
            return self.admission

        following: EnqueueNext = innermost
        for middleware in reversed(middlewares):
            following = partial(_answer_of, self, middleware, following)
        await following(item)
        if self.item is None or self.admission is None:
            expected = "call_next to be called, or an exception"
            raise InvalidValue("enqueue middleware", expected=expected, got=f"neither, for a job {item.type}")
        return self.item, self.admission


async def _answer_of(
    passage: _Passage, middleware: EnqueueMiddleware, following: EnqueueNext, item: Item[Any]
) -> Any:
    """The admission, also where the middleware forgot to return it."""
    await middleware(item, following)
    return passage.admission


async def around_one(
    middlewares: Sequence[EnqueueMiddleware], item: Item[Any], store: EnqueueNext
) -> tuple[Item[Any], Admission]:
    """Store an item within the middlewares: the item as it was stored, and its admission."""
    return await _Passage().run(middlewares, item, store)


async def around_many(
    middlewares: Sequence[EnqueueMiddleware],
    items: Sequence[Item[Any]],
    store: Callable[[Sequence[Item[Any]]], Awaitable[list[Admission]]],
) -> list[Admission]:
    """Store items together, each within the middlewares: an admission per item, in order.

    An exception before the items are stored stores none of them.
    """
    loop = asyncio.get_running_loop()
    ready: list[asyncio.Future[Item[Any]]] = [loop.create_future() for _ in items]
    stored: list[asyncio.Future[Admission]] = [loop.create_future() for _ in items]

    async def pass_one(at: int) -> None:
        async def wait_for_all(item: Item[Any]) -> Admission:
            ready[at].set_result(item)
            return await stored[at]

        try:
            await _Passage().run(middlewares, items[at], wait_for_all)
        except BaseException as error:
            if ready[at].done():
                raise
            ready[at].set_exception(error)

    passing = [asyncio.ensure_future(pass_one(at)) for at in range(len(items))]
    try:
        through = await asyncio.gather(*ready)
        try:
            admissions = await store(through)
        except Exception as error:  # each middleware sees it, as it would around a single enqueue
            for reply in stored:
                reply.set_exception(error)
            await asyncio.gather(*passing, return_exceptions=True)
            raise
        for reply, admission in zip(stored, admissions, strict=True):
            reply.set_result(admission)
        await asyncio.gather(*passing)
    finally:
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
        _forget(ready)
        _forget(stored)
    return admissions


def _forget(futures: Sequence[asyncio.Future[Any]]) -> None:
    """One error reached the caller; those of other items are told to nobody."""
    for future in futures:
        if future.done() and not future.cancelled():
            future.exception()
