"""A store whose callers need not know of partitions: a call on a queue goes to the partition it concerns, or to all.

Jobs go by the hash of their key, else of their id (RT-046). A job that went by a key is not where its id says, so a
question by id asks that partition first and then the others. A queue without partitions passes through untouched.
"""

from __future__ import annotations

import asyncio
import builtins
import heapq
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeVar, cast

from dockwork.core.keys import QueueName
from dockwork.core.partitions import cursor, cursors_of, entry_order, partition_names, partition_of
from dockwork.core.states import State
from dockwork.core.unique import key_hash
from dockwork.errors import StoreUnavailable
from dockwork.store.protocol import (
    Admission,
    Admitted,
    CronEntry,
    CronState,
    ErrorReport,
    Event,
    Heartbeat,
    JobView,
    MinuteFigures,
    NewJob,
    QueueErrors,
    QueueStats,
    RateLimit,
    RevokeCause,
    Sample,
    Store,
    Ticked,
    TypeFigures,
    Upkeep,
)

T = TypeVar("T")

#: The number of a queue's partitions may change when it is empty, so it is asked for again now and then.
ASK_AGAIN_S = 60.0

#: Figures of which the largest counts for the whole queue; all other numbers are added up.
_LARGEST = frozenset(
    {
        "oldest_wait_ms",
        "oldest_ms",
        "overdue_ms",
        "config_revision",
        "config_generation",
        "time_ms",
        "minute_ms",
    }
)


def routing_keys(job: NewJob) -> builtins.list[str]:
    """The hashes of the keys that a job has, each once, by which partitions are chosen."""
    found = [key_hash(job.concurrency_key)] if job.concurrency_key is not None else []
    if job.keys is not None:
        found += [key for key in (job.keys.unique, job.keys.idempotency) if key]
    return list(dict.fromkeys(found))


def route(job: NewJob, count: int) -> int | None:
    """The partition of `job`; None if two different keys of it want different things (RoutingConflict)."""
    keys = routing_keys(job)
    return None if len(keys) > 1 else partition_of(keys[0] if keys else job.id, count)


class Partitioned:
    """The store in it, for callers that name whole queues.

    wanted    how many partitions this process' code says that a queue has; None = it says nothing
    """

    def __init__(self, store: Store, wanted: Callable[[str], int | None] = lambda queue: None) -> None:
        self._store = store
        self._begin = getattr(store, "begin_enqueue", None)
        self._wanted = wanted
        self._counts: dict[QueueName, tuple[int, float]] = {}
        self._reads: dict[tuple[QueueName, str], asyncio.Task[builtins.list[Event]]] = {}

    def __getattr__(self, name: str) -> Any:
        """What concerns no queue, or one partition by its own name, is the store's."""
        return getattr(self._store, name)

    async def names(self, queue: QueueName) -> tuple[QueueName, ...]:
        """The partitions of `queue`, or just itself. Raises InvalidValue where code and Redis differ."""
        if queue.partition is not None:
            return (queue,)
        now = asyncio.get_running_loop().time()
        count, until = self._counts.get(queue, (0, 0.0))
        if now >= until:
            try:
                count = await self._store.partitions(queue, self._wanted(queue.queue))
            except StoreUnavailable:
                # On a Cluster another node than the queue's has the number: what was known goes on.
                if not count:
                    raise
            self._counts[queue] = count, now + ASK_AGAIN_S
        return partition_names(queue, count)

    async def home(self, queue: QueueName, job_id: str) -> QueueName:
        """The partition that has the job, else the one that it would have."""
        names = await self.names(queue)
        if len(names) == 1:
            return names[0]
        order = _nearest_first(names, job_id)
        for name in order:
            if await self._store.get(name, job_id) is not None:
                return name
        return order[0]

    async def close(self) -> None:
        """Stop reading ahead and close the store; the counts are asked again after it."""
        reads, self._reads = list(self._reads.values()), {}
        for read in reads:
            read.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
        self._counts.clear()
        await self._store.close()

    # --- one partition

    async def enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> builtins.list[Admission]:
        names = await self.names(queue)
        if len(names) == 1:
            return await self._store.enqueue(names[0], jobs)
        places: dict[int, builtins.list[int]] = {}
        admissions: dict[int, Admission] = {}
        for place, job in enumerate(jobs):
            number = route(job, len(names))
            if number is None:
                admissions[place] = Admission(id=job.id, outcome=Admitted.REJECTED, reason="routing")
            else:
                places.setdefault(number, []).append(place)
        parts = [
            self._store.enqueue(names[number], [jobs[place] for place in mine])
            for number, mine in places.items()
        ]
        for mine, said in zip(places.values(), await _all(parts), strict=True):
            admissions.update(zip(mine, said, strict=True))
        return [admissions[place] for place in range(len(jobs))]

    def begin_enqueue(self, queue: QueueName, jobs: Sequence[NewJob]) -> Any:
        """See `RedisStore.begin_enqueue`: for a queue that is known to have one partition, on a store that can."""
        count, until = self._counts.get(queue, (0, 0.0))
        if self._begin is None or count != 1 or asyncio.get_running_loop().time() >= until:
            return None
        return self._begin(queue, jobs)

    async def get(self, queue: QueueName, job_id: str, *, digest: bool = False) -> JobView | None:
        for name in _nearest_first(await self.names(queue), job_id):
            view = await self._store.get(name, job_id, digest=digest)
            if view is not None:
                return view
        return None

    async def cancel(self, queue: QueueName, job_id: str, *, force: bool = False) -> str:
        answer = "missing"
        for name in _nearest_first(await self.names(queue), job_id):
            answer = await self._store.cancel(name, job_id, force=force)
            if answer != "missing":
                break
        return answer

    # --- schedules: by uid

    async def plan(self, queue: QueueName, entry: CronEntry, instants_ms: Sequence[int], **more: Any) -> str:
        return await self._store.plan(await self._of_key(queue, entry.uid), entry, instants_ms, **more)

    async def suspend(self, queue: QueueName, uid: str) -> str:
        return await self._store.suspend(await self._of_key(queue, uid), uid)

    async def resume(self, queue: QueueName, uid: str) -> str:
        return await self._store.resume(await self._of_key(queue, uid), uid)

    async def unplan(self, queue: QueueName, uid: str) -> bool:
        return await self._store.unplan(await self._of_key(queue, uid), uid)

    async def tick(
        self, queue: QueueName, uid: str | None = None, *, by: str = "worker"
    ) -> builtins.list[Ticked]:
        if uid is not None:
            return await self._store.tick(await self._of_key(queue, uid), uid, by=by)
        return _flat(await self._each(queue, lambda name: self._store.tick(name, by=by)))

    async def cron_states(
        self, queue: QueueName, uids: Sequence[str] | None = None
    ) -> builtins.list[CronState]:
        if uids is None:
            return _flat(await self._each(queue, self._store.cron_states))
        by_name: dict[QueueName, builtins.list[str]] = {}
        for uid in uids:
            by_name.setdefault(await self._of_key(queue, uid), []).append(uid)
        found = _flat([await self._store.cron_states(name, mine) for name, mine in by_name.items()])
        return sorted(found, key=lambda state: list(uids).index(state.uid))

    async def refill(self, queue: QueueName) -> builtins.list[str]:
        return _flat(await self._each(queue, self._store.refill))

    async def _of_key(self, queue: QueueName, key: str) -> QueueName:
        names = await self.names(queue)
        return names[partition_of(key, len(names))]

    # --- all partitions

    async def list(
        self, queue: QueueName, state: State, *, offset: int = 0, limit: int = 50
    ) -> builtins.list[JobView]:
        """A page of the jobs of all partitions, one partition after the other."""
        names = await self.names(queue)
        if len(names) == 1:
            return await self._store.list(names[0], state, offset=offset, limit=limit)
        found: builtins.list[JobView] = []
        for name in names:
            if offset:
                whole = (await self._store.stats(name)).counts.get(state, 0)
                if offset >= whole:
                    offset -= whole
                    continue
            if len(found) < limit:
                found += await self._store.list(name, state, offset=offset, limit=limit - len(found))
            offset = 0
        return found

    async def stats(self, queue: QueueName) -> QueueStats:
        return _merged(await self._each(queue, self._store.stats))

    async def sample(self, queue: QueueName, **more: Any) -> Sample:
        found = await self._each(queue, lambda name: self._store.sample(name, **more))
        if len(found) == 1:
            return found[0]
        beats: dict[str, builtins.list[Heartbeat]] = {}
        for one in found:
            for beat in one.workers:
                beats.setdefault(beat.owner, []).append(beat)
        return replace(_merged(found), workers=tuple(_one_beat(each) for each in beats.values()))

    async def quiesce(self, queue: QueueName, requests: Mapping[str, str]) -> Mapping[str, int]:
        return _sums(await self._each(queue, lambda name: self._store.quiesce(name, requests)))

    async def unquiesce(self, queue: QueueName, pods: Sequence[str]) -> None:
        await self._each(queue, lambda name: self._store.unquiesce(name, pods))

    async def revoke(self, queue: QueueName, owner: str, cause: RevokeCause, exit_reason: str = "") -> int:
        revoke = self._store.revoke
        return sum(await self._each(queue, lambda name: revoke(name, owner, cause, exit_reason)))

    async def promote(self, queue: QueueName, ids: Sequence[str] | None = None) -> int:
        return sum(await self._each(queue, lambda name: self._store.promote(name, ids)))

    async def reap(self, queue: QueueName) -> tuple[int, int]:
        found = await self._each(queue, self._store.reap)
        return sum(back for back, _ in found), sum(dead for _, dead in found)

    async def expire(self, queue: QueueName) -> int:
        return sum(await self._each(queue, self._store.expire))

    async def trim(self, queue: QueueName) -> int:
        return sum(await self._each(queue, self._store.trim))

    async def set_paused(self, queue: QueueName, *, expected: bool, wanted: bool) -> bool:
        """True if every partition was as expected; those that were are set all the same."""
        return all(
            await self._each(
                queue, lambda name: self._store.set_paused(name, expected=expected, wanted=wanted)
            )
        )

    async def set_closed(self, queue: QueueName, *, expected: bool, wanted: bool) -> bool:
        """As `set_paused`."""
        return all(
            await self._each(
                queue, lambda name: self._store.set_closed(name, expected=expected, wanted=wanted)
            )
        )

    async def figures(self, queue: QueueName, *, minutes: int = 60) -> builtins.list[MinuteFigures]:
        found = await self._each(queue, lambda name: self._store.figures(name, minutes=minutes))
        by_minute: dict[int, builtins.list[MinuteFigures]] = {}
        for one in _flat(found):
            by_minute.setdefault(one.minute_ms, []).append(one)
        return [_merged(by_minute[minute]) for minute in sorted(by_minute)][-minutes:]

    async def errors(self, queue: QueueName, *, limit: int = 50) -> QueueErrors:
        found = await self._each(queue, lambda name: self._store.errors(name, limit=limit))
        recent: builtins.list[ErrorReport] = sorted(
            _flat([list(one.recent) for one in found]), key=lambda report: -report.at_ms
        )
        by_type: dict[str, TypeFigures] = {}
        for one in found:
            for name, figures in one.by_type.items():
                by_type[name] = figures if name not in by_type else _merged([by_type[name], figures])
        return QueueErrors(recent=tuple(recent[:limit]), by_type=by_type)

    async def upkeep(self, queue: QueueName) -> Upkeep:
        return _merged(await self._each(queue, self._store.upkeep))

    async def key_ids(self, queue: QueueName) -> Mapping[str, int]:
        return _sums(await self._each(queue, self._store.key_ids))

    async def _each(self, queue: QueueName, ask: Callable[[QueueName], Awaitable[T]]) -> builtins.list[T]:
        return await _all([ask(name) for name in await self.names(queue)])

    # --- events: one stream per partition, read together

    async def events(self, queue: QueueName, since: str, *, block_s: float) -> builtins.list[Event]:
        names = await self.names(queue)
        if len(names) == 1:
            return await self._store.events(names[0], since, block_s=block_s)
        places = cursors_of(since, len(names))
        found = await self._read(names, places, 0)
        if not any(found) and block_s > 0:
            found = await self._read(names, places, block_s)
        merged = heapq.merge(
            *[[(entry_order(event.id), number, event) for event in one] for number, one in enumerate(found)]
        )
        events: builtins.list[Event] = []
        for _, number, event in merged:
            places[number] = event.id
            events.append(replace(event, id=cursor(event.id, places)))
        return events

    async def _read(
        self, names: Sequence[QueueName], places: Sequence[str], block_s: float
    ) -> builtins.list[builtins.list[Event]]:
        """What each partition has after its place. A read that blocks goes on for whoever asks from there again."""
        if not block_s:
            return await _all(
                [
                    self._store.events(name, place, block_s=0)
                    for name, place in zip(names, places, strict=True)
                ]
            )
        keys = list(zip(names, places, strict=True))
        for key in keys:
            if key not in self._reads:
                reading = asyncio.ensure_future(self._store.events(*key, block_s=block_s))
                self._reads[key] = reading
                reading.add_done_callback(partial(self._read_ended, key))
        tasks = [self._reads[key] for key in keys]
        done, _ = await asyncio.wait(tasks, timeout=block_s, return_when=asyncio.FIRST_COMPLETED)
        return [task.result() if task in done else [] for task in tasks]

    def _read_ended(self, key: tuple[QueueName, str], read: asyncio.Task[builtins.list[Event]]) -> None:
        # What it brought and nobody waited for is read again from the same place.
        self._reads.pop(key, None)
        if not read.cancelled():
            read.exception()

    async def last_event(self, queue: QueueName) -> str:
        names = await self.names(queue)
        last = [await self._store.last_event(name) for name in names]
        return last[0] if len(names) == 1 else cursor(max(last, key=entry_order), last)

    async def published(self, queue: QueueName) -> AsyncIterator[Event | None]:
        """What any partition publishes; None when all are listened to, and each time that one is again."""
        names = await self.names(queue)
        coming: asyncio.Queue[tuple[int, Event | None]] = asyncio.Queue()

        async def listen(number: int, name: QueueName) -> None:
            async for event in self._store.published(name):
                coming.put_nowait((number, event))

        tasks = [asyncio.ensure_future(listen(number, name)) for number, name in enumerate(names)]
        try:
            heard: set[int] = set()
            while True:
                getting = asyncio.ensure_future(coming.get())
                await asyncio.wait({getting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                if not getting.done():
                    getting.cancel()
                    for task in tasks:
                        if task.done():
                            task.result()
                    return
                number, event = getting.result()
                was_whole = len(heard) == len(names)
                if event is None:
                    heard.add(number)
                if event is not None or was_whole or len(heard) == len(names):
                    yield event
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)

    async def event_options(self, queue: QueueName) -> Any:
        return await self._store.event_options((await self.names(queue))[0])

    async def set_events(self, queue: QueueName, options: Any) -> None:
        await self._each(queue, lambda name: self._store.set_events(name, options))


def partitioned(store: Store, wanted: Callable[[str], int | None] = lambda queue: None) -> Store:
    """`store`, for callers that name whole queues."""
    return cast(Store, Partitioned(store, wanted))


async def names_of(store: Store, queue: QueueName) -> tuple[QueueName, ...]:
    """The partitions of `queue`, or just itself; so on a store that knows no partitions."""
    return await store.names(queue) if isinstance(store, Partitioned) else (queue,)


async def home_of(store: Store, queue: QueueName, job_id: str) -> QueueName:
    """Where `job_id` of `queue` is; the queue itself on a store that knows no partitions."""
    return await store.home(queue, job_id) if isinstance(store, Partitioned) else queue


def _nearest_first(names: tuple[QueueName, ...], job_id: str) -> builtins.list[QueueName]:
    """The partition of a job that went by its id, then the others."""
    first = partition_of(job_id, len(names))
    return [names[first], *names[:first], *names[first + 1 :]]


async def _all(calls: Sequence[Awaitable[T]]) -> builtins.list[T]:
    """Every answer; the first error only after all are done, so that nothing is left under way."""
    answers = await asyncio.gather(*calls, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return cast("builtins.list[T]", answers)


def _one_beat(beats: Sequence[Heartbeat]) -> Heartbeat:
    """What a worker says of the partitions that it serves on the same slots."""
    jobs = sorted((job for beat in beats for job in beat.jobs), key=lambda job: job[1])
    return replace(
        beats[0],
        busy=sum(beat.busy for beat in beats),
        longest_rest_ms=max(beat.longest_rest_ms for beat in beats),
        quiesce_token=min(beat.quiesce_token for beat in beats),
        beat_ms=min(beat.beat_ms for beat in beats),
        jobs=tuple(jobs[:20]),
        requeued=sum(beat.requeued for beat in beats),
        drained=sum(beat.drained for beat in beats),
        lost=sum(beat.lost for beat in beats),
    )


def _flat(parts: Sequence[builtins.list[T]]) -> builtins.list[T]:
    return [one for part in parts for one in part]


def _sums(parts: Sequence[Mapping[Any, int]]) -> dict[Any, int]:
    total: dict[Any, int] = {}
    for part in parts:
        for name, number in part.items():
            total[name] = total.get(name, 0) + number
    return total


def _merged(parts: Sequence[T]) -> T:
    """Figures of partitions as those of their queue: numbers add up, flags hold if they hold for one."""
    if len(parts) == 1:
        return parts[0]
    values: dict[str, Any] = {}
    for field in fields(parts[0]):  # type: ignore[arg-type]
        found = [getattr(part, field.name) for part in parts]
        values[field.name] = _together(field.name, found)
    return replace(parts[0], **values)  # type: ignore[type-var]


def _together(name: str, found: Sequence[Any]) -> Any:
    first = found[0]
    if isinstance(first, bool):
        return all(found) if name == "template_known" else any(found)
    if isinstance(first, int):
        return max(found) if name in _LARGEST else sum(found)
    if isinstance(first, Mapping):
        return _sums(found) if all(isinstance(v, int) for one in found for v in one.values()) else first
    if isinstance(first, RateLimit):
        return RateLimit(sum(one.count for one in found), first.per_ms)
    if isinstance(first, tuple):
        return tuple(one for part in found for one in part)
    return next((one for one in found if one), first)
