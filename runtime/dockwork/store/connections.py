"""Connections to Redis: a wire that carries several calls at once, and the wires of a store.

A `Wire` is one redis-py connection without a socket timeout, our packed commands, one reader task and a queue of
futures. Only the reader reads, so a cancelled caller costs the connection nothing: its place in the queue stays.
A watchdog closes a wire whose oldest answer is late. Nothing is ever sent twice: an answer that got lost raises
OutcomeUnknown, except NOSCRIPT, which says that the call did not run.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import redis.exceptions as redis_errors

from dockwork.errors import AccessDenied, DockworkError, InvalidUrl, OutcomeUnknown, StoreUnavailable
from dockwork.store.calls import Arg, Call
from dockwork.store.connectors import Connector, RedisConnection
from dockwork.store.receiving import Receiver, find_reader
from dockwork.store.refusals import (
    LOST,
    check_mode,
    connect_error,
    counts_as_disconnect,
    redirection,
    reply_error,
)
from dockwork.store.scripts import Script, called_scripts, script
from dockwork.store.sending import NotRun
from dockwork.store.topology import Topology

R = TypeVar("R")

#: Back-off between attempts to connect. A refused login waits the longest; a server that is away is asked at
#: least each 2 s, so that work resumes within 2 s of its answer.
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
LONGEST_PAUSE_AWAY_S = 2.0

#: Calls under way on one wire before another wire is opened.
CALLS_PER_WIRE = 64

#: A timer's grain: it may ring a little early.
TICK_S = 0.01

#: redis-py counts these as lost connections; they are answers.
ANSWERS = (redis_errors.BusyLoadingError, redis_errors.AuthenticationError)

#: A script that is gone is loaded again this often for one call, should somebody flush them all the time.
LOADS_AT_MOST = 20


def next_pause(failures: int, longest_s: float, spread: float) -> float:
    """Seconds to wait after `failures` failed attempts, >= 1: full jitter (Brooker 2015) from 50 ms up.

    spread     in [0, 1), drawn by the caller
    """
    ceiling = min(longest_s, FIRST_PAUSE_S * 2.0 ** min(failures, 16))
    return FIRST_PAUSE_S + spread * max(0.0, ceiling - FIRST_PAUSE_S)


# --- packing -----------------------------------------------------------------------------------------------

_ASKING = b"*1\r\n$6\r\nASKING\r\n"
_heads: dict[tuple[str, str, bool], tuple[int, bytes]] = {}


def pack(args: Sequence[Arg]) -> bytes:
    """A command in the Redis protocol."""
    parts = [b"*%d\r\n" % len(args)]
    _pack_into(parts, args)
    return b"".join(parts)


#: What stands before an argument of that many bytes. A format for each took 2.5 times as long (measured).
_SIZES = tuple(b"$%d\r\n" % size for size in range(128))


def _pack_into(parts: list[bytes], args: Sequence[Arg]) -> None:
    numbers: dict[int, bytes] = {}  # epochs and times: the jobs of one call share most
    for arg in args:
        if isinstance(arg, int):
            packed = numbers.get(arg)
            if packed is None:
                text = b"%d" % arg
                packed = numbers[arg] = b"%b%b\r\n" % (_SIZES[len(text)], text)
            parts.append(packed)
            continue
        text = arg if isinstance(arg, bytes) else arg.encode()
        size = len(text)
        parts += (_SIZES[size] if size < 128 else b"$%d\r\n" % size, text, b"\r\n")


def pack_call(call: Call[Any], *, every_key: bool = False) -> bytes:
    """The EVALSHA of `call`; the part before the arguments is the same for a script and queue, so it is kept.

    every_key    name all its keys and not the first alone, as a Cluster needs it (see `scripts`)
    """
    cached = _heads.get((call.script, call.keys.prefix, every_key))
    if cached is None:
        keys = call.key_values if every_key else [call.keys.meta]
        parts: list[bytes] = []
        _pack_into(parts, ["EVALSHA", script(call.script).sha, len(keys), *keys])
        if len(_heads) > 10_000:
            _heads.clear()
        cached = _heads[call.script, call.keys.prefix, every_key] = 3 + len(keys), b"".join(parts)
    size, head = cached
    parts = [b"*%d\r\n" % (size + len(call.args) + call.packed_args), head]
    _pack_into(parts, call.args)
    parts.append(call.packed)
    return b"".join(parts)


# --- a wire ------------------------------------------------------------------------------------------------


class _Waiting:
    """One answer that is still to come."""

    __slots__ = ("deadline", "future")

    def __init__(self, future: asyncio.Future[Any], deadline: float) -> None:
        self.future = future
        self.deadline = deadline


class Asks(Protocol):
    """What calls are sent by: a `Wire`, or on a Cluster what finds the wire of each key's node.

    run_id, version    of the server
    """

    @property
    def run_id(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    async def command(self, *args: Arg, timeout_s: float | None = None) -> Any: ...
    async def ask(self, *args: Arg, timeout_s: float | None = None) -> Any: ...
    async def call(self, call: Call[Any]) -> Any: ...


class Wire:
    """One connection, logged in, with this process' scripts loaded; carries any number of calls in order.

    run_id, version    of the server, as it said at connect
    """

    def __init__(self, connection: RedisConnection, connector: Connector) -> None:
        self._connection = connection
        self.connector = connector
        self._timeout_s = connector.settings.command_timeout.total_seconds()
        self._waiting: deque[_Waiting] = deque()
        self._reader: asyncio.Task[None] | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.alive = False
        self.run_id = ""
        self.version = ""
        self._every_key = False
        self.on_lost: Callable[[], None] = lambda: None

    @classmethod
    async def connect(cls, connector: Connector, *, scripts: bool = True) -> Wire:
        """A wire that answers. Raises StoreUnavailable, AccessDenied, InvalidUrl."""
        connector = await connector.located()
        connection = connector.asynchronous()
        address = connector.where()
        wire = cls(connection, connector)
        try:
            # A server that accepts and stays silent: the login has no other limit, as reads have none.
            async with asyncio.timeout(connector.settings.connect_timeout.total_seconds()):
                await connection.connect()
            wire._start()
            await wire._greet(scripts)
        except BaseException as error:
            await wire.close()
            if isinstance(error, StoreUnavailable | AccessDenied | InvalidUrl):
                raise
            if isinstance(error, OutcomeUnknown):
                raise StoreUnavailable(f"{address} closed the connection while it was set up") from error
            if isinstance(error, redis_errors.RedisError | OSError | ssl.SSLError):
                raise connect_error(error, connector) from error
            raise
        return wire

    def _start(self) -> None:
        self.alive = True
        make_reader = find_reader()
        if make_reader is not None:
            Receiver(self._connection, make_reader, self._take, self._lose)
            return
        self._reader = self._loop.create_task(self._read(), name="dockwork-redis-reader")

    async def _greet(self, scripts: bool) -> None:
        info = parse_info(await self.command("INFO", "server"))
        if self.connector.settings.mode == "sentinel":
            info |= parse_info(await self.command("INFO", "replication"))
        check_mode(info, self.connector)
        self._every_key = info.get("redis_mode") == "cluster"
        if isinstance(self.connector.directory, Topology):
            slots = await self.command("CLUSTER", "SLOTS")
            self.connector.directory.learn(slots, self.connector.address().host)
        self.run_id, self.version = info.get("run_id", ""), info.get("redis_version", "")
        if scripts:
            # Those that calls on it will need without delay; any other at its first call. `get`, so that a server
            # that still reads its file, or a login that may run no script, is found out here.
            await self._load(called_scripts() or [script("get")])
        else:
            await self.command("PING")

    async def _load(self, scripts: Sequence[Script]) -> None:
        known = await self.command("SCRIPT", "EXISTS", *[one.sha for one in scripts])
        missing = [one for one, there in zip(scripts, known, strict=True) if not there]
        if missing:
            await asyncio.gather(*[self.command("SCRIPT", "LOAD", one.text) for one in missing])

    @property
    def under_way(self) -> int:
        return len(self._waiting)

    # Sending

    def send(self, packed: bytes, timeout_s: float | None = None, *, answers: int = 1) -> asyncio.Future[Any]:
        """Write `packed` now; the future has the raw answer (the last of `answers`) or the server's error.

        Raises     StoreUnavailable if the wire is closed: then nothing was sent
        """
        writer = self._connection._writer
        if not self.alive or writer is None:
            raise StoreUnavailable("the connection to Redis is closed")
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        if answers > 1:
            passed_over = self._loop.create_future()
            passed_over.cancel()
            self._waiting += [_Waiting(passed_over, deadline)] * (answers - 1)
        future = self._loop.create_future()
        self._waiting.append(_Waiting(future, deadline))
        if self._watchdog is None:
            self._watchdog = self._loop.call_at(deadline + TICK_S, self._watch)
        writer.write(packed)
        return future

    async def command(self, *args: Arg, timeout_s: float | None = None) -> Any:
        """Send one plain command. Raises StoreUnavailable, OutcomeUnknown, AccessDenied, ScriptFailed."""
        return await self._answer(str(args[0]), self.send(pack(args), timeout_s))

    async def ask(self, *args: Arg, timeout_s: float | None = None) -> Any:
        """Send a command that changes nothing: a lost answer is StoreUnavailable, for nothing is unknown then."""
        try:
            return await self.command(*args, timeout_s=timeout_s)
        except OutcomeUnknown as error:
            raise StoreUnavailable(f"{args[0]!s}: {error}") from error

    async def call(self, call: Call[Any], *, asking: bool = False) -> Any:
        """Run a script: the decoded answer. A script the server forgot is loaded, and only this call sent again.

        asking    a slot is on its way to this node, and another one sent the call here
        """
        packed = pack_call(call, every_key=self._every_key)
        if asking:
            packed = _ASKING + packed
        answers = 1 + asking
        for turn in range(LOADS_AT_MOST):
            try:
                reply = await self.send(packed, answers=answers)
                return call.read(reply)
            except redis_errors.NoScriptError:
                # It did not run. Calls written after it may have: none may rely on the order.
                await self._load([script(call.script)])
                if turn == 1:  # somebody flushes them at this moment: from now on in one go with the call
                    packed = pack(["SCRIPT", "LOAD", script(call.script).text]) + packed
                    answers += 1
            except redis_errors.RedisError as error:
                raise self.refusal(call.script, error) from error
            except OutcomeUnknown as error:
                if call.reads:
                    raise StoreUnavailable(f"{call.script}: {error}") from error
                raise
        raise StoreUnavailable(f"{call.script}: Redis forgets its scripts as soon as they are loaded")

    def begin(self, call: Call[R]) -> Sent[R] | None:
        """Write `call` now, for whoever reads its answer without a task; None if the wire is closed."""
        try:
            return Sent(self, call, self.send(pack_call(call, every_key=self._every_key)))
        except StoreUnavailable:
            return None

    async def _answer(self, name: str, future: asyncio.Future[Any]) -> Any:
        try:
            return await future
        except redis_errors.RedisError as error:
            raise self.refusal(name, error) from error

    def refusal(self, name: str, error: redis_errors.RedisError) -> DockworkError:
        """What an error reply to `name` means; one that leaves the wire of no use closes it."""
        redirected = redirection(name, error, self.connector)
        if redirected is not None:
            return redirected
        meaning = reply_error(name, error) or StoreUnavailable(str(error))
        if counts_as_disconnect(meaning) and not isinstance(error, redis_errors.NoPermissionError):
            self._lose(None)
        return meaning

    # Reading

    def _take(self, reply: Any) -> None:
        """Hand `reply` to whoever waits for it."""
        if not self.alive:
            return
        is_error = isinstance(reply, redis_errors.RedisError)
        if not self._waiting:
            self._lose(ConnectionError("Redis answered what nobody asked"))
        elif is_error and isinstance(reply, redis_errors.ConnectionError) and not isinstance(reply, ANSWERS):
            self._lose(reply)
        else:
            future = self._waiting.popleft().future
            if future.done():
                return
            if is_error:
                future.set_exception(reply)
            else:
                future.set_result(reply)

    async def _read(self) -> None:
        """Take what comes by asyncio's stream, where there is no hiredis."""
        read = self._connection.read_response
        try:
            while True:
                try:
                    reply = await read(disable_decoding=True, disconnect_on_error=False)
                except (redis_errors.ResponseError, *ANSWERS) as answer:
                    reply = answer
                self._take(reply)
        except LOST as lost:
            self._lose(lost)

    def _watch(self) -> None:
        """One timer per wire, and none while nothing is asked: an idle process sleeps."""
        self._watchdog = None
        if not self._waiting:
            return
        deadline = self._waiting[0].deadline
        if deadline <= self._loop.time():
            self._lose(TimeoutError("no answer in time"))
        else:
            self._watchdog = self._loop.call_at(deadline + TICK_S, self._watch)

    def _lose(self, error: BaseException | None) -> None:
        """Close at once; whoever still waits learns that the outcome is unknown."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if not self.alive:
            return
        self.alive = False
        self._connection._close()
        if self._reader is not None:
            self._reader.cancel()
        while self._waiting:
            future = self._waiting.popleft().future
            if not future.done():
                unknown = OutcomeUnknown(f"the reply was lost: {error or 'the connection was closed'}")
                unknown.__cause__ = error
                future.set_exception(unknown)
                # A caller that went away does not look; that is no "exception was never retrieved".
                future.exception()
        self.on_lost()

    def abandon(self) -> None:
        """Close it without waiting: it is of no use any more."""
        self._lose(None)

    async def close(self) -> None:
        """Close the connection; calls under way raise OutcomeUnknown."""
        writer = self._connection._writer
        self._lose(None)
        if self._reader is not None:
            await asyncio.gather(self._reader, return_exceptions=True)
        await self._connection.disconnect(nowait=True)
        if writer is not None:
            with suppress(OSError):
                await writer.wait_closed()


@dataclass(slots=True)
class Sent(Generic[R]):
    """A call that is under way, and where its raw answer arrives."""

    wire: Wire
    call: Call[R]
    future: asyncio.Future[Any]

    def read(self) -> R:
        """The answer that has arrived, decoded. Raises NotRun, and what `Wire.call` raises."""
        try:
            return self.call.read(self.future.result())
        except redis_errors.NoScriptError as error:
            raise NotRun from error
        except redis_errors.RedisError as error:
            raise self.wire.refusal(self.call.script, error) from error


def parse_info(text: bytes) -> dict[str, str]:
    """An INFO reply as a mapping."""
    lines = (
        line.partition(":")
        for line in text.decode("utf-8", "replace").splitlines()
        if line[:1] not in ("", "#")
    )
    return {name: value for name, _, value in lines}


# --- pools -------------------------------------------------------------------------------------------------


class Pace:
    """When to try again to connect: shared by all connections of a store, so that one success wakes the rest."""

    def __init__(self, dice: Callable[[], float] = random.random) -> None:
        self._dice = dice
        self._failures = 0
        self._not_before = 0.0
        self._answered = asyncio.Event()

    async def wait(self) -> None:
        """Sleep until the next attempt is due, or another connection came through."""
        pause = self._not_before - asyncio.get_running_loop().time()
        if pause > 0:
            self._answered.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._answered.wait()
            except TimeoutError:
                pass

    def failed(self, error: Exception) -> None:
        self._failures += 1
        longest = LONGEST_PAUSE_AWAY_S if isinstance(error, StoreUnavailable) else LONGEST_PAUSE_S
        pause = next_pause(self._failures, longest, self._dice())
        self._not_before = asyncio.get_running_loop().time() + pause

    def succeeded(self) -> None:
        self._failures = 0
        self._not_before = 0.0
        self._answered.set()


async def too_late(wire: Wire) -> StoreUnavailable:
    """Close a wire that came up after its store was closed, which nobody would close; what to raise then."""
    await wire.close()
    return StoreUnavailable("the store was closed while it connected")


class Commands:
    """The command wires of a store: one as long as it suffices, at most `pool_size`."""

    def __init__(self, connector: Connector, pace: Pace) -> None:
        self._connector = connector
        self._pace = pace
        self._wires: list[Wire] = []
        self._opening = asyncio.Lock()
        self._failed: tuple[int, StoreUnavailable | AccessDenied | None] = (0, None)
        self._closed = False

    def idle(self) -> Wire | None:
        """A wire with room that is open already."""
        for wire in self._wires:
            if wire.alive and wire.under_way < CALLS_PER_WIRE:
                return wire
        return None

    async def wire(self) -> Wire:
        """A wire with room. Raises StoreUnavailable, AccessDenied; an attempt waits for its turn in the back-off."""
        return self.idle() or await self._open_or_wait()

    async def _open_or_wait(self) -> Wire:
        settings = self._connector.settings
        loop = asyncio.get_running_loop()
        give_up = loop.time() + settings.pool_timeout.total_seconds()
        attempts, _ = self._failed
        while True:
            async with self._opening:
                if self._failed[0] != attempts and self._failed[1] is not None:
                    # Somebody tried while this caller waited for its turn: one attempt answers all.
                    raise self._failed[1]
                self._wires = [wire for wire in self._wires if wire.alive]
                if (wire := self.idle()) is not None:
                    return wire
                if len(self._wires) < settings.pool_size:
                    return await self._open()
            if loop.time() >= give_up:
                raise StoreUnavailable("no connection became free in time", "timeout")
            # Answers come in by themselves; a short look is cheaper than waking everyone at each.
            await asyncio.sleep(0.005)

    async def _open(self) -> Wire:
        await self._pace.wait()
        try:
            wire = await Wire.connect(self._connector)
        except (StoreUnavailable, AccessDenied) as error:
            self._pace.failed(error)
            self._failed = self._failed[0] + 1, error
            raise
        self._pace.succeeded()
        if self._closed:
            raise await too_late(wire)
        self._wires.append(wire)
        return wire

    async def close(self) -> None:
        self._closed = True
        wires, self._wires = self._wires, []
        for wire in wires:
            await wire.close()
