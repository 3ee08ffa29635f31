"""Events on Queues and CronJobs, as core/v1 objects: the same one again within 10 minutes only raises its count."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from dockwork_operator.errors import KubeError, NotFound
from dockwork_operator.kube.client import KubeClient, Object
from dockwork_operator.kube.resources import EVENTS, Resource
from dockwork_operator.logs import EventLog

log = EventLog(__name__)

COMPONENT = "dockwork-operator"
#: Seconds within which an event of the same object and reason is the same event.
WINDOW = 600.0
#: Remembered events; the oldest go first.
KEPT = 5000


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """The object that an event is about."""

    resource: Resource
    namespace: str
    name: str
    uid: str


@dataclass(slots=True)
class _Written:
    name: str
    count: int
    first: datetime
    at: float


class EventWriter:
    """Writes events for one operator replica; `reporter` is its identity."""

    def __init__(self, kube: KubeClient, *, reporter: str, now: Callable[[], datetime]) -> None:
        self._kube = kube
        self._reporter = reporter
        self._now = now
        self._written: dict[tuple[str, str], _Written] = {}

    async def write(self, about: About, *, reason: str, message: str, warning: bool) -> None:
        """An event that cannot be written is logged and dropped: it must not stop the work it tells of."""
        try:
            await self._write(about, reason, message[:1024], "Warning" if warning else "Normal")
        except KubeError as error:
            log.warning("event_not_written", reason=reason, error=str(error))

    async def _write(self, about: About, reason: str, message: str, kind: str) -> None:
        at, now = asyncio.get_running_loop().time(), self._now()
        known = self._written.get((about.uid, reason))
        if known is not None and at - known.at < WINDOW:
            try:
                await self._again(about, known, message, now)
            except NotFound:
                pass  # expired on the server: write it anew
            else:
                known.count += 1
                return
        name = _event_name(about, reason, now)
        await self._kube.create(EVENTS, about.namespace, self._body(about, name, reason, message, kind, now))
        self._remember((about.uid, reason), _Written(name=name, count=1, first=now, at=at))

    async def _again(self, about: About, known: _Written, message: str, now: datetime) -> None:
        patch = {"count": known.count + 1, "lastTimestamp": _stamp(now), "message": message}
        await self._kube.merge(EVENTS, about.namespace, known.name, patch)

    def _remember(self, key: tuple[str, str], written: _Written) -> None:
        self._written.pop(key, None)
        self._written[key] = written
        while len(self._written) > KEPT:
            self._written.pop(next(iter(self._written)))

    def _body(self, about: About, name: str, reason: str, message: str, kind: str, now: datetime) -> Object:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": about.namespace},
            "involvedObject": {
                "apiVersion": about.resource.api_version,
                "kind": about.resource.kind,
                "namespace": about.namespace,
                "name": about.name,
                "uid": about.uid,
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "count": 1,
            "firstTimestamp": _stamp(now),
            "lastTimestamp": _stamp(now),
            "source": {"component": COMPONENT, "host": self._reporter},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._reporter,
        }


def _event_name(about: About, reason: str, now: datetime) -> str:
    digest = hashlib.sha256(f"{about.uid}/{reason}/{now.isoformat()}".encode()).hexdigest()
    return f"{about.name[:200]}.{digest[:16]}"


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
