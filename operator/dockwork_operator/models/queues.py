"""The Queue resource: what a user writes, and what the operator answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from dockwork_operator.constants import USER_ENV
from dockwork_operator.models.conditions import ConditionList
from dockwork_operator.models.fields import (
    Amounts,
    ApiModel,
    Bytes,
    Cut,
    Flag,
    Free,
    Instant,
    Many,
    NumberOrPercent,
    OneOf,
    Rule,
    Span,
    SpanOr,
    Text,
    Whole,
    dns_label,
    object_name,
)
from dockwork_operator.models.objects import Controller, ObjectRef, Refused, controller_of, read_spec, ref_of

DEFAULT_DRAIN_TARGET = timedelta(seconds=15)
DEFAULT_UTILIZATION_PERCENT = 80

# --- Redis -------------------------------------------------------------------------------------------------


class KeyRef(ApiModel):
    """One key of a Secret or ConfigMap in the object's own namespace."""

    name: Annotated[str, object_name()]
    """Name of the Secret or ConfigMap."""
    key: Annotated[str, Text(1, 253, r"^[-._a-zA-Z0-9]+$", "a key of letters, digits, '-', '_' and '.'")]
    """Key in its data."""


class SecretSource(ApiModel):
    """A value that is read from a Secret."""

    secret_key_ref: KeyRef
    """The Secret and the key that hold it."""


class CaSource(ApiModel):
    """A certificate that is read from a Secret or a ConfigMap."""

    secret_key_ref: KeyRef | None = None
    """The Secret and the key that hold it; exactly one of secretKeyRef and configMapKeyRef."""
    config_map_key_ref: KeyRef | None = None
    """The ConfigMap and the key that hold it."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.secretKeyRef) != has(self.configMapKeyRef)",
            message="exactly one of secretKeyRef and configMapKeyRef",
            holds=lambda ca: (ca.secret_key_ref is None) != (ca.config_map_key_ref is None),
        ),
    )


def _immutable(name: str) -> Rule:
    return Rule(
        cel=f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
        message=f"redis.{name} is immutable: jobs would stay behind under the old name",
        field=name,
    )


class Redis(ApiModel):
    """Where the jobs are."""

    url_from: SecretSource | None = None
    """The Redis URL, redis:// or rediss://, from a Secret of this namespace. Absent = the default Redis of the
    operator: key `url` of the Secret `dockwork-redis` of this namespace, unless it was installed otherwise.
    Workers mount it as a file, so a changed Secret restarts nothing."""
    ca_from: CaSource | None = None
    """A CA certificate in PEM that is trusted besides the system's."""
    prefix: Annotated[str, dns_label()] | None = None
    """First part of every key in Redis. Absent = the namespace. Needs urlFrom. Immutable."""
    queue: Annotated[str, dns_label()] | None = None
    """The queue's name in Redis. Absent = metadata.name. Immutable."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.prefix) || has(self.urlFrom)",
            message="redis.prefix needs redis.urlFrom: the default Redis is shared between namespaces",
            field="prefix",
            holds=lambda redis: redis.prefix is None or redis.url_from is not None,
        ),
        _immutable("prefix"),
        _immutable("queue"),
    )


# --- the worker --------------------------------------------------------------------------------------------


class Resources(ApiModel):
    """What a worker container asks for and may use, as in core/v1."""

    requests: Annotated[Mapping[str, Any], Amounts()] | None = None
    """What the scheduler reserves, by resource name: cpu, memory, ..."""
    limits: Annotated[Mapping[str, Any], Amounts()] | None = None
    """What the container may use at most, by resource name."""


_ENV_NAME = {"type": "string", "minLength": 1, "maxLength": 253}
_ENV = Free(
    "a core/v1 environment variable",
    {"name": _ENV_NAME, "value": {"type": "string", "maxLength": 32768}},
    ("name",),
)
_ENV_RULE = Rule(
    cel="self.all(e, !e.name.startsWith('DOCKWORK_') || e.name in ["
    + ", ".join(f"'{n}'" for n in USER_ENV)
    + "])",
    message="DOCKWORK_ variables are the operator's, except " + ", ".join(USER_ENV),
    holds=lambda env: all(not e["name"].startswith("DOCKWORK_") or e["name"] in USER_ENV for e in env),
)


_APP = Text(
    3, 253, r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_.]*$", "module:object, such as shop.jobs:app"
)


class Worker(ApiModel):
    """The pods that run the jobs."""

    image: Annotated[
        str, Text(1, 512, r"^\S+$", "an image reference of at most 512 characters, without blanks")
    ]
    """The image with your app in it and the Dockwork runtime."""
    app: Annotated[str, _APP] | None = None
    """Where the App object is: module:object. Exactly one of app and command."""
    command: Annotated[tuple[str, ...], Many(64, 1, item=Text(0, 4096))] | None = None
    """The whole command, where `dockwork worker` is not what should run. Exactly one of app and command."""
    args: Annotated[tuple[str, ...], Many(64, item=Text(0, 4096))] = ()
    """Arguments after the command."""
    slots: Annotated[int, Whole(1, 1000)] = 10
    """Jobs that one pod runs at once."""
    resources: Resources = Resources(requests={"cpu": "100m", "memory": "128Mi"})
    """Requests and limits of the worker container."""
    env: Annotated[tuple[Mapping[str, Any], ...], Many(128, key="name", item=_ENV, rules=(_ENV_RULE,))] = ()
    """Environment variables, as in core/v1. DOCKWORK_ names are the operator's, but for payload keys, DOCKWORK_LEASE,
    DOCKWORK_CONFIG, DOCKWORK_LOG_LEVEL and DOCKWORK_LOG_FORMAT."""
    env_from: Annotated[tuple[Mapping[str, Any], ...], Many(32, item=Free("a core/v1 envFrom source"))] = ()
    """Whole Secrets or ConfigMaps as environment variables, as in core/v1."""
    min_ready_seconds: Annotated[int, Whole(0, 600)] = 5
    """How long a new pod must be ready before it counts and an old one goes."""
    pod_template: Annotated[Mapping[str, Any], Free("a PodTemplateSpec fragment")] | None = None
    """A core/v1 PodTemplateSpec fragment, merged over ours; lists merge by name. The container of the jobs is
    `worker`. Refused: selector labels, terminationGracePeriodSeconds, automountServiceAccountToken, the probes,
    DOCKWORK_ variables, and the command where `app` is set."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.app) != has(self.command)",
            message="exactly one of worker.app and worker.command",
            field="app",
            holds=lambda worker: (worker.app is None) != (worker.command is None),
        ),
    )


# --- jobs and limits ---------------------------------------------------------------------------------------


class JobBackoff(ApiModel):
    """How long a failed job waits for its next attempt."""

    kind: Annotated[Literal["Exponential", "Fixed"], OneOf(("Exponential", "Fixed"))] = "Exponential"
    """Exponential doubles base with each attempt, up to max; Fixed always waits base."""
    base: Annotated[timedelta, Span("10ms", "24h")] = timedelta(seconds=1)
    """The first delay."""
    max: Annotated[timedelta, Span("10ms", "24h")] = timedelta(hours=1)
    """The longest delay."""
    jitter_percent: Annotated[int, Whole(0, 100)] = 100
    """Up to so much of the delay is taken off at random (100 = full jitter)."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="duration(self.base) <= duration(self.max)",
            message="backoff.base must not exceed backoff.max",
            field="base",
            holds=lambda backoff: backoff.base <= backoff.max,
        ),
    )


class Jobs(ApiModel):
    """What a job gets when neither its type nor its call says otherwise."""

    timeout: Annotated[timedelta, Span("1s", "24h")] = timedelta(minutes=5)
    """How long a run may take."""
    max_timeout: Annotated[timedelta, Span("1s", "24h")] | None = None
    """The longest timeout that a job may ask for; more is refused on enqueue. Absent = timeout. The pods'
    termination grace follows it."""
    max_attempts: Annotated[int, Whole(1, 100)] = 4
    """Failed runs after which a job is a dead letter."""
    max_deliveries: Annotated[int, Whole(1, 100)] = 5
    """How many crashes of its worker a job may see before it becomes a dead letter."""
    backoff: JobBackoff = JobBackoff()
    """How long a failed job waits for its next attempt."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.maxTimeout) || duration(self.maxTimeout) >= duration(self.timeout)",
            message="jobs.maxTimeout must not be below jobs.timeout",
            field="maxTimeout",
            holds=lambda jobs: jobs.max_timeout is None or jobs.max_timeout >= jobs.timeout,
        ),
    )

    @property
    def longest(self) -> timedelta:
        """The longest that any job of the queue may run."""
        return self.max_timeout or self.timeout


class Limits(ApiModel):
    """How much the queue takes; producers get QueueFull beyond it."""

    depth: Annotated[int, Whole(1, 100_000_000)] = 1_000_000
    """Jobs that have not ended."""
    bytes: Annotated[int, Bytes("1Ki", "1Ti")] = 2 * 2**30
    """Their payload bytes together."""
    payload_bytes: Annotated[int, Bytes("1", "8Mi")] = 256 * 2**10
    """The payload of one job."""


# --- scaling and rollout -----------------------------------------------------------------------------------


class ScalingFallback(ApiModel):
    """How many pods run while Redis cannot be read."""

    replicas: Annotated[int, Whole(0, 1000)]
    """Pods, at least; never fewer than there are."""
    after: Annotated[timedelta, Span("1s", "24h")] = timedelta(seconds=60)
    """How long Redis must have been unreadable."""


class Scaling(ApiModel):
    """How many worker pods there are."""

    mode: Annotated[Literal["Auto", "External"], OneOf(("Auto", "External"))] = "Auto"
    """Auto: the operator sizes the fleet by the work there is. External: spec.replicas is obeyed, by way of /scale."""
    min_replicas: Annotated[int, Whole(0, 1000)] = 0
    """Pods, at least (mode Auto)."""
    max_replicas: Annotated[int, Whole(1, 1000)] = 10
    """Pods, at most (mode Auto)."""
    drain_target: Annotated[timedelta, Span("1s", "24h")] | None = None
    """Within what time a backlog should be worked off; shorter means more pods. Absent = 15s."""
    target_utilization_percent: Annotated[int, Whole(10, 100)] | None = None
    """How busy slots should be in steady traffic. Absent = 80."""
    max_wait: Annotated[timedelta, Span("1s", "24h")] | None = None
    """A job that waited longer than this adds a pod. Absent = four times drainTarget."""
    expected_duration: Annotated[timedelta, Span("1ms", "24h")] = timedelta(seconds=1)
    """How long a job runs, until it was measured."""
    fallback: ScalingFallback | None = None
    """How many pods run while Redis cannot be read. Absent = as many as there are."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minReplicas <= self.maxReplicas",
            message="scaling.minReplicas must not exceed scaling.maxReplicas",
            field="minReplicas",
            holds=lambda scaling: scaling.min_replicas <= scaling.max_replicas,
        ),
        Rule(
            cel="!has(self.fallback) || self.fallback.replicas <= self.maxReplicas",
            message="scaling.fallback.replicas must not exceed scaling.maxReplicas",
            field="fallback",
            holds=lambda scaling: (
                scaling.fallback is None or scaling.fallback.replicas <= scaling.max_replicas
            ),
        ),
    )

    @property
    def drain_within(self) -> timedelta:
        """The drain target in force."""
        return self.drain_target or DEFAULT_DRAIN_TARGET

    @property
    def utilization_percent(self) -> int:
        """The target utilization in force."""
        return self.target_utilization_percent or DEFAULT_UTILIZATION_PERCENT

    @property
    def rescue_after(self) -> timedelta:
        """How old the oldest waiting job may become before a pod is added."""
        return self.max_wait or 4 * self.drain_within


class RollingUpdate(ApiModel):
    """How many pods may be new, missing and ending at once during a rollout."""

    max_surge: Annotated[str | int, NumberOrPercent()] = "25%"
    """Pods above the wanted number. Not 0 together with maxUnavailable."""
    max_unavailable: Annotated[str | int, NumberOrPercent()] = 0
    """Pods that may be missing from the wanted number."""
    max_terminating: Annotated[str | int, NumberOrPercent(least=1)] = "100%"
    """Old pods that may still finish their jobs before the rollout waits for them."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(string(self.maxSurge) in ['0', '0%', '00%'] && string(self.maxUnavailable) in ['0', '0%', '00%'])",
            message="rollingUpdate.maxSurge and rollingUpdate.maxUnavailable must not both be 0",
            field="maxSurge",
            holds=lambda rolling: (
                str(rolling.max_surge).rstrip("%").strip("0") != ""
                or str(rolling.max_unavailable).rstrip("%").strip("0") != ""
            ),
        ),
    )


class Rollout(ApiModel):
    """How a new version replaces the old one."""

    rolling_update: RollingUpdate = RollingUpdate()
    """How many pods may be new, missing and ending at once."""


class Drain(ApiModel):
    """How a pod ends."""

    grace_period: Annotated[timedelta | Literal["Auto"], SpanOr("5s", "168h")] = "Auto"
    """How long a pod may finish its jobs. Auto = the longest job timeout and 10 s."""
    requeue: Annotated[Literal["Front", "Back"], OneOf(("Front", "Back"))] = "Front"
    """Where a job goes that still runs at the deadline; Front keeps its turn."""


class Pdb(ApiModel):
    """How node drains treat the workers."""

    mode: Annotated[Literal["Auto", "None"], OneOf(("Auto", "None"))] = "Auto"
    """Auto: a PodDisruptionBudget is kept. None: there is none."""
    max_unavailable: Annotated[str | int, NumberOrPercent(least=1)] = 1
    """Pods that may be evicted at once."""


class NetworkPolicy(ApiModel):
    """What may reach the workers."""

    mode: Annotated[Literal["None", "Ingress"], OneOf(("None", "Ingress"))] = "Ingress"
    """Ingress: only port 8080 (probes, metrics) is open. None: no NetworkPolicy is made."""


class QueueSpec(ApiModel):
    """A queue of jobs and the workers that run them."""

    redis: Redis | None = None
    """Where the jobs are. Absent = the default Redis, under the Queue's own namespace and name."""
    worker: Worker
    """The pods that run the jobs."""
    jobs: Jobs = Jobs()
    """What a job gets when neither its type nor its call says otherwise. Changes restart no pod, but for maxTimeout."""
    limits: Limits = Limits()
    """How much the queue takes. Changes restart no pod."""
    replicas: Annotated[int, Whole(0, 1000)] | None = None
    """Pods wanted in scaling.mode External, written by `kubectl scale`, an HPA or KEDA. Ignored in mode Auto. The
    operator never writes it."""
    scaling: Scaling = Scaling()
    """How many worker pods there are. Changes restart no pod."""
    rollout: Rollout = Rollout()
    """How a new version replaces the old one."""
    drain: Drain = Drain()
    """How a pod ends."""
    pdb: Pdb = Pdb()
    """How node drains treat the workers."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """What may reach the workers."""

    rules: ClassVar[tuple[Rule, ...]] = (
        # Rules of an optional object do not run when it comes or goes: so its immutable fields are held here too.
        Rule(
            cel="has(self.redis) == has(oldSelf.redis)"
            " || !(has(self.redis) ? has(self.redis.prefix) || has(self.redis.queue)"
            " : has(oldSelf.redis.prefix) || has(oldSelf.redis.queue))",
            message="redis.prefix and redis.queue are immutable: jobs would stay behind under the old name",
            field="redis",
        ),
    )


# --- status ------------------------------------------------------------------------------------------------

Count = Annotated[int, Whole(0, 2**53, wide=True)]
Word = Annotated[str, Cut(most=64)]
Sentence = Annotated[str, Cut(most=1024)]
Time = Annotated[datetime, Instant()]


class RedisStatus(ApiModel):
    """The Redis server as it was last seen."""

    version: Word = ""
    """Its version."""
    run_id: Word = ""
    """Changes when the server restarts."""
    policy: Word = ""
    """maxmemory-policy; anything but noeviction can lose jobs."""
    memory_percent: Count = 0
    """Used memory of maxmemory; 0 without a limit."""


class DepthStatus(ApiModel):
    """Jobs by state, at most 10 s old."""

    waiting: Count = 0
    """Jobs that could run now: ready, prioritized and due."""
    ready: Count = 0
    """Waiting in order of arrival."""
    prioritized: Count = 0
    """Waiting in order of priority."""
    delayed: Count = 0
    """Waiting for their time."""
    due_soon: Count = 0
    """Of the delayed: due before a pod that starts now would have worked them off."""
    active: Count = 0
    """Claimed by a worker."""
    parked: Count = 0
    """Of a type that no worker knows."""
    dead: Count = 0
    """Dead letters."""
    oldest_seconds: Count = 0
    """How long the oldest job that could run waits."""
    bytes: Count = 0
    """Payload bytes of all jobs that have not ended."""


class WorkersStatus(ApiModel):
    """The fleet."""

    replicas: Count = 0
    """Pods that exist."""
    ready: Count = 0
    """Pods that are ready."""
    quiesced: Count = 0
    """Pods that were asked to claim nothing, before they go."""
    terminating: Count = 0
    """Pods that finish their jobs and end."""
    slots: Count = 0
    """Slots of all pods that beat."""
    busy: Count = 0
    """Slots in use."""
    grace_seconds: Count = 0
    """terminationGracePeriodSeconds of the pods."""
    pod_start_millis: Count = 0
    """From created to ready, smoothed."""


class ScalingInForce(ApiModel):
    """The scaling settings in force, with what was absent filled in."""

    mode: Word = ""
    """Auto or External."""
    min: Count = 0
    """Pods, at least."""
    max: Count = 0
    """Pods, at most."""
    drain_target_seconds: Count = 0
    """Within what time a backlog should be worked off."""
    utilization_percent: Count = 0
    """How busy slots should be."""
    window_seconds: Count = 0
    """How long a lower number must hold before pods go."""


class ScaleDecision(ApiModel):
    """One decision about the number of pods, with what it was made from."""

    at: Time
    """When."""
    from_: Count = Field(default=0, alias="from")
    """Pods wanted before."""
    raw: Count = 0
    """What the formula asked for, before any limit."""
    to: Count = 0
    """Pods wanted now."""
    reason: Word
    """The last rule that changed the number."""
    message: Sentence = ""
    """The same in a sentence."""
    waiting: Count = 0
    """Jobs that could run or soon can."""
    active: Count = 0
    """Jobs claimed."""
    oldest_seconds: Count = 0
    """How long the oldest waited."""
    service_millis: Count = 0
    """How long a job runs, smoothed."""
    arrivals_per_minute: Count = 0
    """Jobs that arrive, smoothed."""


class ScalingStatus(ApiModel):
    """What the operator thinks about the number of pods."""

    effective: ScalingInForce = ScalingInForce()
    """The settings in force."""
    wanted: Count = 0
    """Pods wanted."""
    last_decision: ScaleDecision | None = None
    """The last decision."""
    history: Annotated[tuple[ScaleDecision, ...], Many(20)] = ()
    """The last decisions that changed the number or the reason, newest last."""
    stale: Annotated[bool, Flag()] = False
    """true while Redis cannot be read: all figures are old."""


class Interrupted(ApiModel):
    """Jobs that a pod's end interrupted, in all."""

    requeued: Count = 0
    """Put back, to run again."""
    killed: Count = 0
    """Cut, to be found by their lease's end."""


class RolloutStatus(ApiModel):
    """The version that runs and the one that comes."""

    state: Word = ""
    """Complete, Progressing, Stalled or Held."""
    stable_hash: Word = ""
    """Hash of the pod template that is declared."""
    started_at: Time | None = None
    """When the last rollout began."""
    interrupted: Interrupted = Interrupted()
    """Jobs that a pod's end interrupted, in all."""


class StrandedStatus(ApiModel):
    """Jobs that no worker can run."""

    count: Count = 0
    """How many."""
    first_job_id: Annotated[str, Cut(most=256)] = ""
    """One of them."""
    types: Annotated[tuple[str, ...], Many(10, item=Cut(most=256))] = ()
    """Their types."""


class QueueStatus(ApiModel):
    """What the operator last saw; rebuilt from the world, never an instruction."""

    observed_generation: Count = 0
    """The metadata.generation that the rest was said of."""
    selector: Annotated[str, Cut(most=512)] = ""
    """Label selector of the worker pods, for /scale."""
    conditions: ConditionList = ()
    """What holds now."""
    redis: RedisStatus | None = None
    """The Redis server."""
    depth: DepthStatus | None = None
    """Jobs by state."""
    workers: WorkersStatus | None = None
    """The fleet."""
    scaling: ScalingStatus | None = None
    """What the operator thinks about the number of pods."""
    rollout: RolloutStatus | None = None
    """The version that runs and the one that comes."""
    stranded: StrandedStatus | None = None
    """Jobs that no worker can run."""


# --- the object --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """A Queue that could be read.

    controller    the CronJob that made it (inline worker), or None
    raw_status    what /status says; read back only as a seed
    """

    ref: ObjectRef
    uid: str
    generation: int
    spec: QueueSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    deleting: bool = False
    controller: Controller | None = None
    raw_status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def redis_namespace(self) -> str:
        """First part of the queue's name in Redis."""
        return (self.spec.redis and self.spec.redis.prefix) or self.ref.namespace

    @property
    def redis_queue(self) -> str:
        """Second part of the queue's name in Redis."""
        return (self.spec.redis and self.spec.redis.queue) or self.ref.name


def parse_queue(raw: Mapping[str, Any]) -> Queue | Refused:
    """The Queue that the API server sent, or the first field of its spec that cannot be carried out."""
    spec = read_spec(QueueSpec, raw.get("spec") or {})
    if isinstance(spec, Refused):
        return spec
    metadata = raw.get("metadata") or {}
    return Queue(
        ref=ref_of(raw),
        uid=str(metadata.get("uid") or ""),
        generation=int(metadata.get("generation") or 0),
        spec=spec,
        annotations=dict(metadata.get("annotations") or {}),
        deleting=bool(metadata.get("deletionTimestamp")),
        controller=controller_of(raw),
        raw_status=raw.get("status") or {},
    )
