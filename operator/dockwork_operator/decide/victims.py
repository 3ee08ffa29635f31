"""Fewer pods without losing a job: who goes, and the steps until they are gone.

A ReplicaSet kills unscheduled, pending and not-ready pods first, and only then looks at the deletion cost. So the
victims are chosen in that order, asked in Redis to claim nothing more, and waited for; then they get the lowest
cost and `/scale` is written with a precondition; then it is verified that they were the ones that went.
docs/guides/scaling.md tells it in prose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from dockwork_operator.constants import ScaleReason
from dockwork_operator.decide.memory import ScaleDown, Stage
from dockwork_operator.decide.plan import Action, DeletionCost, Quiesce, Scale, Unquiesce
from dockwork_operator.decide.seen import PodSeen, WorkerSeen

VICTIM_COST = -100
TOKEN_PREFIX = "scale-down-"

#: Within this time after the scale write the terminating pods are compared with the victims.
VERIFY_WITHIN = timedelta(seconds=30)

#: A heartbeat that is older than three beats is no word that could still be waited for.
STALE_AFTER_MS = 15_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """The pods of one Deployment and what their workers hold.

    replicas   `spec.replicas` as seen
    pods       every pod of the Deployment that has not ended, terminating ones too
    workers    heartbeats by pod UID
    leased     leases held, by pod UID
    quiesced   tokens in force, by pod UID
    rolling    two versions live side by side
    readable   the Redis figures are from now
    time_ms    Redis TIME of them
    """

    deployment: str
    replicas: int
    resource_version: str
    pods: tuple[PodSeen, ...] = ()
    workers: Mapping[str, tuple[WorkerSeen, ...]] = field(default_factory=dict)
    leased: Mapping[str, int] = field(default_factory=dict)
    quiesced: Mapping[str, str] = field(default_factory=dict)
    rolling: bool = False
    readable: bool = True
    time_ms: int = 0

    @property
    def staying(self) -> tuple[PodSeen, ...]:
        """Pods whose end has not begun: the ones that the ReplicaSet counts."""
        return tuple(pod for pod in self.pods if not pod.terminating)

    def held(self, uid: str) -> int:
        """Leases of a pod, by Redis' count or its own word, whichever is more."""
        return max(self.leased.get(uid, 0), sum(w.busy for w in self.workers.get(uid, ())))

    def rest_ms(self, uid: str) -> int:
        """How long the pod's longest job still needs, by its own estimate."""
        return max((w.longest_rest_ms for w in self.workers.get(uid, ())), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moves:
    """What to do about the number of pods now.

    down     the scale-down that goes on, None if none does
    waits    why the number that is wanted is not there yet, None if it is
    wrong    pods that went in a victim's place, by name
    """

    actions: tuple[Action, ...] = ()
    down: ScaleDown | None = None
    waits: ScaleReason | None = None
    wrong: tuple[str, ...] = ()


def move(fleet: Fleet, to: int, down: ScaleDown | None, reason: ScaleReason, now: datetime) -> Moves:
    """The next step from `fleet.replicas` pods to `to`."""
    if down is not None and down.stage is Stage.SCALED:
        return _verify(fleet, to, down, reason, now)
    if to >= fleet.replicas:
        return _grow(fleet, to, down, reason)
    # Pods must not go:
    # 1. while two versions live: the Deployment would shrink both in proportion;
    # 2. while nobody can tell what they hold.
    if fleet.rolling:
        return Moves(actions=_release(fleet, down), waits=ScaleReason.ROLLOUT_IN_PROGRESS)
    if not fleet.readable:
        return Moves(down=down, waits=ScaleReason.HELD)
    return _shrink(fleet, to, down, reason, now)


# --- up ----------------------------------------------------------------------------------------------------


def _grow(fleet: Fleet, to: int, down: ScaleDown | None, reason: ScaleReason) -> Moves:
    """As many as there are, or more: victims are needed again before new pods are."""
    actions = _release(fleet, down)
    if to > fleet.replicas:
        actions += (Scale(name=fleet.deployment, to=to, seen=fleet.replicas, reason=reason),)
    return Moves(actions=actions)


def _release(fleet: Fleet, down: ScaleDown | None, keep: Iterable[str] = ()) -> tuple[Action, ...]:
    """Take back the flag and the cost of every pod that is no victim: of `down`, or of a process before this."""
    kept = set(keep)
    staying = {pod.uid: pod for pod in fleet.staying}
    victims = set(down.victims) if down is not None else set()
    flagged = {uid for uid, token in fleet.quiesced.items() if token.startswith(TOKEN_PREFIX)} & set(staying)
    released = tuple(sorted((victims | flagged) - kept))
    actions: tuple[Action, ...] = ()
    if released:
        actions = (Unquiesce(pods=released, reason="pods are wanted again"),)
    return actions + tuple(
        DeletionCost(pod=pod.name, uid=uid, cost=None, reason="no victim any more")
        for uid, pod in staying.items()
        if pod.deletion_cost == VICTIM_COST and uid not in kept
    )


# --- down --------------------------------------------------------------------------------------------------


def _shrink(fleet: Fleet, to: int, down: ScaleDown | None, reason: ScaleReason, now: datetime) -> Moves:
    needed = len(fleet.staying) - to
    if needed <= 0:
        # Fewer pods exist than were asked for: nobody has to go.
        return Moves(actions=(*_release(fleet, down), _scale(fleet, to, reason)))
    if has_unready_holder(fleet, down):
        # The ReplicaSet would kill it first, with its jobs. Its leases end, or it comes back.
        kept = down.victims if down is not None else ()
        actions = _release(fleet, down, keep=kept) + _flag(fleet, down)
        return Moves(actions=actions, down=down, waits=_WAITING)
    down = _victims(fleet, needed, down, now)
    actions = _release(fleet, down, keep=down.victims)
    if not all(is_confirmed(fleet, uid, down.token) for uid in down.victims):
        return Moves(actions=actions + _flag(fleet, down), down=down, waits=_WAITING)
    uncosted = [p for p in fleet.staying if p.uid in down.victims and p.deletion_cost != VICTIM_COST]
    if uncosted:
        # The cost is set in one reconcile and the scale written in the next: the order of the ReplicaSet's
        # cache is the order of our writes only if the first was seen to have arrived.
        costs = tuple(
            DeletionCost(pod=pod.name, uid=pod.uid, cost=VICTIM_COST, reason="chosen to go")
            for pod in uncosted
        )
        return Moves(actions=actions + _flag(fleet, down) + costs, down=down, waits=_WAITING)
    survivors = tuple(p.uid for p in fleet.staying if p.uid not in down.victims)
    scale = _scale(fleet, max(to, len(survivors)), reason)
    return Moves(actions=(*actions, scale, *_flag(fleet, down)), down=replace(down, survivors=survivors))


_WAITING = ScaleReason.WAITING_FOR_VICTIMS


def _scale(fleet: Fleet, to: int, reason: ScaleReason) -> Scale:
    return Scale(
        name=fleet.deployment,
        to=to,
        seen=fleet.replicas,
        reason=reason,
        resource_version=fleet.resource_version,
    )


def _flag(fleet: Fleet, down: ScaleDown | None) -> tuple[Action, ...]:
    """Set or renew the flags of the victims: a flag lasts 60 s, so they claim again if this process dies."""
    if down is None or not down.victims:
        return ()
    there = {pod.uid for pod in fleet.pods}
    requests = {uid: down.token for uid in down.victims if uid in there}
    return (Quiesce(requests=requests, reason="chosen to go"),) if requests else ()


def _victims(fleet: Fleet, needed: int, down: ScaleDown | None, now: datetime) -> ScaleDown:
    """The scale-down under way with what is left of it, or a new one."""
    staying = {pod.uid for pod in fleet.staying}
    left = tuple(uid for uid in down.victims if uid in staying) if down is not None else ()
    # Another pod would go before a victim now: the choice is made anew.
    last = max((takes_first(pod) for pod in fleet.staying if pod.uid in left), default=None)
    overtaken = last is not None and any(
        takes_first(pod) < last for pod in fleet.staying if pod.uid not in left
    )
    if down is not None and left and not overtaken:
        # Those that were confirmed already are kept first: the wait is behind them.
        kept = sorted(left, key=lambda uid: not is_confirmed(fleet, uid, down.token))[:needed]
        return replace(down, victims=tuple(uid for uid in left if uid in kept))
    return ScaleDown(
        token=f"{TOKEN_PREFIX}{int(now.timestamp() * 1000)}",
        victims=tuple(pod.uid for pod in choose_victims(fleet, needed)),
        began=now,
    )


def choose_victims(fleet: Fleet, needed: int) -> tuple[PodSeen, ...]:
    """Who goes: at most `needed` pods, in the ReplicaSet's own order, then idle, least remaining, youngest.

    If some that come first are idle and others are not, only the idle ones: they go now, and the busy ones are
    not asked to stop before their turn.
    """
    ranked = sorted(fleet.staying, key=lambda pod: _rank(fleet, pod))[:needed]
    idle = tuple(pod for pod in ranked if not fleet.held(pod.uid))
    return idle or tuple(ranked)


def _rank(fleet: Fleet, pod: PodSeen) -> tuple[tuple[bool, int, bool], bool, int, float, str]:
    return (
        takes_first(pod),
        fleet.held(pod.uid) > 0,
        fleet.rest_ms(pod.uid),
        -pod.created.timestamp(),
        pod.uid,
    )


_PHASES = {"Pending": 0, "Unknown": 1}


def takes_first(pod: PodSeen) -> tuple[bool, int, bool]:
    """What a ReplicaSet sorts by before any cost: unscheduled, pending, unknown, not ready; lowest goes first."""
    return bool(pod.node), _PHASES.get(pod.phase, 2), pod.ready


_SOUND = (True, 2, True)


def has_unready_holder(fleet: Fleet, down: ScaleDown | None) -> bool:
    """A pod that is no victim would go first, and holds jobs. (A quiesced victim is not ready, by its own word.)"""
    victims = set(down.victims) if down is not None else set()
    return any(
        takes_first(pod) < _SOUND and fleet.held(pod.uid) > 0
        for pod in fleet.staying
        if pod.uid not in victims
    )


def is_confirmed(fleet: Fleet, uid: str, token: str) -> bool:
    """The pod claims nothing more and holds nothing.

    1. the flag is in force: since then no script gave it a job;
    2. Redis counts no lease of it;
    3. each of its workers repeated the token, or beats no more.
    """
    return (
        fleet.quiesced.get(uid) == token
        and fleet.leased.get(uid, 0) == 0
        and all(
            worker.quiesce_token == token or fleet.time_ms - worker.beat_ms > STALE_AFTER_MS
            for worker in fleet.workers.get(uid, ())
        )
    )


# --- after the write ---------------------------------------------------------------------------------------


def _verify(fleet: Fleet, to: int, down: ScaleDown, reason: ScaleReason, now: datetime) -> Moves:
    """Compare who went with who was chosen. The flags of survivors go; those of the victims stay till the end."""
    staying = {pod.uid: pod for pod in fleet.staying}
    remaining = tuple(uid for uid in down.victims if uid in staying)
    if not remaining:
        return move(fleet, to, None, reason, now)
    if to > fleet.replicas:
        # More is wanted before all of them went; what is still there may go on.
        return _grow(fleet, to, down, reason)
    wrong = () if fleet.rolling else _taken_instead(fleet, down)
    scaled_at = down.scaled_at or down.began
    if wrong or now - scaled_at > VERIFY_WITHIN:
        return Moves(actions=_release(fleet, down), wrong=wrong)
    return Moves(actions=_flag(fleet, down), down=down)


def _taken_instead(fleet: Fleet, down: ScaleDown) -> tuple[str, ...]:
    """Survivors that end although a victim stays, but for those that were evicted."""
    pods = {pod.uid: pod for pod in fleet.pods}
    ending = [pods[uid] for uid in down.survivors if uid in pods and pods[uid].terminating]
    return tuple(pod.name for pod in ending if not pod.disrupted)
