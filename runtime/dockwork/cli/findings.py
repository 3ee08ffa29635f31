"""What `dockwork doctor` thinks of what it sees. Pure: values in, findings out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from dockwork.cli.tables import age
from dockwork.store.protocol import Refusal, Sample, Upkeep

Level = Literal["ok", "warn", "bad"]

#: The oldest servers that have all commands and their meaning.
OLDEST = {"redis": (6, 2), "valkey": (7, 2)}
#: Producers give absolute times by their own clock: a second is felt, a minute is wrong.
CLOCK_WARN_MS, CLOCK_BAD_MS = 1_000, 60_000
#: Parts of maxmemory. A full Redis refuses new jobs, so there should be time to act.
MEMORY_WARN, MEMORY_BAD = 0.75, 0.9
#: Work that waits for longer than a fleet needs to start, with nobody there to do it.
ALONE_BAD_MS = 60_000
WAIT_WARN_MS = 600_000
#: A worker that is awake reaps within a second of a lease's end; after a failover everybody waits one lease.
OVERDUE_WARN_MS, OVERDUE_BAD_MS = 5_000, 60_000
#: About 150 B each: 150 MB.
MANY_KEYS = 1_000_000

_MiB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    check     what was looked at, one word
    remedy    what to do, "" for nothing
    queue     "" for the server
    """

    level: Level
    check: str
    words: str
    remedy: str = ""
    queue: str = ""


def judge_server(server: Mapping[str, Any]) -> Iterator[Finding]:
    """Version, eviction, durability and memory, by what `Store.server` says."""
    yield _version(str(server["name"]), str(server["version"]))
    policy = server["policy"]
    if policy == "noeviction":
        yield Finding("ok", "eviction", "maxmemory-policy is noeviction")
    elif not policy:
        yield Finding("warn", "eviction", "the server does not say its maxmemory-policy", "Set noeviction.")
    else:
        yield Finding(
            "bad",
            "eviction",
            f"maxmemory-policy is {policy}: a full Redis throws away jobs and leases",
            "CONFIG SET maxmemory-policy noeviction, and in its configuration.",
        )
    yield _durability(aof=server["aof"], aof_ok=server["aof_ok"], replicas=server["replicas"])
    yield _memory(server["used_memory"], server["maxmemory"])


def _version(name: str, version: str) -> Finding:
    words = f"{name} {version}"
    if name == "memory":
        return Finding("ok", "server", "in this process' memory")
    oldest = OLDEST.get(name, OLDEST["redis"])
    found = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if found >= oldest:
        return Finding("ok", "server", words)
    least = f"{name} {'.'.join(map(str, oldest))}"
    return Finding("bad", "server", f"{words} is older than {least}", f"Run {least} or later.")


def _durability(*, aof: bool, aof_ok: bool, replicas: int) -> Finding:
    copies = f"{replicas} {'replica' if replicas == 1 else 'replicas'}"
    if aof and not aof_ok:
        return Finding(
            "bad",
            "durability",
            f"the append-only file cannot be written, {copies}: new jobs are refused, or lost at a restart",
            "Look at the server's log and its disk.",
        )
    if aof:
        return Finding("ok", "durability", f"append-only file, {copies}")
    return Finding(
        "warn",
        "durability",
        f"no append-only file, {copies}: a restart loses what came since the last snapshot",
        "CONFIG SET appendonly yes, and in its configuration.",
    )


def _memory(used: int, most: int) -> Finding:
    if not most:
        return Finding("ok", "memory", f"{used / _MiB:.0f} MiB used, no maxmemory")
    part = used / most
    words = f"{used / _MiB:.0f} of {most / _MiB:.0f} MiB used ({part:.0%})"
    if part < MEMORY_WARN:
        return Finding("ok", "memory", words)
    level: Level = "bad" if part >= MEMORY_BAD else "warn"
    remedy = "Raise maxmemory, keep less (keep=, dockwork purge), or limit queues (max_bytes)."
    return Finding(level, "memory", f"{words}: a full Redis refuses new jobs", remedy)


def judge_clock(server_ms: float, before_ms: float, round_trip_ms: float) -> Finding:
    """How far this machine's clock is from the server's, give or take half of the question's round trip.

    before_ms    this machine's time when the question was sent
    """
    half = round_trip_ms / 2
    distance = server_ms - (before_ms + half)
    surely = max(0.0, abs(distance) - half)
    words = f"{abs(distance):.0f} ms from the server's, within {half:.1f} ms"
    if surely < CLOCK_WARN_MS:
        return Finding("ok", "clock", words)
    level: Level = "bad" if surely >= CLOCK_BAD_MS else "warn"
    words += ": jobs that are enqueued here for a time are due that much off"
    return Finding(
        level, "clock", words, "Set this machine's clock by NTP. Delays and leases are not touched."
    )


def judge_access(refused: Sequence[Refusal]) -> Iterator[Finding]:
    """What the login lacks: a line for all work, and one per special purpose."""
    if not refused:
        yield Finding("ok", "access", "the login may do all that is needed")
    for kind, grant, what in (
        ("command", "+{}", "run"),
        ("keys", "~{}*", "touch keys of"),
        ("channel", "&{}", "use channels of"),
    ):
        by_purpose: dict[str, list[str]] = {}
        for one in refused:
            if one.kind == kind:
                by_purpose.setdefault(one.purpose, []).append(one.name)
        for purpose, names in by_purpose.items():
            rules = [grant.format(_rule(kind, name)) for name in names]
            words = f"the login may not {what} {', '.join(names)}"
            yield Finding(
                "warn" if purpose else "bad",
                "access",
                f"{words}, needed for {purpose}" if purpose else words,
                f"Add to its ACL: {' '.join(rules)}",
            )


def _rule(kind: str, name: str) -> str:
    if kind != "command":
        return name.rstrip("*") if kind == "keys" else name
    command, _, channel = name.partition(" ")
    return f"{command.lower()} &{channel}" if channel else command.lower()


def judge_queue(queue: str, sample: Sample, upkeep: Upkeep) -> Iterator[Finding]:
    """What stands in the way of a queue's work."""
    yield _owner(queue, sample)
    yield from _flags(queue, sample)
    yield _workers(queue, sample)
    for name, count in sample.parked_types.items():
        yield Finding(
            "warn",
            "parked",
            f"{_jobs(count)} of type {name}, which no worker knows",
            "Start a worker whose app has that type with these arguments.",
            queue,
        )
    if sample.dead:
        yield Finding(
            "warn",
            "dead",
            _letters(sample.dead),
            f"dockwork jobs {queue} --state dead; dockwork redrive {queue}, or purge.",
            queue,
        )
    if late := _overdue(queue, sample, upkeep):
        yield late
    yield _keys(queue, upkeep)


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def _letters(count: int) -> str:
    return f"{count} dead letter" if count == 1 else f"{count} dead letters"


def _owner(queue: str, sample: Sample) -> Finding:
    owner = sample.owner
    words = "no Queue resource" if owner is None else f"Queue {owner.namespace}/{owner.name}"
    return Finding("ok", "owner", words, queue=queue)


def _flags(queue: str, sample: Sample) -> Iterator[Finding]:
    if sample.paused:
        yield Finding("warn", "paused", "paused by hand: no job is taken", f"dockwork resume {queue}", queue)
    if sample.held:
        remedy = "Take stopPolicy from the Queue resource."
        yield Finding("warn", "held", "held by its Queue resource: no job is taken", remedy, queue)
    if sample.closed:
        yield Finding("warn", "closed", "new jobs are refused", f"dockwork open {queue}", queue)


def _workers(queue: str, sample: Sample) -> Finding:
    waiting = sample.ready + sample.prioritized + sample.due + sample.parked
    oldest = f", the oldest for {age(timedelta(milliseconds=sample.oldest_ms))}" if sample.oldest_ms else ""
    backlog = f"{_jobs(waiting)} due{oldest}" if waiting else "no job is due"
    slots = sum(beat.slots for beat in sample.workers)
    count = len(sample.workers)
    if not count:
        if not waiting or sample.paused or sample.held:
            return Finding("ok", "workers", f"none; {backlog}", queue=queue)
        remedy = "Start a worker: dockwork worker APP."
        if sample.owner is not None:
            remedy = f"kubectl describe dwq -n {sample.owner.namespace} {sample.owner.name}"
        level: Level = "bad" if sample.oldest_ms >= ALONE_BAD_MS else "warn"
        return Finding(level, "workers", f"none, though {backlog}", remedy, queue)
    words = (
        f"{count} {'worker' if count == 1 else 'workers'}, {sample.active} of {slots} slots busy; {backlog}"
    )
    if barred := ", ".join(f"{why} {jobs}" for why, jobs in sample.throttled_by.items() if jobs):
        words += f"; kept waiting by {barred}"
    if sample.oldest_ms < WAIT_WARN_MS or sample.paused or sample.held:
        return Finding("ok", "workers", words, queue=queue)
    return Finding("warn", "workers", words, "More workers or slots; or lift what keeps jobs waiting.", queue)


def _overdue(queue: str, sample: Sample, upkeep: Upkeep) -> Finding | None:
    if not upkeep.overdue or upkeep.overdue_ms < OVERDUE_WARN_MS:
        return None
    late = age(timedelta(milliseconds=upkeep.overdue_ms))
    leases = "1 lease has" if upkeep.overdue == 1 else f"{upkeep.overdue} leases have"
    words = f"{leases} been over for up to {late}: their workers are gone, and nobody took the jobs back"
    level: Level = "bad" if upkeep.overdue_ms >= OVERDUE_BAD_MS else "warn"
    remedy = f"dockwork reap {queue}" + ("" if sample.workers else ", or start a worker")
    return Finding(level, "leases", words, remedy, queue)


def _keys(queue: str, upkeep: Upkeep) -> Finding:
    count = upkeep.idempotency_keys
    words = f"{count} idempotency {'key' if count == 1 else 'keys'} remembered"
    if count < MANY_KEYS:
        return Finding("ok", "keys", words, queue=queue)
    words += f", about {count * 150 // _MiB} MiB"
    return Finding("warn", "keys", words, "Give keys a shorter idempotency_ttl.", queue)
