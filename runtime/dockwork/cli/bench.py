"""``dockwork bench``: how many jobs a second this machine and this Redis can do, measured on a queue of its own."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import click

from dockwork import clock
from dockwork.app import App
from dockwork.cli.apps import in_namespace
from dockwork.cli.exits import REFUSED
from dockwork.cli.options import namespace_option, output_option, with_app
from dockwork.cli.progress import bar
from dockwork.cli.tables import write_facts, write_json
from dockwork.core.slots import Shared
from dockwork.errors import DockworkError
from dockwork.registry import Item
from dockwork.store.protocol import Store
from dockwork.worker.loops import spare_collector

#: Queues whose names begin so are ours; one that a kill left behind may be obliterated.
SCRATCH = "bench-"
_CHUNK = 2_000
_PINGS = 20
_LOOK_S = 0.1
#: No job in so long: the rest is lost. More than a lease, so that a stuck one had its second chance.
_GIVE_UP_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What was measured. Rates are jobs per second of wall time.

    payload        bytes of each job's argument
    round_trip_ms  median of 20 questions that cost the server nothing
    lost           jobs that no handler saw; `duplicated`: runs beyond a job's first
    """

    jobs: int
    payload: int
    slots: int
    server: str
    round_trip_ms: float
    enqueued_per_s: float
    run_per_s: float
    lost: int
    duplicated: int


@click.command()
@click.option(
    "--jobs", type=click.IntRange(2, 1_000_000), default=10_000, show_default=True, help="How many."
)
@click.option(
    "--payload", type=click.IntRange(0, 65_536), default=1024, show_default=True, help="Bytes of each job."
)
@click.option(
    "--slots", type=click.IntRange(1, 1000), default=100, show_default=True, help="Of the one worker."
)
@click.option("--yes", is_flag=True, help="Do it although the namespace has queues already.")
@namespace_option
@output_option
def bench(jobs: int, payload: int, slots: int, yes: bool, namespace: str | None, output: str) -> None:
    """Measure this machine and this Redis: store jobs in bulk, then run them in one worker.

    The queue bench-… is deleted at the end, also after Ctrl-C. Producer, worker and what counts are this one process,
    and the jobs do nothing: the figure is what Dockwork costs, not what your jobs do. Exits with 1 if a job was lost
    or ran twice.
    """
    app = in_namespace(App("dockwork-bench"), namespace)
    seen: Counter[int] = Counter()
    ends = [0.0, 0.0]
    name = f"{SCRATCH}{secrets.token_hex(4)}"

    @app.job(queue=name, name="bench.noop")
    async def noop(n: int, body: str) -> None:
        seen[n] += 1
        ends[len(seen) > 1] = clock.monotonic()

    async def measured() -> Figures:
        others = [queue for queue in await app.queues() if not queue.startswith(SCRATCH)]
        if others and not yes:
            raise _Busy(app.settings.namespace, others)
        click.echo(f"queue {name} in namespace {app.settings.namespace}", err=True)
        server, round_trip_ms = await _ask(app.client.store)
        try:
            stored_s = await _store(app, jobs, lambda n: noop.item(n=n, body="x" * payload))
            await _drain(app, name, jobs, seen, slots)
        finally:
            await app.obliterate(name, confirm=name)
        run_s = max(ends[1] - ends[0], 1e-6)
        return Figures(
            jobs=jobs,
            payload=payload,
            slots=slots,
            server=server,
            round_trip_ms=round(round_trip_ms, 3),
            enqueued_per_s=round(jobs / stored_s, 1),
            run_per_s=round(max(len(seen) - 1, 0) / run_s, 1),
            lost=jobs - len(seen),
            duplicated=seen.total() - len(seen),
        )

    try:
        with _only_errors():
            found = with_app(app, measured)
    except _Busy as busy:
        click.echo(f"dockwork: {busy}", err=True)
        raise click.exceptions.Exit(REFUSED) from None
    _tell(found, output)
    if found.lost or found.duplicated:
        raise click.exceptions.Exit(REFUSED)


@contextmanager
def _only_errors() -> Iterator[None]:
    """Its queue has no Queue resource and its Redis may have no file: both are said by others."""
    log = logging.getLogger("dockwork")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


class _Busy(DockworkError):
    """The Redis has other work."""

    def __init__(self, namespace: str, queues: list[str]) -> None:
        some = ", ".join(queues[:3]) + (", ..." if len(queues) > 3 else "")
        super().__init__(
            f"namespace {namespace} has queues already ({some}), which a measurement slows down; --yes does it all the "
            "same, -n NAME takes another namespace of the same Redis"
        )


async def _ask(store: Store) -> tuple[str, float]:
    """The server's name and version, and the median round trip in milliseconds."""
    server, trips = await store.server(), []
    for _ in range(_PINGS):
        began = clock.monotonic()
        await store.ping()
        trips.append(clock.monotonic() - began)
    return f"{server['name']} {server['version']}", median(trips) * 1000


async def _store(app: App, total: int, item: Callable[[int], Item[Any]]) -> float:
    """Seconds that it took to make and to store all jobs."""
    began = clock.monotonic()
    with bar("stored", total) as progress:
        for first in range(0, total, _CHUNK):
            end = min(first + _CHUNK, total)
            await app.enqueue_many([item(n) for n in range(first, end)], returning="counts")
            progress(end, total)
    return clock.monotonic() - began


async def _drain(app: App, queue: str, total: int, seen: Counter[int], slots: int) -> None:
    """Run a worker until every job has run once, or none for so long that the rest is lost."""
    settings = replace(
        app.settings, queues={queue: slots}, shared=Shared(), concurrency=None, trap_signals=False,
        probe_addr=None, max_jobs=None, max_rss=None,
    )  # fmt: skip
    worker = app.worker(settings=settings)
    spare_collector()  # as `dockwork worker` does
    last, count = clock.monotonic(), 0
    running = asyncio.create_task(worker.run())
    try:
        with bar("run", total) as progress:
            while count < total and clock.monotonic() - last < _GIVE_UP_S and not running.done():
                await asyncio.sleep(_LOOK_S)
                if len(seen) > count:
                    count, last = len(seen), clock.monotonic()
                    progress(count, total)
    finally:
        await worker.shutdown()
        await running


def _tell(found: Figures, output: str) -> None:
    if output == "json":
        write_json(found)
        return
    delivery = "each job ran once"
    if found.lost or found.duplicated:
        delivery = f"{found.lost} lost, {found.duplicated} ran again"
    write_facts(
        {
            "jobs": f"{found.jobs} of {found.payload} B, {found.slots} slots, {found.server}",
            "round trip": f"{found.round_trip_ms} ms",
            "enqueued": f"{found.enqueued_per_s:,.0f} jobs/s",
            "run": f"{found.run_per_s:,.0f} jobs/s",
            "delivery": delivery,
        }
    )
