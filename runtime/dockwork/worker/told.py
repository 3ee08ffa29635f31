"""What a handler raised in another process, as words: told there, and made an exception again here."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from dockwork.errors import (
    Cancelled,
    Discard,
    DockworkError,
    Interrupted,
    Retry,
    Snooze,
    TimedOut,
    Unrecoverable,
    text_of,
)

#: Where an exception that came from another process keeps what was told of it.
TOLD = "__dockwork_told__"

#: What a handler may raise to say how its run ended: by name, and made of the text and the number that it had.
_SAID: Mapping[str, tuple[type[BaseException], Callable[[str, Any], BaseException]]] = {
    "retry": (Retry, lambda text, after: Retry(after, text)),
    "snooze": (Snooze, lambda text, after: Snooze(after)),
    "discard": (Discard, lambda text, after: Discard(text)),
    "unrecoverable": (Unrecoverable, lambda text, after: Unrecoverable(text)),
    "cancelled": (Cancelled, lambda text, after: Cancelled(text)),
    "interrupted": (Interrupted, lambda text, after: Interrupted(text)),
    "timed_out": (TimedOut, lambda text, after: TimedOut(text)),
}


class RemoteError(DockworkError):
    """An exception of another process whose class this process does not know."""


def tell_error(error: BaseException) -> dict[str, Any]:
    """What another process needs to know of `error`, as JSON values."""
    said = next((name for name, (kind, _) in _SAID.items() if isinstance(error, kind)), "")
    after = getattr(error, "after", None)
    return {
        "said": said,
        "after": after if isinstance(after, int | float) else None,
        "module": type(error).__module__,
        "class": type(error).__qualname__,
        "message": text_of(error),
        "trace": "".join(traceback.format_exception(error)),
    }


def make_error(told: Mapping[str, Any]) -> BaseException:
    """The exception that was told, of its own class where this process knows it."""
    message = str(told["message"])
    said = _SAID.get(told["said"])
    error = _plain(told, message) if said is None else said[1](message, told["after"])
    setattr(error, TOLD, told)
    return error


def told_of(error: BaseException) -> Mapping[str, Any] | None:
    """What was told of `error` in the process that raised it; None for one of this process."""
    told: Mapping[str, Any] | None = getattr(error, TOLD, None)
    return told


def _plain(told: Mapping[str, Any], message: str) -> BaseException:
    # Looked up among what is imported already: an answer must not make this process import anything.
    found: Any = sys.modules.get(str(told["module"]))
    for name in str(told["class"]).split("."):
        found = getattr(found, name, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        try:
            error = found.__new__(found)  # its own __init__ may want what nobody has here
            error.args = (message,)
            return error
        except Exception:  # a class of the user's that cannot be made so
            return RemoteError(message)
    return RemoteError(message)
