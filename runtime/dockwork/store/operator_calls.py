"""Calls of the operator: options, samples, quiesce, revoke, cancel, pause. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dockwork.core.keys import QueueKeys
from dockwork.errors import InvalidValue, require
from dockwork.store.beats import decode_beat
from dockwork.store.calls import Arg, Call
from dockwork.store.protocol import (
    CODES_OWN,
    OwnerRecord,
    QueueConfig,
    RateLimit,
    RevokeCause,
    Sample,
    Writing,
)
from dockwork.store.texts import EXIT_BYTES, fit
from dockwork.store.views import THROTTLES, to_counts, to_map

#: `QueueConfig.keep`: its keys, and the fields of meta that hold them. -1 is no limit, 0 keeps nothing.
KEEP_FIELDS: Mapping[str, str] = {
    "completed_age_ms": "keep_completed_age",
    "completed_count": "keep_completed_count",
    "failed_age_ms": "keep_failed_age",
    "failed_count": "keep_failed_count",
    "bytes": "keep_bytes",
}

_NUMBERS: Mapping[str, str] = {
    "timeout_ms": "timeout",
    "max_timeout_ms": "max_timeout",
    "max_attempts": "max_attempts",
    "max_deliveries": "max_deliveries",
    "max_depth": "max_depth",
    "max_bytes": "max_bytes",
    "max_payload": "max_payload",
    "lease_ms": "lease",
}

#: Of what is the code's own, the numbers, and the fields of meta that hold them.
_CODES_NUMBERS: Mapping[str, str] = {name: name.removesuffix("_ms") for name in CODES_OWN if name != "rate"}

#: What `read_config` wants from meta, in order.
CONFIG_FIELDS: tuple[str, ...] = (
    "rev", "gen", "held", "closed", "backoff", "rate",
    *_CODES_NUMBERS.values(), *_NUMBERS.values(), *KEEP_FIELDS.values(),
)  # fmt: skip


def configure(
    keys: QueueKeys, config: QueueConfig, owner: OwnerRecord | None, how: Writing = Writing.PLAINLY
) -> Call[OwnerRecord | None]:
    """Write `config`, unless another Queue object owns the queue: that owner is the answer then."""

    def decode(reply: list[Any]) -> OwnerRecord | None:
        if reply[1] == b"written":
            return None
        if reply[1] != b"owned":
            raise ValueError(reply[1])
        return _owner(reply[2:6])

    who = ("", "", "", "") if owner is None else (owner.operator, owner.namespace, owner.name, owner.uid)
    for part in who:
        require("\n" not in part, "owner", expected="no line break", got=part)
    args: list[Arg] = [*who, config.generation, how.value]
    if owner is None:
        # A Queue resource has no such fields: what it does not say is the code's.
        args += ("rate", "" if config.rate is None else f"{config.rate.count}/{config.rate.per_ms}")
        for name, field in _CODES_NUMBERS.items():
            args += (field, _text(getattr(config, name)))
    if how is not Writing.LIMITS:
        args += _fields(config)
    return Call("configure", keys, args, decode)


def _fields(config: QueueConfig) -> list[Arg]:
    args: list[Arg] = ["held", "1" if config.held else "", "closed", "1" if config.closed else ""]
    args += ("backoff", config.backoff or "")
    for name, field in _NUMBERS.items():
        args += (field, _text(getattr(config, name)))
    unknown = set(config.keep) - set(KEEP_FIELDS)
    if unknown:
        raise InvalidValue("keep", expected=", ".join(KEEP_FIELDS), got=sorted(unknown))
    for name, field in KEEP_FIELDS.items():
        args += (field, _text(config.keep.get(name)))
    return args


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


def read_config(values: Sequence[bytes | None]) -> QueueConfig:
    """The options in the fields `CONFIG_FIELDS` of meta."""
    stored = dict(zip(CONFIG_FIELDS, values, strict=True))
    numbers = {name: _whole(stored[field]) for name, field in _NUMBERS.items()}
    numbers |= {name: _whole(stored[field]) for name, field in _CODES_NUMBERS.items()}
    keep = {name: _whole(stored[field]) for name, field in KEEP_FIELDS.items()}
    backoff = stored["backoff"]
    return QueueConfig(
        generation=_whole(stored["gen"]) or 0,
        revision=_whole(stored["rev"]) or 0,
        held=stored["held"] is not None,
        closed=stored["closed"] is not None,
        backoff=None if backoff is None else backoff.decode(),
        rate=read_rate(stored["rate"]),
        keep={name: limit for name, limit in keep.items() if limit is not None},
        **numbers,
    )


def read_rate(text: bytes | None) -> RateLimit | None:
    """``<count>/<per_ms>``, or nothing."""
    if not text:
        return None
    count, per_ms = text.split(b"/")
    return RateLimit(int(count), int(per_ms))


def _whole(text: bytes | None) -> int | None:
    return None if text is None else int(text)


def _owner(parts: Sequence[bytes]) -> OwnerRecord:
    operator, namespace, name, uid = (part.decode() for part in parts)
    return OwnerRecord(operator=operator, namespace=namespace, name=name, uid=uid)


def sample(
    keys: QueueKeys, *, run_id: str, horizon_ms: int, template_hash: str = "", cold: bool = False
) -> Call[Sample]:
    """One look for the scaling loop. `cold`: the first claimable job of the next 60 s publishes a wake."""

    def decode(reply: list[Any]) -> Sample:
        _, now, counts, flags, totals, parked, workers, quiesce, leased, *rest = reply
        parked_first, by, limits, sealed, owner = rest
        ready, prioritized, delayed, due, soon, active, parked_jobs, dead, size, oldest = map(int, counts)
        paused, held, closed, known, generation = map(int, flags)
        figures = to_counts(totals)
        return Sample(
            time_ms=int(now),
            run_id=run_id,
            entered=figures.get("entered", 0),
            finished=figures.get("finished", 0),
            ready=ready,
            prioritized=prioritized,
            delayed=delayed,
            due=due,
            due_soon=soon,
            active=active,
            throttled=sum(map(int, by)),
            throttled_by=dict(zip(THROTTLES, map(int, by), strict=True)),
            parked=parked_jobs,
            dead=dead,
            bytes=size,
            oldest_ms=oldest,
            paused=bool(paused),
            held=bool(held),
            closed=bool(closed),
            template_known=bool(known),
            owner=None if owner is None else _owner(owner.split(b"\n")),
            parked_types=to_counts(parked),
            parked_first=parked_first.decode(),
            totals=figures,
            workers=tuple(decode_beat(beat) for beat in to_map(workers).values()),
            quiesced=_requests(to_map(quiesce), int(now)),
            leased=to_counts(leased),
            sealed=to_counts(sealed),
            config_generation=generation,
            rate=read_rate(limits[0]),
            concurrency=int(limits[1]) if limits[1] else None,
        )

    require(horizon_ms >= 0, "horizon_ms", expected="0 or more", got=horizon_ms)
    channel = keys.wake_channel if cold else ""
    # A cold flag that was set twice is set once: nothing is unknown after a lost answer.
    return Call("sample", keys, [horizon_ms, template_hash, channel], decode, reads=True)


def _requests(stored: Mapping[str, bytes], now_ms: int) -> dict[str, str]:
    """Quiesce requests that still hold: pod UID -> token."""
    found = {pod: request.split(b" ", 1) for pod, request in stored.items()}
    return {pod: token.decode() for pod, (expires, token) in found.items() if int(expires) > now_ms}


def quiesce(keys: QueueKeys, requests: Mapping[str, str]) -> Call[dict[str, int]]:
    """Ask pods (UID -> token) to claim no more, for 60 s: the leases each still holds."""
    pods = list(requests)
    args: list[Arg] = [word for pod in pods for word in (pod, requests[pod])]
    return Call("quiesce", keys, args, lambda reply: dict(zip(pods, map(int, reply[1:]), strict=True)))


def unquiesce(keys: QueueKeys, pods: Sequence[str]) -> Call[None]:
    """Let pods claim again."""
    return Call("unquiesce", keys, list(pods), lambda reply: None)


def revoke(
    keys: QueueKeys, owner: str, cause: RevokeCause, exit_reason: str, from_rank: int
) -> Call[tuple[int, int]]:
    """Take back an owner's jobs among the next 1000 leases: (taken back, rank to go on from or -1)."""
    args: list[Arg] = [owner, cause.value, fit(exit_reason, EXIT_BYTES), from_rank]
    return Call("revoke", keys, args, lambda reply: (int(reply[1]), int(reply[2])))


def cancel(keys: QueueKeys, job_id: str, *, force: bool = False) -> Call[str]:
    """``cancelled``, ``flagged``, ``too_late`` or ``missing``; by force a running job is ``cancelled`` at once."""
    return Call("cancel", keys, [job_id, int(force)], lambda reply: str(reply[1].decode()), [job_id])


def set_paused(keys: QueueKeys, *, expected: bool, wanted: bool) -> Call[bool]:
    """Pause or resume, if the queue is as expected: whether it was."""
    return Call("set_paused", keys, [int(expected), int(wanted)], lambda reply: bool(reply[1]))
