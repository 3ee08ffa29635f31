"""What the pods themselves say: how fast they start, what keeps them from it, which of them crash."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from dockwork_operator import constants
from dockwork_operator.constants import Reason
from dockwork_operator.decide.seen import ConditionSeen, ContainerSeen, PodSeen, QueueSeen
from dockwork_operator.models.queues import QueueStatus

#: A container that ended by error so often, and is not ready, loops; Kubernetes' own word comes and goes.
LOOP_RESTARTS = 3

LOOPING = "CrashLoopBackOff"

#: What a container waits for that only a person can give; the kubelet tries on.
CANNOT_START = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"}
)
_LONGEST_WORDS = 200
SHORTEST_START_S, LONGEST_START_S = 1.0, 600.0
_NEW_SHARE = 0.3


def measure_starts(
    pods: Iterable[PodSeen], known: frozenset[str], start_s: float, since: datetime
) -> tuple[float, frozenset[str]]:
    """The smoothed time from created to ready, and the pods that are in it.

    since    only pods made after this count: an older one may be ready for the second time
    """
    pods = tuple(pods)
    measured = set(known & {pod.uid for pod in pods})
    for pod in pods:
        if pod.ready_since is None or pod.uid in measured or pod.created < since:
            continue
        took = (pod.ready_since - pod.created).total_seconds()
        took = min(max(took, SHORTEST_START_S), LONGEST_START_S)
        start_s += _NEW_SHARE * (took - start_s)
        measured.add(pod.uid)
    return start_s, frozenset(measured)


def troubles(pods: Iterable[PodSeen]) -> str:
    """Why pods are not ready, each reason once with one pod that has it."""
    found: dict[str, str] = {}
    for pod in pods:
        if pod.ready or pod.ended or pod.terminating:
            continue
        if not pod.node:
            why = f": {_cut(pod.unschedulable)}" if pod.unschedulable else ""
            found.setdefault(f"not scheduled{why}", pod.name)
        for container in pod.containers:
            if container.waiting and container.waiting not in {"ContainerCreating", "PodInitializing"}:
                found.setdefault(_how(container), pod.name)
    return "; ".join(f"{reason} ({name})" for reason, name in sorted(found.items()))


def crash_loop(pods: Iterable[PodSeen]) -> str:
    """The first container that ends by error again and again, "" if none does."""
    for pod in sorted(pods, key=lambda pod: pod.name):
        for container in pod.containers:
            failed = container.last_end is not None and container.last_end.exit_code != 0
            often = container.restarts >= LOOP_RESTARTS and failed and not pod.ready
            if not pod.terminating and (container.waiting == LOOPING or often):
                what = f"container {container.name} of pod {pod.name} ends again and again{_end(container)}"
                return f"{what}{_last_words(pod, container)}"
    return ""


def cannot_start(pods: Iterable[PodSeen], template_hash: str) -> str:
    """The first pod of the current version that cannot start, and what the kubelet says; "" if all can."""
    for pod in sorted(pods, key=lambda pod: pod.name):
        if pod.template_hash != template_hash or pod.terminating or pod.ended:
            continue
        for container in pod.containers:
            if container.waiting in CANNOT_START:
                words = f": {_cut(container.waiting_message)}" if container.waiting_message else ""
                what = f"container {container.name} of pod {pod.name} cannot start"
                return f"{what}: {container.waiting}{words}"
    return ""


def _last_words(pod: PodSeen, container: ContainerSeen) -> str:
    """The last line that the worker wrote. Of other containers we do not know what their logs hold."""
    end = container.last_end
    lines = end.message.strip().splitlines() if end is not None else []
    if not lines or container.name != constants.WORKER_CONTAINER:
        return f"; see kubectl logs {pod.name} -c {container.name} --previous"
    return f": {_cut(lines[-1])}"


def _cut(words: str) -> str:
    """At most `_LONGEST_WORDS`, cut in the middle: the kubelet names the cause at the end."""
    words = " ".join(words.split())
    if len(words) <= _LONGEST_WORDS:
        return words
    begin = _LONGEST_WORDS // 3
    return f"{words[:begin]}…{words[begin + 1 - _LONGEST_WORDS :]}"


def _how(container: ContainerSeen) -> str:
    return f"{container.waiting}{_end(container)}"


def _end(container: ContainerSeen) -> str:
    end = container.last_end
    return f" (exit code {end.exit_code}, {end.reason or 'Error'})" if end is not None else ""


def unready_since(seen: QueueSeen, since: datetime | None, known: bool, now: datetime) -> datetime | None:
    """From when on pods are wanted and none is ready; a lost Redis stops the clock, for it turns all unready.

    since   what was remembered
    known   this process has looked before; a new one asks the Deployment since when it lacks pods
    """
    deployment = seen.deployment
    if deployment is None or not deployment.replicas:
        return None
    if any(pod.ready for pod in seen.pods if not pod.terminating):
        return None
    if seen.redis.failure is not None:
        return now
    available = deployment.conditions.get("Available")
    if since is None and not known and available is not None and available.status == "False":
        since = available.since
    return since or now


def has_been_ready(
    pods: Iterable[PodSeen], template_hash: str, status: QueueStatus, before: ConditionSeen | None
) -> bool:
    """A pod of this version is ready, or was: the last status of this version says AsDeclared only after that."""
    if any(pod.ready and pod.template_hash == template_hash for pod in pods if not pod.terminating):
        return True
    same = status.rollout is not None and status.rollout.stable_hash == template_hash
    return same and before is not None and before.reason == Reason.AS_DECLARED


def age(since: datetime | None, now: datetime) -> timedelta | None:
    """How long something holds, None if it does not."""
    return None if since is None else now - since
