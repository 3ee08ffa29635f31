"""What happens in queues, as it happens: readers of event streams, and those who subscribe to them.

A reader goes on from its last id after a lost connection, and says so where the stream was trimmed meanwhile. All
subscribers of one event loop share one reader per queue; each has a buffer of its own, so a slow one holds nobody up.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from dockwork import clock
from dockwork.core.keys import QueueName
from dockwork.core.partitions import entry_order
from dockwork.core.states import ONLY_EVENTS, State
from dockwork.errors import DockworkError, OutcomeUnknown, StoreUnavailable, require, text_of
from dockwork.store.protocol import Event, EventMode, Store

log = logging.getLogger("dockwork.events")

#: How long one read waits. After each the reader looks whether the queue's events go elsewhere now.
BLOCK_S = 30.0
#: Events that wait for one subscriber; what comes beyond them is dropped, and a `Gap` says so.
LONGEST_BUFFER = 10_000
#: Pauses while Redis is away.
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0

#: What can be subscribed to. A paused job is one that waits in a paused queue: no event tells of it.
EVENT_NAMES = frozenset(state.value for state in State if state is not State.PAUSED) | ONLY_EVENTS

_CLAIMABLE = (State.READY, State.PRIORITIZED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """Entries are missing here: the stream was trimmed further than the reader had come, or nobody listened.

    from_, to     ids of the last entry before the gap and of the first after it; "" where they are not known
    """

    queue: str
    from_: str
    to: str

    @property
    def ids(self) -> tuple[str, ...]:
        """No job is named by what is missing."""
        return ()


Callback = Callable[[Event | Gap], Any]


def check_names(only: Iterable[str] | str | None) -> frozenset[str] | None:
    """Names of events. Raises InvalidValue naming the one that is none."""
    if only is None:
        return None
    names = frozenset([str(only)] if isinstance(only, str) else map(str, only))
    for name in sorted(names - EVENT_NAMES):
        require(False, "event", expected=f"one of {', '.join(sorted(EVENT_NAMES))}", got=name)
    return names


def check_queues(queues: Iterable[str] | None) -> tuple[str, ...] | None:
    """Names of queues. Raises InvalidValue."""
    return None if queues is None else tuple(QueueName("default", queue).queue for queue in queues)


class Feed:
    """Reads the events of one queue, for ever, in batches.

    since       the id to go on from, ``0`` for all that are kept, ``$`` for what comes from now on
    patient     whatever goes wrong is told and tried again, and a queue whose events are off is waited for; else
                only lost connections are
    """

    def __init__(self, store: Store, name: QueueName, since: str = "$", *, patient: bool = False) -> None:
        self.last = since
        self.began = asyncio.Event()  #: it knows where it reads from, or its first try failed
        self._store = store
        self._name = name
        self._patient = patient

    async def batches(self) -> AsyncGenerator[list[Event | Gap], None]:
        """What came, never empty. Raises InvalidValue, AccessDenied and the like unless patient."""
        failures = 0
        while True:
            try:
                async with aclosing(self._in_one_mode()) as batches:
                    async for batch in batches:
                        failures = 0
                        yield batch
            except Exception as error:
                # A subscriber's reader must not end unseen, whatever it was; another reader tells who reads.
                is_away = isinstance(error, StoreUnavailable | OutcomeUnknown)
                if not (self._patient or is_away):
                    raise
                if failures == 0:
                    text = "events of queue %s cannot be read now: %s"
                    defect = None if isinstance(error, DockworkError) else error
                    log.warning(text, self._name.queue, text_of(error), exc_info=defect)
                self.began.set()
                failures += 1
                ceiling = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures, 16))
                await asyncio.sleep(ceiling * clock.spread())

    async def _in_one_mode(self) -> AsyncGenerator[list[Event | Gap], None]:
        """Batches until it is time to look again where the queue's events go."""
        mode = (await self._store.event_options(self._name)).mode
        if mode is EventMode.OFF:
            expected = "a queue whose events are not off"
            require(self._patient, "events", expected=expected, got=f"queue {self._name.queue}")
            self.began.set()
            await asyncio.sleep(BLOCK_S)
            return
        source = self._kept() if mode is EventMode.STREAM else self._published()
        async with aclosing(source) as batches:
            async for batch in batches:
                yield batch

    async def _kept(self) -> AsyncGenerator[list[Event | Gap], None]:
        if self.last == "$":
            self.last = await self._store.last_event(self._name)
        self.began.set()
        while found := await self._store.events(self._name, self.last, block_s=BLOCK_S):
            self.last = found[-1].id
            batch: list[Event | Gap] = []
            for event in found:  # not only the first: each partition of a queue has its own stream
                if event.gap_from:
                    batch.append(Gap(queue=self._name.queue, from_=event.gap_from, to=event.id))
                batch.append(event)
            yield batch

    async def _published(self) -> AsyncGenerator[list[Event | Gap], None]:
        lost = False
        async with aclosing(_closable(self._store.published(self._name))) as messages:
            coming: asyncio.Future[Event | None] | None = None
            try:
                while True:
                    coming = coming or asyncio.ensure_future(anext(messages))
                    await asyncio.wait({coming}, timeout=BLOCK_S)
                    if not coming.done():
                        if (await self._store.event_options(self._name)).mode is not EventMode.PUBSUB:
                            return
                        continue
                    event, coming = coming.result(), None
                    if event is not None:
                        yield [event]
                        continue
                    self.began.set()
                    if lost:
                        yield [Gap(queue=self._name.queue, from_="", to="")]
                    lost = True
            finally:
                if coming is not None:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)


async def _closable(messages: AsyncIterator[Event | None]) -> AsyncGenerator[Event | None, None]:
    async for message in messages:
        yield message


class JobSeen:
    """What of a queue's events concerns one job.

    A queue is resumed by one entry for all its jobs, with the highest sequence number of them: it concerns the job if
    that waited then. The stream tells whether it did; where its older entries are gone, the job's own number does.
    """

    def __init__(self, store: Store, name: QueueName, job_id: str) -> None:
        self._store = store
        self._name = name
        self._id = job_id
        self._waits: bool | None = None

    async def begin(self) -> None:
        """Look where the job is now, before reading what comes from now on."""
        view = await self._store.get(self._name, self._id)
        self._waits = view is not None and view.state in (*_CLAIMABLE, State.PAUSED)

    async def concerns(self, event: Event) -> bool:
        if self._id in event.ids:
            if event.name not in ONLY_EVENTS:
                self._waits = event.name in _CLAIMABLE
            return True
        if event.name != "resumed":
            return event.name == "obliterated" and not event.ids  # the whole queue
        return await self._is_in_range(event) if self._waits is None else self._waits

    async def _is_in_range(self, event: Event) -> bool:
        view = await self._store.get(self._name, self._id)
        if view is None or not 0 < view.seq <= int(event.data["seq"]):
            return False
        return view.ended_ms is None or view.ended_ms >= event.at_ms


async def read_events(
    store: Store, name: QueueName, *, only: frozenset[str] | None, since: str, job: str | None
) -> AsyncGenerator[Event | Gap, None]:
    """Events of one queue, or of one job of it, for ever; gaps are told whatever `only` is."""
    feed = Feed(store, name, since)
    seen = None
    if job is not None:
        seen = JobSeen(store, name, job)
        if since == "$":
            feed.last = await store.last_event(name)
            await seen.begin()
    async with aclosing(feed.batches()) as batches:
        async for batch in batches:
            for event in batch:
                # Each is shown to the job, wanted or not: it tells where the job is.
                if seen is not None and isinstance(event, Event) and not await seen.concerns(event):
                    continue
                if only is None or isinstance(event, Gap) or event.name in only:
                    yield event


class Token:
    """A subscription, for `App.off`."""

    def __init__(self, fn: Callback, names: frozenset[str] | None, queues: Sequence[str] | None) -> None:
        self._fn = fn
        self._names = names
        self._queues = queues
        self.active = True
        self._hub: Hub | None = None
        self._waiting: deque[Event | Gap] = deque()
        self._missed: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        names = "all events" if self._names is None else ", ".join(sorted(self._names))
        return f"<Token of {getattr(self._fn, '__qualname__', self._fn)!r}: {names}>"

    async def ready(self) -> None:
        """Return when every event from now on will be told; events of an app's own later enqueues always are."""
        if self._hub is not None:
            await self._hub.ready()

    def cancel(self) -> None:
        """Tell nothing more: from any thread. A callback that runs at this moment runs to its end."""
        self.active = False
        self._waiting.clear()
        if self._hub is not None:
            self._hub.drop(self)

    def wants(self, queue: str) -> bool:
        return self.active and (self._queues is None or queue in self._queues)

    def offer(self, event: Event | Gap) -> None:
        """Tell `event` after those that wait; on the loop of the readers."""
        if self._names is not None and isinstance(event, Event) and event.name not in self._names:
            return
        if len(self._waiting) >= LONGEST_BUFFER:
            last = self._waiting[-1]
            self._missed.setdefault(event.queue, last.id if isinstance(last, Event) else last.to)
            return
        missed = self._missed.pop(event.queue, None)
        if missed is not None:
            to = event.id if isinstance(event, Event) else event.to
            self._waiting.append(Gap(queue=event.queue, from_=missed, to=to))
        self._waiting.append(event)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        try:
            told = 0
            while self._waiting and self.active:
                event = self._waiting.popleft()
                await self._call(event)
                told += 1
                if told % 100 == 0:  # callbacks that never wait must not keep the loop
                    await asyncio.sleep(0)
        finally:
            self._task = None

    async def _call(self, event: Event | Gap) -> None:
        try:
            answer = self._fn(event)
            if inspect.isawaitable(answer):
                await answer
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            # The user's code: what it raises changes nothing, for nobody.
            log.warning("a subscriber failed: %s", self, exc_info=error)

    async def told(self) -> None:
        """Return when nothing waits to be told."""
        while self._task is not None and self._task is not asyncio.current_task():
            await asyncio.wait({self._task})


class _Reader:
    """The one reader of a queue, for all its subscribers."""

    def __init__(self, hub: Hub, store: Store, name: QueueName) -> None:
        self.name = name
        self.feed = Feed(store, name, patient=True)
        self.tokens: list[Token] = []
        self.handed = "0-0"  #: the newest entry that subscribers have
        self.task = asyncio.ensure_future(self._run(hub))

    async def _run(self, hub: Hub) -> None:
        async with aclosing(self.feed.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    for token in self.tokens:
                        if token.active:
                            token.offer(event)
                self.handed = self.feed.last


class Hub:
    """The subscribers of one event loop, and their readers: one per queue, and none without a subscriber.

    queues      those that a subscriber means who names none
    """

    def __init__(
        self,
        store: Callable[[], Store],
        name: Callable[[str], QueueName],
        queues: Callable[[], Sequence[str]],
    ) -> None:
        self.tokens: list[Token] = []
        self.starting = False  #: somebody subscribed, and readers do not know yet where they read from
        self._store = store
        self._name = name
        self._queues = queues
        self._loop = asyncio.get_running_loop()
        self._readers: dict[str, _Reader] = {}

    def add(self, token: Token) -> None:
        """Begin to tell events; on this hub's loop."""
        token._hub = self
        self.tokens.append(token)
        for queue in dict.fromkeys(self._queues() if token._queues is None else token._queues):
            reader = self._readers.get(queue)
            if reader is None:
                reader = self._readers[queue] = _Reader(self, self._store(), self._name(queue))
                self.starting = True
            reader.tokens.append(token)

    def drop(self, token: Token) -> None:
        """Forget a subscriber; from any thread."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self._drop(token)
            return
        try:
            self._loop.call_soon_threadsafe(self._drop, token)
        except RuntimeError:
            return  # its loop is closed, and so are its readers

    def _drop(self, token: Token) -> None:
        if token in self.tokens:
            self.tokens.remove(token)
        for queue, reader in list(self._readers.items()):
            if token in reader.tokens:
                reader.tokens.remove(token)
            if not reader.tokens:
                reader.task.cancel()
                del self._readers[queue]

    async def ready(self) -> None:
        """Return when every reader knows where it reads from, or could not ask."""
        while waiting := [
            r for r in self._readers.values() if not r.feed.began.is_set() and not r.task.done()
        ]:
            began = [asyncio.ensure_future(reader.feed.began.wait()) for reader in waiting]
            await asyncio.wait(
                [*began, *(reader.task for reader in waiting)], return_when=asyncio.FIRST_COMPLETED
            )
            for each in began:
                each.cancel()
        self.starting = False

    async def told(self) -> None:
        """Return when every event that there was at the call has been told."""
        await self.ready()
        for reader in list(self._readers.values()):
            newest = await self._store().last_event(reader.name)
            while _order(reader.handed) < _order(newest) and not reader.task.done():
                if _order(reader.feed.last) >= _order(newest):
                    break
                await asyncio.sleep(0.001)
        for token in list(self.tokens):
            await token.told()

    async def close(self) -> None:
        """End the readers and what is being told; the subscriptions stay in `tokens`."""
        tasks: list[asyncio.Future[Any]] = [reader.task for reader in self._readers.values()]
        tasks += [token._task for token in self.tokens if token._task is not None]
        self._readers.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _order(event_id: str) -> tuple[int, int]:
    return (0, 0) if event_id == "$" else entry_order(event_id)


class Subscriptions:
    """The subscribers of an app: on every loop that uses it, and those who wait for the first that does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.early: list[Token] = []  #: who subscribed while no loop used the app

    def add(self, token: Token, hub: Callable[[], Hub]) -> Token:
        """Subscribe on the running loop, or, where none runs, on the next that uses the app."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            with self._lock:
                self.early.append(token)
        else:
            hub().add(token)
        return token

    def remove(self, token: Token) -> None:
        with self._lock:
            if token in self.early:
                self.early.remove(token)
        token.cancel()

    def join(self, hub: Hub) -> None:
        """Move those who wait to a loop's hub."""
        with self._lock:
            early, self.early = self.early, []
        for token in early:
            hub.add(token)

    def leave(self, tokens: Sequence[Token]) -> None:
        """Their loop's client is closed: these wait for the next loop that uses the app."""
        with self._lock:
            self.early += [token for token in tokens if token.active]
