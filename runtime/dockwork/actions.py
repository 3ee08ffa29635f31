"""What people do to jobs and queues: the calls behind the command line, an API and an application's own tools.

Each acts only on what was looked at: a job by its digest or revision, a queue by its counts or its flag. That guards
against acting on something else than was seen; it is no permission check: whoever may write to Redis may do all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dockwork.core.codec import Envelope, open_envelope, seal
from dockwork.core.durations import LONGEST_DELAY, Span, to_ms, to_span
from dockwork.core.jobs import check_priority
from dockwork.core.keys import QueueName
from dockwork.core.schema import dump_untyped
from dockwork.core.sealing import join_keys, keys_in
from dockwork.core.states import ENDED, State
from dockwork.errors import InvalidValue, require
from dockwork.sealed_jobs import resealed_view
from dockwork.store.calls import SCHEMA
from dockwork.store.partitioned import names_of
from dockwork.store.protocol import (
    Acted,
    Heartbeat,
    JobChange,
    JobView,
    Migrated,
    Obliterated,
    Purge,
    Repaired,
    Resealed,
    Store,
)

if TYPE_CHECKING:
    from dockwork.registry import JobType

#: Said with every redrive: nobody but the handler knows what it did outside.
MAY_REPEAT = (
    "A redriven job runs again from its beginning or its checkpoint, with fresh retries: what it did outside before"
    " it failed (mail sent, money moved) may happen once more."
)

#: The token of a quiesce that no operator asked for.
BY_HAND = "by-hand"

#: Jobs in one page of a look.
_PAGE = 500

#: States that redrive takes a job out of.
REDRIVABLE = frozenset({State.DEAD, State.FAILED, State.EXPIRED, State.CANCELLED})

#: Tells how far a long action is: jobs done so far, and how many there were at its beginning (0 = not known).
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RedrivePlan:
    """The jobs that a redrive would put back, as they were when they were looked at.

    types, reasons    how many of each
    digest            of all of them together: another look that finds the same has the same
    """

    queue: str
    picks: Mapping[QueueName, tuple[tuple[str, str], ...]]
    types: Mapping[str, int]
    reasons: Mapping[str, int]
    warning: str = MAY_REPEAT

    @property
    def count(self) -> int:
        return sum(map(len, self.picks.values()))

    @property
    def digest(self) -> str:
        whole = "\n".join(sorted(f"{one} {digest}" for part in self.picks.values() for one, digest in part))
        return hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class Redriven:
    """What became of the jobs of a plan. Ids of those that were not put back are named."""

    ok: int = 0
    conflicted: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    warning: str = MAY_REPEAT


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgePlan:
    """The ended jobs that a purge would delete, as they were counted."""

    queue: str
    state: State
    parts: Mapping[QueueName, Purge]

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts.values())

    @property
    def digest(self) -> str:
        whole = "\n".join(part.digest for part in self.parts.values())
        return hashlib.sha1(whole.encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, kw_only=True, slots=True)
class PurgeResult:
    """How many jobs were deleted; conflicted: the rest was not what had been counted any more, and was left."""

    deleted: int
    conflicted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Reaped:
    """Jobs whose lease was over: back at their place, or dead letters after their last delivery."""

    returned: int
    buried: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """What an edit asks for; None = as it is."""

    args: Mapping[str, Any] | None = None
    priority: int | None = None
    delay: Span | None = None
    at: datetime | None = None
    types: Mapping[str, JobType[Any, Any]] = field(default_factory=dict)


class ClientActions(ABC):
    """The actions of `Client`: each on a queue by its name."""

    store: Store
    types: Mapping[str, JobType[Any, Any]]

    @abstractmethod
    def name(self, queue: str) -> QueueName: ...

    @abstractmethod
    async def _open(self) -> None: ...

    # --- pause

    async def set_paused(self, queue: str, *, expected: bool, wanted: bool) -> bool:
        """Pause or resume, if the queue is as expected: whether it was. What runs goes on."""
        await self._open()
        return await self.store.set_paused(self.name(queue), expected=expected, wanted=wanted)

    async def pause(self, queue: str) -> bool:
        """Let no worker take a job of this queue. False: it was paused already."""
        return await self.set_paused(queue, expected=False, wanted=True)

    async def resume(self, queue: str) -> bool:
        """Let workers take jobs again. False: it was not paused."""
        return await self.set_paused(queue, expected=True, wanted=False)

    # --- one job

    async def redrive(self, queue: str, job_id: str, digest: str) -> Acted:
        """Put back one ended job that is exactly as it was reviewed (`Job.digest`), with counters at 0.

        ``conflicted``: it has changed, has completed or has not ended, or another job has its unique key by now.
        Effects outside may repeat: see `MAY_REPEAT`.
        """
        require(bool(digest), "digest", expected="that of the job as it was reviewed", got=digest)
        return await self._redrive(queue, job_id, digest)

    async def retry(self, queue: str, job_id: str) -> Acted:
        """Let a job run again now, whatever it is: an ended one is put back, one that waits for its time is due.

        ``conflicted``: it completed, or waits to run already. Effects outside may repeat: see `MAY_REPEAT`.
        """
        await self._open()
        view = await self.store.get(self.name(queue), job_id)
        if view is None:
            return Acted.MISSING
        if view.state in (State.ACTIVE, State.PROCESSING):
            return Acted.RUNNING
        if view.state is State.DELAYED:
            return Acted.OK if await self.promote(queue, job_id) else Acted.CONFLICTED
        return await self._redrive(queue, job_id, "")

    async def _redrive(self, queue: str, job_id: str, digest: str) -> Acted:
        said = Acted.MISSING
        for name in await self._partitions_of(queue):
            picks = [(job_id, digest)]
            (said,) = await self.store.redrive(name, *await self._with_fresh(name, picks))
            if said is not Acted.MISSING:
                break
        return said

    async def _with_fresh(
        self, name: QueueName, picks: Sequence[tuple[str, str]]
    ) -> tuple[Sequence[tuple[str, str]], dict[str, Resealed]]:
        """`picks`, and what of these jobs the current key seals now: nothing where this process seals nothing."""
        if all(job_type.sealing is None for job_type in self.types.values()):
            return picks, {}
        views = await asyncio.gather(*[self.store.get(name, job_id, digest=True) for job_id, _ in picks])
        chosen, fresh = [], {}
        for (job_id, digest), view in zip(picks, views, strict=True):
            resealed = None
            if view is not None and digest in ("", view.digest):
                resealed = resealed_view(self.types.get(view.type), view)
            if resealed is not None and view is not None:
                # What is written must belong to what was read.
                fresh[job_id], digest = resealed, view.digest
            chosen.append((job_id, digest))
        return chosen, fresh

    async def edit(self, queue: str, job_id: str, revision: int, change: Edit) -> Acted:
        """Change a waiting job that is still at `revision` (`Job.revision`): its arguments, its priority, its due time.

        ``running`` and ``conflicted`` (another revision, or it has ended) change nothing.
        Raises InvalidArgs where the type is known and they do not fit, TooLarge, QueueFull, InvalidValue
        """
        await self._open()
        asked, said = await self._change_of(queue, job_id, change), Acted.MISSING
        if asked is None:
            return said
        for name in await self._partitions_of(queue):
            said = await self.store.edit(name, job_id, revision, asked)
            if said is not Acted.MISSING:
                break
        return said

    async def _change_of(self, queue: str, job_id: str, change: Edit) -> JobChange | None:
        envelope, sealed = None, ""
        if change.args is not None:
            view = await self.store.get(self.name(queue), job_id)
            if view is None or view.state in ENDED:
                # Nothing to build on; an ended job is told from one that is gone by the script.
                return None if view is None else JobChange(priority=view.priority)
            envelope, sealed = _new_envelope(view, change.args, change.types)
        require(
            change.delay is None or change.at is None, "edit", expected="delay or at, not both", got="both"
        )
        aware = change.at is None or change.at.utcoffset() is not None
        require(aware, "at", expected="a datetime with a time zone", got=change.at)
        delay = None if change.delay is None else to_ms(to_span(change.delay, "delay", most=LONGEST_DELAY))
        return JobChange(
            envelope=envelope,
            sealed=sealed,
            priority=None if change.priority is None else check_priority(change.priority),
            due_in_ms=delay,
            due_at_ms=None if change.at is None else int(change.at.timestamp() * 1000),
        )

    # --- several jobs

    async def promote(self, queue: str, *ids: str) -> int:
        """Make delayed jobs due now, these, or all that are due and nobody has promoted: how many were."""
        await self._open()
        return sum([await self.store.promote(name, ids or None) for name in await self._partitions_of(queue)])

    async def plan_redrive(
        self,
        queue: str,
        *,
        state: State | str = State.DEAD,
        type: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
    ) -> RedrivePlan:
        """Look at what a redrive would put back: the ended jobs of one state, of one type, with one reason."""
        wanted = State(state)
        expected = ", ".join(sorted(REDRIVABLE))
        require(wanted in REDRIVABLE, "state", expected=f"one of {expected}", got=str(state))
        await self._open()
        picks: dict[QueueName, tuple[tuple[str, str], ...]] = {}
        types: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        left = limit
        for name in await self._partitions_of(queue):
            found: list[tuple[str, str]] = []
            async for view in self._views(name, wanted):
                if left == 0:
                    break
                if type in (None, view.type) and reason in (None, view.reason):
                    found.append((view.id, view.digest))
                    types[view.type] += 1
                    reasons[view.reason] += 1
                    left = None if left is None else left - 1
            picks[name] = tuple(found)
        return RedrivePlan(queue=queue, picks=picks, types=types, reasons=reasons)

    async def redrive_all(self, plan: RedrivePlan, *, progress: Progress | None = None) -> Redriven:
        """Put back the jobs of a plan that are still as they were. Effects outside may repeat: see `MAY_REPEAT`."""
        await self._open()
        said: dict[Acted, list[str]] = {Acted.OK: [], Acted.CONFLICTED: [], Acted.MISSING: []}
        done = 0
        for name, picks in plan.picks.items():
            for first in range(0, len(picks), _PAGE):
                chunk = picks[first : first + _PAGE]
                asked = await self._with_fresh(name, chunk)
                for (job_id, _), acted in zip(chunk, await self.store.redrive(name, *asked), strict=True):
                    said[acted].append(job_id)
                done += len(chunk)
                if progress is not None:
                    progress(done, plan.count)
        return Redriven(
            ok=len(said[Acted.OK]),
            conflicted=tuple(said[Acted.CONFLICTED]),
            missing=tuple(said[Acted.MISSING]),
        )

    async def plan_purge(
        self, queue: str, *, state: State | str, older_than: Span | None = None
    ) -> PurgePlan:
        """Count what a purge would delete: the ended jobs of one state, those that ended so long ago or earlier."""
        wanted = State(state)
        await self._open()
        before: int | None = None
        if older_than is not None:
            now = await self.store.ping()
            before = now - to_span(older_than, "older_than", most=timedelta(days=3653)) // timedelta(
                milliseconds=1
            )
        names = await self._partitions_of(queue)
        parts = {name: await self.store.count_purge(name, wanted, before) for name in names}
        return PurgePlan(queue=queue, state=wanted, parts=parts)

    async def purge(self, plan: PurgePlan, *, progress: Progress | None = None) -> PurgeResult:
        """Delete what was counted, part by part, for as long as it is that."""
        await self._open()
        deleted = 0
        for name, counted in plan.parts.items():
            left = counted
            while left.count:
                part = await self.store.purge(name, left)
                deleted, left = deleted + part.deleted, part.left
                if part.conflicted:
                    return PurgeResult(deleted=deleted, conflicted=True)
                if progress is not None:
                    progress(deleted, plan.count)
        return PurgeResult(deleted=deleted)

    # --- a queue

    async def obliterate(
        self,
        queue: str,
        *,
        confirm: str,
        token: str | None = None,
        progress: Progress | None = None,
        started: Callable[[str], None] | None = None,
    ) -> Obliterated:
        """Delete a queue with everything in it: jobs that wait, that run, that ended; schedules, figures, options.

        It closes intake and claims first. Killed midway, it goes on under the same token, and nothing is let in before.

        confirm    the queue's name once more
        token      of one under way that was left, to resume it; `started` is told the token of this one
        """
        require(confirm == queue, "confirm", expected=f"the queue's name, {queue}", got=confirm)
        await self._open()
        mine = token or secrets.token_hex(8)
        if started is not None:
            started(mine)
        names = tuple(reversed(await self._partitions_of(queue)))  # of partitions the first goes last
        before, last = 0, Obliterated(token=mine, missing=True)
        for name in names:
            at = await self.store.obliterate(name, mine)
            while not (at.done or at.missing or at.conflicted):
                if progress is not None:
                    progress(before + at.deleted, 0)
                at = await self.store.obliterate(name, mine)
            if at.conflicted:
                return at
            before += at.deleted
            if not at.missing:
                last = at
        return Obliterated(token=mine, deleted=before, done=last.done, missing=last.missing)

    async def repair(self, queue: str) -> Repaired:
        """Look at every job, index, lock and counter of a queue, and put right what is wrong."""
        await self._open()
        found = [await self.store.repair(name) for name in await self._partitions_of(queue)]
        return Repaired(
            checked=sum(one.checked for one in found),
            no_index=sum(one.no_index for one in found),
            no_record=sum(one.no_record for one in found),
            wrong_index=sum(one.wrong_index for one in found),
            no_envelope=sum(one.no_envelope for one in found),
            locks=sum(one.locks for one in found),
            counters=tuple(dict.fromkeys(name for one in found for name in one.counters)),
            busy=any(one.busy for one in found),
        )

    async def reap(self, queue: str) -> Reaped:
        """Take back jobs whose lease is over, as workers do by themselves."""
        await self._open()
        found = [await self.store.reap(name) for name in await self._partitions_of(queue)]
        return Reaped(returned=sum(one for one, _ in found), buried=sum(one for _, one in found))

    async def workers(self, queue: str) -> list[Heartbeat]:
        """The workers that beat in the last minute, each as it said."""
        await self._open()
        sample = await self.store.sample(self.name(queue), horizon_ms=0)
        return sorted(sample.workers, key=lambda beat: (beat.pod_name, beat.owner))

    async def quiesce(self, queue: str, *pods: str) -> dict[str, int]:
        """Ask the workers of these pods (`Heartbeat.pod`) to finish what they have and take nothing new, for 60 s.

        Returns    the jobs that each still holds; ask again to prolong it, and `unquiesce` to end it sooner
        """
        held = dict.fromkeys(pods, 0)
        for name in await self._partitions_of(queue):
            for pod, leases in (await self.store.quiesce(name, dict.fromkeys(pods, BY_HAND))).items():
                held[pod] += leases
        return held

    async def unquiesce(self, queue: str, *pods: str) -> None:
        """Let the workers of these pods take jobs again."""
        for name in await self._partitions_of(queue):
            await self.store.unquiesce(name, pods)

    async def migrate(self, queue: str, version: int = SCHEMA) -> Migrated:
        """Raise the version of a queue's stored data, if every worker that is registered reads it (`behind` is empty).

        version    at most what this release reads
        """
        fits = isinstance(version, int) and 1 <= version <= SCHEMA
        require(fits, "version", expected=f"1 to {SCHEMA}, which this release reads", got=version)
        await self._open()
        found = [await self.store.migrate(name, version) for name in await self._partitions_of(queue)]
        behind = tuple(dict.fromkeys(owner for one in found for owner in one.behind))
        return Migrated(version=min(one.version for one in found), behind=behind)

    async def _partitions_of(self, queue: str) -> Sequence[QueueName]:
        await self._open()
        return await names_of(self.store, self.name(queue))

    async def _views(self, name: QueueName, state: State) -> Any:
        offset = 0
        while True:
            views = await self.store.list(name, state, offset=offset, limit=_PAGE)
            for view in views:
                yield view
            if not views:
                return
            offset += len(views)


def _new_envelope(
    view: JobView, args: Mapping[str, Any], types: Mapping[str, JobType[Any, Any]]
) -> tuple[bytes, str]:
    """The job's envelope with other arguments: checked if its type is known, else as they are."""
    old = open_envelope(view.envelope)
    known = types.get(view.type)
    if known is None:
        data, sealed, schema = dump_untyped(view.type, args), join_keys(keys_in(args)), old.schema
    else:
        data, sealed = known.store_args(known.unsealed(args, old.args))
        schema = known.schema_hash
    return (
        seal(Envelope(type=view.type, args=data, headers=old.headers, schema=schema, options=old.options)),
        sealed,
    )


def edit_of(types: Mapping[str, JobType[Any, Any]], **asked: Any) -> Edit:
    """The edit that a call asks for. Raises InvalidValue naming an option that there is not."""
    unknown = set(asked) - {"args", "priority", "delay", "at"}
    if unknown:
        expected = "args, priority, delay or at"
        raise InvalidValue("edit", expected=expected, got=", ".join(sorted(unknown)))
    return Edit(types=types, **asked)
