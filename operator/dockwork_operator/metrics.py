"""What the operator counts and measures; names and labels are API."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

import dockwork

OBJECT = ("namespace", "name")
SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class Metrics:
    """All series of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._per_object: list[MetricWrapperBase] = []
        self._add_process()
        self._add_redis()
        self._add_queues()
        self._add_cronjobs()
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
        """What /metrics answers."""
        return generate_latest(self.registry)

    def _add_process(self) -> None:
        self.leader = self._gauge("dockwork_operator_leader", "1 while this replica holds the Lease")
        self.build = self._gauge("dockwork_operator_build_info", "Always 1", "version")
        self.build.labels(dockwork.__version__).set(1)
        self.reconcile_seconds = self._histogram(
            "dockwork_operator_reconcile_seconds", "One reconcile", "kind"
        )
        self.reconcile_errors = self._counter(
            "dockwork_operator_reconcile_errors", "Reconciles that ended in an error", "kind", "error"
        )
        self.keys_waiting = self._gauge("dockwork_operator_keys_waiting", "Objects that wait for a reconcile")
        self.tick_lag = self._gauge(
            "dockwork_operator_tick_lag_seconds", "How late the last scaling tick was"
        )
        self.loop_lag = self._gauge(
            "dockwork_operator_loop_lag_seconds", "How late the event loop ran a timer"
        )
        self.watch_stale = self._counter(
            "dockwork_operator_watch_stale", "Objects in which cache and API server differed", "resource"
        )
        self.requests = self._counter(
            "dockwork_operator_api_requests", "Requests to the API server", "verb", "resource", "status"
        )
        self.status_writes = self._counter("dockwork_operator_status_writes", "Writes of a status", "kind")

    def _add_redis(self) -> None:
        self.redis_up = self._gauge("dockwork_operator_redis_up", "1 while this Redis answers", "redis")
        self.redis_seconds = self._histogram(
            "dockwork_operator_redis_seconds", "One round of samples", "redis"
        )
        self.clock_skew = self._gauge(
            "dockwork_operator_clock_skew_seconds", "Redis TIME minus the operator's clock", "redis"
        )

    def _add_queues(self) -> None:
        gauge = self._gauge_of_object
        self.jobs = gauge("dockwork_queue_jobs", "Jobs by state", "state")
        self.throttled = gauge("dockwork_queue_throttled_jobs", "Waiting jobs that no worker may take", "by")
        self.oldest = gauge(
            "dockwork_queue_oldest_wait_seconds", "Age of the oldest job that is due and waits"
        )
        self.service = gauge("dockwork_queue_service_seconds", "Smoothed run time of a job")
        self.arrivals = gauge("dockwork_queue_arrivals_per_second", "Smoothed arrivals")
        self.replicas = gauge("dockwork_queue_replicas", "Worker pods by kind", "kind")
        self.stranded = gauge("dockwork_queue_stranded_jobs", "Parked jobs that no live version knows")
        self.sealed = gauge(
            "dockwork_sealed_jobs", "Jobs that an encryption key seals something of", "key_id"
        )
        self.condition = gauge("dockwork_queue_condition", "1 True, 0 False", "type")
        self.rollout = gauge(
            "dockwork_rollout_info", "1 for the state that the rollout is in", "state", "hash"
        )
        self.decisions = self._counter(
            "dockwork_scale_decisions", "Scaling decisions that changed the size", "reason"
        )
        self.interrupted = self._counter_of_object(
            "dockwork_jobs_interrupted", "Jobs put back or killed, by cause", "cause"
        )
        self.wrong_victims = self._counter_of_object(
            "dockwork_scale_down_wrong_victim", "Pods that ended though others were chosen"
        )

    def _add_cronjobs(self) -> None:
        gauge = self._gauge_of_object
        self.cron_last = gauge(
            "dockwork_cron_last_tick_timestamp_seconds", "The last instant that was decided"
        )
        self.cron_next = gauge("dockwork_cron_next_tick_timestamp_seconds", "The next planned instant")
        self.cron_lag = gauge("dockwork_cron_lag_seconds", "Last tick: enqueued minus instant")
        self.cron_plan = gauge("dockwork_cron_plan_remaining", "Planned instants that are left")
        self.cron_ticks = self._counter_of_object(
            "dockwork_cron_ticks", "Ticks that the operator made, by what became of them", "outcome"
        )

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=SECONDS)

    def _gauge_of_object(self, name: str, text: str, *labels: str) -> Gauge:
        made = self._gauge(name, text, *OBJECT, *labels)
        self._per_object.append(made)
        return made

    def _counter_of_object(self, name: str, text: str, *labels: str) -> Counter:
        made = self._counter(name, text, *OBJECT, *labels)
        self._per_object.append(made)
        return made
