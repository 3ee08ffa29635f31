"""Running programs: what they print goes to a log, and their last words into the error."""

import ctypes
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from bed.errors import BedError

LAST_LINES = 12

_LIBC = ctypes.CDLL(None)
_SET_PARENT_DEATH_SIGNAL = 1


def end_with_parent() -> None:
    """For `preexec_fn`: asks the kernel (Linux) to end the new process when the one that started it dies.

    So a killed run leaves no debootstrap or containerd behind that works on the files of the next run.
    """
    if hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGTERM)


def last_lines(text: str, count: int = LAST_LINES) -> str:
    return "\n".join(f"    | {line}" for line in text.strip().splitlines()[-count:])


def run(
    argv: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    log: Path | None = None,
    remedy: str = "",
) -> str:
    """What the program printed to stdout; with `log`, stdout and stderr are appended there too.

    env      added to this process's environment
    Raises   BedError with the last lines, when it cannot be started or does not exit with 0
    """
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            input=stdin,
            capture_output=True,
            check=False,
            preexec_fn=end_with_parent,
        )
    except FileNotFoundError:
        raise BedError(f"{words[0]}: not found", remedy=f"install {words[0]}, or put it on PATH") from None
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write(f"$ {shlex.join(words)}\n{out}{err}exit {done.returncode}\n")
    if done.returncode != 0:
        where = f" (all of it: {log})" if log else ""
        raise BedError(
            f"{shlex.join(words)[:300]}: exit {done.returncode}{where}\n{last_lines(err or out)}",
            remedy=remedy,
        )
    return out


def succeeds(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, seconds: float = 60
) -> bool:
    """Whether the program is there and exits with 0 within `seconds`."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def niced(argv: Sequence[str | Path]) -> list[str | Path]:
    """The command at low priority: builds take minutes, and somebody works on this machine."""
    return ["nice", "-n", "10", *argv]


def found(name: str, path: str | None = None) -> Path | None:
    """Where `name` is on PATH (or on `path`)."""
    place = shutil.which(name, path=path)
    return Path(place) if place else None
