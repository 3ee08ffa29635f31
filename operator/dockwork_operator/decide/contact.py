"""May this Queue act: what one look at Redis adds to the memory, and whose the Redis queue is.

One Redis queue belongs to one Queue object, by an owner record in Redis (OP-022). The script that writes it decides;
here is read what the last sample says, so that a second Queue never even asks.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from dockwork_operator.constants import Reason
from dockwork_operator.decide import pods as pod_facts
from dockwork_operator.decide.conditions import RECOVERING, NotAccepted
from dockwork_operator.decide.memory import Memory
from dockwork_operator.decide.plan import Action, Configure, FailureKind, QueueSettings, Upkeep
from dockwork_operator.decide.seen import OwnerSeen, QueueSeen, SampleSeen, SecretState
from dockwork_operator.decide.victims import STALE_AFTER_MS
from dockwork_operator.models.queues import Queue, QueueSpec

#: The owner record lives 5 minutes and may be taken over after 15 s without renewal.
RENEW_OWNER = timedelta(seconds=10)

#: After data may have been lost nothing shrinks and nothing rolls for so long (OP-148).
FREEZE = timedelta(seconds=60)

#: An own write may take so long to come back, by the watch or with a sample.
SETTLING = timedelta(seconds=5)

TRIM_EVERY = timedelta(seconds=60)
ASK_AGAIN = timedelta(seconds=2)


# --- what a look adds --------------------------------------------------------------------------------------


def look(memory: Memory, seen: QueueSeen, now: datetime) -> Memory:
    """The memory with what this look adds: contact, data loss, pod starts, unready pods."""
    sample = seen.redis.sample
    start_s, started = pod_facts.measure_starts(
        seen.pods, memory.started_pods, memory.pod_start_s, memory.since
    )
    memory = replace(
        memory,
        pod_start_s=start_s,
        started_pods=started,
        not_ready_since=pod_facts.unready_since(seen, memory.not_ready_since, memory.looked_ms > 0, now),
        blocked=memory.blocked if memory.blocked_generation == seen.generation else {},
    )
    if sample is None:
        frozen = now + FREEZE if seen.redis.failure in RECOVERING else memory.frozen_until
        return replace(memory, redis_lost_since=memory.redis_lost_since or now, frozen_until=frozen)
    if has_lost_data(memory, sample) or sample.loading:
        memory = replace(memory, frozen_until=now + FREEZE, owned=False)
    return replace(
        memory,
        redis_reached=True,
        redis_lost_since=None,
        run_id=sample.run_id or memory.run_id,
        looked_ms=sample.time_ms,
    )


def has_lost_data(memory: Memory, sample: SampleSeen) -> bool:
    """Another server answers, or our own record is gone: what was counted may not be there."""
    other_server = bool(memory.run_id and sample.run_id and sample.run_id != memory.run_id)
    return other_server or (memory.owned and sample.owner is None and shows_our_write(memory, sample))


def shows_our_write(memory: Memory, sample: SampleSeen) -> bool:
    """The sample was taken after our last write to Redis; one that was under way then may not have it."""
    return sample.time_ms > memory.configured_ms + SETTLING // timedelta(milliseconds=1)


# --- whose is it -------------------------------------------------------------------------------------------


def bar(queue: Queue, seen: QueueSeen, memory: Memory) -> NotAccepted | None:
    """Why this Queue may not act although its spec is sound, or None."""
    if seen.secret.state is not SecretState.FOUND:
        return NotAccepted(reason=seen.secret.state, message=seen.secret.message)
    server, sample = seen.redis.server, seen.redis.sample
    if server is not None and server.too_old:
        return NotAccepted(reason=Reason.REDIS_UNSUPPORTED, message=server.too_old)
    if sample is not None and sample.owner is not None and not is_ours(queue, sample.owner, seen):
        name = f"{queue.redis_namespace}/{queue.redis_queue}"
        message = f"the Redis queue {name} belongs to Queue {sample.owner}; nothing is written to it"
        return NotAccepted(reason=Reason.QUEUE_CONFLICT, message=message)
    failure = memory.failure
    if failure is not None and failure.kind is FailureKind.OWNED and not memory.owned:
        return NotAccepted(reason=Reason.QUEUE_CONFLICT, message=failure.message)
    return None


def other_installation(queue: Queue, seen: QueueSeen) -> str:
    """UID of another installation's Lease that looks after this very Queue, "" if none does."""
    owner = seen.redis.sample.owner if seen.redis.sample is not None else None
    if owner is None or owner.uid != queue.uid or owner.operator == seen.operator.lease_uid:
        return ""
    return owner.operator


def is_ours(queue: Queue, owner: OwnerSeen, seen: QueueSeen) -> bool:
    """The record is of this object, or of one of this operator with the same name (made anew)."""
    if owner.operator != seen.operator.lease_uid:
        return False
    return owner.uid == queue.uid or (owner.namespace, owner.name) == (queue.ref.namespace, queue.ref.name)


def ask_for_it(queue: Queue, seen: QueueSeen, memory: Memory, now: datetime) -> tuple[Action, ...]:
    """The one action of a Queue that may not act: ask for the Redis queue again, if it can become ours.

    A reinstalled operator takes over by the same uid after 15 s, anyone when the record is gone; the script decides.
    """
    server, sample = seen.redis.server, seen.redis.sample
    # Not while:
    # 1. there is no Secret or no answer to ask with, or the server cannot be used;
    # 2. the record is another Queue's and in force;
    # 3. the answer to the last question is a moment old.
    if sample is None or seen.secret.state is not SecretState.FOUND or (server and server.too_old):
        return ()
    if sample.owner is not None and sample.owner.uid != queue.uid and not is_ours(queue, sample.owner, seen):
        return ()
    if memory.failed_at is not None and now - memory.failed_at < ASK_AGAIN:
        return ()
    return (_configure(queue, seen, "take the Redis queue"),)


# --- what is written to Redis ------------------------------------------------------------------------------


def settings_of(spec: QueueSpec, generation: int) -> QueueSettings:
    """The part of the spec that is in force in Redis, without a new pod (OP-027)."""
    jobs, limits = spec.jobs, spec.limits
    backoff: dict[str, Any] = {
        "kind": jobs.backoff.kind.lower(),
        "base_ms": _ms(jobs.backoff.base),
        "max_ms": _ms(jobs.backoff.max),
        "jitter_percent": jobs.backoff.jitter_percent,
    }
    return QueueSettings(
        generation=generation,
        timeout_ms=_ms(jobs.timeout),
        max_timeout_ms=_ms(jobs.longest),
        max_attempts=jobs.max_attempts,
        max_deliveries=jobs.max_deliveries,
        backoff=json.dumps(backoff, separators=(",", ":")),
        max_depth=limits.depth,
        max_bytes=limits.bytes,
        max_payload=limits.payload_bytes,
    )


def _ms(span: timedelta) -> int:
    return round(span / timedelta(milliseconds=1))


def _configure(queue: Queue, seen: QueueSeen, reason: str) -> Configure:
    owner = OwnerSeen(
        operator=seen.operator.lease_uid,
        namespace=queue.ref.namespace,
        name=queue.ref.name,
        uid=queue.uid,
    )
    return Configure(settings=settings_of(queue.spec, queue.generation), owner=owner, reason=reason)


def keep_configured(queue: Queue, seen: QueueSeen, memory: Memory, now: datetime) -> tuple[Action, ...]:
    """Write what the runtime reads when it changed or is not there; renew the owner record in time."""
    sample = seen.redis.sample
    if sample is None:
        return ()
    if memory.configured != settings_of(queue.spec, queue.generation):
        return (_configure(queue, seen, "the settings changed"),)
    is_there = sample.owner is not None and sample.config_generation == queue.generation
    if not is_there and shows_our_write(memory, sample):
        return (_configure(queue, seen, "Redis does not have the settings"),)
    if memory.configured_at is None or now - memory.configured_at >= RENEW_OWNER:
        return (_configure(queue, seen, "renew the owner record"),)
    return ()


def keep_up(seen: QueueSeen, memory: Memory, now: datetime) -> tuple[Action, ...]:
    """What workers do for a queue, while there is none (OP-146); an empty queue is only trimmed, now and then."""
    sample = seen.redis.sample
    if sample is None or any(sample.time_ms - w.beat_ms <= STALE_AFTER_MS for w in sample.workers):
        return ()
    if sample.delayed or sample.active or sample.ready or sample.prioritized or sample.parked:
        return (Upkeep(reason="no worker beats"),)
    if memory.upkeep_at is not None and now - memory.upkeep_at < TRIM_EVERY:
        return ()
    return (Upkeep(promote=False, reap=False, expire=False, reason="no worker beats"),)
