"""Removing and renewing folders in which other programs may have mounted something."""

import shutil
from pathlib import Path

from bed.shell import run


def mounts_below(folder: Path, mounts: str) -> list[str]:
    """The places below `folder` on which something is mounted, the deepest first.

    mounts   the text of /proc/self/mounts, where a space in a path is written \\040
    """
    prefix = f"{folder}/"
    places = [line.split()[1].replace("\\040", " ") for line in mounts.splitlines() if line]
    return sorted((place for place in places if place.startswith(prefix)), key=len, reverse=True)


def remove_tree(folder: Path) -> None:
    """Removes `folder` if it is there, after unmounting what is mounted below.

    A killed debootstrap leaves the host's /proc mounted in its folder; nothing may be deleted through that.
    """
    table = Path("/proc/self/mounts")
    for place in mounts_below(folder, table.read_text()) if table.exists() else []:
        run(["umount", place], remedy=f"end what still uses {place}")
    if folder.exists():
        shutil.rmtree(folder)


def fresh(folder: Path) -> Path:
    """`folder`, empty, whatever a killed run left there."""
    remove_tree(folder)
    folder.mkdir(parents=True)
    return folder
