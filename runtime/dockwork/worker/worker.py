"""`Worker`: claims jobs of one or more queues and runs them until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from datetime import datetime
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from dockwork import clock
from dockwork.core.jobs import StopReason
from dockwork.core.keys import QueueName
from dockwork.core.partitions import partition_names
from dockwork.core.slots import Shared
from dockwork.errors import (
    AccessDenied,
    DockworkError,
    EncryptionError,
    InvalidUrl,
    InvalidValue,
    ScriptFailed,
    UnknownReply,
    require,
    text_of,
)
from dockwork.registry import Registry
from dockwork.schedules import put_schedule
from dockwork.settings import Settings
from dockwork.store.partition_shares import share_config, share_events
from dockwork.store.partitioned import partitioned
from dockwork.store.protocol import (
    EventOptions,
    Heartbeat,
    Owner,
    Put,
    QueueConfig,
    Renewal,
    RevokeCause,
    Store,
    Verdict,
    Writing,
    without_codes_own,
)
from dockwork.version import __version__
from dockwork.worker import health, metrics
from dockwork.worker.children import (
    END_WITHIN_S,
    JOBS_PER_CHILD,
    ChildNotStarted,
    Children,
    Limits,
    plan_children,
)
from dockwork.worker.drain import CANCELLED_WITHIN_S, LAST_ANSWER_S, Drain
from dockwork.worker.executor import Executor, Middleware
from dockwork.worker.heartbeat import Identity, compose_beat, resident_bytes
from dockwork.worker.kept import keep, outlast
from dockwork.worker.lag import LagWatch
from dockwork.worker.lane import Lane
from dockwork.worker.logs import flush_streams, get_logger
from dockwork.worker.places import Places
from dockwork.worker.reconnect import LOST, Link
from dockwork.worker.renewer import CHUNK, Renewer
from dockwork.worker.runs import Phase, Run
from dockwork.worker.signals import Trap, any_set
from dockwork.worker.slots import SharedSlots
from dockwork.worker.supervisor import Supervisor
from dockwork.worker.threads import Threads
from dockwork.worker.upkeep import Upkeep
from dockwork.worker.waiter import Waiter

log = get_logger("worker")

NONE_SHARED = Shared()
T = TypeVar("T")

#: The lease where neither the queue nor the process says another.
LEASE_S = 15.0
#: How long the end may be late, after everything was put back, before the supervisor makes it: the app's lifespan
#: has that long to close.
RESCUE_AFTER_S = 2.0

#: How long the app's `on_error` may take for the last failures.
REPORTS_WITHIN_S = 1.0

#: How often a drain looks whether there is still something to wait for.
LOOK_AGAIN_S = 1.0

Lifespan = Callable[[], AbstractAsyncContextManager[Any]]


class ExitCode(IntEnum):
    """What a worker process ends with."""

    DRAINED = 0  #: everything ended or was put back
    REFUSED = 3  #: the start was refused
    NO_REDIS = 4  #: something could not be put back: its lease brings it back
    INTERNAL = 70  #: a defect, or handlers that cannot be stopped


class Worker:
    """Runs once: `run` returns an exit code after `shutdown`, or ends the process when it traps signals.

    queues     queue -> its own slots
    shared     slots besides, for whichever of them has work
    modules    what a child process imports to have the app, for job types with ``isolation="process"``
    Lifespan and middlewares are the app's; see `App.lifespan` and `App.middleware`.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settings: Settings,
        *,
        app_name: str,
        queues: Mapping[str, int],
        shared: Shared = NONE_SHARED,
        lifespan: Lifespan | None = None,
        middlewares: Sequence[Middleware] = (),
        modules: Sequence[str] = (),
        owns_store: bool = True,
    ) -> None:
        require(bool(queues), "queues", expected="at least one queue", got="none")
        self.store = store
        self.registry = registry
        self.settings = settings
        self.app_name = app_name
        self.queues = dict(queues)
        self.shared = shared
        self.owner = own_identity(settings)
        self.lanes: list[Lane] = []
        self.drain = Drain()
        self._lifespan = lifespan
        self._owns_store = owns_store
        self._middlewares = tuple(middlewares)
        self._started = False
        self._running = False
        self._traps = False  #: signals are ours, and so is the end of the process
        self._failure = ""
        self._exit = ExitCode.DRAINED
        self._threads = Threads()
        self._plan = plan_children(app_name, registry.values(), modules)
        self.children: Children | None = None  #: for the job types that ask for a process
        self._renewers: list[Renewer] = []
        self._owned: set[asyncio.Future[None]] = set()

    # --- the public calls ------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Work until `shutdown`, a signal, or a defect; the exit code.

        With trapped signals the process ends here instead of returning, with the last of its workers. In another
        thread than the main one signals cannot be trapped, and it returns.
        """
        require(not self._started, "worker", expected="a worker that never ran", got="one that did")
        self._started = True
        self._loop = asyncio.get_running_loop()
        self._wake_drain = asyncio.Event()
        self._defect: asyncio.Future[None] = self._loop.create_future()
        self.link = Link()
        self._lag = LagWatch(self._loop, threading.get_ident())
        trap = Trap(self._caught)
        self._traps = self.settings.trap_signals and trap.install()
        try:
            code = await self._outlive(keep(self._supervised(), name="worker-life"))
        finally:
            trap.remove()
            if not self.drain.done.done():
                self.drain.done.set_result(None)
        if self._traps and not any_set():  # another worker may still be draining beside this one
            self._leave_process(code)
        return code

    async def _outlive(self, life: asyncio.Task[int]) -> int:
        """The result of `life`. A cancellation of `run` ends it in order, at once, unless a handler was at it."""
        try:
            return await outlast(life)
        except asyncio.CancelledError:
            if life.done():
                raise
            self.begin_drain("cancelled", 0)
            self.drain.hurry()
            self._wake()
            while not life.done():
                try:
                    await asyncio.wait({life})
                except asyncio.CancelledError:
                    continue  # putting back takes a second at most
            raise

    def start_thread(self) -> threading.Thread:
        """Run in a thread with an event loop of its own, and return at once; `shutdown` ends it."""
        from dockwork.worker.loops import run_to_end

        thread = threading.Thread(
            target=run_to_end, args=(self.run,), name=f"dockwork-worker-{self.app_name}", daemon=True
        )
        thread.start()
        return thread

    async def shutdown(self, timeout: float | None = None) -> bool:
        """Drain, and return when the worker has ended. From any thread and loop, any number of times.

        timeout    seconds from now until what still runs has been put back; None = the setting
        Returns    True for the first call, False for others
        """
        first = self.begin_drain("shutdown", timeout)
        if not self._started:
            self._started = True
            self.drain.done.set_result(None)
        await asyncio.wrap_future(self.drain.done)
        return first

    def begin_drain(self, reason: str, timeout: float | None = None) -> bool:
        """Begin to drain and return at once: from any thread, or a signal handler."""
        seconds = self.settings.drain_timeout.total_seconds() if timeout is None else max(timeout, 0.0)
        first = self.drain.begin(seconds, reason)
        self._wake()
        return first

    @property
    def is_running(self) -> bool:
        """It reached Redis, registered, and claims; or it did and drains."""
        return self._running

    @property
    def probe_port(self) -> int | None:
        """Where probes are answered, once it runs."""
        return self._supervisor.port

    # --- one life --------------------------------------------------------------------------------------------

    async def _supervised(self) -> int:
        try:
            self._supervisor = Supervisor(self, self._lag, self.settings.probe_addr)
        except InvalidValue as error:
            log.error("start_refused", message=str(error))
            return ExitCode.REFUSED
        self._supervisor.start()
        try:
            return await self._live()
        finally:
            self._supervisor.stop()

    async def _live(self) -> int:
        try:
            self.registry.check_keys()
            async with AsyncExitStack() as stack:
                if self._lifespan is not None:
                    code = await self._enter(stack, self._lifespan)
                    if code is not None:
                        return code
                await self._work()
        except (InvalidUrl, InvalidValue, EncryptionError) as error:
            log.error("start_refused", message=str(error))
            return ExitCode.REFUSED
        except ChildNotStarted as error:
            log.error("start_refused", message=f"no child process: {error}")
            return ExitCode.REFUSED
        except Exception as error:
            log.error("worker_failed", exc_info=error)
            return ExitCode.INTERNAL
        finally:
            if self._owns_store:
                await self.store.close()
        log.info("worker_ended", code=int(self._exit), reason=self.drain.reason)
        return self._exit

    async def _enter(self, stack: AsyncExitStack, lifespan: Lifespan) -> ExitCode | None:
        """Open what the app's handlers share; what to end with when that fails, or a drain begins before it is open."""
        life = asyncio.current_task()
        assert life is not None

        async def give_up() -> None:
            await self._wake_drain.wait()
            life.cancel()

        # In this task: what the lifespan opens must be closed by the task that opened it.
        waiting = keep(give_up())
        try:
            await stack.enter_async_context(lifespan())
        except asyncio.CancelledError:
            if not self.drain.begun:
                raise
            log.info("ended_before_start", reason=self.drain.reason)
            return self._exit
        except Exception as error:
            log.error("start_refused", message="the app's lifespan failed", exc_info=error)
            return ExitCode.REFUSED
        finally:
            waiting.cancel()
            if self.drain.begun:
                life.uncancel()
        return None

    async def _work(self) -> None:
        try:
            if await self._connect():
                await self._serve()
        finally:
            await self._close()

    async def _serve(self) -> None:
        stop = asyncio.Event()
        actors: list[asyncio.Task[None]] = []
        try:
            for lane in self.lanes:
                for actor in (Waiter(lane), Upkeep(lane)):
                    actors.append(keep(self._until_stopped(actor.run(stop), stop), name=actor.name))
                lane.hunger()
            self._running = True
            log.info("worker_runs", app=self.app_name, owner=str(self.owner), queues=self.queues)
            await self._until_drain()
            stop.set()
            await self._drain()
        finally:
            stop.set()
            if actors:
                await asyncio.wait(actors)

    async def _until_stopped(self, work: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
        """`work`, cancelled when `stop` is set: a blocked read does not look at it."""
        task = keep(work)
        stopped = keep(stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            if not stop.is_set():
                raise
        except Exception as error:  # a defect: what runs is put back before the process ends
            self._fail(error)

    async def _until_drain(self) -> None:
        """Return when a drain begins; raise what an unowned task raised."""
        waiting = keep(self._wake_drain.wait())
        try:
            while not self.drain.begun:
                self._wake_drain.clear()
                watched: set[asyncio.Future[Any]] = {waiting, self._defect}
                await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                if self._defect.done():
                    self._exit = ExitCode.INTERNAL
                    log.error("actor_failed", exc_info=self._defect.exception())
                    self.begin_drain("defect")
                    return
                waiting = keep(self._wake_drain.wait())
        finally:
            waiting.cancel()

    # --- the start -------------------------------------------------------------------------------------------

    async def _connect(self) -> bool:
        """Reach Redis, take over from a predecessor, register; False when a drain began before it came to that."""
        preparing = keep(self._prepare())
        begun = keep(self._wake_drain.wait())
        await asyncio.wait({preparing, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        if not preparing.done():
            preparing.cancel()
            await asyncio.wait({preparing})
            log.info("ended_before_start", reason=self.drain.reason)
            return False
        preparing.result()
        return True

    async def _prepare(self) -> None:
        schemas = {name: job_type.schema_hash for name, job_type in self.registry.items()}
        self.known = known_types(schemas)
        self._identity = Identity(
            owner=self.owner,
            pod_name=self.settings.pod_name,
            template_hash=self.settings.template_hash,
            version=__version__,
            schemas=schemas,
        )
        if self._plan is not None:
            limits = Limits(
                max_jobs=self.settings.max_jobs_per_child or JOBS_PER_CHILD,
                max_rss=self.settings.max_rss_per_child,
            )
            self.children = Children(self._plan, limits)
            await self.children.warm()
        await self._insist(self.store.open)
        await self._insist(self.store.ping)
        await self._insist(self._check_server)
        dealt = SharedSlots(self.shared)
        for queue, own in self.queues.items():
            slots = own + self.shared.slots
            whole, wanted = QueueName(self.settings.namespace, queue), self.registry.partitions.get(queue)
            count = await self._insist(partial(self.store.partitions, whole, wanted))
            places = Places(slots) if count > 1 else None
            if self.shared.slots:
                places = dealt.add(queue, own)
            for name in partition_names(whole, count):
                await self._prepare_lane(name, count, slots, places)

        whole_queues = partitioned(self.store, self.registry.partitions.get)
        for (queue, _), declared in self.registry.schedules.items():
            if queue in self.queues:
                put = partial(put_schedule, whole_queues, self.settings.namespace, declared)
                await self._insist(put)

    async def _prepare_lane(self, name: QueueName, count: int, slots: int, places: Places | None) -> None:
        await self._take_over(name)
        config = await self._configure(name, count)
        await self._say_events(name, count)
        await self._insist(partial(self._register, name))
        lane = self._add_lane(name, slots, config, places)
        # Before the first claim: a job that kills this process at once must find its successor informed.
        await self._insist(partial(self._first_beat, lane))

    async def _check_server(self) -> None:
        """Report a Redis that may lose jobs: what evicts keys, and what keeps nothing on disk."""
        try:
            server = await self.store.server()
        except AccessDenied as error:
            log.warning("redis_not_checked", message="the login may not ask", error=str(error))
            return
        if server.get("policy", "noeviction") not in ("", "noeviction"):
            log.warning(
                "redis_evicts",
                message="maxmemory-policy is not noeviction: a full Redis throws away jobs and leases",
                policy=server["policy"],
            )
        if not server.get("aof", True) and server["name"] != "memory":
            log.warning(
                "redis_without_aof",
                message="appendonly is off: a restart of Redis loses what it accepted since its last snapshot",
            )

    async def _first_beat(self, lane: Lane) -> None:
        await self.store.renew(lane.name, [], self._beat(lane))

    def _add_lane(self, name: QueueName, slots: int, config: QueueConfig, places: Places | None) -> Lane:
        lease_s = LEASE_S if config.lease_ms is None else config.lease_ms / 1000
        lane = Lane(name, slots, self, config, lease_s=lease_s, places=places)
        lane.put = Put(self.settings.drain_requeue)
        lane.runner = Executor(
            lane,
            self.registry,
            self._threads,
            worker=str(self.owner),
            middlewares=self._middlewares,
            children=self.children,
        )
        if self.settings.max_jobs is not None:
            lane.on_ended = self._count_ended
        self.lanes.append(lane)
        renewer = Renewer(
            lane,
            self.owner,
            self.store.renewal_channel(),
            beat=lambda: self._beat(lane),
            deliver=lambda runs, renewal: self._post(self._renewed, lane, runs, renewal),
            failed=lambda error: self._post(self.link.failed, error),
        )
        self._renewers.append(renewer)
        renewer.start()
        return lane

    async def _take_over(self, name: QueueName) -> None:
        """A process that starts in the same container proves the ones before it dead: their jobs come back now."""
        if not self.owner.container:
            return
        for dead in await self._insist(lambda: self.store.predecessors(name, self.owner)):
            revoke = partial(self.store.revoke, name, dead, RevokeCause.DIED, "the container restarted")
            returned = await self._insist(revoke)
            log.warning("predecessor_died", owner=dead, queue=name.queue, returned=returned)

    async def _configure(self, name: QueueName, count: int) -> QueueConfig:
        """The queue's options: an operator's stand; without one those of the code are written."""
        found = await self._insist(lambda: self.store.config(name))
        said = self.registry.config_of(name.queue)
        if name.partition is not None:
            said = share_config(said or QueueConfig(), name.partition, count)
        if said is None:
            return found
        how = Writing.PLAINLY
        if found.generation:
            how = Writing.LIMITS  # which no Queue resource has
            if without_codes_own(said) != QueueConfig():
                log.warning(
                    "code_options_ignored", message="the Queue resource's options stand", queue=name.queue
                )
        wanted = replace(said, held=found.held, closed=found.closed)
        await self._insist(lambda: self.store.configure(name, wanted, None, how=how))
        return await self._insist(lambda: self.store.config(name))

    async def _say_events(self, name: QueueName, count: int) -> None:
        """Write what code and environment say of the queue's events; a Queue resource says nothing of them."""
        said = self.registry.event_options.get(name.queue)
        if self.settings.events_max_bytes is not None:
            said = replace(said or EventOptions(), max_bytes=self.settings.events_max_bytes)
        if name.partition is not None:
            said = share_events(said or EventOptions(), name.partition, count)
        if said is not None:
            wanted = said
            await self._insist(lambda: self.store.set_events(name, wanted))

    async def _register(self, name: QueueName) -> None:
        import json

        types = {
            type_: (job_type.schema_hash, json.dumps(job_type.json_schema, separators=(",", ":")).encode())
            for type_, job_type in self.registry.items()
        }
        await self.store.register(name, self.settings.template_hash, types)

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of `call`, asked again until Redis gives one."""
        while True:
            try:
                answer = await call()
            except InvalidUrl:
                raise
            except (*LOST, ScriptFailed, UnknownReply) as error:
                self._failure = _brief(error)
                await self.link.pause(error)
            else:
                self._failure = ""
                self.link.answered()
                return answer

    # --- the end ---------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Within one budget: no claims, wait, put back, last beat, no renewal (RT-110)."""
        log.info("draining", reason=self.drain.reason, running=self._busy())
        for lane in self.lanes:
            lane.stop_claiming()
        if self.children is not None and self.drain.ends_at is not None:
            self.children.drain(self.drain.ends_at)
        await self._until_quiet()
        self.drain.putting_back = True
        if self._busy():
            await self._put_back()
        await self._settle_rest()

    def _busy(self) -> int:
        return sum(run.phase is Phase.RUNNING for lane in self.lanes for run in lane.working)

    async def _until_quiet(self) -> None:
        while not all(lane.is_quiet for lane in self.lanes):
            put_back_at = self.drain.put_back_at
            assert put_back_at is not None
            left = min(put_back_at - clock.monotonic(), LOOK_AGAIN_S)
            if put_back_at <= clock.monotonic() or self._is_idle_without_redis():
                return
            self._wake_drain.clear()
            waits = [keep(lane.quiet.wait()) for lane in self.lanes if not lane.is_quiet]
            waits.append(keep(self._wake_drain.wait()))
            await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()

    def _is_idle_without_redis(self) -> bool:
        """Nothing is held, and Redis is silent for so long that what an unanswered claim took has run out."""
        longest = max(lane.lease_s for lane in self.lanes)
        silent = clock.monotonic() - self.link.answered_at
        return not self.link.is_up and silent >= longest and not any(lane.holds for lane in self.lanes)

    async def _put_back(self) -> None:
        """Cancel what runs, give it a moment, then give all of it back."""
        tasks = []
        for lane in self.lanes:
            for run in list(lane.working):
                if run.phase is Phase.RUNNING:
                    lane.tally.abandoned += 1
                    lane.runner.stop(run, StopReason.DRAIN)
                    if run.task is not None and not run.over:
                        tasks.append(run.task)
        if tasks:
            await asyncio.wait(tasks, timeout=CANCELLED_WITHIN_S)
        if self.children is not None:
            self.children.kill_busy()  # what goes back now runs nowhere any more
        for lane in self.lanes:
            rest = [run for run in lane.runs.values() if run.phase is Phase.RUNNING]
            if rest:
                lane.put_back(rest)

    async def _settle_rest(self) -> None:
        """Until everything is answered, or the end; what Redis did not take comes back by its lease."""
        assert self.drain.deadline is not None
        # A budget shorter than the second that putting back begins before its end still gets Redis' answer.
        end = max(self.drain.deadline, clock.monotonic() + LAST_ANSWER_S)
        if self._is_idle_without_redis():
            end = clock.monotonic()
        for lane in self.lanes:
            await _quiet_by(lane, end)
            if not lane.is_quiet:
                if self._exit is not ExitCode.INTERNAL:
                    self._exit = ExitCode.NO_REDIS
                log.error("not_put_back", queue=lane.name.queue, jobs=len(lane.runs))

    async def _close(self) -> None:
        if self.children is not None:
            await self.children.close(self._left(END_WITHIN_S))
        for renewer in self._renewers:
            await asyncio.to_thread(renewer.stop)
        for lane in self.lanes:
            await lane.close()
            if isinstance(lane.runner, Executor):
                await lane.runner.reports.last(REPORTS_WITHIN_S)
            lane.runner.close()
            await self._last_beat(lane)
        for owned in self._owned:
            owned.cancel()
        self._threads.close()

    def _left(self, most_s: float) -> float:
        """Seconds of the drain that are left, `most_s` at most and half a second at least."""
        deadline = self.drain.deadline
        return most_s if deadline is None else min(max(deadline - clock.monotonic(), 0.5), most_s)

    async def _last_beat(self, lane: Lane) -> None:
        if self.drain.deadline is None or self._exit is ExitCode.NO_REDIS:
            return
        try:
            async with asyncio.timeout(max(self.drain.deadline - clock.monotonic(), 0.5)):
                await self.store.leave(lane.name, self.owner, self._beat(lane))
        except (TimeoutError, DockworkError) as error:
            log.warning("last_beat_lost", queue=lane.name.queue, error=_brief(error))

    def _leave_process(self, code: int) -> None:
        """End the process; handlers that cannot be stopped do not keep it."""
        unfinished = any(lane.working for lane in self.lanes)
        if not unfinished:
            raise SystemExit(code)
        flush_streams()
        os._exit(code)

    # --- what lanes ask (lane.Tools) -------------------------------------------------------------------------

    known: Sequence[str] = ()
    link: Link

    @property
    def drain_deadline(self) -> datetime | None:
        return self.drain.ends_at

    def own(self, work: Awaitable[None]) -> None:
        """Carry out `work` in the background; what it raises ends the worker."""
        task = keep(_awaited(work))
        self._owned.add(task)
        task.add_done_callback(self._owned_done)

    def _owned_done(self, task: asyncio.Future[None]) -> None:
        self._owned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """A defect ends the worker, by a drain; the first one is told."""
        if not self._defect.done():
            self._defect.set_exception(error)
            self._defect.exception()  # told or not, nobody else will ask for it

    # --- what the supervisor asks ----------------------------------------------------------------------------

    def look(self) -> health.WorkerSeen:
        now = clock.monotonic()
        link = self.link
        lanes = zip(self.lanes, self._renewers, strict=False)  # the loop may be adding one
        answered_at = (
            max([link.answered_at, *(lane.renewed_at for lane in self.lanes)]) if self._running else 0.0
        )
        return health.WorkerSeen(
            started=self._running,
            draining=self.drain.begun,
            lag_s=self._lag.seconds,
            over_hard_s=self._over_hard(now),
            redis_up=link.is_up,
            answered_ago=now - answered_at if answered_at else None,
            failure=self._failure,
            lanes=tuple(self._look_at(lane, renewer, now) for lane, renewer in lanes),
        )

    def _look_at(self, lane: Lane, renewer: Renewer, now: float) -> health.LaneSeen:
        return health.LaneSeen(
            queue=lane.name.queue,
            lease_s=lane.lease_s,
            beat_s=renewer.every,
            renewal_alive=renewer.is_alive,
            renewal_round_ago=now - renewer.passed_at,
            # After an outage the first pass gets its time, too.
            claim_pass_ago=now - max(lane.passed_at, self.link.up_since),
            can_claim=bool(lane.free) and lane.may_claim,
            quiesced=lane.quiesced,
            keyless=now < lane.keyless_until,
        )

    def _over_hard(self, now: float) -> float:
        """How long a handler has blocked the loop beyond its hard timeout."""
        if self._lag.seconds < health.BLOCKED_OVER_HARD_S:
            return 0.0
        task = self._lag.task()
        runs = [run for lane in self.lanes for run in copy_of(lane.working) if run.task is task]
        return max((now - run.hard_at for run in runs), default=0.0)

    def figures(self) -> metrics.WorkerFigures:
        now = clock.monotonic()
        return metrics.WorkerFigures(
            lag_s=self._lag.seconds,
            reconnects=self.link.reconnects,
            unknown=self.link.unknown,
            lanes=tuple(_figures_of(lanes, now) for lanes in _by_queue(self.lanes)),
        )

    def is_idle(self) -> bool:
        return self._running and not self.drain.begun and not any(lane.working for lane in self.lanes)

    def shortest_lease_s(self) -> float:
        return min((lane.lease_s for lane in self.lanes), default=LEASE_S)

    def rescue_is_due(self, now: float) -> bool:
        # The supervisor ends a drain only when:
        # 1. the process is ours to end;
        # 2. the loop should have put back by now and has not, or has not come to its end.
        drain = self.drain
        if not (self._traps and drain.deadline is not None and drain.put_back_at is not None):
            return False
        if drain.putting_back:
            return now > drain.deadline + RESCUE_AFTER_S
        return now > drain.put_back_at + CANCELLED_WITHIN_S and self._lag.seconds > CANCELLED_WITHIN_S

    def rescue(self) -> None:
        """Put back what runs, from the supervisor's thread, and end the process: the loop cannot."""
        for renewer in self._renewers:
            renewer.stop()
        code = self._exit
        for lane in self.lanes:
            try:
                self._rescue_lane(lane)
            except DockworkError as error:
                log.error("not_put_back", queue=lane.name.queue, jobs=len(lane.runs), error=_brief(error))
                if code is not ExitCode.INTERNAL:
                    code = ExitCode.NO_REDIS
        log.info("worker_ended", code=int(code), reason=self.drain.reason)
        flush_streams()
        os._exit(code)

    def _rescue_lane(self, lane: Lane) -> None:
        channel = self.store.renewal_channel()
        channel.connect()
        runs = [run for run in copy_of(lane.runs.values()) if run.phase in (Phase.RUNNING, Phase.RETURNING)]
        for first in range(0, len(runs), CHUNK):
            leases = [run.lease for run in runs[first : first + CHUNK]]
            verdicts = channel.requeue(lane.name, self.owner, leases, put=lane.put)
            lane.tally.requeued += sum(verdict is not Verdict.LOST for verdict in verdicts)
        channel.leave(lane.name, self.owner, self._beat(lane))
        channel.close()

    def watch_memory(self) -> None:
        """End in order, to be started again, when this process has grown too large. From the supervisor's thread."""
        most = self.settings.max_rss
        if most is None or self.drain.begun or not self._running:
            return
        rss = resident_bytes()
        if rss > most:
            log.warning("too_large", rss=rss, max_rss=most)
            self.begin_drain("max_rss")

    def _count_ended(self) -> None:
        most = self.settings.max_jobs
        if most is not None and not self.drain.begun:
            ended = sum(lane.tally.ended for lane in self.lanes)
            if ended >= most:
                log.info("enough_jobs", ended=ended, max_jobs=most)
                self.begin_drain("max_jobs")

    # --- between threads -------------------------------------------------------------------------------------

    def stuck(self, lane: Lane) -> None:
        """Half the slots are lost to handlers that cannot be stopped: only a new process has them back."""
        if not self.drain.begun:
            log.error("slots_stuck", queue=lane.name.queue, stuck=len(lane.stuck), slots=lane.slots)
            self._exit = ExitCode.INTERNAL
            self.begin_drain("stuck")

    def _renewed(self, lane: Lane, runs: Sequence[Run], renewal: Renewal) -> None:
        self.link.answered()
        lane.renewed(runs, renewal)

    def _beat(self, lane: Lane) -> Heartbeat:
        return compose_beat(
            self._identity,
            lane,
            now=clock.monotonic(),
            draining=self.drain.begun,
            lag_s=self._lag.seconds,
        )

    def _post(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            return  # the loop has ended

    def _wake(self) -> None:
        if self._started and hasattr(self, "_loop"):
            self._post(self._wake_drain.set)

    def _caught(self, name: str, count: int) -> None:
        if count == 1:
            self.begin_drain(name)
        elif count == 2:
            self.drain.hurry()
            self._wake()


def known_types(schemas: Mapping[str, str]) -> tuple[str, ...]:
    """The names under which a job that this worker can run may be parked."""
    return tuple(name for type_, schema in schemas.items() for name in (type_, f"{type_}@{schema}"))


def own_identity(settings: Settings) -> Owner:
    """This process as an owner of leases: the pod's UID, else host and machine, and a fresh boot id."""
    pod = settings.pod_uid or f"{os.uname().nodename}-{_machine_id()}"
    return Owner(pod=pod, boot=secrets.token_hex(8), container=settings.container)


def copy_of(runs: Iterable[Run]) -> list[Run]:
    """The runs in a table that the loop changes meanwhile: a torn look is taken again."""
    while True:
        try:
            return list(runs)
        except RuntimeError:
            continue


async def _quiet_by(lane: Lane, deadline: float) -> None:
    """Return when `lane` has nothing left, at the latest at `deadline`."""
    while not lane.is_quiet and (left := deadline - clock.monotonic()) > 0:
        lane.quiet.clear()
        try:
            async with asyncio.timeout(left):
                await lane.quiet.wait()
        except TimeoutError:
            return


async def _awaited(work: Awaitable[None]) -> None:
    await work


def _by_queue(lanes: Iterable[Lane]) -> Iterable[list[Lane]]:
    """The lanes of each queue: one, or its partitions."""
    found: dict[str, list[Lane]] = {}
    for lane in lanes:
        found.setdefault(lane.name.queue, []).append(lane)
    return found.values()


def _figures_of(lanes: Sequence[Lane], now: float) -> metrics.LaneFigures:
    return metrics.LaneFigures(
        queue=lanes[0].name.queue,
        slots=lanes[0].slots,
        busy=sum(lane.busy for lane in lanes),
        stuck=sum(len(lane.stuck) for lane in lanes),
        lease_margin_s=min(lane.renewed_at + lane.lease_s for lane in lanes) - now,
        settled=sum(lane.tally.ended for lane in lanes),
        lost=sum(lane.tally.lost for lane in lanes),
        requeued=sum(lane.tally.requeued for lane in lanes),
        abandoned=sum(lane.tally.abandoned for lane in lanes),
    )


def _machine_id() -> str:
    try:
        return Path("/etc/machine-id").read_text().strip()[:12] or "0"
    except OSError:
        return "0"


def _brief(error: BaseException) -> str:
    return f"{type(error).__name__}: {text_of(error)}"[:500]
