"""Calls on a Redis Cluster: each goes to the node that serves its slot, on wires of that node's own.

MOVED, ASK and TRYAGAIN say that a call did not run, so it goes to the node that they name, or again in a moment. That
is no replay: nothing that may have run is ever sent twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from dockwork.errors import AccessDenied, StoreUnavailable
from dockwork.store.calls import Arg, Call
from dockwork.store.connections import Asks, Commands, Pace, Wire
from dockwork.store.connectors import Connector
from dockwork.store.refusals import Redirected
from dockwork.store.sentinel import Place
from dockwork.store.topology import Topology, slot_of

T = TypeVar("T")

#: Between two tries while a slot is on its way: first, and at most.
FIRST_PAUSE_S = 0.01
LONGEST_PAUSE_S = 0.25

#: Commands without a key: any node will do, or the one that the caller found by a queue.
_KEYLESS = frozenset({"TIME", "INFO", "PING", "CONFIG", "ACL", "SCRIPT", "WAIT", "SCAN", "CLIENT", "DBSIZE"})


class ClusterNodes:
    """The wires of one store to the nodes of its Cluster, for one event loop."""

    def __init__(self, connector: Connector) -> None:
        assert isinstance(connector.directory, Topology)
        self._connector = connector
        self._topology = connector.directory
        self._nodes: dict[Place, Commands] = {}

    async def routed(self, slot: int | None) -> Routed:
        """Something to ask by: its keyless commands and its run id are of the node that serves `slot`."""
        return Routed(self, slot, await self.wire(slot))

    async def wire(self, slot: int | None) -> Wire:
        """A wire to the node that serves `slot` (None: to any). Raises StoreUnavailable, AccessDenied."""
        if slot is None:
            return await self._any()
        usual = self._nodes.get(self._topology.owner(slot) or ("", 0))
        if usual is not None and (open_ := usual.idle()) is not None:
            return open_
        for _ in range(8):
            place = self._topology.owner(slot)
            if place is None:
                await self._learn()
                place = self._topology.owner(slot)
                if place is None:
                    raise StoreUnavailable(f"no node of the cluster serves slot {slot}")
            try:
                wire = await self.at(place)
            except StoreUnavailable:
                # Its slots may be somebody else's by now.
                await self._learn(instead_of=place)
                if self._topology.owner(slot) == place:
                    raise
                continue
            # A new connection brought a new map.
            if self._topology.owner(slot) == place:
                return wire
        raise StoreUnavailable("the nodes of the cluster do not agree on who serves a slot")

    async def at(self, place: Place) -> Wire:
        """A wire to one node."""
        commands = self._nodes.get(place)
        if commands is None:
            commands = self._nodes[place] = Commands(self._connector.at_node(place), Pace())
        return await commands.wire()

    async def every(self) -> list[Wire]:
        """A wire to each primary. Raises StoreUnavailable if one is away."""
        if not self._topology.nodes:
            await self._learn()
        return [await self.at(place) for place in self._topology.nodes]

    async def _any(self) -> Wire:
        places = [place for place in self._nodes if place in self._topology.nodes]
        for place in places:
            wire = self._nodes[place].idle()
            if wire is not None:
                return wire
        if not self._topology.nodes:
            await self._learn()
        error: Exception = StoreUnavailable("no node of the cluster is known")
        for place in self._topology.nodes:
            try:
                return await self.at(place)
            except StoreUnavailable as away:
                error = away
        raise error

    async def _learn(self, instead_of: Place | None = None) -> None:
        """Ask one node after the other for the map, until one answers."""
        seeds = [(address.host, address.port) for address in self._connector.addresses()]
        error: Exception | None = None
        for place in self._topology.others(instead_of or ("", 0), seeds):
            try:
                wire = await Wire.connect(self._connector.at_node(place), scripts=False)
            except (StoreUnavailable, AccessDenied) as refused:
                error = refused
                continue
            await wire.close()
            return
        if error is not None and instead_of is None:
            raise error

    async def close(self) -> None:
        nodes, self._nodes = self._nodes, {}
        for commands in nodes.values():
            await commands.close()

    async def follow(self, slot: int | None, wire: Wire, send: Callable[[Wire, bool], Awaitable[T]]) -> T:
        """What `send` brings from whichever node serves `slot`, over redirections, for at most a command's timeout.

        send    gets the wire, and whether the slot is still on its way there
        """
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._connector.settings.command_timeout.total_seconds()
        asking, pause = False, FIRST_PAUSE_S
        while True:
            try:
                return await send(wire, asking)
            except Redirected as error:
                if loop.time() >= give_up:
                    raise
                if error.to is None:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE_S)
                asking = error.asking
                wire = await (self.at(error.to) if error.to is not None else self.wire(slot))


class Routed(Asks):
    """What a store sends its calls by on a Cluster: looks like a wire, and finds the node of each key."""

    def __init__(self, nodes: ClusterNodes, slot: int | None, wire: Wire) -> None:
        self._nodes = nodes
        self._slot = slot
        self._wire = wire

    @property
    def run_id(self) -> str:
        return self._wire.run_id

    @property
    def version(self) -> str:
        return self._wire.version

    @property
    def alive(self) -> bool:
        return self._wire.alive

    async def command(self, *args: Arg, timeout_s: float | None = None) -> Any:
        """`Wire.command` at the node of the command's key."""
        return await self._plain(args, lambda wire: wire.command(*args, timeout_s=timeout_s))

    async def ask(self, *args: Arg, timeout_s: float | None = None) -> Any:
        """`Wire.ask` at the node of the command's key."""
        return await self._plain(args, lambda wire: wire.ask(*args, timeout_s=timeout_s))

    async def _plain(self, args: tuple[Arg, ...], send: Callable[[Wire], Awaitable[T]]) -> T:
        keyless = len(args) == 1 or args[0] in _KEYLESS
        slot = self._slot if keyless else slot_of(_key_of(args))

        async def once(wire: Wire, asking: bool) -> T:
            if asking:
                # Written one after the other without a pause in between, so nothing comes between them.
                wire.send(b"*1\r\n$6\r\nASKING\r\n").add_done_callback(_looked_at)
            return await send(wire)

        return await self._nodes.follow(slot, await self._wire_of(slot), once)

    async def call(self, call: Call[Any]) -> Any:
        """`Wire.call` at the node of the call's queue, whose run id the call then tells."""
        slot = slot_of(call.keys.prefix)
        told = self._wire.run_id

        async def once(wire: Wire, asking: bool) -> Any:
            nonlocal call, told
            if wire.run_id != told:
                call = replace(call, args=[wire.run_id if arg == told else arg for arg in call.args])
                told = wire.run_id
            return await wire.call(call, asking=asking)

        return await self._nodes.follow(slot, await self._wire_of(slot), once)

    async def _wire_of(self, slot: int | None) -> Wire:
        same = slot == self._slot or slot is None
        return self._wire if same and self._wire.alive else await self._nodes.wire(slot)


def _key_of(args: tuple[Arg, ...]) -> str:
    """The first key of a command."""
    at = args.index("STREAMS") + 1 if args[0] == "XREAD" else 2 if args[0] == "MEMORY" else 1
    key = args[at]
    return key.decode() if isinstance(key, bytes) else str(key)


def _looked_at(answer: asyncio.Future[Any]) -> None:
    if not answer.cancelled():
        answer.exception()
