"""The only HTTP to the API server that is ours: plain objects in, plain objects out, our errors.

It stands on the transport of `kubernetes.aio` (TLS, login, connection pool) and leaves its typed classes alone: those
cost 15 MB, answer None where server-side apply creates a custom object, and turn unknown fields away.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio.client.rest import RESTClientObject

from dockwork_operator.errors import (
    Busy,
    ConfigurationError,
    Conflict,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    Rejected,
    Unreachable,
)
from dockwork_operator.kube.credentials import Login, ServiceAccount, load_configuration
from dockwork_operator.kube.limits import RateLimit
from dockwork_operator.kube.resources import ACCESS_REVIEWS, LEASES, Resource
from dockwork_operator.logs import EventLog

log = EventLog(__name__)

Object = dict[str, Any]

FIELD_MANAGER = "dockwork"
#: Seconds for one request, from the queue for a connection to the last byte.
TIMEOUT = aiohttp.ClientTimeout(total=10, connect=5)
#: A list of thousands takes longer; it is read in pages of this many.
PAGE = 500
TOKEN_READ_EVERY = 60.0

JSON = "application/json"
APPLY_PATCH = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request, as RBAC and the request counter name it.

    guarded      refused unless we lead: everything that changes the cluster but the Lease itself
    limited      counts against the rate limit
    """

    method: str
    verb: str
    resource: Resource
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    query: tuple[tuple[str, str], ...] = ()
    body: Object | None = None
    content_type: str = JSON
    accept: str = JSON
    guarded: bool = False
    limited: bool = True

    @property
    def target(self) -> str:
        return f"{self.resource}/{self.subresource}" if self.subresource else str(self.resource)

    @property
    def where(self) -> str:
        return "/".join(part for part in (self.namespace or "", self.name) if part)

    @property
    def path(self) -> str:
        path = self.resource.path(self.namespace, self.name, self.subresource)
        return f"{path}?{urlencode(self.query)}" if self.query else path


class KubeClient:
    """Requests to one API server, limited, counted and translated.

    guard       raises NotLeading when a write is not allowed now
    count       called with (verb, resource, status) after each request; status "0" when there was no answer
    """

    def __init__(
        self,
        login: Login,
        *,
        limit: RateLimit,
        guard: Callable[[], None] = lambda: None,
        count: Callable[[str, str, str], None] = lambda verb, resource, status: None,
    ) -> None:
        self._login = login
        self._limit = limit
        self.guard = guard
        self._count = count
        self._configuration: Any = None
        self._rest: Any = None
        self._token_read = 0.0

    async def open(self) -> None:
        self._configuration = await load_configuration(self._login)
        self._rest = RESTClientObject(self._configuration)
        self._token_read = asyncio.get_running_loop().time()

    async def close(self) -> None:
        if self._rest is not None:
            await self._rest.close()

    # --- reading -------------------------------------------------------------------------------------------

    async def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return await self.send(
            Request(method="GET", verb="get", resource=resource, namespace=namespace, name=name)
        )

    async def list_all(
        self, resource: Resource, namespace: str | None, *, labels: str = "", metadata_only: bool = False
    ) -> list[Object]:
        """Every object, in pages; `namespace` None means the whole cluster. Kind and version are not in the items."""
        found: list[Object] = []
        token = ""
        while True:
            query = [("limit", str(PAGE))]
            query += [("labelSelector", labels)] if labels else []
            query += [("continue", token)] if token else []
            page = await self.send(
                Request(
                    method="GET",
                    verb="list",
                    resource=resource,
                    namespace=namespace,
                    query=tuple(query),
                    accept=METADATA_LIST if metadata_only else JSON,
                )
            )
            found += page.get("items") or []
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return found

    async def may(self, verb: str, resource: Resource, namespace: str | None, subresource: str = "") -> bool:
        """Whether this login is allowed `verb` on `resource`; a namespace of None asks for the whole cluster."""
        attributes = {
            "group": resource.group,
            "version": resource.version,
            "resource": resource.plural,
            "subresource": subresource,
            "verb": verb,
            "namespace": namespace or "",
        }
        body = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self.send(Request(method="POST", verb="create", resource=ACCESS_REVIEWS, body=body))
        return bool(answer.get("status", {}).get("allowed"))

    async def serves(self, resource: Resource) -> bool:
        """Whether the API server knows `resource`, such as the kind of a CRD that may not be installed yet."""
        group = Resource(resource.group, resource.version, "", resource.kind)
        try:
            answer = await self.send(Request(method="GET", verb="get", resource=group))
        except NotFound:
            return False
        return any(known.get("name") == resource.plural for known in answer.get("resources") or [])

    # --- writing -------------------------------------------------------------------------------------------

    async def apply(self, resource: Resource, namespace: str, body: Object) -> Object:
        """Server-side apply with our manager and force: what we declare is ours, the rest is left alone."""
        return await self.send(
            Request(
                method="PATCH",
                verb="patch",
                resource=resource,
                namespace=namespace,
                name=body["metadata"]["name"],
                query=(("fieldManager", FIELD_MANAGER), ("force", "true"), ("fieldValidation", "Strict")),
                body=body,
                content_type=APPLY_PATCH,
                guarded=True,
            )
        )

    async def merge(
        self, resource: Resource, namespace: str, name: str, body: Object, *, subresource: str = ""
    ) -> Object:
        """A merge patch: null removes. An unknown field is refused instead of dropped."""
        return await self.send(
            Request(
                method="PATCH",
                verb="patch",
                resource=resource,
                namespace=namespace,
                name=name,
                subresource=subresource,
                query=(("fieldManager", FIELD_MANAGER), ("fieldValidation", "Strict")),
                body=body,
                content_type=MERGE_PATCH,
                guarded=True,
            )
        )

    async def get_scale(self, resource: Resource, namespace: str, name: str) -> Object:
        return await self.send(
            Request(
                method="GET",
                verb="get",
                resource=resource,
                namespace=namespace,
                name=name,
                subresource="scale",
            )
        )

    async def put_scale(
        self, resource: Resource, namespace: str, name: str, replicas: int, *, resource_version: str
    ) -> Object:
        """Set the replicas if the object is still at `resource_version`, else Conflict."""
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": resource_version},
            "spec": {"replicas": replicas},
        }
        return await self.send(
            Request(
                method="PUT",
                verb="update",
                resource=resource,
                namespace=namespace,
                name=name,
                subresource="scale",
                query=(("fieldManager", FIELD_MANAGER),),
                body=body,
                guarded=True,
            )
        )

    async def create(
        self, resource: Resource, namespace: str, body: Object, *, guarded: bool = True
    ) -> Object:
        return await self.send(
            Request(
                method="POST",
                verb="create",
                resource=resource,
                namespace=namespace,
                query=(("fieldManager", FIELD_MANAGER),),
                body=body,
                guarded=guarded,
                limited=resource is not LEASES,
            )
        )

    async def delete(self, resource: Resource, namespace: str, name: str, *, uid: str) -> None:
        """Delete exactly the object `uid`: another one of the same name is a Conflict."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        await self.send(
            Request(
                method="DELETE",
                verb="delete",
                resource=resource,
                namespace=namespace,
                name=name,
                body=options,
                guarded=True,
            )
        )

    # --- transport -----------------------------------------------------------------------------------------

    async def send(self, request: Request) -> Object:
        """The answer's JSON object. The guard is asked after the wait for the rate limit, just before the write."""
        if request.limited:
            await self._limit.take()
        if request.guarded:
            self.guard()
        headers = {
            "Accept": request.accept,
            "Content-Type": request.content_type,
            **await self._authorization(),
        }
        url = self._configuration.host + request.path
        try:
            response = await self._rest.request(
                request.method, url, headers=headers, body=request.body, _request_timeout=TIMEOUT
            )
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count(request.verb, request.target, "0")
            raise _unreachable(request, error) from error
        self._count(request.verb, request.target, str(response.status))
        if response.status >= 400:
            raise self._refusal(request, response.status, text, response.headers.get("Retry-After", ""))
        answer = _decoded(text)
        if answer is None:
            raise _unreachable(request, ValueError("the answer is not a JSON object"))
        return answer

    async def _authorization(self) -> dict[str, str]:
        now = asyncio.get_running_loop().time()
        if isinstance(self._login, ServiceAccount) and now - self._token_read >= TOKEN_READ_EVERY:
            # The kubelet replaces the token long before it ends: a file that cannot be read now may be in a moment.
            try:
                self._configuration.api_key = {"BearerToken": f"Bearer {self._login.token()}"}
                self._token_read = now
            except ConfigurationError as error:
                log.warning("token_unreadable", error=str(error))
        settings = await self._configuration.auth_settings()
        return {
            str(auth["key"]).title(): str(auth["value"])
            for auth in settings.values()
            if auth["in"] == "header"
        }

    def _refusal(self, request: Request, status: int, text: bytes, retry_after: str) -> KubeError:
        body = _decoded(text) or {}
        words = str(body.get("message") or text[:200].decode("utf-8", "replace") or f"HTTP {status}")
        about: Mapping[str, Any] = {
            "verb": request.verb,
            "resource": request.target,
            "where": request.where,
            "status": status,
        }
        match status:
            case 404:
                return NotFound(words, **about)
            case 409 if body.get("reason") != "AlreadyExists" or request.method == "POST":
                return Conflict(words, **about)
            case 410:
                return Gone(words, **about)
            case 403 if _is_admission(words):
                return Rejected(words, **about)
            case 403:
                return Forbidden(words, **about)
            case 401 | 408 | 429:
                self._token_read = 0.0 if status == 401 else self._token_read
                return Busy(words, retry_after=_seconds(retry_after), **about)
            case _ if status >= 500:
                return Busy(words, retry_after=_seconds(retry_after), **about)
            case _:
                return Rejected(words, **about)


def _decoded(text: bytes) -> Object | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_admission(words: str) -> bool:
    """Admission plugins and quota answer 403 as a missing role does; only the words tell."""
    return any(
        sign in words for sign in ("exceeded quota", "admission", "violates PodSecurity", "being terminated")
    )


def _seconds(header: str) -> float:
    return float(header) if header.isdigit() else 0.0


def _unreachable(request: Request, error: Exception) -> Unreachable:
    words = str(error) or type(error).__name__
    return Unreachable(words, verb=request.verb, resource=request.target, where=request.where)


def metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found = raw.get("metadata")
    return found if isinstance(found, dict) else {}
