"""Values that a handler gives away, as JSON."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from dockwork.core.schema import check_readable
from dockwork.errors import Unrecoverable

_NULL = b"null"


def encode_json(value: Any, *, lenient: bool = False) -> bytes:
    """`value` as compact JSON: what JSON knows, and dates, UUIDs, dataclasses, pydantic models.

    lenient    write the repr of what JSON does not know, and a question mark for what UTF-8 does not
    Raises     Unrecoverable: the same handler would give the same value again
    """
    if value is None:
        return _NULL
    try:
        data = to_json(value, fallback=repr if lenient else None)
        check_readable(data)
        return data
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        if lenient:
            return _leniently(value)
        raise Unrecoverable(f"the value is not JSON: {_brief(error)}") from None


def _leniently(value: Any) -> bytes:
    try:
        return json.dumps(value, default=repr, ensure_ascii=False).encode("utf-8", "replace")
    except Exception as error:  # a repr of the user's, or no end of nesting
        return json.dumps(f"({type(value).__name__} that cannot be written: {type(error).__name__})").encode()


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
