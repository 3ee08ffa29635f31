"""What the local route takes from Debian: packages of the host, unpacked packages, and root file systems."""

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from bed.errors import BedError
from bed.folders import fresh, remove_tree
from bed.keys import key_of
from bed.locks import locked
from bed.shell import found, niced, run
from bed.steps import say, step

SUITE = "bookworm"

HOST_PACKAGES: dict[str, str] = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "debootstrap": "debootstrap",
}
"""Package -> the program that shows that it is there."""

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_QUIET_APT = {"DEBIAN_FRONTEND": "noninteractive"}
_WAIT_FOR_APT = ("-o", "DPkg::Lock::Timeout=600")


def is_debian(os_release: str) -> bool:
    """Whether this text of /etc/os-release is Debian's own (a derivative has other packages), of our suite."""
    fields = dict(re.findall(r'^(ID|VERSION_CODENAME)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    return fields == {"ID": "debian", "VERSION_CODENAME": SUITE}


def host_mirror(sources: Iterable[str]) -> str:
    """The address from which this host takes Debian, from the texts of its apt sources.

    Both forms are read: `deb [options] ADDRESS SUITE …` and `URIs: ADDRESS` of a deb822 stanza.
    """
    for text in sources:
        for stanza in re.split(r"\n\s*\n", text):
            fields = dict(re.findall(r"^(URIs|Suites):\s*(.+)$", stanza, re.MULTILINE))
            if SUITE in fields.get("Suites", "").split():
                return str(fields["URIs"]).split()[0]
        line = re.search(rf"^deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+{SUITE}\s", text, re.MULTILINE)
        if line:
            return line.group(1)
    raise BedError(
        f"no apt source of this host names the suite {SUITE}",
        remedy=f"add a source of Debian {SUITE} below /etc/apt/sources.list.d",
    )


def require_host_packages(log: Path) -> None:
    """Installs what is missing on the host, named before."""
    missing = [name for name, program in HOST_PACKAGES.items() if found(program, SYSTEM_PATH) is None]
    if not missing:
        return
    say(f"bed: installs on this machine, from Debian: {' '.join(missing)}")
    with step("Debian packages"):
        update_lists(log)
        run(
            ["apt-get", "install", "-y", "-q", "--no-install-recommends", *_WAIT_FOR_APT, *missing],
            env=_QUIET_APT,
            log=log,
            remedy=f"apt-get install {' '.join(missing)}",
        )


def update_lists(log: Path) -> None:
    """Reads apt's package lists anew: old ones name files that a mirror no longer has."""
    run(["apt-get", "update", "-q", *_WAIT_FOR_APT], env=_QUIET_APT, log=log, remedy="see to apt's sources")


def unpacked(package: str, cache: Path, log: Path) -> Path:
    """The folder into which `package` is unpacked, and not installed: nothing of it is started."""
    folder = cache / "debian" / package
    if folder.is_dir():
        return folder
    with locked(cache / "locks" / f"debian-{package}", f"unpacking {package}"):
        if not folder.is_dir():
            with step(f"Debian package {package}, unpacked into the cache"):
                half = fresh(folder.with_name(f"{package}.half"))
                update_lists(log)
                run(["apt-get", "download", "-q", package], cwd=half, log=log)
                (archive,) = half.glob("*.deb")
                run(["dpkg", "-x", archive, half / "files"], log=log)
                os.rename(half / "files", folder)
                remove_tree(half)
    return folder


def root_filesystem(name: str, packages: Sequence[str], cache: Path, log: Path) -> Path:
    """A Debian file system with `packages`, without documentation; made once per list of packages."""
    folder = cache / "rootfs" / f"{name}-{key_of(SUITE, *packages)}"
    if folder.is_dir():
        return folder
    with locked(cache / "locks" / f"rootfs-{name}", f"the file system {name}"):
        if not folder.is_dir():
            with step(f"Debian file system {name}"):
                half = fresh(folder.with_name(folder.name + ".half"))
                mirror = host_mirror(_apt_sources())
                words = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", SUITE]
                run(
                    niced([*words, half, mirror]),
                    log=log,
                    remedy="see the log; often a mirror is unreachable",
                )
                strip(half)
                os.rename(half, folder)
    return folder


def strip(root: Path) -> None:
    """Takes away what no container needs: documentation, other languages, package lists, logs."""
    for place in ("doc", "man", "locale", "info", "lintian"):
        _empty(root / "usr" / "share" / place)
    for place in ("var/lib/apt/lists", "var/cache/apt", "var/cache/debconf", "var/log"):
        _empty(root / place)
    (root / "etc" / "machine-id").write_text("")


def _empty(folder: Path) -> None:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _apt_sources() -> list[str]:
    places = [Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*"))]
    return [place.read_text() for place in places if place.is_file()]
