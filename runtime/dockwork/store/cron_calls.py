"""Calls about schedules: put and refill a plan, tick, remove, and read the ledger. Nothing is sent here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dockwork.core.keys import QueueKeys
from dockwork.errors import InvalidValue, require
from dockwork.store.calls import Arg, Call, job_options
from dockwork.store.protocol import CronEntry, CronState, NewJob, Ticked

#: Instants in one plan, and so in one call.
MOST_INSTANTS = 2000
#: Schedules in one look.
MOST_SCHEDULES = 500

MISSED_RUN_POLICIES = frozenset({"Skip", "Latest", "All"})
CONCURRENCY_POLICIES = frozenset({"Allow", "Forbid"})


def check_entry(entry: CronEntry) -> None:
    """Refuse what the scripts would misread. Raises InvalidValue."""
    require(bool(entry.uid) and ":" not in entry.uid, "uid", expected="a uid without a colon", got=entry.uid)
    require(len(entry.uid) <= 45, "uid", expected="at most 45 characters", got=entry.uid)
    missed, concurrency = entry.missed_run_policy, entry.concurrency_policy
    require(missed in MISSED_RUN_POLICIES, "missed_run_policy", expected="Skip, Latest or All", got=missed)
    require(
        concurrency in CONCURRENCY_POLICIES, "concurrency_policy", expected="Allow or Forbid", got=concurrency
    )
    require(1 <= entry.max_catch_up <= 100, "max_catch_up", expected="1 to 100", got=entry.max_catch_up)
    job = entry.job
    if job.due_at_ms is not None or job.due_in_ms or job.scheduled_for_ms is not None:
        raise InvalidValue("job", expected="no times: a tick has its own", got=job.id)


def entry_json(entry: CronEntry) -> str:
    """The entry as the scripts read it. What is None is left out: null is true in Lua."""
    said: dict[str, Any] = {
        "type": entry.job.type,
        "options": _options(entry.job),
        "missed": entry.missed_run_policy,
        "max_catch_up": entry.max_catch_up,
        "deadline_ms": entry.starting_deadline_ms,
        "concurrency": entry.concurrency_policy,
        "max_pending": entry.max_pending,
        "suspended": entry.suspended or None,
        "lasting": entry.lasting or None,
        "until_ms": entry.until_ms,
        "max_runs": entry.max_runs,
        "jitter_s": entry.jitter_ms // 1000 or None,
        "every_ms": entry.every_ms,
        "tzdata": entry.tzdata,
        "calendar": entry.calendar,
    }
    return json.dumps(
        {name: value for name, value in said.items() if value is not None}, separators=(",", ":")
    )


def _options(job: NewJob) -> str:
    options = job_options(job)
    return f"{options};" if options else ""


def plan(
    keys: QueueKeys,
    entry: CronEntry,
    instants_ms: Sequence[int],
    *,
    generation: int,
    reset: bool,
    from_ms: int,
    decided_ms: int | None,
    left_out: int,
) -> Call[str]:
    """Put `entry` and add to its plan: ``ok`` or ``stale``."""
    check_entry(entry)
    args: list[Arg] = [
        entry.uid, "put", generation, entry.schedule_hash, int(reset), decided_ms or 0, from_ms, left_out,
        entry_json(entry), entry.job.envelope, *check_instants(instants_ms),
    ]  # fmt: skip
    return Call("plan", keys, args, _planned)


def refill(
    keys: QueueKeys, state: CronState, instants_ms: Sequence[int], *, from_ms: int, left_out: int
) -> Call[str]:
    """Add to the plan of a known schedule and change nothing else: ``ok`` or ``stale``."""
    args: list[Arg] = [
        state.uid, "refill", state.generation, state.schedule_hash, 0, 0, from_ms, left_out, "", "",
        *check_instants(instants_ms),
    ]  # fmt: skip
    return Call("plan", keys, args, _planned)


def suspend(keys: QueueKeys, uid: str) -> Call[str]:
    """Stop the ticks of a schedule until it is put again: ``ok``, or ``stale`` if there is none."""
    return Call("plan", keys, [uid, "suspend", 0, "", 0, 0, 0, 0, "", ""], _planned)


def resume(keys: QueueKeys, uid: str) -> Call[str]:
    """Let a suspended schedule tick again, from now on: ``ok``, or ``stale`` if there is none."""
    return Call("plan", keys, [uid, "resume", 0, "", 0, 0, 0, 0, "", ""], _planned)


def check_instants(instants_ms: Sequence[int]) -> Sequence[int]:
    require(
        len(instants_ms) <= MOST_INSTANTS,
        "instants",
        expected=f"at most {MOST_INSTANTS}",
        got=len(instants_ms),
    )
    return instants_ms


def _planned(reply: list[Any]) -> str:
    return {b"put": "ok", b"stale": "stale"}[reply[1]]


def unplan(keys: QueueKeys, uid: str) -> Call[bool]:
    """Remove a schedule; whether there was one. Jobs that it has made stay."""
    return Call("unplan", keys, [uid], lambda reply: bool(reply[1]))


def tick(keys: QueueKeys, uid: str | None, by: str) -> Call[tuple[list[Ticked], bool]]:
    """Decide what is due of one schedule, or of all; and whether more is due."""

    def decode(reply: list[Any]) -> tuple[list[Ticked], bool]:
        found = reply[2:]
        rows = zip(*(found[n::5] for n in range(5)), strict=True)
        return [_ticked(*row) for row in rows], bool(reply[1])

    return Call("tick", keys, [uid or "", by], decode)


def _ticked(uid: bytes, at: bytes, outcome: bytes, reason: bytes, job_id: bytes) -> Ticked:
    return Ticked(
        uid=uid.decode(),
        at_ms=int(at),
        outcome=outcome.decode(),
        reason=reason.decode(errors="replace"),
        job_id=job_id.decode(),
    )


def cron_states(keys: QueueKeys, uids: Sequence[str] | None) -> Call[list[CronState]]:
    """What the ledger says of `uids`, those it knows; None = of all."""
    if uids is not None:
        require(len(uids) <= MOST_SCHEDULES, "uids", expected=f"at most {MOST_SCHEDULES}", got=len(uids))

    def decode(reply: list[Any]) -> list[CronState]:
        now_ms, found = int(reply[1]), reply[2:]
        if uids is not None and not uids:
            return []
        return [_state(now_ms, *row) for row in zip(*(found[n::7] for n in range(7)), strict=True)]

    return Call("cron_states", keys, list(uids or ()), decode, reads=True)


def _state(
    now_ms: int,
    uid: bytes,
    state: bytes,
    entry: bytes,
    next_ms: bytes,
    planned: int,
    pending: int,
    active: bytes,
) -> CronState:
    said, kept = json.loads(state), json.loads(entry)
    return CronState(
        uid=uid.decode(),
        schedule_hash=said["hash"],
        cursor_ms=int(said["cursor"]),
        next_ms=int(next_ms) if next_ms else None,
        planned=int(planned),
        last_planned_ms=int(said["planned_to"]),
        suspended=bool(said.get("suspended")),
        runs=int(said["runs"]),
        missed=int(said["missed"]),
        skipped=int(said["skipped"]),
        active=tuple(active.decode().split()),
        pending=int(pending),
        last=_texts(said.get("last")),
        last_missed=_texts(said.get("last_missed")),
        last_skipped=_texts(said.get("last_skipped")),
        missed_by=_counts(said.get("missed_by")),
        skipped_by=_counts(said.get("skipped_by")),
        generation=int(said["generation"]),
        every_ms=kept.get("every_ms"),
        tzdata=kept["tzdata"],
        calendar=kept["calendar"],
        refreshed_ms=int(said["refreshed"]),
        lost_ms=int(said.get("lost") or 0),
        now_ms=now_ms,
    )


def _texts(said: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (said or {}).items()}


def _counts(said: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: int(value) for name, value in (said or {}).items()}
