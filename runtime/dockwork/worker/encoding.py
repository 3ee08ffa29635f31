"""Values that a handler gives away, as JSON."""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from dockwork.errors import Unrecoverable

_NULL = b"null"


def encode_json(value: Any, *, lenient: bool = False) -> bytes:
    """`value` as compact JSON: what JSON knows, and dates, UUIDs, dataclasses, pydantic models.

    lenient    write the repr of what JSON does not know
    Raises     Unrecoverable: the same handler would give the same value again
    """
    if value is None:
        return _NULL
    try:
        return to_json(value, fallback=repr if lenient else None)
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise Unrecoverable(f"the value is not JSON: {_brief(error)}") from None


def _brief(error: Exception) -> str:
    return str(error).splitlines()[0][:200]
