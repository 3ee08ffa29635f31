"""One API server for the whole tier, with our CRDs in it; no kubelet, no controllers."""

from __future__ import annotations

import itertools
import json
import shutil
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.api_requests import Api
from support.apiserver import ApiServer
from support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[ApiServer]:
    with ApiServer() as started:
        started.kubectl("apply", "--server-side", "-f", str(ROOT / "crds" / "crds.yaml"))
        started.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        # Established is not yet served by every part of the API server: its discovery document comes last.
        until(lambda: "queuecronjobs" in _served(started), within=30, what="our kinds in the API's discovery")
        # kubectl keeps what it discovered before our kinds were there, and looks for no category anew.
        shutil.rmtree(started.folder / "discovery", ignore_errors=True)
        yield started


def _served(server: ApiServer) -> str:
    try:
        return json.dumps(server.get("/apis/dockwork.dev/v1alpha1"))
    except urllib.error.HTTPError:
        return ""


@pytest.fixture(scope="session")
def api(server: ApiServer) -> Api:
    return Api(server)


@pytest.fixture
def namespace(api: Api) -> str:
    """A namespace of the test's own."""
    name = f"ns-{next(_numbers)}"
    assert api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).code == 201
    return name


@pytest.fixture(scope="session")
def shop(api: Api) -> str:
    """The namespace `shop`, shared by tests that only ask with dryRun."""
    assert api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}}).code == 201
    return "shop"


@pytest.fixture
def restricted(api: Api) -> str:
    """A namespace of the test's own that enforces restricted Pod Security."""
    name = f"restricted-{next(_numbers)}"
    labels = {
        "pod-security.kubernetes.io/enforce": "restricted",
        "pod-security.kubernetes.io/enforce-version": "latest",
    }
    assert api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}}).code == 201
    return name
