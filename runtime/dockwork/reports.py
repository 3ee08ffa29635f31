"""Failed runs, counted: what `App.error_stats` answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from dockwork.store.protocol import QueueErrors, TypeFigures


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorStats:
    """Failed runs since the queues exist.

    total        of all queues asked for
    by_type      all figures of a job type, over the queues; rare types are ``other``
    by_class     how often each class is among the last 200 reports of each queue
    """

    total: int = 0
    by_queue: Mapping[str, int] = field(default_factory=dict)
    by_type: Mapping[str, TypeFigures] = field(default_factory=dict)
    by_class: Mapping[str, int] = field(default_factory=dict)


def sum_errors(found: Mapping[str, QueueErrors]) -> ErrorStats:
    """The figures of several queues together."""
    by_queue = {queue: sum(one.errors for one in each.by_type.values()) for queue, each in found.items()}
    by_type: dict[str, TypeFigures] = {}
    by_class: Counter[str] = Counter()
    for errors in found.values():
        by_class.update(report.error_class for report in errors.recent)
        for kind, figures in errors.by_type.items():
            by_type[kind] = _added(by_type.get(kind, TypeFigures()), figures)
    return ErrorStats(
        total=sum(by_queue.values()),
        by_queue=by_queue,
        by_type=by_type,
        by_class=dict(by_class.most_common()),
    )


def _added(one: TypeFigures, other: TypeFigures) -> TypeFigures:
    names = [each.name for each in fields(TypeFigures)]
    return TypeFigures(**{name: getattr(one, name) + getattr(other, name) for name in names})
