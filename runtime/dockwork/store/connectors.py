"""Makes connections by one set of settings, to the server that they name or that a directory finds."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.connection import Connection as SyncConnection
from redis.connection import SSLConnection as SyncSSLConnection
from redis.connection import UnixDomainSocketConnection as SyncUnixConnection

from dockwork.errors import InvalidUrl, StoreUnavailable
from dockwork.settings import RedisSettings
from dockwork.store.addresses import Address, parse_urls
from dockwork.store.sentinel import Place, Sentinels
from dockwork.store.topology import Topology

#: A connection of redis-py, asyncio's or the blocking kind. Half of their methods carry no types.
RedisConnection: TypeAlias = Any


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
        """The address as messages of a failed attempt name it, and what gave it: a setting, or only the default."""
        settings = self.settings
        unset = (settings.host, settings.port) == (RedisSettings.host, RedisSettings.port)
        unset = unset and settings.url is None and settings.url_file is None
        by = "DOCKWORK_REDIS_URL is not set" if unset else settings.source and f"by {settings.source}"
        return f"{self._named()} ({by})" if by else self._named()

    def _told(self, error: StoreUnavailable) -> StoreUnavailable:
        """What the sentinels' silence is told with: the setting that named them."""
        source = self.settings.source
        return StoreUnavailable(f"{error} (by {source})", error.why) if source else error

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
        try:
            return replace(self, at=await self.directory.find(named, make, wait_s))
        except StoreUnavailable as error:
            raise self._told(error) from error

    def located_blocking(self) -> Connector:
        """`located`, for a thread."""
        if self.at is not None or self.directory is None:
            return self
        if isinstance(self.directory, Topology):
            return self.at_any()
        named, make = self._asking_sentinels(SyncConnection, SyncSSLConnection)
        wait_s = self.settings.connect_timeout.total_seconds()
        try:
            return replace(self, at=self.directory.find_blocking(named, make, wait_s))
        except StoreUnavailable as error:
            raise self._told(error) from error

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
        """The same for blocking calls, whose reads name their own limits: a handshake and a write have this one."""
        patience = self.settings.connect_timeout.total_seconds()
        return self._make(SyncConnection, SyncSSLConnection, SyncUnixConnection, socket_timeout=patience)

    def _make(self, plain: Any, tls: Any, unix: Any, **more: Any) -> RedisConnection:
        address = self.address()
        common = self._common(address) | more
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
