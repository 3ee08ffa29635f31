"""The renewal thread's access to a store in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dockwork.core.keys import QueueName
from dockwork.errors import StoreUnavailable
from dockwork.store.protocol import Heartbeat, Lease, Owner, Put, Renewal, Verdict

if TYPE_CHECKING:
    from dockwork.store.memory import MemoryStore


class MemoryRenewalChannel:
    """`RenewalChannel` on a store in memory."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._closed = threading.Event()
        self._closed.set()

    def connect(self) -> None:
        self._closed.clear()

    def renew(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal:
        return self._open_store().renew_now(queue, leases, beat)

    def wait_nudge(self, owner: Owner, queue: QueueName, seconds: float) -> str | None:
        return self._open_store().wait_nudge_now(owner, queue, seconds, self._closed)

    def requeue(
        self,
        queue: QueueName,
        owner: Owner,
        leases: Sequence[Lease],
        *,
        put: Put = Put.FRONT,
        reason: str = "drained",
    ) -> list[Verdict]:
        return self._open_store().requeue_now(queue, leases, put=put, reason=reason)

    def leave(self, queue: QueueName, owner: Owner, beat: Heartbeat) -> None:
        self._open_store().leave_now(queue, owner, beat)

    def close(self) -> None:
        self._closed.set()
        self._store.wake_sleepers()

    def _open_store(self) -> MemoryStore:
        if self._closed.is_set():
            raise StoreUnavailable("the renewal connection is closed")
        return self._store
