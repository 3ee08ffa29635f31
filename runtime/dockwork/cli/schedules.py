"""``dockwork schedules``: what ticks, when next, and removing or pausing one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

import click

from dockwork import clock
from dockwork.app import App
from dockwork.cli.apps import plain_app
from dockwork.cli.exits import REFUSED
from dockwork.cli.options import complete_queues, namespace_option, output_option, with_app
from dockwork.cli.tables import age, write_json, write_table
from dockwork.schedules import ScheduleInfo

_COLUMNS = ("QUEUE", "NAME", "SCHEDULE", "ZONE", "NEXT", "RUNS", "MISSED", "SKIPPED", "LAST", "FLAGS")


@click.command()
@click.argument("queue", required=False, shell_complete=complete_queues)
@click.argument("name", required=False)
@click.option("--next", "count", type=click.IntRange(1, 100), default=None, help="The next so many instants.")
@click.option("--pause", "change", flag_value="pause", help="No ticks until it is resumed.")
@click.option("--resume", "change", flag_value="resume", help="Tick again, from now on.")
@click.option("--remove", "change", flag_value="remove", help="Remove it; its jobs that wait stay.")
@namespace_option
@output_option
def schedules(
    queue: str | None,
    name: str | None,
    count: int | None,
    change: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Show the schedules of all queues or of QUEUE; with NAME, look at one or change it.

    A schedule that code declares comes back with the next worker, a CronJob resource's with the operator.
    """
    app = plain_app(namespace)
    if (change or count) and not (queue and name):
        raise click.UsageError("expected QUEUE and NAME with --next, --pause, --resume and --remove")
    if change and queue and name:
        _change(app, queue, name, change, output)
        return
    found = with_app(app, lambda: app.schedules(queue), on=[queue])
    if name is not None:
        found = [one for one in found if one.name == name]
        if not found:
            _missing(queue, name)
    if count:
        instants = with_app(app, lambda: _coming(app, str(queue), str(name), count))
        write_json(instants) if output == "json" else click.echo("\n".join(map(_iso, instants)))
    elif output == "json":
        write_json(found)
    else:
        now = clock.now()
        right = {"RUNS", "MISSED", "SKIPPED"}
        write_table(
            [(column, "right" if column in right else "left") for column in _COLUMNS],
            [_row(one, now) for one in found],
            spare=("SKIPPED", "LAST", "MISSED", "ZONE", "RUNS", "FLAGS"),
            cut="NAME",
        )
        if not found:
            click.echo("no schedule")


def _missing(queue: str | None, name: str) -> None:
    click.echo(f"dockwork: no schedule {name} on queue {queue}", err=True)
    raise click.exceptions.Exit(REFUSED)


def _change(app: App, queue: str, name: str, change: str, output: str) -> None:
    calls = {"pause": app.pause_schedule, "resume": app.resume_schedule, "remove": app.unschedule}
    done = with_app(app, lambda: calls[change](name, queue=queue), on=[queue])
    if output == "json":
        write_json({"queue": queue, "name": name, change: done})
    elif done:
        click.echo(f"schedule {name} on queue {queue}: {change}d")
    if not done:
        _missing(queue, name)


async def _coming(app: App, queue: str, name: str, count: int) -> list[datetime]:
    from dockwork.core.cron import Calendar

    (state,) = await app.client.store.cron_states(app.client.name(queue), [name])
    return list(islice(Calendar.from_json(state.calendar).ticks(clock.now()), count))


def _row(one: ScheduleInfo, now: datetime) -> Sequence[str]:
    next_in = "-" if one.next_at is None else f"in {age(one.next_at - now)}"
    last = one.last.get("outcome", "-")
    flags = "paused" if one.paused else "-"
    counts = (str(one.runs), str(one.missed), str(one.skipped))
    return (one.queue, one.name, one.schedule, one.tz, next_in, *counts, last, flags)


def _iso(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")
