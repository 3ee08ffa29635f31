"""Connections to Redis: the URL, the login, and a wire that carries several calls at once.

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

import redis.exceptions as redis_errors
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.connection import Connection as SyncConnection
from redis.connection import SSLConnection as SyncSSLConnection
from redis.connection import UnixDomainSocketConnection as SyncUnixConnection

from dockwork.errors import (
    AccessDenied,
    DockworkError,
    InvalidUrl,
    OutcomeUnknown,
    ScriptFailed,
    StoreUnavailable,
)
from dockwork.settings import RedisSettings
from dockwork.store.calls import Arg, Call
from dockwork.store.scripts import Script, all_scripts, script
from dockwork.store.sentinel import Place, Sentinels
from dockwork.store.topology import Topology

#: A connection of redis-py, asyncio's or the blocking kind. Half of their methods carry no types.
RedisConnection: TypeAlias = Any

LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError, EOFError)

#: Back-off between attempts to connect. A refused login waits the longest; a server that is away is asked at
#: least each 2 s, so that work resumes within 2 s of its answer.
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 5.0
LONGEST_PAUSE_AWAY_S = 2.0

#: Calls under way on one wire before another wire is opened.
CALLS_PER_WIRE = 64

#: A timer's grain: it may ring a little early.
TICK_S = 0.01

#: A script that is gone is loaded again this often for one call, should somebody flush them all the time.
LOADS_AT_MOST = 20


# --- the address -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """Where a Redis is and who logs in. The password is in no repr."""

    host: str = "localhost"
    port: int = 6379
    path: str | None = None
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.db}"


def parse_urls(url: str, mode: str = "standalone") -> list[Address]:
    """The addresses in a URL that may name several servers with commas, as Sentinel and Cluster do.

    Raises    InvalidUrl, also for what the mode cannot use; it never quotes the URL
    """
    if mode == "standalone":
        return [parse_url(url)]
    scheme, separator, rest = url.partition("://")
    if scheme == "unix":
        raise InvalidUrl(f"Redis URL: expected redis:// or rediss://, as REDIS_MODE is {mode}")
    netloc, slash, path = rest.partition("/")
    login, at, hosts = netloc.rpartition("@")
    usual = 26379 if mode == "sentinel" else 6379
    found = [
        parse_url(f"{scheme}{separator}{login}{at}{host}{slash}{path}", usual) for host in hosts.split(",")
    ]
    if mode == "cluster" and found[0].db:
        raise InvalidUrl("Redis URL: expected no database but 0, as REDIS_MODE is cluster")
    return found


def parse_url(url: str, usual_port: int = 6379) -> Address:
    """The address in ``redis://[user:pw@]host[:port][/db]``, ``rediss://`` or ``unix:///path[?db=n]``.

    User and password are percent-decoded, ``+`` stays a plus. A user is an ACL user; a password alone is the
    default user's. Raises InvalidUrl that says what is wrong and never quotes the URL.
    """
    try:
        parts = urlsplit(url)
        scheme = parts.scheme
        if scheme == "unix":
            return _unix_address(parts.netloc, parts.path, parts.query, parts.fragment)
        if scheme not in ("redis", "rediss"):
            raise InvalidUrl("Redis URL: expected redis://, rediss:// or unix://")
        if parts.query or parts.fragment or "?" in url or "#" in url:
            raise InvalidUrl(
                "Redis URL: a query or fragment is not taken; encode ? and # in a password as %3F, %23"
            )
        if "," in parts.netloc.rpartition("@")[2]:
            raise InvalidUrl("Redis URL: expected one server, as REDIS_MODE is standalone")
        host, port = parts.hostname, parts.port
    except InvalidUrl:
        raise
    except ValueError:
        # What the standard library says would quote a part of the URL.
        raise InvalidUrl("Redis URL: host or port cannot be read") from None
    if not host:
        raise InvalidUrl("Redis URL: no host")
    if port == 0:
        raise InvalidUrl("Redis URL: expected a port from 1 to 65535")
    return Address(
        host=host,
        port=port or usual_port,
        db=_database(parts.path.removeprefix("/")),
        username=_login(parts.username) or None,
        password=_login(parts.password),
        tls=scheme == "rediss",
    )


def _unix_address(netloc: str, path: str, query: str, fragment: str) -> Address:
    if fragment or not path.startswith("/"):
        raise InvalidUrl("Redis URL: expected unix:///path or unix:///path?db=n")
    username: str | None = None
    password: str | None = None
    if netloc:
        if not netloc.endswith("@"):
            raise InvalidUrl("Redis URL: expected unix:///path, three slashes and no host")
        name, colon, secret = netloc[:-1].partition(":")
        username, password = _login(name) or None, _login(secret) if colon else None
    db = 0
    if query:
        name, _, value = query.partition("=")
        if name != "db" or "&" in value:
            raise InvalidUrl("Redis URL: of a query only db=n is taken, on unix:// alone")
        db = _database(value)
    return Address(path=unquote(path), db=db, username=username, password=password)


def _login(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidUrl("Redis URL: user or password is not UTF-8 once decoded") from None


def _database(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 5):
        raise InvalidUrl("Redis URL: expected a database number")
    return int(text)


def next_pause(failures: int, longest_s: float, spread: float) -> float:
    """Seconds to wait after `failures` failed attempts, >= 1: full jitter (Brooker 2015) from 50 ms up.

    spread     in [0, 1), drawn by the caller
    """
    ceiling = min(longest_s, FIRST_PAUSE_S * 2.0 ** min(failures, 16))
    return FIRST_PAUSE_S + spread * max(0.0, ceiling - FIRST_PAUSE_S)


@dataclass(frozen=True)
class Connector:
    """Makes connections by one set of settings; a URL file is read again for each.

    at           the server to connect to instead of the one that the settings name: a primary, a Cluster's node
    directory    who finds that server, with Sentinel or Cluster; what it learnt is shared by all copies
    """

    settings: RedisSettings
    client_name: str = "dockwork"
    at: Place | None = None
    directory: Sentinels | Topology | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.directory is None and self.settings.mode != "standalone":
            name = self.settings.sentinel_master
            directory = Topology() if name is None else Sentinels(name)
            object.__setattr__(self, "directory", directory)

    @classmethod
    def of(cls, redis: RedisSettings | str | None, *, ca_file: str | None, client_name: str) -> Connector:
        """By settings, by a URL, or by the defaults; `ca_file` beats the settings'."""
        settings = RedisSettings(url=redis) if isinstance(redis, str) else redis or RedisSettings()
        if ca_file is not None:
            settings = replace(settings, ca_file=ca_file)
        return cls(settings, client_name)

    def __str__(self) -> str:
        return "by a URL file" if self.settings.url_file is not None else self._named()

    def _named(self) -> str:
        match self.directory:
            case Sentinels(name=name) if self.at is None:
                return f"{name} by {' '.join(str(address) for address in self.addresses())}"
            case Topology() if self.at is None:
                return f"cluster of {' '.join(str(address) for address in self.addresses())}"
        return str(self.address())

    def where(self) -> str:
        """The address as messages of a failed attempt name it, and whether it is only the default."""
        settings = self.settings
        unset = (settings.host, settings.port) == (RedisSettings.host, RedisSettings.port)
        unset = unset and settings.url is None and settings.url_file is None
        return f"{self._named()}{' (DOCKWORK_REDIS_URL is not set)' if unset else ''}"

    def check(self) -> None:
        """Refuse settings that can never connect, before anything is tried. Raises InvalidUrl."""
        if self.settings.url_file is None:
            self.addresses()

    def address(self) -> Address:
        """The server to connect to: `at`, or the first that the settings name."""
        first = self.addresses()[0]
        return first if self.at is None else replace(first, host=self.at[0], port=self.at[1])

    def addresses(self) -> list[Address]:
        """Every server that the settings name."""
        settings = self.settings
        if settings.url_file is not None:
            try:
                text = Path(settings.url_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise StoreUnavailable(
                    f"the Redis URL file cannot be read: {type(error).__name__}"
                ) from error
            return self._parse(text)
        if settings.url is not None:
            return self._parse(settings.url)
        return [Address(host=settings.host, port=settings.port, password=settings.password)]

    def _parse(self, url: str) -> list[Address]:
        """`parse_urls`, whose error names the variable that holds the URL."""
        try:
            return parse_urls(url, self.settings.mode)
        except InvalidUrl as error:
            if not self.settings.source:
                raise
            reason = str(error).removeprefix("Redis URL: ")
            raise InvalidUrl(f"{self.settings.source}: {reason}") from None

    # Finding the server

    async def located(self) -> Connector:
        """This one with `at` set, where the server has to be found first. Raises StoreUnavailable."""
        if self.at is not None or self.directory is None:
            return self
        if isinstance(self.directory, Topology):
            return self.at_any()
        named, make = self._asking_sentinels(Connection, SSLConnection)
        wait_s = self.settings.connect_timeout.total_seconds()
        return replace(self, at=await self.directory.find(named, make, wait_s))

    def located_blocking(self) -> Connector:
        """`located`, for a thread."""
        if self.at is not None or self.directory is None:
            return self
        if isinstance(self.directory, Topology):
            return self.at_any()
        named, make = self._asking_sentinels(SyncConnection, SyncSSLConnection)
        wait_s = self.settings.connect_timeout.total_seconds()
        return replace(self, at=self.directory.find_blocking(named, make, wait_s))

    def for_key(self, key: str) -> Connector:
        """The same, to the node that serves `key` where there is a Cluster."""
        if not isinstance(self.directory, Topology):
            return self
        return self.at_node(self.directory.node_of(key))

    def at_node(self, place: Place | None) -> Connector:
        """The same to one node of a Cluster; None = any."""
        return self.at_any() if place is None else replace(self, at=place)

    def at_any(self) -> Connector:
        """The same to any node of a Cluster, each in its turn."""
        assert isinstance(self.directory, Topology)
        return replace(self, at=self.directory.any_of(self._places()))

    def _places(self) -> list[Place]:
        return [(address.host, address.port) for address in self.addresses()]

    def _asking_sentinels(self, plain: Any, tls: Any) -> tuple[list[Place], Callable[[Place, bool], Any]]:
        settings = self.settings
        servers = self.addresses()[0]

        def make(place: Place, with_login: bool) -> RedisConnection:
            login = (settings.sentinel_user, settings.sentinel_password)
            if settings.sentinel_password is None:
                login = (servers.username, servers.password) if with_login else (None, None)
            common = self._common(replace(servers, db=0, username=login[0], password=login[1]))
            host, port = place
            return (
                tls(host=host, port=port, **self._tls(), **common)
                if servers.tls
                else plain(host=host, port=port, **common)
            )

        return self._places(), make

    # Making connections

    def asynchronous(self) -> RedisConnection:
        """A connection that is not connected yet, without a timeout on reads."""
        return self._make(Connection, SSLConnection, UnixDomainSocketConnection)

    def synchronous(self) -> RedisConnection:
        """The same for blocking calls."""
        return self._make(SyncConnection, SyncSSLConnection, SyncUnixConnection)

    def _make(self, plain: Any, tls: Any, unix: Any) -> RedisConnection:
        address = self.address()
        common = self._common(address)
        if address.path is not None:
            return unix(path=address.path, **common)
        if address.tls:
            return tls(host=address.host, port=address.port, **self._tls(), **common)
        return plain(host=address.host, port=address.port, **common)

    def _common(self, address: Address) -> dict[str, Any]:
        # No socket timeout: redis-py's own would cut a blocking read at 5 s, and sends inside wait_for, which
        # on Python 3.11 can swallow a cancellation. The default Retry of a bare connection tries once.
        return {
            "db": address.db,
            "username": address.username,
            "password": address.password,
            "socket_timeout": None,
            "socket_connect_timeout": self.settings.connect_timeout.total_seconds(),
            "client_name": self.client_name,
            "driver_info": None,
            "protocol": 2,
        }

    def _tls(self) -> dict[str, Any]:
        verify = self.settings.tls_verify
        return {
            "ssl_ca_certs": self.settings.ca_file,
            "ssl_cert_reqs": "required" if verify else "none",
            "ssl_check_hostname": verify,
            "ssl_min_version": ssl.TLSVersion.TLSv1_2,
        }


# --- errors ------------------------------------------------------------------------------------------------


def connect_error(error: BaseException, address: str) -> DockworkError:
    """What a failed attempt to connect means, in our words; the server's text is kept where it holds no secret."""
    # redis-py wraps what goes wrong on a unix socket once more.
    chain = _causes(error)
    for cause in chain:
        if isinstance(cause, redis_errors.AuthenticationError | redis_errors.NoPermissionError):
            return AccessDenied(f"{address} refused the login: {type(cause).__name__}")
        if isinstance(cause, redis_errors.BusyLoadingError):
            return StoreUnavailable(f"{address} is loading its data", "loading")
        if isinstance(cause, ssl.SSLError):
            return StoreUnavailable(f"{address}: the TLS handshake failed: {_last_line(cause)}", "tls")
    if isinstance(error, redis_errors.TimeoutError | TimeoutError):
        return StoreUnavailable(f"{address} did not answer in time", "timeout")
    return reply_error("connect", error) or StoreUnavailable(
        f"{address} cannot be reached: {_last_line(error)}"
    )


def _causes(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _last_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[-1][:200]


_NOT_RUN = {
    redis_errors.BusyLoadingError: "loading",
    redis_errors.ReadOnlyError: "read_only",
    redis_errors.MasterDownError: "read_only",
    redis_errors.ClusterDownError: "connect",
}


def reply_error(name: str, error: BaseException) -> DockworkError | None:
    """What an error reply means: AccessDenied, StoreUnavailable (not run, as good as disconnected), ScriptFailed.

    name      of the script or command
    Returns   None for what is no reply of the server
    """
    text = str(error)
    for kind, why in _NOT_RUN.items():
        if isinstance(error, kind):
            return StoreUnavailable(f"{name}: Redis answered {kind.__name__}: {text[:200]}", why)
    if isinstance(error, redis_errors.AuthenticationError):
        return AccessDenied(f"{name}: Redis wants a login: {type(error).__name__}")
    if (
        isinstance(error, redis_errors.NoPermissionError)
        or "NOPERM" in text
        or "can't run this command" in text
    ):
        return AccessDenied(f"{name}: the login may not do this: {text[:200]}")
    if isinstance(error, redis_errors.ConnectionError) or not isinstance(error, redis_errors.RedisError):
        return None
    if text.startswith(("UNBLOCKED ", "NOREPLICAS ")):
        # The primary became a replica, or has lost its own: nothing was done here.
        return StoreUnavailable(f"{name}: {text[:200]}", "read_only")
    if isinstance(error, redis_errors.OutOfMemoryError) or "OOM command not allowed" in text:
        return ScriptFailed(name, "Redis is full (maxmemory) and refused it whole; nothing was stored")
    if "READONLY" in text:
        return StoreUnavailable(f"{name}: this Redis is a read-only replica", "read_only")
    if text.startswith("BUSY ") or text.startswith("MISCONF"):
        return StoreUnavailable(f"{name}: {text[:200]}", "connect")
    return ScriptFailed(name, text[:300])


def counts_as_disconnect(error: BaseException) -> bool:
    """Whether a wire with this answer is no use any more (RT-126)."""
    return isinstance(error, StoreUnavailable | AccessDenied) and not isinstance(error, Redirected)


class Redirected(StoreUnavailable):
    """Another node of the Cluster serves this key, or none can at the moment. The call did not run.

    to        the node to ask; None: ask again in a moment
    asking    it serves this one call only, while the slot moves there
    """

    def __init__(self, message: str, to: Place | None, *, asking: bool = False) -> None:
        self.to = to
        self.asking = asking
        super().__init__(message)


def redirection(name: str, error: BaseException, connector: Connector) -> Redirected | None:
    """What MOVED, ASK and TRYAGAIN say; a MOVED is noted in the connector's map at once."""
    if isinstance(error, redis_errors.TryAgainError):
        return Redirected(f"{name}: the slot is being moved", None)
    if not isinstance(error, redis_errors.AskError) or not isinstance(connector.directory, Topology):
        return None
    here = connector.address()
    place = (str(error.host) or here.host, int(error.port) or here.port)
    asking = not isinstance(error, redis_errors.MovedError)
    if not asking:
        connector.directory.move(int(error.slot_id), place)
    return Redirected(f"{name}: the slot is at another node", place, asking=asking)


def check_mode(info: Mapping[str, str], connector: Connector) -> None:
    """Refuse a server of another kind than the settings say, by its INFO. Raises InvalidUrl, StoreUnavailable."""
    found = info.get("redis_mode") or info.get("server_mode") or "standalone"
    wanted = "cluster" if connector.settings.mode == "cluster" else "standalone"
    if found != wanted:
        says = f"REDIS_MODE is {connector.settings.mode}"
        raise InvalidUrl(f"{connector.address()} is a server of the kind {found}, and {says}")
    if connector.settings.mode == "sentinel" and info.get("role", "master") != "master":
        # Sentinels name the old primary for a moment after a failover.
        raise StoreUnavailable(f"{connector.address()} is a replica", "read_only")


# --- packing -----------------------------------------------------------------------------------------------

_ASKING = b"*1\r\n$6\r\nASKING\r\n"
_heads: dict[tuple[str, str], tuple[int, bytes]] = {}


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


def pack_call(call: Call[Any]) -> bytes:
    """The EVALSHA of `call`; the part before the arguments is the same for a script and queue, so it is kept."""
    cached = _heads.get((call.script, call.keys.prefix))
    if cached is None:
        keys = call.key_values
        parts: list[bytes] = []
        _pack_into(parts, ["EVALSHA", script(call.script).sha, len(keys), *keys])
        if len(_heads) > 10_000:
            _heads.clear()
        cached = _heads[call.script, call.keys.prefix] = 3 + len(keys), b"".join(parts)
    size, head = cached
    parts = [b"*%d\r\n" % (size + len(call.args)), head]
    _pack_into(parts, call.args)
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
    """One connection, logged in, with the scripts loaded; carries any number of calls in order.

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
                raise connect_error(error, address) from error
            raise
        return wire

    def _start(self) -> None:
        self.alive = True
        self._reader = self._loop.create_task(self._read(), name="dockwork-redis-reader")

    async def _greet(self, scripts: bool) -> None:
        info = parse_info(await self.command("INFO", "server"))
        if self.connector.settings.mode == "sentinel":
            info |= parse_info(await self.command("INFO", "replication"))
        check_mode(info, self.connector)
        if isinstance(self.connector.directory, Topology):
            slots = await self.command("CLUSTER", "SLOTS")
            self.connector.directory.learn(slots, self.connector.address().host)
        self.run_id, self.version = info.get("run_id", ""), info.get("redis_version", "")
        if scripts:
            await self._load(all_scripts())
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

    def send(
        self, packed: bytes, timeout_s: float | None = None, *, answers: int = 1
    ) -> asyncio.Future[Any]:
        """Write `packed` now; the future has the raw answer (the last of `answers`) or the server's error.

        Raises     StoreUnavailable if the wire is closed: then nothing was sent
        """
        writer = self._connection._writer
        if not self.alive or writer is None:
            raise StoreUnavailable("the connection to Redis is closed")
        deadline = self._loop.time() + (self._timeout_s if timeout_s is None else timeout_s)
        for _ in range(answers - 1):
            passed_over = self._loop.create_future()
            passed_over.cancel()
            self._waiting.append(_Waiting(passed_over, deadline))
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
        packed = pack_call(call)
        for _ in range(LOADS_AT_MOST):
            try:
                reply = await self.send(_ASKING + packed if asking else packed, answers=1 + asking)
                return call.read(reply)
            except redis_errors.NoScriptError:
                # It did not run. Calls written after it may have: none may rely on the order.
                await self._load([script(call.script)])
            except redis_errors.RedisError as error:
                raise self.refusal(call.script, error) from error
            except OutcomeUnknown as error:
                if call.reads:
                    raise StoreUnavailable(f"{call.script}: {error}") from error
                raise
        raise StoreUnavailable(f"{call.script}: Redis forgets its scripts as soon as they are loaded")

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

    async def _read(self) -> None:
        read = self._connection.read_response
        waiting = self._waiting
        error: BaseException | None = None
        try:
            while True:
                failed: redis_errors.RedisError | None = None
                reply: Any = None
                try:
                    reply = await read(disable_decoding=True, disconnect_on_error=False)
                except redis_errors.ResponseError as answer:
                    failed = answer
                except (redis_errors.BusyLoadingError, redis_errors.AuthenticationError) as answer:
                    # redis-py counts these as lost connections; they are answers.
                    failed = answer
                future = waiting.popleft().future
                if future.done():
                    continue
                if failed is not None:
                    future.set_exception(failed)
                else:
                    future.set_result(reply)
        except LOST as lost:
            error = lost
        except IndexError:
            error = ConnectionError("Redis answered what nobody asked")
        self._lose(error)

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


class Commands:
    """The command wires of a store: one as long as it suffices, at most `pool_size`."""

    def __init__(self, connector: Connector, pace: Pace) -> None:
        self._connector = connector
        self._pace = pace
        self._wires: list[Wire] = []
        self._opening = asyncio.Lock()
        self._failed: tuple[int, StoreUnavailable | AccessDenied | None] = (0, None)

    def idle(self) -> Wire | None:
        """A wire with room that is open already."""
        return next((wire for wire in self._wires if wire.alive and wire.under_way < CALLS_PER_WIRE), None)

    async def wire(self) -> Wire:
        """A wire with room. Raises StoreUnavailable, AccessDenied; an attempt waits for its turn in the back-off."""
        for wire in self._wires:
            if wire.alive and wire.under_way < CALLS_PER_WIRE:
                return wire
        return await self._open_or_wait()

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
                for wire in self._wires:
                    if wire.under_way < CALLS_PER_WIRE:
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
        self._wires.append(wire)
        return wire

    async def close(self) -> None:
        wires, self._wires = self._wires, []
        for wire in wires:
            await wire.close()
