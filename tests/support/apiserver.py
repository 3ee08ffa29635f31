"""A real API server without nodes: etcd and kube-apiserver as plain processes on free loopback ports.

For the tiers that need the API's behaviour (validation, defaulting, RBAC, watches) and no pods:

    with ApiServer() as server:
        server.kubectl("apply", "-f", "-", input=manifest)

Nothing acts on the objects but the API server itself: there are no controllers, no scheduler, no kubelet.
Both processes end when this one does, however it ends (the section `_keep` below).
"""

import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_HERE = Path(__file__).resolve()
if __name__ == "__main__":
    sys.path[0] = str(_HERE.parents[1])

from bed import programs  # noqa: E402
from support.waiting import Expired, until  # noqa: E402

READY_WITHIN = 60.0
"""Seconds. On an idle machine it takes 3 to 5; a loaded one gets its time."""


class ApiServerError(Exception):
    """The API server did not start, or `kubectl` failed; the message has the last lines of the log."""


class ApiServer:
    """etcd and kube-apiserver, with RBAC, an administrator's token, and a kubeconfig.

    start()        returns when the server is ready and the namespace `default` exists
    stop()         ends the API server before etcd: without etcd it would linger for minutes
    url            https://127.0.0.1:<port>
    ca             the certificate that clients must trust
    token          of a user in system:masters
    kubeconfig     a file with all of these, in the server's own folder
    """

    def __init__(self, *, keep_folder: bool = False, extra_args: Sequence[str] = ()) -> None:
        self.token = secrets.token_urlsafe(24)
        self.url = ""
        self._extra_args = list(extra_args)
        self._keep_folder = keep_folder
        self._folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def __repr__(self) -> str:
        return f"ApiServer({self.url or 'stopped'})"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise ApiServerError("the API server was not started")
        return self._folder

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def ca(self) -> Path:
        return self.folder / "certs" / "apiserver.crt"

    def start(self) -> None:
        """Builds the programs if the cache lacks them, then starts both.

        Three tries, for a port that was free may be taken meanwhile.
        """
        programs.built(programs.API_SERVER)
        failure: ApiServerError | None = None
        for _ in range(3):
            try:
                self._start_once()
            except ApiServerError as error:
                self.stop()
                failure = error
            else:
                return
        assert failure is not None
        raise failure

    def stop(self) -> None:
        """Ends both processes and removes their folder. Harmless when nothing runs."""
        if self._keeper is not None:
            assert self._keeper.stdin is not None
            self._keeper.stdin.close()  # the keeper's sign to end
            self._keeper.wait()
            self._keeper = None
        if self._folder is not None and not self._keep_folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        self.url = ""

    def kubectl(self, *args: str, input: str | None = None) -> str:
        """What `kubectl ARGS` prints to stdout, as the administrator."""
        done = self.try_kubectl(*args, input=input)
        if done.returncode != 0:
            raise ApiServerError(f"kubectl {' '.join(args)}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def try_kubectl(self, *args: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """As `kubectl`, for a test that wants to see the refusal."""
        return subprocess.run(
            [
                programs.program_path("kubectl"),
                "--kubeconfig",
                self.kubeconfig,
                "--cache-dir",
                self.folder / "discovery",
                *args,
            ],
            input=input,
            capture_output=True,
            text=True,
            check=False,
        )

    def get(self, path: str) -> Any:
        """The JSON answer of one GET, as the administrator."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})
        context = ssl.create_default_context(cafile=str(self.ca))
        with urllib.request.urlopen(request, timeout=5, context=context) as response:
            text = response.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def _start_once(self) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="dockwork-apiserver-"))
        ports = _free_ports(3)
        self.url = f"https://127.0.0.1:{ports[2]}"
        _write_keys(folder, self.token)
        commands = [
            _etcd_command(folder, ports[0], ports[1]),
            _server_command(folder, ports[0], ports[2], self._extra_args),
        ]
        argv = json.dumps([[str(word) for word in command] for command in commands])
        with (folder / "keeper.log").open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-S", _HERE, folder, argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,  # a Ctrl-C in the terminal ends the tests first, and they end this
            )
        try:
            until(self._is_ready, within=READY_WITHIN, every=0.05)
        except Expired:
            raise ApiServerError(f"not ready within {READY_WITHIN:.0f} s\n{self._logs()}") from None
        _write_kubeconfig(self.kubeconfig, self.url, self.ca, self.token)

    def _is_ready(self) -> bool:
        assert self._keeper is not None
        if self._keeper.poll() is not None:
            raise ApiServerError(f"a process ended before the API server was ready\n{self._logs()}")
        try:
            return bool(self.get("/readyz") == "ok" and self.get("/api/v1/namespaces/default"))
        except (OSError, urllib.error.URLError):
            return False

    def _logs(self) -> str:
        parts = []
        for log in sorted(self.folder.glob("*.log")):
            lines = log.read_text(errors="replace").strip().splitlines()[-8:]
            parts.append("\n".join([f"{log.name}:", *(f"    | {line[:300]}" for line in lines)]))
        return "\n".join(parts)


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, all different: each is held until all are known."""
    held = [socket.socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()


def _write_keys(folder: Path, token: str) -> None:
    """The token file, and the key that signs service account tokens."""
    tokens = folder / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(f"{token},admin,admin,system:masters\n")
    try:
        subprocess.run(
            ["openssl", "genrsa", "-out", folder / "service-accounts.key", "2048"],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        raise ApiServerError(
            "openssl: not found; it makes the key of the service accounts. Install openssl."
        ) from None


def _write_kubeconfig(file: Path, url: str, ca: Path, token: str) -> None:
    """JSON is YAML, so that no YAML library is needed."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "apiserver", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [
            {
                "name": "apiserver",
                "context": {"cluster": "apiserver", "user": "admin", "namespace": "default"},
            }
        ],
        "current-context": "apiserver",
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(config, indent=2))


def _etcd_command(folder: Path, client_port: int, peer_port: int) -> list[str | Path]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        programs.program_path("etcd"),
        *("--data-dir", folder / "etcd"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *(
            "--listen-peer-urls",
            peer,
            "--initial-advertise-peer-urls",
            peer,
            "--initial-cluster",
            f"default={peer}",
        ),
        "--unsafe-no-fsync",
        *("--log-level", "warn"),
    ]


def _server_command(folder: Path, etcd_port: int, port: int, extra: Sequence[str]) -> list[str | Path]:
    key = folder / "service-accounts.key"
    return [
        programs.program_path("kube-apiserver"),
        *(
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
        ),
        *(
            f"--cert-dir={folder / 'certs'}",
            "--service-cluster-ip-range=10.97.0.0/16",
            "--endpoint-reconciler-type=none",
        ),
        *(
            "--authorization-mode=RBAC",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--anonymous-auth=false",
        ),
        *("--service-account-issuer=https://dockwork.test", f"--service-account-key-file={key}"),
        f"--service-account-signing-key-file={key}",
        # No controller makes the namespaces' default accounts here; this plugin would refuse every pod.
        "--disable-admission-plugins=ServiceAccount",
        "--shutdown-delay-duration=0s",
        *extra,
    ]


# The keeper: this file as a program of its own, between the tests and the two servers. It ends them, in the
# right order, when its stdin closes; that happens when the tests say so, and also when they are killed.


def _die_with_parent() -> None:
    """Asks the kernel to kill this process when the keeper dies, even by SIGKILL."""
    import ctypes

    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def _keep(folder: Path, commands: Sequence[Sequence[str]]) -> int:
    """Runs `commands`; ends them in reverse order at the end of stdin, or when one of them ends by itself."""
    running: list[subprocess.Popen[bytes]] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that a child's end interrupts the wait below
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    for command in commands:
        log = (folder / f"{Path(command[0]).name}.log").open("wb")
        running.append(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        )
    _wait_for_end(wakes, running)
    early = any(process.poll() is not None for process in running)
    for process in reversed(running):
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return 1 if early else 0


def _wait_for_end(wakes: int, running: Sequence[subprocess.Popen[bytes]]) -> None:
    import select

    while all(process.poll() is None for process in running):
        ready, _, _ = select.select([0, wakes], [], [])
        if 0 in ready:
            return
        os.read(wakes, 512)


if __name__ == "__main__":
    sys.exit(_keep(Path(sys.argv[1]), json.loads(sys.argv[2])))
