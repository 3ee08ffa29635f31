"""The Docker daemon that a bed uses: the host's, or a private one whose files all lie in the cache."""

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bed.debian import SYSTEM_PATH, unpacked
from bed.errors import BedError
from bed.locks import locked
from bed.shell import found, last_lines, run, succeeds
from bed.steps import step
from bed.waits import wait_until

HERE = Path(__file__).resolve().parent
WRAPPER = HERE / "engine" / "runc-without-sys-resource"
CAP_SYS_RESOURCE = 24
LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """How to reach a Docker daemon: `environment` goes to every program that speaks to it."""

    docker: Path
    environment: dict[str, str]

    def run(self, *words: str | Path, stdin: bytes | None = None, log: Path | None = None) -> str:
        """What `docker WORDS` printed."""
        return run([self.docker, *words], env=self.environment, stdin=stdin, log=log)

    def has_image(self, tag: str) -> bool:
        return succeeds([self.docker, "image", "inspect", tag], env=self.environment)

    def popen(
        self, *words: str, stdin: int | None = None, stdout: int | None = None
    ) -> "subprocess.Popen[bytes]":
        """`docker WORDS`, started; stderr is kept for the error."""
        environment = {**os.environ, **self.environment}
        argv = [str(self.docker), *words]
        return subprocess.Popen(argv, env=environment, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE)

    def import_folder(self, root: Path, tag: str) -> None:
        """Makes an image whose only layer is the file system `root`, owners and attributes kept."""
        tar = subprocess.Popen(
            ["nice", "-n", "10", "tar", "-C", str(root), "--numeric-owner", "--xattrs", "-c", "."],
            stdout=subprocess.PIPE,
        )
        assert tar.stdout is not None
        with tar.stdout as pipe:
            taker = self.popen("import", "-", tag, stdin=pipe.fileno(), stdout=subprocess.DEVNULL)
        _, said = taker.communicate()
        if tar.wait() != 0 or taker.returncode != 0:
            raise BedError(
                f"docker import: {said.decode(errors='replace').strip()}", remedy="see to the disk: df"
            )


def host_engine() -> Engine | None:
    """The daemon of the host, if its client is there and it answers."""
    docker = found("docker")
    if docker is None or not succeeds([docker, "info"], seconds=20):
        return None
    return Engine(docker=docker, environment={})


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivateEngine:
    """A Docker daemon of ours, one for all beds of a cache.

    Outside its folder there are only its firewall chains and the bridge of kind's network.
    """

    cache: Path

    @property
    def folder(self) -> Path:
        return self.cache / "engine"

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def log(self) -> Path:
        return self.folder / "dockerd.log"

    @property
    def pid_file(self) -> Path:
        return self.folder / "dockerd.pid"

    @property
    def lock(self) -> Path:
        return self.cache / "locks" / "engine"

    def programs_path(self) -> str:
        """PATH with the unpacked package first."""
        package = self.cache / "debian" / "docker.io"
        return f"{package / 'usr/bin'}:{package / 'usr/sbin'}:{SYSTEM_PATH}"

    def engine(self) -> Engine:
        docker = found("docker", self.programs_path())
        if docker is None:
            raise BedError("docker: not found in the cache", remedy="make cluster")
        path = f"{self.programs_path()}:{os.environ.get('PATH', '')}"
        # Debian's Docker has only the first builder; a newer client would ask for the second.
        where = {"DOCKER_HOST": f"unix://{self.socket}", "DOCKER_BUILDKIT": "0", "PATH": path}
        return Engine(docker=docker, environment=where)

    def is_up(self) -> bool:
        if not self.socket.exists() or self.pid() is None:
            return False
        docker = found("docker", self.programs_path())
        where = {"DOCKER_HOST": f"unix://{self.socket}"}
        return docker is not None and succeeds([docker, "info"], env=where, seconds=20)

    def pid(self) -> int | None:
        """The daemon's process, if it lives."""
        try:
            pid = int(self.pid_file.read_text())
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        return pid if str(self.pid_file).encode() in command else None

    def up(self) -> Engine:
        """Starts the daemon unless it answers; starting it twice at once is prevented by a lock."""
        unpacked("docker.io", self.cache, self.log)
        with locked(self.lock, "the Docker daemon"):
            if not self.is_up():
                with step("starting a private Docker daemon"):
                    self._start()
        return self.engine()

    def _start(self) -> None:
        if len(str(self.socket)) > LONGEST_SOCKET_PATH:
            raise BedError(
                f"{self.socket}: a socket's path may have {LONGEST_SOCKET_PATH} bytes",
                remedy="export DOCKWORK_CACHE=/some/shorter/folder",
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.pid() is None:
            self.pid_file.unlink(missing_ok=True)
            # Forwarding is on before the daemon starts: else it turns it on itself and sets FORWARD to DROP.
            _write_sysctl("net/ipv4/ip_forward", "1")
            _write_sysctl("fs/inotify/max_user_instances", "8192")
            with self.log.open("ab") as log:
                subprocess.Popen(
                    self._command(),
                    env={**os.environ, "PATH": self.programs_path()},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        try:
            wait_until(self.is_up, seconds=60, what="the Docker daemon answers")
        except BedError as error:
            raise BedError(
                f"{error.message}\n{last_lines(self.log.read_text(errors='replace'))}",
                remedy=f"see {self.log}",
            ) from None

    def _command(self) -> list[str]:
        words = [
            *("dockerd", "--data-root", str(self.folder / "data"), "--exec-root", str(self.folder / "exec")),
            *("--pidfile", str(self.pid_file), "--host", f"unix://{self.socket}"),
            *("--bridge=none", "--oom-score-adjust=0"),
            # Names that are not a container's are asked of nobody: each node's own loopback refuses at once.
            "--dns=127.0.0.1",
        ]
        if lacks_capability(Path("/proc/self/status").read_text(), CAP_SYS_RESOURCE):
            words += ["--add-runtime", f"modest={WRAPPER}", "--default-runtime", "modest"]
        return words

    def down(self) -> None:
        """Stops the daemon and takes its traces out of the host's network."""
        with locked(self.lock, "the Docker daemon"):
            pid = self.pid()
            if pid is None:
                return
            with step("stopping the private Docker daemon"):
                succeeds([self.engine().docker, "network", "rm", "kind"], env=self.engine().environment)
                os.kill(pid, signal.SIGTERM)
                wait_until(lambda: self.pid() is None, seconds=60, what="the Docker daemon ends")
                _remove_firewall_chains()


def lacks_capability(status: str, bit: int) -> bool:
    """Whether the bounding set in this text of /proc/self/status lacks the capability number `bit`."""
    for line in status.splitlines():
        if line.startswith("CapBnd:"):
            return not int(line.split()[1], 16) >> bit & 1
    return False


def _write_sysctl(name: str, value: str) -> None:
    file = Path("/proc/sys") / name
    if file.is_file() and file.read_text().strip() != value:
        file.write_text(value)


def daemons_alive() -> int:
    """How many processes of this machine are called dockerd."""
    count = 0
    for name in Path("/proc").glob("[0-9]*/comm"):
        try:
            count += name.read_text().strip() == "dockerd"
        except OSError:
            continue
    return count


def _remove_firewall_chains() -> None:
    """Takes away the chains that Docker leaves; not while another daemon lives, for it needs them."""
    if daemons_alive():
        return
    for table in ("filter", "nat"):
        rules = run(["iptables", "-w", "-t", table, "-S"]).splitlines()
        for arguments in firewall_removals(rules):
            succeeds(["iptables", "-w", "-t", table, *arguments])


def firewall_removals(rules: list[str]) -> list[list[str]]:
    """The iptables arguments that take Docker's chains out of a table, in an order that works.

    rules   lines of `iptables -S`: first the jumps into the chains go, then their rules, then they themselves
    """
    chains = [rule.split()[1] for rule in rules if rule.startswith("-N DOCKER")]
    jumps = [
        ["-D", *rule.split()[1:]]
        for rule in rules
        if rule.startswith("-A ") and rule.split()[1] not in chains and rule.split()[-1] in chains
    ]
    return [*jumps, *(["-F", chain] for chain in chains), *(["-X", chain] for chain in chains)]
