"""A primary, a replica and three sentinels of one's own, on loopback ports, each in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import redis

from support.redis_server import RedisServer, free_port, tls_options
from support.waiting import until

PRIMARY_NAME = "jobs"
#: A primary that is silent so long is down, for its sentinels.
DOWN_AFTER_MS = 1000


class RedisSentinel:
    """`url` names the sentinels; the name of what they watch is `PRIMARY_NAME`.

    password             of the default user, on primary and replica
    sentinel_password    of the default user, on the sentinels
    tls                  every server takes TLS alone, under the name localhost
    """

    def __init__(
        self,
        *,
        password: str | None = None,
        sentinel_password: str | None = None,
        tls: bool = False,
        options: Sequence[str] = (),
        program: str | None = None,
    ) -> None:
        self.tls = tls
        self.password = password
        self._sentinel_password = sentinel_password
        # By default a primary waits 5 s for more replicas before it serves the first.
        options = [*options, "--repl-diskless-sync-delay", "0"]
        if password is not None:
            options = [*options, "--masterauth", password]
        if tls:
            options = [*options, "--tls-replication", "yes", "--replica-announce-ip", "localhost"]
        self.servers = [
            RedisServer(port=0, tls=tls, password=password, options=options, program=program)
            for _ in range(2)
        ]
        self.sentinels = [self._sentinel(program) for _ in range(3)]
        self._stack = ExitStack()

    def _sentinel(self, program: str | None) -> _SentinelServer:
        primary = self.servers[0]
        host = "localhost" if self.tls else "127.0.0.1"
        config = ["sentinel resolve-hostnames yes", "sentinel announce-hostnames yes"] if self.tls else []
        config += [
            f"sentinel monitor {PRIMARY_NAME} {host} {primary.port} 2",
            f"sentinel down-after-milliseconds {PRIMARY_NAME} {DOWN_AFTER_MS}",
            f"sentinel failover-timeout {PRIMARY_NAME} 2500",
        ]
        if self.password is not None:
            config.append(f"sentinel auth-pass {PRIMARY_NAME} {self.password}")
        if self._sentinel_password is not None:
            config.append(f"sentinel sentinel-pass {self._sentinel_password}")
        return _SentinelServer(config, tls=self.tls, password=self._sentinel_password, program=program)

    @property
    def url(self) -> str:
        """All sentinels, with the login of the Redis servers."""
        login = f":{self.password}@" if self.password is not None else ""
        host = "localhost" if self.tls else "127.0.0.1"
        names = ",".join(f"{host}:{sentinel.port}" for sentinel in self.sentinels)
        return f"{'rediss' if self.tls else 'redis'}://{login}{names}/0"

    def primary(self) -> RedisServer:
        """Who is the primary now, as the first living sentinel says."""
        for sentinel in self.sentinels:
            if sentinel.is_running:
                reply = sentinel.client().execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", PRIMARY_NAME)
                return next(server for server in self.servers if server.port == int(reply[1]))
        raise RuntimeError("no sentinel runs")

    def replica(self) -> RedisServer:
        primary = self.primary()
        return next(server for server in self.servers if server is not primary)

    def start(self) -> None:
        """Start all; return when the replica follows and every sentinel knows the replica and the others."""
        try:
            for server in self.servers:
                self._stack.callback(server.close)
                server.start()
            first, second = self.servers
            client(second).execute_command("REPLICAOF", "localhost", first.port)
            until(self.is_replicated, within=20, what="the replica follows its primary")
            for sentinel in self.sentinels:
                self._stack.callback(sentinel.close)
                sentinel.start()
            until(self.is_whole, within=30, what="each sentinel knows the replica and the other two")
        except BaseException:
            self.close()
            raise

    def is_replicated(self) -> bool:
        """Whether a replica has all that its primary has."""
        return any(
            client(server).info("replication").get("master_link_status") == "up" for server in self.servers
        )

    def is_whole(self) -> bool:
        seen = [sentinel.client().info("sentinel")["master0"] for sentinel in self.sentinels]
        return all((one["slaves"], one["sentinels"]) == (1, 3) for one in seen)

    def fail_over(self) -> None:
        """Kill the primary; return when the other server is one."""
        old = self.primary()
        old.kill()
        until(lambda: self.primary() is not old, within=40, what="another primary is elected")

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> RedisSentinel:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SentinelServer(RedisServer):
    """A sentinel: the same program, with a file that it rewrites."""

    def __init__(
        self, config: Sequence[str], *, tls: bool, password: str | None, program: str | None
    ) -> None:
        super().__init__(port=free_port(), tls=tls, password=password, program=program)
        self._config = config

    def command(self) -> list[str]:
        listen = [f"port 0\ntls-port {self.port}\ntls-replication yes"] if self.tls else [f"port {self.port}"]
        lines = [*listen, "bind 127.0.0.1", f"dir {self.folder}", f"unixsocket {self.socket}", *self._config]
        if self.tls:
            words = tls_options()
            lines += [f"{name[2:]} {value}" for name, value in zip(words[::2], words[1::2], strict=True)]
            lines += ["sentinel announce-ip localhost"]
        if self.password is not None:
            lines.append(f"requirepass {self.password}")
        file = self.folder / "sentinel.conf"
        file.write_text("\n".join(lines) + "\n")
        return [self.program, str(file), "--sentinel"]

    def client(self) -> Any:
        return client(self)


def client(server: RedisServer) -> Any:
    """A plain client of `server`, through its unix socket."""
    return redis.Redis(unix_socket_path=str(server.socket), password=server.password)
