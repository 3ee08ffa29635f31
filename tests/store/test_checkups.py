"""What the stores tell a checkup: what a login may not do, and what nobody has taken away."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from dockwork.core.keys import QueueName
from dockwork.store.memory import MemoryStore
from dockwork.store.partitioned import partitioned
from dockwork.store.probes import ON_A_KEY, OTHERS
from dockwork.store.protocol import JobKeys, Refusal, Upkeep
from dockwork.store.redis import RedisStore
from dockwork.store.scripts import all_scripts
from support.redis_server import RedisServer
from support.store_world import ANN, World, a_job

SCRATCH = QueueName("shop", "doctor-1")
#: As the guide on Redis has it.
RIGHTS = "-@all +@read +@write +@connection +@scripting +@pubsub -@dangerous +info +time +wait +cluster|slots"


@pytest.mark.covers("RT-219")
async def test_upkeep_counts_remembered_keys_and_leases_that_nobody_reaped(world: World) -> None:
    keys = JobKeys(idempotency="i1", idempotency_ttl_ms=3_600_000, digest="d")
    await world.store.enqueue(world.queue, [a_job("a", keys=keys), a_job("b")])
    assert await world.store.upkeep(world.queue) == Upkeep(idempotency_keys=1)

    await world.store.claim(world.queue, ANN, number=1, slots=2)
    await world.advance(20)

    late = await world.store.upkeep(world.queue)
    assert (late.idempotency_keys, late.overdue) == (1, 2)
    assert 4_000 <= late.overdue_ms <= 15_000


@pytest.mark.covers("RT-219")
def test_every_command_of_the_scripts_is_tried() -> None:
    sent = {
        word
        for script in all_scripts()
        for word in re.findall(r'redis\.p?call\("([A-Z]+)"', script.text)
    }  # fmt: skip
    assert sent - {"PUBLISH"} <= {*ON_A_KEY, *OTHERS}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RedisServer]:
    """A server with a login for each gap."""
    users = [
        f"whole on >a ~dw:* &dw:* {RIGHTS}",
        f"nolist on >a ~dw:* &dw:* {RIGHTS} -lpush -zrem",
        f"quiet on >a ~dw:* resetchannels {RIGHTS}",
        f"other on >a ~dw:{{team-b/* ~dw:{{shop}}:* &dw:* {RIGHTS}",
    ]
    with RedisServer(port=0, users=users) as running:
        yield running


@pytest.mark.covers("RT-219")
@pytest.mark.parametrize(
    ("login", "refused"),
    [
        ("whole", set()),
        ("nolist", {("command", "LPUSH"), ("command", "ZREM")}),
        (
            "quiet",
            {
                ("channel", "dw:wake:{shop/*"),
                ("channel", "dw:{shop/*"),
                ("command", "SUBSCRIBE dw:{shop/*"),
            },
        ),
        ("other", {("keys", "dw:{shop/*")}),
    ],
)
async def test_a_login_is_told_what_it_may_not_do(
    guarded: RedisServer, login: str, refused: set[tuple[str, str]]
) -> None:
    url = guarded.url.replace("redis://", f"redis://{login}:a@")
    store = RedisStore(url)
    try:
        found = await store.refusals(SCRATCH)
        assert {(one.kind, one.name) for one in found} == refused
        if login == "quiet":
            assert all(one.purpose for one in found)
        if login == "nolist":
            assert found[0] == Refusal("command", "LPUSH")
    finally:
        await store.close()
    assert guarded.raw("DBSIZE") == b":0\r\n"


@pytest.mark.covers("RT-219")
async def test_upkeep_of_a_queue_is_that_of_all_its_partitions() -> None:
    kept = MemoryStore()
    whole = partitioned(kept, lambda queue: 3)
    queue = QueueName("shop", "mail")
    await whole.enqueue(queue, [a_job(f"job-{n}") for n in range(12)])
    for number in range(3):
        await kept.claim(QueueName("shop", "mail", number), ANN, number=1, slots=12)
        kept.advance(5)
    kept.advance(15)

    found = await whole.upkeep(queue)

    assert (found.overdue, found.overdue_ms) == (12, 15_000)
