"""The envelope: what a job carries from its producer to its handler, as JSON that no script ever reads.

``{"v":1,"type":"mail.send","args":{...},"headers":{...},"schema":"<16 hex>","opts":{...}}``
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

from dockwork.errors import Undecodable

#: The envelope that this version writes, and the only one that it reads.
VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """One job's envelope.

    args        the JSON object of the arguments
    schema      hash of the schema that the arguments passed; "" if the producer did not know the type
    options     what the call asked for, for people: the store keeps its own copy of what it acts on
    """

    type: str
    args: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)
    schema: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


class Opened(NamedTuple):
    """An envelope whose arguments were checked against the handler's signature."""

    type: str
    arguments: dict[str, Any]
    headers: Mapping[str, str]
    schema: str
    options: Mapping[str, Any]


def seal(envelope: Envelope) -> bytes:
    """The envelope as compact JSON in UTF-8; `args` goes in byte for byte."""
    return seal_parts(envelope.type, envelope.args, envelope.schema, envelope.headers, envelope.options)


def seal_parts(
    type_: str, args: bytes, schema: str, headers: Mapping[str, str], options: Mapping[str, Any]
) -> bytes:
    """`seal` of the envelope with these parts: a producer makes no value of it in between."""
    said = _json(dict(headers)) if headers else b"{}"
    asked = _json(dict(options)) if options else b"{}"
    head, after = _json_name(type_), schema.encode()
    return b'{"v":1,"type":%b,"args":%b,"headers":%b,"schema":"%b","opts":%b}' % (
        head,
        args,
        said,
        after,
        asked,
    )


def with_args(data: bytes, args: bytes) -> bytes:
    """The envelope `data` with other arguments. Raises Undecodable."""
    return seal(replace(open_envelope(data), args=args))


def open_envelope(data: bytes) -> Envelope:
    """What `data` says, with the arguments unchecked.

    Raises    Undecodable, saying what is wrong but never what stands there
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise Undecodable("not JSON in UTF-8") from None
    if not isinstance(found, dict):
        raise Undecodable(f"expected an object, got {type(found).__name__}")
    if found.get("v") != VERSION:
        raise Undecodable(f"expected version {VERSION}, got {_brief(found.get('v'))}")
    for name, kind in _FIELDS.items():
        if not isinstance(found.get(name), kind):
            raise Undecodable(f"{name}: expected {kind.__name__}, got {type(found.get(name)).__name__}")
    if not all(isinstance(value, str) for value in found["headers"].values()):
        raise Undecodable("headers: expected strings")
    return Envelope(
        type=found["type"],
        args=_json(found["args"]),
        headers=found["headers"],
        schema=found["schema"],
        options=found["opts"],
    )


_FIELDS: Mapping[str, type] = {"type": str, "args": dict, "headers": dict, "schema": str, "opts": dict}


@lru_cache(maxsize=4096)
def _json_name(name: str) -> bytes:
    return _json(name)


def _json(value: object) -> bytes:
    # Escaped: half a surrogate pair in a header has no UTF-8 form.
    return json.dumps(value, separators=(",", ":")).encode()


def _brief(version: object) -> str:
    return str(version) if isinstance(version, int | None) else type(version).__name__
