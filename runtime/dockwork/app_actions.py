"""The actions of people as methods of an app and of its blocking twin; `ClientActions` says what each does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from dockwork.actions import Edit, Progress, PurgePlan, PurgeResult, Reaped, Redriven, RedrivePlan
from dockwork.core.durations import Span
from dockwork.core.states import State
from dockwork.store.calls import SCHEMA
from dockwork.store.protocol import Acted, Heartbeat, Migrated, Obliterated, Repaired
from dockwork.twin import AppCalls, Bound, Twin


class AppActions(AppCalls):
    """Actions on the jobs and queues of an app's namespace."""

    async def set_paused(self, queue: str, *, expected: bool, wanted: bool) -> bool:
        """Pause or resume, if the queue is as expected: whether it was. What runs goes on."""
        return await self.client.set_paused(queue, expected=expected, wanted=wanted)

    async def pause(self, queue: str) -> bool:
        """Let no worker take a job of this queue. False: it was paused already."""
        return await self.client.pause(queue)

    async def resume(self, queue: str) -> bool:
        """Let workers take jobs again. False: it was not paused."""
        return await self.client.resume(queue)

    async def redrive(self, job_id: str, digest: str, *, queue: str | None = None) -> Acted:
        """Put back one ended job that is exactly as it was reviewed (`Job.digest`), with counters at 0.

        queue      without it, the job is looked for in all queues of the namespace
        Returns    ``ok``, ``conflicted`` (changed, not ended badly, or its unique key is another's), ``missing``

        Effects that the job had outside may repeat.
        """
        for name in [queue] if queue is not None else await self.client.queues():
            said = await self.client.redrive(name, job_id, digest)
            if said is not Acted.MISSING:
                return said
        return Acted.MISSING

    async def retry(self, queue: str, job_id: str) -> Acted:
        """Let a job run again now: an ended one is put back, a delayed one is due. Effects outside may repeat."""
        return await self.client.retry(queue, job_id)

    async def edit(
        self,
        queue: str,
        job_id: str,
        revision: int,
        *,
        args: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: Span | None = None,
        at: datetime | None = None,
    ) -> Acted:
        """Change a waiting job that is still at `revision` (`Job.revision`). See `ClientActions.edit`."""
        change = Edit(args=args, priority=priority, delay=delay, at=at, types=self.registry)
        return await self.client.edit(queue, job_id, revision, change)

    async def reprioritise(self, queue: str, job_id: str, revision: int, priority: int) -> Acted:
        """Give a waiting job that is still at `revision` another priority: the lower, the sooner."""
        return await self.client.edit(queue, job_id, revision, Edit(priority=priority))

    async def promote(self, queue: str, *ids: str) -> int:
        """Make delayed jobs due now, these, or all that are due and nobody has promoted: how many were."""
        return await self.client.promote(queue, *ids)

    async def plan_redrive(
        self,
        queue: str,
        *,
        state: State | str = State.DEAD,
        type: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
    ) -> RedrivePlan:
        """Look at what `redrive_all` would put back: the ended jobs of one state, of one type, with one reason."""
        return await self.client.plan_redrive(queue, state=state, type=type, reason=reason, limit=limit)

    async def redrive_all(self, plan: RedrivePlan, *, progress: Progress | None = None) -> Redriven:
        """Put back the jobs of a plan that are still as they were. Effects outside may repeat."""
        return await self.client.redrive_all(plan, progress=progress)

    async def plan_purge(
        self, queue: str, *, state: State | str, older_than: Span | None = None
    ) -> PurgePlan:
        """Count what `purge` would delete: the ended jobs of one state, those that ended so long ago or earlier."""
        return await self.client.plan_purge(queue, state=state, older_than=older_than)

    async def purge(self, plan: PurgePlan, *, progress: Progress | None = None) -> PurgeResult:
        """Delete what was counted, for as long as it is that."""
        return await self.client.purge(plan, progress=progress)

    async def obliterate(
        self,
        queue: str,
        *,
        confirm: str,
        token: str | None = None,
        progress: Progress | None = None,
        started: Callable[[str], None] | None = None,
    ) -> Obliterated:
        """Delete a queue with everything in it. See `ClientActions.obliterate`.

        confirm    the queue's name once more
        token      of one that was left midway, to resume it; `started` is told the token of this one
        """
        return await self.client.obliterate(
            queue, confirm=confirm, token=token, progress=progress, started=started
        )

    async def repair(self, queue: str) -> Repaired:
        """Look at every job, index, lock and counter of a queue, and put right what is wrong."""
        return await self.client.repair(queue)

    async def reap(self, queue: str) -> Reaped:
        """Take back jobs whose lease is over, as workers do by themselves."""
        return await self.client.reap(queue)

    async def workers(self, queue: str) -> list[Heartbeat]:
        """The workers that beat in the last minute, each as it said."""
        return await self.client.workers(queue)

    async def quiesce(self, queue: str, *pods: str) -> dict[str, int]:
        """Ask the workers of these pods (`Heartbeat.pod`) to finish what they have and take nothing new, for 60 s.

        Returns    the jobs that each still holds; ask again to prolong it, and `unquiesce` to end it sooner
        """
        return await self.client.quiesce(queue, *pods)

    async def unquiesce(self, queue: str, *pods: str) -> None:
        """Let the workers of these pods take jobs again."""
        await self.client.unquiesce(queue, *pods)

    async def migrate(self, queue: str, version: int = SCHEMA) -> Migrated:
        """Raise the version of a queue's stored data, if every worker that is registered reads it."""
        return await self.client.migrate(queue, version)


class _Bound(Bound, AppActions):
    """The actions on one client."""


class SyncActions(Twin):
    """The blocking twin of `AppActions`: the same calls, results and errors."""

    def set_paused(self, queue: str, *, expected: bool, wanted: bool) -> bool:
        """See `AppActions.set_paused`, and so on for each."""
        return self._on(_Bound, lambda app: app.set_paused(queue, expected=expected, wanted=wanted))

    def pause(self, queue: str) -> bool:
        return self._on(_Bound, lambda app: app.pause(queue))

    def resume(self, queue: str) -> bool:
        return self._on(_Bound, lambda app: app.resume(queue))

    def redrive(self, job_id: str, digest: str, *, queue: str | None = None) -> Acted:
        return self._on(_Bound, lambda app: app.redrive(job_id, digest, queue=queue))

    def retry(self, queue: str, job_id: str) -> Acted:
        return self._on(_Bound, lambda app: app.retry(queue, job_id))

    def edit(
        self,
        queue: str,
        job_id: str,
        revision: int,
        *,
        args: Mapping[str, Any] | None = None,
        priority: int | None = None,
        delay: Span | None = None,
        at: datetime | None = None,
    ) -> Acted:
        return self._on(
            _Bound,
            lambda app: app.edit(queue, job_id, revision, args=args, priority=priority, delay=delay, at=at),
        )

    def reprioritise(self, queue: str, job_id: str, revision: int, priority: int) -> Acted:
        return self._on(_Bound, lambda app: app.reprioritise(queue, job_id, revision, priority))

    def promote(self, queue: str, *ids: str) -> int:
        return self._on(_Bound, lambda app: app.promote(queue, *ids))

    def plan_redrive(
        self,
        queue: str,
        *,
        state: State | str = State.DEAD,
        type: str | None = None,
        reason: str | None = None,
        limit: int | None = None,
    ) -> RedrivePlan:
        return self._on(
            _Bound, lambda app: app.plan_redrive(queue, state=state, type=type, reason=reason, limit=limit)
        )

    def redrive_all(self, plan: RedrivePlan, *, progress: Progress | None = None) -> Redriven:
        return self._on(_Bound, lambda app: app.redrive_all(plan, progress=progress))

    def plan_purge(self, queue: str, *, state: State | str, older_than: Span | None = None) -> PurgePlan:
        return self._on(_Bound, lambda app: app.plan_purge(queue, state=state, older_than=older_than))

    def purge(self, plan: PurgePlan, *, progress: Progress | None = None) -> PurgeResult:
        return self._on(_Bound, lambda app: app.purge(plan, progress=progress))

    def obliterate(
        self,
        queue: str,
        *,
        confirm: str,
        token: str | None = None,
        progress: Progress | None = None,
        started: Callable[[str], None] | None = None,
    ) -> Obliterated:
        return self._on(
            _Bound,
            lambda app: app.obliterate(
                queue, confirm=confirm, token=token, progress=progress, started=started
            ),
        )

    def repair(self, queue: str) -> Repaired:
        return self._on(_Bound, lambda app: app.repair(queue))

    def reap(self, queue: str) -> Reaped:
        return self._on(_Bound, lambda app: app.reap(queue))

    def workers(self, queue: str) -> list[Heartbeat]:
        return self._on(_Bound, lambda app: app.workers(queue))

    def quiesce(self, queue: str, *pods: str) -> dict[str, int]:
        return self._on(_Bound, lambda app: app.quiesce(queue, *pods))

    def unquiesce(self, queue: str, *pods: str) -> None:
        self._on(_Bound, lambda app: app.unquiesce(queue, *pods))

    def migrate(self, queue: str, version: int = SCHEMA) -> Migrated:
        return self._on(_Bound, lambda app: app.migrate(queue, version))
