"""OpenTelemetry spans around each enqueue and each run, linked through the job's headers.

Source: W3C Trace Context for the headers, OpenTelemetry's semantic conventions for messaging for names and attributes.
Nothing of OpenTelemetry is imported unless an application imports this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

try:
    from opentelemetry import context, trace
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise ImportError("dockwork.otel needs opentelemetry-api: pip install 'dockwork[otel]'") from None

from dockwork.core.jobs import JobInfo
from dockwork.registry import Item
from dockwork.store.protocol import Admission, Admitted
from dockwork.version import __version__

if TYPE_CHECKING:
    from dockwork.app import App

_PROPAGATOR = TraceContextTextMapPropagator()


def instrument(
    app: App, *, tracer_provider: trace.TracerProvider | None = None, same_trace: bool = False
) -> None:
    """Add the spans to an app: once, before its workers are made.

    tracer_provider    the global one if not given
    same_trace         a run is a child of its enqueue, in one trace; else it begins a trace that is linked to it,
                       which is what the conventions advise for work that may come much later, or more than once
    """
    tracer = trace.get_tracer("dockwork", __version__, tracer_provider)

    @app.enqueue_middleware
    async def publish(item: Item[Any], call_next: Callable[[Item[Any]], Awaitable[Admission]]) -> Admission:
        with tracer.start_as_current_span(
            f"publish {item.queue}",
            kind=SpanKind.PRODUCER,
            attributes=_attributes("publish", item.queue, item.type),
        ) as span:
            headers = dict(item.headers)
            _PROPAGATOR.inject(headers)
            admission = await call_next(item.but(headers=headers))
            span.set_attribute("messaging.message.id", admission.id)
            span.set_attribute("dockwork.admission", admission.outcome.value)
            if admission.outcome is Admitted.REJECTED:
                span.set_status(Status(StatusCode.ERROR, admission.reason))
            return admission

    @app.middleware
    async def process(job: JobInfo, call_next: Callable[[JobInfo], Awaitable[Any]]) -> Any:
        enqueued = _PROPAGATOR.extract(dict(job.headers), context.Context())
        origin = trace.get_current_span(enqueued).get_span_context()
        attributes = _attributes("process", job.queue, job.type)
        attributes |= {
            "messaging.message.id": job.id,
            "dockwork.job.attempt": job.attempt,
            "dockwork.job.delivery": job.delivery,
        }
        with tracer.start_as_current_span(
            f"process {job.queue}",
            kind=SpanKind.CONSUMER,
            context=enqueued if same_trace else context.Context(),
            links=[Link(origin)] if origin.is_valid and not same_trace else [],
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                return await call_next(job)
            except BaseException as error:
                _failed(span, error)
                raise


def _attributes(operation: str, queue: str, kind: str) -> dict[str, str | int]:
    return {
        "messaging.system": "dockwork",
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": "send" if operation == "publish" else "process",
        "dockwork.job.type": kind,
    }


def _failed(span: Span, error: BaseException) -> None:
    """The class and no message: what a handler says may be sealed elsewhere, and a trace goes to other people."""
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR, type(error).__qualname__))
