"""How the operator asks the API server: paced, with a token that is read again, with errors of our own."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dockwork_operator.errors import (
    Busy,
    ConfigurationError,
    Conflict,
    Forbidden,
    Gone,
    KubeError,
    NotFound,
    Rejected,
)
from dockwork_operator.kube.client import TOKEN_READ_EVERY, KubeClient, Request
from dockwork_operator.kube.credentials import KubeConfigFile, ServiceAccount, find_login
from dockwork_operator.kube.limits import RateLimit
from dockwork_operator.kube.resources import CRONJOBS, DEPLOYMENTS, PODS, QUEUES


@pytest.mark.covers("OP-301")
@pytest.mark.looptime
async def test_requests_are_paced_at_20_per_second_with_a_burst_of_40() -> None:
    limit, loop = RateLimit(20, 40), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(40):
        await limit.take()
    assert loop.time() - began < 0.001
    for _ in range(100):
        await limit.take()
    assert loop.time() - began == pytest.approx(5.0, abs=0.1)


@pytest.mark.covers("OP-301")
@pytest.mark.looptime
async def test_the_token_file_is_read_again_each_minute(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("")
    client = KubeClient(ServiceAccount("https://kubernetes", tmp_path), limit=RateLimit(20, 40))
    client._configuration = Configuration()
    client._token_read = float("-inf")
    assert await client._authorization() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second")
    assert await client._authorization() == {"Authorization": "Bearer first"}
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=TOKEN_READ_EVERY)
    assert await client._authorization() == {"Authorization": "Bearer second"}
    (tmp_path / "token").unlink()
    await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=TOKEN_READ_EVERY)
    assert await client._authorization() == {"Authorization": "Bearer second"}


class Configuration:
    """As much of the package's configuration as a login needs."""

    def __init__(self) -> None:
        self.api_key: dict[str, str] = {}

    async def auth_settings(self) -> dict[str, dict[str, str]]:
        return {"BearerToken": {"in": "header", "key": "authorization", "value": self.api_key["BearerToken"]}}


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (404, "not there", NotFound),
        (409, "modified", Conflict),
        (410, "too old", Gone),
        (403, 'pods is forbidden: User "x" cannot list resource', Forbidden),
        (403, "exceeded quota: small", Rejected),
        (403, 'violates PodSecurity "restricted:latest"', Rejected),
        (400, "bad", Rejected),
        (422, "invalid", Rejected),
        (401, "who are you", Busy),
        (429, "slow down", Busy),
        (500, "oops", Busy),
        (504, "timeout", Busy),
    ],
)
@pytest.mark.covers("OP-101")
def test_each_status_has_its_error(status: int, message: str, kind: type[KubeError]) -> None:
    client = KubeClient(KubeConfigFile(Path("x")), limit=RateLimit(20, 40))
    request = Request(
        method="PATCH",
        verb="patch",
        resource=DEPLOYMENTS,
        namespace="shop",
        name="mail-worker",
        subresource="scale",
    )
    error = client._refusal(request, status, f'{{"message": {message!r}}}'.replace("'", '"').encode(), "7")
    if '"' in message:
        error = client._refusal(request, status, message.encode(), "7")
    assert type(error) is kind
    assert (error.verb, error.resource, error.where) == (
        "patch",
        "deployments.apps/scale",
        "shop/mail-worker",
    )
    assert message[:20] in error.words
    if isinstance(error, Busy):
        assert error.retry_after == 7.0


def test_paths_are_the_api_servers() -> None:
    assert (
        QUEUES.path("shop", "mail", "status")
        == "/apis/dockwork.dev/v1alpha1/namespaces/shop/queues/mail/status"
    )
    assert CRONJOBS.path(None) == "/apis/dockwork.dev/v1alpha1/queuecronjobs"
    assert PODS.path("shop") == "/api/v1/namespaces/shop/pods"


def test_the_login_is_the_pods_or_a_named_file_and_never_a_default() -> None:
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443", "KUBECONFIG": "/x"}
    assert find_login(pod) == ServiceAccount("https://10.0.0.1:443")
    assert find_login({**pod, "KUBERNETES_SERVICE_HOST": "fd00::1"}) == ServiceAccount(
        "https://[fd00::1]:443"
    )
    assert find_login({"KUBECONFIG": "/x"}) == KubeConfigFile(Path("/x"))
    with pytest.raises(ConfigurationError, match="KUBECONFIG"):
        find_login({"HOME": "/root"})
