"""The probe server: what it answers, and that it is patient with nobody."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from dockwork.errors import InvalidValue
from dockwork.worker.probes import Answer, ProbeServer, Routes, answer_request

ROUTES: Routes = {"/livez": lambda: Answer(200, b"ok\n"), "/readyz": lambda: Answer(503, b"draining\n")}


@pytest.fixture
def port() -> Iterator[int]:
    server = ProbeServer("127.0.0.1:0", ROUTES)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            server.poll(0.05)

    thread = threading.Thread(target=serve)
    thread.start()
    yield server.port
    stop.set()
    thread.join()
    server.close()


def ask(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_a_probe_gets_the_status_and_the_reason(port: int) -> None:
    assert ask(port, "/livez") == (200, b"ok\n")
    assert ask(port, "/readyz?verbose=1") == (503, b"draining\n")
    assert ask(port, "/readyz", "HEAD") == (503, b"")
    assert ask(port, "/other") == (404, b"one of /livez /readyz\n")
    assert ask(port, "/livez", "POST") == (405, b"only GET\n")


def test_a_client_that_says_nothing_keeps_nobody_waiting(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as silent:
        silent.sendall(b"GET /livez")
        assert ask(port, "/livez") == (200, b"ok\n")


def test_what_is_no_request_is_refused() -> None:
    assert answer_request(b"\x16\x03\x01\r\n\r\n", ROUTES).status == 400


def test_an_address_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            InvalidValue, match=f"DOCKWORK_PROBE_ADDR: expected a free host:port, got '{address}'"
        ):
            ProbeServer(address, ROUTES)


@pytest.mark.covers("FM-59")
def test_a_probe_costs_less_than_a_millisecond_of_cpu(port: int) -> None:
    ask(port, "/livez")
    before = time.process_time()
    for _ in range(200):
        assert ask(port, "/livez")[0] == 200
    # Both sides of it: the client is in this process too.
    assert (time.process_time() - before) / 200 < 0.001
