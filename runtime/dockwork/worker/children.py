"""Child processes for job types with ``isolation="process"``: spawned, warm, recycled, and killable.

A child belongs to one job while it runs, so that what is done to a job is done to one process: its soft timeout
interrupts it, its hard one kills it with all that it started, and its death is its own job's alone. Each child leads
a session of its own: signals to the worker's group do not reach it, and its programs die with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from dockwork import clock
from dockwork.core.jobs import StopReason
from dockwork.core.keys import QueueName
from dockwork.errors import DockworkError
from dockwork.registry import JobType
from dockwork.store.protocol import Outcome, QueueConfig, Settlement, Store, Verdict
from dockwork.worker import logs
from dockwork.worker.frames import Frame, Frames, encode_frame
from dockwork.worker.kept import keep, outlast
from dockwork.worker.logs import get_logger
from dockwork.worker.reconnect import LOST, Link
from dockwork.worker.runs import Run

log = get_logger("children")

#: What a child gets to import the app and to open its lifespan.
START_WITHIN_S = 60.0
#: What a child gets to close its lifespan and to end, when no drain's end is nearer.
END_WITHIN_S = 10.0
#: A child whose job is another worker's now gets so long to stop by itself.
LOST_WITHIN_S = 1.0
#: A child whose job was cancelled likewise; then it is killed, and the job is cancelled all the same.
CANCELLED_WITHIN_S = 10.0
#: What a dead child said last is waited for so long: programs that it started may hold its end of the socket.
LAST_WORDS_S = 0.5
#: Of the children that nobody needs, all but one end after this.
IDLE_S = 300.0
#: As many jobs a child runs before a fresh one takes its place, where nobody says otherwise: what leaks, leaks little.
JOBS_PER_CHILD = 1000
#: Between two tries to start a child after one that failed.
AFTER_FAILURE_S = 1.0

_START = (
    "import sys; sys.path[:] = __import__('json').loads(sys.argv[3]); "
    "from dockwork.worker.child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)


class ChildNotStarted(DockworkError):
    """A child process did not come up."""


class ChildDied(DockworkError):
    """The child process ended under its job.

    exit    the signal or the exit code, for people
    """

    def __init__(self, exit: str) -> None:
        self.exit = exit
        super().__init__(f"the child process died: {exit}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """When a child is replaced, after the job that it runs.

    max_jobs        jobs
    max_rss         bytes of resident memory; None = any
    """

    max_jobs: int = JOBS_PER_CHILD
    max_rss: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What a child imports, and which job types it must find there.

    modules    in order
    main       how to run the program itself, where ``__main__`` is among the modules: ("module" | "path", where)
    types      name -> the function's qualified name
    """

    app: str
    modules: tuple[str, ...]
    main: tuple[str, str] | None
    types: Mapping[str, str]


class Home(Protocol):
    """What a run's child needs of the lane around it."""

    @property
    def store(self) -> Store: ...
    @property
    def name(self) -> QueueName: ...
    @property
    def config(self) -> QueueConfig: ...
    @property
    def link(self) -> Link: ...
    def lose(self, run: Run) -> None: ...
    def own(self, work: Awaitable[None]) -> None: ...


class Ended(NamedTuple):
    """What a child said at the end of a run.

    result    JSON, if the handler returned
    told      what it raised otherwise; see `told`
    """

    result: bytes | None
    told: Mapping[str, Any] | None
    progress: bytes | None


class LastWords:
    """What a child's context still held: the last progress, for the settle."""

    has_lines = False

    def __init__(self, progress: bytes | None) -> None:
        self._progress = progress

    async def flush_lines(self) -> None:
        """The child did."""

    def take_progress(self) -> bytes | None:
        value, self._progress = self._progress, None
        return value


def snoozed(run: Run, delay_s: float, reason: str) -> Settlement:
    """The job again after a while, with nothing counted."""
    delay_ms = round(delay_s * 1000)
    return Settlement(
        lease=run.lease, outcome=Outcome.SNOOZE, started_ms=run.started_ms, delay_ms=delay_ms, reason=reason
    )


class Child(asyncio.Protocol):
    """One process. Its methods are for the event loop."""

    def __init__(self, plan: Plan, ended: Callable[[Child], None]) -> None:
        self.jobs = 0
        self.rss = 0
        self.idle_at = 0.0
        self.exit = ""  #: how it ended; "" while it lives
        self.retiring = False
        self.doomed = False  #: it was killed, and may not know it yet
        self._plan = plan
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._closed = asyncio.Event()
        self.gone = asyncio.Event()
        self._frames = Frames()
        self._run: Run | None = None
        self._home: Home | None = None
        self._stopped: StopReason | None = None
        self._begun = False  #: the child has heard of its run
        self._result: asyncio.Future[Ended] | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._writing: set[asyncio.Task[None]] = set()
        self._kill_timer: asyncio.TimerHandle | None = None
        self._oom_kills = oom_kills()
        ours, theirs = socket.socketpair()
        try:
            self._process = self._popen(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._sock = ours
        self.pid = self._process.pid
        threading.Thread(target=self._wait, name=f"dockwork-child-{self.pid}", daemon=True).start()

    def _popen(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        # On the loop's thread, which lives as long as the worker: a child dies with the thread that started it.
        number = theirs.fileno()
        command = [sys.executable, "-c", _START, str(number), str(os.getpid()), json.dumps(sys.path)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=(number,), start_new_session=True)

    @property
    def busy(self) -> bool:
        return self._run is not None

    @property
    def was_ready(self) -> bool:
        return self._ready.done() and self._ready.exception() is None

    async def start(self) -> None:
        """Return when it has imported the app and opened its lifespan. Raises ChildNotStarted."""
        plan = self._plan
        try:
            await self._loop.create_unix_connection(lambda: self, sock=self._sock)
            self._send(
                "start",
                app=plan.app,
                modules=plan.modules,
                main=plan.main,
                types=plan.types,
                log=logs.configured(),
            )
            async with asyncio.timeout(START_WITHIN_S):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self.kill()
            raise ChildNotStarted(f"it was not ready within {START_WITHIN_S:g} s") from None
        except BaseException:
            self.kill()
            raise

    async def call(self, run: Run, home: Home) -> Ended:
        """Run the handler there. Raises ChildDied; ChildNotStarted; a call that is cancelled kills the child."""
        self._run, self._home, self._stopped, self._begun = run, home, None, False
        result = self._result = self._loop.create_future()
        claim = run.claim
        checkpoint = claim.checkpoint
        told = {
            **claim._asdict(),
            "lease": list(claim.lease),
            "envelope": None,
            "checkpoint": None if checkpoint is None else checkpoint.decode("utf-8", "replace"),
        }
        queue = (home.name.namespace, home.name.queue)
        if self.exit:
            self._say_died()
        else:
            self._send(
                "run",
                claim.envelope,
                claim=told,
                queue=queue,
                started_ms=run.started_ms,
                timeout_s=run.timeout_s,
                sizes=(home.config.max_checkpoint, home.config.max_progress),
            )
        run.elsewhere = self
        try:
            ended: Ended = await outlast(result)
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            run.elsewhere = None
            self._run = self._home = self._result = None
            self._disarm()
            self.jobs += 1
        if self._writing:  # their answers come before the settle that ends the lease
            await asyncio.wait(self._writing, timeout=1)
        return ended

    def inject(self, run: Run, error: type[BaseException]) -> bool:
        """Ask the handler of `run` to stop; where its outcome counts for nothing any more, not for long."""
        reason = run.stop_reason
        if run is not self._run or reason is None or self.exit:
            return False
        if reason is self._stopped:
            return True  # each renewal says it again
        self._stopped = reason
        lease = run.lease
        self._send("stop", job_id=lease.job_id, epoch=lease.epoch, reason=reason.value)
        wait_s = {StopReason.LOST: LOST_WITHIN_S, StopReason.CANCEL: CANCELLED_WITHIN_S}.get(reason)
        if wait_s is not None:
            self._kill_in(wait_s)
        return True

    def kill(self, run: Run | None = None) -> bool:
        """Kill it with all that it started; with `run`, only if that is what it runs."""
        if self.exit or (run is not None and run is not self._run):
            return False
        self.doomed = True
        _kill_group(self.pid)
        return True

    def tell_drain(self, ends_at: datetime) -> None:
        self._send("drain", at=ends_at.timestamp())

    def retire(self, within_s: float) -> None:
        """Let it close its lifespan and end; killed when it does not."""
        if not self.retiring:
            self.retiring = True
            self._send("end")
        self._kill_in(within_s)

    # --- what it says ----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's is no subclass of it

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            self._hear(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closed.set()

    def _hear(self, frame: Frame) -> None:
        head = frame.head
        self.rss = head.get("rss", self.rss)
        match frame.do:
            case "ready":
                if not self._ready.done():
                    self._ready.set_result(None)
            case "failed":
                self._fail_start(f"{head['class']}: {head['message']}", head["trace"])
            case "begun":
                self._begun = True
            case "returned":
                self._resolve(Ended(frame.body, None, _bytes(head["progress"])))
            case "failed_run":
                self._resolve(Ended(None, head, _bytes(head["progress"])))
            case "progress" | "checkpoint" | "log" as what:
                if self._run is not None and self._home is not None:
                    writing = keep(self._write(self._run, self._home, what, frame.body, head["number"]))
                    self._writing.add(writing)
                    writing.add_done_callback(self._writing.discard)

    def _resolve(self, ended: Ended) -> None:
        if self._result is not None and not self._result.done():
            self._result.set_result(ended)

    def _fail_start(self, message: str, trace: str = "") -> None:
        if not self._ready.done():
            if trace:
                log.error("child_not_started", message=message, trace=trace)
            self._ready.set_exception(ChildNotStarted(message))
            self._ready.exception()  # asked for or not

    async def _write(self, run: Run, home: Home, what: str, body: bytes, number: int) -> None:
        """Carry out what a context asked for, and say what became of it."""
        verdict: Verdict | None = None
        try:
            match what:
                case "progress":
                    verdict = await home.store.progress(home.name, run.lease, body)
                case "checkpoint":
                    if run.guard is not None:
                        run.guard.checkpoint_written()
                    verdict = await home.store.checkpoint(home.name, run.lease, body)
                case _:
                    verdict = await home.store.log(home.name, run.lease, json.loads(body))
        except LOST as error:
            home.link.failed(error)
        except DockworkError as error:
            log.error("write_failed", job_id=run.lease.job_id, what=what, error=str(error))
        if verdict is Verdict.LOST and not run.over:
            home.lose(run)
        self._send("answer", number=number, verdict=None if verdict is None else verdict.value)

    def _send(self, do: str, body: bytes = b"", /, **more: Any) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(do, body, **more))

    # --- its end ---------------------------------------------------------------------------------------------

    def _kill_in(self, seconds: float) -> None:
        self._disarm()
        self._kill_timer = self._loop.call_later(seconds, self.kill)

    def _disarm(self) -> None:
        if self._kill_timer is not None:
            self._kill_timer.cancel()
            self._kill_timer = None

    def _wait(self) -> None:
        """In a thread of its own: wait for the end, and reap what the child leaves behind."""
        code = self._process.wait()
        _kill_group(self.pid)
        try:
            self._loop.call_soon_threadsafe(self._exited, code)
        except RuntimeError:
            pass  # the loop has ended
        _reap_group(self.pid)

    def _exited(self, code: int) -> None:
        self._going = keep(self._say_gone(code))

    async def _say_gone(self, code: int) -> None:
        if self._transport is not None:
            try:
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._closed.wait()
            except TimeoutError:
                pass
        self._disarm()
        self.exit = describe_exit(code, out_of_memory=oom_kills() > self._oom_kills)
        if self._transport is not None:
            self._transport.abort()
            await self._closed.wait()
        elif not self._closed.is_set():
            self._sock.close()
        self._fail_start(f"it ended before it was ready: {self.exit}")
        self._say_died()
        self.gone.set()
        self._ended(self)

    def _say_died(self) -> None:
        if self._result is not None and not self._result.done():
            if self._begun or self.doomed:
                self._result.set_exception(ChildDied(self.exit))
            else:  # an idle child's death is no job's
                self._result.set_exception(ChildNotStarted(f"it died before the handler began: {self.exit}"))


class Children:
    """The children of one worker: a new one only when all others are busy."""

    def __init__(self, plan: Plan, limits: Limits) -> None:
        self.limits = limits
        self.deaths = 0
        self.recycled = 0
        self._plan = plan
        self._all: set[Child] = set()
        self._idle: list[Child] = []
        self._starting: set[asyncio.Task[None]] = set()
        self._drain_at: datetime | None = None
        self._closed = False

    @property
    def count(self) -> int:
        return len(self._all)

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self._all]

    async def warm(self) -> None:
        """Have one ready. Raises ChildNotStarted with what keeps it from starting."""
        self._rest(await self._new())

    async def run(self, run: Run, home: Home, begun: Callable[[], None]) -> Ended:
        """Run a job in a child; `begun` is called when one is ready for it.

        Raises    ChildDied; ChildNotStarted
        """
        child = await self._take()
        begun()
        try:
            return await child.call(run, home)
        finally:
            self._give_back(child)

    def drain(self, ends_at: datetime) -> None:
        """Let running handlers know that the worker drains."""
        self._drain_at = ends_at
        for child in self._all:
            child.tell_drain(ends_at)

    def kill_busy(self) -> None:
        """Kill the children whose runs were given up."""
        for child in self._all:
            if child.busy:
                child.kill()

    async def close(self, within_s: float = END_WITHIN_S) -> None:
        """End all; those that do not in time are killed."""
        self._closed = True
        for starting in self._starting:
            starting.cancel()
        self._idle.clear()
        children = list(self._all)
        for child in children:
            child.kill() if child.busy else child.retire(within_s)
        try:
            async with asyncio.timeout(within_s + 1):
                for child in children:
                    await child.gone.wait()
        except TimeoutError:
            log.error("children_left", pids=[child.pid for child in children if not child.exit])

    async def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if not child.exit and not child.doomed:
                return child
        return await self._new()

    async def _new(self) -> Child:
        try:
            child = Child(self._plan, self._gone)
        except OSError as error:  # no process, no memory, no file descriptors
            raise ChildNotStarted(f"{type(error).__name__}: {error}") from None
        self._all.add(child)
        await child.start()
        if self._drain_at is not None:
            child.tell_drain(self._drain_at)
        return child

    def _give_back(self, child: Child) -> None:
        over = self.limits.max_rss is not None and child.rss > self.limits.max_rss
        if child.exit or child.doomed or self._closed:
            return
        if over or child.jobs >= self.limits.max_jobs:
            log.info("child_recycled", pid=child.pid, jobs=child.jobs, rss=child.rss)
            self.recycled += 1
            child.retire(END_WITHIN_S)
            self._have_spare()
        else:
            self._rest(child)

    def _rest(self, child: Child) -> None:
        child.idle_at = clock.monotonic()
        self._idle.append(child)
        if len(self._idle) > 1:
            asyncio.get_running_loop().call_later(IDLE_S, self._shrink)

    def _shrink(self) -> None:
        """End those that nobody needed for long; the one that was used last stays."""
        before = clock.monotonic() - IDLE_S
        for child in [each for each in self._idle[:-1] if each.idle_at <= before]:
            self._idle.remove(child)
            child.retire(END_WITHIN_S)

    def _have_spare(self) -> None:
        if not self._closed and not self._idle and not self._starting and self._drain_at is None:
            starting = keep(self._start_spare(), name="start-child")
            self._starting.add(starting)
            starting.add_done_callback(self._starting.discard)

    async def _start_spare(self) -> None:
        try:
            self._rest(await self._new())
        except ChildNotStarted as error:
            log.error("child_not_started", message=str(error))  # the next job tries again

    def _gone(self, child: Child) -> None:
        self._all.discard(child)
        if child in self._idle:
            self._idle.remove(child)
        if child.was_ready and not child.retiring and not self._closed:
            self.deaths += 1
            log.warning("child_died", pid=child.pid, exit=child.exit, jobs=child.jobs)
            self._have_spare()


def plan_children(app: str, job_types: Iterable[JobType[Any, Any]], modules: Sequence[str]) -> Plan | None:
    """What children import for the job types that ask for one; None if none does."""
    types = {each.name: each.fn.__qualname__ for each in job_types if each.isolation == "process"}
    if not types:
        return None
    main = _main_of() if "__main__" in modules else None
    return Plan(app=app, modules=tuple(modules), main=main, types=types)


def _main_of() -> tuple[str, str] | None:
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None and spec.name:
        return "module", spec.name
    file = getattr(main, "__file__", None)
    return None if file is None else ("path", os.path.abspath(file))


def describe_exit(code: int, *, out_of_memory: bool = False) -> str:
    """How a process ended, for people: its signal or its exit code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        text = f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        text = f"signal {-code}"
    return f"{text}, out of memory" if out_of_memory and -code == signal.SIGKILL else text


def oom_kills(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Processes of this container that the kernel killed for memory, as its cgroup counts them; 0 where it does not."""
    try:
        lines = (cgroup / "memory.events").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _reap_group(pid: int) -> None:
    """As PID 1 of a container the worker inherits what the child had started: those that died are reaped."""
    while True:
        try:
            os.waitpid(-pid, 0)
        except ChildProcessError:
            return
