"""Looking at a queue in memory: jobs for people, figures for the operator."""

from __future__ import annotations

from dockwork.core.states import RUNNING, State
from dockwork.store.memory_digests import digest_of
from dockwork.store.memory_limits import throttled_by
from dockwork.store.memory_queue import MemoryQueue, Record
from dockwork.store.memory_seals import count_keys, join_parts
from dockwork.store.operator_calls import read_rate
from dockwork.store.protocol import JobView, QueueStats, Sample, SampleRequest
from dockwork.store.texts import decode_failure

_LOOKED = 1000
_PAGE_BYTES = 4 * 1024 * 1024


def view_of(record: Record, *, is_paused: bool, wants_digest: bool = False) -> JobView:
    """One job for people."""
    state, reason = record.state, record.reason
    if is_paused and state in (State.READY, State.PRIORITIZED):
        state = State.PAUSED
    if reason == "max_deliveries" and record.exit:
        reason = f"{reason}: {record.exit}"
    last_five = (attempt % 5 for attempt in range(max(1, record.attempts - 4), record.attempts + 1))
    return JobView(
        id=record.id,
        type=record.type,
        state=state,
        envelope=record.envelope,
        seq=record.seq,
        priority=record.priority,
        created_ms=record.created,
        due_ms=record.due or record.created,
        scheduled_for_ms=record.scheduled_for,
        expires_ms=record.expires,
        started_ms=record.started,
        ended_ms=record.ended,
        attempts=record.attempts,
        deliveries=record.deliveries,
        interruptions=record.interruptions,
        owner=record.owner,
        epoch=record.epoch,
        reason=reason,
        result=record.result,
        result_dropped=record.dropped,
        progress=record.progress,
        checkpoint=record.checkpoint,
        log=() if record.log is None else tuple(record.log.split("\n")),
        failures=tuple(decode_failure(record.errors[at]) for at in last_five if at in record.errors),
        revision=record.revision,
        digest=digest_of(record) if wants_digest else "",
        sealed=join_parts(record.seals),
        exit=record.exit,
    )


def list_jobs(queue: MemoryQueue, state: State, offset: int, limit: int) -> list[JobView]:
    """A page of the jobs in `state`: waiting and running in their order, ended ones newest first; 4 MiB at most."""
    views: list[JobView] = []
    size = 0
    for job_id in ids_in(queue, state, offset, limit):
        view = view_of(queue.records[job_id], is_paused=queue.paused, wants_digest=True)
        size += _size_of(view)
        if size > _PAGE_BYTES and views:
            break
        views.append(view)
    return views


def _size_of(view: JobView) -> int:
    texts = (view.envelope, view.result, view.progress, view.checkpoint)
    return sum(len(text) for text in texts if text is not None) + sum(map(len, view.log))


def ids_in(queue: MemoryQueue, state: State, offset: int, limit: int) -> list[str]:
    """The ids of one state from `offset` on, `limit` at most."""
    if state in RUNNING:
        # One index has both; the record says which.
        found = [one for one in queue.lease.page(0, _LOOKED) if queue.records[one].state is state]
        return found[offset : offset + limit]
    if state is State.PARKED:
        found = [one for index in queue.parked.values() for one in index.page(0, len(index))]
        return found[offset : offset + limit]
    if state is State.PAUSED:
        found = [one for index in (queue.prio, queue.ready) for one in index.page(0, len(index))]
        found += queue.limits.held_ids(State.READY, State.PRIORITIZED)
        return found[offset : offset + limit] if queue.paused else []
    if state is State.DELAYED:
        return queue.delayed.page(offset, limit)
    if state in (State.READY, State.PRIORITIZED):
        index = queue.ready if state is State.READY else queue.prio
        return (index.page(0, len(index)) + queue.limits.held_ids(state))[offset : offset + limit]
    return queue.ended[state].newest(offset, limit)


def stats(queue: MemoryQueue, now_ms: int) -> QueueStats:
    """Counts per state, totals and flags."""
    counts = {
        State.READY: len(queue.ready) + len(queue.limits.held_ids(State.READY)),
        State.PRIORITIZED: len(queue.prio) + len(queue.limits.held_ids(State.PRIORITIZED)),
        State.DELAYED: len(queue.delayed),
        State.ACTIVE: len(queue.lease),
        State.PARKED: queue.parked_jobs,
        **{state: len(index) for state, index in queue.ended.items()},
    }
    if queue.paused:
        counts[State.PAUSED] = counts[State.READY] + counts[State.PRIORITIZED]
        counts[State.READY] = counts[State.PRIORITIZED] = 0
    return QueueStats(
        counts=counts,
        totals=dict(queue.totals),
        paused=queue.paused,
        closed=queue.closed,
        bytes=queue.bytes,
        oldest_wait_ms=oldest_wait(queue, now_ms),
        parked_types={name: len(index) for name, index in queue.parked.items()},
        throttled=throttled_by(queue, now_ms),
        config_revision=queue.revision,
    )


def oldest_wait(queue: MemoryQueue, now_ms: int) -> int:
    """The age of the oldest due job that waits, as seen at the heads of the indexes."""
    heads = [*queue.ready.page(0, 1), *queue.prio.page(0, 1)]
    last = queue.prio.last()
    heads += [] if last is None else [last]
    since = [queue.records[one].waiting_since() for one in heads]
    if queue.first_due is not None:
        since.append(queue.first_due)
    return now_ms - min([now_ms, *since])


def sample(
    queue: MemoryQueue, request: SampleRequest, *, now_ms: int, run_id: str, ticks_soon: int
) -> Sample:
    """One look for the scaling loop. ticks_soon: schedules that are due within the horizon."""
    owner = queue.owner
    barred = throttled_by(queue, now_ms + request.horizon_ms)
    return Sample(
        time_ms=now_ms,
        run_id=run_id,
        entered=queue.totals["entered"],
        finished=queue.totals["finished"],
        ready=len(queue.ready) + len(queue.limits.held_ids(State.READY)),
        prioritized=len(queue.prio) + len(queue.limits.held_ids(State.PRIORITIZED)),
        delayed=len(queue.delayed),
        due=queue.due_by(now_ms),
        due_soon=queue.due_by(now_ms + request.horizon_ms) + ticks_soon,
        active=len(queue.lease),
        throttled=sum(barred.values()),
        throttled_by=barred,
        parked=queue.parked_jobs,
        dead=len(queue.ended[State.DEAD]),
        bytes=queue.bytes,
        oldest_ms=oldest_wait(queue, now_ms),
        paused=queue.paused,
        held=queue.held,
        closed=queue.closed,
        template_known=bool(request.template_hash) and f"@{request.template_hash}" in queue.types,
        owner=owner[0] if owner is not None and owner[1] > now_ms else None,
        parked_types={name: len(index) for name, index in queue.parked.items()},
        parked_first=next(iter(ids_in(queue, State.PARKED, 0, 1)), ""),
        totals=dict(queue.totals),
        workers=tuple(queue.workers.values()),
        quiesced={pod: token for pod, (expires, token) in queue.quiesces.items() if expires > now_ms},
        leased=dict(queue.leased),
        sealed=dict(count_keys(queue.records.values())),
        config_generation=queue.number("gen", 0),
        rate=read_rate(queue.options.get("rate", "").encode()),
        concurrency=queue.number("concurrency", 0) or None,
    )
