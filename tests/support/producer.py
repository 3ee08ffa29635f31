"""An application's producer, as tests need it: blocking, over any Redis URL."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from dockwork import App
from dockwork.core.keys import QueueName
from dockwork.store.protocol import JobView, QueueStats
from dockwork.store.redis import RedisStore


class Producer:
    """Enqueue by name and look at queues; `with` closes it."""

    def __init__(self, url: str, *, namespace: str, app: str = "producer") -> None:
        self._namespace = namespace
        self._loop = asyncio.new_event_loop()
        self._store = RedisStore(url)
        self._app = App(app, store=self._store, namespace=namespace)

    def __enter__(self) -> Producer:
        self._loop.run_until_complete(self._store.open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run_until_complete(self._store.close())
        self._loop.close()

    def enqueue(self, queue: str, job_type: str, arguments: Mapping[str, Any], **options: Any) -> str:
        """The id of one job. Options as `App.enqueue` takes them."""
        reference = self._loop.run_until_complete(
            self._app.enqueue(job_type, dict(arguments), queue=queue, **options)
        )
        return str(reference.id)

    def enqueue_many(self, queue: str, job_type: str, arguments: Sequence[Mapping[str, Any]]) -> list[str]:
        """The ids of many jobs of one type, all of them accepted."""

        async def enqueue() -> list[str]:
            pending = [self._app.enqueue(job_type, dict(a), queue=queue) for a in arguments]
            return [str(reference.id) for reference in await asyncio.gather(*pending)]

        return self._loop.run_until_complete(enqueue())

    def stats(self, queue: str) -> QueueStats:
        return self._loop.run_until_complete(self._store.stats(QueueName(self._namespace, queue)))

    def job(self, queue: str, job_id: str) -> JobView | None:
        return self._loop.run_until_complete(self._store.get(QueueName(self._namespace, queue), job_id))
