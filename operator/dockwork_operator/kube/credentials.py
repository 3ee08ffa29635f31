"""Where the API server is and how the operator logs in: a pod's service account, else a kubeconfig file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubernetes.aio.client import Configuration
from kubernetes.aio.config import load_kube_config

from dockwork_operator.errors import ConfigurationError

ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """The projected token of this pod. The kubelet renews the file, so it is read again, never kept for ever."""

    host: str
    folder: Path = ACCOUNT_FOLDER

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.crt"

    def token(self) -> str:
        try:
            token = (self.folder / "token").read_text(encoding="ascii").strip()
        except OSError as error:
            raise ConfigurationError(
                f"no service account token in {self.folder}: {error.strerror}"
            ) from error
        if not token:
            raise ConfigurationError(f"the service account token in {self.folder} is empty")
        return token


@dataclass(frozen=True, slots=True)
class KubeConfigFile:
    """A kubeconfig, for an operator that runs outside a cluster (tests, development)."""

    path: Path


Login = ServiceAccount | KubeConfigFile


def find_login(environ: Mapping[str, str]) -> Login:
    """The pod's service account when there is one, else the file that KUBECONFIG names.

    A default such as ~/.kube/config is never taken: an operator must not act on whatever context is current.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if host and port:
        name = f"[{host}]" if ":" in host else host
        return ServiceAccount(f"https://{name}:{port}")
    if path := environ.get("KUBECONFIG", ""):
        return KubeConfigFile(Path(path))
    raise ConfigurationError(
        "neither in a pod (KUBERNETES_SERVICE_HOST) nor with KUBECONFIG set: no API server to talk to"
    )


async def load_configuration(login: Login) -> Any:
    """The client's settings for `login`: server, certificate authority, and credentials as of now."""
    configuration = Configuration()
    match login:
        case ServiceAccount():
            configuration.host = login.host
            configuration.ssl_ca_cert = str(login.ca_file)
            configuration.api_key = {"BearerToken": f"Bearer {login.token()}"}
        case KubeConfigFile():
            if not login.path.is_file():
                raise ConfigurationError(f"KUBECONFIG names {login.path}, which is no file")
            await load_kube_config(
                config_file=str(login.path), client_configuration=configuration, persist_config=False
            )
    # The proxy variables of a pod are for its outbound traffic, not for the API server; kopf ignores them too.
    configuration.client_session_kwargs = {"trust_env": False}
    configuration.connection_pool_maxsize = 50
    return configuration


def login_of(environ: Mapping[str, str] | None = None) -> Login:
    return find_login(os.environ if environ is None else environ)
