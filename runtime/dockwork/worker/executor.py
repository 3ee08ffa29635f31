"""Runs claimed jobs: async handlers on the loop, plain functions in threads.

A run never raises: its outcome says what happened.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from dockwork import clock
from dockwork.core.codec import Opened, open_envelope, seal_parts
from dockwork.core.jobs import JobInfo, StopReason
from dockwork.core.retry import DEFAULT_BACKOFF, next_delay
from dockwork.core.sealed import is_sealed
from dockwork.errors import (
    Cancelled,
    DecryptionError,
    DockworkError,
    EncryptionError,
    Interrupted,
    InvalidArgs,
    InvalidValue,
    TimedOut,
    Undecodable,
    Unrecoverable,
    text_of,
)
from dockwork.registry import JobType, Registry
from dockwork.store.protocol import Claim, ErrorReport, Failure, Outcome, Resealed, Settlement
from dockwork.worker.children import AFTER_FAILURE_S, ChildDied, ChildNotStarted, Children, LastWords, snoozed
from dockwork.worker.context import RunContext
from dockwork.worker.deadlines import Deadlines
from dockwork.worker.error_reports import ErrorReports
from dockwork.worker.kept import outlast, spare
from dockwork.worker.lane import Lane
from dockwork.worker.logs import get_logger, jobs_are_shown
from dockwork.worker.outcomes import Facts, decide_outcome, told_error
from dockwork.worker.policies import (
    HARD_AFTER_S,
    RESULT_CAP,
    TRACE_CAP,
    Policy,
    attempts_of,
    choose_policy,
    timeout_of,
)
from dockwork.worker.repeating import repeat_of, with_next_time
from dockwork.worker.runs import CURRENT, NEVER, RUNNING, Run
from dockwork.worker.threads import Call, Threads
from dockwork.worker.told import make_error, told_of

log = get_logger("run")
shown = get_logger("jobs")

AnyJobType = JobType[Any, Any]

#: What a thread's handler is interrupted with.
INTERRUPTIONS: Mapping[StopReason, type[BaseException]] = {
    StopReason.DRAIN: Interrupted,
    StopReason.CANCEL: Cancelled,
    StopReason.TIMEOUT: TimedOut,
    StopReason.LOST: Interrupted,
}


# Looked up once: on Python 3.11 a member of an enum is slow to find, and a named tuple slow to make by keywords.
COMPLETED = Outcome.COMPLETED

#: The rest of the run, as a middleware sees it.
CallNext = Callable[[JobInfo], Awaitable[Any]]
#: Around each run, called ``middleware(job, call_next)``; the first is outermost.
Middleware = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class Prepared:
    """A job type with what each of its runs needs, looked up once."""

    job_type: AnyJobType
    policy: Policy
    open: Callable[[bytes], Opened]
    dump_result: Callable[[Any], bytes]
    children: Children | None  #: where its handler runs; None = in this process
    seals: bool
    schema_hash: str
    quick: Quick | None  #: where its runs may go the short way


@dataclass(slots=True)
class Quick:
    """What is known beforehand of the runs of an asynchronous handler, without middlewares.

    read          the arguments' JSON, checked
    timeout_s     where the call says none; `most_s` for any
    head, tail    what stands around the arguments in an envelope that this version seals without a wish or a header
    nothing       None, returned, is null and no more
    context       the parameter that takes it; "" without one
    """

    fn: Callable[..., Any]
    read: Callable[[bytes], dict[str, Any]]
    head: bytes
    tail: bytes
    timeout_s: float
    most_s: float
    hard_s: float
    nothing: bool
    context: str


class Executor:
    """Begins, stops and judges the runs of one lane."""

    def __init__(
        self,
        lane: Lane,
        registry: Registry,
        threads: Threads,
        *,
        worker: str,
        middlewares: Sequence[Middleware] = (),
        children: Children | None = None,
    ) -> None:
        self._lane = lane
        self._children = children
        self._registry = registry
        self._deadlines = Deadlines(lane.working, self._timed_out, self.abandon)
        self._threads = threads
        self._worker = worker
        self._middlewares = tuple(middlewares)
        self._prepared: dict[str, Prepared] = {}
        self._config_version = lane.config_version
        self._loop = asyncio.get_running_loop()
        self._shown = self._has_factory = False
        self._reporters = registry.error_reporters
        self.reports = ErrorReports(self._reporters, lane.own)

    def look(self) -> None:
        self._shown = jobs_are_shown()
        self._has_factory = self._loop.get_task_factory() is not None
        if self._lane.config_version != self._config_version:
            self._prepared.clear()
            self._config_version = self._lane.config_version

    def begin(self, run: Run) -> None:
        """Start the handler, or settle what has none that could start."""
        claim = run.claim
        prepared = self._prepared.get(claim[1])
        if prepared is not None and (quick := prepared.quick) is not None:
            envelope: bytes = claim[2]
            head, tail = quick.head, quick.tail
            if envelope.startswith(head) and envelope.endswith(tail):
                # Between the two stands the arguments' JSON, or something that is no JSON at all.
                try:
                    arguments = quick.read(envelope[len(head) : -len(tail)])
                except Exception:
                    return self._begin(run, prepared)  # there it fails again, and is told
                timeout_ms = claim[10]
                run.timeout_s = timeout_s = (
                    quick.timeout_s if timeout_ms is None else min(timeout_ms / 1000, quick.most_s)
                )
                run.soft_at = soft_at = run.started_at + timeout_s
                run.hard_at = soft_at + quick.hard_s
                if soft_at < self._deadlines.next:
                    self._deadlines.watch(run)
                if quick.context:
                    run.context = arguments[quick.context] = RunContext(run, self._lane)
                drive = self._drive_quickly(run, prepared, quick, arguments)
                if self._has_factory:
                    run.task = self._loop.create_task(drive)
                else:
                    # Named, or asyncio makes a name for each by a format.
                    run.task = asyncio.Task(drive, loop=self._loop, name=run.job_id)
                return None
        return self._begin(run, prepared or self._prepare(claim[1]))

    def _begin(self, run: Run, prepared: Prepared | None) -> None:
        claim = run.claim
        if prepared is None:
            log.warning("job_parked", job_id=claim.job_id, job_type=claim.type)
            self._finish(run, self._parked(run, claim.type))
            return
        try:
            if prepared.seals:
                opened = _guarded(run, prepared.job_type)
            else:
                opened = prepared.open(claim[2])
                if opened.schema != prepared.schema_hash and any(map(is_sealed, opened.arguments.values())):
                    raise _of_another_schema(opened)
        except (Undecodable, InvalidArgs, DecryptionError) as error:
            self._finish(run, self._unreadable(run, prepared.job_type, error))
            return
        except EncryptionError as error:
            log.error("no_keys", message=str(error), job_id=claim.job_id, job_type=claim.type)
            run.over = True
            self._lane.lack_keys(run)
            return
        except Exception as error:  # a validator of the user's: its defect is this job's and not ours
            self._over(run, error if not prepared.seals else _withheld(error))
            return
        run.headers = opened.headers
        if opened.options:
            run.repeat = repeat_of(opened.options, run.lease.job_id)
        run.timeout_s = timeout_s = timeout_of(claim, prepared.policy)
        if prepared.children is not None:
            run.task = self._loop.create_task(self._drive_in_child(run, prepared, prepared.children))
            return
        now = self._loop.time()
        run.started_ms += int((now - run.started_at) * 1000)
        run.started_at = now
        run.soft_at = now + timeout_s
        run.hard_at = run.soft_at + self._hard_after_s
        self._deadlines.watch(run)
        run.task = self._loop.create_task(self._drive(run, prepared, opened))

    async def _drive_quickly(
        self, run: Run, prepared: Prepared, quick: Quick, arguments: dict[str, Any]
    ) -> None:
        """`_drive` and what follows, for what most handlers do: to end well, and to return nothing."""
        CURRENT.set(run)
        run.began = True
        try:
            value = await quick.fn(**arguments)
        except BaseException as error:  # SystemExit of a handler, too, is its own failure and not ours
            run.over = True
            if run.context is not None and run.context.has_lines:
                await self._flush(run)
            self._over(run, error)
            return
        run.over = True
        if run.context is not None:
            if run.context.has_lines:
                await self._flush(run)
            self._returned(run, prepared, value)
        elif value is None and quick.nothing and not self._shown and run.phase is RUNNING:
            run.task = None
            if run.stop_reason is not None:
                self._deadlines.forget(run)
            self._lane.completed(run)
        else:
            self._returned(run, prepared, value)

    @property
    def _hard_after_s(self) -> float:
        ms = self._lane.config.hard_after_ms
        return HARD_AFTER_S if ms is None else ms / 1000

    def stop(self, run: Run, reason: StopReason) -> None:
        """Ask the handler to end: cancel its task, or interrupt its thread or its process."""
        if run.stop_reason is None or reason is StopReason.LOST:
            run.stop_reason = reason
        if run.over or run.task is None:
            return
        if not run.began:
            # A task that is cancelled before its first step runs none of its code, so we say what became of it.
            run.task.cancel()
            self._over(run, asyncio.CancelledError())
        elif run.elsewhere is None:
            run.task.cancel()
        else:
            run.elsewhere.inject(run, INTERRUPTIONS[reason])

    def close(self) -> None:
        self._deadlines.close()

    def _timed_out(self, run: Run) -> None:
        log.warning(
            "run_timed_out", job_id=run.lease.job_id, job_type=run.claim.type, timeout_s=run.timeout_s
        )
        self.stop(run, StopReason.TIMEOUT)

    def abandon(self, run: Run) -> None:
        """Give `run` up at its hard timeout."""
        if run.stop_reason is None:
            run.stop_reason = StopReason.TIMEOUT
        if run.elsewhere is not None and run.elsewhere.kill(run):
            return  # a child process: its death ends the run, and frees its slot
        settlement = self._judge(run, _over_hard(run))
        if settlement is not None and run.repeat is not None:
            settlement = with_next_time(run.repeat, run.claim, settlement, run.started_ms + self._ms(run))
        if settlement is not None:
            self._report(run, settlement)
            self._lane.abandon(run, settlement)

    async def _drive(self, run: Run, prepared: Prepared, opened: Opened) -> None:
        CURRENT.set(run)
        run.began = True
        job_type = prepared.job_type
        try:
            arguments = opened.arguments
            if job_type.context_parameter is not None:
                context = run.context = RunContext(run, self._lane)
                arguments[job_type.context_parameter] = context
            if self._middlewares:
                value = await self._through_middlewares(run, job_type, arguments)
            elif job_type.is_async:
                value = await job_type.fn(**arguments)
            else:
                value = await self._in_thread(run, job_type, arguments)
        except BaseException as error:  # SystemExit of a handler, too, is its own failure and not ours
            run.over = True
            if run.context is not None and run.context.has_lines:
                await self._flush(run)
            self._over(run, error)
        else:
            run.over = True
            if run.context is not None and run.context.has_lines:
                await self._flush(run)
            self._returned(run, prepared, value)

    async def _through_middlewares(self, run: Run, job_type: AnyJobType, arguments: dict[str, Any]) -> Any:
        async def innermost(job: JobInfo) -> Any:
            if job_type.is_async:
                return await job_type.fn(**arguments)
            return await self._in_thread(run, job_type, arguments)

        following: CallNext = innermost
        for middleware in reversed(self._middlewares):
            following = partial(middleware, call_next=following)
        context = run.context if isinstance(run.context, RunContext) else RunContext(run, self._lane)
        return await following(context.job)

    async def _in_thread(self, run: Run, job_type: AnyJobType, arguments: dict[str, Any]) -> Any:
        ended: asyncio.Future[Any] = self._loop.create_future()
        context = copy_context()
        function = partial(context.run, partial(job_type.fn, **arguments))

        def done(value: Any, error: BaseException | None) -> None:
            try:
                self._loop.call_soon_threadsafe(_resolve, ended, value, error)
            except RuntimeError:
                return  # the loop is closed: the job was given up long ago

        run.elsewhere = self._threads.start(Call(run, function, done))
        value, error = await outlast(ended)
        run.elsewhere = None
        if error is not None:
            raise error
        return value

    async def _drive_in_child(self, run: Run, prepared: Prepared, children: Children) -> None:
        """The same in a child process, which has the middlewares and the context too."""
        CURRENT.set(run)
        run.began = True
        try:
            ended = await children.run(run, self._lane, partial(self._began_in_child, run))
        except ChildNotStarted as error:
            log.error("child_not_started", job_type=run.claim.type, message=str(error))
            self._finish(run, snoozed(run, AFTER_FAILURE_S, "no_child"))
        except ChildDied as error:
            self._child_died(run, error)
        except BaseException as error:
            self._over(run, error)
        else:
            run.context = LastWords(ended.progress)
            if ended.result is not None:
                self._dumped(run, ended.result)
            else:
                self._over(run, make_error(ended.told or {}))

    def _began_in_child(self, run: Run) -> None:
        """Its time begins when a child is ready for it: a timeout is the handler's, not the start's."""
        now = self._loop.time()
        run.started_ms += int((now - run.started_at) * 1000)
        run.started_at = now
        run.soft_at = now + run.timeout_s
        run.hard_at = run.soft_at + self._hard_after_s
        self._deadlines.watch(run)

    def _child_died(self, run: Run, error: ChildDied) -> None:
        if run.stop_reason is StopReason.TIMEOUT:
            self._finish(run, self._judge(run, _over_hard(run)))
        elif run.stop_reason is not None:
            self._over(run, error)
        else:
            run.over = True
            run.task = None
            self._deadlines.forget(run)
            log.warning("child_died", job_id=run.lease.job_id, job_type=run.claim.type, exit=error.exit)
            self._lane.child_died(run, error.exit)

    async def _flush(self, run: Run) -> None:
        assert run.context is not None
        try:
            await run.context.flush_lines()
        except asyncio.CancelledError:
            return  # a drain's end: the outcome counts more than the last lines
        except DockworkError as error:
            log.warning("log_lines_lost", job_id=run.lease.job_id, error=str(error))

    # --- what became of it -----------------------------------------------------------------------------------

    def _returned(self, run: Run, prepared: Prepared, value: Any) -> None:
        try:
            result = prepared.dump_result(value)
        except InvalidValue as error:
            self._over(run, Unrecoverable(str(error)))
            return
        except Exception as error:  # a serializer of the user's
            self._over(run, error)
            return
        self._dumped(run, result)

    def _dumped(self, run: Run, result: bytes) -> None:
        key = ""
        if run.guard is not None and result != b"null":
            try:
                result, key = run.guard.seal_result(result)
            except EncryptionError as error:
                self._over(run, error)
                return
        if jobs_are_shown():
            shown.info("job_completed", job_id=run.lease.job_id, job_type=run.claim.type, ms=self._ms(run))
        if len(result) > (self._lane.config.max_result or RESULT_CAP):
            settlement = _completed(run, None)._replace(result_dropped=len(result))
        else:
            # No result stands for null: a job that returns nothing needs no key for it.
            settlement = _completed(run, None if result == b"null" else result)
        if run.context is not None and (progress := run.context.take_progress()) is not None:
            settlement = settlement._replace(progress=progress)
        if run.guard is not None:
            kept = "" if settlement.result is None else key
            settlement = settlement._replace(
                resealed=run.guard.completed(kept, repeats=run.repeat is not None)
            )
        self._finish(run, settlement)

    def _over(self, run: Run, error: BaseException) -> None:
        run.over = True
        self._finish(run, self._judge(run, told_error(spare(error, run), run.stop_reason, run.timeout_s)))

    def _judge(self, run: Run, error: BaseException) -> Settlement | None:
        """The settlement after `error`, or None to put the job back; whatever the error is made of."""
        try:
            return self._failed(run, error)
        except Exception as defect:  # without a settlement the slot and the job would be held for nothing
            log.error(
                "run_not_judged",
                job_id=run.lease.job_id,
                job_type=run.claim.type,
                error=type(error).__qualname__,
                defect=type(defect).__qualname__,
            )
            return self.fail_plainly(run, f"{type(error).__qualname__}, which could not be told")

    def fail_plainly(self, run: Run, message: str) -> Settlement | None:
        """A failed attempt by the default backoff that holds nothing of the user's; None to put the job back."""
        facts = Facts(
            attempts=run.claim.attempts,
            max_attempts=attempts_of(run.claim, Policy()),
            stopped=run.stop_reason,
        )
        error = DockworkError(message)
        decision = decide_outcome(
            error, facts, lambda failed: next_delay(DEFAULT_BACKOFF, failed, clock.spread())
        )
        if decision.outcome is None:
            return None
        return Settlement(
            lease=run.lease,
            outcome=decision.outcome,
            started_ms=run.started_ms,
            delay_ms=decision.delay_ms,
            reason=decision.reason,
            failure=self._failure(run, error) if decision.failed else None,
        )

    def _failed(self, run: Run, error: BaseException) -> Settlement | None:
        """The settlement after `error`, or None to put the job back."""
        claim = run.claim
        prepared = self._prepare(claim.type)
        policy = Policy() if prepared is None else prepared.policy
        facts = Facts(
            attempts=claim.attempts,
            max_attempts=attempts_of(claim, policy),
            dead_letter=policy.dead_letter,
            stopped=run.stop_reason,
        )

        def backoff(failed: int) -> timedelta:
            return self._registry.retry_delay(policy.backoff, failed, clock.spread(), error)

        decision = decide_outcome(error, facts, backoff)
        if decision.outcome is None:
            return None
        if decision.failed:
            self._tell_failed(
                "run_failed",
                run,
                error,
                attempt=claim.attempts + 1,
                error=type(error).__qualname__,
                outcome=decision.outcome.value,
            )
        return Settlement(
            lease=run.lease,
            outcome=decision.outcome,
            started_ms=run.started_ms,
            delay_ms=decision.delay_ms,
            reason=decision.reason if run.guard is None else run.guard.text(decision.reason),
            failure=self._failure(run, error) if decision.failed else None,
            progress=None if run.context is None else run.context.take_progress(),
            resealed=None if run.guard is None else run.guard.resealed(),
        )

    def _tell_failed(self, event: str, run: Run, failure: BaseException, /, **data: Any) -> None:
        """Log a failure by the names of its parts; where jobs are shown, with its message and its trace."""
        named = {"job_id": run.lease.job_id, "job_type": run.claim.type, **data}
        if not jobs_are_shown():
            log.warning(event, **named)
            return
        look = f"dockwork jobs {self._lane.name.queue} {run.lease.job_id}"
        named |= {"ms": self._ms(run), "look": repr(look)}
        if run.guard is None:
            shown.warning(event, message=text_of(failure), exc_info=failure, **named)
        else:
            text, trace = run.guard.text(text_of(failure)), run.guard.trace(failure)
            shown.warning(event, message=text, trace=trace, **named)

    def _ms(self, run: Run) -> int:
        return int((self._loop.time() - run.started_at) * 1000)

    def _failure(self, run: Run, error: BaseException) -> Failure:
        told = told_of(error)
        if told is not None:  # by the process that raised it
            module, name, message = told["module"], told["class"], told["message"]
            trace = told["trace"]
        else:
            module, name, message = type(error).__module__, type(error).__qualname__, text_of(error)
            trace = "".join(traceback.format_exception(error))
        if run.guard is not None:
            trace, message = run.guard.text(trace), run.guard.text(message)
        return Failure(
            error_class=f"{module}.{name}".removeprefix("builtins."),
            message=message,
            trace=_cut_middle(trace, TRACE_CAP),
            worker=self._worker,
            at_ms=run.started_ms + self._ms(run),
        )

    def _parked(self, run: Run, park_type: str) -> Settlement:
        return Settlement(
            lease=run.lease,
            outcome=Outcome.PARKED,
            started_ms=run.started_ms,
            park_type=park_type,
            reason="unknown_type" if park_type == run.claim.type else "other_schema",
        )

    def _unreadable(
        self, run: Run, job_type: AnyJobType, error: Undecodable | InvalidArgs | DecryptionError
    ) -> Settlement:
        claim = run.claim
        # Arguments that passed another schema belong to a worker that has it; with ours they are just wrong.
        if isinstance(error, InvalidArgs):
            schema = error.stored_schema or open_envelope(claim.envelope).schema
            if schema and schema != job_type.schema_hash:
                log.warning("job_parked", job_id=claim.job_id, job_type=claim.type, schema=schema)
                return self._parked(run, f"{claim.type}@{schema}")
        reason = "undecodable" if isinstance(error, Undecodable) else "invalid_args"
        if isinstance(error, DecryptionError):
            reason = "decryption_error"
        self._tell_failed("job_unreadable", run, error, reason=reason)
        return Settlement(
            lease=run.lease,
            outcome=Outcome.DEAD,
            started_ms=run.started_ms,
            reason=reason,
            failure=self._failure(run, error),
            resealed=None if job_type.sealing is None else _kept_of(job_type, claim, error),
        )

    def _report(self, run: Run, settlement: Settlement) -> None:
        """Tell the app's `on_error` of a failed run, by what is kept of it."""
        failure = settlement.failure
        if failure is not None:
            self.reports.add(
                ErrorReport(
                    queue=self._lane.name.queue,
                    type=run.claim.type,
                    id=run.lease.job_id,
                    attempt=run.claim.attempts + 1,
                    outcome=settlement.outcome.value,
                    error_class=failure.error_class,
                    message=failure.message,
                    trace=failure.trace,
                    worker=failure.worker,
                    at_ms=failure.at_ms,
                )
            )

    def _finish(self, run: Run, settlement: Settlement | None) -> None:
        if self._reporters and settlement is not None:
            self._report(run, settlement)
        run.over = True
        run.task = None
        if run.repeat is not None and settlement is not None:
            settlement = with_next_time(run.repeat, run.claim, settlement, run.started_ms + self._ms(run))
        run.context = None  # it holds the run, which would be garbage with it
        self._deadlines.forget(run)
        self._lane.finish(run, settlement)

    def _quick(self, job_type: AnyJobType, policy: Policy) -> Quick:
        signature, mark = job_type.signature, b"\0"
        head, tail = seal_parts(job_type.name, mark, signature.schema_hash, {}, {}).split(mark)
        most_s = NEVER if policy.most_s is None else policy.most_s
        return Quick(
            job_type.fn,
            signature.read_args,
            head,
            tail,
            timeout_s=min(policy.timeout_s, most_s),
            most_s=most_s,
            hard_s=self._hard_after_s,
            nothing=signature.may_return_nothing,
            context=job_type.context_parameter or "",
        )

    def _prepare(self, name: str) -> Prepared | None:
        """The job type of that name by the options of now, or None if this worker has none."""
        if self._lane.config_version != self._config_version:
            self._prepared.clear()
            self._config_version = self._lane.config_version
        prepared = self._prepared.get(name)
        if prepared is None and (job_type := self._registry.get(name)) is not None:
            signature = job_type.signature
            policy = choose_policy(job_type, self._lane.config)
            children = self._children if job_type.isolation == "process" else None
            prepared = Prepared(
                job_type,
                policy,
                signature.open,
                signature.dump_result,
                children,
                seals=signature.sealing is not None,
                schema_hash=signature.schema_hash,
                quick=None,
            )
            if _is_simple(job_type) and not self._middlewares:
                prepared.quick = self._quick(job_type, policy)
            self._prepared[name] = prepared
        return prepared


def _is_simple(job_type: AnyJobType) -> bool:
    return job_type.isolation == "loop" and job_type.signature.sealing is None


def _guarded(run: Run, job_type: AnyJobType) -> Opened:
    from dockwork.worker.guards import Guard  # here: who seals nothing pays for nothing

    run.guard = guard = Guard(job_type, run.claim)
    return guard.opened


def _kept_of(job_type: AnyJobType, claim: Claim, error: DockworkError) -> Resealed | None:
    from dockwork.worker.guards import unreadable

    return unreadable(job_type, claim, error)


def _of_another_schema(opened: Opened) -> InvalidArgs:
    error = InvalidArgs(opened.type, "", expected="arguments in plain", got="sealed ones")
    error.stored_schema = opened.schema
    return error


def _withheld(error: Exception) -> DockworkError:
    """An error of the user's code that read sealed arguments: its text may quote them."""
    return DockworkError(
        f"{type(error).__qualname__}, raised while the arguments were read; its text is withheld"
    )


def _completed(run: Run, result: bytes | None) -> Settlement:
    # The fields in their order; by name it takes five times as long.
    said = (run.lease, COMPLETED, run.started_ms, 0, "", result, 0, None, "", None, None, None)
    return tuple.__new__(Settlement, said)


def _over_hard(run: Run) -> TimedOut:
    late_s = run.hard_at - run.soft_at
    return TimedOut(f"the run went on for {late_s:g} s after its timeout of {run.timeout_s:g} s")


def _resolve(ended: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if not ended.done():
        ended.set_result((value, error))


def _cut_middle(text: str, cap: int) -> str:
    """The head and, longer, the tail of `text`: a trace's last lines say most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= cap:
        return text
    mark = f"\n... [cut, {len(data)} bytes]\n"
    head, tail = cap // 4, cap - cap // 4 - len(mark)
    return data[:head].decode("utf-8", "ignore") + mark + data[-tail:].decode("utf-8", "ignore")
