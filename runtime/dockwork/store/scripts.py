"""The Lua scripts: read from the package, with their includes put in, and known by their SHA-1.

An include is one local function in ``lua/lib``, named as its file. Its line ``--- @include "name"`` is replaced
by the text, once per script, what it needs itself before it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_INCLUDE = re.compile(r'^--- @include "(\w+)"[ \t]*$', re.MULTILINE)
_KEY_LINE = re.compile(r"^-- KEYS\[(\d+)\]\s+(\w+)", re.MULTILINE)
_DEFINES = re.compile(r"^local function (\w+)\(", re.MULTILINE)
_CALLS = re.compile(r'(?<![\w.:"])(\w+)(?=\()')
_GUARDED_CALLS = re.compile(r"\bpcall\((\w+),")

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


@cache
def _folder() -> Traversable:
    return files("dockwork").joinpath("lua")


def _read_packaged(path: str) -> str:
    return _folder().joinpath(path).read_text(encoding="utf-8")


def expand(name: str, read: Read = _read_packaged) -> str:
    """The text of script `name` with each include put in once.

    read      path below lua/ -> text
    Raises    BadInclude for a cycle, and for an include that does not define its own name exactly once
    """
    placed: dict[str, str] = {}

    def put(text: str, trail: tuple[str, ...]) -> str:
        def replace(match: re.Match[str]) -> str:
            wanted = match.group(1)
            if wanted in trail:
                raise BadInclude(f"{name}: include cycle {' -> '.join((*trail, wanted))}")
            if wanted in placed:
                return ""
            body = read(f"lib/{wanted}.lua")
            if _DEFINES.findall(body).count(wanted) != 1:
                raise BadInclude(f"{name}: lib/{wanted}.lua must define `local function {wanted}` once")
            placed[wanted] = put(body, (*trail, wanted))
            return ""

        return _without_comments(_INCLUDE.sub(replace, text))

    return _made_when_called(put(read(f"{name}.lua"), ()), placed)


def _made_when_called(own: str, includes: Mapping[str, str]) -> str:
    """A script whose included functions are made at their first call.

    Redis makes all closures of a script anew in each call of it, and of the hundred that settle includes most calls
    need forty. As locals they were 250 upvalues of each other, and finding each in the list of those open took a sixth
    of a small call (measured); in a table under names, as much went into the table.
    """
    if not includes:
        return own
    numbers = {name: number for number, name in enumerate(includes, 1)}

    def guarded(found: re.Match[str]) -> str:
        number = numbers.get(found[1])
        return found[0] if number is None else f"pcall(fn[{number}],"

    def called(found: re.Match[str]) -> str:
        number = numbers.get(found[1])
        return found[0] if number is None else f"fn[{number}]"

    def refer(text: str) -> str:
        # One pattern for all scripts: the names of each in a pattern of its own took longer than all the rest.
        return _CALLS.sub(called, _GUARDED_CALLS.sub(guarded, text))

    bodies = [
        refer(body.rstrip().replace(f"local function {name}(", "made = function(", 1))
        for name, body in includes.items()
    ]
    nils = ", ".join(["nil"] * len(bodies))
    head = f"local fn = {{{nils}}}\nsetmetatable(fn, {{__index = function(all, n)\nlocal made\n"
    return head + _choice(bodies, 1) + "all[n] = made\nreturn made\nend})\n" + refer(own)


def _choice(bodies: Sequence[str], first: int) -> str:
    """Lua that runs the body of number `n`, the first having `first`, found by halving."""
    if len(bodies) == 1:
        return bodies[0] + "\n"
    half = len(bodies) // 2
    low, high = _choice(bodies[:half], first), _choice(bodies[half:], first + half)
    return f"if n < {first + half} then\n{low}else\n{high}end\n"


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


_called: dict[str, Script] = {}


@cache
def script(name: str) -> Script:
    """The script in ``lua/<name>.lua``."""
    text = expand(name)
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    made = _called[name] = Script(name, text, sha, key_names(_read_packaged(f"{name}.lua")))
    return made


def called_scripts() -> Sequence[Script]:
    """What this process has had to do with so far. To put all fifty together takes longer than all else at a start."""
    return list(_called.values())


@cache
def script_names() -> tuple[str, ...]:
    """Every script in the package, by name."""
    found = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name.removesuffix(".lua") for name in found if name.endswith(".lua")))


def all_scripts() -> Sequence[Script]:
    return [script(name) for name in script_names()]
