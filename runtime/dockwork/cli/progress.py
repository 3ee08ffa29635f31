"""A progress bar on the terminal; silence where the output goes elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def bar(what: str, total: int = 0) -> Iterator[Callable[[int, int], None]]:
    """A function that is told (done, total) while something long goes on; the bar is on stderr.

    total    0 = not known at the beginning
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(what, total=total or None)

        def tell(done: int, of: int) -> None:
            shown.update(task, completed=done, total=of or None)

        yield tell
