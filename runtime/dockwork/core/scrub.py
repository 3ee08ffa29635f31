"""Takes sealed values out of texts: messages, traces, progress, log lines, whatever a run leaves behind.

A value is looked for by its text, its repr, its JSON, and by each part of it, in the forms that a message may quote.
Too much is taken out rather than too little. Short parts stay, or nothing could be read any more.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any
from urllib.parse import quote, quote_plus

from pydantic_core import to_json

REDACTED = "[REDACTED]"
NOT_SCRUBBABLE = "[REDACTED: not scrubbable]"

#: Texts with fewer characters and numbers with fewer digits are no secret by themselves.
SHORTEST_TEXT = 4
FEWEST_DIGITS = 6

#: With more forms than this to look for, or values nested deeper, a text is given up whole.
MOST_FORMS = 5_000
DEEPEST = 50
#: Of a longer text the middle is left out first; what is kept of it in the end is far shorter than either half.
LONGEST_TEXT = 128 * 1024

_PLAIN = re.compile(r"[A-Za-z0-9_.-]*")

#: pydantic quotes what it refused, and cuts it: halves of a value are found by nobody.
_QUOTED_INPUT = re.compile(r"(\binput_value=).*?(, input_type=)", re.DOTALL)


class Scrubber:
    """Replaces every form of the values that `find` gives; it is asked at the first text."""

    def __init__(self, find: Callable[[], Iterable[Any]]) -> None:
        self._find = find
        self._forms: list[str] | None = None

    def text(self, text: str) -> str:
        """`text` without the values. Never raises."""
        try:
            if len(text) > LONGEST_TEXT:
                text = f"{text[: LONGEST_TEXT // 2]}\n... [cut]\n{text[-LONGEST_TEXT // 2 :]}"
            text = _QUOTED_INPUT.sub(rf"\1{REDACTED}\2", text)
            for form in self._all_forms():
                if form in text:
                    text = text.replace(form, REDACTED)
            return text
        except Exception:  # the value's own code, say: what it hides is worth more than this text
            return NOT_SCRUBBABLE

    def json(self, data: bytes) -> bytes:
        """A JSON value without the values: texts, numbers and names in it. Never raises."""
        try:
            clean = self._clean(json.loads(data))
            return json.dumps(clean, separators=(",", ":"), ensure_ascii=False).encode()
        except Exception:
            return json.dumps(NOT_SCRUBBABLE).encode()

    def _clean(self, value: Any) -> Any:
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self._clean(part) for name, part in value.items()}
            case list():
                return [self._clean(part) for part in value]
            case bool() | None:
                return value
        shown = self.text(str(value))
        return value if shown == str(value) else shown

    def _all_forms(self) -> list[str]:
        if self._forms is None:
            forms: set[str] = set()
            for value in self._find():
                for form in _forms_of(value, 0):
                    forms.add(form)
                    if len(forms) > MOST_FORMS:
                        raise OverflowError("too many forms")
            # The longest first: a part must not leave the rest of the whole standing.
            self._forms = sorted(forms, key=lambda form: (-len(form), form))
        return self._forms


def _forms_of(value: Any, depth: int) -> Iterator[str]:
    """Every text that shows `value` or a part of it."""
    if depth > DEEPEST:
        raise RecursionError("nested too deeply")
    match value:
        case None | bool():
            return
        case str():
            yield from _texts(value)
        case int() | float():
            shown = str(value)
            if sum(letter.isdigit() for letter in shown) >= FEWEST_DIGITS:
                yield shown
            if isinstance(value, Enum):
                yield from _texts(repr(value))
        case bytes() | bytearray() | memoryview():
            yield from _bytes(bytes(value))
        case _:
            yield from _whole(value)
            for part in _parts(value):
                yield from _forms_of(part, depth + 1)


def _texts(text: str) -> Iterator[str]:
    for shown in {text, text.strip(), *(text.splitlines() if "\n" in text else ())}:
        if len(shown) < SHORTEST_TEXT:
            continue
        yield shown
        if _PLAIN.fullmatch(shown):
            continue  # it looks the same however it is quoted
        for quoted in (repr(shown), ascii(shown), json.dumps(shown), json.dumps(shown, ensure_ascii=False)):
            yield quoted[1:-1]
        encoded = shown.encode("utf-8", "backslashreplace")
        yield repr(encoded)[2:-1]
        yield quote(encoded)
        yield quote_plus(encoded)


def _bytes(data: bytes) -> Iterator[str]:
    if len(data) < SHORTEST_TEXT:
        return
    yield repr(data)[2:-1]
    yield data.hex()
    yield b64encode(data).decode()
    yield urlsafe_b64encode(data).decode()
    yield urlsafe_b64encode(data).rstrip(b"=").decode()
    yield from _texts(data.decode("utf-8", "replace"))


def _whole(value: Any) -> Iterator[str]:
    """A container or an object as a whole: its text, its repr, its JSON."""
    as_json = to_json(value, fallback=repr).decode()
    spaced = json.dumps(json.loads(as_json), ensure_ascii=False)
    for shown in (str(value), repr(value), as_json, spaced, json.dumps(json.loads(as_json))):
        plain = shown.strip('"')
        if len(plain) >= SHORTEST_TEXT and _says_something(plain):
            yield plain


def _says_something(text: str) -> bool:
    """Not only brackets and such, and no number that is too short to count."""
    letters = sum(letter.isalpha() for letter in text)
    return letters >= SHORTEST_TEXT or sum(letter.isdigit() for letter in text) >= FEWEST_DIGITS


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield name
            yield part
    elif isinstance(value, list | tuple | Set):
        yield from value
    elif isinstance(value, Enum):
        yield value.value
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield getattr(value, each.name)
    elif callable(reveal := getattr(value, "get_secret_value", None)):
        yield reveal()
    elif hasattr(type(value), "model_fields"):
        yield from vars(value).values()
        yield from (getattr(value, "model_extra", None) or {}).values()
