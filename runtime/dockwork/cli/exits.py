"""Exit codes, and errors told in one line instead of a trace."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from dockwork.errors import DockworkError, InvalidArgs, InvalidUrl, InvalidValue, OutcomeUnknown

REFUSED = 1
USAGE = 2
OUTCOME_UNKNOWN = 5


class AppFailed(Exception):
    """The user's module cannot be imported.

    error    what it raised; its trace begins in the user's own file
    """

    def __init__(self, target: str, error: Exception) -> None:
        self.error = error
        super().__init__(f"{target} cannot be imported")


class NoQueue(DockworkError):
    """Nobody has used a queue of that name."""

    def __init__(self, queue: str, namespace: str, known: Sequence[str]) -> None:
        some = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        super().__init__(
            f"nobody has used a queue {queue} in namespace {namespace} yet; known: {some or 'none'}"
        )


@contextmanager
def telling() -> Iterator[None]:
    """Turn our errors into a line on stderr and an exit code."""
    try:
        yield
    except AppFailed as failed:
        click.echo(f"dockwork: {failed}", err=True)
        click.echo("".join(traceback.format_exception(failed.error)), err=True, nl=False)
        raise click.exceptions.Exit(REFUSED) from None
    except DockworkError as error:
        click.echo(f"dockwork: {error}", err=True)
        if isinstance(error, OutcomeUnknown) and error.ids:
            click.echo(f"ask again by id: {' '.join(error.ids)}", err=True)
        raise click.exceptions.Exit(exit_code(error)) from None


def exit_code(error: DockworkError) -> int:
    """What an error means to the shell: a value that no setting takes is a matter of usage."""
    match error:
        case OutcomeUnknown():
            return OUTCOME_UNKNOWN
        case InvalidArgs():
            return REFUSED
        case InvalidValue() | InvalidUrl():
            return USAGE
    return REFUSED
