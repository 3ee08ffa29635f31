"""One queue's share of a worker: its slots, the jobs in them, and the calls that settle and claim.

Whatever ended since the last call travels in the next, and the next claims ride back on its reply. At most
`CALLS` calls are under way. What ends in one tick of the loop goes together, what ends meanwhile goes with the next;
and a lane with all its slots busy settles each 2 ms, not for each end.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from dockwork import clock
from dockwork.core.jobs import StopReason
from dockwork.core.keys import QueueName
from dockwork.errors import ScriptFailed, UnknownReply
from dockwork.store.protocol import (
    Claimed,
    Done,
    Lease,
    Owner,
    Put,
    QueueConfig,
    Renewal,
    Settled,
    Settlement,
    Store,
    Verdict,
)
from dockwork.worker.kept import keep
from dockwork.worker.logs import get_logger
from dockwork.worker.places import Places
from dockwork.worker.reconnect import LOST, Link
from dockwork.worker.runs import GONE, RETURNING, RUNNING, SETTLING, Run

log = get_logger("lane")
T = TypeVar("T")

#: Two: the next batch is on its way while the last one is answered. 1 was 10 % slower, 3 no faster (measured).
CALLS = 2
#: Jobs per settle or claim; 64 and 128 cost Redis the same per job (measured).
BATCH = 64
#: Between two settles of a busy lane; what ends meanwhile goes together. With jobs of 5-50 ms on 100 slots that took a
#: fifth of the worker's CPU and a quarter of Redis', for 3 to 8 % of the jobs a second; 1 ms half as much (measured).
GATHER_S = 0.002
#: A lane is busy from so many running jobs on.
BUSY = 16
#: Enough has ended for a settle of its own: one of so many slots.
ENOUGH_OF = 8
#: Leases in a call that moves none of their payloads.
CHUNK = 500
#: A job that still runs so long after its claim is announced as started; a quicker one starts with its settle.
ANNOUNCE_AFTER = 0.1
#: Who only knows of a due time waits so much longer than who holds its marker.
OTHERS_LATER = 0.25
#: After a claim that failed in Redis, not on the way to it.
FAILED_FOR = 5.0
#: Between claims that also look at parked jobs, unless the last one left some.
PARKED_EVERY = 1.0
#: Weight of the newest run in a job type's mean run time.
NEWEST = 0.1


class Tools(Protocol):
    """What a lane needs of its worker."""

    @property
    def store(self) -> Store: ...
    @property
    def owner(self) -> Owner: ...
    @property
    def link(self) -> Link: ...
    @property
    def known(self) -> Sequence[str]:
        """Parked types that this worker can run, each as ``<type>`` and ``<type>@<schema hash>``."""
        ...

    @property
    def drain_deadline(self) -> datetime | None: ...
    def own(self, work: Awaitable[None]) -> None: ...
    def stuck(self, lane: Lane) -> None:
        """Half the slots hold runs that ignore their hard timeout."""
        ...


class Runner(Protocol):
    """What runs the jobs of a lane."""

    def look(self) -> None:
        """Jobs are about to begin: look at what may have changed since the last did."""
        ...

    def begin(self, run: Run) -> None: ...
    def stop(self, run: Run, reason: StopReason) -> None: ...
    def fail_plainly(self, run: Run, message: str) -> Settlement | None:
        """A failed attempt that holds nothing of the user's; None to put the job back."""
        ...

    def close(self) -> None: ...


@dataclass(kw_only=True, slots=True)
class Tally:
    """What a lane has seen; read by metrics and the last beat."""

    completed: int = 0
    ended: int = 0
    lost: int = 0
    requeued: int = 0
    abandoned: int = 0


class Lane:
    """The slots of one queue. Its methods are for the event loop; other threads only read its attributes.

    runner    set before the first claim
    places    its slots, where the partitions of a queue share them
    """

    runner: Runner

    def __init__(
        self,
        name: QueueName,
        slots: int,
        tools: Tools,
        config: QueueConfig,
        *,
        lease_s: float,
        places: Places | None = None,
    ) -> None:
        self.name = name
        self.slots = slots
        self.places = places
        if places is not None:
            places.join(self)
        self.config = config
        self.lease_s = lease_s
        self.tally = Tally()
        self.runs: dict[str, Run] = {}  #: leases we hold: running, settling or being put back
        self.working: set[Run] = set()  #: handlers that have not ended; each takes a slot
        self.stuck: set[Run] = set()  #: of those, the ones that were given up at their hard timeout
        self.mean_s: dict[str, float] = {}  #: per job type, smoothed
        self.renewed_at = clock.monotonic()
        self.passed_at = clock.monotonic()  #: when the claim loop last made a pass
        self.quiesced = False
        self.quiesce_token = ""
        self.closed = False  #: no claims any more
        self.short = asyncio.Event()  #: the last claim came back short: wait for a marker
        self.quiet = asyncio.Event()  #: nothing runs and nothing is under way
        self.put = Put.FRONT
        self.on_ended: Callable[[], None] | None = None  #: who counts what ended
        self._tools = tools
        self._ended: list[Run] = []
        self._just_ended: list[Run] = []  #: in this tick of the loop
        self._returning: list[Run] = []
        self._keyless: list[Run] = []
        self.keyless_until = 0.0  #: by the monotonic clock
        self._strays: dict[str, Run] = {}  # handlers that still run without a lease of ours
        self._waiting_for: dict[str, Run] = {}
        self._calls: set[asyncio.Task[None]] = set()
        self._asked = 0
        self._claiming = 0
        self._number = 0
        self._hungry = False
        self._owes_answer = False
        self._scheduled = False
        self._settled_at = 0.0
        self._gathering: asyncio.TimerHandle | None = None
        self._failed_until = 0.0
        self._parked_at = 0.0
        self._parked_left = False  # of the types that we know
        self._due_timer: asyncio.TimerHandle | None = None
        self._due_at = float("inf")
        #: Whether a popped marker of a due time is this lane's to meet, and whether that is what the timer is for.
        self._holds_due = self._timer_holds = False
        self._announcing = False
        self._configuring = False
        self._config_revision = config.revision
        self.config_version = 0  #: rises with each change that was read
        self._offset_ms: float | None = None  #: Redis TIME less this process' monotonic clock
        self._loop = asyncio.get_running_loop()
        # Not that of the job that ended: what its handler set there is not for those that are claimed next.
        self._context = copy_context()

    @property
    def store(self) -> Store:
        return self._tools.store

    @property
    def link(self) -> Link:
        return self._tools.link

    @property
    def drain_deadline(self) -> datetime | None:
        return self._tools.drain_deadline

    def own(self, work: Awaitable[None]) -> None:
        self._tools.own(work)

    # --- what wakes the lane ---------------------------------------------------------------------------------

    def hunger(self) -> None:
        """There may be work: claim for every free slot, or ask on behalf of others when there is none."""
        if self.closed:
            return
        self._hungry = True
        self._owes_answer = True
        self.short.clear()
        self._soon()

    def woken(self, due_ms: int) -> None:
        """A marker was popped; it is answered by a claim, at once or when its job is due."""
        if due_ms:
            self._wait_until(due_ms, holds=True)
        elif self.closed:
            self._owes_answer = True
            self._soon()
        else:
            self.hunger()

    def passed(self) -> None:
        """The claim loop lives: it waited for a marker, or something else was done for the queue."""
        self.passed_at = self._loop.time()

    def finish(self, run: Run, settlement: Settlement | None) -> None:
        """The handler of `run` is over: settle it, or put it back for None. Its slot is free."""
        self.working.discard(run)
        if self.places is not None:
            self.places.freed(self)
        if run.phase is RUNNING:
            if settlement is None:
                self.put_back([run])
            else:
                run.settlement = settlement
                run.phase = SETTLING
                self._just_ended.append(run)
        else:
            self.stuck.discard(run)
            if self._strays.get(run.lease.job_id) is run:
                del self._strays[run.lease.job_id]
            self._start_waiting(run)
            self.hunger()  # a slot that frees without a settle asks for work by itself
        self._soon()

    def completed(self, run: Run) -> None:
        """`finish` for a run that was never stopped and leaves nothing, as most do."""
        self.working.discard(run)
        if self.places is not None:
            self.places.freed(self)
        run.phase = SETTLING
        self._just_ended.append(run)
        if not self._scheduled:
            self._soon()

    def child_died(self, run: Run, exit_reason: str) -> None:
        """The process of `run` died under it: the delivery counts. Its slot is free."""
        if run.phase is not RUNNING:
            self.finish(run, None)
            return
        self.working.discard(run)
        if self.places is not None:
            self.places.freed(self)
        run.phase = RETURNING
        self._start(self._charge(run, exit_reason))

    def abandon(self, run: Run, settlement: Settlement) -> None:
        """`run` ignores its hard timeout: its job is settled and fenced, its slot stays taken."""
        if run.phase is not RUNNING:
            return
        run.settlement = settlement
        run.phase = SETTLING
        self._ended.append(run)
        self.stuck.add(run)
        log.error("run_stuck", job_id=run.lease.job_id, job_type=run.claim.type, slots=self.slots)
        stuck = len(self.stuck) if self.places is None else self.places.stuck
        if stuck * 2 >= self.slots:
            self._tools.stuck(self)
        self._soon()

    def lose(self, run: Run) -> None:
        """The lease of `run` is another's, or nobody's: stop it, and drop what comes of it."""
        if run.phase is GONE:
            return
        self.tally.lost += 1
        log.warning("lease_lost", job_id=run.lease.job_id, job_type=run.claim.type, epoch=run.lease.epoch)
        self._release(run)
        if not run.over:
            self.runner.stop(run, StopReason.LOST)
        self._soon()

    def renewed(self, runs: Sequence[Run], renewal: Renewal) -> None:
        """Act on what a renewal said of each run and of this queue."""
        for run, verdict in zip(runs, renewal.verdicts, strict=True):
            if run.phase is not RUNNING:
                continue  # settled or put back while the renewal was under way
            if verdict is Verdict.LOST:
                self.lose(run)
            elif verdict is Verdict.CANCEL:
                self.runner.stop(run, StopReason.CANCEL)
        self._heed_quiesce(renewal.quiesce)
        self._heed_config(renewal.config_revision)
        if renewal.next_at_ms is not None:
            self._wait_until(renewal.next_at_ms, holds=False)
        if self._hungry:
            self._soon()

    def put_back(self, runs: Sequence[Run]) -> None:
        """Give these jobs back, with neither counter charged; an outcome that still comes is dropped."""
        for run in runs:
            run.phase = RETURNING
            self._returning.append(run)
        self._soon()

    def lack_keys(self, run: Run) -> None:
        """`run` could not begin, for there is no key to open it with: back with it, and no claims for a while."""
        self.working.discard(run)
        run.phase = RETURNING
        self._keyless.append(run)
        self.keyless_until = clock.monotonic() + FAILED_FOR
        if self._loop.time() >= self._failed_until:
            self._failed_until = self._loop.time() + FAILED_FOR
            self._loop.call_later(FAILED_FOR, self.hunger)
        self._soon()

    def stop_claiming(self) -> None:
        self.closed = True
        self.short.clear()
        if self._due_timer is not None:
            self._due_timer.cancel()
        self._soon()

    async def close(self) -> None:
        """End what is under way, answered or not."""
        for call in self._calls:
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    @property
    def busy(self) -> int:
        return len(self.working)

    @property
    def free(self) -> int:
        """Slots that neither a handler nor a claim under way has."""
        own = max(self.slots - len(self.working) - self._asked, 0)
        return own if self.places is None else min(own, self.places.room(self))

    @property
    def taken(self) -> int:
        return len(self.working) + self._asked

    @property
    def wants(self) -> bool:
        """There may be work, and nothing keeps this lane from claiming it but the want of a slot."""
        return self._hungry and self.may_claim and self._loop.time() >= self._failed_until

    def wake(self) -> None:
        self._soon()

    @property
    def is_quiet(self) -> bool:
        return not (self.runs or self._calls or self._just_ended or self._ended or self._returning)

    @property
    def holds(self) -> bool:
        """Whether there are jobs here that Redis must be told of; calls under way alone are none."""
        return bool(self.runs or self._just_ended or self._ended or self._returning)

    @property
    def may_claim(self) -> bool:
        # Claims stop when:
        # 1. the worker drains or is quiesced;
        # 2. renewal has failed for a whole lease: what would be claimed could not be kept.
        renewal_works = clock.monotonic() - self.renewed_at < self.lease_s
        return not self.closed and not self.quiesced and renewal_works

    # --- the calls -------------------------------------------------------------------------------------------

    def _soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pump, context=self._context)

    def _pump(self) -> None:
        self._scheduled = False
        if self._just_ended:
            self._learn()
        if self._returning:
            runs, self._returning = self._returning, []
            self._start(self._return(runs))
        if self._keyless:
            runs, self._keyless = self._keyless, []
            self._start(self._return(runs, "no_keys"))
        while len(self._calls) < CALLS:
            room = min(self.free, BATCH) if self.may_claim and self._loop.time() >= self._failed_until else 0
            if self._ended and self._may_gather(room):
                break
            if self._ended:
                batch, self._ended = self._ended[:BATCH], self._ended[BATCH:]
                self._send_settle(batch, room)
            elif (room and self._hungry and not self._claiming) or self._owes_answer:
                # One at a time, however many slots are free: most often somebody waits for one job, and the claim
                # that comes back full asks for the rest.
                self._send_claim(room)
            else:
                break
        if self.is_quiet:
            self.quiet.set()
        else:
            self.quiet.clear()

    def _may_gather(self, room: int) -> bool:
        """Whether what ended may wait for what ends next. It goes at once when:

        1. enough has ended for a call of its own;
        2. few jobs run: somebody may be waiting for the one that ended;
        3. other slots are free, too, or a claim is owed: a job that comes now would wait for this call;
        4. no settle went for the last `GATHER_S`.
        """
        ended = len(self._ended)
        if ended * ENOUGH_OF >= self.slots or len(self.working) < BUSY:
            return False
        if room > ended or self._owes_answer or self.closed:
            return False
        if self._gathering is None:
            wait_s = self._settled_at + GATHER_S - self._loop.time()
            if wait_s <= 0:
                return False
            self._gathering = self._loop.call_later(wait_s, self._gathered, context=self._context)
        return True

    def _gathered(self) -> None:
        self._gathering = None
        self._settled_at = 0.0
        self._soon()

    def _start(self, call: Coroutine[Any, Any, None]) -> None:
        task = keep(call)
        self._calls.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if self.places is not None:
            self.places.freed(self)
        if not task.cancelled() and task.exception() is not None:
            self._tools.own(_fail(task))
        self._soon()

    def _send_claim(self, room: int) -> None:
        self._claiming += 1
        self._start(self._claim(self._reserve(room), room))

    def _send_settle(self, batch: list[Run], room: int) -> None:
        self._settled_at = self._loop.time()
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._start(self._settle(self._reserve(room), batch, room))

    def _reserve(self, room: int) -> int:
        """The number of the next call; its slots count as taken from now on."""
        self._owes_answer = False
        self._asked += room
        if room and self.places is not None:
            self.places.took(self)
        self._number += 1
        return self._number

    async def _claim(self, number: int, room: int) -> None:
        known, asked_at = self._known_now(), clock.monotonic()
        try:
            claimed = await self._ask(
                lambda: self.store.claim(self.name, self._tools.owner, number=number, slots=room, known=known)
            )
        except (ScriptFailed, UnknownReply) as error:
            log.error("claim_failed", error=str(error), queue=self.name.queue)
            self._failed_until = self._loop.time() + FAILED_FOR
            self._loop.call_later(FAILED_FOR, self.hunger)
            return
        finally:
            self._asked -= room
            self._claiming -= 1
        self._took(claimed, room, known, asked_at)

    async def _settle(self, number: int, batch: list[Run], room: int) -> None:
        try:
            await self._send_outcomes(number, batch, room)
        except Exception:  # a defect ends the worker: what it left unsettled is not left to its lease
            self.put_back([run for run in batch if run.phase is SETTLING])
            raise

    async def _send_outcomes(self, number: int, batch: list[Run], room: int) -> None:
        known, asked_at = self._known_now(), clock.monotonic()
        settlements = [run.settlement for run in batch if run.settlement is not None]
        done: list[Done] = []
        if len(settlements) < len(batch):
            done = [(run.lease, run.started_ms) for run in batch if run.settlement is None]
            if settlements:  # the verdicts come in this order
                batch = sorted(batch, key=_left_nothing)
        try:
            settled: Settled = await self._ask(
                lambda: self.store.settle(
                    self.name,
                    self._tools.owner,
                    settlements,
                    done=done,
                    number=number,
                    claim_next=room,
                    known=known,
                )
            )
        except Exception as error:  # a value that cannot be sent, too, costs its own job at most
            self._settle_failed(batch, error)
            return
        finally:
            self._asked -= room
        lost = 0
        lease_lost = Verdict.LOST
        if lease_lost in settled.verdicts or len(settled.verdicts) != len(batch):
            for run, verdict in zip(batch, settled.verdicts, strict=True):
                if verdict is lease_lost:
                    lost += 1
                    log.warning("outcome_dropped", job_id=run.lease.job_id, epoch=run.lease.epoch)
                self._release(run)
        else:
            self._release_all(batch)
        self.tally.lost += lost
        self.tally.ended += len(batch) - lost
        if self.on_ended is not None:
            self.on_ended()
        self._took(settled.claimed, room, known, asked_at)

    def _settle_failed(self, batch: list[Run], error: Exception) -> None:
        """One bad settlement must not hold the others: try each alone; one that fails alone has failed."""
        self._hungry = True
        if len(batch) == 1:
            run = batch[0]
            log.error("settle_failed", job_id=run.lease.job_id, job_type=run.claim.type, error=_brief(error))
            if run.plain or isinstance(error, ScriptFailed | UnknownReply):
                self._release(run)  # Redis has it, and its lease brings it back
                return
            run.plain = True
            run.settlement = self.runner.fail_plainly(run, f"its outcome could not be sent: {_brief(error)}")
            if run.settlement is None:
                self.put_back([run])
                return
        for run in batch:
            self._send_settle([run], 0)

    async def _return(self, runs: list[Run], reason: str = "drained") -> None:
        for first in range(0, len(runs), CHUNK):
            chunk = runs[first : first + CHUNK]
            leases = [run.lease for run in chunk]
            verdicts = await self._requeue(leases, reason)
            self.tally.requeued += sum(verdict is not Verdict.LOST for verdict in verdicts)
            for run in chunk:
                self._release(run)
        self.hunger()

    async def _charge(self, run: Run, exit_reason: str) -> None:
        try:
            await self._ask(lambda: self.store.child_died(self.name, [(run.lease, exit_reason)]))
        except (ScriptFailed, UnknownReply) as error:
            log.error("charge_failed", error=str(error), queue=self.name.queue)  # its lease brings it back
        self._release(run)
        self.hunger()

    async def _requeue(self, leases: Sequence[Lease], reason: str) -> Sequence[Verdict]:
        try:
            return await self._ask(
                lambda: self.store.requeue(self.name, self._tools.owner, leases, put=self.put, reason=reason)
            )
        except (ScriptFailed, UnknownReply) as error:
            log.error("requeue_failed", error=str(error), queue=self.name.queue)
            return [Verdict.LOST] * len(leases)

    async def _ask(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of `call`, asked again until there is one: its number makes that safe."""
        while True:
            try:
                answer = await call()
            except LOST as error:
                await self.link.pause(error)
            else:
                self.link.answered()
                return answer

    def _took(self, claimed: Claimed, room: int, known: Sequence[str], asked_at: float) -> None:
        now = self._loop.time()
        self.passed_at = now
        if known and room:
            self._parked_left = claimed.parked
        self._heed_time(claimed.now_ms, asked_at)
        self._heed_config(claimed.config_revision)
        if claimed.claims:
            now_ms, take, runner = claimed.now_ms, self._take, self.runner
            runs, strays, working, begin = self.runs, self._strays, self.working, runner.begin
            runner.look()
            for claim in claimed.claims:
                run = Run(claim, now, now_ms)
                job_id = run.job_id
                if job_id in runs or job_id in strays:
                    take(run)
                    continue
                runs[job_id] = run
                working.add(run)
                begin(run)
        if claimed.claims and not self._announcing:
            self._announcing = True
            self._loop.call_later(ANNOUNCE_AFTER, self._announce)
        if claimed.refused:
            self._refused(claimed.refused)
        elif claimed.more or (room and len(claimed.claims) >= room):
            self._hungry = True
            self.short.clear()
        elif room:
            self._hungry = False
            self.short.set()
            # Only here is a marker handed on: a full claim, or a settle that asked for none, knows no due time, and a
            # lane that forgot by it that it holds the marker met every later due time 250 ms late.
            holds, self._holds_due = self._holds_due, False
            if claimed.next_at_ms is not None:
                self._wait_until(claimed.next_at_ms, holds=holds)

    def _take(self, run: Run) -> None:
        """Begin a run whose id this lane has, or had."""
        job_id = run.job_id
        old = self.runs.get(job_id) or self._strays.get(job_id)
        self.runs[job_id] = run
        if old is not None and not old.over:
            # This id was taken from us and came back: its old run must end before the new one starts.
            self.working.add(run)
            self._waiting_for[job_id] = run
            old.phase = GONE
            self._strays[job_id] = old
            self.runner.stop(old, StopReason.LOST)
            return
        self.working.add(run)
        self.runner.begin(run)

    def _start_waiting(self, ended: Run) -> None:
        run = self._waiting_for.pop(ended.lease.job_id, None) if self._waiting_for else None
        if run is not None and run.phase is RUNNING:
            self.runner.begin(run)

    def _release_all(self, batch: Sequence[Run]) -> None:
        runs = self.runs
        for run in batch:
            job_id = run.job_id
            if run.over and runs.get(job_id) is run:
                run.phase = GONE
                del runs[job_id]
            else:
                self._release(run)

    def _release(self, run: Run) -> None:
        run.phase = GONE
        job_id = run.job_id
        if self.runs.get(job_id) is run:
            del self.runs[job_id]
        if run.task is None and not run.over:
            self.working.discard(run)  # it waited for an old run to end, and never began
        elif not run.over:
            self._strays[job_id] = run

    # --- what replies say ------------------------------------------------------------------------------------

    def _refused(self, reason: str) -> None:
        self.short.clear()
        if reason == "quiesced":
            # Until a renewal says otherwise: a quiesced worker pops no marker that another could answer.
            self.quiesced = True
            return
        self._hungry = False
        self._loop.call_later(OTHERS_LATER, self.short.set)

    def _heed_quiesce(self, token: str) -> None:
        self.quiesce_token = token
        was, self.quiesced = self.quiesced, bool(token)
        if was and not token:
            self.hunger()
        elif token and not was:
            log.info("quiesced", queue=self.name.queue)
            self.short.clear()

    def _heed_config(self, revision: int) -> None:
        if revision != self._config_revision and not self._configuring:
            self._config_revision = revision
            self._configuring = True
            self.own(self._read_config())

    async def _read_config(self) -> None:
        try:
            self.config = await self._ask(lambda: self.store.config(self.name))
            self.config_version += 1
        except (ScriptFailed, UnknownReply) as error:
            log.error("config_unreadable", error=str(error), queue=self.name.queue)
        finally:
            self._configuring = False

    def _wait_until(self, due_ms: int, *, holds: bool) -> None:
        """Claim when Redis TIME reaches `due_ms`: the server's own timeout came 67 ms late (measured)."""
        delay = max(due_ms - self._redis_ms(), 0) / 1000 + (0 if holds else OTHERS_LATER)
        # uvloop rounds to the nearest millisecond: half of the claims came before their time, and again.
        at = math.ceil((clock.monotonic() + delay) * 1000 - 0.05) / 1000
        if self.closed or at >= self._due_at:
            # The claim at the earlier time is to hand this marker on.
            self._holds_due = self._holds_due or holds
            return
        if self._due_timer is not None:
            self._due_timer.cancel()
            self._holds_due = self._holds_due or self._timer_holds
        self._due_at, self._timer_holds = at, holds
        self._due_timer = self._loop.call_at(at, self._due)

    def _due(self) -> None:
        self._due_at = float("inf")
        self._due_timer = None
        self._holds_due = self._holds_due or self._timer_holds
        self.hunger()

    def _heed_time(self, redis_ms: int, asked_at: float) -> None:
        """Narrow down Redis TIME: it was `redis_ms` at some moment between the asking and now.

        The last reply alone does not tell: one that a write to the disk held up by 100 ms after the script had looked
        at the clock made all due times 100 ms late until the next.
        Source    the intersection of intervals: Marzullo and Owicki (1983)
        """
        least = redis_ms - clock.monotonic() * 1000
        most = redis_ms + 1 - asked_at * 1000
        known = least if self._offset_ms is None else max(self._offset_ms, least)
        self._offset_ms = min(known, most)

    def _redis_ms(self) -> float:
        """Redis TIME as the replies let us know it; ahead of it at most by what the clocks have parted since."""
        return clock.monotonic() * 1000 + (self._offset_ms or 0.0)

    def _known_now(self) -> Sequence[str]:
        now = self._loop.time()
        if now - self._parked_at < PARKED_EVERY and not self._parked_left:
            return ()
        self._parked_at = now
        return self._tools.known

    def _announce(self) -> None:
        """Send `start` for the jobs that run for a while."""
        self._announcing = False
        now = self._loop.time()
        young = False
        runs: list[Run] = []
        for run in self.working:
            if run.announced or run.phase is not RUNNING:
                continue
            if now - run.started_at >= ANNOUNCE_AFTER:
                run.announced = True
                runs.append(run)
            else:
                young = True
        for first in range(0, len(runs), CHUNK):
            self.own(self._send_start(runs[first : first + CHUNK]))
        if young:
            self._announcing = True
            self._loop.call_later(ANNOUNCE_AFTER, self._announce)

    async def _send_start(self, runs: list[Run]) -> None:
        try:
            verdicts = await self.store.start(self.name, [run.lease for run in runs])
        except (*LOST, ScriptFailed, UnknownReply) as error:
            # The settle brings the true start time; only the look of the queue is behind until then.
            log.debug("start_not_sent", error=str(error))
            return
        for run, verdict in zip(runs, verdicts, strict=True):
            if verdict is Verdict.LOST and run.phase is RUNNING:
                self.lose(run)

    def _learn(self) -> None:
        """What ended in this tick goes to what waits for a call; its time counts for its type's mean."""
        runs, self._just_ended = self._just_ended, []
        now, mean_s = self._loop.time(), self.mean_s
        for run in runs:
            elapsed, kind = now - run.started_at, run.claim[1]
            mean = mean_s.get(kind)
            mean_s[kind] = elapsed if mean is None else mean + NEWEST * (elapsed - mean)
        self._ended += runs


def _left_nothing(run: Run) -> bool:
    return run.settlement is None


def _brief(error: Exception) -> str:
    # Another's text may quote the value that it stumbled over.
    return str(error) if isinstance(error, ScriptFailed | UnknownReply) else type(error).__qualname__


async def _fail(task: asyncio.Task[None]) -> None:
    await task
