"""``dockwork cancel``, ``retry``, ``promote``, ``redrive``: actions on jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import click
from click.core import ParameterSource

from dockwork.actions import MAY_REPEAT, Redriven, RedrivePlan
from dockwork.app import App
from dockwork.cli.apps import in_namespace, load_app, plain_app
from dockwork.cli.exits import REFUSED
from dockwork.cli.options import (
    InstantType,
    SpanType,
    json_object,
    namespace_option,
    output_option,
    queue_argument,
    with_app,
    yes_option,
)
from dockwork.cli.progress import bar
from dockwork.cli.tables import write_json

#: Answers after which a command has done what it was asked.
_DONE = frozenset({"ok", "cancelled", "flagged"})

_MEANINGS = {
    "ok": "waits to run",
    "cancelled": "cancelled",
    "flagged": "runs, and is told to stop within a second",
    "too_late": "has ended already",
    "missing": "is not known, or its record is no longer kept",
    "conflicted": "is not as it was reviewed, has completed, or waits to run already",
    "running": "runs",
}


def _each(
    queue: str,
    ids: tuple[str, ...],
    namespace: str | None,
    output: str,
    act: Callable[[App, str], Awaitable[str]],
) -> None:
    """Do it to each id in its order and say what came of it; exit 1 if any was refused."""
    app = plain_app(namespace)

    async def all_of_them() -> dict[str, str]:
        return {job_id: str(await act(app, job_id)) for job_id in dict.fromkeys(ids)}

    said = with_app(app, all_of_them, on=[queue])
    if output == "json":
        write_json([{"id": job_id, "queue": queue, "outcome": word} for job_id, word in said.items()])
    else:
        for job_id, word in said.items():
            click.echo(f"{job_id}: {word} ({_MEANINGS[word]})")
    if not all(word in _DONE for word in said.values()):
        raise click.exceptions.Exit(REFUSED)


@click.command()
@queue_argument
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@click.option("--force", is_flag=True, help="End a running job's record at once; its handler is told, too.")
@namespace_option
@output_option
def cancel(queue: str, ids: tuple[str, ...], force: bool, namespace: str | None, output: str) -> None:
    """Ask jobs of QUEUE not to run, or to stop."""
    _each(queue, ids, namespace, output, lambda app, job_id: app.ref(queue, job_id).cancel(force=force))


@click.command()
@queue_argument
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@namespace_option
@output_option
def retry(queue: str, ids: tuple[str, ...], namespace: str | None, output: str) -> None:
    """Let jobs of QUEUE run again now, whatever they are.

    An ended one is put back with fresh retries, a delayed one is due. What it did outside may happen once more.
    """
    _each(queue, ids, namespace, output, lambda app, job_id: app.retry(queue, job_id))


@click.command()
@queue_argument
@click.argument("ids", nargs=-1, metavar="[ID]...")
@namespace_option
@output_option
def promote(queue: str, ids: tuple[str, ...], namespace: str | None, output: str) -> None:
    """Make delayed jobs of QUEUE due now: these, or without an ID all that are due and nobody has promoted."""
    app = plain_app(namespace)
    count = with_app(app, lambda: app.promote(queue, *ids), on=[queue])
    if output == "json":
        write_json({"queue": queue, "promoted": count})
    else:
        click.echo(f"{count} promoted on queue {queue}")
    if ids and count < len(set(ids)):
        raise click.exceptions.Exit(REFUSED)


@click.command()
@queue_argument
@click.argument("job_id", required=False, metavar="[ID]")
@click.option(
    "--digest", default=None, help="With ID: of the job as it was reviewed; dockwork jobs QUEUE ID shows it."
)
@click.option(
    "--state",
    type=click.Choice(["dead", "failed", "expired", "cancelled"]),
    default="dead",
    show_default=True,
    help="Which ended jobs.",
)
@click.option("--type", "type_", default=None, help="Only jobs of this type.")
@click.option("--reason", default=None, help="Only jobs that ended with this reason.")
@click.option("--limit", type=click.IntRange(1), default=None, help="Jobs at most.")
@yes_option
@namespace_option
@output_option
def redrive(
    queue: str,
    job_id: str | None,
    digest: str | None,
    state: str,
    type_: str | None,
    reason: str | None,
    limit: int | None,
    yes: bool,
    namespace: str | None,
    output: str,
) -> None:
    """Put ended jobs of QUEUE back, to run again.

    With ID, that one job, at once, if it is still as --digest says; no other option chooses it. Without ID, all
    that --state, --type and --reason find: without --yes they are counted and nothing is done. What a job did
    outside before it failed may happen once more.
    """
    app = plain_app(namespace)
    if job_id is None and digest is not None:
        raise click.UsageError("--digest: expected an ID beside it, because it is of one job")
    if job_id is not None:
        _refuse_beside_id("state", "type_", "reason", "limit")
        if digest is None:
            raise click.UsageError(
                f"--digest: expected that of the reviewed job: dockwork jobs {queue} {job_id}"
            )
        _each(queue, (job_id,), namespace, output, lambda app, one: app.redrive(one, digest, queue=queue))
        return
    plan, done = with_app(app, lambda: _redrive(app, queue, state, type_, reason, limit, yes=yes), on=[queue])
    facts: dict[str, Any] = {
        "queue": queue,
        "found": plan.count,
        "types": dict(plan.types),
        "reasons": dict(plan.reasons),
        "digest": plan.digest,
        "warning": MAY_REPEAT,
    }
    if done is not None:
        facts |= {"ok": done.ok, "conflicted": done.conflicted, "missing": done.missing}
    if output == "json":
        write_json(facts)
    else:
        _tell_redrive(plan, done, state)
    if done is None or done.ok < plan.count:
        raise click.exceptions.Exit(REFUSED if plan.count else 0)


def _refuse_beside_id(*names: str) -> None:
    """Options that choose among many are refused beside the ID of one, not ignored."""
    context = click.get_current_context()
    for param in context.command.params:
        if param.name in names and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{param.opts[0]}: expected none beside an ID, which names the one job")


async def _redrive(
    app: App,
    queue: str,
    state: str,
    type_: str | None,
    reason: str | None,
    limit: int | None,
    *,
    yes: bool,
) -> tuple[RedrivePlan, Redriven | None]:
    plan = await app.plan_redrive(queue, state=state, type=type_, reason=reason, limit=limit)
    if not yes:
        return plan, None
    with bar("redriven", plan.count) as progress:
        return plan, await app.redrive_all(plan, progress=progress)


def _tell_redrive(plan: RedrivePlan, done: Redriven | None, state: str) -> None:
    click.echo(f"{plan.count} {state} jobs on queue {plan.queue}")
    for name, counts in (("type", plan.types), ("reason", plan.reasons)):
        for word, count in sorted(counts.items(), key=lambda item: -item[1]):
            click.echo(f"  {count:>7}  {name} {word or '-'}")
    if not plan.count:
        return
    click.echo(MAY_REPEAT)
    if done is None:
        click.echo("nothing was changed; --yes puts them back")
        return
    click.echo(f"{done.ok} put back")
    for word, ids in (("changed meanwhile", done.conflicted), ("gone meanwhile", done.missing)):
        if ids:
            more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
            click.echo(f"{len(ids)} {word}: {' '.join(ids[:5])}{more}")


@click.command()
@queue_argument
@click.argument("job_id", metavar="ID")
@click.option(
    "--revision", type=click.IntRange(0), required=True, help="As it was reviewed: dockwork jobs QUEUE ID."
)
@click.option(
    "--args", "arguments", default=None, help="All arguments by name, as a JSON object.", metavar="JSON"
)
@click.option("--priority", type=click.IntRange(-100, 100), default=None, help="Lower runs first.")
@click.option("--in", "delay", type=SpanType(), default=None, help="Due in so long: seconds, or 1m30s.")
@click.option("--at", type=InstantType(), default=None, help="Due then: ISO 8601 with an offset.")
@click.option(
    "--app", "target", default=None, metavar="APP", help="Whose types check and seal the arguments."
)
@namespace_option
@output_option
def edit(
    queue: str,
    job_id: str,
    revision: int,
    arguments: str | None,
    priority: int | None,
    delay: timedelta | None,
    at: datetime | None,
    target: str | None,
    namespace: str | None,
    output: str,
) -> None:
    """Change a job of QUEUE that waits, if it is still at the revision that was reviewed.

    Without --app arguments are stored as they are; sealed ones need it.
    """
    if delay is not None and at is not None:
        raise click.UsageError("--in or --at, not both")
    if all(each is None for each in (arguments, priority, delay, at)):
        raise click.UsageError("expected a change: --args, --priority, --in or --at")
    args = None if arguments is None else json_object(arguments)
    app = in_namespace(load_app(target), namespace) if target else plain_app(namespace)
    said = with_app(
        app,
        lambda: app.edit(queue, job_id, revision, args=args, priority=priority, delay=delay, at=at),
        on=[queue],
    )
    if output == "json":
        write_json({"id": job_id, "queue": queue, "outcome": str(said)})
    else:
        words = "changed" if said == "ok" else _MEANINGS[said]
        if said == "conflicted":
            words = "is not at that revision any more, or has ended"
        click.echo(f"{job_id}: {said} ({words})")
    if said != "ok":
        raise click.exceptions.Exit(REFUSED)
