"""Answers as they come off a socket: parsed where they arrive, with neither a stream nor a task in between.

With hiredis only. Each reply was copied five times and woke a reader task before: 7,300 of a worker's 64,800
instructions a job (measured; no-op jobs of 1 KiB, 100 slots).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import redis.exceptions as redis_errors

from dockwork.store.connectors import RedisConnection

CLOSED = "Connection closed by server."


class Receiver(asyncio.Protocol):
    """Takes the place of the stream protocol under `connection`, which still learns all but the data.

    answer    called with each reply, errors as values
    lost      called when no more can come
    """

    def __init__(
        self,
        connection: RedisConnection,
        make_reader: Callable[..., Any],
        answer: Callable[[Any], None],
        lost: Callable[[BaseException], None],
    ) -> None:
        reader = make_reader(
            protocolError=redis_errors.InvalidResponse, replyError=connection._parser.parse_error
        )
        self._feed, self._gets = reader.feed, reader.gets
        self._answer, self._lost = answer, lost
        transport = connection._writer.transport
        self._below: Any = transport.get_protocol()
        transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        gets, answer = self._gets, self._answer
        try:
            self._feed(data)
            # Not False itself, for want of a whole reply: RESP2 has no booleans.
            while (reply := gets(False)) is not False:
                answer(reply)
        except Exception as error:
            self._lost(error)

    def eof_received(self) -> bool | None:
        self._lost(redis_errors.ConnectionError(CLOSED))
        self._below.eof_received()
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(error or redis_errors.ConnectionError(CLOSED))
        self._below.connection_lost(error)

    def pause_writing(self) -> None:
        self._below.pause_writing()

    def resume_writing(self) -> None:
        self._below.resume_writing()


def find_reader() -> Callable[..., Any] | None:
    """What parses replies in C, where it is installed."""
    try:
        from hiredis import Reader
    except ImportError:
        return None
    made: Callable[..., Any] = Reader
    return made
