"""The demo: 2,000 pictures become thumbnails on a kind cluster, while a new version rolls out.

Installs the charts, applies examples/thumbnails, enqueues from a pod as an application would, applies the second
version while the jobs run, waits until no worker pod is left, and then reads from the cluster and from Redis what
happened: it believes neither itself nor the queue's word alone, but the receipts that the handlers wrote.
Exits 1 if a job was lost or ran twice, or if it is not over in time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import redis
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dockwork.core.cron import Dst, Gap, Overlap, load_zone, parse_schedule, ticks
from dockwork.core.keys import QueueName
from dockwork.store.protocol import Event
from dockwork.store.redis import RedisStore
from support.cluster import ROOT, Cluster, run

SYSTEM = "dockwork-system"
SPACE = "thumbnails"
QUEUE = "thumbnails"
CRON = "queuecronjobs.dockwork.dev"
CRONJOB = "contact-sheet"
SUSPEND = '{"spec": {"suspend": true}}'
EXAMPLE = ROOT / "examples" / "thumbnails"
OUTPUT = ROOT / "demo-output"

#: Seconds for the jobs and for the pods to go; the demo fails after that.
LONGEST_S = 420

console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)


@dataclass(slots=True)
class Watched:
    """What the demo saw while it ran: (seconds since the first look, pods), and why it is no success, if so."""

    began: float = field(default_factory=time.monotonic)
    pods: list[tuple[float, int]] = field(default_factory=list)
    versions: Counter[str] = field(default_factory=Counter)
    problem: str = ""
    suspended: datetime | None = None

    def look(self, pods: list[dict[str, Any]]) -> int:
        """Note how many pods there are now."""
        self.pods.append((time.monotonic() - self.began, len(pods)))
        self.versions.update({p["spec"]["containers"][0]["image"] for p in pods})
        return len(pods)


@dataclass(slots=True)
class Told:
    """What the event stream says: how many jobs each event named, and when the first of a kind was."""

    ids: dict[str, Counter[str]] = field(default_factory=dict)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    first_ms: dict[str, int] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        self.ids.setdefault(event.name, Counter()).update(event.ids)
        self.reasons[event.name, event.reason] += len(event.ids)
        if any(not job.startswith("cron-") for job in event.ids):
            self.first_ms.setdefault(event.name, int(event.id.split("-")[0]))

    def jobs(self, name: str, *, cron: bool = False) -> Counter[str]:
        """Job id -> how often the event named it; ticks of schedules or the others."""
        return Counter({j: n for j, n in self.ids.get(name, {}).items() if j.startswith("cron-") is cron})


def step(text: str, do: Callable[[], Any]) -> Any:
    """Do one step, and say how long it took."""
    began = time.monotonic()
    with console.status(text):
        got = do()
    console.print(f"[green]✓[/] {text} [dim]{time.monotonic() - began:.1f} s[/]")
    return got


def wait(ask: Callable[[], Any], *, within: float, what: str, every: float = 0.5) -> Any:
    """The first true answer; ends the demo with a clear word when the deadline passes."""
    deadline = time.monotonic() + within
    while not (got := ask()):
        if time.monotonic() > deadline:
            console.print(f"[red]✗ {what}: not within {within:.0f} s[/]")
            sys.exit(1)
        time.sleep(every)
    return got


def install(cluster: Cluster) -> None:
    for name in (SYSTEM, SPACE):
        cluster.namespace(name)
    cluster.helm("upgrade", "--install", "dockwork-crds", ROOT / "charts" / "dockwork-crds", "-n", "default")
    cluster.helm(
        "upgrade", "--install", "dockwork", ROOT / "charts" / "dockwork", "-n", SYSTEM,
        "--set", f"watchNamespaces={{{SPACE}}}", "--set", "redis.enabled=true",
        "--set", "redis.persistence.size=1Gi", "--wait", "--timeout", "180s",
    )  # fmt: skip


def build() -> None:
    """Two versions of the example's image, in the cluster's nodes."""
    for version in ("1", "2"):
        run(
            sys.executable, ROOT / "tests" / "bed", "build", "thumbnails", "--tag", f"dockwork-thumbnails:{version}",
            "--build-arg", f"VERSION={version}", "--load", timeout=300,
        )  # fmt: skip


def clean(cluster: Cluster) -> None:
    """Remove what an earlier demo left, so that the numbers are this one's."""
    if not cluster.get("namespace", SPACE, namespace=SPACE):
        return
    for kind in ("queuecronjobs.dockwork.dev", "queues.dockwork.dev", "jobs"):
        cluster.kubectl("delete", kind, "--all", "-n", SPACE, "--ignore-not-found", check=False)
    wait(
        lambda: not cluster.pods(namespace=SPACE, selector=f"dockwork.dev/queue={QUEUE}"),
        within=120,
        what="the pods of an earlier demo end",
    )


def down(cluster: Cluster) -> None:
    cluster.kubectl("delete", "namespace", SPACE, "--ignore-not-found", timeout=180)
    cluster.helm("uninstall", "dockwork", "-n", SYSTEM, "--ignore-not-found")
    cluster.kubectl("delete", "namespace", SYSTEM, "--ignore-not-found", timeout=180)


class Readings:
    """Redis and the cluster, asked while the demo runs."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        secret = cluster.secret("dockwork-redis", "url", namespace=SPACE)
        credentials = secret.split("://", 1)[1].rsplit("@", 1)[0]
        url = f"redis://{credentials}@127.0.0.1:{port}/0"
        self.app = redis.Redis.from_url(url, socket_timeout=15)
        self._store = RedisStore(url)
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._store.open())
        self.name = QueueName(SPACE, QUEUE)

    def close(self) -> None:
        self._loop.run_until_complete(self._store.close())
        self._loop.close()
        self.app.close()

    def forget(self) -> None:
        """Drop what an earlier demo left of this queue and of the example's receipts."""
        for pattern in (f"dw:{{{SPACE}/{QUEUE}}}:*", "thumbnails:*"):
            for key in self.app.scan_iter(pattern, count=1000):
                self.app.delete(key)

    def receipts(self) -> dict[str, int]:
        found = self.app.hgetall("thumbnails:receipts")
        return {k.decode(): int(v) for k, v in found.items()}  # type: ignore[union-attr]

    def told(self) -> Told:
        """Everything that the event stream has."""
        told, since = Told(), "0"
        while batch := self._loop.run_until_complete(self._store.events(self.name, since, block_s=0)):
            for event in batch:
                told.add(event)
            since = batch[-1].id
        return told

    def pods(self) -> list[dict[str, Any]]:
        return self.cluster.pods(namespace=SPACE, selector=f"dockwork.dev/queue={QUEUE}")

    def status(self) -> dict[str, Any]:
        found = self.cluster.get("queues.dockwork.dev", QUEUE, namespace=SPACE)
        status: dict[str, Any] = found.get("status", {})
        return status


def run_jobs(readings: Readings, count: int) -> Watched:
    """Enqueue from a pod, apply the second version on the way, and wait for 0 pods. Returns what was seen."""
    cluster, watched = readings.cluster, Watched()
    producer = (EXAMPLE / "producer.yaml").read_text().replace('"2000"', f'"{count}"')
    cluster.apply(producer, namespace=SPACE)
    progress = Progress(
        TextColumn("{task.description:<34}"),
        BarColumn(36),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    rolled, waiting, said = False, False, 0.0
    with progress:
        enqueued = progress.add_task("enqueued", total=count)
        done = progress.add_task("thumbnails made", total=count)
        pods = progress.add_task("worker pods", total=None)
        while True:
            receipts = readings.receipts()
            made = sum(1 for job in receipts if not job.startswith("cron-"))
            admitted = int(readings.app.get("thumbnails:enqueued") or 0)
            alive = watched.look(readings.pods())
            progress.update(enqueued, completed=min(admitted, count))
            progress.update(done, completed=made)
            progress.update(pods, completed=alive, total=max(n for _, n in watched.pods) or 1)
            if not sys.stdout.isatty() and time.monotonic() - said > 10:
                said = time.monotonic()
                console.print(
                    f"  {said - watched.began:5.0f} s  enqueued {admitted}  made {made}  pods {alive}"
                )
            if not rolled and made > count // 4:
                cluster.apply((EXAMPLE / "queue.yaml").read_text().replace(":1\n", ":2\n"), namespace=SPACE)
                progress.console.print(
                    "[yellow]→[/] kubectl apply: image dockwork-thumbnails:2, under load "
                    "(old pods finish their jobs, so there are more than maxReplicas for a while)"
                )
                rolled = True
            if made >= count and not waiting:
                # Else a tick every two minutes may keep a pod.
                cluster.kubectl("patch", "-n", SPACE, CRON, CRONJOB, "--type=merge", "-p", SUSPEND)
                watched.suspended = datetime.now(UTC)
                progress.console.print(
                    "[yellow]→[/] all made; the schedule is suspended, and the pods go once nothing arrived "
                    "for 50 s and an idle minute passed"
                )
                waiting = True
            if made >= count and alive == 0:
                return watched
            if time.monotonic() - watched.began > LONGEST_S:
                watched.problem = (
                    f"not over after {LONGEST_S} s: {made} of {count} pictures made, {alive} worker pods left"
                )
                return watched
            time.sleep(0.5)


def chart(watched: Watched) -> str:
    """Pods over time, as a small chart of blocks."""
    width, height = 72, 8
    end = watched.pods[-1][0] or 1.0
    peak = max(n for _, n in watched.pods) or 1
    looks: list[list[int]] = [[] for _ in range(width)]
    for second, n in watched.pods:
        looks[min(int(second / end * width), width - 1)].append(n)
    columns: list[int] = []
    for seen in looks:  # a column without a look of its own shows the one before
        columns.append(max(seen) if seen else columns[-1] if columns else 0)
    lines = []
    for row in range(height, 0, -1):
        label = f"{peak:>4} ┤" if row == height else "     │"
        lines.append(label + "".join("█" if n / peak * height >= row - 0.5 and n else " " for n in columns))
    lines.append("   0 ┼" + "─" * width)
    lines.append(f"      0 s{' ' * (width - 12)}{end:.0f} s")
    return "\n".join(lines)


def cron_summary(
    readings: Readings, told: Told, suspended: datetime | None
) -> tuple[int, int, int, list[int]]:
    """(instants expected, fired, skipped by policy, those missing) of the schedule until it was suspended."""
    found = readings.cluster.get(CRON, CRONJOB, namespace=SPACE)
    made = datetime.fromisoformat(found["metadata"]["creationTimestamp"].replace("Z", "+00:00"))
    seconds, micros = readings.app.time()
    until = min(
        datetime.fromtimestamp(seconds + micros / 1e6, UTC), suspended or datetime.max.replace(tzinfo=UTC)
    )
    until -= timedelta(seconds=3)
    fired = sorted(
        {
            int(job.rsplit("-", 1)[1])
            for name in ("ready", "prioritized")
            for job in told.jobs(name, cron=True)
        }
    )
    schedule = parse_schedule(found["spec"]["schedule"])
    zone = load_zone(found["spec"].get("timeZone", "Etc/UTC"))
    dst = Dst(gap=Gap(found["spec"]["dst"]["gap"]), overlap=Overlap(found["spec"]["dst"]["overlap"]))
    # The object exists a moment before its entry is in Redis: instants of its first 3 s need not fire.
    began = made.astimezone(UTC) + timedelta(seconds=3)
    due = [int(tick.timestamp() * 1000) for tick in ticks(schedule, zone, dst, began, until)]
    undecided = sorted(set(due) - set(fired))
    # Under Forbid no tick fires while the last one's job has not ended.
    skipped = min(int(found.get("status", {}).get("skipped", {}).get("count", 0)), len(undecided))
    return len(due), len([t for t in fired if t in set(due)]), skipped, undecided[skipped:]


def summary(readings: Readings, watched: Watched, count: int) -> bool:
    """Print what happened; True if no job was lost and none ran twice."""
    told, receipts = readings.told(), readings.receipts()
    ours = {job: n for job, n in receipts.items() if not job.startswith("cron-")}
    offered = set(told.jobs("ready")) | set(told.jobs("prioritized"))
    once = sum(1 for n in ours.values() if n == 1)
    twice = {job: n for job, n in ours.items() if n > 1}
    lost = offered - set(ours)
    put_back = sum(
        n
        for (name, why), n in told.reasons.items()
        if name in ("ready", "prioritized") and why in ("drained", "revoked")
    )
    killed = sum(told.jobs("stalled").values())
    expected, fired, skipped, missing = cron_summary(readings, told, watched.suspended)
    history = readings.status().get("scaling", {}).get("history", [])
    first_up = next((h for h in history if h["to"] > h["from"]), None)
    enqueued_ms = told.first_ms.get("ready")
    started_ms = min(
        (ms for name, ms in told.first_ms.items() if name in ("active", "processing")), default=None
    )

    console.rule("what happened, read from the cluster and from Redis")
    console.print(chart(watched))
    rows = [
        ("jobs enqueued", f"{len(offered)} (wanted {count})"),
        ("completed exactly once", str(once)),
        ("run more than once", str(len(twice))),
        ("lost", str(len(lost))),
        ("failed", str(sum(told.jobs("failed").values()) + sum(told.jobs("dead").values()))),
        ("put back and run again", str(put_back)),
        ("leases that ended (killed workers)", str(killed)),
        ("versions that ran", ", ".join(sorted(watched.versions))),
        (
            "cron ticks fired, expected",
            f"{fired}, {expected}" + (f" ({skipped} skipped: the last still ran)" if skipped else ""),
        ),
    ]
    if enqueued_ms and first_up:
        written = datetime.fromisoformat(first_up["at"].replace("Z", "+00:00")).timestamp() * 1000
        waited = (
            f"{(written - enqueued_ms) / 1000:.2f} s" if written >= enqueued_ms else "a pod was there already"
        )
        rows.append(("first job to /scale write", waited))
    if enqueued_ms and started_ms:
        rows.append(("first job to first start", f"{(started_ms - enqueued_ms) / 1000:.2f} s"))
    for name, value in rows:
        console.print(f"  {name:<36} {value}")
    for problem in [
        *([watched.problem] if watched.problem else []),
        *(f"lost: {job}" for job in sorted(lost)[:5]),
        *(f"ran {n} times: {job}" for job, n in sorted(twice.items())[:5]),
        *(f"no tick for {datetime.fromtimestamp(ms / 1000, UTC):%H:%M:%S}" for ms in missing[:5]),
    ]:
        console.print(f"  [red]{problem}[/]")
    return not (lost or twice or missing or watched.problem) and len(offered) == count


def save_pictures(readings: Readings) -> int:
    """Write the pictures that the jobs made into demo-output/."""
    OUTPUT.mkdir(exist_ok=True)
    found = cast("dict[bytes, bytes]", readings.app.hgetall("thumbnails:pictures"))
    for name, content in found.items():
        (OUTPUT / Path(name.decode()).name).write_bytes(content)
    return len(found)


def demo(cluster: Cluster, count: int) -> int:
    began = time.monotonic()
    step("two versions of the example's image", build)
    step("helm install dockwork-crds, dockwork (operator and Redis)", lambda: install(cluster))
    clean(cluster)
    wait(lambda: cluster.get("secret", "dockwork-redis", namespace=SPACE), within=60, what="the Redis Secret")
    with cluster.port_forward("svc/dockwork-redis", 6379, namespace=SYSTEM) as port:
        readings = Readings(cluster, port)
        try:
            readings.forget()
            step("kubectl apply -f queue.yaml -f cronjob.yaml", lambda: apply_example(cluster))
            watched = run_jobs(readings, count)
            good = summary(readings, watched, count)
            pictures = save_pictures(readings)
            console.print(f"  {'pictures to look at':<36} {pictures} in {OUTPUT.relative_to(ROOT)}/")
            console.print(f"  {'the demo took':<36} {time.monotonic() - began:.0f} s")
            console.print(
                f"\nlook around: export KUBECONFIG={cluster.kubeconfig}; kubectl get dwq,qcj -n {SPACE}"
            )
        finally:
            readings.close()
    return 0 if good else 1


def apply_example(cluster: Cluster) -> None:
    cluster.kubectl("apply", "-n", SPACE, "-f", EXAMPLE / "queue.yaml", "-f", EXAMPLE / "cronjob.yaml")
    wait(
        lambda: (
            cluster.condition("queues.dockwork.dev", QUEUE, "Ready", namespace=SPACE).get("status") == "True"
        ),
        within=60,
        what="the Queue is ready",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="The Dockwork demo")
    parser.add_argument("--down", action="store_true", help="remove what the demo installed")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("DEMO_JOBS", "2000")))
    options = parser.parse_args()
    cluster = Cluster.of_bed()
    if options.down:
        down(cluster)
        return 0
    return demo(cluster, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
