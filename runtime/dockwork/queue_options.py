"""What code and people say of a queue while it runs: its options, its intake; and what it did minute by minute."""

from __future__ import annotations

from dataclasses import replace

from dockwork.core.keys import QueueName
from dockwork.errors import require
from dockwork.store.partition_shares import share_config
from dockwork.store.partitioned import names_of
from dockwork.store.protocol import (
    Configured,
    MinuteFigures,
    QueueConfig,
    Store,
    Writing,
    without_codes_own,
)
from dockwork.twin import AppCalls, Bound, Twin


class ClientOptions:
    """Calls of `Client`: each on a queue by its name."""

    store: Store

    def name(self, queue: str) -> QueueName:
        raise TypeError("a client knows its namespace")

    async def _open(self) -> None:
        raise TypeError("a client opens its store")

    async def configure(self, queue: str, config: QueueConfig, *, force: bool = False) -> Configured:
        """Write `config`; see `App.configure`."""
        await self._open()
        names = await names_of(self.store, self.name(queue))
        said = [await self._configure(name, config, len(names), force) for name in names]
        return next((one for one in said if one.owner), said[0])

    async def _configure(self, name: QueueName, config: QueueConfig, count: int, force: bool) -> Configured:
        mine = config if name.partition is None else share_config(config, name.partition, count)
        found = await self.store.config(name)
        mine = replace(mine, held=found.held, closed=found.closed)
        how = Writing.FORCED if force else Writing.PLAINLY
        owner = await self.store.configure(name, mine, None, how=how)
        if owner is None:
            return Configured()
        # A Queue resource has none of these, so they are nobody else's.
        await self.store.configure(name, mine, None, how=Writing.LIMITS)
        refused = replace(without_codes_own(mine), held=False, closed=False)
        return Configured() if refused == QueueConfig() else Configured(owner=owner)

    async def set_closed(self, queue: str, *, expected: bool, wanted: bool) -> bool:
        """Close the intake by hand or open it, if it is as expected: whether it was."""
        await self._open()
        return await self.store.set_closed(self.name(queue), expected=expected, wanted=wanted)

    async def close_intake(self, queue: str) -> bool:
        """Take no new jobs. False: it was closed by hand already."""
        return await self.set_closed(queue, expected=False, wanted=True)

    async def open_intake(self, queue: str) -> bool:
        """Take new jobs again, unless a Queue resource closes it. False: no hand had closed it."""
        return await self.set_closed(queue, expected=True, wanted=False)

    async def figures(self, queue: str, minutes: int = 60) -> list[MinuteFigures]:
        """What the queue did in each of the last `minutes`, the running one last; 48 hours at most."""
        await self._open()
        return await self.store.figures(self.name(queue), minutes=minutes)


class AppOptions(AppCalls):
    """The same as methods of an app."""

    async def configure(self, queue: str, *, force: bool = False) -> Configured:
        """Write what this app's code says of a queue, as its workers do when they start. All workers heed it within
        a beat, without a restart.

        force      over the options that an operator wrote, until it writes again
        Returns    whether they were written; if not, the Queue object whose options stand. What a Queue object does
                   not have, such as rate and concurrency, is written in any case
        """
        config = self.registry.config_of(queue)
        require(config is not None, "queue", expected="one of which the code says something", got=queue)
        return await self.client.configure(queue, config or QueueConfig(), force=force)

    async def close_intake(self, queue: str) -> bool:
        """Refuse new jobs: producers get `QueueClosed`, ticks of schedules are skipped; what is there goes on.

        Returns    False if it was closed by hand already
        """
        return await self.client.close_intake(queue)

    async def open_intake(self, queue: str) -> bool:
        """Take new jobs again, unless a Queue resource closes it. False: no hand had closed it."""
        return await self.client.open_intake(queue)

    async def figures(self, queue: str, minutes: int = 60) -> list[MinuteFigures]:
        """What a queue did in each of the last `minutes`, the running one last; 48 hours at most."""
        return await self.client.figures(queue, minutes)


class _Bound(Bound, AppOptions):
    """An app's methods on one client."""


class SyncOptions(Twin):
    """The blocking twin of these."""

    def configure(self, queue: str, *, force: bool = False) -> Configured:
        return self._on(_Bound, lambda app: app.configure(queue, force=force))

    def close_intake(self, queue: str) -> bool:
        return self._on(_Bound, lambda app: app.close_intake(queue))

    def open_intake(self, queue: str) -> bool:
        return self._on(_Bound, lambda app: app.open_intake(queue))

    def figures(self, queue: str, minutes: int = 60) -> list[MinuteFigures]:
        return self._on(_Bound, lambda app: app.figures(queue, minutes))
