"""A script's flat text for ordinary calls says and leaves what its general way does, and is what ordinary calls take.

The same calls go to two databases, one with the scripts as they are and one with their flat texts left out, and both
are compared whole. Both read the time from a key: it stands still within a step.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from redis import Redis

from dockwork.core.keys import QueueKeys, QueueName
from dockwork.store import calls, event_calls, operator_calls
from dockwork.store.calls import Call, Claimant
from dockwork.store.protocol import (
    Claim,
    EventMode,
    EventOptions,
    Lease,
    NewJob,
    Outcome,
    Put,
    QueueConfig,
    Settlement,
)
from dockwork.store.scripts import expand
from support.redis_server import RedisServer
from support.store_world import ANN, BOB, a_beat, a_failure, a_job

KEYS = QueueKeys(QueueName("shop", "mail"))
CLOCK = ("{shop/mail}clock-s", "{shop/mail}clock-us")
COUNTED = "{shop/mail}general"


@cache
def text_of(name: str, flat: bool) -> str:
    """The script with a clock that the test sets, and a count of how often its general way is gone."""
    text = expand(name, flat=flat)
    text = re.sub(r'(?<=call\()"TIME"', f'"MGET", "{CLOCK[0]}", "{CLOCK[1]}"', text)
    head = "local function general()\n"
    return text.replace(head, f'{head}redis.call("INCR", "{COUNTED}")\n')


class Side:
    """A database, to which calls go by one kind of text."""

    def __init__(self, server: RedisServer, flat: bool) -> None:
        self.client = Redis.from_url(server.url, db=int(flat))
        self.flat = flat
        self.client.flushdb()

    def run(self, call: Call[Any], now_us: int) -> Any:
        self.client.mset({CLOCK[0]: now_us // 1_000_000, CLOCK[1]: now_us % 1_000_000})
        keys = call.key_values
        return call.read(self.client.eval(text_of(call.script, self.flat), len(keys), *keys, *call.args))

    def picture(self) -> dict[bytes, Any]:
        keys: list[Any] = sorted(self.client.keys("dw:*"))
        ask = self.client.pipeline(transaction=False)
        for key in keys:
            ask.type(key)
            ask.pttl(key)
        said = ask.execute()
        for key, kind in zip(keys, said[::2], strict=True):
            READ[kind](ask, key)
        values = ask.execute()
        # A time to live within 20 s: it runs on by the server's own clock.
        return {
            key: (plain(kind, value), round(ttl / 20_000))
            for key, kind, ttl, value in zip(keys, said[::2], said[1::2], values, strict=True)
        }


READ: dict[bytes, Callable[[Any, bytes], Any]] = {
    b"hash": lambda ask, key: ask.hgetall(key),
    b"string": lambda ask, key: ask.get(key),
    b"stream": lambda ask, key: ask.xrange(key),
    b"zset": lambda ask, key: ask.zrange(key, 0, -1, withscores=True),
    b"list": lambda ask, key: ask.lrange(key, 0, -1),
}


def plain(kind: bytes, value: Any) -> Any:
    """What is compared of a value: events without their times, and a call's ids in no order."""
    if kind != b"stream":
        return value
    return [
        {name: sorted(text.split()) if name == b"ids" else text for name, text in fields.items()}
        for _, fields in value
    ]


#: Options of jobs that the flat texts know, and of others.
USUAL: list[dict[str, Any]] = [
    {},
    {},
    {},
    {"max_attempts": 3},
    {"timeout_ms": 9_000, "max_deliveries": 2},
    {"max_attempts": 9, "keep": "none"},
]
ODD: list[dict[str, Any]] = [
    {"keep": "9000,2,"},
    {"priority": -1},
    {"due_in_ms": 40},
    {"expires_in_ms": 900},
    {"concurrency_key": "k"},
    {"repeat": 3},
    {"sealed": "k1"},
]


class Both:
    """The two sides, and a history that is drawn for them."""

    def __init__(self, server: RedisServer, dice: random.Random) -> None:
        self.sides = Side(server, flat=True), Side(server, flat=False)
        self.dice = dice
        self.now_us = 1_796_000_000_000_000
        self.jobs = 0
        self.numbers = {ANN: 0, BOB: 0}
        self.held: list[tuple[Any, Claim]] = []

    def do(self, call: Call[Any]) -> Any:
        self.now_us += self.dice.choice([1, 900, 3_000, 3_000, 20_000])
        flat, general = [side.run(call, self.now_us) for side in self.sides]
        assert flat == general
        assert self.sides[0].picture() == self.sides[1].picture(), call.script
        return flat

    def a_job(self) -> NewJob:
        self.jobs += 1
        some = self.dice.choice(ODD if self.dice.random() < 0.04 else USUAL)
        kind, body = self.dice.choice("ttu"), b"x" * self.dice.choice([9, 9, 20])
        return NewJob(id=f"j{self.jobs}", type=kind, envelope=body, **some)

    def enqueue(self) -> None:
        self.do(calls.enqueue(KEYS, [self.a_job() for _ in range(self.dice.randint(1, 9))]))

    def who(self, owner: Any, again: bool = False) -> Claimant:
        self.numbers[owner] += not again
        places = self.dice.choice([0, 1, 3, 5, 12])
        return Claimant(
            owner, max(1, self.numbers[owner]), places, self.dice.choice(["run"] * 20 + ["", "other"])
        )

    def owner(self) -> Any:
        return self.dice.choice([ANN, ANN, BOB])

    def claim(self) -> None:
        owner = self.owner()
        self.held += [(owner, one) for one in self.do(calls.claim(KEYS, self.who(owner))).claims]

    def end(self, claim: Claim) -> Settlement:
        odd = self.dice.random()
        outcome = Outcome.COMPLETED if odd < 0.985 else self.dice.choice(list(Outcome))
        lease = claim.lease if odd > 0.01 else Lease(job_id=claim.lease.job_id, epoch=claim.lease.epoch + 1)
        result = self.dice.choice([None, None, None, b"1" * 30])
        failure = None if outcome is Outcome.COMPLETED else a_failure()
        started = self.now_us // 1000 + self.dice.choice([-30, -30, -2, 0, 500, -(10**15)])
        return Settlement(
            lease=lease,
            outcome=outcome,
            started_ms=started,
            result=result,
            failure=failure,
            park_type="p",
            delay_ms=20,
        )

    def settle(self) -> None:
        owner = self.owner()
        mine = [one for by, one in self.held if by is owner][: self.dice.choice([1, 2, 5, 5, 20])]
        ends = [self.end(one) for one in mine]
        if ends and self.dice.random() < 0.03:
            ends.append(ends[0])
        for again in [False] + [True] * (self.dice.random() < 0.05):
            settled = self.do(calls.settle(KEYS, self.who(owner, again), ends))
        self.held = [(by, one) for by, one in self.held if one not in mine]
        self.held += [(owner, one) for one in settled.claimed.claims]

    def start(self) -> None:
        some = [one.lease for _, one in self.held if self.dice.random() < 0.4]
        if some:
            self.do(calls.start(KEYS, some))

    def requeue(self) -> None:
        if self.held:
            _, one = self.held.pop(self.dice.randrange(len(self.held)))
            self.do(calls.requeue(KEYS, [one.lease], Put.FRONT, "drained"))

    def beat(self) -> None:
        leases = [one.lease for by, one in self.held if by is ANN]
        self.do(calls.renew(KEYS, leases, a_beat(), run_id="run"))

    def wait(self) -> None:
        self.now_us += self.dice.choice([50_000, 900_000, 3_000_000, 20_000_000])
        self.beat()

    def configure(self) -> None:
        keep = self.dice.choice([{}, {"completed_count": 8}, {"completed_count": 0}, {"completed_count": 60}])
        config = QueueConfig(concurrency=self.dice.choice([None, None, 6]), keep=keep)
        self.do(operator_calls.configure(KEYS, config, None))

    def meddle(self) -> None:
        mode = self.dice.choice([EventMode.STREAM, EventMode.OFF])
        self.do(event_calls.set_events(KEYS, EventOptions(mode=mode)))
        paused = self.dice.random() < 0.3
        self.do(operator_calls.set_paused(KEYS, expected=not paused, wanted=paused))
        self.do(operator_calls.cancel(KEYS, f"j{self.dice.randint(1, self.jobs + 1)}"))

    def step(self) -> None:
        often: list[Callable[[], None]] = [self.enqueue, self.claim, self.settle, self.settle, self.settle]
        seldom = [self.start, self.requeue, self.beat, self.wait, self.configure, self.meddle]
        self.dice.choice(often * 6 + seldom)()

    def general(self) -> int:
        return int(self.sides[0].client.get(COUNTED) or 0)


@pytest.fixture
def both(server: RedisServer, request: pytest.FixtureRequest) -> Iterator[Both]:
    both = Both(server, random.Random(request.param))
    both.beat()
    yield both
    for side in both.sides:
        side.client.flushdb()
        side.client.close()


@pytest.mark.covers("RT-019", "RT-242")
@pytest.mark.parametrize("both", range(12), indirect=True)
def test_any_history_is_the_same_with_and_without_the_flat_texts(both: Both) -> None:
    for _ in range(60):
        both.step()


@pytest.mark.covers("RT-242")
@pytest.mark.parametrize("both", [0], indirect=True)
@pytest.mark.parametrize("options", [{}, {"max_attempts": 3, "timeout_ms": 900}, {"keep": "none"}])
def test_ordinary_calls_take_the_flat_text(both: Both, options: dict[str, Any]) -> None:
    both.do(calls.enqueue(KEYS, [a_job(f"o{n}", **options) for n in range(40)]))
    both.do(calls.claim(KEYS, Claimant(ANN, 1, 0, "run")))
    before = both.general()
    held = both.do(calls.claim(KEYS, Claimant(ANN, 2, 8, "run"))).claims
    both.do(calls.start(KEYS, [held[0].lease]))
    for number in range(3, 9):
        ends = [
            Settlement(lease=one.lease, outcome=Outcome.COMPLETED, started_ms=1, result=b"1") for one in held
        ]
        held = both.do(calls.settle(KEYS, Claimant(ANN, number, 8, "run"), ends)).claimed.claims
        if not held:
            break

    assert both.general() == before
    assert not held
