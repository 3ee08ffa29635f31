"""``dockwork enqueue``: store one job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from dockwork.app import App
from dockwork.cli.apps import in_namespace, load_app, plain_app
from dockwork.cli.options import InstantType, SpanType, json_object, namespace_option, output_option, with_app
from dockwork.cli.tables import write_json
from dockwork.registry import ItemOptions


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="[APP] TYPE")
@click.option("--queue", default=None, help="Default: the queue that the job type names.")
@click.option(
    "--args", "arguments", default="{}", help="The arguments by name, as a JSON object.", metavar="JSON"
)
@click.option("--in", "delay", type=SpanType(), default=None, help="Due in so long: seconds, or 1m30s.")
@click.option("--at", type=InstantType(), default=None, help="Due then: ISO 8601 with an offset.")
@click.option("--priority", type=click.IntRange(-100, 100), default=None, help="Lower runs first.")
@click.option("--id", "job_id", default=None, help="The job's id; a known one adds nothing.")
@click.option(
    "--expires", type=SpanType(), default=None, help="Never run later than so long after it is due."
)
@click.option("--timeout", type=SpanType(), default=None, help="Of one run.")
@click.option("--retries", type=click.IntRange(0, 10_000), default=None, help="Attempts after the first.")
@namespace_option
@output_option
def enqueue(
    names: tuple[str, ...],
    queue: str | None,
    arguments: str,
    delay: timedelta | None,
    at: datetime | None,
    priority: int | None,
    job_id: str | None,
    expires: timedelta | None,
    timeout: timedelta | None,
    retries: int | None,
    namespace: str | None,
    output: str,
) -> None:
    """Store one job of TYPE.

    With APP (module:object) the type must be one of its own and the arguments are checked; without it any
    type is stored, and --queue says where.
    """
    if delay is not None and at is not None:
        raise click.UsageError("--in or --at, not both")
    app, type_, queue = _target(names, queue, namespace)
    given: dict[str, Any] = {
        "delay": delay,
        "at": at,
        "priority": priority,
        "id": job_id,
        "expires": expires,
        "timeout": timeout,
        "retries": retries,
    }
    options = ItemOptions(**{name: value for name, value in given.items() if value is not None})  # type: ignore[typeddict-item]
    parsed = json_object(arguments)
    ref = with_app(app, lambda: app.enqueue(type_, parsed, queue=queue, **options))
    if output == "json":
        write_json({"id": ref.id, "queue": ref.queue, "admission": ref.admission})
    else:
        click.echo(f"{ref.admission} {ref.id} on queue {ref.queue}")


def _target(names: tuple[str, ...], queue: str | None, namespace: str | None) -> tuple[App, str, str]:
    match names:
        case (target,) if ":" in target and queue is None:
            raise click.UsageError(f"TYPE is missing: expected [APP] TYPE; got {target} alone")
        case (type_,):
            if queue is None:
                raise click.UsageError("--queue: expected one, because no APP says where this type belongs")
            return plain_app(namespace), type_, queue
        case (target, type_):
            app = in_namespace(load_app(target), namespace)
            known = app.registry.get(type_)
            if known is None:
                types = ", ".join(sorted(app.registry)) or "none"
                raise click.UsageError(f"TYPE: expected a job type of {target} ({types}); got {type_!r}")
            return app, type_, queue or known.queue
    raise click.UsageError(f"expected [APP] TYPE; got {len(names)} names")
