"""One value per script call: its keys, its arguments, and how its answer is read. Nothing is sent here.

The asyncio store and the renewal thread share these, and a decoder is tested without Redis. Every key enters a
script by KEYS; what depends on an id enters as a prefix, and the script forms the key by the include
``record_key`` - one way for ids that the caller knows and for those that only the script learns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, Generic, TypeVar

from dockwork.core.keys import QueueKeys, is_job_id
from dockwork.core.sealed import key_of
from dockwork.core.sealing import sealed_text
from dockwork.core.states import State
from dockwork.errors import SchemaMismatch, TooLarge, UnknownReply, require
from dockwork.store.beats import encode_beat
from dockwork.store.protocol import (
    Admission,
    Admitted,
    Claim,
    Claimed,
    Done,
    Heartbeat,
    JobKeys,
    Lease,
    NewJob,
    OnConflict,
    Outcome,
    Owner,
    Put,
    Renewal,
    Settled,
    Settlement,
    Verdict,
)
from dockwork.store.scripts import script
from dockwork.store.texts import (
    EXIT_BYTES,
    LOG_LINES,
    REASON_BYTES,
    REPORT_BYTES,
    encode_failure,
    fit,
    fit_log_line,
    fit_progress,
)

R = TypeVar("R")
Arg = bytes | str | int

#: The stored schema version that this code reads and writes (RT-042).
SCHEMA = 1
#: Jobs in one enqueue call, and their envelopes' bytes; a larger job travels alone.
ENQUEUE_JOBS = 256
ENQUEUE_BYTES = 1024 * 1024
#: Leases in one call.
MOST_LEASES = 500
#: Envelope bytes in one claim's reply; one job may exceed it.
CLAIM_BYTES = 4 * 1024 * 1024

#: The largest that a queue may allow; what it allows where nobody says more is the worker's to know.
RESULT_BYTES = 1024 * 1024
CHECKPOINT_BYTES = 1024 * 1024


@dataclass(slots=True)
class Call(Generic[R]):
    """A script call that is not sent yet. Its keys are those that the script's header names.

    packed     further arguments, ready for the wire, `packed_args` of them
    decode     reads the answer after its tag "ok"; a ValueError, TypeError or the like becomes UnknownReply
    job_ids    to ask by when the answer is lost
    reads      it changes nothing, so a lost answer leaves nothing unknown
    """

    script: str
    keys: QueueKeys
    args: Sequence[Arg]
    decode: Callable[[list[Any]], R]
    job_ids: Sequence[str] = ()
    reads: bool = False
    packed: bytes = b""
    packed_args: int = 0

    @property
    def key_values(self) -> list[str]:
        return [getattr(self.keys, name) for name in script(self.script).key_names]

    def read(self, reply: Any) -> R:
        """The answer as a value. Raises SchemaMismatch, UnknownReply."""
        try:
            tag = reply[0]
            if tag == b"ok":
                return self.decode(reply)
            if tag == b"schema":
                raise SchemaMismatch(found=int(reply[1]), readable=SCHEMA)
        except (ValueError, TypeError, IndexError, KeyError) as error:
            raise UnknownReply(self.script, _shape(reply)) from error
        raise UnknownReply(self.script, _shape(reply))


def _shape(reply: Any) -> str:
    """What a reply looks like, without its payloads."""
    if isinstance(reply, list | tuple):
        return "[" + ", ".join(_shape(part) for part in reply[:4]) + (", ...]" if len(reply) > 4 else "]")
    if isinstance(reply, bytes):
        return repr(reply) if len(reply) <= 20 else f"{len(reply)} bytes"
    return repr(reply)


# --- producers ---------------------------------------------------------------------------------------------

_ACCEPTED: Mapping[bytes, State] = {
    b"ready": State.READY,
    b"prioritized": State.PRIORITIZED,
    b"delayed": State.DELAYED,
}


_READY, _ACCEPT = State.READY, Admitted.ACCEPTED


def key_hash(key: str) -> str:
    """A concurrency key as Redis has it: two of a billion keys are alike with a chance of 10^-6."""
    return hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()[:20]


def job_options(job: NewJob) -> str:
    """What the enqueue script reads besides id, type and envelope; "" for a job without wishes."""
    parts: list[str] = []
    if job.priority:
        parts.append(f"p={job.priority}")
    if job.due_at_ms is not None:
        parts.append(f"at={job.due_at_ms}")
    elif job.due_in_ms:
        parts.append(f"since={job.due_in_ms}")
    if job.expires_in_ms is not None:
        parts.append(f"x={job.expires_in_ms}")
    if job.max_attempts is not None:
        parts.append(f"mr={job.max_attempts}")
    if job.max_deliveries is not None:
        parts.append(f"mv={job.max_deliveries}")
    if job.timeout_ms is not None:
        parts.append(f"to={job.timeout_ms}")
    if job.keep is not None:
        parts.append(f"kp={job.keep}")
    if job.scheduled_for_ms is not None:
        parts.append(f"sf={job.scheduled_for_ms}")
    if job.concurrency_key is not None:
        parts.append(f"k={key_hash(job.concurrency_key)}")
        if job.per_key is not None:
            parts.append(f"kl={job.per_key}")
    if job.repeat is not None:
        parts.append(f"rp={job.repeat}")
    if job.sealed:
        parts.append(f"z={job.sealed}")
    if job.keys is not None:
        parts += key_options(job.keys)
    return ";".join(parts)


def key_options(keys: JobKeys) -> list[str]:
    """A job's keys as options: ``u=<until><conflict><ttl>,<hash>`` and ``ik=<ttl>,<digest>,<hash>``."""
    parts: list[str] = []
    if keys.unique:
        letters = keys.until[0] + _CONFLICTS[keys.on_conflict]
        parts.append(f"u={letters}{keys.ttl_ms},{keys.unique}")
    if keys.idempotency:
        parts.append(f"ik={keys.idempotency_ttl_ms},{keys.digest},{keys.idempotency}")
    return parts


_CONFLICTS: Mapping[OnConflict, str] = {
    OnConflict.KEEP: "k",
    OnConflict.REPLACE: "r",
    OnConflict.DEBOUNCE: "d",
    OnConflict.REJECT: "j",
}


def check_new_job(job: NewJob) -> None:
    """Refuse what would not survive in Redis as it is meant. Raises InvalidValue."""
    if (
        not (job.priority or job.due_in_ms or job.keys)
        and 0 < len(job.type) <= 64
        and job.type.isascii()
        and job.type.isprintable()
        and is_job_id(job.id)
    ):
        return  # nearly all are like this: without the words for what they are not
    require(is_job_id(job.id), "id", expected="1 to 64 characters of A-Z a-z 0-9 . _ : -", got=job.id)
    fits = bool(job.type) and "\n" not in job.type and fit(job.type, 64) == job.type
    require(fits, "type", expected="1 to 64 bytes of UTF-8 in one line", got=job.type)
    require(-100 <= job.priority <= 100, "priority", expected="-100 to 100", got=job.priority)
    if job.keys is not None:
        _check_keys(job.keys)
    require(0 <= job.due_in_ms <= 4 * 10**11, "due_in_ms", expected="0 to ten years", got=job.due_in_ms)


def _check_keys(keys: JobKeys) -> None:
    """Refuse keys that the script would misread."""
    for name in ("unique", "idempotency", "digest"):
        value: str = getattr(keys, name)
        require(not value or value.isalnum(), f"keys.{name}", expected="a hash in hex", got=value)
    known = keys.until in ("start", "finish", "ttl")
    require(known, "until", expected="start, finish or ttl", got=keys.until)


def enqueue(keys: QueueKeys, jobs: Sequence[NewJob]) -> Call[list[Admission]]:
    """Store `jobs`, 1 to 256 with distinct or equal ids; one admission each, in order."""

    def decode(reply: list[Any]) -> list[Admission]:
        if reply[1] == b"*":
            return [Admission(id=job_id, outcome=_ACCEPT, state=_READY) for job_id in ids]
        said = zip(ids, reply[1:], strict=True)
        return [_admission(job_id, word) for job_id, word in said]

    ids = [job.id for job in jobs]
    count = len(jobs)
    args: list[Arg] = [count if len(set(ids)) == count else -count]
    name = "enqueue"
    for job in jobs:
        check_new_job(job)
        if job.keys is not None:
            name = "enqueue_keyed"  # a script of its own, so that other jobs do not pay for it
            args[0] = count
        args += (job.id, job.type, job_options(job), job.envelope)
    return Call(name, keys, args, decode, ids)


def enqueue_batches(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """`jobs` in order, in chunks of at most 256 and 1 MiB; a larger job travels alone.

    One that may replace another of its unique key goes into a later call than that one.
    """
    batches: list[Sequence[NewJob]] = []
    first = size = 0
    unique: set[str] = set()
    for at, job in enumerate(jobs):
        bytes_ = len(job.envelope)
        key = "" if job.keys is None else job.keys.unique
        if at > first and (at - first >= ENQUEUE_JOBS or size + bytes_ > ENQUEUE_BYTES or key in unique):
            batches.append(jobs[first:at])
            first, size = at, 0
            unique.clear()
        size += bytes_
        if key:
            unique.add(key)
    batches.append(jobs[first:])
    return batches


def _admission(job_id: str, word: bytes) -> Admission:
    state = _ACCEPTED.get(word)
    if state is not None:
        return Admission(id=job_id, outcome=Admitted.ACCEPTED, state=state)
    text = word.decode()
    if text[0] in "=~":
        # "=" the job that is there stays as it is, "~" it took the new arguments.
        said, known, reason = [*text[1:].split("="), "", ""][:3]
        state_now = None if said == "gone" else State(said)
        return Admission(id=known or job_id, outcome=Admitted.DUPLICATE, reason=reason, state=state_now)
    if text[0] != "!":
        raise ValueError(text)
    reason, current, limit, holder = [*text[1:].split(":", 3), ""][:4]
    return Admission(
        id=job_id,
        outcome=Admitted.REJECTED,
        reason=reason,
        current=int(current),
        limit=int(limit),
        holder=holder,
    )


# --- workers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who claims, how much, and by what server: the arguments that claim and settle share.

    number     of this call, rising per owner from 1
    run_id     of the server, as this connection saw it
    lease_ms   0 = the queue's
    """

    owner: Owner
    number: int
    places: int
    run_id: str
    known: Sequence[str] = ()
    lease_ms: int = 0

    def args(self) -> list[Arg]:
        require(0 <= self.places <= MOST_LEASES, "slots", expected=f"0 to {MOST_LEASES}", got=self.places)
        return [
            self.number,
            self.places,
            str(self.owner),
            self.owner.pod,
            self.run_id,
            "\n".join(self.known),
            CLAIM_BYTES,
            self.lease_ms,
        ]


def claim(keys: QueueKeys, who: Claimant) -> Call[Claimed]:
    """Lease the next jobs to `who.owner`; promotes what is due and reaps on the way."""
    return Call("claim", keys, who.args(), _claimed)


#: A named tuple's own constructor takes keywords, in Python: five times the price (measured).
_new = tuple.__new__


def _claimed(reply: list[Any]) -> Claimed:
    next_at = reply[2]
    claims: list[Claim] = []
    rows = iter(reply[7:])
    for row in rows:
        if isinstance(row, list):
            claims.append(_claim(row))
        else:
            claims += _plain_claims(row, next(rows))
    return Claimed(
        claims=tuple(claims),
        next_at_ms=None if next_at is None else int(next_at),
        more=reply[3] % 2 == 1,
        parked=reply[3] >= 2,
        refused=reply[4].decode(),
        now_ms=int(reply[1]),
        config_revision=reply[5],
    )


def _plain_claims(heads: bytes, envelopes: list[bytes | None]) -> list[Claim]:
    """Jobs of which there is nothing special to say: an epoch, then id, time and type of each, in lines.

    After an epoch with a "+", each has a fourth line: "", or a letter and then its attempts and timeout in ms.
    """
    epoch, *lines = heads.decode().split("\n")
    step, rest = 3, _PLAIN
    if epoch[-1] == "+":
        step, epoch = 4, epoch[:-1]
        options = {text: _attempts_and_timeout(text) for text in set(lines[3::4])}
        attempts, timeouts = zip(*map(options.__getitem__, lines[3::4]), strict=True)
        rest = [*_PLAIN[:2], attempts, timeouts, *_PLAIN[4:]]
    times = {text: int(text) for text in set(lines[1::step])}
    created = list(map(times.__getitem__, lines[1::step]))
    if None in envelopes:
        envelopes = [envelope or b"" for envelope in envelopes]
    leases = map(_new_lease, zip(lines[::step], repeat(int(epoch))))
    # Columns, and no step of Python's own for each job: a quarter of what a line of code for each took.
    first = zip(
        leases, lines[2::step], envelopes, repeat(0), repeat(1), created, created, *rest, strict=False
    )
    claims = list(map(_new_claim, first))
    if not len(claims) == len(created) == len(envelopes):
        raise ValueError(len(claims))
    return claims


def _attempts_and_timeout(text: str) -> tuple[int | None, int | None]:
    attempts, _, timeout = text[1:].partition(",")
    return int(attempts) if attempts else None, int(timeout) if timeout else None


_new_lease: Callable[[Any], Lease] = partial(_new, Lease)
_new_claim: Callable[[Any], Claim] = partial(_new, Claim)
#: What a plain claim has after its due time.
_PLAIN: list[Iterable[Any]] = [
    repeat(value)
    for value in Claim(
        lease=Lease(job_id="", epoch=0),
        type="",
        envelope=b"",
        attempts=0,
        deliveries=1,
        created_ms=0,
        due_ms=0,
    )[7:]
]


def _number(text: bytes | None) -> int | None:
    return None if text is None else int(text)


def _claim(row: list[Any]) -> Claim:
    (
        kind,
        priority,
        created,
        due,
        scheduled,
        attempts,
        deliveries,
        most,
        timeout,
        job_id,
        epoch,
        envelope,
        saved,
        *repeated,
    ) = row
    created_ms = int(created)
    # The fields of `Claim` in their order.
    return _new(
        Claim,
        (
            _new(Lease, (job_id.decode(), int(epoch))),
            kind.decode(),
            envelope or b"",
            int(attempts) if attempts else 0,
            int(deliveries),
            created_ms,
            created_ms if due is None else int(due),
            int(priority) if priority else 0,
            _number(scheduled),
            _number(most),
            _number(timeout),
            saved,
            int(repeated[0]) if repeated else 0,
        ),
    )


_OUTCOME: Mapping[Outcome, str] = {
    Outcome.COMPLETED: "c",
    Outcome.RETRY: "r",
    Outcome.SNOOZE: "z",
    Outcome.FAILED: "f",
    Outcome.DEAD: "d",
    Outcome.CANCELLED: "x",
    Outcome.PARKED: "p",
}


def settlement_args(settlement: Settlement) -> list[Arg]:
    """id, epoch, start, then a letter for the outcome and one per value that follows."""
    letters = _OUTCOME[settlement.outcome]
    values: list[Arg] = []
    result, dropped = settlement.result, settlement.result_dropped
    if result is not None:
        if len(result) > RESULT_BYTES:
            dropped = len(result)
        else:
            letters += "R"
            values.append(result)
    if dropped:
        letters += "D"
        values.append(dropped)
    if settlement.delay_ms:
        letters += "L"
        values.append(settlement.delay_ms)
    if settlement.reason:
        letters += "W"
        values.append(fit(settlement.reason, REASON_BYTES))
    if settlement.failure is not None:
        letters += "F"
        whole = encode_failure(settlement.failure)
        values.append(whole)
        if len(whole) > REPORT_BYTES:
            letters += "E"
            values.append(encode_failure(settlement.failure, REPORT_BYTES))
    if settlement.outcome is Outcome.PARKED:
        require(bool(settlement.park_type), "park_type", expected="a job type", got=settlement.park_type)
        letters += "P"
        values.append(settlement.park_type)
    if settlement.progress is not None:
        letters += "G"
        values.append(fit_progress(settlement.progress))
    if settlement.next_due_ms is not None:
        letters += "N"
        values.append(settlement.next_due_ms)
    if settlement.resealed is not None:
        keys, envelope, checkpoint = settlement.resealed
        for letter, value in (("Z", keys), ("T", envelope), ("K", checkpoint)):
            if value is not None:
                letters += letter
                values.append(value)
    return [settlement.lease.job_id, settlement.lease.epoch, settlement.started_ms, letters, *values]


_OK = Verdict.OK
_SETTLED = {ord("o"): Verdict.OK, ord("l"): Verdict.LOST}
_RENEWED = {ord("o"): Verdict.OK, ord("c"): Verdict.CANCEL, ord("l"): Verdict.LOST}


def settle(
    keys: QueueKeys, who: Claimant, settlements: Sequence[Settlement], done: Sequence[Done] = ()
) -> Call[Settled]:
    """End deliveries and claim the next jobs in one step. The same `who.number` again answers the same."""

    def decode(reply: list[Any]) -> Settled:
        letters = reply[6]
        if len(letters) != count:
            raise ValueError(len(letters))
        fine = letters.count(b"o") == count
        verdicts = (_OK,) * count if fine else tuple([_SETTLED[letter] for letter in letters])
        return Settled(verdicts=verdicts, claimed=_claimed(reply))

    count = len(settlements) + len(done)
    require(count <= MOST_LEASES, "settlements", expected=f"at most {MOST_LEASES}", got=count)
    args = who.args()
    args.append(count)
    for settlement in settlements:
        args += settlement_args(settlement)
    ids = [one.lease.job_id for one in settlements]
    if not done:
        return Call("settle", keys, args, decode, ids)
    ids += [lease[0] for lease, _ in done]
    return Call("settle", keys, args, decode, ids, packed=_done_args(done), packed_args=4 * len(done))


def _done_args(done: Sequence[Done]) -> bytes:
    """`settlement_args` of runs that completed and leave nothing, in the Redis protocol."""
    rests: dict[tuple[int, int], str] = {}
    parts: list[str] = []
    for (job_id, epoch), started_ms in done:
        rest = rests.get((epoch, started_ms))
        if rest is None:
            fence, began = str(epoch), str(started_ms)
            rest = f"\r\n${len(fence)}\r\n{fence}\r\n${len(began)}\r\n{began}\r\n$1\r\nc\r\n"
            rests[epoch, started_ms] = rest
        parts.append(f"${len(job_id)}\r\n{job_id}{rest}")  # an id is ASCII
    return "".join(parts).encode()


def _lease_args(leases: Sequence[Lease]) -> list[Arg]:
    count = len(leases)
    require(count <= MOST_LEASES, "leases", expected=f"at most {MOST_LEASES}", got=count)
    args: list[Arg] = []
    for lease in leases:
        args += (lease.job_id, lease.epoch)
    return args


def _verdicts(reply: list[Any]) -> list[Verdict]:
    return [Verdict(word.decode()) for word in reply[1:]]


def start(keys: QueueKeys, leases: Sequence[Lease]) -> Call[list[Verdict]]:
    """Say that the handlers of `leases` began."""
    return Call("start", keys, _lease_args(leases), _verdicts, [lease.job_id for lease in leases])


def renew(
    keys: QueueKeys, leases: Sequence[Lease], beat: Heartbeat | None, *, run_id: str, lease_ms: int = 0
) -> Call[Renewal]:
    """Keep `leases` for another span, and leave `beat` as the owner's heartbeat."""

    def decode(reply: list[Any]) -> Renewal:
        verdicts = tuple([_RENEWED[letter] for letter in reply[6]])
        if len(verdicts) != len(leases):
            raise ValueError(len(verdicts))
        return Renewal(
            verdicts=verdicts,
            now_ms=int(reply[1]),
            expires_ms=int(reply[2]),
            quiesce=reply[3].decode(),
            config_revision=reply[4],
            next_at_ms=_number(reply[5]),
        )

    who: list[Arg] = ["", "", ""] if beat is None else [beat.owner, beat.pod, encode_beat(beat)]
    args: list[Arg] = [lease_ms, run_id, *who, *_lease_args(leases)]
    return Call("renew", keys, args, decode, [lease.job_id for lease in leases])


def requeue(keys: QueueKeys, leases: Sequence[Lease], put: Put, reason: str) -> Call[list[Verdict]]:
    """Put running jobs back, charged nothing."""
    args: list[Arg] = [put.value, fit(reason, REASON_BYTES), *_lease_args(leases)]
    return Call("requeue", keys, args, _verdicts, [lease.job_id for lease in leases])


#: Leases whose children died, in one call: three arguments each.
DEATHS = 300


def child_died(keys: QueueKeys, deaths: Sequence[tuple[Lease, str]]) -> Call[list[Verdict]]:
    """Take back jobs whose own process died under them, each with how it ended: the delivery counts."""
    require(len(deaths) <= DEATHS, "deaths", expected=f"at most {DEATHS}", got=len(deaths))
    args: list[Arg] = []
    for lease, exit_reason in deaths:
        args += (lease.job_id, lease.epoch, fit(exit_reason, EXIT_BYTES))
    return Call("child_died", keys, args, _verdicts, [lease.job_id for lease, _ in deaths])


def _verdict(reply: list[Any]) -> Verdict:
    return Verdict(reply[1].decode())


def progress(keys: QueueKeys, lease: Lease, value: bytes) -> Call[Verdict]:
    """Keep and publish how far the job is; what exceeds 4 KiB is cut with a mark."""
    return Call("progress", keys, [lease.job_id, lease.epoch, fit_progress(value)], _verdict, [lease.job_id])


def log(keys: QueueKeys, lease: Lease, lines: Sequence[str]) -> Call[Verdict]:
    """Append `lines` to the job's log; the last 100 lines and 16 KiB stay."""
    text = b"\n".join([fit_log_line(line) for line in lines[-LOG_LINES:]])
    return Call("log", keys, [lease.job_id, lease.epoch, text], _verdict, [lease.job_id])


def checkpoint(keys: QueueKeys, lease: Lease, value: bytes) -> Call[Verdict]:
    """Save `value` for the job's next run. Raises TooLarge over 64 KiB."""
    if len(value) > CHECKPOINT_BYTES:
        raise TooLarge("checkpoint", size=len(value), limit=CHECKPOINT_BYTES)
    args: list[Arg] = [lease.job_id, lease.epoch, value, key_of(sealed_text(value))]
    return Call("checkpoint", keys, args, _verdict, [lease.job_id])


def register(keys: QueueKeys, template_hash: str, types: Mapping[str, tuple[str, bytes]]) -> Call[None]:
    """Publish job types: name -> (schema hash, JSON Schema)."""
    args: list[Arg] = [template_hash]
    for name, (schema_hash, schema) in types.items():
        args += (name, schema_hash, schema)
    return Call("register", keys, args, _nothing)


def leave(keys: QueueKeys, owner: Owner, beat: Heartbeat) -> Call[None]:
    """The worker is gone by its own will; what the drain did is counted."""
    return Call("leave", keys, [str(owner), beat.drained, beat.requeued, beat.lost], _nothing)


def _nothing(reply: list[Any]) -> None:
    return None


# --- upkeep ------------------------------------------------------------------------------------------------

PROMOTE_CHUNK = 200
REAP_CHUNK = 100
EXPIRE_CHUNK = 500
TRIM_CHUNK = 500


def _count(reply: list[Any]) -> int:
    return int(reply[1])


def promote(keys: QueueKeys, ids: Sequence[str] | None) -> Call[int]:
    """Move due jobs (`ids` None), or these at once, to ready; at most 200."""
    if ids is None:
        return Call("promote", keys, [PROMOTE_CHUNK], _count)
    require(len(ids) <= PROMOTE_CHUNK, "ids", expected=f"at most {PROMOTE_CHUNK}", got=len(ids))
    return Call("promote", keys, [0, *ids], _count, list(ids))


def reap(keys: QueueKeys, *, run_id: str, lease_ms: int) -> Call[tuple[int, int]]:
    """Take back jobs whose lease is over, at most 100: (returned, buried)."""
    return Call("reap", keys, [run_id, lease_ms, REAP_CHUNK], lambda reply: (int(reply[1]), int(reply[2])))


def expire(keys: QueueKeys) -> Call[int]:
    """End waiting jobs that are out of time, at most 500."""
    return Call("expire", keys, [EXPIRE_CHUNK], _count)


def trim(keys: QueueKeys) -> Call[int]:
    """Delete ended jobs beyond what is kept, at most 500."""
    return Call("trim", keys, [TRIM_CHUNK], _count)
