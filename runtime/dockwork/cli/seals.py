"""``dockwork keys`` and ``dockwork reseal``: which encryption keys are in use, and moving to a new one."""

from __future__ import annotations

import click

from dockwork.cli.apps import in_namespace, load_app, plain_app
from dockwork.cli.exits import REFUSED
from dockwork.cli.options import complete_queues, namespace_option, output_option, with_app
from dockwork.cli.progress import bar
from dockwork.cli.tables import write_json, write_table
from dockwork.resealing import ResealReport


@click.command()
@click.argument("queue", required=False, shell_complete=complete_queues)
@namespace_option
@output_option
def keys(queue: str | None, namespace: str | None, output: str) -> None:
    """Count the jobs that each encryption key seals something of. A key that has none can be retired."""
    app = plain_app(namespace)
    counts = with_app(app, lambda: app.keys(queue), on=[queue])
    if output == "json":
        write_json(counts)
        return
    write_table(
        (("KEY", "left"), ("JOBS", "right")), [(key, str(count)) for key, count in counts.items()], cut="KEY"
    )
    if not counts:
        click.echo("no job has a sealed value")


@click.command()
@click.argument("target", metavar="APP")
@click.argument("queue", required=False, shell_complete=complete_queues)
@namespace_option
@output_option
def reseal(target: str, queue: str | None, namespace: str | None, output: str) -> None:
    """Seal the waiting and kept jobs of APP's types anew with the current key, in all queues or in QUEUE.

    May be stopped and repeated. Exits with 1 while jobs are left under another key.
    """
    app = in_namespace(load_app(target), namespace)

    async def work() -> ResealReport:
        with bar("looked at") as progress:
            return await app.reseal(queue, told=lambda report: progress(report.looked, 0))

    done = with_app(app, work, on=[queue])
    if output == "json":
        write_json(done)
    else:
        click.echo(f"{done.looked} looked at, {done.written} sealed anew")
        for count, words in (
            (done.conflicted, "moved meanwhile: run this again"),
            (done.unknown, f"of types that {target} does not seal"),
            (done.refused, f"cannot be opened with these keys: {' '.join(done.unopened[:5])}"),
        ):
            if count:
                click.echo(f"  {count:>7}  {words}")
        for key, count in done.left.items():
            click.echo(f"  {count:>7}  still under key {key}")
        if not done.left:
            click.echo("no job is left under an older key")
    if done.left:
        raise click.exceptions.Exit(REFUSED)
