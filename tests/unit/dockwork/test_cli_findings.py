"""What doctor thinks of figures: each threshold from both sides, each remedy by its words."""

from __future__ import annotations

from typing import Any

import pytest

from dockwork.cli.findings import Finding, judge_access, judge_clock, judge_queue, judge_server
from dockwork.store.protocol import Heartbeat, OwnerRecord, Refusal, Sample, Upkeep

pytestmark = pytest.mark.covers("RT-219")

GOOD = {
    "name": "redis",
    "version": "7.0.15",
    "policy": "noeviction",
    "aof": True,
    "aof_ok": True,
    "replicas": 1,
    "used_memory": 100 << 20,
    "maxmemory": 0,
}


def a_sample(**more: Any) -> Sample:
    counts = dict.fromkeys(
        (
            "entered", "finished", "ready", "prioritized", "delayed", "due", "due_soon", "active",
            "throttled", "parked", "dead", "bytes", "oldest_ms",
        ),
        0,
    )  # fmt: skip
    flags = dict.fromkeys(("paused", "held", "closed", "template_known"), False)
    return Sample(**{"time_ms": 1, "run_id": "r", "owner": None, **counts, **flags, **more})


def a_worker(slots: int = 4) -> Heartbeat:
    return Heartbeat(owner="pod/boot", pod="pod", slots=slots, busy=0)


def levels(found: Any) -> dict[str, str]:
    return {one.check: one.level for one in found}


def only(found: Any, check: str) -> Finding:
    (one,) = [one for one in found if one.check == check]
    return one  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("said", "check", "level", "words"),
    [
        ({}, "server", "ok", "redis 7.0.15"),
        ({"version": "6.0.16"}, "server", "bad", "redis 6.0.16 is older than redis 6.2"),
        ({"version": "6.2.0"}, "server", "ok", "6.2.0"),
        ({"name": "valkey", "version": "7.0.9"}, "server", "bad", "older than valkey 7.2"),
        ({"name": "valkey", "version": "8.1.1"}, "server", "ok", "valkey 8.1.1"),
        ({"policy": "allkeys-lru"}, "eviction", "bad", "maxmemory-policy is allkeys-lru"),
        ({"policy": ""}, "eviction", "warn", "does not say"),
        ({"aof": False}, "durability", "warn", "no append-only file, 1 replica"),
        ({"aof_ok": False}, "durability", "bad", "cannot be written"),
        ({"replicas": 2}, "durability", "ok", "append-only file, 2 replicas"),
        ({"maxmemory": 200 << 20}, "memory", "ok", "100 of 200 MiB used (50%)"),
        ({"maxmemory": 130 << 20}, "memory", "warn", "a full Redis refuses new jobs"),
        ({"maxmemory": 110 << 20}, "memory", "bad", "(91%)"),
    ],
)
def test_the_server(said: dict[str, Any], check: str, level: str, words: str) -> None:
    found = only(judge_server({**GOOD, **said}), check)

    assert found.level == level
    assert words in found.words
    assert bool(found.remedy) == (level != "ok")


@pytest.mark.parametrize(
    ("server_ms", "round_trip_ms", "level"),
    [(1_000, 2, "ok"), (1_900, 2, "ok"), (2_500, 2, "warn"), (-500, 2, "warn"), (70_000, 2, "bad")],
)
def test_the_clock(server_ms: float, round_trip_ms: float, level: str) -> None:
    assert judge_clock(server_ms, 1_000, round_trip_ms).level == level


def test_a_slow_answer_is_no_proof_of_a_wrong_clock() -> None:
    found = judge_clock(3_500, 1_000, 4_000)

    assert (found.level, found.words) == ("ok", "500 ms from the server's, within 2000.0 ms")


def test_rights_that_lack_are_named_with_the_rule_to_add() -> None:
    found = list(
        judge_access(
            [
                Refusal("command", "LPUSH"),
                Refusal("command", "ZREM"),
                Refusal("command", "WAIT", "replicas="),
                Refusal("command", "SUBSCRIBE dw:{shop/*", "following events"),
                Refusal("keys", "dw:{shop/*"),
                Refusal("channel", "dw:wake:{shop/*", "waking"),
            ]
        )
    )

    assert [(one.level, one.remedy) for one in found] == [
        ("bad", "Add to its ACL: +lpush +zrem"),
        ("warn", "Add to its ACL: +wait"),
        ("warn", "Add to its ACL: +subscribe &dw:{shop/*"),
        ("bad", "Add to its ACL: ~dw:{shop/*"),
        ("warn", "Add to its ACL: &dw:wake:{shop/*"),
    ]
    assert found[0].words == "the login may not run LPUSH, ZREM"
    assert [one.level for one in judge_access([])] == ["ok"]


def test_a_queue_in_order() -> None:
    found = list(judge_queue("mail", a_sample(workers=(a_worker(),), active=2), Upkeep()))

    assert levels(found) == {"owner": "ok", "workers": "ok", "keys": "ok"}
    assert only(found, "workers").words == "1 worker, 2 of 4 slots busy; no job is due"


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ({"ready": 3, "oldest_ms": 5_000}, "warn"),
        ({"ready": 3, "oldest_ms": 61_000}, "bad"),
        ({"ready": 3, "oldest_ms": 61_000, "paused": True}, "ok"),
        ({"ready": 3, "oldest_ms": 61_000, "held": True}, "ok"),
        ({"delayed": 3}, "ok"),
        ({"ready": 3, "oldest_ms": 61_000, "workers": (a_worker(),)}, "ok"),
        ({"ready": 3, "oldest_ms": 601_000, "workers": (a_worker(),)}, "warn"),
    ],
)
def test_jobs_that_wait_and_workers(more: dict[str, Any], level: str) -> None:
    assert only(judge_queue("mail", a_sample(**more), Upkeep()), "workers").level == level


def test_what_else_stands_in_the_way_of_a_queue() -> None:
    owner = OwnerRecord(operator="o", namespace="shop", name="mails", uid="u")
    sample = a_sample(
        owner=owner, paused=True, held=True, closed=True, parked=2, parked_types={"old.type": 2}, dead=1,
        throttled_by={"rate": 5, "key": 0}, workers=(a_worker(),),
    )  # fmt: skip
    found = list(
        judge_queue("mail", sample, Upkeep(idempotency_keys=2_000_000, overdue=2, overdue_ms=90_000))
    )

    assert levels(found) == {
        "owner": "ok", "paused": "warn", "held": "warn", "closed": "warn", "workers": "ok", "parked": "warn",
        "dead": "warn", "leases": "bad", "keys": "warn",
    }  # fmt: skip
    assert only(found, "owner").words == "Queue shop/mails"
    assert only(found, "parked").words == "2 jobs of type old.type, which no worker knows"
    assert "kept waiting by rate 5" in only(found, "workers").words
    assert only(found, "leases").remedy == "dockwork reap mail"
    assert "2 leases have been over for up to 1m30s" in only(found, "leases").words
    assert "2000000 idempotency keys remembered, about 286 MiB" in only(found, "keys").words
    assert all(one.queue == "mail" for one in found)
    assert "dockwork resume mail" in only(found, "paused").remedy


def test_a_lease_that_is_hardly_over_is_somebodys_next_step() -> None:
    found = judge_queue("mail", a_sample(), Upkeep(overdue=1, overdue_ms=4_000))
    assert "leases" not in levels(found)
