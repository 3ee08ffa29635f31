"""Workers for tests: in this process against a store with short leases, or as ``dockwork worker`` processes."""

from __future__ import annotations

import asyncio
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from dockwork import App
from dockwork.core.keys import QueueName
from dockwork.core.states import State
from dockwork.settings import RedisSettings, Settings
from dockwork.store.protocol import JobView
from dockwork.store.redis import RedisStore
from dockwork.worker.worker import Worker
from support.waiting import until, until_async
from support.worker_app import app as declared

QUEUE = "work"
NAME = QueueName("default", QUEUE)
TESTS = Path(__file__).parents[1]


class World:
    """One queue on a real Redis, an app to declare job types on, and a store to look at it with."""

    def __init__(self, redis: RedisSettings | str, lease: timedelta | None = None) -> None:
        self.redis = RedisSettings(url=redis) if isinstance(redis, str) else redis
        self.url = self.redis.url or ""
        self.lease = lease
        self.app = self.an_app()
        self.store = RedisStore(self.redis)

    def an_app(self) -> App:
        """Another app on the same queue: another version of the code."""
        return App("tests", store=lambda: RedisStore(self.redis, lease=self.lease))

    async def has_passed(self, at_ms: int) -> bool:
        """Whether Redis TIME is later than `at_ms`."""
        return await self.store.ping() > at_ms

    async def declared(self, type_: str, **arguments: object) -> str:
        """The id of a new job of the processes' app, with the options of its type."""
        item = declared.registry[type_].options().item(**arguments)
        return (await self.app.submit(item)).id

    @asynccontextmanager
    async def worker(
        self, app: App | None = None, *, slots: int = 4, timeout: float = 5, **settings: Any
    ) -> AsyncIterator[Worker]:
        """A worker that runs, and is shut down at the end."""
        said = replace(
            Settings(
                redis=self.redis,
                namespace="default",
                queues={QUEUE: slots},
                trap_signals=False,
                drain_timeout=timedelta(seconds=timeout),
            ),
            **settings,
        )
        worker = (app or self.app).worker(settings=said)
        running = asyncio.ensure_future(worker.run())
        try:
            # A child process of its may have to start first, on a busy machine.
            await until_async(_started(worker, running), within=30, what="the worker runs")
            yield worker
        finally:
            await worker.shutdown(timeout)
            self.code = await running

    async def view(self, job_id: str) -> JobView:
        view = await self.store.get(NAME, job_id)
        assert view is not None, f"job {job_id} is gone"
        return view

    async def until(self, job_id: str, *states: State, within: float = 10) -> JobView:
        """The job, once it is in one of `states`."""

        async def ask() -> JobView | None:
            view = await self.view(job_id)
            return view if view.state in states else None

        view = await until_async(ask, within=within, what=f"{job_id} is {' or '.join(states)}")
        assert view is not None
        return view

    async def events(self) -> list[tuple[str, tuple[str, ...]]]:
        """All events so far, oldest first."""
        return [(event.name, event.ids) for event in await self.store.events(NAME, "0", block_s=0)]

    async def close(self) -> None:
        await self.app.close()
        await self.store.close()


def _started(worker: Worker, running: asyncio.Future[int]) -> Any:
    async def ask() -> bool:
        if running.done():
            raise AssertionError(f"the worker ended with {running.result()}")
        return worker.is_running

    return ask


class Process:
    """``dockwork worker support.worker_app:app`` as a process of its own."""

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        name: str = "worker",
        lease: float | None = None,
        environ: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        target: str = "support.worker_app:app",
    ) -> None:
        self.receipts_file = folder / "receipts"
        self.log_file = folder / f"{name}.log"
        self._environ = {
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "RECEIPTS": str(self.receipts_file),
            "DOCKWORK_REDIS_URL": url,
            "DOCKWORK_NAMESPACE": "default",
            "DOCKWORK_QUEUES": f"{QUEUE}=4",
            "DOCKWORK_LOG_FORMAT": "json",
            **({"TEST_LEASE": str(lease)} if lease is not None else {}),
            **(environ or {}),
        }
        self._command = [sys.executable, "-m", "dockwork", "worker", target, *arguments]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Process:
        """Start it, if it was not, and return at once."""
        if self.process is not None:
            return self
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._environ, stdout=log, stderr=log)
        return self

    def __enter__(self) -> Process:
        """A process that was started already is not waited for: it may be meant to end."""
        if self.process is not None:
            return self
        try:
            return self.start().until_running()
        except BaseException:
            self.__exit__()  # else it lives on, and takes the jobs of the tests that follow
            raise

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        if self.process is not None:
            self.process.wait(10)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def until_running(self) -> Process:
        """Return when its claims have begun."""
        self.until_log("worker_runs", within=60)
        return self

    def until_log(self, event: str, within: float = 20) -> None:
        """Return when it logged `event`."""

        def ask() -> bool:
            assert self.process is not None
            text = self.log()
            if f'"event": "{event}"' in text:
                return True
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{text[-3000:]}"
            return False

        until(ask, within=within, what=f"the worker logs {event}")

    def log(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    def receipts(self) -> list[str]:
        return self.receipts_file.read_text().splitlines() if self.receipts_file.exists() else []

    def until_receipt(self, line: str, count: int = 1, within: float = 15) -> None:
        """Return when the handlers have left this receipt so often."""
        until(lambda: self.receipts().count(line) >= count, within=within, what=f"{count} receipts {line!r}")

    def until_receipts(self, *starts: str, within: float = 20) -> None:
        """Return when there is a receipt that begins with each of these."""

        def ask() -> bool:
            lines = self.receipts()
            return all(any(line.startswith(start) for line in lines) for start in starts)

        until(ask, within=within, what=f"receipts {starts}")

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def wait(self, within: float = 20) -> int:
        """Its exit code."""
        assert self.process is not None
        try:
            return self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {within} s:\n{self.log()[-3000:]}") from None


def probe(port: int, path: str) -> tuple[int, str]:
    """Status and body of one probe."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
