"""A process of its own that works on a queue until it is done or killed: ``python -m support.store_process URL WHAT``.

reap                takes jobs back whose lease is over, a script call at a time
drain <n>           claims and completes what is due as owner n until nothing is left, a line of ids per claim
obliterate <token>  deletes the queue part by part

After each part of a reap or an obliteration it says so and waits for a line, so that it can be killed midway.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.store import calls
from dockwork.store.protocol import Outcome, Owner, Settlement
from dockwork.store.redis import RedisStore

TESTS = Path(__file__).parents[1]
QUEUE = QueueName("shop", "mail")
BATCH = 200


def start(url: str, *what: str) -> subprocess.Popen[str]:
    """Start such a process."""
    command = [sys.executable, "-m", "support.store_process", url, *what]
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill_midway(process: subprocess.Popen[str]) -> None:
    """Kill it after its first part."""
    with process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.kill()
    assert said == "part\n", said


async def drain(store: RedisStore, number: int) -> None:
    """Take whatever there is, until the queue has neither waiting nor running jobs."""
    owner = Owner(pod=f"pod-{number}", boot="b")
    call, held = 0, []
    while True:
        call += 1
        ends = [Settlement(lease=lease, outcome=Outcome.COMPLETED) for lease in held]
        settled = await store.settle(QUEUE, owner, ends, number=call, claim_next=BATCH)
        held = [claim.lease for claim in settled.claimed.claims]
        print(" ".join(lease.job_id for lease in held), flush=True)
        counts = (await store.stats(QUEUE)).counts
        left = (State.READY, State.PRIORITIZED, State.DELAYED)
        if not held and not any(counts[state] for state in left):
            return


def next_part() -> None:
    print("part", flush=True)
    sys.stdin.readline()


async def run(url: str, what: str, argument: str) -> None:
    store = RedisStore(url)
    if what == "reap":
        wire = await store._wire(QUEUE)
        while sum(await store._run(calls.reap(store.keys(QUEUE), run_id=wire.run_id, lease_ms=0))):
            await asyncio.to_thread(next_part)
    elif what == "drain":
        await drain(store, int(argument))
    else:
        while not (await store.obliterate(QUEUE, argument)).done:
            await asyncio.to_thread(next_part)
    await store.close()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:3], "".join(sys.argv[3:])))
