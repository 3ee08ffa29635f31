"""Which values of a job type are sealed, and the sealing and opening of what is stored of its jobs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, get_args

from dockwork.core.sealed import KeyRing, NotOpened, Sealed, bound_to, is_sealed, key_of, mark_of
from dockwork.errors import DecryptionError, require

#: Names of what is sealed and is no argument; no parameter and no pinned name has an "@".
CHECKPOINT = "@checkpoint"
RESULT = "@result"

#: What people see in place of a plain value that belongs sealed.
WITHHELD = "[withheld: not sealed]"


class OpenedArgs(NamedTuple):
    """Arguments in plain.

    args     JSON object by parameter names
    keys     ids of the keys that sealed them
    plain    at least one field that belongs sealed was not
    """

    args: bytes
    keys: frozenset[str]
    plain: bool


class Sealing:
    """What one job type seals.

    fields      parameter -> the name that its value is stored under and bound to
    required    the parameters of these without a default
    result      the return value is sealed, too
    """

    __slots__ = ("_bounds", "_parameters", "_required", "fields", "job_type", "result")

    def __init__(
        self,
        job_type: str,
        fields: Mapping[str, str],
        *,
        required: Collection[str] = (),
        result: bool = False,
    ) -> None:
        self.job_type = job_type
        self.fields = dict(fields)
        self.result = result
        self._required = frozenset(self.fields[parameter] for parameter in required)
        self._parameters = {name: parameter for parameter, name in self.fields.items()}
        names = (*self.fields.values(), CHECKPOINT, RESULT)
        self._bounds = {name: bound_to(job_type, name) for name in names}

    # --- arguments

    def by_parameter(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """`arguments` with pinned names replaced by the parameters' own."""
        return {self._parameters.get(name, name): value for name, value in arguments.items()}

    def seal_args(self, args: bytes, ring: KeyRing) -> bytes:
        """The JSON object of the arguments as it is stored: sealed fields sealed, under their stored names."""
        stored: dict[str, Any] = {}
        for parameter, value in json.loads(args).items():
            name = self.fields.get(parameter)
            if name is None:
                stored[parameter] = value
            else:
                stored[name] = ring.seal(_json(value), self._bounds[name])
        return _json(stored)

    def open_args(self, stored: Mapping[str, Any], ring: KeyRing, *, allow_plaintext: bool) -> OpenedArgs:
        """Stored arguments in plain. Raises DecryptionError naming the field."""
        plain: dict[str, Any] = {}
        keys: set[str] = set()
        missing = self._required - set(stored)
        has_plain = False
        for name, value in stored.items():
            parameter = self._parameters.get(name)
            if parameter is None:
                # A renamed field; one that only came or went is a matter of schemas, and parks the job.
                if missing and is_sealed(value):
                    raise DecryptionError(
                        self.job_type, name, "it was sealed for a field that this type has not"
                    )
                plain[name] = value
            elif is_sealed(value):
                keys.add(key_of(value))
                plain[parameter] = json.loads(self._open(name, value, ring))
            elif allow_plaintext:
                has_plain = True
                plain[parameter] = value
            else:
                raise PlaintextRefused(self.job_type, name)
        return OpenedArgs(_json(plain), frozenset(keys), has_plain)

    def seal_plain(self, stored: Mapping[str, Any], ring: KeyRing) -> bytes:
        """Stored arguments with each field sealed that belongs so and was not; the rest stays as it is."""
        return _json(
            {
                name: ring.seal(_json(value), self._bounds[name])
                if name in self._parameters and not is_sealed(value)
                else value
                for name, value in stored.items()
            }
        )

    def unseal_same(
        self, arguments: Mapping[str, Any], stored: Mapping[str, Any], ring: KeyRing
    ) -> dict[str, Any]:
        """`arguments` with each sealed value that stands so in `stored` opened. Raises DecryptionError."""
        plain: dict[str, Any] = {}
        for parameter, value in self.by_parameter(arguments).items():
            name = self.fields.get(parameter)
            same = name is not None and is_sealed(value) and stored.get(name) == value
            plain[parameter] = json.loads(self._open(name, value, ring)) if name and same else value
        return plain

    def withhold(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Stored arguments for people: sealed ones as they are, none in plain that belongs sealed."""
        return {
            name: WITHHELD if name in self._parameters and not is_sealed(value) else value
            for name, value in stored.items()
        }

    def digestible(self, args: bytes, digest_key: bytes | None) -> bytes:
        """Arguments in plain as a digest may see them: sealed fields as their HMAC under `digest_key`, else not at all.

        A plain digest would let whoever reads it guess a short secret.
        """
        import hmac

        shown: dict[str, Any] = {}
        for parameter, value in json.loads(args).items():
            name = self.fields.get(parameter)
            if name is None:
                shown[parameter] = value
            elif digest_key is not None:
                canonical = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
                message = self._bounds[name] + b"\0" + canonical
                shown[name] = hmac.new(digest_key, message, hashlib.sha256).hexdigest()
        return _json(shown)

    # --- a checkpoint, a result: each as a whole, a JSON string where it is sealed

    def seal_whole(self, what: str, value: bytes, ring: KeyRing) -> bytes:
        """A JSON value, sealed as a JSON string."""
        return _json(ring.seal(value, self._bounds[what]))

    def open_whole(
        self, what: str, data: bytes, ring: KeyRing, *, allow_plaintext: bool
    ) -> tuple[bytes, str]:
        """A stored JSON value in plain, and the key that sealed it, "" if none did. Raises DecryptionError."""
        text = sealed_text(data)
        if text is not None:
            return self._open(what, text, ring), key_of(text)
        if not allow_plaintext:
            raise PlaintextRefused(self.job_type, what)
        return data, ""

    def _open(self, name: str, text: str, ring: KeyRing) -> bytes:
        try:
            return ring.open(text, self._bounds[name])
        except NotOpened as error:
            raise DecryptionError(self.job_type, name, str(error)) from None


class PlaintextRefused(DecryptionError):
    """A value that belongs sealed is stored in plain, and such values are refused."""

    def __init__(
        self, job_type: str, field: str, why: str = "it is not sealed, and plain values are refused"
    ) -> None:
        super().__init__(job_type, field, why)


def withheld(value: Any) -> Any:
    """A stored value for people that belongs sealed: itself if it is, or if there is none."""
    return value if value is None or is_sealed(value) else WITHHELD


def sealed_text(data: bytes | None) -> str | None:
    """The sealed text that a stored JSON value is, or None."""
    if data is None or not data.startswith(b'"dwe1:'):
        return None
    try:
        text = json.loads(data)
    except ValueError:
        return None
    return text if isinstance(text, str) else None


def keys_in(stored: Mapping[str, Any]) -> set[str]:
    """Ids of the keys that sealed arguments, whatever their type."""
    return {key for value in stored.values() if (key := key_of(value))}


def join_keys(keys: set[str] | frozenset[str]) -> str:
    """Key ids as a record's `z` has them."""
    return ",".join(sorted(keys - {""}))


def find_sealing(
    job_type: str, parameters: Mapping[str, Any], required: Collection[str], returns: Any
) -> Sealing | None:
    """What the annotations of a function ask for; None where nothing is sealed. Raises InvalidValue."""
    marks = {name: mark for name, hint in parameters.items() if (mark := mark_of(hint)) is not None}
    result: Sealed | None = mark_of(returns)
    expected = "Encrypted around the whole type of the result"
    require(
        not _holds_mark(returns, outermost=True), f"job type {job_type}", expected=expected, got="one inside"
    )
    if not marks and result is None:
        return None
    fields = {name: mark.name or name for name, mark in marks.items()}
    stored = [*fields.values(), *(name for name in parameters if name not in fields)]
    twice = sorted({name for name in stored if stored.count(name) > 1})
    require(not twice, f"job type {job_type}", expected="a name of its own for each argument", got=twice)
    missed = [parameter for parameter in fields if parameter in required]
    return Sealing(job_type, fields, required=missed, result=result is not None)


def _holds_mark(hint: Any, *, outermost: bool = False) -> bool:
    """Whether a mark stands inside of an annotation."""
    if mark_of(hint) is not None and not outermost:
        return True
    return any(_holds_mark(part) for part in get_args(hint) if not isinstance(part, Sealed))


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8 form, but an escaped one
        return json.dumps(value, separators=(",", ":")).encode()
