"""/metrics of a worker, against Prometheus' own client."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from dockwork.worker.exposition import Family, render_families
from dockwork.worker.metrics import LaneFigures, WorkerFigures, render
from dockwork.worker.process_figures import process_families

LANE = LaneFigures(
    queue="mail", slots=8, busy=2, stuck=0, lease_margin_s=9.5, settled=7, lost=1, requeued=3, abandoned=4
)
FIGURES = WorkerFigures(lag_s=0.25, reconnects=2, unknown=1, lanes=(LANE, replace(LANE, queue="sms", busy=5)))

ALONE = """
import sys
from dockwork.worker.metrics import WorkerFigures, render
sys.stdout.buffer.write(render(WorkerFigures(lag_s=0, reconnects=0, unknown=0)))
assert "prometheus_client" not in sys.modules
"""


def read(text: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(text.decode())
    }


def kinds(text: bytes) -> dict[str, tuple[str, str]]:
    families = text_string_to_metric_families(text.decode())
    return {family.name: (family.type, family.documentation) for family in families}


def test_a_worker_tells_its_slots_leases_and_counts_by_queue() -> None:
    found = read(render(FIGURES))

    assert found["dockwork_loop_lag_seconds"] == {(): 0.25}
    assert found["dockwork_redis_reconnects"] == {(): 2}
    assert found["dockwork_worker_busy"] == {(("queue", "mail"),): 2, (("queue", "sms"),): 5}
    assert found["dockwork_lease_margin_seconds"][("queue", "sms"),] == 9.5
    assert found["dockwork_abandoned_jobs"] == {(("queue", "mail"),): 4, (("queue", "sms"),): 4}


def test_what_the_app_registered_comes_along() -> None:
    sent = Counter("test_worker_mails_sent", "Mails")
    sent.inc(3)
    try:
        assert read(render(FIGURES))["test_worker_mails_sent"][()] == 3
    finally:
        REGISTRY.unregister(sent)


@pytest.mark.covers("RT-240")
def test_without_the_client_the_process_is_told_of_as_the_client_does() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, timeout=60)

    assert done.returncode == 0, done.stderr.decode()
    theirs = generate_latest(REGISTRY)
    standard = {
        name: kind for name, kind in kinds(theirs).items() if name.startswith(("process_", "python_"))
    }
    assert len(standard) >= 10
    assert kinds(done.stdout).items() >= standard.items()
    ours, clients = read(done.stdout), read(theirs)
    assert {name: set(ours[name]) for name in standard} == {name: set(clients[name]) for name in standard}


def test_figures_of_the_process_are_those_of_the_client() -> None:
    ours, clients = read(render_families(process_families())), read(generate_latest(REGISTRY))

    for name in ("process_start_time_seconds", "process_max_fds", "python_info"):
        assert ours[name] == clients[name]
    assert ours["process_resident_memory_bytes"][()] == pytest.approx(
        clients["process_resident_memory_bytes"][()], rel=0.2
    )


def test_texts_and_labels_are_written_as_the_client_writes_them() -> None:
    odd = 'a "quoted"\\ line\nand more'
    registry = CollectorRegistry()
    counter = Counter("odd", odd, ["queue"], registry=registry)
    counter.labels(odd).inc(1234567.5)
    ours = render_families([Family("odd", odd, "counter", [({"queue": odd}, 1234567.5)])])

    theirs = generate_latest(registry)
    assert ours.splitlines()[:2] == theirs.splitlines()[:2]
    assert read(ours)["odd"].items() <= read(theirs)["odd"].items()
