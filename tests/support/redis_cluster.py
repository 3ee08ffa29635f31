"""A Redis Cluster of one's own: three primaries on loopback ports, each in a folder of its own.

Slots are assigned and the nodes introduced to each other by commands, so no tool of the server's is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import redis

from support.redis_server import RedisServer, free_port
from support.waiting import until

SLOTS = 16384


class RedisCluster:
    """`primaries` servers that share the slots evenly. `url` names the first.

    tls         clients speak TLS to every node, under the name localhost
    password    of the default user, on every node
    options     of each server
    """

    def __init__(
        self,
        *,
        primaries: int = 3,
        tls: bool = False,
        aof: bool = False,
        password: str | None = None,
        options: Sequence[str] = (),
        program: str | None = None,
    ) -> None:
        self.tls = tls
        self.nodes = [
            RedisServer(
                port=0,
                tls=tls,
                aof=aof,
                password=password,
                options=[*_cluster_options(tls), *options],
                program=program,
            )
            for _ in range(primaries)
        ]
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def client(self, node: int) -> Any:
        """A plain client of one node, through its unix socket."""
        server = self.nodes[node]
        return redis.Redis(unix_socket_path=str(server.socket), password=server.password)

    def node_id(self, node: int) -> str:
        return str(_text(self.client(node).execute_command("CLUSTER", "MYID")))

    def owner(self, slot: int) -> int:
        """The node that serves `slot`, as the first of them sees it."""
        for first, last, primary, *_ in self.client(0).execute_command("CLUSTER SLOTS"):
            if first <= slot <= last:
                ids = [self.node_id(node) for node in range(len(self.nodes))]
                return ids.index(_text(primary[2]))
        raise LookupError(slot)

    def start(self) -> None:
        """Start, introduce, assign; return when every node knows who serves every slot."""
        try:
            for server in self.nodes:
                self._stack.callback(server.close)
                server.start()
            self._introduce()
            until(self._is_whole, within=30, what="every node knows every slot's")
        except BaseException:
            self.close()
            raise

    def _introduce(self) -> None:
        count = len(self.nodes)
        for node in range(count):
            client = self.client(node)
            first, last = SLOTS * node // count, SLOTS * (node + 1) // count - 1
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", node + 1)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)
        # Each with each: hearing of one another by gossip took 12 s.
        for node in range(count):
            for other in range(node):
                meet = ("CLUSTER", "MEET", "127.0.0.1", self.nodes[other].port, self._bus_port(other))
                self.client(node).execute_command(*meet)

    def _bus_port(self, node: int) -> int:
        return int(self.client(node).config_get("cluster-port")["cluster-port"])

    def _is_whole(self) -> bool:
        return all(self._knows_all(node) for node in range(len(self.nodes)))

    def _knows_all(self, node: int) -> bool:
        client = self.client(node)
        info = _text(client.execute_command("CLUSTER", "INFO", **{"NEVER_DECODE": True}))
        known = {entry[2][2] for entry in client.execute_command("CLUSTER SLOTS")}
        return "cluster_state:ok" in info and len(known) == len(self.nodes)

    def flush(self) -> None:
        """Empty every node, scripts stay."""
        for server in self.nodes:
            server.flush()

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> RedisCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cluster_options(tls: bool) -> list[str]:
    # A busy machine must not look like a failure of a node.
    options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "10000"]
    options += ["--cluster-port", str(free_port())]
    if tls:
        # Nodes tell clients their TLS ports only if they speak TLS among themselves; certificates are for a name.
        options += ["--tls-cluster", "yes"]
        options += ["--cluster-announce-hostname", "localhost"]
        options += ["--cluster-preferred-endpoint-type", "hostname"]
    return options


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
