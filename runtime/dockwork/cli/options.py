"""Options that several commands share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from dockwork.app import App
from dockwork.cli.exits import NoQueue
from dockwork.core.durations import parse_span
from dockwork.core.keys import QueueName
from dockwork.errors import DockworkError, InvalidValue

T = TypeVar("T")

#: Longer than a Redis in reach needs, shorter than a person waits for the Tab key.
COMPLETE_WITHIN_S = 0.5

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    help="How to print: for people, or for programs.",
)
namespace_option = click.option(
    "-n", "--namespace", default=None, help="Instead of DOCKWORK_NAMESPACE.", metavar="NAME"
)


def complete_queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The queues of the namespace that begin so, for the Tab key: none where Redis does not answer at once."""
    from dockwork.cli.apps import plain_app

    async def names() -> list[str]:
        async with asyncio.timeout(COMPLETE_WITHIN_S), plain_app(ctx.params.get("namespace")) as app:
            return [name for name in await app.queues() if name.startswith(incomplete)]

    try:
        return asyncio.run(names())
    except (DockworkError, TimeoutError):
        return []


queue_argument = click.argument("queue", shell_complete=complete_queues)
queues_argument = click.argument("queues", nargs=-1, metavar="[QUEUE]...", shell_complete=complete_queues)
yes_option = click.option("--yes", is_flag=True, help="Do it; without this, only say what would be done.")


class SpanType(click.ParamType[timedelta]):
    """Seconds, or a span such as 1m30s."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        try:
            return parse_span(str(value), param.name or "span" if param else "span")
        except InvalidValue as error:
            self.fail(f"expected {error.expected}, got {value!r}", param, ctx)


class InstantType(click.ParamType[datetime]):
    """An ISO 8601 date and time with an offset."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            found = datetime.fromisoformat(str(value))
        except ValueError:
            found = None
        if found is None or found.tzinfo is None:
            expected = "a date and time with an offset, such as 2027-01-01T09:00:00+01:00 or …Z"
            self.fail(f"expected {expected}, got {value!r}", param, ctx)
        return found


def json_object(text: str) -> dict[str, Any]:
    """What --args says. Raises click.UsageError for anything but a JSON object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"--args: expected a JSON object; {error}") from None
    except RecursionError:
        raise click.UsageError("--args: expected a JSON object; it is nested too deep") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"--args: expected a JSON object; got {type(found).__name__}")
    return found


def with_app(
    app: App, call: Callable[[], Awaitable[T]], *, on: Sequence[str | None] = (), new: bool = False
) -> T:
    """The result of `call` on a loop of its own, with the app's connection closed after it.

    on        queues that are meant, None for no particular one; NoQueue for one that nobody has used yet
    new       it makes sense before the first use, too: then it is only told, on stderr
    """

    async def whole() -> T:
        async with app:
            for queue in on:
                if queue is not None and (unknown := await no_queue(app, queue)) is not None:
                    if not new:
                        raise unknown
                    click.echo(f"dockwork: {unknown}", err=True)
            return await call()

    return asyncio.run(whole())


async def no_queue(app: App, queue: str) -> NoQueue | None:
    """What is to be said of a queue that nobody has used, None where it is known; those of the app's types are."""
    name = QueueName(app.settings.namespace, queue)
    known = await app.queues()
    if name.queue in known or name.queue in app.registry.all_queues():
        return None
    return NoQueue(queue, name.namespace, known)
