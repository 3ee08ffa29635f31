"""How many pods a queue wants: one formula, run every two seconds, and one reason for each answer.

Everything here is arithmetic on values. The simulator of the tests runs the same `tick` as the operator (OP-140).
docs/guides/scaling.md tells it in prose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from dockwork_operator.constants import ScaleReason as Reason
from dockwork_operator.decide.memory import Rates

ARRIVALS_SPAN_S = 15.0
WORK_SPAN_S = 60.0

#: Below this many finishes per second, A / X says nothing yet: 3 in a minute.
FEW_FINISHES = 0.05

#: Arrivals per second that count as none: an EWMA never reaches 0.
NO_ARRIVALS = 0.02

#: Seconds without an arrival after which there are none: `NO_ARRIVALS` without the EWMA's tail, which after a burst
#: of thousands takes minutes to fall so far (docs/decisions/0011).
QUIET_S = 1 / NO_ARRIVALS

#: Arrivals are believed up to this multiple of the finishes, plus a constant for the start.
BELIEVED_FACTOR, BELIEVED_CONSTANT = 3.0, 5.0

SHORTEST_JOB_S = 0.001

# A sum of floats may end a hair above the whole pod that it means.
_ROUNDING = 1e-9


#: Reasons that only say where the number came from: with an unchanged number they are Steady.
_SOURCES = frozenset(
    {Reason.BACKLOG, Reason.ARRIVAL_RATE, Reason.BUSY, Reason.FROM_ZERO, Reason.PREWARM, Reason.IDLE}
)


#: How long a smaller number must hold before pods go.
WINDOW = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What the spec asks of scaling.

    slots          jobs at once per pod
    target_s       T, in which a backlog is to be cleared
    utilization    0..1, share of the slots that arrivals may fill
    window         how long a smaller number must hold before pods go
    max_wait_s     a job that waits longer asks for one more pod
    longest_s      longest time that a job may take
    """

    slots: int
    target_s: float
    utilization: float
    window: timedelta
    max_wait_s: float
    longest_s: float
    least: int
    most: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What one look at the queue and its pods says about the work there is.

    claimable       ready and prioritized
    due_soon        due within pod start + T, those due already included
    throttled       claimable, but no worker may take them by the time a new pod could be there
    concurrency     jobs that the queue lets run at once, None = any number
    starts_per_s    jobs that it lets start per second, None = any number
    oldest_s        age of the oldest due job that waits
    active          leased
    busy            leased, without what terminating pods still run
    mean_elapsed_s  mean age of the running jobs
    unregistered    parked jobs of a template that never registered its types, seen at 0 pods: 0 or 1
    current         replicas last asked for
    ready_pods      pods that are ready and not quiesced
    """

    time_ms: int
    run_id: str = ""
    entered: int = 0
    finished: int = 0
    claimable: int = 0
    due_soon: int = 0
    throttled: int = 0
    concurrency: int | None = None
    starts_per_s: float | None = None
    oldest_s: float = 0.0
    active: int = 0
    busy: int = 0
    mean_elapsed_s: float = 0.0
    unregistered: int = 0
    paused: bool = False
    current: int = 0
    ready_pods: int = 0

    @property
    def waiting(self) -> int:
        """Jobs that a pod could run now or by the time it is there; none while the queue is paused."""
        if self.paused:
            return 0
        return max(self.claimable + self.due_soon - self.throttled, 0) + self.unregistered


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The answer of a tick.

    raw        before the window and the limits
    window     raw figures that still count, oldest first; only those that no later one exceeds
    """

    to: int
    raw: int
    reason: Reason
    rates: Rates
    window: tuple[tuple[datetime, int], ...] = ()
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Figure:
    """A number of pods, and the last rule that changed it."""

    pods: int
    reason: Reason

    def changed(self, pods: int, reason: Reason) -> _Figure:
        return self if pods == self.pods else _Figure(pods, reason)


def tick(
    load: Load,
    rates: Rates,
    policy: Policy,
    window: tuple[tuple[datetime, int], ...],
    warm: bool,
    now: datetime,
) -> Wanted:
    """Pods that serve the arrivals and clear the backlog within the drain target.

    warm       a whole window has passed since this process began to decide: only then may pods go
    Source     Little 1961 for the service time; docs/guides/scaling.md for the rest
    """
    rates = next_rates(rates, load, policy)
    figure = demanded(load, rates, policy)
    raw = figure.pods
    window = _window(window, raw, now - policy.window, now)
    # The minimum comes before the wait: where it binds, nothing is waited for.
    figure = figure.changed(max(figure.pods, policy.least), Reason.MIN_REPLICAS)
    if figure.pods < load.current:
        figure = _held_back(figure, load.current, window, warm)
    figure = figure.changed(min(figure.pods, policy.most), Reason.MAX_REPLICAS)
    reason = figure.reason
    if figure.pods == load.current and reason in _SOURCES:
        reason = Reason.STEADY
    return Wanted(to=figure.pods, raw=raw, reason=reason, rates=rates, window=window)


def next_rates(before: Rates, load: Load, policy: Policy) -> Rates:
    """The smoothed figures with one more look in them; the same look twice changes nothing."""
    if load.time_ms == before.time_ms:
        return before
    now = replace(
        before,
        time_ms=load.time_ms,
        entered=load.entered,
        finished=load.finished,
        run_id=load.run_id,
    )
    # There is no difference to take:
    # 1. at the first look;
    # 2. on another server, whose counters are others;
    # 3. when time or counters went back (a failover that lost writes).
    if (
        before.time_ms == 0
        or load.run_id != before.run_id
        or load.time_ms < before.time_ms
        or load.entered < before.entered
        or load.finished < before.finished
    ):
        return replace(now, arrived_ms=load.time_ms, service_s=_service_s(now, load, policy))
    passed = (load.time_ms - before.time_ms) / 1000
    short, long = 1 - math.exp(-passed / ARRIVALS_SPAN_S), 1 - math.exp(-passed / WORK_SPAN_S)
    arrived_ms = load.time_ms if load.entered > before.entered else before.arrived_ms
    is_quiet = load.time_ms - arrived_ms >= QUIET_S * 1000
    now = replace(
        now,
        arrived_ms=arrived_ms,
        arrivals=0.0
        if is_quiet
        else _towards(before.arrivals, (load.entered - before.entered) / passed, short),
        active=_towards(before.active, load.active, long),
        # Finishes, not starts: starts say how many slots there are, not how long a job takes.
        finishes=_towards(before.finishes, (load.finished - before.finished) / passed, long),
    )
    return replace(now, service_s=_service_s(now, load, policy))


def _towards(old: float, new: float, share: float) -> float:
    return old + share * (new - old)


def _service_s(rates: Rates, load: Load, policy: Policy) -> float:
    """Seconds per job: by Little's law once jobs finish, till then by what the running ones show."""
    if rates.finishes > FEW_FINISHES:
        return min(max(rates.active / rates.finishes, SHORTEST_JOB_S), policy.longest_s)
    # On average a running job is half done. Only while little finishes: always on, this floor cost six times
    # the pods in the mixed scenario; without it jobs of minutes waited for 6 min behind a seed of 1 s.
    return max(rates.service_s, 2 * load.mean_elapsed_s)


def demanded(load: Load, rates: Rates, policy: Policy) -> _Figure:
    """Pods that the work asks for, before window and limits of the spec, and what asked for them."""
    waiting = load.waiting
    believed = min(rates.arrivals, BELIEVED_FACTOR * rates.finishes + BELIEVED_CONSTANT)
    by_arrivals = 0.0 if load.paused else believed * rates.service_s / policy.utilization
    by_backlog = waiting * rates.service_s / policy.target_s
    needed = max(by_arrivals + by_backlog, load.busy)
    figure = _Figure(_ceil(needed / policy.slots), _source(load, by_arrivals, by_backlog))
    if waiting > 0:
        figure = figure.changed(max(figure.pods, 1), figure.reason)
    # One more pod for the oldest job, but only when the last one asked for has come.
    if waiting and load.oldest_s > policy.max_wait_s and load.ready_pods == load.current:
        figure = figure.changed(max(figure.pods, load.current + 1), Reason.OLDEST_WAIT)
    figure = _limited(figure, load, rates, policy)
    if waiting + load.active == 0 and (load.paused or rates.arrivals < NO_ARRIVALS):
        figure = _Figure(0, Reason.PAUSED if load.paused else Reason.IDLE)
    return figure


def _limited(figure: _Figure, load: Load, rates: Rates, policy: Policy) -> _Figure:
    """No more pods than the queue's own limits can keep busy, and never fewer than are."""
    for most, reason in (
        (load.concurrency, Reason.CONCURRENCY),
        (
            None if load.starts_per_s is None else load.starts_per_s * rates.service_s / policy.utilization,
            Reason.RATE,
        ),
    ):
        if most is not None:
            enough = _ceil(max(most, load.busy, 1) / policy.slots)
            figure = figure.changed(min(figure.pods, enough), reason)
    return figure


def _ceil(pods: float) -> int:
    return math.ceil(pods - _ROUNDING)


def _source(load: Load, by_arrivals: float, by_backlog: float) -> Reason:
    """Which term of the sum asked for most."""
    if load.paused:
        return Reason.PAUSED
    if load.waiting and load.waiting == load.unregistered:
        return Reason.UNREGISTERED_TYPES
    if load.waiting and load.current == 0:
        return Reason.PREWARM if not load.claimable and not load.oldest_s else Reason.FROM_ZERO
    if load.busy >= by_arrivals + by_backlog:
        return Reason.BUSY if load.busy else Reason.IDLE
    if by_backlog < by_arrivals:
        return Reason.ARRIVAL_RATE
    return Reason.BACKLOG if load.claimable else Reason.PREWARM


def _window(
    window: tuple[tuple[datetime, int], ...], raw: int, after: datetime, now: datetime
) -> tuple[tuple[datetime, int], ...]:
    """`window` with `raw` in it. Only its maximum is ever asked for, so what a later figure exceeds can go."""
    kept = tuple((at, pods) for at, pods in window if at > after and pods > raw)
    return (*kept, (now, raw))


def _held_back(
    figure: _Figure, current: int, window: tuple[tuple[datetime, int], ...], warm: bool
) -> _Figure:
    """Down only to the largest figure of the window, and not at all before a window is full."""
    if not warm:
        return figure.changed(current, Reason.WARMING_UP)
    largest = max(figure.pods, *(pods for _, pods in window))
    return figure.changed(min(current, largest), Reason.STABILIZING)


# --- without a sample, and without a formula ---------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Fallback:
    """What to do when Redis cannot be read for long: at least `replicas` pods, `after` that time."""

    replicas: int
    after: timedelta


def blind(current: int, lost_for: timedelta, fallback: Fallback | None, rates: Rates, most: int) -> Wanted:
    """Redis cannot be read: hold, then at least the fallback; never down (OP-148)."""
    if fallback is None or lost_for < fallback.after or current >= fallback.replicas:
        held = Reason.FALLBACK if fallback is not None and lost_for >= fallback.after else Reason.HELD
        return Wanted(to=current, raw=current, reason=held, rates=rates)
    to = max(current, min(fallback.replicas, most))
    return Wanted(to=to, raw=to, reason=Reason.FALLBACK, rates=rates)


def external(asked: int | None, current: int, rates: Rates) -> Wanted:
    """Mode External: `spec.replicas` is what is wanted, without min and max; absent = as it is (OP-011)."""
    to = current if asked is None else asked
    return Wanted(to=to, raw=to, reason=Reason.EXTERNAL, rates=rates)
