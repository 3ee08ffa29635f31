"""Numbers of bytes as people write them: ``1048576``, ``256Ki``, ``2Gi``."""

from __future__ import annotations

import re

from dockwork.errors import InvalidValue

_SIZE = re.compile(r"([0-9]{1,15})(Ki|Mi|Gi)?")
_UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


def parse_size(value: int | str, field: str) -> int:
    """Bytes of a whole number, or of digits with Ki, Mi or Gi (powers of 1024)."""
    expected = "bytes, such as 65536, 64Ki or 2Gi"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidValue(field, expected=expected, got=value)
    found = _SIZE.fullmatch(str(value).strip())
    if found is None:
        raise InvalidValue(field, expected=expected, got=value)
    return int(found[1]) * _UNITS[found[2] or ""]
