"""Sealed values: AES-256-GCM under a ring of keys, and the annotation that asks for it.

A sealed value is the text ``dwe1:<key id>:<base64url of nonce, ciphertext and tag>``. What it is bound to (the version,
the job type's name, the field) is authenticated and not stored, so a value that is moved elsewhere cannot be opened.
The cipher comes from the package cryptography and is imported when a ring is made: who seals nothing never has it.
"""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

from typing_extensions import TypeAliasType, TypeVar

from dockwork.errors import EncryptionError, InvalidValue, require

#: The version of the format; it stands before every sealed value and is bound to it.
VERSION = "dwe1"
PREFIX = f"{VERSION}:"

#: What the JSON Schema of a sealed field says beside its plain type.
SCHEMA_MARK = "x-dockwork-sealed"

KEY_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16

_KEY_ID = re.compile(r"[a-z0-9_-]{1,16}")
_HEX_KEY = re.compile(r"[0-9A-Fa-f]{64}")
_BASE64_KEY = re.compile(r"[A-Za-z0-9+/_-]{43}=?")
_SEALED = re.compile(r"dwe1:([a-z0-9_-]{1,16}):([A-Za-z0-9_-]+)")
_BETWEEN = re.compile(r"[,\s]+")


@dataclass(frozen=True, slots=True)
class Sealed:
    """Marks a value as sealed wherever it is stored: what `Encrypted` puts beside the type.

    name    the name under which the value is stored and to which it is bound; "" = the parameter's.
            It keeps stored values readable when the parameter is renamed.
    """

    name: str = ""

    def __post_init__(self) -> None:
        # "@" begins the names of what is sealed and is no argument; NUL ends a name in what is authenticated.
        fits = isinstance(self.name, str) and "@" not in self.name and len(self.name.encode()) <= 64
        readable = fits and (self.name.isprintable() or not self.name)
        require(
            readable, "Encrypted", expected="a name of at most 64 bytes, printable, without @", got=self.name
        )

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> dict[str, Any]:
        shown: dict[str, Any] = {
            name: part for name, part in handler(core_schema).items() if name not in _VALUES
        }
        return {**shown, SCHEMA_MARK: True}


#: Parts of a JSON Schema that quote values.
_VALUES = frozenset({"default", "examples"})


if TYPE_CHECKING:
    T = TypeVar("T")
    NameT = TypeVar("NameT", default=None)
    #: For a type checker the plain type.
    Encrypted = TypeAliasType("Encrypted", T, type_params=(T, NameT))
else:

    class Encrypted:
        """``Encrypted[T]``: a `T` that is sealed wherever it is stored.

        ``Encrypted[T, "name"]`` pins the name that it is bound to; ``Encrypted[T, Literal["name"]]`` is the same for
        type checkers, which take a bare string for a forward reference.
        """

        def __class_getitem__(cls, asked: Any) -> Any:
            type_, name = asked if isinstance(asked, tuple) and len(asked) == 2 else (asked, "")
            if get_origin(name) is Literal:
                (name,) = get_args(name)
            require(
                not isinstance(asked, tuple) or bool(name),
                "Encrypted",
                expected="a type, and a name",
                got=asked,
            )
            return Annotated[type_, Sealed(name)]


def mark_of(hint: Any) -> Sealed | None:
    """The mark that an annotation carries at its outermost, or None."""
    if get_origin(hint) is not Annotated:
        return None
    return next((each for each in get_args(hint)[1:] if isinstance(each, Sealed)), None)


def bound_to(job_type: str, field: str) -> bytes:
    """What is authenticated with a value: the version, the job type's name, the field."""
    return "\0".join((VERSION, job_type, field)).encode()


def is_sealed(value: object) -> bool:
    """Whether `value` is a sealed value, or was one before it was altered."""
    return isinstance(value, str) and value.startswith(PREFIX)


def key_of(value: object) -> str:
    """The id of the key that sealed `value`; "" for what is not sealed, or no more in its form."""
    found = _SEALED.fullmatch(value) if isinstance(value, str) else None
    return "" if found is None else found[1]


class NotOpened(Exception):
    """A sealed value cannot be opened. The message says why and quotes nothing."""


class KeyRing:
    """The keys of a process: the first seals, all open.

    keys    id -> 32 bytes, the sealing one first
    dice    makes nonces
    """

    __slots__ = ("_ciphers", "_dice", "current")

    def __init__(self, keys: Mapping[str, bytes], dice: Callable[[int], bytes] = os.urandom) -> None:
        require(bool(keys), "key ring", expected="at least one key", got="none")
        for name, key in keys.items():
            require(_KEY_ID.fullmatch(name) is not None, "key id", expected=_ID_RULE, got="another")
            require(len(key) == KEY_BYTES, f"key {name}", expected="32 bytes", got=f"{len(key)} bytes")
        aead = _load_cipher()
        self._ciphers = {name: aead(key) for name, key in keys.items()}
        self._dice = dice
        self.current = next(iter(keys))

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(self._ciphers)})"

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of all keys, the sealing one first."""
        return tuple(self._ciphers)

    def seal(self, value: bytes, bound: bytes) -> str:
        """`value` under the current key, bound to `bound`."""
        nonce = self._dice(_NONCE_BYTES)
        closed = self._ciphers[self.current].encrypt(nonce, value, bound)
        return f"{PREFIX}{self.current}:{urlsafe_b64encode(nonce + closed).rstrip(b'=').decode()}"

    def open(self, text: str, bound: bytes) -> bytes:
        """The value of a sealed text. Raises NotOpened."""
        found = _SEALED.fullmatch(text)
        if found is None:
            raise NotOpened("it is damaged")
        cipher = self._ciphers.get(found[1])
        if cipher is None:
            raise NotOpened(f"key {found[1]} is not in the ring")
        try:
            data = urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4))
            if len(data) < _NONCE_BYTES + _TAG_BYTES:
                raise NotOpened("it is damaged")
            opened: bytes = cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound)
        except NotOpened:
            raise
        except Exception:  # the cipher's own errors, and those of base64: none says more
            raise NotOpened("it was altered, or belongs to another field or job type") from None
        return opened


_ID_RULE = "1 to 16 characters of a-z 0-9 _ -"


def parse_keys(text: str, source: str) -> dict[str, bytes]:
    """Keys by id out of ``id:key`` and ``key``, between commas, spaces or lines; lines that begin with # are comments.

    Raises    EncryptionError naming `source` and the place, and quoting nothing
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    keys: dict[str, bytes] = {}
    for place, entry in enumerate(filter(None, _BETWEEN.split("\n".join(lines))), 1):
        name, colon, key = entry.partition(":")
        name, key = (name, key) if colon else ("default", name)
        where = f"{source}: key {place}"
        if not _KEY_ID.fullmatch(name):
            raise EncryptionError(f"{where}: expected an id of {_ID_RULE}, got another")
        if name in keys:
            raise EncryptionError(f"{where}: expected an id that no other key has, got {name} again")
        keys[name] = _decode_key(key, where)
    if not keys:
        raise EncryptionError(f"{source}: expected at least one key, got none")
    return keys


def _decode_key(text: str, where: str) -> bytes:
    if _HEX_KEY.fullmatch(text):
        return bytes.fromhex(text)
    if _BASE64_KEY.fullmatch(text):
        return urlsafe_b64decode(text.replace("+", "-").replace("/", "_").rstrip("=") + "=")
    expected = "32 bytes as 64 hexadecimal digits or in base64"
    raise EncryptionError(f"{where}: expected {expected}, got {len(text)} characters that are neither")


def make_ring(text: str, source: str) -> KeyRing:
    """The ring that `text` says. Raises EncryptionError."""
    try:
        return KeyRing(parse_keys(text, source))
    except InvalidValue as error:
        raise EncryptionError(f"{source}: {error}") from None


def _load_cipher() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise EncryptionError(
            "sealed values need the package cryptography: install dockwork[encryption]"
        ) from None
    return AESGCM
