"""The worker's own figures in Prometheus' text form. Queue figures come from the server's counters, not from here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


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
    """The figures, and whatever else this process registered with prometheus_client, as text."""
    # Only here: the package takes memory that a worker without a scraper does not spend.
    from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

    own = CollectorRegistry()
    own.register(_Collector(figures))
    return generate_latest(own) + generate_latest(REGISTRY)


class _Collector:
    def __init__(self, figures: WorkerFigures) -> None:
        self._figures = figures

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

        figures = self._figures
        yield GaugeMetricFamily(
            "dockwork_loop_lag_seconds", "How long the event loop has not answered", value=figures.lag_s
        )
        yield CounterMetricFamily(
            "dockwork_redis_reconnects", "Lost and found connections", value=figures.reconnects
        )
        yield CounterMetricFamily(
            "dockwork_redis_outcome_unknown", "Calls whose reply was lost", value=figures.unknown
        )
        for name, text, field in _LANE_GAUGES:
            gauge = GaugeMetricFamily(name, text, labels=["queue"])
            for lane in figures.lanes:
                gauge.add_metric([lane.queue], getattr(lane, field))
            yield gauge
        for name, text, field in _LANE_COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["queue"])
            for lane in figures.lanes:
                counter.add_metric([lane.queue], getattr(lane, field))
            yield counter
