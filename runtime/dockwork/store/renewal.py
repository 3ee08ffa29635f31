"""The renewal thread's side of the store: blocking calls on a connection of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import redis.exceptions as redis_errors

from dockwork.core.keys import QueueKeys, QueueName, queues_key
from dockwork.errors import DockworkError, OutcomeUnknown, ScriptFailed, StoreUnavailable
from dockwork.store import calls
from dockwork.store.calls import Arg, Call
from dockwork.store.connections import LOADS_AT_MOST, pack, pack_call, parse_info
from dockwork.store.connectors import Connector, RedisConnection
from dockwork.store.protocol import Heartbeat, Lease, Owner, Put, Renewal, Verdict
from dockwork.store.refusals import (
    LOST,
    check_mode,
    connect_error,
    counts_as_disconnect,
    redirection,
    reply_error,
)
from dockwork.store.scripts import script
from dockwork.store.sentinel import Place
from dockwork.store.topology import Topology

R = TypeVar("R")

#: Loaded when it connects; what only a rescue calls is loaded by that.
SCRIPTS = ("renew",)

#: A blocking read that is this much later than its end is a dead connection (RT-127).
LATE_S = 5.0


class _Line:
    """One connection and the run id of its server."""

    def __init__(self, connector: Connector, connection: RedisConnection) -> None:
        self.connector = connector
        self.connection = connection
        self.run_id = ""


class RedisRenewalChannel:
    """`RenewalChannel` on Redis: one connection, or one per node of a Cluster that has a queue of the caller's.

    Nothing is sent twice: after a lost answer the caller connects again and asks.
    """

    def __init__(
        self, connector: Connector, lease_ms: int, counts: Mapping[tuple[str, str], int] | None = None
    ) -> None:
        self._connector = connector
        self._counts = counts or {}
        self._lease_ms = lease_ms
        self._timeout_s = connector.settings.command_timeout.total_seconds()
        self._lines: dict[Place | None, _Line] = {}
        self._connected = False
        self._announced: set[QueueName] = set()

    def connect(self) -> None:
        """Log in and load the scripts; a connection that was there is closed first. Raises StoreUnavailable, ..."""
        self.close()
        self._connected = True
        directory = self._connector.directory
        if isinstance(directory, Topology) and directory.nodes:
            return  # the node of a queue is connected to when it is asked for the first time
        try:
            self._open(self._connector)
        except BaseException:
            self.close()
            raise

    def _open(self, connector: Connector) -> _Line:
        at = connector.at
        connector = connector.located_blocking()
        line = _Line(connector, connector.synchronous())
        try:
            line.connection.connect()
            self._greet(line)
        except BaseException as error:
            line.connection.disconnect()
            if isinstance(error, OutcomeUnknown):
                raise StoreUnavailable("the connection was closed while it was set up") from error
            if isinstance(error, redis_errors.RedisError | OSError):
                raise connect_error(error, connector) from error
            raise
        directory = connector.directory
        self._lines[connector.at if isinstance(directory, Topology) else at] = line
        return line

    def _greet(self, line: _Line) -> None:
        info = parse_info(self._command(line, "INFO", "server"))
        if line.connector.settings.mode == "sentinel":
            info |= parse_info(self._command(line, "INFO", "replication"))
        check_mode(info, line.connector)
        if isinstance(line.connector.directory, Topology):
            slots = self._command(line, "CLUSTER", "SLOTS")
            line.connector.directory.learn(slots, line.connector.address().host)
        line.run_id = info.get("run_id", "")
        for name in SCRIPTS:
            self._command(line, "SCRIPT", "LOAD", script(name).text)

    def _line(self, key: str) -> _Line:
        """The connection that serves `key`; on a Cluster it may have to be made. Raises StoreUnavailable."""
        if not self._connected:
            raise StoreUnavailable("the renewal connection is closed")
        place = self._connector.for_key(key).at
        line = self._lines.get(place)
        if line is not None:
            return line
        directory = self._connector.directory
        if not isinstance(directory, Topology):
            raise StoreUnavailable("the renewal connection is closed")
        try:
            self._open(self._connector.at_node(place))
        except StoreUnavailable:
            # Its slots may be somebody else's by now, and the loop that would find out may be blocked.
            self._ask_others(directory, place)
            if directory.node_of(key) == place:
                raise
        place = directory.node_of(key)
        return self._lines.get(place) or self._open(self._connector.at_node(place))

    def _ask_others(self, directory: Topology, silent: Place | None) -> None:
        """Learn the map from the first node that answers."""
        seeds = [(address.host, address.port) for address in self._connector.addresses()]
        for place in directory.others(silent or ("", 0), seeds):
            try:
                self._open(self._connector.at_node(place))
            except StoreUnavailable:
                continue
            return

    def renew(self, queue: QueueName, leases: Sequence[Lease], beat: Heartbeat | None) -> Renewal:
        self._announce(queue)
        keys = QueueKeys(queue)
        run_id = self._line(keys.meta).run_id
        return self._call(calls.renew(keys, leases, beat, run_id=run_id, lease_ms=self._lease_ms))

    def _announce(self, queue: QueueName) -> None:
        if queue not in self._announced:
            count = 1 if queue.partition is None else self._counts.get((queue.namespace, queue.queue))
            if count is None:
                return
            try:
                registry = queues_key(queue.namespace)
                self._command(self._line(registry), "HSETNX", registry, queue.queue, count)
            except ScriptFailed:
                # A full Redis takes no new field; the leases matter more, and the next renewal tries again.
                return
            except StoreUnavailable:
                # On a Cluster the registry is another node's, and that one's absence is not ours.
                if not isinstance(self._connector.directory, Topology):
                    raise
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
        popped = self._command(self._line(key), "BLPOP", key, f"{span:.3f}", timeout_s=span + LATE_S)
        return None if popped is None else str(popped[1].decode())

    def close(self) -> None:
        lines, self._lines = list(self._lines.values()), {}
        self._connected = False
        self._announced.clear()
        for line in lines:
            line.connection.disconnect()

    def _call(self, call: Call[R]) -> R:
        packed = pack_call(call, every_key=isinstance(self._connector.directory, Topology))
        line = self._line(call.keys.meta)
        for _ in range(LOADS_AT_MOST):
            try:
                return call.read(self._exchange(line, call.script, packed, self._timeout_s))
            except redis_errors.NoScriptError:
                # It did not run, so it is the one thing that may be sent again.
                self._command(line, "SCRIPT", "LOAD", script(call.script).text)
            except redis_errors.RedisError as error:
                raise self._meaning(line, call.script, error) from error
        raise StoreUnavailable(f"{call.script}: Redis forgets its scripts as soon as they are loaded")

    def _command(self, line: _Line, *args: Arg, timeout_s: float | None = None) -> Any:
        span = self._timeout_s if timeout_s is None else timeout_s
        try:
            return self._exchange(line, str(args[0]), pack(args), span)
        except redis_errors.RedisError as error:
            raise self._meaning(line, str(args[0]), error) from error

    def _exchange(self, line: _Line, name: str, packed: bytes, timeout_s: float) -> Any:
        try:
            line.connection.send_packed_command([packed], check_health=False)
            return line.connection.read_response(disable_decoding=True, timeout=timeout_s)
        except (redis_errors.BusyLoadingError, redis_errors.AuthenticationError):
            self.close()
            raise
        except LOST as error:
            self.close()
            raise OutcomeUnknown(f"{name}: the reply was lost: {type(error).__name__}") from error

    def _meaning(self, line: _Line, name: str, error: redis_errors.RedisError) -> DockworkError:
        """What an error reply means. A slot that went elsewhere was noted: the next call goes there."""
        meaning: DockworkError | None = redirection(name, error, line.connector)
        if meaning is None:
            meaning = reply_error(name, error) or StoreUnavailable(f"{name}: {type(error).__name__}")
        if counts_as_disconnect(meaning):
            self.close()
        return meaning
