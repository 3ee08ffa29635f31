"""``dockwork doctor``: what is wrong with the server, the login and the queues, and what to do about it."""

from __future__ import annotations

import dataclasses
import secrets
import textwrap
from collections.abc import AsyncIterator, Sequence

import click

from dockwork import clock
from dockwork.app import App
from dockwork.cli.apps import plain_app
from dockwork.cli.exits import REFUSED
from dockwork.cli.findings import Finding, judge_access, judge_clock, judge_queue, judge_server
from dockwork.cli.options import namespace_option, output_option, queues_argument, with_app
from dockwork.cli.tables import output_width, write_json
from dockwork.core.keys import QueueName
from dockwork.errors import DockworkError, InvalidUrl, SchemaMismatch, StoreUnavailable
from dockwork.store.calls import SCHEMA
from dockwork.store.protocol import NewJob, Outcome, Owner, Settlement, Store, Verdict

#: Queues whose names begin so are ours; one that an interrupted run left behind may be obliterated.
SCRATCH = "doctor-"
_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


@click.command()
@queues_argument
@namespace_option
@output_option
def doctor(queues: tuple[str, ...], namespace: str | None, output: str) -> None:
    """Say what is wrong with Redis, the login and the queues, and what to do about it.

    Looks at all queues of the namespace, or at QUEUEs. Runs one job through a queue of its own, doctor-…, that is
    deleted again. Exits with 1 if anything is bad.
    """
    app = plain_app(namespace)
    found = with_app(app, lambda: examine(app, queues))
    if output == "json":
        write_json([dataclasses.asdict(one) for one in found])
    else:
        _tell(found)
    if any(one.level == "bad" for one in found):
        raise click.exceptions.Exit(REFUSED)


async def examine(app: App, queues: Sequence[str] = ()) -> list[Finding]:
    """All findings: on the server first, then queue by queue."""
    store, namespace = app.client.store, app.settings.namespace
    scratch = QueueName(namespace, f"{SCRATCH}{secrets.token_hex(4)}")
    try:
        found = [await _clock(store)]
    except InvalidUrl as error:
        return [Finding("bad", "connection", str(error), "Correct DOCKWORK_REDIS_URL and REDIS_MODE.")]
    except DockworkError as error:
        remedy = "Correct the user and the password in the URL, or the login's ACL."
        if isinstance(error, StoreUnavailable):
            remedy = "Start Redis, or correct DOCKWORK_REDIS_URL and what is on the way to it."
        return [Finding("bad", "connection", str(error), remedy)]
    found += await _server(store)
    found += [one async for one in _access(store, scratch)]
    try:
        known = [name.queue for name in await store.queues(namespace)]
    except DockworkError as error:
        return [*found, Finding("bad", "queues", str(error), "See access.")]
    for name in queues or [name for name in known if not name.startswith(SCRATCH)]:
        found += await _queue(store, QueueName(namespace, name), known=name in known)
    return found


async def _clock(store: Store) -> Finding:
    await store.ping()  # connects, so that the next one is a round trip and nothing else
    before_ms, before = clock.now_ms(), clock.monotonic()
    server_ms = await store.ping()
    return judge_clock(server_ms, before_ms, (clock.monotonic() - before) * 1000)


async def _server(store: Store) -> list[Finding]:
    try:
        return [*judge_server(await store.server())]
    except DockworkError as error:
        return [Finding("warn", "server", f"the server does not tell: {error}", "Allow INFO: +info.")]


async def _access(store: Store, scratch: QueueName) -> AsyncIterator[Finding]:
    """What the login lacks, and whether one job goes all the way."""
    refused = []
    try:
        refused = await store.refusals(scratch)
        for finding in judge_access(refused):
            yield finding
    except DockworkError as error:
        yield Finding("bad", "access", str(error), "See connection.")
    try:
        took_ms = await _trial(store, scratch)
    except DockworkError as error:
        remedy = (
            "See access." if refused else "The message is the server's: see its configuration and its log."
        )
        yield Finding("bad", "scripts", f"a job on queue {scratch.queue} failed: {error}", remedy)
    else:
        yield Finding(
            "ok", "scripts", f"load and answer: a job was stored, run and deleted in {took_ms:.0f} ms"
        )


async def _trial(store: Store, queue: QueueName) -> float:
    """Milliseconds that one job took from enqueue to the deletion of its queue. Raises what goes wrong."""
    owner = Owner(pod="doctor", boot=secrets.token_hex(8))
    job = NewJob(id="trial", type="doctor.trial", envelope=b'{"v":1,"type":"doctor.trial","args":{}}')
    began = clock.monotonic()
    try:
        await store.enqueue(queue, [job])
        claimed = await store.claim(queue, owner, number=1, slots=1)
        leases = [claim.lease for claim in claimed.claims]
        await store.renew(queue, leases, None)
        settled = await store.settle(
            queue, owner, [Settlement(lease, Outcome.COMPLETED) for lease in leases], number=2
        )
        events = {event.name for event in await store.events(queue, "0", block_s=0)}
        if settled.verdicts != (Verdict.OK,) or "completed" not in events:
            raise DockworkError(f"it was {settled.verdicts}, with the events {sorted(events)}")
    finally:
        token = secrets.token_hex(8)
        while not (part := await store.obliterate(queue, token)).done and not part.missing:
            pass
    return (clock.monotonic() - began) * 1000


async def _queue(store: Store, queue: QueueName, *, known: bool) -> list[Finding]:
    if not known:
        remedy = "Look for a wrong name or namespace: dockwork queues."
        words = f"nobody has used a queue of that name in namespace {queue.namespace}"
        return [Finding("warn", "known", words, remedy, queue.queue)]
    try:
        sample = await store.sample(queue, horizon_ms=0)
        upkeep = await store.upkeep(queue)
    except SchemaMismatch as error:
        remedy = (
            "Run a newer dockwork." if error.found > error.readable else f"dockwork migrate {queue.queue}"
        )
        return [Finding("bad", "schema", str(error), remedy, queue.queue)]
    except DockworkError as error:
        return [Finding("bad", "read", str(error), "See access.", queue.queue)]
    schema = Finding("ok", "schema", f"version {SCHEMA}", queue=queue.queue)
    return [schema, *judge_queue(queue.queue, sample, upkeep)]


def _tell(found: Sequence[Finding]) -> None:
    """The report for people: a line per finding, the remedy below."""
    width = output_width()
    wide = max(len(one.check) for one in found)
    queue = ""
    for one in found:
        if one.queue != queue:
            queue = one.queue
            click.echo(f"\nqueue {queue}")
        first = f"{one.level:<4}  {one.check:<{wide}}  "
        lines = textwrap.wrap(one.words, max(width - len(first), 20)) or [""]
        click.echo(click.style(f"{one.level:<4}", fg=_COLOURS[one.level]) + first[4:] + lines[0])
        for line in lines[1:]:
            click.echo(" " * len(first) + line)
        if one.remedy:
            # Not wrapped: it is there to be copied.
            click.echo(" " * len(first) + f"-> {one.remedy}")
    count = {level: sum(one.level == level for one in found) for level in ("bad", "warn")}
    words = [
        f"{number} {word}"
        for word, number in (("bad", count["bad"]), ("to look at", count["warn"]))
        if number
    ]
    click.echo(f"\n{', '.join(words) or 'all is well'}")
