"""From a Queue to its Redis: which Secret, which key, and what the look-up gave. Contents are kept for 60 s.

Nothing here is printed: a target's address and certificate are not in its repr.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from dataclasses import dataclass, field

from dockwork_operator.decide.seen import SecretSeen, SecretState
from dockwork_operator.errors import Forbidden, KubeError, NotFound
from dockwork_operator.kube.client import KubeClient, Object
from dockwork_operator.kube.resources import CONFIG_MAPS, SECRETS, Resource
from dockwork_operator.models.queues import Redis
from dockwork_operator.settings import Settings

KEPT_FOR = 60.0
#: What was not found is asked for again soon: somebody is about to create it.
MISSING_FOR = 4.0


@dataclass(frozen=True, slots=True)
class RedisTarget:
    """One Redis, as its users name it: the same URL and certificate are the same connection pool."""

    url: str = field(repr=False)
    ca: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One value to read: from which object and key."""

    resource: Resource
    name: str
    key: str


@dataclass(slots=True)
class _Kept:
    data: dict[str, str] | None
    failure: SecretSeen | None
    until: float


class _Missing(Exception):
    """Carries what the look-up gave instead of a value."""

    def __init__(self, seen: SecretSeen) -> None:
        self.seen = seen


class SecretLookup:
    """Reads Secrets and ConfigMaps by name, never lists them."""

    def __init__(self, kube: KubeClient, settings: Settings) -> None:
        self._kube = kube
        self._settings = settings
        self._kept: dict[tuple[Resource, str, str], _Kept] = {}

    async def find(self, namespace: str, redis: Redis | None) -> RedisTarget | SecretSeen:
        """The Redis of a Queue of `namespace`, or why there is none.

        Raises KubeError when the API server gave no answer and none is remembered.
        """
        url_at, ca_at = self._where(redis)
        try:
            url = await self._value(namespace, url_at)
            ca = await self._value(namespace, ca_at) if ca_at is not None else ""
        except _Missing as missing:
            return missing.seen
        return RedisTarget(url=url.strip(), ca=ca)

    def forget(self, namespace: str, redis: Redis | None) -> None:
        """Read again at the next look: Redis refused what is remembered. At most once per `MISSING_FOR`."""
        soon = asyncio.get_running_loop().time() + MISSING_FOR
        for wanted in self._where(redis):
            if wanted is not None and (kept := self._kept.get((wanted.resource, namespace, wanted.name))):
                kept.until = min(kept.until, soon)

    def _where(self, redis: Redis | None) -> tuple[_Wanted, _Wanted | None]:
        source = redis.ca_from if redis is not None else None
        ca: _Wanted | None = None
        if source is not None and source.secret_key_ref is not None:
            ca = _Wanted(SECRETS, source.secret_key_ref.name, source.secret_key_ref.key)
        elif source is not None and source.config_map_key_ref is not None:
            ca = _Wanted(CONFIG_MAPS, source.config_map_key_ref.name, source.config_map_key_ref.key)
        if redis is not None and redis.url_from is not None:
            reference = redis.url_from.secret_key_ref
            return _Wanted(SECRETS, reference.name, reference.key), ca
        default = self._settings
        url = _Wanted(SECRETS, default.redis_secret, default.redis_url_key)
        if ca is None and default.redis_ca_key:
            ca = _Wanted(SECRETS, default.redis_secret, default.redis_ca_key)
        return url, ca

    async def _value(self, namespace: str, wanted: _Wanted) -> str:
        data = await self._data(namespace, wanted)
        value = data.get(wanted.key, "")
        if not value:
            what = f"{wanted.resource.kind} {namespace}/{wanted.name} has no key {wanted.key}"
            raise _Missing(SecretSeen(state=SecretState.KEY_MISSING, message=f"{what}, or it is empty"))
        return value

    async def _data(self, namespace: str, wanted: _Wanted) -> dict[str, str]:
        slot = (wanted.resource, namespace, wanted.name)
        now = asyncio.get_running_loop().time()
        kept = self._kept.get(slot)
        if kept is None or now >= kept.until:
            kept = await self._read(slot, kept, now)
        if kept.failure is not None:
            raise _Missing(kept.failure)
        return kept.data or {}

    async def _read(self, slot: tuple[Resource, str, str], old: _Kept | None, now: float) -> _Kept:
        resource, namespace, name = slot
        failure: SecretSeen | None = None
        data: dict[str, str] | None = None
        try:
            data = _decoded(resource, await self._kube.get(resource, namespace, name))
        except NotFound:
            failure = self._not_found(resource, namespace, name)
        except Forbidden:
            failure = _forbidden(resource, namespace, name)
        except KubeError:
            if old is None or old.data is None:
                raise
            data = old.data  # a stale address is better than none
        kept = _Kept(data, failure, now + (KEPT_FOR if failure is None else MISSING_FOR))
        self._kept[slot] = kept
        return kept

    def _not_found(self, resource: Resource, namespace: str, name: str) -> SecretSeen:
        what = f"{resource.kind} {namespace}/{name} does not exist"
        hint = ""
        if resource == SECRETS and name == self._settings.redis_secret:
            key = self._settings.redis_url_key
            hint = f"; it holds the default Redis: create it with key {key}, or set spec.redis.urlFrom"
        return SecretSeen(state=SecretState.NOT_FOUND, message=what + hint)


def _forbidden(resource: Resource, namespace: str, name: str) -> SecretSeen:
    what = f"the operator may not read {resource.kind} {namespace}/{name}"
    return SecretSeen(
        state=SecretState.FORBIDDEN, message=f"{what}; add {name} to the chart value rbac.secretNames"
    )


def _decoded(resource: Resource, raw: Object) -> dict[str, str]:
    data = raw.get("data") or {}
    if resource == CONFIG_MAPS:
        return {key: str(value) for key, value in data.items()}
    values: dict[str, str] = {}
    for key, value in data.items():
        try:
            values[key] = base64.b64decode(value or "").decode("utf-8")
        except (binascii.Error, UnicodeDecodeError):
            values[key] = ""  # not text, so no URL and no certificate in PEM
    return values
