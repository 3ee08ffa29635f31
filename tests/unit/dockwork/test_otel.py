"""Spans of enqueue and run, linked over the queue by W3C headers; without the package nothing is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from dockwork import App
from dockwork.otel import instrument

pytestmark = pytest.mark.covers("RT-234")


def an_app(*, same_trace: bool = False) -> tuple[App, InMemorySpanExporter]:
    app, kept, provider = App("shop"), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    instrument(app, tracer_provider=provider, same_trace=same_trace)

    @app.job(queue="mail", retries=0)
    async def send(to: str) -> str:
        if not to:
            raise ValueError("the secret word is hunter2")
        return to

    return app, kept


def by_kind(kept: InMemorySpanExporter) -> dict[SpanKind, list[ReadableSpan]]:
    found: dict[SpanKind, list[ReadableSpan]] = {SpanKind.PRODUCER: [], SpanKind.CONSUMER: []}
    for span in kept.get_finished_spans():
        found[span.kind].append(span)
    return found


async def test_a_run_begins_a_trace_that_is_linked_to_its_enqueue() -> None:
    app, kept = an_app()
    async with app.testing("manual") as bench:
        job = await app.registry["send"].options(headers={"tenant": "acme"}).enqueue(to="ann")
        await bench.run_all()

    spans = by_kind(kept)
    (enqueued,), (ran,) = spans[SpanKind.PRODUCER], spans[SpanKind.CONSUMER]
    assert (enqueued.name, ran.name) == ("publish mail", "process mail")
    assert enqueued.context is not None
    assert ran.context is not None
    (link,) = ran.links
    assert (link.context.trace_id, link.context.span_id) == (
        enqueued.context.trace_id,
        enqueued.context.span_id,
    )
    assert ran.context.trace_id != enqueued.context.trace_id
    assert ran.attributes is not None
    assert ran.attributes["messaging.message.id"] == job.id
    assert (ran.attributes["dockwork.job.type"], ran.attributes["dockwork.job.attempt"]) == ("send", 1)
    assert ran.status.status_code is StatusCode.UNSET


async def test_in_one_trace_the_run_is_a_child_of_its_enqueue() -> None:
    app, kept = an_app(same_trace=True)
    async with app.testing("inline"):
        await app.enqueue_many([app.registry["send"].item(to="ann"), app.registry["send"].item(to="bob")])

    spans = by_kind(kept)
    parents = {span.context.span_id for span in spans[SpanKind.PRODUCER] if span.context is not None}
    assert len(parents) == 2
    assert {span.parent.span_id for span in spans[SpanKind.CONSUMER] if span.parent is not None} == parents


async def test_a_failed_run_is_an_error_by_its_class_and_no_message_leaves() -> None:
    app, kept = an_app()
    async with app.testing("manual") as bench:
        await app.registry["send"].enqueue(to="")
        await bench.run_all()

    (ran,) = by_kind(kept)[SpanKind.CONSUMER]
    assert ran.attributes is not None
    assert (ran.status.status_code, ran.attributes["error.type"]) == (StatusCode.ERROR, "ValueError")
    assert "hunter2" not in ran.to_json()


async def test_a_refused_enqueue_is_an_error_with_its_reason() -> None:
    app, kept = an_app()
    app.queue("mail", max_depth=1)
    async with app.testing("manual"):
        await app.configure("mail")
        await app.enqueue_many([app.registry["send"].item(to=str(n)) for n in range(2)])

    statuses = sorted(span.status.description or "" for span in by_kind(kept)[SpanKind.PRODUCER])
    assert statuses == ["", "depth"]


def test_without_the_package_all_else_works_and_nothing_else_asks_for_it() -> None:
    # redis-py looks for the package by itself, so it is taken away instead of watched.
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import dockwork.app, dockwork.worker.worker, dockwork.store.redis, dockwork.cli\n"
        "print('dockwork.otel' in sys.modules)\n"
        "try:\n    import dockwork.otel\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told, missing = done.stdout.splitlines()
    assert told == "False"
    assert "dockwork[otel]" in missing
