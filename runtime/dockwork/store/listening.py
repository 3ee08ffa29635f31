"""Long reads: the event stream of a queue, and the word that a cold queue has work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import redis.exceptions as redis_errors

from dockwork.core.keys import WAKE_CHANNEL_PREFIX, QueueKeys, QueueName
from dockwork.errors import AccessDenied, InvalidValue, OutcomeUnknown, StoreUnavailable
from dockwork.store.connections import Pace, Wire, too_late
from dockwork.store.connectors import Connector
from dockwork.store.event_calls import FIRST_EVENT, check_since, read_message
from dockwork.store.protocol import Event
from dockwork.store.refusals import LOST, connect_error
from dockwork.store.views import read_event

#: A blocking read that is this much later than its end is a dead connection (RT-127).
LATE_S = 5.0
#: A silent subscription is asked for a sign of life so often, and given up after twice that.
PING_S = 10.0
#: Entries in one read of the stream.
EVENTS_AT_ONCE = 1000


class EventReads:
    """Blocking connections for `events`: one per reader at a time, kept for the next."""

    def __init__(self, connector: Connector, pace: Pace) -> None:
        self._connector = connector
        self._pace = pace
        self._idle: list[Wire] = []
        self._busy: set[Wire] = set()
        self._closed = False

    async def read(self, keys: QueueKeys, since: str, block_s: float) -> list[Event]:
        """Entries after `since` (an entry's id, ``0``, or ``$`` for what comes from now on)."""
        since = check_since(since)
        wire = await self._take(self._connector.for_key(keys.events))
        self._busy.add(wire)
        try:
            found = await self._read(wire, keys, since, block_s)
        except OutcomeUnknown as error:
            # Reading changes nothing, so nothing is unknown.
            await wire.close()
            raise StoreUnavailable(f"events: {error}") from error
        except BaseException:
            # A read that was cancelled may still be answered; its connection is no use to the next reader.
            await wire.close()
            raise
        finally:
            self._busy.discard(wire)
        self._idle.append(wire)
        return found

    async def _read(self, wire: Wire, keys: QueueKeys, since: str, block_s: float) -> list[Event]:
        queue = keys.name.queue
        if since == "$":
            return [read_event(entry, queue) for entry in await self._wait(wire, keys, since, block_s)]
        found = await self._after(wire, keys, since)
        if not found and block_s > 0 and await self._wait(wire, keys, since, block_s):
            # Not what the wait brought: only this look tells whether something was trimmed before it.
            found = await self._after(wire, keys, since)
        return found

    async def _wait(self, wire: Wire, keys: QueueKeys, since: str, block_s: float) -> list[Any]:
        block: list[str | int] = ["BLOCK", max(1, int(block_s * 1000))] if block_s > 0 else []
        reply = await wire.command(
            "XREAD",
            "COUNT",
            EVENTS_AT_ONCE,
            *block,
            "STREAMS",
            keys.events,
            since,
            timeout_s=block_s + LATE_S,
        )
        return [] if reply is None else list(reply[0][1])

    async def _after(self, wire: Wire, keys: QueueKeys, since: str) -> list[Event]:
        """Entries after `since`. That one is asked for too: where it is gone, so may be what followed it."""
        entries = await wire.command("XRANGE", keys.events, since, "+", "COUNT", EVENTS_AT_ONCE + 1)
        gap_from = "" if since == FIRST_EVENT else since
        if entries and entries[0][0].decode() == since:
            del entries[0]
            gap_from = ""
        queue = keys.name.queue
        return [
            read_event(entry, queue, gap_from if at == 0 else "")
            for at, entry in enumerate(entries[:EVENTS_AT_ONCE])
        ]

    async def _take(self, connector: Connector) -> Wire:
        for wire in [one for one in self._idle if one.connector.at == connector.at or connector.at is None]:
            self._idle.remove(wire)
            if wire.alive:
                return wire
            await wire.close()
        wire = await open_paced(connector, self._pace)
        if self._closed:
            raise await too_late(wire)
        return wire

    async def close(self) -> None:
        self._closed = True
        for wire in [*self._idle, *self._busy]:
            await wire.close()
        self._idle.clear()


async def open_paced(connector: Connector, pace: Pace) -> Wire:
    """A blocking wire, in its turn of the back-off. Raises StoreUnavailable, AccessDenied."""
    await pace.wait()
    try:
        wire = await Wire.connect(connector, scripts=False)
    except (StoreUnavailable, AccessDenied) as error:
        pace.failed(error)
        raise
    pace.succeeded()
    return wire


async def listen(connector: Connector, pace: Pace) -> AsyncIterator[QueueName]:
    """Queues that said so when their first claimable job came; connects again for ever.

    What is published while no connection is there is lost: whoever needs certainty looks by itself now and then.
    """
    while True:
        await pace.wait()
        try:
            async for queue in _subscription(connector, pace):
                yield queue
        except (StoreUnavailable, AccessDenied) as error:
            pace.failed(error)


async def _subscription(connector: Connector, pace: Pace) -> AsyncIterator[QueueName]:
    async for message in _messages(connector, pace, "PSUBSCRIBE", f"{WAKE_CHANNEL_PREFIX}*"):
        queue = _queue_of(message)
        if queue is not None:
            yield queue


async def listen_events(connector: Connector, pace: Pace, keys: QueueKeys) -> AsyncIterator[Event | None]:
    """What a queue publishes; None each time that it is listened to (again). Raises AccessDenied."""
    while True:
        await pace.wait()
        try:
            async for message in _messages(connector, pace, "SUBSCRIBE", keys.events):
                if message[0] == b"subscribe":
                    yield None
                elif message[0] == b"message":
                    yield read_message(keys.name.queue, message[2])
        except (StoreUnavailable, AccessDenied) as error:
            pace.failed(error)
            if isinstance(error, AccessDenied):
                raise


async def first_message(connector: Connector, command: str, what: str) -> None:
    """Return once the server has confirmed a subscription. Raises AccessDenied, StoreUnavailable."""
    async with aclosing(_messages(connector, Pace(), command, what)) as messages:
        async for _ in messages:
            return


async def _messages(
    connector: Connector, pace: Pace, command: str, what: str
) -> AsyncGenerator[list[Any], None]:
    """What comes on one subscription, until it is lost: StoreUnavailable, or AccessDenied."""
    connector = await connector.located()
    connection = connector.asynchronous()
    try:
        await connection.connect()
        await connection.send_command(command, what)
        pace.succeeded()
        silent = 0
        while silent < 2:
            reading = asyncio.ensure_future(connection.read_response(disable_decoding=True))
            try:
                while not (await asyncio.wait({reading}, timeout=PING_S))[0] and silent < 2:
                    silent += 1
                    await connection.send_command("PING", check_health=False)
                if not reading.done():
                    break
                silent = 0
                message = reading.result()
            finally:
                if not reading.done():
                    reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            if isinstance(message, list):
                yield message
        raise StoreUnavailable("the subscription went silent", "timeout")
    except (redis_errors.RedisError, *LOST) as error:
        raise connect_error(error, connector) from error
    finally:
        await connection.disconnect(nowait=True)


def _queue_of(message: Any) -> QueueName | None:
    """The queue of a published message; None for the other kinds of push, and for channels that are not ours."""
    if not isinstance(message, list) or len(message) != 4 or message[0] != b"pmessage":
        return None
    try:
        return QueueName.from_tag(message[2].decode().removeprefix(WAKE_CHANNEL_PREFIX))
    except (InvalidValue, UnicodeDecodeError):
        return None
