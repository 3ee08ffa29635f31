"""Job ids that sort by time: ULIDs, from a time and dice that the caller brings."""

from __future__ import annotations

from functools import lru_cache

from dockwork.errors import require

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#: Two letters at a time: a bulk enqueue makes 80,000 ids a second, and a loop over 26 was its largest part.
_PAIRS = tuple(high + low for high in _CROCKFORD for low in _CROCKFORD)
_TIME_SHIFTS = tuple(range(40, -1, -10))
_DICE_SHIFTS = tuple(range(70, -1, -10))


def ulid(ms: int, entropy: bytes) -> str:
    """The ULID of a time in milliseconds and 10 random bytes: 26 letters of Crockford's base 32.

    Source    github.com/ulid/spec
    """
    require(0 <= ms < 1 << 48, "ms", expected="a time before the year 10889", got=ms)
    require(len(entropy) == 10, "entropy", expected="10 bytes", got=len(entropy))
    dice = int.from_bytes(entropy, "big")
    return _time_of(ms) + "".join([_PAIRS[dice >> shift & 1023] for shift in _DICE_SHIFTS])


@lru_cache(maxsize=8)
def _time_of(ms: int) -> str:
    """The ten letters that say when: ids of one millisecond share them."""
    return "".join([_PAIRS[ms >> shift & 1023] for shift in _TIME_SHIFTS])
