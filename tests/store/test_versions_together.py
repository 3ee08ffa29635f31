"""Old and new code on one queue, as in a rolling deploy."""

from __future__ import annotations

from typing import Any

import pytest

from dockwork.core.states import State
from dockwork.store import calls
from dockwork.store.calls import Call, Claimant
from dockwork.store.protocol import Outcome, Settlement, Verdict
from dockwork.store.scripts import script
from support.store_world import ANN, BOB, RedisWorld, a_beat, a_failure, a_job


async def newer(world: RedisWorld, call: Call[Any]) -> Any:
    """Run `call` as a later release would: by a script of another hash."""
    text = script(call.script).text + "\n-- of a later release\n"
    sha = await world.redis.script_load(text)
    assert sha != script(call.script).sha
    reply = await world.redis.evalsha(sha, len(call.key_values), *call.key_values, *call.args)
    return call.read(reply)


@pytest.mark.covers("RT-064")
async def test_workers_with_different_scripts_share_a_queue(redis: RedisWorld) -> None:
    run_id = (await redis.store.server())["run_id"]
    jobs = [a_job(f"j{n:02}") for n in range(20)]
    await redis.enqueue(*jobs[:10])
    await newer(redis, calls.enqueue(redis.keys, jobs[10:]))
    done: list[str] = []
    old = (await redis.claim(3, owner=ANN)).claims
    new = (await newer(redis, calls.claim(redis.keys, Claimant(BOB, 1, 3, run_id)))).claims

    for number in range(2, 6):
        ended = [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in old]
        settled = await redis.settle(*ended, owner=ANN, claim_next=3)
        who = Claimant(BOB, number, 3, run_id)
        ended = [Settlement(lease=claim.lease, outcome=Outcome.COMPLETED) for claim in new]
        settled_newer = await newer(redis, calls.settle(redis.keys, who, ended))
        assert {*settled.verdicts, *settled_newer.verdicts} <= {Verdict.OK}
        done += [claim.job_id for claim in (*old, *new)]
        old, new = settled.claimed.claims, settled_newer.claimed.claims

    assert sorted(done) == [job.id for job in jobs]
    assert sorted(await redis.ids(State.COMPLETED)) == sorted(done)


@pytest.mark.covers("RT-064", "RT-043")
async def test_every_script_preserves_the_fields_of_a_later_release(redis: RedisWorld) -> None:
    await redis.enqueue(a_job("a", expires_in_ms=10**9))
    record = redis.keys.record("a")
    await redis.redis.hset(record, mapping={"later": "1"})
    await redis.redis.hset(redis.keys.meta, mapping={"later": "1"})

    claim = await redis.claim_one()
    await redis.store.start(redis.queue, [claim.lease])
    await redis.store.progress(redis.queue, claim.lease, b"1")
    await redis.store.renew(redis.queue, [claim.lease], a_beat())
    await redis.store.requeue(redis.queue, ANN, [claim.lease])
    await redis.end(await redis.claim_one(), Outcome.PARKED, park_type="t")
    (claim,) = (await redis.claim(1, known=["t"])).claims
    await redis.end(claim, Outcome.RETRY, delay_ms=1000, failure=a_failure())
    await redis.store.promote(redis.queue, ["a"])
    await redis.claim_one()
    await redis.lose_leases()
    await redis.store.reap(redis.queue)
    await redis.end(await redis.claim_one(), Outcome.DEAD)

    assert await redis.redis.hget(record, "later") == b"1"
    assert await redis.redis.hget(redis.keys.meta, "later") == b"1"
