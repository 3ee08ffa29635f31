"""kopf delivers the watch events, and nothing else: each one is handed to the operator's own event loop.

kopf runs in a thread with a loop of its own: at its end it cancels every task made in its loop after its start, and
none of those may be ours. A watch that is refused ends all the others, so access is checked before, and the operator
starts a new thread with new watches when they end.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import kopf

from dockwork import clock
from dockwork_operator.constants import LABEL_QUEUE
from dockwork_operator.kube.credentials import Login, ServiceAccount, load_configuration
from dockwork_operator.kube.resources import LABELLED, WATCHED, Resource
from dockwork_operator.logs import EventLog

log = EventLog(__name__)

#: Takes (resource, event type, object); runs on the operator's loop.
Sink = Callable[[Resource, str | None, dict[str, Any]], None]

#: Seconds for connections to close after the last watch.
FAREWELL = 0.25
TOKEN_FOR = timedelta(minutes=10)


class Backoffs:
    """1 to 30 s with jitter, eight times; an object that gives a new iterator to each request, as kopf needs."""

    def __iter__(self) -> Iterator[float]:
        for attempt in range(8):
            # Half of the wait is random: many watches that broke together do not come back together.
            yield min(30.0, 2.0**attempt) * random.uniform(0.5, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scope:
    """Which namespaces are watched; None means the whole cluster."""

    namespaces: tuple[str, ...] | None


class Watches:
    """The thread in which kopf runs.

    ended      called on the operator's loop when the watches end without being asked to
    """

    def __init__(
        self,
        scope: Scope,
        *,
        login: Login,
        identity: str,
        sink: Sink,
        ended: Callable[[BaseException | None], None],
    ) -> None:
        self._scope = scope
        self._login = login
        self._identity = identity
        self._sink = sink
        self._ended = ended
        self._stop = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="kopf", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask kopf to end; does not wait. The thread is a daemon: it never keeps the process alive."""
        self._stop.set()

    async def wait_ended(self, within: float) -> None:
        """After `stop`: until the thread is done, or `within` seconds."""
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, within)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            asyncio.run(self._operate())
        except BaseException as caught:
            error = caught
        self._tell_end(error)

    async def _operate(self) -> None:
        registry = kopf.OperatorRegistry()
        _register(registry, self._deliver, self._login)
        before = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=kopf_settings(),
            identity=kopf_identity(self._identity),
            standalone=True,
            clusterwide=self._scope.namespaces is None,
            namespaces=self._scope.namespaces or (),
            stop_flag=self._stop,
        )
        ending = asyncio.create_task(kopf.run_tasks(tasks, ignored=before), name="kopf")
        # One watch that fails ends all of them, and then kopf may take minutes to end itself.
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        self._tell_end(next((e for task in done if not task.cancelled() and (e := task.exception())), None))
        await ending
        # aiohttp says farewell to TLS connections in the background, and a closed loop would cut that short.
        await asyncio.sleep(FAREWELL)

    def _tell_end(self, error: BaseException | None) -> None:
        """Once, and not when the end was asked for."""
        if not self._stop.is_set():
            self._stop.set()
            self._hand_over(self._ended, error)

    def _deliver(self, resource: Resource, kind: str | None, raw: dict[str, Any]) -> None:
        self._hand_over(self._sink, resource, kind, raw)

    def _hand_over(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            log.debug("event_after_the_end")


def kopf_identity(name: str) -> Any:
    """The type is private to kopf; without an identity it asks for the passwd entry of a uid that has none."""
    from kopf._core.engines.peering import Identity

    return Identity(name)


def kopf_settings() -> kopf.OperatorSettings:
    """Every choice that differs from kopf's own; the reasons are in docs/spec/operator.md, OP-300."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.scanning.disabled = True
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 310
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.watching.reconnect_backoff = 1
    settings.watching.chunk_size = 500
    for resource in LABELLED:
        settings.watching.label_selectors[resource.group, resource.version, resource.plural] = LABEL_QUEUE
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.networking.enforce_retry_after = True
    settings.networking.error_backoffs = Backoffs()
    settings.queueing.worker_limit = 50
    settings.queueing.idle_timeout = 5
    settings.posting.enabled = False
    settings.posting.loggers = False
    settings.persistence.finalizer = "dockwork.dev/kopf"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix="dockwork.dev", v1=False)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix="dockwork.dev", v1=False)
    settings.execution.max_workers = 4
    settings.process.ultimate_exiting_timeout = 25
    return settings


def _register(registry: kopf.OperatorRegistry, deliver: Sink, login: Login) -> None:
    """One `on.event` per watched resource, by group, version and plural, and the login."""

    @kopf.on.login(registry=registry, backoff=2, retries=1000)
    async def log_in(**_: object) -> kopf.ConnectionInfo:
        return await connection_info(login)

    for resource in WATCHED:
        _watch(registry, resource, deliver)


def _watch(registry: kopf.OperatorRegistry, resource: Resource, deliver: Sink) -> None:
    async def changed(*, event: kopf.RawEvent, **_: object) -> None:
        deliver(resource, event["type"], dict(event["object"]))

    changed.__name__ = f"{resource.plural}_changed"
    # The core group is "" here: a bare ("v1", "pods") would be read as a group.
    kopf.on.event(resource.group, resource.version, resource.plural, registry=registry)(changed)


async def connection_info(login: Login) -> kopf.ConnectionInfo:
    """How kopf logs in; in a pod the token is good for 10 minutes and then read again."""
    configuration = await load_configuration(login)
    auth = await configuration.auth_settings()
    token = str(auth["BearerToken"]["value"]).split()[-1] if "BearerToken" in auth else None
    expiration = None
    if isinstance(login, ServiceAccount):
        expiration = clock.now() + TOKEN_FOR
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme="Bearer" if token else None,
        token=token,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        expiration=expiration,
    )
