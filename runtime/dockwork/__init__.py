"""Background jobs on Redis: enqueue from any process, run in workers, lose nothing."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dockwork.version import __version__ as __version__

if TYPE_CHECKING:
    from dockwork.app import App as App
    from dockwork.app import Queue as Queue
    from dockwork.client import Counts as Counts
    from dockwork.client import Job as Job
    from dockwork.client import JobRef as JobRef
    from dockwork.core.jobs import Context as Context
    from dockwork.core.jobs import JobInfo as JobInfo
    from dockwork.core.jobs import Keep as Keep
    from dockwork.core.jobs import StopReason as StopReason
    from dockwork.core.limits import Rate as Rate
    from dockwork.core.repeat import Repeat as Repeat
    from dockwork.core.retry import Backoff as Backoff
    from dockwork.core.sealed import Encrypted as Encrypted
    from dockwork.core.sealed import Sealed as Sealed
    from dockwork.core.slots import Shared as Shared
    from dockwork.core.states import State as State
    from dockwork.core.unique import Unique as Unique
    from dockwork.errors import AccessDenied as AccessDenied
    from dockwork.errors import Cancelled as Cancelled
    from dockwork.errors import DecryptionError as DecryptionError
    from dockwork.errors import Discard as Discard
    from dockwork.errors import DockworkError as DockworkError
    from dockwork.errors import EncryptionError as EncryptionError
    from dockwork.errors import Interrupted as Interrupted
    from dockwork.errors import InvalidArgs as InvalidArgs
    from dockwork.errors import InvalidUrl as InvalidUrl
    from dockwork.errors import InvalidValue as InvalidValue
    from dockwork.errors import JobFailed as JobFailed
    from dockwork.errors import KeyReuse as KeyReuse
    from dockwork.errors import OutcomeUnknown as OutcomeUnknown
    from dockwork.errors import QueueClosed as QueueClosed
    from dockwork.errors import QueueFull as QueueFull
    from dockwork.errors import Retry as Retry
    from dockwork.errors import RoutingConflict as RoutingConflict
    from dockwork.errors import SchemaMismatch as SchemaMismatch
    from dockwork.errors import Snooze as Snooze
    from dockwork.errors import StoreUnavailable as StoreUnavailable
    from dockwork.errors import TimedOut as TimedOut
    from dockwork.errors import TooLarge as TooLarge
    from dockwork.errors import UniqueConflict as UniqueConflict
    from dockwork.errors import Unrecoverable as Unrecoverable
    from dockwork.events import Gap as Gap
    from dockwork.keyring import Encryption as Encryption
    from dockwork.registry import Item as Item
    from dockwork.registry import JobType as JobType
    from dockwork.registry import Registry as Registry
    from dockwork.reports import ErrorStats as ErrorStats
    from dockwork.settings import RedisSettings as RedisSettings
    from dockwork.settings import Settings as Settings
    from dockwork.store.protocol import Admission as Admission
    from dockwork.store.protocol import Admitted as Admitted
    from dockwork.store.protocol import ErrorReport as ErrorReport
    from dockwork.store.protocol import Event as Event

#: Loaded at first use: the operator and the command line import parts of the package and pay for no more.
_HOMES = {
    "dockwork.app": ("App", "Queue"),
    "dockwork.client": ("Counts", "Job", "JobRef"),
    "dockwork.core.jobs": ("Context", "JobInfo", "Keep", "StopReason"),
    "dockwork.core.repeat": ("Repeat",),
    "dockwork.core.limits": ("Rate",),
    "dockwork.core.retry": ("Backoff",),
    "dockwork.core.slots": ("Shared",),
    "dockwork.core.sealed": ("Encrypted", "Sealed"),
    "dockwork.core.states": ("State",),
    "dockwork.core.unique": ("Unique",),
    "dockwork.errors": (
        "AccessDenied",
        "Cancelled",
        "Discard",
        "DecryptionError",
        "DockworkError",
        "EncryptionError",
        "Interrupted",
        "InvalidArgs",
        "InvalidUrl",
        "InvalidValue",
        "JobFailed",
        "KeyReuse",
        "OutcomeUnknown",
        "QueueClosed",
        "QueueFull",
        "Retry",
        "RoutingConflict",
        "SchemaMismatch",
        "Snooze",
        "StoreUnavailable",
        "TimedOut",
        "TooLarge",
        "UniqueConflict",
        "Unrecoverable",
    ),
    "dockwork.keyring": ("Encryption",),
    "dockwork.events": ("Gap",),
    "dockwork.registry": ("Item", "JobType", "Registry"),
    "dockwork.reports": ("ErrorStats",),
    "dockwork.settings": ("RedisSettings", "Settings"),
    "dockwork.store.protocol": ("Admission", "Admitted", "ErrorReport", "Event"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
