"""``dockwork stats``, ``errors``, ``events``, ``workers``: what goes on in queues."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from dockwork.app import App
from dockwork.cli.apps import plain_app
from dockwork.cli.options import (
    SpanType,
    namespace_option,
    output_option,
    queue_argument,
    queues_argument,
    with_app,
)
from dockwork.cli.tables import age, facts_of, write_facts, write_json, write_table
from dockwork.core.keys import QueueName
from dockwork.events import EVENT_NAMES, Gap
from dockwork.store.protocol import Event, MinuteFigures, QueueStats, Sample

_MiB = 1024 * 1024


@click.command()
@queue_argument
@click.option(
    "--minutes",
    type=click.IntRange(1, 2880),
    default=10,
    show_default=True,
    help="Figures of so many minutes; they are kept for 48 hours.",
)
@namespace_option
@output_option
def stats(queue: str, minutes: int, namespace: str | None, output: str) -> None:
    """Show the figures of QUEUE: jobs by state, what keeps them waiting, totals, and minute by minute."""
    app = plain_app(namespace)
    now, past = with_app(app, lambda: _both(app, queue, minutes), on=[queue])
    if output == "json":
        write_json({"queue": queue, **facts_of(now), "runnable": now.runnable, "minutes": past})
        return
    write_facts(
        {
            "jobs": _counts(now.counts),
            "may run now": str(now.runnable),
            "kept waiting": _counts(now.throttled),
            "flags": ", ".join(w for w, on in (("paused", now.paused), ("closed", now.closed)) if on) or "-",
            "payloads": f"{now.bytes / _MiB:.1f} MiB",
            "oldest waits": age(timedelta(milliseconds=now.oldest_wait_ms)) if now.oldest_wait_ms else "-",
            "parked types": _counts(now.parked_types),
            "totals": _counts(_told(now.totals)),
        }
    )
    click.echo()
    write_table(
        (("MINUTE", "left"), ("ARRIVED", "right"), ("FINISHED", "right"), ("MEAN RUN", "right")),
        [_minute(one) for one in past],
    )


async def _both(app: App, queue: str, minutes: int) -> tuple[QueueStats, list[MinuteFigures]]:
    return await app.stats(queue), await app.figures(queue, minutes)


def _counts(counts: Mapping[Any, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "-"


def _told(totals: Mapping[str, int]) -> Mapping[str, int]:
    """The totals that have a name; those like ``w10`` are buckets of histograms, for programs."""
    return {name: number for name, number in totals.items() if not name[1:].isdecimal()}


def _minute(one: MinuteFigures) -> Sequence[str]:
    mean = age(timedelta(milliseconds=one.run_ms / one.finished)) if one.finished else "-"
    return (_clock(one.minute_ms, "minutes"), str(one.arrived), str(one.finished), mean)


def _clock(ms: int, timespec: str = "milliseconds") -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec=timespec).replace("+00:00", "Z")


@click.command()
@queues_argument
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Of each queue.")
@click.option("--traces", is_flag=True, help="Print the traces, too.")
@namespace_option
@output_option
def errors(queues: tuple[str, ...], limit: int, traces: bool, namespace: str | None, output: str) -> None:
    """Show the last failed runs, newest first, and how many there were by queue, type and class."""
    app = plain_app(namespace)

    async def read() -> tuple[Any, list[Any]]:
        names = queues or tuple(await app.queues())
        figures = await app.error_stats(*names)
        found = [report for name in names for report in await app.errors(name, limit=limit)]
        return figures, sorted(found, key=lambda report: -report.at_ms)

    figures, found = with_app(app, read, on=queues)
    if output == "json":
        write_json({"stats": figures, "recent": found})
        return
    failed = {name: one.errors for name, one in figures.by_type.items()}
    write_facts(
        {
            "failed runs": str(figures.total),
            "by queue": _counts(figures.by_queue),
            "by type": _counts(failed),
            "by class": _counts(figures.by_class),
        }
    )
    click.echo()
    columns = ("AT", "QUEUE", "TYPE", "ID", "ATTEMPT", "OUTCOME", "ERROR")
    write_table(
        [(name, "right" if name == "ATTEMPT" else "left") for name in columns],
        [
            (
                _clock(one.at_ms, "seconds"),
                one.queue,
                one.type,
                one.id,
                str(one.attempt),
                one.outcome,
                f"{one.error_class}: {one.message.splitlines()[0] if one.message else ''}",
            )
            for one in found
        ],
        spare=("ATTEMPT", "OUTCOME", "QUEUE", "AT"),
    )
    for one in found if traces else ():
        click.echo(f"\n{one.id}\n{one.trace}")


@click.command()
@queue_argument
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(sorted(EVENT_NAMES)),
    metavar="NAME",
    help=f"Only these; repeatable: {', '.join(sorted(EVENT_NAMES))}.",
)
@click.option("--job", default=None, help="Only what concerns the job of that id.")
@click.option("--since", default="$", help="An event's id, or 0 for all that are kept. Default: from now on.")
@click.option("--for", "span", type=SpanType(), default=None, help="Stop after so long.")
@click.option("--count", type=click.IntRange(1), default=None, help="Stop after so many.")
@namespace_option
@output_option
def events(
    queue: str,
    only: tuple[str, ...],
    job: str | None,
    since: str,
    span: timedelta | None,
    count: int | None,
    namespace: str | None,
    output: str,
) -> None:
    """Follow what happens in QUEUE, until Ctrl-C. With -o json each event is a line."""
    app = plain_app(namespace)

    async def follow() -> None:
        left = count
        async with aclosing(app.events(queue, only=only or None, since=since, job=job)) as stream:
            async for event in stream:
                click.echo(
                    json.dumps(_event(event), ensure_ascii=False) if output == "json" else _line(event)
                )
                if left is not None and (left := left - 1) == 0:
                    return

    async def bounded() -> None:
        try:
            async with asyncio.timeout(None if span is None else span.total_seconds()):
                await follow()
        except TimeoutError:
            return

    with_app(app, bounded, on=[queue], new=True)


def _event(event: Event | Gap) -> dict[str, Any]:
    if isinstance(event, Gap):
        return {"name": "gap", "from": event.from_, "to": event.to}
    return {**facts_of(event), "ids": list(event.ids), "data": dict(event.data)}


def _line(event: Event | Gap) -> str:
    if isinstance(event, Gap):
        return f"-- events are missing here: the stream was trimmed between {event.from_ or '?'} and {event.to or '?'}"
    at = event.id.split("-")[0]
    when = _clock(int(at)) if at.isdigit() else event.id
    some = " ".join(event.ids[:8]) + (f" and {len(event.ids) - 8} more" if len(event.ids) > 8 else "")
    reason = f" ({event.reason})" if event.reason else ""
    return f"{when}  {event.name}{reason}  {some}"


@click.command()
@queues_argument
@namespace_option
@output_option
def workers(queues: tuple[str, ...], namespace: str | None, output: str) -> None:
    """Show the workers that beat in the last minute, and what they do."""
    app = plain_app(namespace)

    async def read() -> list[tuple[str, Sample]]:
        names = queues or tuple(await app.queues())
        client = app.client
        found = []
        for name in names:
            queue = QueueName(app.settings.namespace, name)
            found.append((name, await client.store.sample(queue, horizon_ms=0)))
        return found

    samples = with_app(app, read, on=queues)
    rows = [(name, beat, sample.time_ms) for name, sample in samples for beat in sample.workers]
    if output == "json":
        write_json([{"queue": name, **facts_of(beat)} for name, beat, _ in rows])
        return
    columns = ("QUEUE", "WORKER", "STATE", "BUSY", "SLOTS", "LONGEST", "LAG", "RSS", "BEAT", "VERSION")
    right = {"BUSY", "SLOTS", "LONGEST", "LAG", "RSS", "BEAT"}
    write_table(
        [(name, "right" if name in right else "left") for name in columns],
        [
            (
                name,
                beat.pod_name or beat.owner,
                beat.state.value,
                str(beat.busy),
                str(beat.slots),
                age(timedelta(milliseconds=max((now - began for _, began, _ in beat.jobs), default=0))),
                f"{beat.lag_ms}ms",
                f"{beat.rss_bytes // _MiB}Mi",
                age(timedelta(milliseconds=now - beat.beat_ms)),
                beat.version or "-",
            )
            for name, beat, now in rows
        ],
        spare=("VERSION", "LAG", "RSS", "LONGEST", "BEAT"),
        cut="WORKER",
    )
    if not rows:
        click.echo(f"no worker in namespace {app.settings.namespace}")
