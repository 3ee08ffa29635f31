"""What a green commit on main releases: the version that it says, once, from exactly that commit.

A release is a change of `runtime/dockwork/version.py` that was merged and found green. This program looks at one
commit, and prints the tag to make, or nothing. It pushes nothing itself, and never to main.

    python scripts/release.py COMMIT        prints `v1.2.0` and exits 0, or prints nothing and exits 0
    exits 1 where the version cannot be released: it is lower than the last one, or its tag is on another commit
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION_FILE = "runtime/dockwork/version.py"
_SAID = re.compile(r'^__version__ = "(?P<version>[^"]+)"$', re.MULTILINE)
#: Final releases and release candidates. Anything with `dev` in it is work under way.
_RELEASED = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+))?")


class CannotRelease(Exception):
    """Says why, for the log."""


def git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout.strip()


def version_at(root: Path, commit: str) -> str:
    """The version that the commit says. Raises CannotRelease where it says none."""
    found = _SAID.search(git(root, "show", f"{commit}:{VERSION_FILE}"))
    if found is None:
        raise CannotRelease(f"{VERSION_FILE} says no version")
    return found["version"]


def order(version: str) -> tuple[int, int, int, int]:
    """For comparing: a candidate comes before its release. Raises CannotRelease."""
    found = _RELEASED.fullmatch(version)
    if found is None:
        raise CannotRelease(f"expected a version such as 1.2.0 or 1.2.0rc1, got {version}")
    major, minor, patch, candidate = found.groups()
    return int(major), int(minor), int(patch), 10**6 if candidate is None else int(candidate)


def tag_for(root: Path, commit: str) -> str:
    """The tag to put on `commit`, "" for none: no change of version, no release."""
    sha = git(root, "rev-parse", f"{commit}^{{commit}}")
    version = version_at(root, sha)
    if "dev" in version:
        return ""
    mine, tag = order(version), f"v{version}"
    tags = git(root, "tag", "--list", "v*").split()
    if tag in tags:
        on = git(root, "rev-parse", f"{tag}^{{commit}}")
        if on != sha and not _is_behind(root, on, sha):
            raise CannotRelease(f"{tag} is on {on}, which {sha} does not follow")
        return ""
    last = max(
        (order(each.removeprefix("v")) for each in tags if _RELEASED.fullmatch(each[1:])), default=None
    )
    if last is not None and mine < last:
        raise CannotRelease(f"{version} is lower than the last release")
    return tag


def _is_behind(root: Path, older: str, newer: str) -> bool:
    done = subprocess.run(["git", "merge-base", "--is-ancestor", older, newer], cwd=root, check=False)
    return done.returncode == 0


def main() -> int:
    if len(sys.argv) != 2:
        print("expected one commit", file=sys.stderr)
        return 2
    try:
        tag = tag_for(ROOT, sys.argv[1])
    except CannotRelease as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    if tag:
        print(tag)
    return 0


if __name__ == "__main__":
    sys.exit(main())
