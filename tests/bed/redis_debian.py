"""Redis for the image of that name, from Debian's packages."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from bed.debian import root_filesystem, update_lists
from bed.keys import key_of
from bed.locks import locked
from bed.routes import Route
from bed.shell import run
from bed.steps import step

PACKAGES = ("redis-server", "redis-tools")


def redis_packages(route: Route, base: Sequence[str], cache: Path, log: Path) -> Path | None:
    """A folder with Redis's packages and what the base image lacks for them; None where the build fetches them."""
    if route is Route.PUBLIC:
        return None
    folder = cache / "debian" / f"redis-{key_of(*PACKAGES, *base)}"
    if folder.is_dir():
        return folder
    root = root_filesystem("base", base, cache, log)
    with locked(cache / "locks" / "debian-redis", "Redis's packages"):
        if not folder.is_dir():
            with step("fetching Redis's packages"):
                half = folder.with_name(folder.name + ".half")
                shutil.rmtree(half, ignore_errors=True)
                (half / "partial").mkdir(parents=True)
                update_lists(log)
                run(
                    [
                        *("apt-get", "install", "-y", "-q", "--no-install-recommends", "--download-only"),
                        # As if the host had what the base image has: so exactly the missing packages are fetched.
                        *("-o", f"Dir::State::status={root / 'var/lib/dpkg/status'}"),
                        *("-o", f"Dir::Cache::archives={half}", "-o", "Debug::NoLocking=true"),
                        *PACKAGES,
                    ],
                    log=log,
                )
                for leftover in ("partial", "lock"):
                    shutil.rmtree(half / leftover, ignore_errors=True)
                    (half / leftover).unlink(missing_ok=True)
                os.rename(half, folder)
    return folder
