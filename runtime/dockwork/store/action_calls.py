"""Calls of people's actions: redrive, edit, purge, obliterate, repair, migrate. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dockwork.core.keys import QueueKeys
from dockwork.core.states import ENDED, State
from dockwork.errors import InvalidValue, QueueFull, TooLarge, require
from dockwork.store.calls import Arg, Call
from dockwork.store.protocol import Acted, JobChange, Migrated, Obliterated, Purge, Purged, Repaired, Resealed

#: Jobs in one call.
REDRIVE_CHUNK = 200
_AS_IT_IS = Resealed("")
PURGE_CHUNK = 500
OBLITERATE_CHUNK = 500
REPAIR_CHUNK = 200


def redrive(
    keys: QueueKeys, picks: Sequence[tuple[str, str]], fresh: Mapping[str, Resealed] | None = None
) -> Call[list[Acted]]:
    """Put ended jobs back, each as it was reviewed; at most 200. fresh: by id, what another key seals now."""
    require(len(picks) <= REDRIVE_CHUNK, "picks", expected=f"at most {REDRIVE_CHUNK}", got=len(picks))
    args: list[Arg] = []
    for job_id, digest in picks:
        resealed = (fresh or {}).get(job_id, _AS_IT_IS)
        args += (job_id, digest, resealed.keys, resealed.envelope or b"", resealed.checkpoint or b"")
    ids = [job_id for job_id, _ in picks]
    return Call("redrive", keys, args, lambda reply: [Acted(word.decode()) for word in reply[1:]], ids)


def check_change(change: JobChange) -> None:
    """Raise InvalidValue for a change that no job can take."""
    both = change.due_in_ms is not None and change.due_at_ms is not None
    require(not both, "change", expected="a delay or a time, not both", got="both")
    some = (change.envelope, change.priority, change.due_in_ms, change.due_at_ms)
    require(any(value is not None for value in some), "change", expected="something to change", got="nothing")
    fits = change.priority is None or -100 <= change.priority <= 100
    require(fits, "priority", expected="-100 to 100", got=change.priority)


def edit(keys: QueueKeys, job_id: str, revision: int, change: JobChange) -> Call[str]:
    """Change a waiting job at `revision`: a word for `read_edit`."""
    check_change(change)
    said: Mapping[str, object] = {
        "p": change.priority, "since": change.due_in_ms, "at": change.due_at_ms, "z": change.sealed or None,
    }  # fmt: skip
    parts = [f"{name}={value}" for name, value in said.items() if value is not None]

    args: list[Arg] = [job_id, revision, ";".join(parts), change.envelope or b""]
    return Call("edit", keys, args, lambda reply: str(reply[1].decode()), [job_id])


def read_edit(keys: QueueKeys, job_id: str, word: str) -> Acted:
    """What an edit answered. Raises TooLarge, QueueFull."""
    if word[0] != "!":
        return Acted(word)
    reason, current, limit = word[1:].split(":")
    if reason == "payload":
        raise TooLarge(f"job {job_id}", size=int(current), limit=int(limit))
    raise QueueFull(keys.name.queue, what=reason, current=int(current), limit=int(limit))


def purge(keys: QueueKeys, state: State, before_ms: int | None, digest: str) -> Call[Purged]:
    """Delete a part of what `digest` means; "" = only count."""
    expected = ", ".join(sorted(ENDED))
    require(state in ENDED, "state", expected=f"one of {expected}", got=str(state))

    def decode(reply: list[Any]) -> Purged:
        _, said, number, before, count, found = reply
        left = Purge(state=state, before_ms=int(before), count=int(count), digest=found.decode())
        return Purged(deleted=int(number), left=left, conflicted=said == b"conflicted")

    args: list[Arg] = [state.value, -1 if before_ms is None else before_ms, digest, PURGE_CHUNK]
    return Call("purge", keys, args, decode, reads=not digest)


class Part(NamedTuple):
    """What one call of obliterate found: ``more``, ``empty``, ``missing`` or ``conflicted``."""

    said: str
    at: Obliterated


def obliterate(keys: QueueKeys, token: str) -> Call[Part]:
    """Delete at most 500 jobs."""
    if not token.isalnum() or len(token) > 64:
        raise InvalidValue("token", expected="1 to 64 letters and digits", got=token)

    def decode(reply: list[Any]) -> Part:
        said, theirs = reply[1].decode(), reply[4].decode() or token
        at = Obliterated(
            token=theirs,
            deleted=int(reply[3]),
            conflicted=said == "conflicted",
            missing=said == "missing",
        )
        return Part(said, at)

    return Call("obliterate", keys, [token, OBLITERATE_CHUNK], decode)


def obliterate_end(keys: QueueKeys, token: str) -> Call[str]:
    """The last step: ``ok``, ``missing`` or ``conflicted``."""
    return Call("obliterate_end", keys, [token], lambda reply: str(reply[1].decode()))


def repair(keys: QueueKeys, ids: Sequence[str]) -> Call[Repaired]:
    """Look at these ids, at most 200."""

    def decode(reply: list[Any]) -> Repaired:
        no_index, no_record, wrong_index, no_envelope = map(int, reply[1:])
        return Repaired(
            checked=len(ids),
            no_index=no_index,
            no_record=no_record,
            wrong_index=wrong_index,
            no_envelope=no_envelope,
        )

    return Call("repair", keys, list(ids), decode, list(ids))


class Weight(NamedTuple):
    """What some jobs add to the counters, and the mark of that moment."""

    mark: bytes
    bytes: int
    kept: int
    kept_completed: int
    keys: tuple[str, ...] = ()
    sealed: tuple[str, ...] = ()


def weigh(keys: QueueKeys, ids: Sequence[str]) -> Call[Weight]:
    """What these jobs, at most 200, add to the counters."""

    def decode(reply: list[Any]) -> Weight:
        _, mark, size, kept, completed, by_key, sealed = reply
        names = [tuple(name.decode() for name in found) for found in (by_key, sealed)]
        return Weight(mark, int(size), int(kept), int(completed), *names)

    return Call("weigh", keys, list(ids), decode, reads=True)


def recount(
    keys: QueueKeys, total: Weight, by_key: Mapping[str, int], sealed: Mapping[str, int]
) -> Call[tuple[str, ...] | None]:
    """The counters that were wrong; None if the queue has moved since it was weighed."""
    args: list[Arg] = [total.mark, total.bytes, total.kept, total.kept_completed, len(by_key)]
    for key, number in [*by_key.items(), *sealed.items()]:
        args += (key, number)

    def decode(reply: list[Any]) -> tuple[str, ...] | None:
        if reply[1] == b"moved":
            return None
        return tuple(dict.fromkeys(name.decode() for name in reply[2:]))

    return Call("recount", keys, args, decode)


def repair_locks(keys: QueueKeys, hashes: Sequence[str]) -> Call[int]:
    """Delete those of these locks that nobody holds."""
    return Call("repair_locks", keys, list(hashes), lambda reply: int(reply[1]))


def migrate(keys: QueueKeys, version: int) -> Call[Migrated]:
    """Raise the stored schema version."""
    require(1 <= version <= 1000, "version", expected="1 to 1000", got=version)

    def decode(reply: list[Any]) -> Migrated:
        return Migrated(version=int(reply[2]), behind=tuple(owner.decode() for owner in reply[3:]))

    return Call("migrate", keys, [version], decode)
