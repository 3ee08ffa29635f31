"""What goes wrong between us and a server, in our words: attempts to connect, error replies, redirections."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

import redis.exceptions as redis_errors

from dockwork.errors import AccessDenied, DockworkError, InvalidUrl, ScriptFailed, StoreUnavailable
from dockwork.store.connectors import Connector
from dockwork.store.sentinel import Place
from dockwork.store.topology import Topology

#: What a connection raises that is gone.
LOST = (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError, EOFError)


def connect_error(error: BaseException, connector: Connector) -> DockworkError:
    """What a failed attempt to connect means, in our words; the server's text is kept where it holds no secret.

    connector    what it was made by: a message names its address, and the setting that gave it
    """
    address = connector.where()
    # redis-py wraps what goes wrong on a unix socket once more.
    chain = _causes(error)
    for cause in chain:
        if isinstance(cause, redis_errors.AuthenticationError | redis_errors.NoPermissionError):
            return AccessDenied(f"{address} refused the login: {_refused_login(cause)}")
        if isinstance(cause, redis_errors.InvalidResponse):
            words = "expected a Redis there, and what answered speaks another protocol"
            return StoreUnavailable(f"{address}: {words}: {_last_line(cause)}")
        if isinstance(cause, redis_errors.ResponseError) and (wrong := _wrong_database(cause, connector)):
            return wrong
        if isinstance(cause, redis_errors.BusyLoadingError):
            return StoreUnavailable(f"{address} is loading its data", "loading")
        if isinstance(cause, ssl.SSLError):
            return StoreUnavailable(
                f"{address}: the TLS handshake failed: {_last_line(cause)}{_plain(cause)}", "tls"
            )
    if isinstance(error, redis_errors.TimeoutError | TimeoutError):
        hint = "; if it speaks no TLS, its URL begins with redis://" if connector.address().tls else ""
        return StoreUnavailable(f"{address} did not answer in time{hint}", "timeout")
    return reply_error("connect", error) or StoreUnavailable(
        f"{address} cannot be reached: {_last_line(error)}{_closed(error, connector)}"
    )


def _refused_login(error: BaseException) -> str:
    """Which part of a login is wrong. The server's own text is not passed on: who knows what it quotes."""
    text = str(error)
    if "Authentication required" in text:
        return "expected a user or a password, got none"
    if "without any password configured" in text:
        return "expected none, as the server has no password; got one"
    if isinstance(error, redis_errors.NoPermissionError):
        return "expected a login that may connect, got one without the rights (NOPERM)"
    return f"expected a user and a password that it knows, got others ({type(error).__name__})"


def _wrong_database(error: BaseException, connector: Connector) -> InvalidUrl | None:
    """What an error reply says of the database that the URL names; None if it says nothing of it."""
    database, text = connector.address().db, str(error)
    if not database or not any(word in text.lower() for word in ("db index", "select", "database")):
        return None
    expected = "a database that the server has"
    if "cluster mode" in text:
        expected = "database 0, as the server is a Cluster, and REDIS_MODE cluster"
    return InvalidUrl(f"{connector.where()}: expected {expected}, got {database}: {_last_line(error)}")


def _plain(error: ssl.SSLError) -> str:
    """What to look at when what answers speaks no TLS."""
    return "; it speaks no TLS, its URL begins with redis://" if error.reason in _NO_TLS else ""


def _closed(error: BaseException, connector: Connector) -> str:
    """What to look at when the server hangs up on us before it has answered."""
    address = connector.address()
    hung_up = isinstance(error, redis_errors.ConnectionError) and "closed by server" in str(error)
    plain = address.path is None and not address.tls
    return " If it speaks TLS, its URL begins with rediss://" if hung_up and plain else ""


#: What OpenSSL calls an answer that is none of TLS's.
_NO_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


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
    if ": -MISCONF " in text:
        # Redis 6.2 puts the place in the script before what it refused a write of it for.
        text = text[text.index("MISCONF ") :]
    if text.startswith(("BUSY ", "MISCONF")):
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
