"""``dockwork jobs``: the jobs of a queue, or one job with all that is known of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click

from dockwork import clock
from dockwork.app import App
from dockwork.cli.apps import plain_app
from dockwork.cli.exits import REFUSED
from dockwork.cli.options import namespace_option, output_option, queue_argument, with_app
from dockwork.cli.tables import age, facts_of, write_facts, write_json, write_table
from dockwork.client import Job
from dockwork.core.states import State

#: In the order in which one looks for trouble. A running job is found under either of its states.
_ORDER = (
    State.ACTIVE,
    State.READY,
    State.PRIORITIZED,
    State.DELAYED,
    State.PARKED,
    State.DEAD,
    State.FAILED,
    State.EXPIRED,
    State.CANCELLED,
    State.COMPLETED,
)
_COLUMNS = (
    ("ID", "left"),
    ("TYPE", "left"),
    ("STATE", "left"),
    ("FAILED", "right"),
    ("AGE", "right"),
    ("REASON", "left"),
)


@click.command()
@queue_argument
@click.argument("job_id", required=False, metavar="[ID]")
@click.option(
    "--state",
    type=click.Choice([state.value for state in State]),
    default=None,
    metavar="STATE",
    help=f"Only these: {', '.join(state.value for state in State)}.",
)
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Jobs at most.")
@namespace_option
@output_option
def jobs(
    queue: str, job_id: str | None, state: str | None, limit: int, namespace: str | None, output: str
) -> None:
    """Show the jobs of QUEUE, or everything known of the one with ID."""
    app = plain_app(namespace)
    if job_id is not None:
        _show_one(app, queue, job_id, output)
        return
    states = _ORDER if state is None else (State(state),)
    found = with_app(app, lambda: _read(app, queue, states, limit), on=[queue])
    if output == "json":
        write_json(found)
        return
    now = clock.now()
    write_table(_COLUMNS, [_row(job, now) for job in found], spare=("FAILED", "AGE", "STATE"))
    if not found:
        click.echo(f"no {state + ' ' if state else ''}job on queue {queue}")


async def _read(app: App, queue: str, states: Iterable[State], limit: int) -> list[Job]:
    found: dict[str, Job] = {}
    for state in states:
        if len(found) < limit:
            async for job in app.jobs(queue, state=state, limit=limit - len(found)):
                found.setdefault(job.id, job)
    return list(found.values())


def _show_one(app: App, queue: str, job_id: str, output: str) -> None:
    async def read() -> Job | None:
        return await app.ref(queue, job_id).info()

    job = with_app(app, read, on=[queue])
    if job is None:
        click.echo(f"dockwork: no job {job_id} on queue {queue}, or its record is no longer kept", err=True)
        raise click.exceptions.Exit(REFUSED)
    if output == "json":
        write_json(job)
    else:
        write_facts(
            {name: _words(value) for name, value in facts_of(job).items() if value not in (None, "", ())}
        )


def _row(job: Job, now: datetime) -> Sequence[str]:
    reason = job.reason
    if job.failures and job.state is not State.COMPLETED:
        last = job.failures[-1]
        reason = f"{last.error_class}: {last.message.splitlines()[0] if last.message else ''}"
    return (job.id, job.type, job.state, str(job.attempts), age(now - job.created_at), reason or "-")


def _words(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, tuple):
        return "\n".join(_words(each) for each in value)
    if dataclasses.is_dataclass(value):
        failure = facts_of(value)
        head = f"{failure['error_class']}: {failure['message']} (worker {failure['worker'] or 'unknown'})"
        return f"{head}\n{failure['trace']}".strip()
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
