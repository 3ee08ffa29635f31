"""What a reconcile shows of itself: log lines, counters and gauges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dockwork_operator.decide.cron_seen import CronSeen
from dockwork_operator.decide.memory import Memory
from dockwork_operator.decide.plan import (
    Action,
    Applied,
    ApplyChild,
    Configure,
    DeleteChild,
    DeletionCost,
    Plan,
    Quiesce,
    Scale,
    Unquiesce,
    Upkeep,
)
from dockwork_operator.decide.seen import QueueSeen
from dockwork_operator.kube.resources import ObjectKey
from dockwork_operator.metrics import Metrics


@dataclass(frozen=True, slots=True)
class Line:
    """One log line: a decision that changed something."""

    event: str
    pairs: Mapping[str, Any] = field(default_factory=dict)


def changes(done: Iterable[Action]) -> list[Line]:
    """A line per action that changed an object; what is only renewed each tick has none."""
    return [line for action in done if (line := _line(action)) is not None]


def _line(action: Action) -> Line | None:
    match action:
        case ApplyChild():
            return Line("applied", {"kind": action.kind, "name": action.name, "reason": action.reason})
        case Scale():
            return Line("scaled", {"from": action.seen, "to": action.to, "reason": str(action.reason)})
        case DeletionCost():
            return Line("deletion_cost", {"pod": action.pod, "to": action.cost, "reason": action.reason})
        case DeleteChild():
            return Line("deleted", {"kind": action.kind, "name": action.name, "reason": action.reason})
        case Unquiesce():
            return Line("unquiesced", {"pods": list(action.pods), "reason": action.reason})
        case Configure() | Quiesce() | Upkeep():
            return None


def count_all(metrics: Metrics, key: ObjectKey, plan: Plan, applied: Applied) -> None:
    """Counters of what was done, and those that the decision asks for."""
    for action in applied.done:
        if isinstance(action, Scale):
            metrics.decisions.labels(str(action.reason)).inc()
    if applied.failure is not None:
        return
    for count in plan.counts:
        labels = {"namespace": key.namespace, "name": key.name, **count.labels}
        metrics.counters[count.metric].labels(**labels).inc(count.by)


def show_queue(
    metrics: Metrics, key: ObjectKey, status: Mapping[str, Any], seen: QueueSeen, memory: Memory
) -> None:
    """The gauges of one Queue, from what was just seen and decided."""
    at = (key.namespace, key.name)
    sample = seen.redis.sample
    if sample is not None:
        for state in ("ready", "prioritized", "delayed", "active", "parked", "dead"):
            metrics.jobs.labels(*at, state).set(getattr(sample, state))
        for by, count in sample.throttled_by.items():
            metrics.throttled.labels(*at, by).set(count)
        metrics.sealed.remove_by_labels({"namespace": key.namespace, "name": key.name})
        for key_id, count in sample.sealed.items():
            metrics.sealed.labels(*at, key_id).set(count)
        metrics.oldest.labels(*at).set(sample.oldest_ms / 1000)
        metrics.service.labels(*at).set(memory.rates.service_s)
        metrics.arrivals.labels(*at).set(memory.rates.arrivals)
    if seen.deployment is not None:
        metrics.replicas.labels(*at, "asked").set(seen.deployment.replicas)
        metrics.replicas.labels(*at, "ready").set(seen.deployment.ready)
    metrics.replicas.labels(*at, "wanted").set((status.get("scaling") or {}).get("wanted") or 0)
    metrics.stranded.labels(*at).set((status.get("stranded") or {}).get("count") or 0)
    show_conditions(metrics, key, status)
    rollout = status.get("rollout") or {}
    if rollout.get("state"):
        metrics.rollout.remove_by_labels({"namespace": key.namespace, "name": key.name})
        metrics.rollout.labels(*at, rollout["state"], rollout.get("stableHash") or "").set(1)


def show_conditions(metrics: Metrics, key: ObjectKey, status: Mapping[str, Any]) -> None:
    metrics.condition.remove_by_labels({"namespace": key.namespace, "name": key.name})
    for condition in status.get("conditions") or ():
        true = condition.get("status") == "True"
        metrics.condition.labels(key.namespace, key.name, condition["type"]).set(int(true))


def show_cronjob(metrics: Metrics, key: ObjectKey, status: Mapping[str, Any], seen: CronSeen) -> None:
    """The gauges of one CronJob."""
    at = (key.namespace, key.name)
    schedule = seen.ledger.schedule
    if schedule is not None:
        metrics.cron_plan.labels(*at).set(schedule.planned)
        if schedule.next_ms is not None:
            metrics.cron_next.labels(*at).set(schedule.next_ms / 1000)
        if last := schedule.last.get("at"):
            metrics.cron_last.labels(*at).set(int(last) / 1000)
            decided = schedule.last.get("decided") or last
            metrics.cron_lag.labels(*at).set((int(decided) - int(last)) / 1000)
    show_conditions(metrics, key, status)
