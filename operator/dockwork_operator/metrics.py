"""What the operator counts and measures; names and labels are API."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

import dockwork

QUEUE = ("namespace", "name")
SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """All series of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._per_object: list[MetricWrapperBase] = []

        def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
            return Gauge(name, text, labels, registry=registry)

        def of_object(name: str, text: str, *labels: str) -> Gauge:
            made = gauge(name, text, (*QUEUE, *labels))
            self._per_object.append(made)
            return made

        self.leader = gauge("dockwork_operator_leader", "1 while this replica holds the Lease")
        self.build = gauge("dockwork_operator_build_info", "Always 1", ("version",))
        self.build.labels(dockwork.__version__).set(1)
        self.reconcile_seconds = Histogram(
            "dockwork_operator_reconcile_seconds",
            "One reconcile",
            ("kind",),
            registry=registry,
            buckets=SECONDS,
        )
        self.reconcile_errors = counter(
            "dockwork_operator_reconcile_errors", "Reconciles that ended in an error", ("kind", "error")
        )
        self.keys_waiting = gauge("dockwork_operator_keys_waiting", "Objects that wait for a reconcile")
        self.tick_lag = gauge("dockwork_operator_tick_lag_seconds", "How late the last scaling tick was")
        self.loop_lag = gauge("dockwork_operator_loop_lag_seconds", "How late the event loop ran a timer")
        self.watch_stale = counter(
            "dockwork_operator_watch_stale", "Objects in which cache and API server differed", ("resource",)
        )
        self.requests = counter(
            "dockwork_operator_api_requests", "Requests to the API server", ("verb", "resource", "status")
        )
        self.redis_up = gauge("dockwork_operator_redis_up", "1 while this Redis answers", ("redis",))
        self.redis_seconds = Histogram(
            "dockwork_operator_redis_seconds",
            "One round of samples",
            ("redis",),
            registry=registry,
            buckets=SECONDS,
        )
        self.clock_skew = gauge(
            "dockwork_operator_clock_skew_seconds", "Redis TIME minus the operator's clock", ("redis",)
        )
        self.status_writes = counter("dockwork_operator_status_writes", "Writes of a status", ("kind",))

        self.jobs = of_object("dockwork_queue_jobs", "Jobs by state", "state")
        self.oldest = of_object(
            "dockwork_queue_oldest_wait_seconds", "Age of the oldest job that is due and waits"
        )
        self.service = of_object("dockwork_queue_service_seconds", "Smoothed run time of a job")
        self.arrivals = of_object("dockwork_queue_arrivals_per_second", "Smoothed arrivals")
        self.replicas = of_object("dockwork_queue_replicas", "Worker pods by kind", "kind")
        self.stranded = of_object("dockwork_queue_stranded_jobs", "Parked jobs that no live version knows")
        self.condition = of_object("dockwork_queue_condition", "1 True, 0 False", "type")
        self.rollout = of_object(
            "dockwork_rollout_info", "1 for the state that the rollout is in", "state", "hash"
        )
        self.interrupted = Counter(
            "dockwork_jobs_interrupted",
            "Jobs put back or killed, by cause",
            (*QUEUE, "cause"),
            registry=registry,
        )
        self.decisions = counter(
            "dockwork_scale_decisions", "Scaling decisions that changed the size", ("reason",)
        )
        self.wrong_victims = Counter(
            "dockwork_scale_down_wrong_victim",
            "Pods that ended though others were chosen",
            QUEUE,
            registry=registry,
        )
        self.cron_last = of_object(
            "dockwork_cron_last_tick_timestamp_seconds", "The last instant that was decided"
        )
        self.cron_next = of_object("dockwork_cron_next_tick_timestamp_seconds", "The next planned instant")
        self.cron_lag = of_object("dockwork_cron_lag_seconds", "Last tick: enqueued minus instant")
        self.cron_plan = of_object("dockwork_cron_plan_remaining", "Planned instants that are left")
        self.cron_ticks = Counter(
            "dockwork_cron_ticks", "Ticks by what became of them", (*QUEUE, "outcome"), registry=registry
        )
        self._per_object += [self.interrupted, self.wrong_victims, self.cron_ticks]
        #: Counters that decisions raise, by their name in /metrics.
        self.counters = {
            "dockwork_jobs_interrupted_total": self.interrupted,
            "dockwork_scale_down_wrong_victim_total": self.wrong_victims,
            "dockwork_cron_ticks_total": self.cron_ticks,
        }

    def forget(self, namespace: str, name: str) -> None:
        """Remove every series of an object that is gone."""
        for metric in self._per_object:
            metric.remove_by_labels({"namespace": namespace, "name": name})

    def text(self) -> bytes:
        return generate_latest(self.registry)
