"""Waiting for a condition with a deadline; nothing else in the bed sleeps."""

import time
from collections.abc import Callable

from bed.errors import BedError


def wait_until(
    ask: Callable[[], bool], *, seconds: float, what: str, remedy: str = "", every: float = 0.2
) -> None:
    """Returns when `ask` says True; BedError, with what it last raised, after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if ask():
                return
            said = ""
        except BedError as error:
            said = f"\n{error}"
        if time.monotonic() > deadline:
            raise BedError(f"not within {seconds:.0f} s: {what}{said}", remedy=remedy)
        time.sleep(every)  # noqa: TID251
