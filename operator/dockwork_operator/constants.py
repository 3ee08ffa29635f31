"""Names that other programs may rely on, and our own.

Within v1alpha1 the labels, annotations, condition types and reasons here are API: they are added to, never renamed
(OP-006). What is internal says so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

GROUP: Final = "dockwork.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

QUEUE_KIND: Final = "Queue"
QUEUE_PLURAL: Final = "queues"
CRONJOB_KIND: Final = "CronJob"
CRONJOB_PLURAL: Final = "queuecronjobs"

FIELD_MANAGER: Final = "dockwork"

# --- labels (API) ---
LABEL_NAME: Final = "app.kubernetes.io/name"
LABEL_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
LABEL_QUEUE: Final = "dockwork.dev/queue"
LABEL_TRACK: Final = "dockwork.dev/track"
LABEL_TEMPLATE_HASH: Final = "dockwork.dev/template-hash"
TRACK_STABLE: Final = "stable"
COMPONENT_WORKER: Final = "worker"
MANAGED_BY: Final = "dockwork"

# --- annotations (API) ---
ANNOTATION_ADOPTABLE_BY: Final = "dockwork.dev/adoptable-by"
"""On an object of a child's name: the Queue that may take it over (OP-078)."""

ANNOTATION_SCHEMA_REVISION: Final = "dockwork.dev/schema-revision"
"""On the CRDs: how new they are."""

ANNOTATION_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""Kubernetes' own: who goes first at a scale-down."""

# --- the worker pod (API between operator and runtime) ---
WORKER_CONTAINER: Final = "worker"
WORKER_PORT: Final = 8080
REDIS_URL_FILE: Final = "/etc/dockwork/redis/url"
REDIS_CA_FILE: Final = "/etc/dockwork/redis-ca/ca"
OWN_ENV_PREFIX: Final = "DOCKWORK_"
USER_ENV: Final = (
    "DOCKWORK_PAYLOAD_KEYS",
    "DOCKWORK_PAYLOAD_KEY",
    "DOCKWORK_PAYLOAD_KEYS_FILE",
    "DOCKWORK_LEASE",
    "DOCKWORK_CONFIG",
    "DOCKWORK_EVENTS_MAX_BYTES",
    "DOCKWORK_MAX_JOBS",
    "DOCKWORK_MAX_RSS",
    "DOCKWORK_MAX_JOBS_PER_CHILD",
    "DOCKWORK_MAX_RSS_PER_CHILD",
    "DOCKWORK_LOG_LEVEL",
    "DOCKWORK_LOG_FORMAT",
)
"""The DOCKWORK_ variables that a Queue may set itself; all others are the operator's."""

# --- internal ---
LEASE_NAME: Final = "dockwork-operator"


class Condition(StrEnum):
    """Condition types (API)."""

    ACCEPTED = "Accepted"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    PROGRESSING = "Progressing"
    DEGRADED = "Degraded"
    SCALING_ACTIVE = "ScalingActive"
    SCALING_LIMITED = "ScalingLimited"
    REDIS_REACHABLE = "RedisReachable"
    REDIS_SAFE = "RedisSafe"
    PAUSED = "Paused"
    STRANDED_JOBS = "StrandedJobs"
    SUSPENDED = "Suspended"
    MISSED_RUNS = "MissedRuns"


class Reason(StrEnum):
    """Condition reasons (API)."""

    # Accepted
    VALID = "Valid"
    INVALID_FIELD = "InvalidField"
    SECRET_NOT_FOUND = "SecretNotFound"
    SECRET_FORBIDDEN = "SecretForbidden"
    SECRET_KEY_MISSING = "SecretKeyMissing"
    QUEUE_CONFLICT = "QueueConflict"
    REDIS_UNSUPPORTED = "RedisUnsupported"
    SCHEDULE_INVALID = "ScheduleInvalid"
    SCHEDULE_NEVER_FIRES = "ScheduleNeverFires"
    TIME_ZONE_UNKNOWN = "TimeZoneUnknown"
    QUEUE_NOT_FOUND = "QueueNotFound"
    TIMEOUT_ABOVE_QUEUE_MAX = "TimeoutAboveQueueMax"
    # Ready, Reconciling, Stalled, Progressing
    AS_DECLARED = "AsDeclared"
    UNTRIED = "Untried"
    NOT_ACCEPTED = "NotAccepted"
    FIRST_CONTACT = "FirstContact"
    WORKERS_UNAVAILABLE = "WorkersUnavailable"
    APPLY_FAILED = "ApplyFailed"
    CREATING = "Creating"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    COMPLETE = "Complete"
    HELD = "Held"
    # Degraded
    CRASH_LOOP = "CrashLoop"
    PODS_CANNOT_START = "PodsCannotStart"
    FORBIDDEN = "Forbidden"
    APPLY_REJECTED = "ApplyRejected"
    NAME_CONFLICT = "NameConflict"
    REPLICAS_CONTESTED = "ReplicasContested"
    NONE = "None"
    # scaling
    AUTO = "Auto"
    EXTERNAL = "External"
    REDIS_UNREACHABLE = "RedisUnreachable"
    FALLBACK = "Fallback"
    MAX_REPLICAS = "MaxReplicas"
    CONCURRENCY = "Concurrency"
    RATE = "Rate"
    WITHIN_LIMITS = "WithinLimits"
    # Redis
    CONNECTED = "Connected"
    CONNECT_FAILED = "ConnectFailed"
    AUTH_FAILED = "AuthFailed"
    TLS_FAILED = "TLSFailed"
    TIMEOUT = "Timeout"
    LOADING = "Loading"
    READ_ONLY = "ReadOnly"
    SCRIPTS_REFUSED = "ScriptsRefused"
    SAFE = "Safe"
    EVICTION_POLICY = "EvictionPolicy"
    MEMORY_HIGH = "MemoryHigh"
    CLOCK_SKEW = "ClockSkew"
    # paused
    BY_HAND = "ByHand"
    RUNNING = "Running"
    # stranded work
    UNKNOWN_TYPE = "UnknownType"
    NO_LIVE_VERSION = "NoLiveVersion"
    # schedules
    BY_SPEC = "BySpec"
    ACTIVE = "Active"
    DEADLINE = "Deadline"
    POLICY = "Policy"


class ScaleReason(StrEnum):
    """Why a scaling decision came out as it did (API, OP-151)."""

    STEADY = "Steady"
    BACKLOG = "Backlog"
    ARRIVAL_RATE = "ArrivalRate"
    BUSY = "Busy"
    FROM_ZERO = "FromZero"
    OLDEST_WAIT = "OldestWait"
    PREWARM = "Prewarm"
    IDLE = "Idle"
    STABILIZING = "Stabilizing"
    WARMING_UP = "WarmingUp"
    MIN_REPLICAS = "MinReplicas"
    MAX_REPLICAS = "MaxReplicas"
    CONCURRENCY = "Concurrency"
    RATE = "Rate"
    PAUSED = "Paused"
    HELD = "Held"
    FALLBACK = "Fallback"
    UNREGISTERED_TYPES = "UnregisteredTypes"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    WAITING_FOR_VICTIMS = "WaitingForVictims"
    EXTERNAL = "External"
