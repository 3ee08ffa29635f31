"""The short way of enqueue.lua for ordinary calls leaves in Redis what the general way leaves, for any call at all."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.store import calls
from dockwork.store.protocol import NewJob
from dockwork.store.scripts import expand
from support.redis_server import RedisServer

KEYS = QueueKeys(QueueName("shop", "mail"))
SHORT, GENERAL = expand("enqueue"), expand("enqueue", flat=False)
#: An instant of these years in milliseconds, alone or with the 1,024 places that a due time has.
INSTANT = re.compile(r"\b1[6-9]\d{11}(\d{3})?\b")

#: Without an id: the test gives each its own.
ordinary = st.builds(
    NewJob,
    id=st.just(""),
    type=st.sampled_from(["mail.send", "t"]),
    envelope=st.integers(1, 40).map(lambda size: b"x" * size),
    max_attempts=st.sampled_from([None, None, 4]),
    max_deliveries=st.sampled_from([None, None, None, 7]),
    timeout_ms=st.sampled_from([None, None, 500, 5_000]),
    keep=st.sampled_from([None, None, "none", "forever", "1000,1,10"]),
)
special = st.one_of(
    st.builds(replace, ordinary, id=st.sampled_from(["j0", "j1", "j2", "j5"])),
    st.builds(replace, ordinary, priority=st.sampled_from([-1, 3])),
    st.builds(replace, ordinary, due_in_ms=st.just(60_000)),
    st.builds(replace, ordinary, expires_in_ms=st.just(90_000)),
    st.builds(replace, ordinary, concurrency_key=st.just("k")),
    st.builds(replace, ordinary, sealed=st.just("k1")),
)
batches = st.tuples(st.lists(ordinary, min_size=1, max_size=9), st.sampled_from([0, 0, 0, 1]), special)
#: What the queue says of itself: mostly nothing.
queues = st.fixed_dictionaries(
    {"schema": st.sampled_from(["1"] * 12 + ["2"])},
    optional={
        "seq": st.sampled_from(["41", "9007199254"]),
        "parked": st.sampled_from(["0", "3"]),
        "max_depth": st.sampled_from(["5", "30", "1000"]),
        "max_bytes": st.sampled_from(["60", "4000"]),
        "max_payload": st.sampled_from(["20", "39", "40"]),
        "max_timeout": st.sampled_from(["500", "4999", "5000"]),
        "paused": st.just("1"),
        "held": st.just("1"),
    },
)
rare = st.sampled_from(
    [{}] * 9 + [{"closed": "1"}, {"fl": "s"}, {"fl": "k"}, {"ev": "off"}, {"ev": "pubsub"}]
)
calls_made = st.lists(batches, min_size=1, max_size=5)


@pytest.mark.covers("RT-242", "RT-060", "RT-061")
def test_the_short_way_leaves_what_the_general_way_leaves() -> None:
    ways: list[bool] = []
    with RedisServer() as server, closing(redis.Redis.from_url(server.url)) as client:

        @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
        @given(queue=queues, more=rare, made=calls_made, is_cold=st.booleans(), is_new=st.booleans())
        def alike(
            queue: dict[Any, str], more: dict[Any, str], made: list[Any], is_cold: bool, is_new: bool
        ) -> None:
            number = iter(range(100))
            batches = [
                [replace(job, id=job.id or f"j{next(number)}") for job in [*jobs, *[odd] * odds]]
                for jobs, odds, odd in made
            ]

            def history(sha: str) -> tuple[list[Any], dict[str, Any]]:
                client.flushdb()
                if not is_new:
                    client.hset(KEYS.meta, mapping=queue | more)
                    client.zadd(KEYS.lease, {"other": 1})
                if is_cold:
                    client.set(KEYS.cold, "channel")
                said = [enqueue(client, sha, batch, ways) for batch in batches]
                return said, everything(client)

            short, general = history(short_text), history(general_text)
            assert short[0] == general[0]
            differ = {k for k in short[1].keys() | general[1].keys() if short[1].get(k) != general[1].get(k)}
            assert not [(k, short[1].get(k), general[1].get(k)) for k in sorted(differ)]

        short_text, general_text = client.script_load(SHORT), client.script_load(GENERAL)
        alike()
    assert 50 < sum(ways) < len(ways) - 50


def enqueue(client: Any, sha: str, batch: list[NewJob], ways: list[bool]) -> Any:
    """What each job of `batch` was answered, or the script's refusal; notes whether it went the short way."""
    call = calls.enqueue(KEYS, batch)
    reply: Any = client.evalsha(sha, 1, KEYS.meta, *call.args)
    ways.append(reply[1:] == [b"*"])
    return call.decode(reply) if reply[0] == b"ok" else reply


def everything(client: Any) -> dict[str, Any]:
    """All keys with their values; an instant is just one, and the figures of a day are those of one minute."""
    found: dict[str, Any] = {}
    for key in sorted(client.keys("*")):
        name = key.decode().removeprefix(KEYS.prefix)
        value = READ[client.type(key)](client, key)
        if name.startswith("min:"):
            assert {kind.lstrip("0123456789") for kind in value} == {"a"}
            assert 176_000_000 < client.pttl(key) <= 176_400_000
            name, value = "min:", found.get("min:", 0) + sum(map(int, value.values()))
        found[name] = value
    return found


def plain(value: bytes | float) -> str:
    text = value.decode() if isinstance(value, bytes) else f"{value:.0f}"
    return INSTANT.sub("<instant>", text)


READ: dict[bytes, Callable[[Any, bytes], Any]] = {
    b"string": lambda client, key: plain(client.get(key)),
    b"hash": lambda client, key: {plain(k): plain(v) for k, v in client.hgetall(key).items()},
    # Sorted: which of two jobs is due first is a matter of milliseconds.
    b"zset": lambda client, key: sorted(
        (plain(k), plain(v)) for k, v in client.zrange(key, 0, -1, withscores=True)
    ),
    b"stream": lambda client, key: [
        {plain(k): plain(v) for k, v in fields.items()} for _, fields in client.xrange(key)
    ],
}
