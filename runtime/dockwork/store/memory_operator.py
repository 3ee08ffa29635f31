"""What the operator and upkeep do to a queue in memory: options, quiesce, revoke, retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dockwork.core.states import RUNNING, WAITING, State
from dockwork.store.memory_limits import change_limits
from dockwork.store.memory_queue import FOREVER, MemoryQueue, Turn, pod_of
from dockwork.store.operator_calls import CONFIG_FIELDS, read_config
from dockwork.store.protocol import Lease, OwnerRecord, QueueConfig, RevokeCause, Verdict, Writing
from dockwork.store.texts import EXIT_BYTES, fit

_OWNED_MS = 300_000
_TAKEN_OVER_MS = 15_000
_QUIESCED_MS = 60_000
_SILENT_MS = 60_000
_TYPES = 1000
_ENDED_BADLY = (State.FAILED, State.DEAD, State.EXPIRED, State.CANCELLED)


def configure(
    turn: Turn, fields: Mapping[str, str], generation: int, owner: OwnerRecord | None, how: Writing
) -> OwnerRecord | None:
    """Write `fields` of the options ("" = the default), unless another Queue object owns the queue."""
    queue = turn.queue
    other = None
    if owner is not None:
        other = _other_owner(queue, owner, turn.ms)
    elif how is Writing.PLAINLY:
        other = queue.marked_by
    if other is not None:
        return other
    was_held, options = queue.held, queue.options
    changed = {name for name, value in fields.items() if options.get(name, "") != value}
    if owner is not None and owner.operator:
        queue.owner = owner, turn.ms + _OWNED_MS
        queue.marked_by = owner
        options["gen"] = str(generation)
    elif how is Writing.FORCED and (queue.owner is None or queue.owner[1] <= turn.ms):
        queue.marked_by = None
        options.pop("gen", None)
    for name in changed:
        if fields[name]:
            options[name] = fields[name]
        else:
            del options[name]
    if changed:
        options["rev"] = str(queue.revision + 1)
        if was_held and not queue.held:
            turn.claimable = queue.claimable
        if changed & {"rate", "concurrency", "per_key"}:
            change_limits(turn)
    return None


def _other_owner(queue: MemoryQueue, asking: OwnerRecord, now_ms: int) -> OwnerRecord | None:
    """The owner that keeps this Queue object out (OP-022)."""
    if queue.owner is None or queue.owner[1] <= now_ms:
        return None
    owner, expires = queue.owner
    same = (owner.operator, owner.namespace, owner.name) == (asking.operator, asking.namespace, asking.name)
    silent_ms = now_ms - (expires - _OWNED_MS)
    return None if same or (owner.uid == asking.uid and silent_ms >= _TAKEN_OVER_MS) else owner


def config_of(queue: MemoryQueue) -> QueueConfig:
    """The options as they stand."""
    found = (queue.options.get(name) for name in CONFIG_FIELDS)
    return read_config([None if text is None else text.encode() for text in found])


def quiesce(turn: Turn, requests: Mapping[str, str]) -> dict[str, int]:
    """Flag pods for 60 s, and nudge those that did not know."""
    queue, leased = turn.queue, {}
    for pod, token in requests.items():
        is_fresh = queue.quiesced(pod, turn.ms) != token
        queue.quiesces[pod] = turn.ms + _QUIESCED_MS, token
        leased[pod] = queue.leased.get(pod, 0)
        if is_fresh:
            _nudge_pod(turn, pod, f"quiesce {token}")
    return leased


def unquiesce(turn: Turn, pods: Sequence[str]) -> None:
    """Let pods claim again."""
    for pod in pods:
        if turn.queue.quiesces.pop(pod, None) is not None:
            _nudge_pod(turn, pod, "unquiesce")
    turn.post_markers(turn.queue.claimable)


def _nudge_pod(turn: Turn, pod: str, text: str) -> None:
    for owner in turn.queue.workers:
        if pod_of(owner) == pod:
            turn.queue.nudge(owner, text, turn.ms)


def revoke(turn: Turn, owner: str, cause: RevokeCause, exit_reason: str) -> int:
    """Take back all jobs of an owner that is gone."""
    queue, died = turn.queue, cause is RevokeCause.DIED
    ids = [one for one in queue.lease.page(0, len(queue.lease)) if queue.records[one].owner == owner]
    queue.lease.remove_all(ids)
    for job_id in ids:
        record = queue.records[job_id]
        record.exit = fit(exit_reason, EXIT_BYTES) or record.exit
        turn.put_back(
            record, cause="died" if died else "revoked", charge=died, reason="" if died else "revoked"
        )
    queue.forget_owner(owner)
    return len(ids)


def child_died(turn: Turn, deaths: Sequence[tuple[Lease, str]]) -> list[Verdict]:
    """Take back jobs whose own process died under them; the delivery counts."""
    verdicts = []
    for lease, exit_reason in deaths:
        record = turn.queue.held_by(lease)
        if record is not None:
            turn.queue.lease.remove(record.id)
            record.exit = fit(exit_reason, EXIT_BYTES)
            turn.put_back(record, cause="child_died", charge=True)
        verdicts.append(Verdict.LOST if record is None else Verdict.OK)
    return verdicts


def set_paused(turn: Turn, *, expected: bool, wanted: bool) -> bool:
    """Pause or resume by hand, if the queue is as expected."""
    queue = turn.queue
    if queue.paused is not expected:
        return False
    if expected is wanted:
        return True
    queue.paused = wanted
    if not wanted:
        turn.add_event("resumed", (), count=str(queue.claimable), seq=str(queue.seq))
        turn.post_markers(queue.claimable)
    return True


def cancel(turn: Turn, job_id: str, *, force: bool = False) -> str:
    """A waiting job ends here, a running one gets a flag and its worker a nudge; by force it ends here, too."""
    queue = turn.queue
    record = queue.records.get(job_id)
    if record is None:
        return "missing"
    if record.state in RUNNING and force:
        queue.lease.remove(job_id)
        turn.unlease(pod_of(record.owner))
        if "concurrency" in queue.options:
            turn.woken = 1
        queue.limits.leave(record, "running")
        turn.to_dead(record, State.CANCELLED, "forced")
        queue.nudge(record.owner, f"cancel {job_id}", turn.ms)
        return "cancelled"
    if record.state in RUNNING:
        record.cancel = True
        queue.nudge(record.owner, f"cancel {job_id}", turn.ms)
        return "flagged"
    if record.state not in WAITING:
        return "too_late"
    queue.leave_index(record)
    turn.drop(record, State.CANCELLED)
    return "cancelled"


def register(turn: Turn, template_hash: str, types: Mapping[str, tuple[str, bytes]]) -> None:
    """Publish job types; somebody new may know what is parked."""
    queue = turn.queue
    for name, (schema_hash, schema) in types.items():
        queue.types[name] = turn.ms, schema_hash, schema
    if template_hash:
        queue.types[f"@{template_hash}"] = turn.ms, "\n".join(types), b""
    turn.post_markers(queue.parked_jobs)


def trim(turn: Turn, most: int) -> int:
    """Delete ended jobs over an age, a count or the bytes that all may keep; forget silent workers."""
    queue, left = turn.queue, most
    limits = {
        state: (queue.number("keep_failed_age", 604_800_000), queue.number("keep_failed_count", 10_000))
        for state in _ENDED_BADLY
    }
    completed = queue.number("keep_completed_age", 3_600_000), queue.number("keep_completed_count", 1000)
    for state, (age, count) in {State.COMPLETED: completed, **limits}.items():
        left -= _trim_index(turn, state, age, count, left)
    left -= _trim_bytes(queue, queue.number("keep_bytes", 256 * 1024 * 1024), left)
    _trim_workers(queue, turn.ms)
    return most - left


def _trim_index(turn: Turn, state: State, age: int, count: int, most: int) -> int:
    index = turn.queue.ended[state]
    old = 0 if age < 0 else index.count(None, turn.ms - age)
    over = 0 if count < 0 else index.count(None, FOREVER - 1) - count
    number = max(min(max(old, over), most), 0)
    turn.queue.drop_ended(state, index.page(0, number))
    return number


def _trim_bytes(queue: MemoryQueue, limit: int, most: int) -> int:
    """Delete the oldest ended jobs until all that are kept fit into `limit` bytes (-1: no limit)."""
    dropped = 0
    while 0 <= limit < queue.kept + queue.kept_completed and dropped < most:
        heads = {
            state: at % FOREVER for state in queue.ended if (at := queue.ended[state].first()) is not None
        }
        if not heads:
            return dropped
        oldest = min(heads, key=lambda state: (heads[state], _STATES.index(state)))
        queue.drop_ended(oldest, queue.ended[oldest].page(0, 1))
        dropped += 1
    return dropped


_STATES = (State.COMPLETED, *_ENDED_BADLY)


def _trim_workers(queue: MemoryQueue, now_ms: int) -> None:
    for owner in [o for o, beat in queue.workers.items() if beat.beat_ms < now_ms - _SILENT_MS]:
        del queue.workers[owner]
    for pod in [pod for pod, (expires, _) in queue.quiesces.items() if expires <= now_ms]:
        del queue.quiesces[pod]
    if len(queue.types) > _TYPES:
        del queue.types[min(queue.types, key=lambda name: queue.types[name][0])]
