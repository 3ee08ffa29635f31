"""The renewal thread's side of the store: blocking calls on a connection of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from redis import exceptions as redis_errors

from dockwork.core.keys import QueueKeys, QueueName, queues_key
from dockwork.errors import DockworkError, OutcomeUnknown, ScriptFailed, StoreUnavailable
from dockwork.store import calls
from dockwork.store.calls import Arg, Call
from dockwork.store.connections import (
    LOADS_AT_MOST,
    LOST,
    Connector,
    RedisConnection,
    connect_error,
    counts_as_disconnect,
    pack,
    pack_call,
    parse_info,
    reply_error,
)
from dockwork.store.protocol import Heartbeat, Lease, Owner, Put, Renewal, Verdict
from dockwork.store.scripts import script

R = TypeVar("R")

#: What this connection calls, loaded when it connects.
SCRIPTS = ("renew", "requeue", "leave")

#: A blocking read that is this much later than its end is a dead connection (RT-127).
LATE_S = 5.0


class RedisRenewalChannel:
    """`RenewalChannel` on Redis. Nothing is sent twice: after a lost answer the caller connects again and asks."""

    def __init__(self, connector: Connector, lease_ms: int) -> None:
        self._connector = connector
        self._lease_ms = lease_ms
        self._timeout_s = connector.settings.command_timeout.total_seconds()
        self._connection: RedisConnection | None = None
        self._run_id = ""
        self._announced: set[QueueName] = set()

    def connect(self) -> None:
        """Log in and load the scripts; a connection that was there is closed first. Raises StoreUnavailable, ..."""
        self.close()
        connection = self._connector.synchronous()
        try:
            connection.connect()
            self._connection = connection
            self._run_id = parse_info(self._command("INFO", "server")).get("run_id", "")
            for name in SCRIPTS:
                self._command("SCRIPT", "LOAD", script(name).text)
        except BaseException as error:
            connection.disconnect()
            self._connection = None
            if isinstance(error, OutcomeUnknown):
                raise StoreUnavailable("the connection was closed while it was set up") from error
            if isinstance(error, redis_errors.RedisError | OSError):
                raise connect_error(error, str(self._connector)) from error
            raise

    def renew(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal:
        self._announce(queue)
        call = calls.renew(QueueKeys(queue), leases, beat, run_id=self._run_id, lease_ms=self._lease_ms)
        return self._call(call)

    def _announce(self, queue: QueueName) -> None:
        if queue not in self._announced:
            try:
                self._command("HSETNX", queues_key(queue.namespace), queue.queue, 1)
            except ScriptFailed:
                # A full Redis takes no new field; the leases matter more, and the next renewal tries again.
                return
            self._announced.add(queue)

    def requeue(
        self,
        queue: QueueName,
        owner: Owner,
        leases: Sequence[Lease],
        *,
        put: Put = Put.FRONT,
        reason: str = "drained",
    ) -> list[Verdict]:
        return self._call(calls.requeue(QueueKeys(queue), leases, put, reason))

    def leave(self, queue: QueueName, owner: Owner, beat: Heartbeat) -> None:
        self._call(calls.leave(QueueKeys(queue), owner, beat))

    def wait_nudge(self, owner: Owner, queue: QueueName, seconds: float) -> str | None:
        key = QueueKeys(queue).nudge_list(str(owner))
        span = max(0.01, seconds)
        popped = self._command("BLPOP", key, f"{span:.3f}", timeout_s=span + LATE_S)
        return None if popped is None else str(popped[1].decode())

    def close(self) -> None:
        connection, self._connection = self._connection, None
        self._announced.clear()
        if connection is not None:
            connection.disconnect()

    def _call(self, call: Call[R]) -> R:
        packed = pack_call(call)
        for _ in range(LOADS_AT_MOST):
            try:
                return call.read(self._exchange(call.script, packed, self._timeout_s))
            except redis_errors.NoScriptError:
                # It did not run, so it is the one thing that may be sent again.
                self._command("SCRIPT", "LOAD", script(call.script).text)
            except redis_errors.RedisError as error:
                raise self._meaning(call.script, error) from error
        raise StoreUnavailable(f"{call.script}: Redis forgets its scripts as soon as they are loaded")

    def _command(self, *args: Arg, timeout_s: float | None = None) -> Any:
        span = self._timeout_s if timeout_s is None else timeout_s
        return self._answered(str(args[0]), lambda: self._exchange(str(args[0]), pack(args), span))

    def _answered(self, name: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except redis_errors.RedisError as error:
            raise self._meaning(name, error) from error

    def _exchange(self, name: str, packed: bytes, timeout_s: float) -> Any:
        connection = self._connection
        if connection is None:
            raise StoreUnavailable("the renewal connection is closed")
        try:
            connection.send_packed_command([packed], check_health=False)
            return connection.read_response(disable_decoding=True, timeout=timeout_s)
        except (redis_errors.BusyLoadingError, redis_errors.AuthenticationError):
            self.close()
            raise
        except LOST as error:
            self.close()
            raise OutcomeUnknown(f"{name}: the reply was lost: {type(error).__name__}") from error

    def _meaning(self, name: str, error: redis_errors.RedisError) -> DockworkError:
        meaning = reply_error(name, error) or StoreUnavailable(f"{name}: {type(error).__name__}")
        if counts_as_disconnect(meaning):
            self.close()
        return meaning
