"""Actions on queues: ``dockwork pause``, ``close``, ``purge``, ``obliterate``, ``repair``, and their like."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from dockwork.actions import PurgePlan, PurgeResult
from dockwork.app import App
from dockwork.cli.apps import plain_app
from dockwork.cli.exits import REFUSED
from dockwork.cli.options import (
    SpanType,
    namespace_option,
    no_queue,
    output_option,
    queue_argument,
    with_app,
    yes_option,
)
from dockwork.cli.progress import bar
from dockwork.cli.tables import facts_of, write_json
from dockwork.store.protocol import Obliterated


def _tell_switch(facts: dict[str, Any], changed: bool, output: str, *, done: str, as_it_was: str) -> None:
    """Say whether a flag of a queue was changed; exit 1 if it was so already."""
    if output == "json":
        write_json({**facts, "changed": changed})
    else:
        click.echo(done if changed else as_it_was)
    if not changed:
        raise click.exceptions.Exit(REFUSED)


def _switch(queue: str, namespace: str | None, output: str, *, paused: bool) -> None:
    app = plain_app(namespace)
    changed = with_app(
        app, lambda: app.set_paused(queue, expected=not paused, wanted=paused), on=[queue], new=True
    )
    word = "paused" if paused else "running"
    _tell_switch(
        {"queue": queue, "paused": paused},
        changed,
        output,
        done=f"queue {queue} is {word}",
        as_it_was=f"queue {queue} was {word} already",
    )


@click.command()
@queue_argument
@namespace_option
@output_option
def pause(queue: str, namespace: str | None, output: str) -> None:
    """Let no worker take a job of QUEUE. What runs goes on; new jobs are stored."""
    _switch(queue, namespace, output, paused=True)


@click.command()
@queue_argument
@namespace_option
@output_option
def resume(queue: str, namespace: str | None, output: str) -> None:
    """Let workers take jobs of QUEUE again."""
    _switch(queue, namespace, output, paused=False)


def _intake(queue: str, namespace: str | None, output: str, *, closed: bool) -> None:
    app = plain_app(namespace)
    changed = with_app(
        app, lambda: app.close_intake(queue) if closed else app.open_intake(queue), on=[queue], new=True
    )
    _tell_switch(
        {"queue": queue, "closed": closed},
        changed,
        output,
        done=f"queue {queue} takes {'no ' if closed else ''}new jobs",
        as_it_was=f"queue {queue} was closed already" if closed else f"no hand had closed queue {queue}",
    )


@click.command()
@queue_argument
@namespace_option
@output_option
def close(queue: str, namespace: str | None, output: str) -> None:
    """Refuse new jobs on QUEUE. What is there goes on; producers get QueueClosed, ticks are skipped."""
    _intake(queue, namespace, output, closed=True)


@click.command("open")
@queue_argument
@namespace_option
@output_option
def open_(queue: str, namespace: str | None, output: str) -> None:
    """Take new jobs on QUEUE again."""
    _intake(queue, namespace, output, closed=False)


@click.command()
@queue_argument
@click.option(
    "--state",
    type=click.Choice(["dead", "failed", "expired", "cancelled", "completed"]),
    required=True,
    help="Which ended jobs.",
)
@click.option(
    "--older-than", type=SpanType(), default=None, help="Only those that ended so long ago: 1h30m, 7d."
)
@yes_option
@namespace_option
@output_option
def purge(
    queue: str, state: str, older_than: timedelta | None, yes: bool, namespace: str | None, output: str
) -> None:
    """Delete the records of ended jobs of QUEUE.

    Without --yes it counts them and deletes nothing. If others are found than were counted, it stops.
    """
    app = plain_app(namespace)
    plan, done = with_app(app, lambda: _purge(app, queue, state, older_than, yes=yes), on=[queue])
    facts: dict[str, Any] = {"queue": queue, "state": state, "found": plan.count, "digest": plan.digest}
    if done is not None:
        facts |= {"deleted": done.deleted, "conflicted": done.conflicted}
    if output == "json":
        write_json(facts)
    elif done is None:
        hint = "; nothing was deleted, --yes deletes them" if plan.count else ""
        click.echo(f"{plan.count} {state} jobs on queue {queue}{hint}")
    else:
        rest = "; the rest had changed since it was counted, and was left" if done.conflicted else ""
        click.echo(f"{done.deleted} of {plan.count} {state} jobs deleted on queue {queue}{rest}")
    if (done is None and plan.count) or (done is not None and done.conflicted):
        raise click.exceptions.Exit(REFUSED)


async def _purge(
    app: App, queue: str, state: str, older_than: timedelta | None, *, yes: bool
) -> tuple[PurgePlan, PurgeResult | None]:
    plan = await app.plan_purge(queue, state=state, older_than=older_than)
    if not yes:
        return plan, None
    with bar("deleted", plan.count) as progress:
        return plan, await app.purge(plan, progress=progress)


@click.command()
@queue_argument
@click.option("--confirm", required=True, metavar="QUEUE", help="The queue's name once more.")
@click.option("--token", default=None, help="Of an obliteration that was interrupted: go on with it.")
@yes_option
@namespace_option
@output_option
def obliterate(
    queue: str, confirm: str, token: str | None, yes: bool, namespace: str | None, output: str
) -> None:
    """Delete QUEUE with everything in it: jobs that wait, run and ended, schedules, figures, options."""
    if not yes:
        raise click.UsageError(f"--yes is missing: this deletes queue {queue} and every job in it for good")
    app = plain_app(namespace)
    done = with_app(app, lambda: _obliterate(app, queue, confirm, token))
    if output == "json":
        write_json({"queue": queue, **facts_of(done)})
    elif done.conflicted:
        click.echo(f"another obliteration is under way: --token {done.token} goes on with it", err=True)
    elif done.missing:
        click.echo(f"dockwork: {with_app(app, lambda: no_queue(app, queue))}", err=True)
    else:
        click.echo(f"queue {queue} is gone, {done.deleted} jobs with it")
    if not done.done:
        raise click.exceptions.Exit(REFUSED)


async def _obliterate(app: App, queue: str, confirm: str, token: str | None) -> Obliterated:
    def started(mine: str) -> None:
        click.echo(f"if this is interrupted: --token {mine} goes on", err=True)

    with bar("deleted") as progress:
        return await app.obliterate(queue, confirm=confirm, token=token, progress=progress, started=started)


@click.command()
@queue_argument
@namespace_option
@output_option
def repair(queue: str, namespace: str | None, output: str) -> None:
    """Look at every job, index, lock and counter of QUEUE, and put right what is wrong."""
    app = plain_app(namespace)
    found = with_app(app, lambda: app.repair(queue), on=[queue])
    if output == "json":
        write_json({"queue": queue, **facts_of(found), "fixed": found.fixed})
        return
    click.echo(f"queue {queue}: {found.checked} looked at, {found.fixed} put right")
    for name, words in _REPAIRS:
        if count := getattr(found, name):
            click.echo(f"  {count:>7}  {words}")
    if found.counters:
        click.echo(f"  counters that were wrong: {', '.join(found.counters)}")
    if found.busy:
        click.echo(
            "the queue moved too fast for its sums to be counted: do it again when there is less to do"
        )


_REPAIRS = (
    ("no_index", "jobs that no index had"),
    ("no_record", "ids whose record was gone"),
    ("wrong_index", "jobs that stood in a second index"),
    ("no_envelope", "jobs whose arguments were gone: dead letters now"),
    ("locks", "unique keys that nobody held any more"),
)


@click.command()
@queue_argument
@namespace_option
@output_option
def reap(queue: str, namespace: str | None, output: str) -> None:
    """Take back jobs of QUEUE whose lease is over, as workers do by themselves."""
    app = plain_app(namespace)
    found = with_app(app, lambda: app.reap(queue), on=[queue])
    if output == "json":
        write_json({"queue": queue, **facts_of(found)})
    else:
        click.echo(f"{found.returned} jobs back in their places, {found.buried} dead letters")


@click.command()
@queue_argument
@click.option("--to", "version", type=click.IntRange(1), default=None, help="Default: the newest known.")
@namespace_option
@output_option
def migrate(queue: str, version: int | None, namespace: str | None, output: str) -> None:
    """Raise the version of QUEUE's stored data, once every registered worker reads the new one."""
    app = plain_app(namespace)
    done = with_app(
        app, lambda: app.migrate(queue) if version is None else app.migrate(queue, version), on=[queue]
    )
    if output == "json":
        write_json({"queue": queue, **facts_of(done)})
    elif done.behind:
        click.echo(
            f"queue {queue} stays at version {done.version}; these workers read no newer one:", err=True
        )
        for owner in done.behind:
            click.echo(f"  {owner}", err=True)
    else:
        click.echo(f"queue {queue} has version {done.version}")
    if done.behind:
        raise click.exceptions.Exit(REFUSED)
