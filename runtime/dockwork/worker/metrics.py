"""The worker's own figures in Prometheus' text form. Queue figures come from the server's counters, not from here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

from dockwork.worker.exposition import Family, render_families
from dockwork.worker.process_figures import process_families


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneFigures:
    """One queue's share; `lease_margin_s` is what is left of the oldest lease since its last renewal."""

    queue: str
    slots: int
    busy: int
    stuck: int
    lease_margin_s: float
    settled: int
    lost: int
    requeued: int
    abandoned: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerFigures:
    lag_s: float
    reconnects: int
    unknown: int
    lanes: tuple[LaneFigures, ...] = ()


#: Name, help, field of `LaneFigures`.
_LANE_GAUGES = (
    ("dockwork_worker_slots", "Slots of this worker", "slots"),
    ("dockwork_worker_busy", "Slots that run a handler", "busy"),
    ("dockwork_worker_stuck", "Slots that hold a handler which ignored its hard timeout", "stuck"),
    ("dockwork_lease_margin_seconds", "What is left of the leases since the last renewal", "lease_margin_s"),
)
_LANE_COUNTERS = (
    ("dockwork_worker_settled_jobs", "Outcomes that this worker settled", "settled"),
    ("dockwork_worker_lost_leases", "Runs whose lease was lost", "lost"),
    ("dockwork_worker_requeued_jobs", "Jobs that this worker put back", "requeued"),
    ("dockwork_abandoned_jobs", "Jobs that still ran at the end of a drain and were put back", "abandoned"),
)


def render(figures: WorkerFigures) -> bytes:
    """The figures, and what this process registered with prometheus_client, as text."""
    own = render_families(families_of(figures))
    # An app that uses the client has imported it, and whole where it has registered something. Who does not is
    # spared its 7 MiB, and told of its process all the same.
    client = sys.modules.get("prometheus_client")
    generate, registry = getattr(client, "generate_latest", None), getattr(client, "REGISTRY", None)
    if generate is None or registry is None:
        return own + render_families(process_families())
    return own + bytes(generate(registry))


def families_of(figures: WorkerFigures) -> Iterator[Family]:
    """The worker's own figures."""
    for name, text, kind, value in (
        ("dockwork_loop_lag_seconds", "How long the event loop has not answered", "gauge", figures.lag_s),
        ("dockwork_redis_reconnects", "Lost and found connections", "counter", figures.reconnects),
        ("dockwork_redis_outcome_unknown", "Calls whose reply was lost", "counter", figures.unknown),
    ):
        yield Family(name, text, kind, [({}, value)])
    for kind, rows in (("gauge", _LANE_GAUGES), ("counter", _LANE_COUNTERS)):
        for name, text, field in rows:
            yield Family(
                name, text, kind, [({"queue": lane.queue}, getattr(lane, field)) for lane in figures.lanes]
            )
