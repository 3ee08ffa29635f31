"""The one queue of object names: every trigger puts a key here, and nothing else starts a reconcile."""

from __future__ import annotations

import asyncio

from dockwork_operator.kube.resources import ObjectKey


class Wakes:
    """A set of keys to reconcile, served in order, urgent ones first.

    A key that is put again while it waits waits once. A key that is put while it is being worked on is worked on
    once more after that: never twice at a time.
    """

    def __init__(self) -> None:
        self._urgent: dict[ObjectKey, None] = {}
        self._waiting: dict[ObjectKey, None] = {}
        self._busy: set[ObjectKey] = set()
        self._again: dict[ObjectKey, bool] = {}
        self._timers: dict[ObjectKey, asyncio.TimerHandle] = {}
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._waiting)

    @property
    def busy(self) -> int:
        return len(self._busy)

    def put(self, key: ObjectKey, *, urgent: bool = False) -> None:
        """Reconcile `key` soon; `urgent` goes before what waits (keys with waiting work)."""
        if key in self._busy:
            self._again[key] = self._again.get(key, False) or urgent
        elif urgent:
            self._waiting.pop(key, None)
            self._urgent[key] = None
        elif key not in self._urgent:
            self._waiting[key] = None
        self._filled.set()

    def put_later(self, key: ObjectKey, seconds: float) -> None:
        """Reconcile `key` after `seconds`, unless it is due earlier already."""
        loop = asyncio.get_running_loop()
        due = loop.time() + max(seconds, 0.0)
        known = self._timers.get(key)
        if known is not None:
            if known.when() <= due:
                return
            known.cancel()
        self._timers[key] = loop.call_at(due, self._ring, key)

    def forget(self, key: ObjectKey) -> None:
        """Drop what is booked for a later time: the object is gone."""
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    async def take(self) -> ObjectKey:
        """The next key, marked as being worked on until `done`."""
        while not self._urgent and not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        source = self._urgent or self._waiting
        key = next(iter(source))
        del source[key]
        self._busy.add(key)
        return key

    def done(self, key: ObjectKey) -> None:
        self._busy.discard(key)
        if key in self._again:
            self.put(key, urgent=self._again.pop(key))

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _ring(self, key: ObjectKey) -> None:
        self._timers.pop(key, None)
        self.put(key)
