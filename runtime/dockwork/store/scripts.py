"""The Lua scripts: read from the package, with their includes put in, and known by their SHA-1.

An include is one local function in ``lua/lib``, named as its file. Its line ``--- @include "name"`` is replaced
by the text, once per script, what it needs itself before it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r'^--- @include "(\w+)"[ \t]*$', re.MULTILINE)
_KEY_LINE = re.compile(r"^-- KEYS\[(\d+)\]\s+(\w+)", re.MULTILINE)

Read = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Script:
    """One script as Redis gets it.

    key_names    of its header, in order: names of `QueueKeys` properties
    """

    name: str
    text: str
    sha: str
    key_names: tuple[str, ...]


class BadInclude(Exception):
    """A script's includes do not add up."""


def _read_packaged(path: str) -> str:
    return files("dockwork").joinpath("lua", path).read_text(encoding="utf-8")


def expand(name: str, read: Read = _read_packaged) -> str:
    """The text of script `name` with each include put in once, before its first use.

    read      path below lua/ -> text
    Raises    BadInclude for a cycle, and for an include that does not define its own name exactly once
    """
    placed: set[str] = set()

    def put(text: str, trail: tuple[str, ...]) -> str:
        def replace(match: re.Match[str]) -> str:
            wanted = match.group(1)
            if wanted in trail:
                raise BadInclude(f"{name}: include cycle {' -> '.join((*trail, wanted))}")
            if wanted in placed:
                return ""
            body = read(f"lib/{wanted}.lua")
            if len(re.findall(rf"^local function {wanted}\(", body, re.MULTILINE)) != 1:
                raise BadInclude(f"{name}: lib/{wanted}.lua must define `local function {wanted}` once")
            whole = put(body, (*trail, wanted))
            placed.add(wanted)
            return whole.rstrip("\n")

        return _INCLUDE.sub(replace, text)

    return _without_comments(put(read(f"{name}.lua"), ()))


def _without_comments(text: str) -> str:
    """Whole-line comments and blank lines cost bytes at each connect and nothing else."""
    lines = [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("--")]
    return "\n".join(lines) + "\n"


def key_names(header: str) -> tuple[str, ...]:
    """The names of a script's keys, from the contract at its top."""
    found = _KEY_LINE.findall(header)
    if [int(number) for number, _ in found] != list(range(1, len(found) + 1)):
        raise BadInclude(f"KEYS are not numbered from 1: {found}")
    return tuple(word for _, word in found)


@cache
def script(name: str) -> Script:
    """The script in ``lua/<name>.lua``."""
    text = expand(name)
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return Script(name, text, sha, key_names(_read_packaged(f"{name}.lua")))


@cache
def script_names() -> tuple[str, ...]:
    """Every script in the package, by name."""
    found = (entry.name for entry in files("dockwork").joinpath("lua").iterdir())
    return tuple(sorted(name.removesuffix(".lua") for name in found if name.endswith(".lua")))


def all_scripts() -> Sequence[Script]:
    return [script(name) for name in script_names()]
