"""Wheels for the images: of the locked requirements, and of the project itself."""

import os
import platform
import re
import shutil
import sys
from pathlib import Path

from bed.errors import BedError
from bed.keys import key_of
from bed.locks import locked
from bed.places import ROOT
from bed.shell import run
from bed.steps import step

PYTHON = "3.11"
"""The Python in the images."""

GLIBC = range(36, 4, -1)
"""Minor versions of glibc 2 whose wheels run on Debian 12, the newest first."""

_MARKER = re.compile(r"^(?P<pin>[A-Za-z0-9._-]+==[^\s;\\]+)\s*;\s*(?P<marker>[^\\]*?)\s*(?P<rest>\\?)$")
_ELSEWHERE = re.compile(
    r"""(sys_platform|platform_system|os_name)\s*==\s*['"](win32|Windows|darwin|Darwin|nt)['"]"""
)


def without_markers(lock: str) -> str:
    """The lock without environment markers, and without what only other systems need.

    pip evaluates markers for the Python that runs it, which is another than the image's; so everything is fetched,
    and pip in the image, which gets the lock as it is, takes what its own Python needs.
    """
    kept: list[str] = []
    skipping = False
    for line in lock.splitlines():
        if "==" in line and not line.startswith((" ", "#")):
            found = _MARKER.match(line)
            skipping = found is not None and _ELSEWHERE.search(found["marker"]) is not None
            if found:
                line = f"{found['pin']} {found['rest']}".rstrip()
        if not skipping:
            kept.append(line)
    return "\n".join(kept) + "\n"


def platforms(machine: str) -> list[str]:
    """The wheel platforms that fit the images, for pip: it derives none from the others."""
    return [
        *(f"manylinux_2_{minor}_{machine}" for minor in GLIBC),
        *(f"manylinux{name}_{machine}" for name in ("2014", "2010", "1")),
        f"linux_{machine}",
    ]


def locked_wheels(lock: Path, cache: Path, log: Path) -> Path:
    """The folder with the wheels of `lock`, fetched once, every one compared with its digest."""
    if not lock.is_file():
        raise BedError(f"{lock} is missing", remedy="make lock")
    text = lock.read_text()
    folder = cache / "wheels" / f"{lock.stem}-{key_of(text, PYTHON)}"
    if folder.is_dir():
        return folder
    with locked(cache / "locks" / f"wheels-{lock.stem}", f"the wheels of {lock.name}"):
        if not folder.is_dir():
            with step(f"fetching the wheels of {lock.name}"):
                half = folder.with_name(folder.name + ".half")
                shutil.rmtree(half, ignore_errors=True)
                half.mkdir(parents=True)
                wanted = half / "requirements.txt"
                wanted.write_text(without_markers(text))
                chosen = [word for name in platforms(platform.machine()) for word in ("--platform", name)]
                run(
                    [
                        *(python_with_pip(), "-m", "pip", "download", "-q", "--disable-pip-version-check"),
                        *(
                            "--no-deps",
                            "--require-hashes",
                            "--only-binary=:all:",
                            "--dest",
                            half,
                            "-r",
                            wanted,
                        ),
                        *("--implementation", "cp", "--python-version", PYTHON, *chosen),
                        *("--abi", f"cp{PYTHON.replace('.', '')}", "--abi", "abi3", "--abi", "none"),
                    ],
                    log=log,
                    remedy="see the log; often the network or pip's settings",
                )
                wanted.unlink()
                os.rename(half, folder)
    return folder


def python_with_pip() -> Path:
    """The venv's Python, else the one that runs this."""
    venv = ROOT / ".venv" / "bin" / "python"
    return venv if venv.exists() else Path(sys.executable)


def project_wheel(target: Path, log: Path) -> Path:
    """Builds the project's wheel into the empty folder `target`."""
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    run(
        [
            *(python_with_pip(), "-m", "pip", "wheel", "-q", "--disable-pip-version-check"),
            *("--no-deps", "--no-build-isolation", "--wheel-dir", target, ROOT),
        ],
        # A wheel is a zip file: with a fixed time in it, the same sources give the same bytes and the same layer.
        env={"SOURCE_DATE_EPOCH": "1700000000"},
        log=log,
        remedy="make venv",
    )
    (wheel,) = target.glob("*.whl")
    return wheel
