"""Where the primary is, by its sentinels: asked at each connect, so a reconnect after a failover finds the new one.

A sentinel that knows the name is believed; whether the server really is a primary is checked when it has answered.
Sentinels that the one asked knows are remembered, so a URL may name one that is gone later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import redis.exceptions as redis_errors

from dockwork.errors import StoreUnavailable

#: Host and port.
Place: TypeAlias = tuple[str, int]

#: A sentinel that is silent for longer is passed over.
PATIENCE_S = 1.0
#: Sentinels that are remembered besides those of the URL.
MOST_REMEMBERED = 16

_LOST = (redis_errors.RedisError, OSError, EOFError, ValueError, IndexError, TypeError, KeyError)


class Sentinels:
    """The sentinels of one primary. Threads share it; what it remembers only says whom to ask first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._remembered: tuple[Place, ...] = ()

    def in_order(self, named: Sequence[Place]) -> list[Place]:
        """Whom to ask: who answered last, who is named, then who was heard of."""
        first = self._remembered[:1]
        return list(dict.fromkeys([*first, *named, *self._remembered]))

    async def find(self, named: Sequence[Place], make: Callable[[Place, bool], Any], wait_s: float) -> Place:
        """The primary. Raises StoreUnavailable if no sentinel says where it is.

        make    a connection that is not connected yet, to a sentinel, with or without the login of the servers
        """
        why: list[str] = []
        for place in self.in_order(named):
            for with_login in (False, True):
                connection = make(place, with_login)
                try:
                    async with asyncio.timeout(min(wait_s, PATIENCE_S)):
                        await connection.connect()
                        await connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
                        primary = await connection.read_response(disable_decoding=True)
                        await connection.send_command("SENTINEL", "SENTINELS", self.name)
                        others = await connection.read_response(disable_decoding=True) if primary else []
                    return self._found(place, primary, others)
                except _LOST as error:
                    if not _wants_login(error, with_login):
                        why.append(_told(place, error))
                        break
                finally:
                    await connection.disconnect()
        raise self._nobody(why)

    def find_blocking(
        self, named: Sequence[Place], make: Callable[[Place, bool], Any], wait_s: float
    ) -> Place:
        """`find`, for a thread."""
        why: list[str] = []
        for place in self.in_order(named):
            for with_login in (False, True):
                connection = make(place, with_login)
                patience = min(wait_s, PATIENCE_S)
                try:
                    connection.connect()
                    connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
                    primary = connection.read_response(disable_decoding=True, timeout=patience)
                    connection.send_command("SENTINEL", "SENTINELS", self.name)
                    others = (
                        connection.read_response(disable_decoding=True, timeout=patience) if primary else []
                    )
                    return self._found(place, primary, others)
                except _LOST as error:
                    if not _wants_login(error, with_login):
                        why.append(_told(place, error))
                        break
                finally:
                    connection.disconnect()
        raise self._nobody(why)

    def _found(self, place: Place, primary: Any, others: Sequence[Sequence[bytes]]) -> Place:
        if not primary:
            raise ValueError(f"it watches no {self.name}")
        known = [_place_of(other) for other in others]
        self._remembered = tuple(dict.fromkeys([place, *known, *self._remembered]))[:MOST_REMEMBERED]
        return primary[0].decode(), int(primary[1])

    def _nobody(self, why: Sequence[str]) -> StoreUnavailable:
        return StoreUnavailable(f"no sentinel says where {self.name} is: {'; '.join(why)}"[:500])


def _place_of(entry: Sequence[bytes]) -> Place:
    fields = dict(zip(entry[::2], entry[1::2], strict=True))
    return fields[b"ip"].decode(), int(fields[b"port"])


def _wants_login(error: BaseException, tried: bool) -> bool:
    """Whether the sentinel refused for want of a login that was not tried yet."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, redis_errors.AuthenticationError):
            return not tried
        cause = cause.__cause__ or cause.__context__
    return False


def _told(place: Place, error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return f"{place[0]}:{place[1]}: {text.splitlines()[-1][:150]}"
