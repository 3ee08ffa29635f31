"""From zero to many and back, with every job accounted for by the application's own receipts."""

from __future__ import annotations

import pytest

from support.house import House, Redis
from support.producer import Producer
from support.waiting import until

pytestmark = pytest.mark.timeout(720)


@pytest.mark.covers("OP-142", "OP-074", "OP-163", "OP-201")
def test_two_thousand_jobs_take_a_queue_from_zero_to_many_and_back(
    house: House, redis_of: Redis, producer: Producer
) -> None:
    house.queue(
        "burst",
        scaling={"minReplicas": 0, "maxReplicas": 5, "expectedDuration": "200ms", "drainTarget": "5s"},
    )
    until(
        lambda: house.condition("burst", "Ready").get("status") == "True",
        within=60,
        what="the Queue is ready",
    )
    assert house.pods("burst") == []
    keys = [f"k{n}" for n in range(2000)]

    producer.enqueue_many("burst", "work", [{"run": "burst", "key": key, "seconds": 0.2} for key in keys])

    peak = 0

    def done() -> bool:
        nonlocal peak
        peak = max(peak, len(house.live_pods("burst")))
        return len(redis_of.counts("burst", "ended")) == len(keys)

    until(done, within=180, every=0.5, what="every job left a receipt")
    assert redis_of.counts("burst", "ended") == dict.fromkeys(keys, 1)
    assert redis_of.counts("burst", "began") == dict.fromkeys(keys, 1)
    assert 2 <= peak <= 5
    # 50 s without an arrival, the idle minute, and the steps of a scale-down.
    until(lambda: house.pods("burst") == [], within=180, every=1, what="no pod is left")
    totals = producer.stats("burst").totals
    assert totals.get("stalled", 0) == 0
    house.delete("burst")


@pytest.mark.covers("OP-201", "OP-223", "OP-220")
def test_a_new_version_rolls_out_under_load_and_no_job_is_cut(
    house: House, redis_of: Redis, producer: Producer
) -> None:
    scaling = {"minReplicas": 2, "maxReplicas": 3}
    house.queue("rolling", scaling=scaling)
    keys = [f"k{n}" for n in range(600)]
    producer.enqueue_many("rolling", "work", [{"run": "rolling", "key": key, "seconds": 1} for key in keys])
    until(
        lambda: len(redis_of.counts("rolling", "ended")) > 60,
        within=90,
        every=0.5,
        what="the first jobs ended",
    )

    house.queue("rolling", version="2", scaling=scaling)

    until(
        lambda: len(redis_of.counts("rolling", "ended")) == len(keys), within=180, every=0.5, what="all ended"
    )
    assert redis_of.counts("rolling", "ended") == dict.fromkeys(keys, 1)
    assert redis_of.counts("rolling", "began") == dict.fromkeys(keys, 1)
    assert set(redis_of.counts("rolling", "versions")) == {"1", "2"}
    until(
        lambda: {p["spec"]["containers"][0]["image"] for p in house.pods("rolling")} == {"dockwork-e2e:2"},
        within=120,
        every=1,
        what="only the new version runs",
    )
    assert producer.stats("rolling").totals.get("stalled", 0) == 0
    house.delete("rolling")
