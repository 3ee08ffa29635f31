"""What a process is told from outside, read once from its environment and frozen.

``DOCKWORK_X`` beats what code says, and code beats a bare ``REDIS_X``: so an operator can set up a pod, and
an app can still be written for a machine where only ``REDIS_URL`` is known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypeVar

from dockwork.core.durations import parse_span
from dockwork.core.sizes import parse_size
from dockwork.core.slots import Shared, parse_slots
from dockwork.errors import InvalidValue, require

T = TypeVar("T")

OURS = "DOCKWORK_"

#: Where Kubernetes tells a pod its namespace.
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

NAME = re.compile(r"[A-Za-z0-9._-]{1,63}")

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


@dataclass(frozen=True, kw_only=True)
class RedisSettings:
    """Where Redis is and how patiently to speak to it.

    Of the addresses the first that is given counts: `url_file`, `url`, then `host` and `port`.
    """

    url: str | None = field(default=None, repr=False)
    """``redis://``, ``rediss://`` or ``unix://``; may hold a password, so it is in no repr. For Sentinel and Cluster it
    may name several servers, with commas: ``redis://one:26379,two:26379``."""
    url_file: str | None = None
    """A file that holds the URL, read again at each connect, so that a changed Secret restarts nothing."""
    mode: Literal["standalone", "sentinel", "cluster"] = "standalone"
    """What the address names: one server, sentinels that know the primary, or nodes of a Cluster."""
    sentinel_master: str | None = None
    """The name under which the sentinels watch the primary; with mode ``sentinel``."""
    sentinel_user: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    """The login at the sentinels, if it is another than the URL's."""
    source: str = field(default="", repr=False, compare=False)
    """What gave `url` or `url_file`, for messages: a variable, or ``redis.url`` for code and configuration files;
    "" for settings that did not come from the environment."""
    host: str = "localhost"
    port: int = 6379
    password: str | None = field(default=None, repr=False)
    """Of the default user, with `host` and `port` only."""
    ca_file: str | None = None
    """Certificates that are trusted besides the system's."""
    tls_verify: bool = True
    """Off: the chain and the host name are not checked. For a laptop, never for a network."""
    pool_size: int = 16
    """Command connections at most, 1 to 1000."""
    pool_timeout: timedelta = timedelta(seconds=5)
    """How long a call waits for a free connection."""
    connect_timeout: timedelta = timedelta(seconds=5)
    """How long one attempt to connect may take. A step's limit: no call has a deadline as a whole."""
    command_timeout: timedelta = timedelta(seconds=5)
    """How long one reply may take; after it the outcome is unknown."""

    def __post_init__(self) -> None:
        require(1 <= self.port <= 65535, "REDIS_PORT", expected="1 to 65535", got=self.port)
        require(1 <= self.pool_size <= 1000, "REDIS_POOL_SIZE", expected="1 to 1000", got=self.pool_size)
        _check_mode(self.mode, self.sentinel_master)
        for name in ("pool_timeout", "connect_timeout", "command_timeout"):
            span: timedelta = getattr(self, name)
            expected = "more than 0 s, at most 1 h"
            fits = timedelta(0) < span <= timedelta(hours=1)
            require(fits, f"REDIS_{name.upper()}", expected=expected, got=span.total_seconds())

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str], code: RedisSettings | str | None = None
    ) -> RedisSettings:
        """The settings that `environ` and `code` give together.

        code      what the program says, as a URL or whole settings; beats bare variables, not DOCKWORK_ ones
        Raises    InvalidValue naming the variable
        """
        given = _code_values(code)
        values: dict[str, Any] = {}
        for name, variables, read in _REDIS_FIELDS:
            value = _layered(environ, variables, given.get(name), read)
            if value is not None:
                values[name] = value
        return cls(**{**values, **_address(environ, given)})


def _code_values(code: RedisSettings | str | None) -> dict[str, Any]:
    if code is None:
        return {}
    if isinstance(code, str):
        return {"url": code}
    plain = RedisSettings()
    return {
        name: getattr(code, name)
        for name in code.__dataclass_fields__
        if getattr(code, name) != getattr(plain, name)
    }


def _address(environ: Mapping[str, str], code: Mapping[str, Any]) -> dict[str, Any]:
    """The address of the highest layer that names one: DOCKWORK_ variables, code, bare variables."""
    names = ("url_file", "url", "host", "port")
    layers: list[tuple[str, dict[str, Any]]] = [
        (f"{OURS}REDIS_", {name: environ.get(f"{OURS}REDIS_{name.upper()}") for name in names}),
        ("", {name: code.get(name) for name in names}),
        ("REDIS_", {name: environ.get(f"REDIS_{name.upper()}") for name in names}),
    ]
    for prefix, layer in layers:
        if layer["url_file"]:
            source = f"{prefix}URL_FILE" if prefix else "redis.url_file"
            return {"url_file": layer["url_file"], "url": None, "source": source}
        if layer["url"]:
            source = f"{prefix}URL" if prefix else "redis.url"
            return {"url_file": None, "url": layer["url"], "source": source}
        if layer["host"] or layer["port"]:
            break
    return {"url_file": None, "url": None}


def _check_mode(mode: str, sentinel_master: str | None) -> None:
    modes = ("standalone", "sentinel", "cluster")
    require(mode in modes, "REDIS_MODE", expected="standalone, sentinel or cluster", got=mode)
    named = bool(sentinel_master)
    expected = "the name of the primary that the sentinels watch, as REDIS_MODE is sentinel"
    require(named or mode != "sentinel", "REDIS_SENTINEL_MASTER", expected=expected, got=sentinel_master)
    expected = "none, as REDIS_MODE is not sentinel"
    require(not named or mode == "sentinel", "REDIS_SENTINEL_MASTER", expected=expected, got=sentinel_master)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that the environment says to one process."""

    redis: RedisSettings = field(default_factory=RedisSettings)
    namespace: str = "default"
    """The first half of each key's hash tag. On Kubernetes the pod's own namespace."""
    queues: Mapping[str, int | None] = field(default_factory=dict)
    """Queues that a worker serves, each with its own slots or None for a share of `concurrency`."""
    shared: Shared = field(default_factory=Shared)
    """Slots besides those, for whichever of the queues has work: ``*=4`` in DOCKWORK_QUEUES."""
    concurrency: int | None = None
    """Slots of a worker, 1 to 1000; None = the sum of `queues`, else the CPUs that the cgroup grants."""
    lease: timedelta | None = None
    """How long a claim is safe without renewal, 5 s to 1 h; None = the queue's, else 15 s."""
    drain_timeout: timedelta = timedelta(seconds=15)
    """From the first signal to the put-back of what still runs, 1 s to 7 days."""
    drain_requeue: Literal["front", "back"] = "front"
    """Where a job goes that still runs at the end of a drain."""
    events_max_bytes: int | None = None
    """Of a queue's event stream, 0 = no cap; None = as the code says, else 64Mi."""
    trap_signals: bool = True
    """Whether a worker answers SIGTERM, SIGINT and SIGHUP by itself."""
    max_jobs: int | None = None
    """Jobs that a worker ends before it drains and exits with 0, to be started again; None = any number."""
    max_rss: int | None = None
    """Bytes of resident memory of a worker's own process, above which it does the same; None = any."""
    max_jobs_per_child: int | None = None
    """Jobs of a child process before a fresh one takes its place, 1 to 1,000,000; None = 1,000."""
    max_rss_per_child: int | None = None
    """Bytes of resident memory of a child process, above which the same happens after its job; None = any."""
    pod_uid: str = ""
    pod_name: str = ""
    container: str = ""
    template_hash: str = ""
    """Of the pod template that this worker runs from; "" outside of a Queue."""
    probe_addr: str | None = None
    """``host:port`` for /livez, /readyz and /metrics; None = no probes."""
    payload_keys: str = field(default="", repr=False)
    """The key ring of sealed values: ``id:key`` between commas, the first one seals. See the encryption guide."""
    payload_key: str = field(default="", repr=False)
    """A ring of one key; `payload_keys` counts before it."""
    payload_keys_file: str = ""
    """A file that holds such a ring, read again when it changes; both variables above count before it."""
    config: tuple[str, ...] = ()
    """TOML and YAML files that stand over code and under DOCKWORK_ variables; the later over the earlier."""
    log_level: str = "INFO"
    log_format: Literal["json", "text"] = "text"

    def __post_init__(self) -> None:
        _check_name(f"{OURS}NAMESPACE", self.namespace)
        for queue, slots in self.queues.items():
            _check_name(f"{OURS}QUEUES", queue)
            fits = slots is None or (0 if self.shared.slots else 1) <= slots <= 1000
            expected = "1 to 1000 slots a queue, or 0 where it has shared ones"
            require(fits, f"{OURS}QUEUES", expected=expected, got=f"{queue}={slots}")
        _check_range(f"{OURS}CONCURRENCY", self.concurrency, 1, 1000)
        _check_range(f"{OURS}MAX_JOBS", self.max_jobs, 1, 1_000_000_000)
        _check_range(f"{OURS}MAX_JOBS_PER_CHILD", self.max_jobs_per_child, 1, 1_000_000)
        for name in ("max_rss", "max_rss_per_child"):
            _check_range(f"{OURS}{name.upper()}", getattr(self, name), 1 << 20, 1 << 44)
        _check_span(f"{OURS}LEASE", self.lease, timedelta(seconds=5), timedelta(hours=1))
        _check_span(f"{OURS}DRAIN_TIMEOUT", self.drain_timeout, timedelta(seconds=1), timedelta(days=7))

    @classmethod
    def from_environ(
        cls,
        environ: Mapping[str, str],
        *,
        redis: RedisSettings | str | None = None,
        namespace: str | None = None,
    ) -> Settings:
        """The settings that `environ` gives, over what code says by `redis` and `namespace`.

        Raises    InvalidValue naming the variable, what it takes and what came; never a URL or a password
        """
        values: dict[str, Any] = {
            name: read(environ[OURS + variable], OURS + variable)
            for name, variable, read in _FIELDS
            if environ.get(OURS + variable)
        }
        values.setdefault("namespace", namespace or _own_namespace())
        return cls(redis=RedisSettings.from_environ(environ, redis), **values)

    def with_worker(self, *, queues: Mapping[str, int | None] | None, concurrency: int | None) -> Settings:
        """The same with a worker's own choice, where one is given."""
        return replace(
            self,
            queues=self.queues if queues is None else dict(queues),
            concurrency=self.concurrency if concurrency is None else concurrency,
        )


def environ_settings(*, redis: RedisSettings | str | None = None, namespace: str | None = None) -> Settings:
    """`Settings.from_environ` of this process."""
    return Settings.from_environ(os.environ, redis=redis, namespace=namespace)


def share_slots(queues: Mapping[str, int | None], concurrency: int) -> Mapping[str, int]:
    """Slots for each queue: its own number, or an even share of what the numbers leave of `concurrency`.

    Raises    InvalidValue when the numbers need more than `concurrency`, or leave a queue without a slot
    """
    sharing = [queue for queue, slots in queues.items() if slots is None]
    fixed = sum(slots for slots in queues.values() if slots is not None)
    left = concurrency - fixed
    if left < len(sharing):
        expected = f"at least {fixed + len(sharing)}, for the queues {', '.join(queues)}"
        raise InvalidValue("concurrency", expected=expected, got=concurrency)
    each, more = divmod(left, len(sharing)) if sharing else (0, 0)
    shares = {queue: each + (place < more) for place, queue in enumerate(sharing)}
    return {queue: shares[queue] if slots is None else slots for queue, slots in queues.items()}


def granted_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs that this process may use, rounded up: the cgroup's quota (version 2 or 1), else the machine's."""
    allowed = len(os.sched_getaffinity(0))
    quota, period = _cgroup_quota(cgroup)
    return allowed if quota <= 0 or period <= 0 else max(1, min(allowed, -(-quota // period)))


def _cgroup_quota(cgroup: Path) -> tuple[int, int]:
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return (0, 0) if quota == "max" else (int(quota), int(period))
    except (OSError, ValueError):
        pass
    try:
        return (
            int((cgroup / "cpu/cpu.cfs_quota_us").read_text()),
            int((cgroup / "cpu/cpu.cfs_period_us").read_text()),
        )
    except (OSError, ValueError):
        return 0, 0


def parse_queues(text: str, name: str = "queues") -> dict[str, int | None]:
    """``mail=8,default`` as queue -> slots or None, in order; see `parse_slots`."""
    return dict(parse_slots(text, name).queues)


def parse_shared(text: str, name: str = "queues") -> Shared:
    """The slots that the queues share, of the same text."""
    return parse_slots(text, name).shared


def _own_namespace() -> str:
    try:
        return NAMESPACE_FILE.read_text().strip() or "default"
    except OSError:
        return "default"


def _layered(
    environ: Mapping[str, str], variables: tuple[str, ...], code: T | None, read: Callable[[str, str], T]
) -> T | None:
    for name in (OURS + variable for variable in variables):
        if environ.get(name):
            return read(environ[name], name)
    if code is not None:
        return code
    for name in variables:
        if environ.get(name):
            return read(environ[name], name)
    return None


def _read_text(text: str, name: str) -> str:
    return text


def _read_int(text: str, name: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text.strip()):
        raise InvalidValue(name, expected="a whole number, 0 or more", got=text)
    return int(text)


def _read_flag(text: str, name: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE | _FALSE:
        raise InvalidValue(name, expected="true/false, 1/0, yes/no or on/off", got=text)
    return word in _TRUE


def _read_choice(*choices: str) -> Callable[[str, str], str]:
    def read(text: str, name: str) -> str:
        if text not in choices:
            raise InvalidValue(name, expected=" or ".join(choices), got=text)
        return text

    return read


def _read_address(text: str, name: str) -> str:
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isdecimal() and int(port) <= 65535):
        raise InvalidValue(name, expected="host:port", got=text)
    return text


def read_paths(text: str, name: str) -> tuple[str, ...]:
    """Paths between colons."""
    paths = tuple(part for part in text.split(os.pathsep) if part)
    require(bool(paths), name, expected=f"paths between {os.pathsep!r}", got=text)
    return paths


def _read_level(text: str, name: str) -> str:
    return _read_choice("DEBUG", "INFO", "WARNING", "ERROR")(text.upper(), name)


def _check_name(field_name: str, value: str) -> str:
    fits = NAME.fullmatch(value) is not None
    require(fits, field_name, expected="1 to 63 characters of A-Z a-z 0-9 . _ -", got=value)
    return value


def _check_range(name: str, value: int | None, least: int, most: int) -> None:
    fits = value is None or least <= value <= most
    require(fits, name, expected=f"{least} to {most}", got=value)


def _check_span(name: str, value: timedelta | None, least: timedelta, most: timedelta) -> None:
    fits = value is None or least <= value <= most
    expected = f"{least.total_seconds():g} s to {most.total_seconds():g} s"
    require(fits, name, expected=expected, got=value and value.total_seconds())


#: Field, variables (the first that is set counts), reader.
_REDIS_FIELDS: tuple[tuple[str, tuple[str, ...], Callable[[str, str], Any]], ...] = (
    ("host", ("REDIS_HOST",), _read_text),
    ("port", ("REDIS_PORT",), _read_int),
    ("password", ("REDIS_PASS",), _read_text),
    ("mode", ("REDIS_MODE",), _read_choice("standalone", "sentinel", "cluster")),
    ("sentinel_master", ("REDIS_SENTINEL_MASTER",), _read_text),
    ("sentinel_user", ("REDIS_SENTINEL_USER",), _read_text),
    ("sentinel_password", ("REDIS_SENTINEL_PASS",), _read_text),
    ("ca_file", ("REDIS_CA_FILE",), _read_text),
    ("tls_verify", ("REDIS_TLS_VERIFY",), _read_flag),
    ("pool_size", ("REDIS_POOL_SIZE",), _read_int),
    ("pool_timeout", ("REDIS_POOL_TIMEOUT",), parse_span),
    ("connect_timeout", ("REDIS_CONNECT_TIMEOUT", "REDIS_TIMEOUT"), parse_span),
    ("command_timeout", ("REDIS_COMMAND_TIMEOUT", "REDIS_TIMEOUT"), parse_span),
)

_FIELDS: tuple[tuple[str, str, Callable[[str, str], Any]], ...] = (
    ("namespace", "NAMESPACE", _read_text),
    ("queues", "QUEUES", parse_queues),
    ("shared", "QUEUES", parse_shared),
    ("concurrency", "CONCURRENCY", _read_int),
    ("lease", "LEASE", parse_span),
    ("drain_timeout", "DRAIN_TIMEOUT", parse_span),
    ("drain_requeue", "DRAIN_REQUEUE", _read_choice("front", "back")),
    ("events_max_bytes", "EVENTS_MAX_BYTES", parse_size),
    ("trap_signals", "TRAP_SIGNALS", _read_flag),
    ("max_jobs", "MAX_JOBS", _read_int),
    ("max_rss", "MAX_RSS", parse_size),
    ("max_jobs_per_child", "MAX_JOBS_PER_CHILD", _read_int),
    ("max_rss_per_child", "MAX_RSS_PER_CHILD", parse_size),
    ("pod_uid", "POD_UID", _read_text),
    ("pod_name", "POD_NAME", _read_text),
    ("container", "CONTAINER", _read_text),
    ("template_hash", "TEMPLATE_HASH", _read_text),
    ("probe_addr", "PROBE_ADDR", _read_address),
    ("payload_keys", "PAYLOAD_KEYS", _read_text),
    ("payload_key", "PAYLOAD_KEY", _read_text),
    ("payload_keys_file", "PAYLOAD_KEYS_FILE", _read_text),
    ("config", "CONFIG", read_paths),
    ("log_level", "LOG_LEVEL", _read_level),
    ("log_format", "LOG_FORMAT", _read_choice("json", "text")),
)

#: Setting -> its variable without the prefix, and its reader: what a configuration file may say.
SETTINGS_VARIABLES: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    name: (variable, read) for name, variable, read in _FIELDS if name != "config"
}

#: The same of the `redis` section. The address may be said in each of the ways that the variables know.
REDIS_VARIABLES: Mapping[str, tuple[str, Callable[[str, str], Any]]] = {
    "url": ("REDIS_URL", _read_text),
    "url_file": ("REDIS_URL_FILE", _read_text),
    **{name: (variables[0], read) for name, variables, read in _REDIS_FIELDS},
}
