"""Job ids that sort by time: ULIDs, from a time and dice that the caller brings."""

from __future__ import annotations

from functools import lru_cache

from dockwork.errors import require

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
#: Two letters at a time.
_PAIRS = tuple(high + low for high in _CROCKFORD for low in _CROCKFORD)
_TIME_SHIFTS = tuple(range(40, -1, -10))
_DICE_SHIFTS = tuple(range(70, -1, -10))


#: One random byte as one letter, by its low five bits: eight bytes mean the same letter.
_LETTERS = (_CROCKFORD * 8).encode()


def letters(dice: bytes) -> str:
    """As many random letters as there are random bytes; 16 of them after `time_letters` are a ULID."""
    return dice.translate(_LETTERS).decode()


def ulid(ms: int, entropy: bytes) -> str:
    """The ULID of a time in milliseconds and 10 random bytes: 26 letters of Crockford's base 32.

    Source    github.com/ulid/spec
    """
    require(len(entropy) == 10, "entropy", expected="10 bytes", got=len(entropy))
    dice = int.from_bytes(entropy, "big")
    return time_letters(ms) + "".join([_PAIRS[dice >> shift & 1023] for shift in _DICE_SHIFTS])


@lru_cache(maxsize=8)
def time_letters(ms: int) -> str:
    """The ten letters that say when: ids of one millisecond share them."""
    require(0 <= ms < 1 << 48, "ms", expected="a time before the year 10889", got=ms)
    return "".join([_PAIRS[ms >> shift & 1023] for shift in _TIME_SHIFTS])
