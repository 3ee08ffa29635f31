"""Subscribers, middlewares and error reports of an app in a test without Redis; its blocking twin, name by name."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from dockwork import App, ErrorReport, Event, Gap, Item, JobRef, Rate, Repeat, State, Unique
from dockwork.core.keys import QueueName
from dockwork.events import LONGEST_BUFFER, Token
from dockwork.registry import JobCall, SyncJobCall
from dockwork.store.memory import MemoryStore
from dockwork.sync import SyncCalls, SyncJobRef


@pytest.fixture
def app() -> App:
    """An app whose Redis nobody could reach."""
    app = App("shop", redis="redis://nowhere.invalid:1", namespace="shop")

    @app.job(queue="mail", name="send", retries=0)
    async def send(to: str) -> str:
        if to == "nowhere":
            raise ValueError("no such place")
        return f"sent to {to}"

    return app


@pytest.mark.covers("RT-018", "RT-019")
@pytest.mark.parametrize("mode", ["manual", "inline"])
async def test_who_subscribed_before_is_told_in_a_test_too(app: App, mode: Any) -> None:
    told: list[tuple[str, tuple[str, ...]]] = []
    await asyncio.to_thread(app.on, "completed", lambda event: told.append((event.name, event.ids)))

    async with app.testing(mode) as t:
        job = await app.registry["send"].enqueue("ann")
        await t.run_all()
        assert told == [("completed", (job.id,))]

    async with app.testing(mode) as t:
        other = await app.registry["send"].enqueue("bob")
        await t.run_all()
        assert told[1:] == [("completed", (other.id,))]


@pytest.mark.covers("RT-018", "RT-019")
async def test_a_callback_may_enqueue_inline(app: App) -> None:
    told: list[str] = []

    async def greet(event: Event | Gap) -> None:
        told.append("begins")
        if len(told) == 1:
            await app.registry["send"].enqueue("bob")
        told.append("ends")

    app_token = await asyncio.to_thread(app.on, "completed", greet)
    async with app.testing("inline") as t:
        await app.registry["send"].enqueue("ann")
        await t.told()
        await t.told()
        assert [job.state for job in t.jobs("mail")] == [State.COMPLETED] * 2
    assert told == ["begins", "ends"] * 2
    app.off(app_token)


@pytest.mark.covers("RT-018", "RT-019")
async def test_events_of_a_test_can_be_read(app: App) -> None:
    async with app.testing() as t:
        job = await app.registry["send"].enqueue("ann")
        await t.run_all()
        events = app.events("mail", since="0", job=job.id)
        names = [(await anext(events)).name for _ in range(4)]  # type: ignore[union-attr]
        await events.aclose()
    assert names == ["ready", "active", "processing", "completed"]


@pytest.mark.covers("RT-017", "RT-022", "RT-019", "RT-143")
async def test_middlewares_and_error_reports_work_in_a_test(app: App) -> None:
    told: list[ErrorReport] = []
    app.on_error(told.append)

    @app.enqueue_middleware
    async def tenant(item: Item[Any], call_next: Any) -> Any:
        if item.args["to"] == "nobody":
            raise PermissionError
        return await call_next(item.but(headers={"tenant": "acme"}))

    async with app.testing() as t:
        with pytest.raises(PermissionError):
            await app.registry["send"].enqueue("nobody")
        await app.registry["send"].enqueue("nowhere")
        await t.run_all()

        assert [(one.type, one.headers) for one in t.enqueued] == [("send", {"tenant": "acme"})]
        assert [(error.type, error.outcome, error.message) for error in told] == [
            ("send", "dead", "no such place")
        ]
        assert [error.message for error in await app.errors("mail")] == ["no such place"]
        assert (await app.error_stats()).by_queue == {"mail": 1}


@pytest.mark.covers("RT-140", "RT-019")
async def test_a_queues_events_go_in_a_test_where_the_code_says(app: App) -> None:
    app.queue("mail", events="off")
    told: list[Any] = []
    await asyncio.to_thread(app.on_all, told.append)
    async with app.testing() as t:
        await app.registry["send"].enqueue("ann")
        await t.run_all()
        assert await t.store.last_event(t._name("mail")) == "0-0"
    assert told == []


@pytest.mark.covers("RT-018")
async def test_a_subscriber_that_is_too_slow_is_told_what_it_missed() -> None:
    told: list[Event | Gap] = []
    may_go_on = asyncio.Event()

    async def slowly(event: Event | Gap) -> None:
        await may_go_on.wait()
        told.append(event)

    def an_event(number: int) -> Event:
        return Event(id=f"{number}-0", name="ready", ids=("a",), queue="mail")

    token = Token(slowly, frozenset({"ready"}), None)
    token.offer(an_event(0))
    await asyncio.sleep(0)  # noqa: TID251
    for number in range(1, LONGEST_BUFFER + 6):  # five more than fit
        token.offer(an_event(number))
    token.offer(Event(id="x", name="active", ids=("a",), queue="mail"))
    may_go_on.set()
    await token.told()
    token.offer(an_event(LONGEST_BUFFER + 6))
    await token.told()

    assert [event.id for event in told[:-2] if isinstance(event, Event)] == [
        f"{number}-0" for number in range(LONGEST_BUFFER + 1)
    ]
    last = LONGEST_BUFFER + 6
    assert told[-2:] == [Gap(queue="mail", from_=f"{LONGEST_BUFFER}-0", to=f"{last}-0"), an_event(last)]


class Stumbling(MemoryStore):
    """A store that fails in a way nobody thought of, now and then."""

    stumbles = 2

    async def events(self, queue: QueueName, since: str, *, block_s: float) -> list[Event]:
        if self.stumbles:
            self.stumbles -= 1
            raise ZeroDivisionError("a defect")
        return await super().events(queue, since, block_s=block_s)


@pytest.mark.covers("RT-018")
async def test_a_reader_of_subscribers_outlives_what_nobody_thought_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: asyncio.Queue[Event | Gap] = asyncio.Queue()
    store = Stumbling(ticking=True)
    async with App("shop", store=store) as app:
        app.on("ready", told.put_nowait, queues=["mail"])
        job = await app.enqueue("send", {"to": "ann"}, queue="mail")
        assert (await asyncio.wait_for(told.get(), 10)).ids == (job.id,)

        store.stumbles = 1
        with pytest.raises(ZeroDivisionError):
            await anext(app.events("mail", since="0"))
    assert "events of queue mail cannot be read now: a defect" in caplog.text


#: Of an app, what is not a call on its queues, and what the twin has under another name.
NO_TWIN = {
    "submit_sync", "run_sync", "testing", "worker", "job", "queue", "backoff", "middleware", "enqueue_middleware",
    "on_error", "lifespan", "worker_lifespan", "tell_nobody", "item", "make_store", "cron",
}  # fmt: skip


def public(cls: type) -> dict[str, Any]:
    return {
        name: value
        for name in dir(cls)
        if not name.startswith("_") and inspect.isfunction(value := inspect.getattr_static(cls, name))
    }


def parameters(fn: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(fn).parameters.values()
    return [(p.name, p.kind, "a function" if inspect.isfunction(p.default) else p.default) for p in found]


@pytest.mark.covers("RT-004", "RT-024")
@pytest.mark.parametrize(
    ("whole", "twin"),
    [(App, SyncCalls), (JobRef, SyncJobRef), (JobCall, SyncJobCall)],
    ids=lambda c: c.__name__,
)
def test_every_call_has_its_blocking_twin_with_the_same_parameters(whole: type, twin: type) -> None:
    calls = {name: fn for name, fn in public(whole).items() if name not in NO_TWIN | {"item_of"}}
    twins = public(twin)

    assert sorted(set(calls) - set(twins)) == []
    different = {
        name: parameters(fn) for name, fn in calls.items() if parameters(fn) != parameters(twins[name])
    }
    assert different == {}
    assert [name for name in calls if inspect.iscoroutinefunction(twins[name])] == []


@pytest.mark.covers("RT-019", "RT-013")
@pytest.mark.parametrize("mode", ["manual", "inline"])
async def test_limits_keys_and_repeats_count_in_a_test_too(app: App, mode: Any) -> None:
    app.queue("mail", rate=Rate(2, per=60), concurrency=1)
    send = app.registry["send"]

    @app.job(queue="accounts", concurrency_key="who", per_key=1)
    async def bill(who: str) -> str:
        return who

    @app.job(queue="reports")
    async def report() -> str:
        return "done"

    async with app.testing(mode) as t:
        sent = [await send.enqueue(f"person {n}") for n in range(4)]
        await t.run_all()
        assert [await ref.state() for ref in sent] == [State.COMPLETED] * 2 + [State.READY] * 2
        await t.advance(62)
        await t.run_all()
        assert [await ref.state() for ref in sent] == [State.COMPLETED] * 4

        bills = [await bill.enqueue("ann") for _ in range(2)]
        await t.run_all()
        assert [await ref.result(timeout=0) for ref in bills] == ["ann", "ann"]

        keyed = [await bill.options(idempotency_key="order-7").enqueue("bob") for _ in range(2)]
        assert [ref.admission for ref in keyed] == ["accepted", "duplicate"]
        waiting = [await bill.options(unique=Unique("cy"), delay=5).enqueue("cy") for _ in range(2)]
        assert [ref.admission for ref in waiting] == ["accepted", "duplicate"]

        again = await report.options(repeat=Repeat.every(10, times=3)).enqueue()
        ran = 0
        for _ in range(5):
            ran += sum(job.queue == "reports" for job in await t.run_all())
            await t.advance(10)
        assert await again.state() is State.COMPLETED
        assert mode == "inline" or ran == 3


@pytest.mark.covers("RT-019", "RT-024")
async def test_what_an_operator_does_is_there_in_a_test(app: App) -> None:
    async with app.testing() as t:
        bad = await app.registry["send"].enqueue("nowhere")
        await t.run_all()
        assert await bad.state() is State.DEAD

        assert await bad.retry() == "ok"
        assert await bad.state() is State.READY
        await t.run_all()
        assert await bad.state() is State.DEAD
