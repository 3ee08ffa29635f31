"""Redis behind TLS: who is believed, and who is not.

The certificates in tests/support/certificates are for these tests alone; their CA's key was thrown away.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import support.redis_server
from dockwork.errors import StoreUnavailable
from dockwork.settings import RedisSettings
from dockwork.store.redis import RedisStore
from support.redis_server import RedisServer
from support.store_world import QUEUE, a_job

CERTIFICATES = Path(support.redis_server.__file__).parent / "certificates"
CA = str(CERTIFICATES / "ca.pem")


def server_context(name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATES / f"{name}.pem", CERTIFICATES / f"{name}.key")
    return context


@asynccontextmanager
async def tls_in_front(server: RedisServer, context: ssl.SSLContext) -> AsyncIterator[str]:
    """A TLS end that forwards to `server`: its URL, by the name localhost."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_unix_connection(server.socket)
        await asyncio.gather(pump(reader, up_writer), pump(up_reader, writer))
        for end in (writer, up_writer):
            with suppress(OSError):
                await end.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.get_running_loop().create_task(serve(reader, writer)))

    listening = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
    try:
        yield f"rediss://localhost:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.covers("RT-195")
async def test_a_ca_file_adds_to_what_the_system_trusts_and_the_host_is_named(server: RedisServer) -> None:
    named: list[str | None] = []
    context = server_context("localhost")
    context.sni_callback = lambda _socket, name, _context: named.append(name)
    async with tls_in_front(server, context) as url:
        store = RedisStore(url, ca_file=CA)
        channel = store.renewal_channel()
        try:
            await store.enqueue(QUEUE, [a_job("tls")])
            await asyncio.to_thread(channel.connect)
            renewal = await asyncio.to_thread(channel.renew, QUEUE, [], None)
        finally:
            await asyncio.to_thread(channel.close)
            await store.close()

    assert renewal.now_ms > 0
    assert set(named) == {"localhost"}


@pytest.mark.covers("RT-195", "FM-24")
@pytest.mark.parametrize(
    ("certificate", "ca_file"),
    [("localhost", None), ("elsewhere", CA)],
    ids=["an unknown authority", "another host's certificate"],
)
async def test_a_server_that_cannot_prove_itself_is_refused(
    server: RedisServer, certificate: str, ca_file: str | None
) -> None:
    async with tls_in_front(server, server_context(certificate)) as url:
        store = RedisStore(url, ca_file=ca_file)
        for ask in (store.open, lambda: asyncio.to_thread(store.renewal_channel().connect)):
            with pytest.raises(StoreUnavailable, match="the TLS handshake failed") as refused:
                await ask()  # type: ignore[operator]
            assert refused.value.why == "tls"
        await store.close()


@pytest.mark.covers("RT-195")
async def test_a_check_that_was_switched_off_is_off(server: RedisServer) -> None:
    async with tls_in_front(server, server_context("elsewhere")) as url:
        store = RedisStore(RedisSettings(url=url, tls_verify=False))
        try:
            assert await store.ping() > 0
        finally:
            await store.close()


@pytest.mark.covers("RT-195", "FM-24")
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
async def test_an_old_version_of_tls_is_refused(server: RedisServer) -> None:
    context = server_context("localhost")
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    async with tls_in_front(server, context) as url:
        old = ssl.create_default_context(cafile=CA)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = ssl.TLSVersion.TLSv1_1
        _, writer = await asyncio.open_connection("localhost", int(url.rpartition(":")[2]), ssl=old)
        writer.close()
        await writer.wait_closed()

        store = RedisStore(url, ca_file=CA)
        with pytest.raises(StoreUnavailable, match="rediss://localhost"):
            await store.open()
        await store.close()
