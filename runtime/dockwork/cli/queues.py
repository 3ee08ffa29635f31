"""``dockwork queues``: the queues of a namespace and how full they are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from dockwork.app import App
from dockwork.cli.apps import plain_app
from dockwork.cli.options import namespace_option, output_option, with_app
from dockwork.cli.tables import age, write_json, write_table
from dockwork.core.states import RUNNING, State
from dockwork.store.protocol import QueueStats

_COLUMNS = (
    ("QUEUE", "left"),
    ("READY", "right"),
    ("DELAYED", "right"),
    ("RUNNING", "right"),
    ("PARKED", "right"),
    ("DEAD", "right"),
    ("COMPLETED", "right"),
    ("OLDEST", "right"),
    ("FLAGS", "left"),
)


@click.command()
@namespace_option
@output_option
def queues(namespace: str | None, output: str) -> None:
    """Show the queues of the namespace: jobs by state, the age of the oldest that waits, and flags.

    READY counts prioritized jobs too; COMPLETED is the total, not only the jobs that are still kept.
    """
    app = plain_app(namespace)
    found = with_app(app, lambda: _read(app))
    if output == "json":
        write_json([{"queue": name, **_facts(stats)} for name, stats in found])
        return
    write_table(
        _COLUMNS,
        [_row(name, stats) for name, stats in found],
        spare=("COMPLETED", "PARKED", "DELAYED", "OLDEST"),
        cut="QUEUE",
    )
    if not found:
        click.echo(f"no queue in namespace {app.settings.namespace}")


async def _read(app: App) -> list[tuple[str, QueueStats]]:
    return [(name, await app.stats(name)) for name in await app.queues()]


def _row(name: str, stats: QueueStats) -> Sequence[str]:
    count = {state: stats.counts.get(state, 0) for state in State}
    waiting = count[State.READY] + count[State.PRIORITIZED] + count[State.PAUSED]
    flags = [word for word, on in (("paused", stats.paused), ("closed", stats.closed)) if on]
    return (
        name,
        str(waiting),
        str(count[State.DELAYED]),
        str(sum(count[state] for state in RUNNING)),
        str(count[State.PARKED]),
        str(count[State.DEAD]),
        str(stats.totals.get("completed", count[State.COMPLETED])),
        age(timedelta(milliseconds=stats.oldest_wait_ms)) if stats.oldest_wait_ms else "-",
        ",".join(flags) or "-",
    )


def _facts(stats: QueueStats) -> dict[str, object]:
    return {
        "counts": {state.value: stats.counts.get(state, 0) for state in State},
        "totals": dict(stats.totals),
        "paused": stats.paused,
        "closed": stats.closed,
        "bytes": stats.bytes,
        "oldest_wait_ms": stats.oldest_wait_ms,
        "parked_types": dict(stats.parked_types),
    }
