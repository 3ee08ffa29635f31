"""A tiny HTTP server for probes, answered by one thread that never touches Redis or the event loop.

By hand on a selector: the standard library's server brings modules of 3 MB, and a thread per request.
"""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dockwork import clock
from dockwork.errors import InvalidValue

#: Bytes of a request that are read before it is refused.
LONGEST_REQUEST = 8192
#: Seconds that a client may take to send its request and take the answer.
CLIENT_WITHIN = 5.0
MOST_CLIENTS = 64


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


#: Path to what answers it.
Routes = Mapping[str, Callable[[], Answer]]

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class _Client:
    __slots__ = ("begun_at", "left", "read", "socket")

    def __init__(self, connection: socket.socket, begun_at: float) -> None:
        self.socket = connection
        self.begun_at = begun_at
        self.read = b""
        self.left = b""


class ProbeServer:
    """Serves `routes` on `host:port`; `poll` does what is due and returns."""

    def __init__(self, address: str, routes: Routes) -> None:
        self._routes = routes
        self._clients: set[_Client] = set()
        self._selector = selectors.DefaultSelector()
        self._socket = _listen(address)
        self._selector.register(self._socket, selectors.EVENT_READ, self._accept)
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ, self._hear)

    @property
    def port(self) -> int:
        return int(self._socket.getsockname()[1])

    def poll(self, seconds: float) -> None:
        """Answer what comes within `seconds`."""
        for key, _ in self._selector.select(seconds):
            if isinstance(key.data, _Client):
                self._serve(key.data)
            else:
                key.data()
        now = clock.monotonic()
        for client in [each for each in self._clients if now - each.begun_at > CLIENT_WITHIN]:
            self._drop(client)

    def wake(self) -> None:
        """Let `poll` return now. From any thread."""
        try:
            self._bell.send(b"\0")
        except OSError:
            return  # it is full of bells, or closed

    def close(self) -> None:
        for client in list(self._clients):
            self._drop(client)
        self._selector.close()
        for each in (self._socket, self._ear, self._bell):
            each.close()

    def _hear(self) -> None:
        self._ear.recv(64)

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except OSError:
            return  # the client left between the event and the call
        if len(self._clients) >= MOST_CLIENTS:
            connection.close()
            return
        connection.setblocking(False)
        client = _Client(connection, clock.monotonic())
        self._clients.add(client)
        self._selector.register(connection, selectors.EVENT_READ, client)

    def _serve(self, client: _Client) -> None:
        try:
            if client.left:
                self._send(client)
                return
            data = client.socket.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._drop(client)
            return
        client.read += data
        if b"\r\n\r\n" in client.read or len(client.read) > LONGEST_REQUEST:
            client.left = _encode(answer_request(client.read, self._routes))
            self._selector.modify(client.socket, selectors.EVENT_WRITE, client)
        elif not data:
            self._drop(client)

    def _send(self, client: _Client) -> None:
        sent = client.socket.send(client.left)
        client.left = client.left[sent:]
        if not client.left:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        self._clients.discard(client)
        self._selector.unregister(client.socket)
        client.socket.close()


def answer_request(data: bytes, routes: Routes) -> Answer:
    """What the request `data` is answered."""
    words = data.split(b"\r\n", 1)[0].split()
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return Answer(400, b"not an HTTP request\n")
    if words[0] not in (b"GET", b"HEAD"):
        return Answer(405, b"only GET\n")
    route = routes.get(words[1].split(b"?", 1)[0].decode("latin-1"))
    if route is None:
        return Answer(404, f"one of {' '.join(routes)}\n".encode())
    answer = route()
    return answer if words[0] == b"GET" else Answer(answer.status, b"", answer.content_type)


def _encode(answer: Answer) -> bytes:
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\n"
        f"Content-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + answer.body


def _listen(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(64)
        listener.setblocking(False)
    except (OSError, ValueError) as error:
        listener.close()
        raise InvalidValue("DOCKWORK_PROBE_ADDR", expected="a free host:port", got=address) from error
    return listener
