"""Kubernetes quantities of bytes (``256Ki``, ``2Gi``, ``1M``) as numbers."""

from __future__ import annotations

import re

PATTERN = "^[0-9]{1,12}(k|Ki|M|Mi|G|Gi|T|Ti)?$"
MAX_LENGTH = 14
EXPECTED = "a whole number of bytes such as 256Ki or 2Gi"

_WHOLE = re.compile("([0-9]{1,12})(k|Ki|M|Mi|G|Gi|T|Ti)?")
_UNITS = {
    None: 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def parse_bytes(value: str | int) -> int:
    """The number of bytes that `value` names. Raises ValueError, saying what is expected."""
    found = _WHOLE.fullmatch(str(value))
    if found is None:
        raise ValueError(EXPECTED)
    return int(found[1]) * _UNITS[found[2]]


def format_bytes(size: int) -> str:
    """`size` with the largest binary unit that divides it: ``2Gi``, ``1000``."""
    for unit in ("Ti", "Gi", "Mi", "Ki"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return str(size)
