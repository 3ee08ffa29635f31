"""A child process: runs the handlers of job types with ``isolation="process"``, one job at a time.

It is started by `worker.children`, imports the app's modules once, opens the app's lifespan, and answers on a socket.
The main thread runs plain functions, so that a signal can interrupt them even in a system call; a second thread has
the event loop: the lifespan, `async def` handlers, middlewares and what contexts write; a third reads what the worker
says. When the worker is gone the child ends, whatever it runs.
"""

from __future__ import annotations

import asyncio
import faulthandler
import importlib
import json
import os
import queue
import runpy
import signal
import socket
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import copy_context
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol, cast

from dockwork import clock
from dockwork.core.jobs import JobInfo, StopReason
from dockwork.core.keys import QueueName
from dockwork.errors import (
    Cancelled,
    Interrupted,
    InvalidValue,
    StoreUnavailable,
    TimedOut,
    Unrecoverable,
    text_of,
)
from dockwork.registry import JobType, registries
from dockwork.store.protocol import Claim, Lease, QueueConfig, Store, Verdict
from dockwork.worker.context import RunContext
from dockwork.worker.frames import Frame, encode_frame, read_frames
from dockwork.worker.heartbeat import resident_bytes
from dockwork.worker.kept import keep
from dockwork.worker.logs import configure, get_logger
from dockwork.worker.loops import guarded_loop
from dockwork.worker.reconnect import Link
from dockwork.worker.runs import CURRENT, Run
from dockwork.worker.told import tell_error

log = get_logger("child")

AnyJobType = JobType[Any, Any]

#: The exit code of a child whose start failed; what went wrong was said before.
NOT_STARTED = 3

#: Of two processes the kernel shall kill the child first when memory is out: its job alone is lost then.
OOM_SCORE_ADJ = "500"

#: What a plain function is interrupted with.
INTERRUPTIONS: Mapping[StopReason, type[BaseException]] = {
    StopReason.DRAIN: Interrupted,
    StopReason.CANCEL: Cancelled,
    StopReason.TIMEOUT: TimedOut,
    StopReason.LOST: Interrupted,
}

_PR_SET_PDEATHSIG = 1


class ChildApp(Protocol):
    """What a child needs of the app whose job types it runs."""

    @property
    def name(self) -> str: ...
    @property
    def middlewares(self) -> Sequence[Callable[..., Awaitable[Any]]]: ...
    def worker_lifespan(self) -> AbstractAsyncContextManager[None]: ...
    def tell_nobody(self) -> None:
        """Subscribers are the worker's to tell, not each child's."""
        ...


class WorkerStore:
    """The part of `Store` that a context writes to: the worker does it, and says what became of it."""

    def __init__(self, ask: Callable[[str, bytes], Awaitable[Verdict]]) -> None:
        self._ask = ask

    async def progress(self, queue: QueueName, lease: Lease, value: bytes) -> Verdict:
        return await self._ask("progress", value)

    async def log(self, queue: QueueName, lease: Lease, lines: Sequence[str]) -> Verdict:
        return await self._ask("log", json.dumps(list(lines)).encode())

    async def checkpoint(self, queue: QueueName, lease: Lease, value: bytes) -> Verdict:
        return await self._ask("checkpoint", value)


class Home:
    """What a context sees of the worker, from here."""

    def __init__(self, store: WorkerStore, loop: asyncio.AbstractEventLoop) -> None:
        self.store = cast(Store, store)
        self.name = QueueName("default", "default")
        self.config = QueueConfig()
        self.link = Link()
        self.drain_deadline: datetime | None = None
        self._loop = loop
        self._owned: set[asyncio.Future[None]] = set()

    def lose(self, run: Run) -> None:
        """The worker knows it already, and stops this run."""

    def own(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._owned.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        self._owned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("write_failed", exc_info=error)


@dataclass(frozen=True, slots=True)
class MainCall:
    """A plain function for the main thread, and where its end is told."""

    run: Run
    function: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None]


class Child:
    """The process: three threads and at most one job."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._send_lock = threading.Lock()
        self._calls: queue.SimpleQueue[MainCall | None] = queue.SimpleQueue()
        self._plan: queue.SimpleQueue[Mapping[str, Any]] = queue.SimpleQueue()
        self._loop = guarded_loop()
        self._end = asyncio.Event()
        self._answers: dict[int, asyncio.Future[Verdict]] = {}
        self._asked = 0
        self._home = Home(WorkerStore(self._ask), self._loop)
        self._run: Run | None = None
        self._in_main: Run | None = None  #: what the main thread may be interrupted for
        self._main_id = threading.get_ident()
        self._types: dict[str, AnyJobType] = {}
        self._middlewares: tuple[Callable[..., Awaitable[Any]], ...] = ()
        self._code = 0

    def work(self) -> int:
        """Until the worker says so; the exit code."""
        signal.signal(signal.SIGTERM, self._interrupt)
        # Not SIG_IGN: a program that a handler starts would inherit it, and could not be interrupted.
        signal.signal(signal.SIGINT, _heed_not)
        signal.signal(signal.SIGHUP, _heed_not)
        threading.Thread(target=self._read, name="dockwork-child-reader", daemon=True).start()
        plan = self._plan.get()
        if plan["log"] is not None:
            configure(*plan["log"])
        try:
            app = self._import(plan)
        except BaseException as error:  # the user's modules: whatever they raise
            self._send("failed", **tell_error(error))
            return NOT_STARTED
        looping = threading.Thread(target=self._turn, args=(app,), name="dockwork-child-loop", daemon=True)
        looping.start()
        while (call := self._calls.get()) is not None:
            self._serve(call)
            del call
        looping.join()
        return self._code

    # --- the main thread -------------------------------------------------------------------------------------

    def _import(self, plan: Mapping[str, Any]) -> ChildApp:
        for name in plan["modules"]:
            import_module(name, plan["main"])
        found = find_types(plan["app"], plan["types"])
        self._types = found
        app = cast(ChildApp, next(iter(found.values())).producer)
        self._middlewares = tuple(app.middlewares)
        for job_type in found.values():
            _ = job_type.signature  # now, and not in its first run
        return app

    def _serve(self, call: MainCall) -> None:
        value, error = None, None
        try:
            value, error = self._called(call)
        except BaseException as late:  # an interruption that came between the handler's end and ours
            error = late
        finally:
            self._in_main = None
        call.done(value, error)

    def _called(self, call: MainCall) -> tuple[Any, BaseException | None]:
        self._in_main = call.run
        if call.run.stop_reason is not None:
            return None, INTERRUPTIONS[call.run.stop_reason]()
        try:
            value = call.function()
        except BaseException as error:
            self._in_main = None
            return None, error
        self._in_main = None
        return value, None

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """SIGTERM: the reader's, for the run of the main thread; anybody else's is the worker's business."""
        run = self._in_main
        if run is not None and run.stop_reason is not None:
            raise INTERRUPTIONS[run.stop_reason]

    # --- the reading thread ----------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            for frame in read_frames(self._sock.recv):
                self._hear(frame)
        except OSError:
            pass
        _end_group()  # the worker is gone: what this child and its programs still do is nobody's

    def _hear(self, frame: Frame) -> None:
        head = frame.head
        match frame.do:
            case "start":
                self._plan.put(head)
            case "run":
                self._loop.call_soon_threadsafe(self._begin, frame)
            case "stop":
                self._stop(head["job_id"], head["epoch"], StopReason(head["reason"]))
            case "drain":
                self._home.drain_deadline = datetime.fromtimestamp(head["at"], UTC)
            case "answer":
                self._loop.call_soon_threadsafe(self._answered, head["number"], head["verdict"])
            case "end":
                self._loop.call_soon_threadsafe(self._end.set)

    def _stop(self, job_id: str, epoch: int, reason: StopReason) -> None:
        run = self._run
        if run is None or run.over or run.lease != (job_id, epoch):
            return
        run.stop_reason = reason
        if self._in_main is run:
            signal.pthread_kill(self._main_id, signal.SIGTERM)
        elif run.task is not None:
            self._loop.call_soon_threadsafe(self._cancel, run)

    def _cancel(self, run: Run) -> None:
        if run.task is not None and not run.over and self._in_main is not run:
            run.task.cancel()

    # --- the event loop's thread -----------------------------------------------------------------------------

    def _turn(self, app: ChildApp) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            main = self._loop.run_until_complete(self._begun(app))
            while not main.done():
                try:
                    self._loop.run_until_complete(main)
                except SystemExit:
                    if main.done():
                        raise
                    log.error("exit_ignored", message="a handler's task called sys.exit; the child goes on")
        finally:
            self._calls.put(None)

    async def _begun(self, app: ChildApp) -> asyncio.Task[None]:
        return keep(self._live(app), name="child")

    async def _live(self, app: ChildApp) -> None:
        try:
            async with AsyncExitStack() as stack:
                try:
                    app.tell_nobody()
                    await stack.enter_async_context(app.worker_lifespan())
                except Exception as error:
                    self._code = NOT_STARTED
                    self._send("failed", **tell_error(error))
                    return
                self._send("ready", rss=resident_bytes())
                await self._end.wait()
        except Exception as error:  # the lifespan's end: nothing that ran is concerned
            log.error("lifespan_failed", exc_info=error)

    def _begin(self, frame: Frame) -> None:
        self._send("begun")
        told = dict(frame.head["claim"])
        checkpoint = told.pop("checkpoint")
        claim = Claim(
            **{
                **told,
                "lease": Lease(*told["lease"]),
                "envelope": frame.body,
                "checkpoint": None if checkpoint is None else checkpoint.encode(),
            }
        )
        run = Run(claim, self._loop.time(), frame.head["started_ms"])
        run.timeout_s = frame.head["timeout_s"]
        self._home.name = QueueName(*frame.head["queue"])
        max_checkpoint, max_progress = frame.head["sizes"]
        self._home.config = QueueConfig(max_checkpoint=max_checkpoint, max_progress=max_progress)
        self._run = run
        run.task = self._loop.create_task(self._drive(run))

    async def _drive(self, run: Run) -> None:
        CURRENT.set(run)
        job_type = self._types[run.claim.type]
        try:
            if job_type.sealing is None:
                opened = job_type.open(run.claim.envelope)
            else:
                from dockwork.worker.guards import Guard

                run.guard = Guard(job_type, run.claim)
                opened = run.guard.opened
            run.headers = opened.headers
            arguments = opened.arguments
            context = run.context = RunContext(run, self._home)
            if job_type.context_parameter is not None:
                arguments[job_type.context_parameter] = context
            value = await self._through_middlewares(run, job_type, arguments, context.job)
            result = _dumped(job_type, value)
        except BaseException as error:  # SystemExit of a handler, too, is its own failure and not ours
            told = tell_error(error)
            if run.guard is not None:
                told |= {part: run.guard.text(told[part]) for part in ("message", "trace")}
            await self._finish(run, "failed_run", b"", told)
        else:
            await self._finish(run, "returned", result, {})

    async def _finish(self, run: Run, do: str, body: bytes, more: dict[str, Any]) -> None:
        run.over = True
        progress = None
        if run.context is not None:
            if run.context.has_lines:
                try:
                    await run.context.flush_lines()
                except asyncio.CancelledError:
                    pass  # the outcome counts more than the last lines
            value = run.context.take_progress()
            progress = None if value is None else value.decode()
        self._run = None
        self._send(do, body, progress=progress, rss=resident_bytes(), **more)

    async def _through_middlewares(
        self, run: Run, job_type: AnyJobType, arguments: dict[str, Any], job: JobInfo
    ) -> Any:
        async def innermost(_: JobInfo) -> Any:
            if job_type.is_async:
                return await job_type.fn(**arguments)
            return await self._in_main_thread(run, partial(job_type.fn, **arguments))

        following: Callable[[JobInfo], Awaitable[Any]] = innermost
        for middleware in reversed(self._middlewares):
            following = partial(middleware, call_next=following)
        return await following(job)

    async def _in_main_thread(self, run: Run, function: Callable[[], Any]) -> Any:
        ended: asyncio.Future[tuple[Any, BaseException | None]] = self._loop.create_future()

        def done(value: Any, error: BaseException | None) -> None:
            self._loop.call_soon_threadsafe(ended.set_result, (value, error))

        self._calls.put(MainCall(run, partial(copy_context().run, function), done))
        value, error = await asyncio.shield(ended)
        if error is not None:
            raise error
        return value

    # --- what the worker is asked ----------------------------------------------------------------------------

    async def _ask(self, do: str, body: bytes) -> Verdict:
        self._asked += 1
        number = self._asked
        answer = self._answers[number] = self._loop.create_future()
        self._send(do, body, number=number)
        try:
            verdict: Verdict = await answer
            return verdict
        finally:
            del self._answers[number]

    def _answered(self, number: int, verdict: str | None) -> None:
        answer = self._answers.get(number)
        if answer is None or answer.done():
            return
        if verdict is None:
            answer.set_exception(StoreUnavailable("the worker does not reach Redis"))
        else:
            answer.set_result(Verdict(verdict))

    def _send(self, do: str, body: bytes = b"", /, **more: Any) -> None:
        with self._send_lock:
            try:
                self._sock.sendall(encode_frame(do, body, **more))
            except OSError:
                pass  # the worker is gone, and the reading thread sees it


def _dumped(job_type: AnyJobType, value: Any) -> bytes:
    try:
        return job_type.dump_result(value)
    except InvalidValue as error:
        raise Unrecoverable(text_of(error)) from None


def import_module(name: str, main: Sequence[str] | None) -> None:
    """Import `name`; for the program itself its file or module, under the name that keeps it from starting again."""
    if name != "__main__":
        importlib.import_module(name)
        return
    if main is None:
        raise InvalidValue("isolation", expected="job types in a module that can be imported", got="__main__")
    kind, where = main
    module = types.ModuleType("__mp_main__")
    # As multiprocessing names it, so that `if __name__ == "__main__"` guards work.
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    run = runpy.run_module if kind == "module" else runpy.run_path
    module.__dict__.update(run(where, run_name="__mp_main__"))


def find_types(app: str, wanted: Mapping[str, str]) -> dict[str, AnyJobType]:
    """The job types of the app that has all of them: name -> the function's qualified name.

    Raises    InvalidValue naming one that this process does not find
    """
    missing = ""
    for registry in registries():
        found: dict[str, AnyJobType] = {}
        for name, qualname in wanted.items():
            job_type = registry.get(name)
            if job_type is None or job_type.fn.__qualname__ != qualname:
                missing = name
                break
            found[name] = job_type
        else:
            if getattr(next(iter(found.values())).producer, "name", app) == app:
                return found
    expected = "a function that a new process finds by importing its module"
    raise InvalidValue(
        f"isolation of job type {missing or next(iter(wanted))}", expected=expected, got="none"
    )


def _heed_not(number: int, frame: FrameType | None) -> None:
    """A signal to all processes of a terminal or a group: the worker decides what becomes of its children."""


def _end_group() -> NoReturn:
    if os.getpgrp() == os.getpid():  # else the group is somebody else's
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _die_with(parent: int) -> None:
    """End when the worker does, even while a handler holds the interpreter so that no thread of ours runs."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        _end_group()


def _go_first() -> None:
    try:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJ)
    except OSError:
        return  # not Linux, or not allowed


def main(number: int, parent: int) -> NoReturn:
    """The child's life, on the socket with this number."""
    _die_with(parent)
    _go_first()
    faulthandler.enable()
    started = clock.monotonic()
    code = Child(socket.socket(fileno=number)).work()
    log.debug("child_ended", code=code, lived_s=round(clock.monotonic() - started, 1))
    sys.exit(code)  # as any program ends, with what `atexit` has; the worker waits a moment only
