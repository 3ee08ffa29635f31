"""What is true of a queue in Redis between any two scripts."""

from __future__ import annotations

from dockwork.core.states import ENDED, State
from support.store_world import RedisWorld


async def holds(world: RedisWorld) -> None:
    """Every record is in the index of its state and in no other; every figure is what the indexes say."""
    keys, redis = world.keys, world.redis
    indexes = {
        "ready": keys.ready, "prioritized": keys.prio, "delayed": keys.delayed, "running": keys.lease,
        "completed": keys.completed, "failed": keys.failed, "dead": keys.dead, "expired": keys.expired,
        "cancelled": keys.cancelled,
    }  # fmt: skip
    parked = {name.decode(): int(count) for name, count in (await redis.hgetall(keys.parked)).items()}
    for name in parked:
        indexes[f"parked {name}"] = keys.parked_type(name)
    where: dict[str, list[str]] = {}
    held = await held_jobs(world)
    for job_id, state in held.items():
        where.setdefault(job_id, []).append(state)
    for state, key in indexes.items():
        for member in await redis.zrange(key, 0, -1):
            where.setdefault(member.decode(), []).append(state)
    ghosts = where.pop("ghost", [])
    assert set(ghosts) <= {"ready"}

    stated: dict[str, list[str]] = {}
    waiting_bytes, leased = 0, {}
    by_key: dict[str, list[int]] = {}
    async for key in redis.scan_iter(match=f"{keys.records}*", count=1000):
        job_id = key.decode().removeprefix(keys.records)
        record = {name.decode(): value.decode() for name, value in (await redis.hgetall(key)).items()}
        state = record["s"]
        if state in ("active", "processing"):
            pod = record["w"].rpartition("/")[0]
            leased[pod] = leased.get(pod, 0) + 1
            stated[job_id] = ["running"]
        elif state == "parked":
            stated[job_id] = [f"parked {record['pt']}"]
        else:
            stated[job_id] = [state]
            assert "w" not in record or State(state) in ENDED
        if State(state) not in ENDED:
            waiting_bytes += int(record["b"])
            assert await redis.exists(keys.envelope(job_id))
        if "k" in record and state in ("active", "processing", "ready", "prioritized") and job_id not in held:
            counts = by_key.setdefault(record["k"], [0, 0])
            counts[state in ("ready", "prioritized")] += 1
        assert all(len(value) <= 64 for value in record.values())
    assert where == stated
    meta = await redis.hgetall(keys.meta)
    counted_keys = {
        name.decode(): [int(n) for n in count.split()]
        for name, count in (await redis.hgetall(keys.key_counts)).items()
    }
    assert counted_keys == by_key
    await nothing_waits_for_nothing(world, held, by_key, int(meta.get(b"per_key", 1)))
    assert int(meta.get(b"bytes", 0)) == waiting_bytes
    assert int(meta.get(b"parked", 0)) == sum(parked.values())
    counted = {name.decode(): int(count) for name, count in (await redis.hgetall(keys.leased)).items()}
    assert counted == leased
    for name, count in parked.items():
        assert await redis.zcard(keys.parked_type(name)) == count
    async for lock in redis.scan_iter(match=f"{keys.unique}*", count=1000):
        # A lock that ends with its job is held by that job, and by one that has not ended.
        letter, holder = (stored := (await redis.get(lock)).decode())[0], stored[1:]
        if letter != "t":
            record = await redis.hmget(keys.record(holder), "s", "u")
            assert record[0] is not None, holder
            assert State(record[0].decode()) not in ENDED, holder
            assert record[1].decode() == letter + lock.decode().removeprefix(keys.unique)
    for job_id in await redis.zrange(keys.expiry, 0, -1):
        record = await redis.hmget(keys.record(job_id.decode()), "s", "x")
        assert record[0] in (b"ready", b"prioritized", b"delayed", b"parked"), job_id
        assert record[1] is not None


async def held_jobs(world: RedisWorld) -> dict[str, str]:
    """The jobs that wait aside, with the state that their place means."""
    keys, redis = world.keys, world.redis
    found: dict[str, str] = {}
    for key, count in (await redis.hgetall(keys.held_keys)).items():
        members = await redis.zrange(keys.held_jobs + key.decode(), 0, -1, withscores=True)
        assert len(members) == int(count) > 0
        for member, score in members:
            found[member.decode()] = "ready" if 0 <= score < 2**44 else "prioritized"
            assert await redis.hget(keys.record(member.decode()), "k") == key
    async for name in redis.scan_iter(match=f"{keys.held_jobs}*", count=1000):
        assert await redis.hexists(keys.held_keys, name.decode().removeprefix(keys.held_jobs))
    totals = [int(count or 0) for count in await redis.hmget(keys.meta, "hr", "hp")]
    assert totals == [list(found.values()).count(state) for state in ("ready", "prioritized")]
    return found


async def nothing_waits_for_nothing(
    world: RedisWorld, held: dict[str, str], by_key: dict[str, list[int]], per_key: int
) -> None:
    """The first of each key that waits aside finds it full; no key has more running than the most that one allows."""
    redis, keys = world.redis, world.keys
    for key in await redis.hkeys(keys.held_keys):
        (first,) = await redis.zrange(keys.held_jobs + key.decode(), 0, 0)
        own = await redis.hget(keys.record(first.decode()), "kl")
        assert sum(by_key.get(key.decode(), [0, 0])) >= int(own or per_key), first
