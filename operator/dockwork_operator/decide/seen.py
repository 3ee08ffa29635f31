"""What was observed: the frozen inputs of `decide_queue`.

`observe` fills these values; nothing here asks the world. The functions at the end read raw API objects (the
dicts of a watch) into values, so that a cache can stay a cache of dicts.

Redis values are this package's own, and mirror `dockwork.store.protocol`: decisions know no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from dockwork_operator import constants
from dockwork_operator.decide.manifests import RedisDefaults

DELETION_COST = constants.ANNOTATION_DELETION_COST
ROLLOUT_REVISION = "deployment.kubernetes.io/revision"

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# --- Kubernetes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ConditionSeen:
    """One condition of an object's status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    observed_generation: int = 0
    since: datetime | None = None  #: lastTransitionTime


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildSeen:
    """An object of a child's name or label, ours or not.

    owner_uid      of its controlling owner, "" if it has none
    live           the object as the API server returned it, managedFields left out
    """

    kind: str
    name: str
    uid: str
    resource_version: str
    owner_uid: str = ""
    owner: str = ""  #: `<kind>/<name>` of the controlling owner, for messages
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    live: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeploymentSeen:
    """The worker Deployment: what it asks for and what its controller reports.

    started        its controller has made a ReplicaSet: creation (OP-074) got past the pause
    template_hash  label of the live pod template
    """

    child: ChildSeen
    replicas: int
    paused: bool
    generation: int
    observed_generation: int
    template_hash: str = ""
    started: bool = False
    status_replicas: int = 0
    updated: int = 0
    ready: int = 0
    available: int = 0
    conditions: Mapping[str, ConditionSeen] = field(default_factory=dict)

    @property
    def begun(self) -> bool:
        """Its creation is over: it may have pods."""
        return self.started or not self.paused


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerEnd:
    """How a container's process ended."""

    exit_code: int
    reason: str = ""  #: Completed, Error, OOMKilled, …
    at: datetime | None = None
    message: str = ""  #: what it left behind: by our policy the end of its log


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerSeen:
    """A container of a pod. `ended` is its current state, `last_end` the run before this one."""

    name: str
    restarts: int = 0
    running: bool = True
    waiting: str = ""  #: reason, such as CrashLoopBackOff, ImagePullBackOff
    waiting_message: str = ""  #: the kubelet's words for it
    ended: ContainerEnd | None = None
    last_end: ContainerEnd | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class PodSeen:
    """A worker pod.

    replica_set    name of the ReplicaSet that owns it, "" if none does
    ready_since    when its Ready condition last became True, None if it is not
    terminating    its deletion has begun
    disrupted      reason of a true DisruptionTarget condition, "" if none: it was evicted
    unschedulable  why no node takes it, in the scheduler's words
    """

    uid: str
    name: str
    created: datetime
    template_hash: str = ""
    replica_set: str = ""
    track: str = "stable"
    node: str = ""
    phase: str = "Running"
    ready: bool = True
    ready_since: datetime | None = None
    started: datetime | None = None
    terminating: bool = False
    terminating_since: datetime | None = None
    disrupted: str = ""
    unschedulable: str = ""
    deletion_cost: int | None = None
    containers: tuple[ContainerSeen, ...] = ()

    @property
    def worker(self) -> ContainerSeen | None:
        return next((c for c in self.containers if c.name == constants.WORKER_CONTAINER), None)

    @property
    def ended(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}


# --- Secret and Redis --------------------------------------------------------------------------------------


class SecretState(StrEnum):
    """What looking for the Redis URL (and CA) gave; every other than FOUND is a condition reason."""

    FOUND = "Found"
    NOT_FOUND = "SecretNotFound"
    FORBIDDEN = "SecretForbidden"
    KEY_MISSING = "SecretKeyMissing"


@dataclass(frozen=True, kw_only=True, slots=True)
class SecretSeen:
    """The outcome of the look-up; never its content. `message` names object and key, and the remedy."""

    state: SecretState = SecretState.FOUND
    message: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnerSeen:
    """Who owns the Redis queue by its owner record; `operator` is the UID of that operator's Lease."""

    operator: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSeen:
    """The last heartbeat of one worker process. Times in ms; `beat_ms` is Redis TIME."""

    owner: str  #: `<pod UID>/<boot id>`
    pod: str  #: pod UID
    slots: int
    busy: int
    template_hash: str = ""
    protocol: int = 1
    state: str = "Running"  #: Running, Quiesced, Draining
    quiesce_token: str = ""
    longest_rest_ms: int = 0
    mean_elapsed_ms: int = 0
    schemas: Mapping[str, str] = field(default_factory=dict)  #: job type -> schema hash
    beat_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSeen:
    """One look at the queue in Redis.

    entered, finished  counters that never fall
    due_soon           delayed jobs, retries and ticks due within the horizon that was asked for
    throttled          of ready and prioritized, those that no worker may take within the horizon; `throttled_by` why
    concurrency        jobs that may run at once, None = any number
    starts_per_s       jobs that may start per second, None = any number
    oldest_ms          age of the oldest due job that waits
    template_known     the template hash that was asked for has registered its job types
    quiesced, leased   by pod UID: request token; leases held
    """

    time_ms: int
    run_id: str = ""
    entered: int = 0
    finished: int = 0
    ready: int = 0
    prioritized: int = 0
    delayed: int = 0
    due: int = 0
    due_soon: int = 0
    active: int = 0
    throttled: int = 0
    throttled_by: Mapping[str, int] = field(default_factory=dict)
    concurrency: int | None = None
    starts_per_s: float | None = None
    parked: int = 0
    dead: int = 0
    bytes: int = 0
    oldest_ms: int = 0
    paused: bool = False
    held: bool = False
    closed: bool = False
    template_known: bool = True
    loading: bool = False
    owner: OwnerSeen | None = None
    config_generation: int = 0
    parked_types: Mapping[str, int] = field(default_factory=dict)
    parked_first: str = ""
    totals: Mapping[str, int] = field(default_factory=dict)
    sealed: Mapping[str, int] = field(default_factory=dict)
    workers: tuple[WorkerSeen, ...] = ()
    quiesced: Mapping[str, str] = field(default_factory=dict)
    leased: Mapping[str, int] = field(default_factory=dict)


class RedisFailure(StrEnum):
    """Why Redis could not be read: the reasons of RedisReachable=False, beside those of a Secret."""

    CONNECT_FAILED = "ConnectFailed"
    AUTH_FAILED = "AuthFailed"
    TLS_FAILED = "TLSFailed"
    TIMEOUT = "Timeout"
    LOADING = "Loading"
    READ_ONLY = "ReadOnly"
    SCRIPTS_REFUSED = "ScriptsRefused"


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerSeen:
    """Facts about the server, read at first contact and each 5 minutes (OP-023).

    memory_percent  used of maxmemory, 0 if there is no maximum
    too_old         what is missing, "" if the version is supported
    """

    version: str = ""
    run_id: str = ""
    policy: str = "noeviction"
    memory_percent: int = 0
    too_old: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisSeen:
    """A sample, or why there is none. `message` carries no credential.

    asked          False: nobody asked in this reconcile (no Secret, or the spec was refused)
    skew_ms        Redis TIME minus the operator's clock, as far as the time of the look cannot explain it
    """

    sample: SampleSeen | None = None
    failure: RedisFailure | None = None
    message: str = ""
    server: ServerSeen | None = None
    asked: bool = True
    skew_ms: int = 0


# --- everything --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorSeen:
    """What the operator itself contributes.

    lease_uid         UID of its Lease: its identity in owner records
    redis             where Queues that name no Redis have theirs
    rollouts          other Queues whose rollout runs now
    max_rollouts      how many may roll because of an operator upgrade
    """

    lease_uid: str = ""
    redis: RedisDefaults = field(default_factory=RedisDefaults)
    rollouts: int = 0
    max_rollouts: int = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueSeen:
    """The world around one Queue.

    status       of the Queue object as it stands, {} if it has none
    deleting     the object's deletion has begun
    deployment   the object of the Deployment's name, ours or not; a name that the cache lacks was asked for
                 by GET, so that nobody's object is overwritten
    children     every other object of a child's name, or with the Queue's label and our owner reference
    pods         labelled for this Queue, ended ones too
    """

    status: Mapping[str, Any] = field(default_factory=dict)
    generation: int = 1
    deleting: bool = False
    deployment: DeploymentSeen | None = None
    children: tuple[ChildSeen, ...] = ()
    pods: tuple[PodSeen, ...] = ()
    secret: SecretSeen = SecretSeen()
    redis: RedisSeen = RedisSeen(asked=False)
    operator: OperatorSeen = OperatorSeen()


# --- reading API objects -----------------------------------------------------------------------------------


def read_time(raw: object) -> datetime | None:
    """An RFC 3339 time of the API server, or None for none."""
    if isinstance(raw, datetime):
        return raw if raw.tzinfo else raw.replace(tzinfo=UTC)
    return datetime.fromisoformat(raw.replace("Z", "+00:00")) if isinstance(raw, str) and raw else None


def write_time(at: datetime) -> str:
    """RFC 3339 in UTC, whole seconds, as the API conventions have it."""
    return at.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


def conditions_seen(raw: Sequence[Mapping[str, Any]] | None) -> dict[str, ConditionSeen]:
    """Conditions by type."""
    return {
        c["type"]: ConditionSeen(
            type=c["type"],
            status=c.get("status", "Unknown"),
            reason=c.get("reason") or "",
            message=c.get("message") or "",
            observed_generation=c.get("observedGeneration") or 0,
            since=read_time(c.get("lastTransitionTime")),
        )
        for c in raw or ()
    }


def child_seen(raw: Mapping[str, Any], kind: str) -> ChildSeen:
    """`kind` is given: items of a list have none."""
    meta = raw["metadata"]
    owner = next((o for o in meta.get("ownerReferences") or () if o.get("controller")), None)
    return ChildSeen(
        kind=kind,
        name=meta["name"],
        uid=meta.get("uid", ""),
        resource_version=meta.get("resourceVersion", ""),
        owner_uid=owner["uid"] if owner else "",
        owner=f"{owner['kind']}/{owner['name']}" if owner else "",
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
        deleting=bool(meta.get("deletionTimestamp")),
        live=raw,
    )


def deployment_seen(raw: Mapping[str, Any]) -> DeploymentSeen:
    """A Deployment as the API server shows it."""
    spec, status, meta = raw["spec"], raw.get("status") or {}, raw["metadata"]
    template_labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    replicas = spec.get("replicas")
    return DeploymentSeen(
        child=child_seen(raw, "Deployment"),
        replicas=1 if replicas is None else replicas,
        paused=bool(spec.get("paused")),
        generation=meta.get("generation") or 0,
        observed_generation=status.get("observedGeneration") or 0,
        template_hash=template_labels.get(constants.LABEL_TEMPLATE_HASH, ""),
        started=ROLLOUT_REVISION in (meta.get("annotations") or {}),
        status_replicas=status.get("replicas") or 0,
        updated=status.get("updatedReplicas") or 0,
        ready=status.get("readyReplicas") or 0,
        available=status.get("availableReplicas") or 0,
        conditions=conditions_seen(status.get("conditions")),
    )


def pod_seen(raw: Mapping[str, Any]) -> PodSeen:
    """A pod as the API server shows it."""
    meta, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    conditions = conditions_seen(status.get("conditions"))
    ready, disrupted = conditions.get("Ready"), conditions.get("DisruptionTarget")
    scheduled = conditions.get("PodScheduled")
    owners = [o for o in meta.get("ownerReferences") or () if o.get("kind") == "ReplicaSet"]
    deleted = read_time(meta.get("deletionTimestamp"))
    # deletionTimestamp is when the grace ends; the deletion began a grace earlier.
    grace = timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)
    return PodSeen(
        uid=meta["uid"],
        name=meta["name"],
        created=read_time(meta.get("creationTimestamp")) or EPOCH,
        template_hash=labels.get(constants.LABEL_TEMPLATE_HASH, ""),
        replica_set=owners[0]["name"] if owners else "",
        track=labels.get(constants.LABEL_TRACK, "stable"),
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "Pending",
        ready=ready is not None and ready.status == "True",
        ready_since=ready.since if ready is not None and ready.status == "True" else None,
        started=read_time(status.get("startTime")),
        terminating=deleted is not None,
        terminating_since=deleted - grace if deleted is not None else None,
        disrupted=disrupted.reason if disrupted is not None and disrupted.status == "True" else "",
        unschedulable=scheduled.message if scheduled is not None and scheduled.status == "False" else "",
        deletion_cost=_cost(annotations.get(DELETION_COST)),
        containers=tuple(_container(c) for c in status.get("containerStatuses") or ()),
    )


def _cost(raw: str | None) -> int | None:
    try:
        return None if raw is None else int(raw)
    except ValueError:
        return None


def _container(raw: Mapping[str, Any]) -> ContainerSeen:
    state, last = raw.get("state") or {}, raw.get("lastState") or {}
    return ContainerSeen(
        name=raw["name"],
        restarts=raw.get("restartCount") or 0,
        running="running" in state and state["running"] is not None,
        waiting=(state.get("waiting") or {}).get("reason") or "",
        waiting_message=(state.get("waiting") or {}).get("message") or "",
        ended=_end(state.get("terminated")),
        last_end=_end(last.get("terminated")),
    )


def _end(raw: Mapping[str, Any] | None) -> ContainerEnd | None:
    if not raw:
        return None
    return ContainerEnd(
        exit_code=raw.get("exitCode") or 0,
        reason=raw.get("reason") or "",
        at=read_time(raw.get("finishedAt")),
        message=raw.get("message") or "",
    )
