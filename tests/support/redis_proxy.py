"""Between a client and its Redis: loses replies, cuts connections, or answers in the server's stead."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path


class RedisProxy:
    """Forwards a unix socket to another. `url` is for the client.

    lose_reply(word)     the next command that contains `word` reaches the server, its answer never the client
    cut_before(word)     the next command that contains `word` does not even reach the server
    cut_request(word, n) n bytes of the next write that contains `word` reach the server, then the connection ends
    cut_reply(word, n)   that write reaches the server whole, and n bytes of its answer the client
    """

    def __init__(self, target: Path) -> None:
        self._target = target
        self._folder = Path(tempfile.mkdtemp(prefix="dwp"))
        self._server: asyncio.Server | None = None
        self._lose: list[bytes] = []
        self._cut: list[bytes] = []
        self._short_requests: dict[bytes, int] = {}
        self._short_replies: dict[bytes, int] = {}
        self.request_bytes = 0  #: of the last write that one of these two met
        self.reply_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self.lost: int = 0
        self.delay_s: float = 0  #: how late each answer comes

    @property
    def url(self) -> str:
        return f"unix://{self._folder / 's'}"

    def lose_reply(self, word: str | bytes) -> None:
        self._lose.append(word.encode() if isinstance(word, str) else word)

    def cut_before(self, word: str | bytes) -> None:
        self._cut.append(word.encode() if isinstance(word, str) else word)

    def cut_request(self, word: str, count: int) -> None:
        self._short_requests[word.encode()] = count

    def cut_reply(self, word: str, count: int) -> None:
        self._short_replies[word.encode()] = count

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients.add(writer)
        try:
            up_reader, up_writer = await asyncio.open_unix_connection(self._target)
        except OSError:
            self._clients.discard(writer)
            await _closed(writer)
            return
        dropping = asyncio.Event()
        short: list[int] = []  # how many bytes of the next answer the client still gets
        pumps = [
            asyncio.create_task(self._to_server(reader, up_writer, dropping, short)),
            asyncio.create_task(self._to_client(up_reader, writer, dropping, short)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            self._clients.discard(writer)
            for end in (writer, up_writer):
                await _closed(end)

    async def _to_server(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dropping: asyncio.Event,
        short: list[int],
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                for word in list(self._cut):
                    if word in data:
                        self._cut.remove(word)
                        return
                for word in list(self._lose):
                    if word in data:
                        self._lose.remove(word)
                        dropping.set()
                for word in list(self._short_requests):
                    if word in data:
                        self.request_bytes = len(data)
                        writer.write(data[: self._short_requests.pop(word)])
                        await writer.drain()
                        return
                for word in list(self._short_replies):
                    if word in data:
                        self.request_bytes = len(data)
                        short.append(self._short_replies.pop(word))
                writer.write(data)
                await writer.drain()

    async def _to_client(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        dropping: asyncio.Event,
        short: list[int],
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                if dropping.is_set():
                    self.lost += 1
                    return
                if short:
                    self.reply_bytes = len(data)
                    writer.write(data[: short.pop()])
                    await writer.drain()
                    return
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)  # noqa: TID251
                writer.write(data)
                await writer.drain()

    async def __aenter__(self) -> RedisProxy:
        self._server = await asyncio.start_unix_server(self._accept, self._folder / "s")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        # Closing ends the pumps; a cancellation could meet one that is closing already.
        for client in self._clients:
            client.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)


@asynccontextmanager
async def scripted_redis(answers: Mapping[bytes, bytes]) -> AsyncIterator[str]:
    """A server that answers each command by its first word, case as sent: its URL.

    answers     b"EVALSHA" -> b"-LOADING ...\\r\\n"; others get +OK, SCRIPT EXISTS a list of ones, INFO a run id
    """
    folder = Path(tempfile.mkdtemp(prefix="dwf"))
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    words = await _command(reader)
                    writer.write(answers.get(words[0]) or _plain_answer(words))
                    await writer.drain()
        finally:
            await _closed(writer)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_unix_server(accept, folder / "s")
    try:
        yield f"unix://{folder / 's'}"
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(folder, ignore_errors=True)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _command(reader: asyncio.StreamReader) -> list[bytes]:
    count = int((await reader.readuntil(b"\r\n"))[1:])
    words = []
    for _ in range(count):
        size = int((await reader.readuntil(b"\r\n"))[1:])
        words.append((await reader.readexactly(size + 2))[:-2])
    return words


def _plain_answer(words: list[bytes]) -> bytes:
    if words[0] == b"INFO":
        text = b"run_id:0123456789\r\nredis_version:7.0.0\r\n"
        return b"$%d\r\n%b\r\n" % (len(text), text)
    if words[:2] == [b"SCRIPT", b"EXISTS"]:
        return b"*%d\r\n" % (len(words) - 2) + b":1\r\n" * (len(words) - 2)
    return b"+OK\r\n"
