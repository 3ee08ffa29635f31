"""Where a Redis is and who logs in, as a URL says it. No message ever quotes a URL."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from dockwork.errors import InvalidUrl


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
