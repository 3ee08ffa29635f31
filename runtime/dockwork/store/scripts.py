"""The Lua scripts: read from the package, with their includes put in, and known by their SHA-1.

An include is one local function in ``lua/lib``, named as its file. Its line ``--- @include "name"`` is replaced
by the text, once per script, what it needs itself before it.

A script with the line ``--- @flat "name"`` begins with the text of ``lua/flat/<name>.lua``: straight-line code for the
ordinary call, which answers it or, before its first write, gives it to the rest of the script by ``return general()``.

Sources name keys as ``KEYS[n]``, by the header of the script. Redis gets a text that puts together all but the
first, which begin as that does, and a call sends the first alone: reading 36 took a sixth of a small call (measured).
Only a Cluster is sent all of them: while it moves a slot, it looks for the keys of a call before it runs it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from dockwork.core.keys import QueueKeys, QueueName

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_INCLUDE = re.compile(r'^--- @include "(\w+)"[ \t]*$', re.MULTILINE)
_FLAT = re.compile(r'^--- @flat "(\w+)"[ \t]*$\n?', re.MULTILINE)
_KEY = re.compile(r"\bKEYS\[(\d+)\]")
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


def expand(name: str, read: Read = _read_packaged, *, flat: bool = True) -> str:
    """The text of script `name` with each include put in once.

    read      path below lua/ -> text
    flat      False leaves out its text for ordinary calls: all go the general way
    Raises    BadInclude for a cycle, and for an include that does not define its own name exactly once
    """
    text = read(f"{name}.lua")
    names = key_names(text)
    ordinary = _FLAT.search(text)
    placed: dict[str, str] = {}
    general = _put(name, _FLAT.sub("", text), read, placed)
    whole = _made_when_called(general, placed)
    if ordinary and flat:
        # Made as one closure, which makes its own only when it is called.
        path = f"flat/{ordinary.group(1)}"
        whole = f"local function general()\n{whole}end\n" + _inlined(path, read)
    return _with_keys(whole, names)


def _put(name: str, text: str, read: Read, placed: dict[str, str], trail: tuple[str, ...] = ()) -> str:
    """`text` without its includes, which go to `placed`: name -> text, each after what it needs."""

    def replace(match: re.Match[str]) -> str:
        wanted = match.group(1)
        if wanted in trail:
            raise BadInclude(f"{name}: include cycle {' -> '.join((*trail, wanted))}")
        if wanted in placed:
            return ""
        body = read(f"lib/{wanted}.lua")
        if _DEFINES.findall(body).count(wanted) != 1:
            raise BadInclude(f"{name}: lib/{wanted}.lua must define `local function {wanted}` once")
        placed[wanted] = _put(name, body, read, placed, (*trail, wanted))
        return ""

    return _without_comments(_INCLUDE.sub(replace, text))


def _inlined(path: str, read: Read) -> str:
    """A text for ordinary calls, its few includes before it as plain local functions."""
    placed: dict[str, str] = {}
    own = _put(path, read(f"{path}.lua"), read, placed)
    return "".join(placed.values()) + own


@cache
def _endings() -> Mapping[str, str]:
    """How the key of each name ends, after what all keys of a queue begin with."""
    keys = QueueKeys(QueueName("n", "q"))
    named = {name: value for name, value in vars(keys).items() if isinstance(value, str)}
    return {name: value.removeprefix(keys.prefix) for name, value in named.items()}


def _with_keys(text: str, names: Sequence[str]) -> str:
    """`text` with each ``KEYS[n]`` but the first put together in Lua."""
    if len(names) < 2:
        return text
    endings = _endings()

    def place(found: re.Match[str]) -> str:
        number = int(found[1])
        return found[0] if number == 1 else f'(key_head .. "{endings[names[number - 1]]}")'

    cut = len(endings[names[0]]) + 1
    return f"local key_head = string.sub(KEYS[1], 1, -{cut})\n" + _KEY.sub(place, text)


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
