"""The operator's settings, read once from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from dockwork.errors import InvalidValue
from dockwork_operator.constants import LEASE_NAME

EVERY_NAMESPACE = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Where the operator works, as whom, and how fast."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch (DOCKWORK_WATCH_NAMESPACES, a comma list). `*` alone means the whole cluster;
    nothing means the operator's own namespace."""

    own_namespace: str = "default"
    """Where the Lease lives (POD_NAMESPACE)."""

    pod_name: str = "dockwork-operator"
    """Half of the identity in the Lease (POD_NAME); the other half is random, for the same pod may come back."""

    lease_name: str = LEASE_NAME
    """Name of the Lease (DOCKWORK_LEASE_NAME); two installations in one namespace need two."""

    redis_secret: str = "dockwork-redis"
    """Secret with the default Redis, in each Queue's own namespace (DOCKWORK_DEFAULT_REDIS_SECRET)."""

    redis_url_key: str = "url"
    """Its key with the URL (DOCKWORK_DEFAULT_REDIS_URL_KEY)."""

    redis_ca_key: str = ""
    """Its key with a certificate authority; empty = there is none (DOCKWORK_DEFAULT_REDIS_CA_KEY)."""

    tick: timedelta = timedelta(seconds=2)
    """Time between two looks at each Redis (DOCKWORK_TICK_SECONDS, 0.2 to 60, default 2)."""

    requests_per_second: float = 20.0
    """Requests to the API server in the long run; twice as many at once (DOCKWORK_MAX_QPS, 1 to 1000, default 20)."""

    max_concurrent_rollouts: int = 5
    """Queues that may roll at once when an operator upgrade changes templates
    (DOCKWORK_MAX_CONCURRENT_ROLLOUTS, 1 to 1000, default 5)."""

    resync: timedelta = timedelta(minutes=10)
    """Every object is looked at again this often (DOCKWORK_RESYNC_SECONDS, 10 to 86400, default 600)."""

    audit: timedelta = timedelta(minutes=3)
    """The caches are compared with the API server this often (DOCKWORK_AUDIT_SECONDS, 5 to 3600, default 180)."""

    http_host: str = "0.0.0.0"
    http_port: int = 8080
    """Address of /livez, /readyz and /metrics (DOCKWORK_HTTP_ADDR, host:port, default 0.0.0.0:8080; port 0 = any)."""

    log_level: str = "info"
    """debug, info, warning or error (DOCKWORK_LOG_LEVEL, default info)."""

    @property
    def cluster_wide(self) -> bool:
        return self.namespaces == (EVERY_NAMESPACE,)

    @property
    def watched(self) -> tuple[str, ...]:
        """The namespaces by name, at least one; not for cluster mode."""
        return self.namespaces or (self.own_namespace,)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Raises InvalidValue, naming the variable."""
        host, port = _address(environ.get("DOCKWORK_HTTP_ADDR", "0.0.0.0:8080"))
        return cls(
            namespaces=_namespaces(environ.get("DOCKWORK_WATCH_NAMESPACES", "")),
            own_namespace=environ.get("POD_NAMESPACE") or "default",
            pod_name=environ.get("POD_NAME") or "dockwork-operator",
            lease_name=environ.get("DOCKWORK_LEASE_NAME") or LEASE_NAME,
            redis_secret=environ.get("DOCKWORK_DEFAULT_REDIS_SECRET") or "dockwork-redis",
            redis_url_key=environ.get("DOCKWORK_DEFAULT_REDIS_URL_KEY") or "url",
            redis_ca_key=environ.get("DOCKWORK_DEFAULT_REDIS_CA_KEY") or "",
            tick=timedelta(seconds=_number(environ, "DOCKWORK_TICK_SECONDS", 2, 0.2, 60)),
            requests_per_second=_number(environ, "DOCKWORK_MAX_QPS", 20, 1, 1000),
            max_concurrent_rollouts=int(_number(environ, "DOCKWORK_MAX_CONCURRENT_ROLLOUTS", 5, 1, 1000)),
            resync=timedelta(seconds=_number(environ, "DOCKWORK_RESYNC_SECONDS", 600, 10, 86400)),
            audit=timedelta(seconds=_number(environ, "DOCKWORK_AUDIT_SECONDS", 180, 5, 3600)),
            http_host=host,
            http_port=port,
            log_level=_level(environ.get("DOCKWORK_LOG_LEVEL") or "info"),
        )


def _namespaces(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if EVERY_NAMESPACE in names and len(names) > 1:
        raise InvalidValue("DOCKWORK_WATCH_NAMESPACES", expected="* alone, or names without it", got=text)
    return names


def _number(environ: Mapping[str, str], name: str, default: float, least: float, most: float) -> float:
    text = environ.get(name) or ""
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise InvalidValue(name, expected=f"a number from {least:g} to {most:g}", got=text)
    return value


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidValue("DOCKWORK_HTTP_ADDR", expected="host:port", got=text)
    return host.strip("[]") or "0.0.0.0", int(port)


def _level(text: str) -> str:
    level = text.strip().lower()
    if level not in {"debug", "info", "warning", "error"}:
        raise InvalidValue("DOCKWORK_LOG_LEVEL", expected="debug, info, warning or error", got=text)
    return level
