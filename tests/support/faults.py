"""A proxy before the API server: it counts what the operator asks, and answers for the server where a test wants.

proxy.fail(403, "PATCH", "/deployments/")      the next matching request (times=n, or None for all)
proxy.drop_watches()                           cuts every open watch
proxy.writes()                                 what would have changed the cluster so far
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from support.apiserver import ApiServer

WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
REASONS = {
    403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired", 422: "Invalid", 429: "TooManyRequests",
    500: "InternalError", 503: "ServiceUnavailable",
}  # fmt: skip
#: Headers of one hop. Content-Encoding is not one: bodies pass as they are, and large ones are compressed.
HOP = {"transfer-encoding", "content-length", "connection", "keep-alive"}


@dataclass(frozen=True)
class Seen:
    """One request of the operator."""

    method: str
    path: str
    query: str
    body: Any = None
    status: int = 0

    @property
    def is_write(self) -> bool:
        """It would change the cluster: access reviews do not, the Lease is counted apart."""
        return (
            self.method in WRITING
            and "/leases" not in self.path
            and "selfsubjectaccessreviews" not in self.path
        )

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class Fault:
    """What is done to matching requests instead of passing them on.

    status      answered; 0 cuts the connection without an answer
    after       the server is asked first and its answer is thrown away: a reply that was lost
    """

    status: int
    method: str
    path: str
    times: int | None = 1
    message: str = "injected"
    headers: dict[str, str] = field(default_factory=dict)
    after: bool = False
    hits: int = 0

    def matches(self, request: web.Request) -> bool:
        return (
            (self.times is None or self.hits < self.times)
            and re.fullmatch(self.method, request.method) is not None
            and re.search(self.path, request.path_qs) is not None
        )


class FaultyProxy:
    """HTTP on a loopback port, TLS to the API server behind it."""

    def __init__(self, server: ApiServer, *, token: str = "") -> None:
        self._server = server
        self._token = token or server.token
        self._faults: list[Fault] = []
        self._streams: set[asyncio.Task[Any]] = set()
        self._handlers: set[asyncio.Task[Any]] = set()
        self._stopped = False
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.seen: list[Seen] = []
        self.url = ""

    async def start(self) -> None:
        context = ssl.create_default_context(cafile=str(self._server.ca))
        connector = aiohttp.TCPConnector(ssl=context, limit=0)
        self._session = aiohttp.ClientSession(connector=connector, auto_decompress=False)
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        self._stopped = True
        self.drop_watches()
        for handler in list(self._handlers):
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            assert self._session.connector is not None
            # A polite end of TLS would still be under way when the loop closes.
            await self._session.connector.close(abort_ssl=True)
            await self._session.close()

    def kubeconfig(self, folder: Path, name: str = "proxied") -> Path:
        """A kubeconfig that leads here."""
        path = folder / f"{name}.json"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxied",
            "clusters": [{"name": "proxied", "cluster": {"server": self.url}}],
            "users": [{"name": "operator", "user": {"token": self._token}}],
            "contexts": [{"name": "proxied", "context": {"cluster": "proxied", "user": "operator"}}],
        }
        path.write_text(json.dumps(content))
        return path

    # --- what tests ask ------------------------------------------------------------------------------------

    def fail(self, status: int, method: str, path: str, **more: Any) -> Fault:
        """Answer requests that match with `status`; `path` is searched in path and query."""
        fault = Fault(status, method, path, **more)
        self._faults.append(fault)
        return fault

    def heal(self) -> None:
        self._faults.clear()

    def drop_watches(self) -> int:
        """Cut every open watch; how many there were."""
        streams = list(self._streams)
        for task in streams:
            task.cancel()
        return len(streams)

    @property
    def watches(self) -> int:
        return len(self._streams)

    def forget(self) -> None:
        self.seen.clear()

    def writes(self, pattern: str = "") -> list[Seen]:
        """Requests so far that would change the cluster, the Lease aside."""
        return [seen for seen in self.seen if seen.is_write and re.search(pattern, str(seen))]

    def paths(self, pattern: str) -> Sequence[str]:
        return [str(seen) for seen in self.seen if re.search(pattern, str(seen))]

    # --- HTTP ----------------------------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self._stopped:
            return web.Response(status=503)
        task = asyncio.create_task(self._answer(request), name=f"{request.method} {request.path}")
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        try:
            return await task
        except asyncio.CancelledError:
            task.cancel()
            return web.Response(status=503)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        fault = next((fault for fault in self._faults if fault.matches(request)), None)
        if fault is not None:
            fault.hits += 1
            if fault.after:
                await self._forward(request, body, discard=True)
            self._note(request, body, fault.status)
            if fault.status == 0:
                assert request.transport is not None
                request.transport.abort()
            return _refusal(fault)
        return await self._forward(request, body)

    async def _forward(
        self, request: web.Request, body: bytes, *, discard: bool = False
    ) -> web.StreamResponse:
        assert self._session is not None
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in {"host", *HOP}
        }
        url = self._server.url + request.path_qs
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method, url, headers=headers, data=body or None, timeout=timeout
        ) as answer:
            if not discard:
                self._note(request, body, answer.status)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP}
            if "watch=true" not in request.query_string:
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            await self._stream(request, answer, response)
            return response

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> None:
        async def pump() -> None:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)

        task = asyncio.create_task(pump(), name=f"watch {request.path}")
        self._streams.add(task)
        try:
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                await task
        except asyncio.CancelledError:
            if request.transport is not None:
                request.transport.abort()
        finally:
            task.cancel()
            self._streams.discard(task)

    def _note(self, request: web.Request, body: bytes, status: int) -> None:
        try:
            parsed: Any = json.loads(body) if body else None
        except ValueError:
            parsed = None
        self.seen.append(Seen(request.method, request.path, request.query_string, parsed, status))


def _refusal(fault: Fault) -> web.Response:
    status = {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": fault.status,
        "reason": REASONS.get(fault.status, ""), "message": fault.message,
    }  # fmt: skip
    return web.json_response(status, status=fault.status or 502, headers=fault.headers)
