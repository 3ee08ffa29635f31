"""Plain requests to a test API server, without kubectl's start-up time."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from support.apiserver import ApiServer

Json = dict[str, Any]

PLURALS = {"Queue": "queues", "CronJob": "queuecronjobs", "NetworkPolicy": "networkpolicies"}


@dataclass(frozen=True)
class Answer:
    """What the API server said to one request."""

    code: int
    body: Json

    @property
    def causes(self) -> list[Json]:
        """Each refused field with its message."""
        return list((self.body.get("details") or {}).get("causes") or [])

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Api:
    """Requests as the administrator, without kubectl's start-up time."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._context = ssl.create_default_context(cafile=str(server.ca))

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, kind: str = "application/json"
    ) -> Answer:
        """The answer, whatever its code."""
        request = urllib.request.Request(
            self._server.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._server.token}", "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._context) as response:
                return Answer(response.status, json.load(response))
        except urllib.error.HTTPError as error:
            return Answer(error.code, json.load(error))

    def create(self, made: Json, *, dry_run: bool = False) -> Answer:
        """POST an object of ours with strict field validation."""
        made = {
            **made,
            "metadata": {key: v for key, v in made["metadata"].items() if key not in ("uid", "generation")},
        }
        query = "fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        return self.ask("POST", f"{self.path_of(made, named=False)}?{query}", made)

    def get(self, made: Json) -> Json:
        """The object as it is stored."""
        return self.ask("GET", self.path_of(made)).body

    def merge(self, made: Json, patch: Mapping[str, Any], *, below: str = "") -> Answer:
        """A merge patch, of the object or of a subresource."""
        path = self.path_of(made) + (f"/{below}" if below else "") + "?fieldValidation=Strict"
        return self.ask("PATCH", path, patch, kind="application/merge-patch+json")

    def apply(self, made: Json, *, manager: str = "dockwork") -> Answer:
        """Server-side apply, forced, as the operator does it."""
        query = f"fieldManager={manager}&force=true&fieldValidation=Strict"
        return self.ask("PATCH", f"{self.path_of(made)}?{query}", made, kind="application/apply-patch+yaml")

    def path_of(self, made: Json, *, named: bool = True) -> str:
        """Where the object is."""
        version, kind = made["apiVersion"], made["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        plural = PLURALS.get(kind) or f"{kind.lower()}s"
        path = f"{root}/namespaces/{made['metadata']['namespace']}/{plural}"
        return f"{path}/{made['metadata']['name']}" if named else path
