"""Claiming and settling in memory: the same steps as `lua/claim.lua` and `lua/settle.lua`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dockwork.core.states import State
from dockwork.store.calls import CLAIM_BYTES, RESULT_BYTES
from dockwork.store.memory_index import Index
from dockwork.store.memory_limits import count_starts, free_keys, is_full, places_left, put_aside, start_key
from dockwork.store.memory_queue import ASIDE_MS, FOREVER, MemoryQueue, Record, Turn, earliest, pod_of
from dockwork.store.memory_seals import reseal_run
from dockwork.store.protocol import Claim, Claimed, Outcome, Owner, Settlement, Verdict
from dockwork.store.texts import REASON_BYTES, encode_failure, fit, fit_progress

_PROMOTED = 200
_REAPED = 100
_LOOKED = 1000
_TRIMMED = 500
_LETTERS = {
    Outcome.COMPLETED: "c",
    Outcome.RETRY: "r",
    Outcome.SNOOZE: "z",
    Outcome.FAILED: "f",
    Outcome.DEAD: "d",
    Outcome.CANCELLED: "x",
}
_ENDS = {Outcome.DEAD: State.DEAD, Outcome.FAILED: State.FAILED, Outcome.CANCELLED: State.CANCELLED}


@dataclass
class _Taking:
    """A claim under way: what may still be taken, and what was."""

    owner: Owner
    left: int
    bytes: int = CLAIM_BYTES
    more: bool = False
    parked: bool = False
    suspect: str = ""
    claims: list[Claim] = field(default_factory=list)


def take(turn: Turn, owner: Owner, places: int, known: Sequence[str], next_tick: int | None) -> Claimed:
    """Promote, reap, then lease at most `places` jobs to `owner` in the order of RT-071."""
    queue = turn.queue
    turn.promote_due(_PROMOTED)
    due = queue.first_due
    _, _, ends = turn.reap_ended(_REAPED)
    free_keys(turn)
    taking = _Taking(owner, places)
    refused = "paused" if queue.paused else "held" if queue.held else ""
    if not refused and places > 0 and queue.quiesced(owner.pod, turn.ms):
        refused = "quiesced"
    throttled = None
    if not refused:
        allowed = places_left(turn)
        taking.left = places if allowed is None else min(places, allowed)
        has_prio = len(queue.prio) > 0
        _take_parked(turn, taking, known)
        if has_prio:
            _take_from(turn, taking, queue.prio, None, -1)
        _take_from(turn, taking, queue.ready, None, None)
        if has_prio:
            _take_from(turn, taking, queue.prio, 1, None)
        if allowed is not None and allowed <= len(taking.claims):
            taking.more = False
        throttled = count_starts(turn, len(taking.claims))
        turn.claimable = 2 if taking.more else 0
    elif refused == "quiesced":
        turn.claimable = queue.claimable
    if taking.claims:
        queue.leased[owner.pod] += len(taking.claims)
        turn.tally("claimed", len(taking.claims))
    if taking.suspect:
        queue.give_suspect(str(owner), taking.suspect, turn.ms)
    return Claimed(
        claims=tuple(taking.claims),
        next_at_ms=earliest(due, None if taking.more else ends, next_tick, turn.due, throttled),
        more=taking.more,
        parked=taking.parked,
        refused=refused,
        now_ms=turn.ms,
        config_revision=queue.revision,
    )


def _take_parked(turn: Turn, taking: _Taking, known: Sequence[str]) -> None:
    """Lease parked jobs of types that this worker knows, oldest first."""
    queue = turn.queue
    for name in known:
        if name not in queue.parked:
            continue
        if taking.left <= 0:
            taking.more = taking.parked = True
            continue
        ids = queue.parked[name].page(0, taking.left)
        taken, dropped = _look(turn, taking, ids)
        used = ids[: len(taken) + len(dropped)]
        queue.unpark(name, used)
        _write_taken(turn, taking, taken, dropped)
        if name in queue.parked:
            taking.more = taking.parked = True


def _take_from(turn: Turn, taking: _Taking, index: Index, low: int | None, high: int | None) -> None:
    """Lease the first jobs of one index between two scores, until no place is left or the index has no more."""
    looked = 0
    while taking.left > 0 and looked < _LOOKED:
        ids = index.between(low, high, taking.left)
        if not ids:
            return
        taken, dropped = _look(turn, taking, ids)
        used = len(taken) + len(dropped)
        index.remove_all(ids[:used])
        _write_taken(turn, taking, taken, dropped)
        looked += used
        if used < len(ids):
            taking.left, taking.more = 0, True  # the byte limit of one reply
            return
    if index.count(low, high):
        taking.more = True


def _look(turn: Turn, taking: _Taking, ids: Sequence[str]) -> tuple[list[Record], list[tuple[Record, State]]]:
    """Sort the first of `ids` into those to take and those to drop; the byte limit may end it early.

    A suspect is taken while the worker runs no other; dropped as DELAYED, it waits until it may be alone. Dropped as
    READY, a job waits aside: its concurrency key is full.
    """
    queue, owner = turn.queue, str(taking.owner)
    taken: list[Record] = []
    dropped: list[tuple[Record, State]] = []
    for job_id in ids:
        record = queue.records[job_id]
        is_suspect = queue.is_suspect(record)
        if record.cancel:
            dropped.append((record, State.CANCELLED))
        elif record.expires is not None and record.expires <= turn.ms:
            dropped.append((record, State.EXPIRED))
        elif is_suspect and (taking.suspect or queue.has_suspect(owner, turn.ms)):
            dropped.append((record, State.DELAYED))
        elif is_full(queue, record):
            dropped.append((record, State.READY))
        elif record.size > taking.bytes and (taking.claims or taken):
            break
        else:
            taking.bytes -= record.size
            taking.suspect = taking.suspect or (job_id if is_suspect else "")
            start_key(queue, record)
            taken.append(record)
    return taken, dropped


def _write_taken(
    turn: Turn, taking: _Taking, taken: Sequence[Record], dropped: Sequence[tuple[Record, State]]
) -> None:
    queue, waits = turn.queue, 0
    for record in taken:
        record.parked_type = ""
        record.state, record.owner = State.ACTIVE, str(taking.owner)
        record.epoch = max(turn.us, record.epoch + 1)
        record.deliveries += 1
        if record.lock[:1] == "s":
            queue.release_unique(record)
        wait = max(0, turn.ms - record.waiting_since())
        waits += wait
        turn.tally(f"w{bucket(wait)}")
        queue.expiry.remove(record.id)
        queue.lease.add(record.id, turn.ms + turn.lease_ms)
        taking.claims.append(record.to_claim())
        turn.note(State.ACTIVE, record.id)
    taking.left -= len(taken)
    if waits:
        turn.tally("wait_ms", waits)
    for record, state in dropped:
        if state is State.READY:
            put_aside(turn, record)
            continue
        if record.state is not State.PARKED:
            queue.limits.leave(record, "waiting")
        if state is State.DELAYED:
            turn.set_aside(record, ASIDE_MS)
        else:
            turn.drop(record, state)


def bucket(ms: int) -> int:
    """The histogram bucket of a span: the smallest b with ms < 2^b, at most 32."""
    return min(max(ms, 0).bit_length(), 32)


# --- settling


@dataclass(slots=True)
class _Keeping:
    """How long completed jobs of this call stay: the queue's age and count, and the tightest of their own."""

    age: int
    count: int
    bytes: int | None = None

    @classmethod
    def of(cls, queue: MemoryQueue) -> _Keeping:
        return cls(queue.number("keep_completed_age", 3_600_000), queue.number("keep_completed_count", 1000))

    def shift_of(self, own: str | None, queue_keeps: bool) -> int | None:
        """How far a job with a keep of its own moves along the index; None: it goes at once."""
        if own is None:
            return 0 if queue_keeps else None
        if own == "none":
            return None
        if own == "forever":
            return FOREVER
        age, count, size = (int(part) if part else None for part in own.split(","))
        if 0 in (age, count, size):
            return None
        if count is not None and (self.count < 0 or count < self.count):
            self.count = count
        if size is not None and (self.bytes is None or size < self.bytes):
            self.bytes = size
        return age - self.age if age is not None and self.age > 0 else 0


def settle_all(turn: Turn, owner: Owner, settlements: Sequence[Settlement]) -> tuple[Verdict, ...]:
    """End the deliveries that are still held; a verdict per settlement, in order."""
    queue, verdicts = turn.queue, []
    held: dict[str, tuple[Record, Settlement]] = {}
    for settlement in settlements:
        record = queue.held_by(settlement.lease)
        # The same delivery twice in one call: the second is lost, as it would be in a later call.
        if record is None or record.id in held:
            verdicts.append(Verdict.LOST)
        else:
            held[record.id] = record, settlement
            verdicts.append(Verdict.OK)
    queue.lease.remove_all(held)
    keeping = _Keeping.of(queue)
    queue_keeps = keeping.age != 0 and keeping.count != 0
    has_completed = False
    for record, settlement in held.values():
        # All that begins is told before what ends.
        if record.state is State.ACTIVE and settlement.outcome is not Outcome.PARKED:
            turn.note(State.PROCESSING, record.id)
    for record, settlement in held.values():
        turn.unlease(owner.pod if record.owner in ("", str(owner)) else pod_of(record.owner))
        queue.limits.leave(record, "running")
        if settlement.outcome is Outcome.PARKED:
            _settle_parked(turn, record, settlement)
            continue
        _count_run(turn, record, settlement)
        repeats = settlement.next_due_ms is not None and _has_more_times(record)
        reseal_run(turn.queue, record, settlement, repeats=repeats)
        if repeats:
            _settle_repeat(turn, record, settlement)
        elif settlement.outcome is Outcome.COMPLETED:
            has_completed |= _settle_completed(
                turn, record, settlement, keeping.shift_of(record.keep, queue_keeps)
            )
        elif settlement.outcome in _ENDS:
            record.attempts += settlement.failure is not None
            if settlement.outcome is not Outcome.CANCELLED:
                turn.tally_type(record.type, _LETTERS[settlement.outcome])
            turn.to_dead(record, _ENDS[settlement.outcome], fit(settlement.reason, REASON_BYTES))
        else:
            _settle_again(turn, record, settlement)
    if has_completed:
        _trim_completed(queue, keeping)
    turn.add_delayed()
    return tuple(verdicts)


def _count_run(turn: Turn, record: Record, settlement: Settlement) -> None:
    """What all outcomes of a run share: its start, its figures, its error and its last progress."""
    started = settlement.started_ms if record.started is None else record.started
    record.started = started if 0 < started <= turn.ms else turn.ms
    run = turn.ms - record.started
    turn.tally(f"u{bucket(run)}")
    turn.tally("finished")
    turn.tally_minute("f")
    if run:
        turn.tally("run_ms", run)
        turn.tally_minute("r", run)
        turn.tally_type(record.type, "t", run)
    if settlement.failure is not None:
        turn.note_error(record, record.attempts + 1, _LETTERS[settlement.outcome], settlement.failure)
        record.errors[(record.attempts + 1) % 5] = encode_failure(settlement.failure)
    if settlement.progress is not None:
        record.progress = fit_progress(settlement.progress)
        turn.note("progress", record.id)


def _settle_completed(turn: Turn, record: Record, settlement: Settlement, shift: int | None) -> bool:
    """The envelope goes, the rest stays as long as it is kept. Answers whether it does."""
    queue = turn.queue
    turn.tally_type(record.type, "c")
    queue.release_unique(record)
    if shift is None:
        del queue.records[record.id]
        queue.bytes -= record.size
        turn.note(State.COMPLETED, record.id)
        turn.tally(State.COMPLETED)
        return False
    result = settlement.result
    if result is None:
        record.dropped = settlement.result_dropped
    elif len(result) > RESULT_BYTES:
        record.dropped, result = len(result), None
    record.result, record.envelope, record.checkpoint = result, b"", None
    turn.end_job(record, State.COMPLETED, size=len(result or b""), shift=shift)
    return True


def _settle_again(turn: Turn, record: Record, settlement: Settlement) -> None:
    """The job runs again after a delay: a failed attempt, or a snooze, which charges nothing."""
    due = turn.ms + settlement.delay_ms
    record.owner, record.started, record.waits_since, record.expires = "", None, None, None
    record.due = due
    is_retry = settlement.outcome is Outcome.RETRY
    if is_retry:
        turn.tally_type(record.type, "r")
        record.attempts += 1
    else:
        record.deliveries -= 1
    turn.tally("retried" if is_retry else "snoozed")
    turn.postpone(record, due, "retry" if is_retry else "snooze")


def _has_more_times(record: Record) -> bool:
    return record.repeat is not None and (record.repeat == 0 or record.repeated + 1 < record.repeat)


def _settle_repeat(turn: Turn, record: Record, settlement: Settlement) -> None:
    """A run of a job that repeats ended: it waits for its next time with fresh counters."""
    due = settlement.next_due_ms or turn.ms + settlement.delay_ms
    record.owner, record.started, record.waits_since, record.expires = "", None, None, None
    record.attempts = record.deliveries = 0
    record.due = record.scheduled_for = due
    record.repeated += 1
    record.checkpoint = record.progress = None
    if settlement.result is not None or settlement.outcome is Outcome.COMPLETED:
        result = settlement.result
        record.result = None if result is None or len(result) > RESULT_BYTES else result
    turn.tally("repeated")
    turn.tally_type(record.type, _LETTERS.get(settlement.outcome, "c"))
    turn.postpone(record, due, "repeat")


def _settle_parked(turn: Turn, record: Record, settlement: Settlement) -> None:
    """The worker lacks the job's type or schema: it waits for one that has it, at its old place, uncharged."""
    name = settlement.park_type
    record.owner, record.started, record.state, record.parked_type = "", None, State.PARKED, name
    record.deliveries -= 1
    turn.queue.parked.setdefault(name, Index()).add(record.id, record.seq)
    if record.expires is not None:
        turn.queue.expiry.add(record.id, record.expires)
    turn.note(State.PARKED, record.id, name)
    turn.tally(State.PARKED)
    turn.woken += 1


def _trim_completed(queue: MemoryQueue, keeping: _Keeping) -> None:
    """Drop the oldest completed jobs above the count and the bytes; those kept for ever do not count."""
    index = queue.ended[State.COMPLETED]
    if keeping.count >= 0:
        over = index.count(None, FOREVER - 1) - keeping.count
        if over > 0:
            queue.drop_ended(State.COMPLETED, index.page(0, min(over, _TRIMMED)))
    rounds = 0
    while keeping.bytes is not None and queue.kept_completed > keeping.bytes and rounds < _TRIMMED:
        ids = index.between(None, FOREVER - 1, 1)
        if not ids:
            return
        queue.drop_ended(State.COMPLETED, ids)
        rounds += 1
