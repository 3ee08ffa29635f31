"""Saying what is done, and how long each step takes."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def say(line: str) -> None:
    """One line to stderr: stdout belongs to verbs whose output is read by programs."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Prints `title` at the start, and again with the seconds at the end."""
    say(f"bed: {title} ...")
    began = time.monotonic()
    try:
        yield
    except BaseException as error:
        # At once, and not only at the end: other steps may run beside this one for minutes.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        say(f"bed: {title}: failed after {time.monotonic() - began:.1f} s: {reason}")
        raise
    say(f"bed: {title}: {time.monotonic() - began:.1f} s")
