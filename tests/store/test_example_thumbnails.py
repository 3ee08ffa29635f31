"""The example application: its handlers make pictures and leave receipts; its manifests are what the models take."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import redis
import yaml
from PIL import Image

from dockwork.errors import Unrecoverable
from support.redis_server import RedisServer
from support.waiting import until_async

EXAMPLE = Path(__file__).parents[2] / "examples" / "thumbnails"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer(port=0) as running:
        yield running


@pytest.fixture
def example(server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The example's `jobs` module, freshly imported, with this Redis in its URL file."""
    server.flush()
    (tmp_path / "url").write_text(server.url + "\n")
    monkeypatch.setenv("DOCKWORK_REDIS_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("THUMBNAILS_VERSION", "7")
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import thumbnails.enqueue
    import thumbnails.jobs

    yield thumbnails.jobs
    thumbnails.jobs.receipts.store().close()
    for name in [name for name in sys.modules if name.split(".")[0] == "thumbnails"]:
        del sys.modules[name]


@pytest.fixture
def kept(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server.url) as client:
        yield client


@pytest.fixture
async def connected(example: ModuleType) -> AsyncIterator[ModuleType]:
    async with example.connections(example.app):
        yield example


async def test_a_thumbnail_has_its_width_and_one_receipt(connected: ModuleType, kept: redis.Redis) -> None:
    made = await connected.thumbnail.run("dawn", width=160)

    content = kept.hget("thumbnails:pictures", "dawn-160.jpg")
    with Image.open(io.BytesIO(content)) as image:  # type: ignore[arg-type]
        assert image.size == (160, 106)
    assert made == {"width": 160, "height": 106, "bytes": len(content)}  # type: ignore[arg-type]
    assert list(kept.hgetall("thumbnails:receipts").values()) == [b"1"]  # type: ignore[union-attr]
    assert kept.hgetall("thumbnails:versions") == {b"7": b"1"}


async def test_facts_are_what_the_file_says(connected: ModuleType, kept: redis.Redis) -> None:
    facts = await connected.describe.run("sea")

    assert (facts["width"], facts["height"], facts["description"]) == (1280, 853, "sea, drawn by draw.py")
    assert len(facts["colours"]) == 4
    assert json.loads(kept.hget("thumbnails:facts", "sea")) == facts  # type: ignore[arg-type]


async def test_a_picture_that_is_not_there_is_never_tried_again(
    connected: ModuleType, kept: redis.Redis
) -> None:
    with pytest.raises(Unrecoverable, match=r"no picture '\.\./secrets'"):
        await connected.thumbnail.run("../secrets", width=160)

    assert kept.keys("thumbnails:*") == []


async def test_a_worker_does_what_the_producer_enqueued(connected: ModuleType, kept: redis.Redis) -> None:
    count = 60
    connected.clients.clear()  # the worker's own lifespan opens them
    assert await sys.modules["thumbnails.enqueue"].enqueue(count) == count
    sheet = await connected.contact_sheet.options(id="cron-sheet", delay=1).enqueue()
    worker = connected.app.worker(queues={"thumbnails": 4}, trap_signals=False)

    running = asyncio.create_task(worker.run())
    assert await sheet.result(timeout=60) > 0

    async def all_done() -> bool:
        return (await connected.app.stats("thumbnails")).totals.get("completed", 0) == count + 1

    await until_async(all_done, within=60)
    await worker.shutdown()
    await running
    await connected.app.close()

    receipts: dict[bytes, bytes] = kept.hgetall("thumbnails:receipts")  # type: ignore[assignment]
    assert len(receipts) == count + 1
    assert set(receipts.values()) == {b"1"}
    assert kept.get("thumbnails:enqueued") == b"60"
    assert b"contact-sheet.jpg" in kept.hkeys("thumbnails:pictures")  # type: ignore[operator]


def test_the_pictures_are_those_that_the_script_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import draw

    draw.draw_all(tmp_path)
    shipped = {path.name: path for path in (EXAMPLE / "thumbnails" / "pictures").iterdir()}

    assert sorted(shipped) == sorted(path.name for path in tmp_path.iterdir())
    assert len(shipped) == 12
    assert sum(path.stat().st_size for path in shipped.values()) < 1_500_000
    for path in tmp_path.iterdir():
        with Image.open(path) as drawn, Image.open(shipped[path.name]) as kept:
            assert (drawn.size, drawn.getexif()) == (kept.size, kept.getexif())
            assert difference(drawn, kept) < 2  # another JPEG library may round otherwise


def difference(one: Image.Image, other: Image.Image) -> float:
    """Mean distance of two pictures' grey values."""
    first, second = (image.convert("L").resize((64, 43)).tobytes() for image in (one, other))
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / len(first)


def test_the_manifests_are_what_the_models_take() -> None:
    from dockwork_operator.models.cronjobs import CronJob, parse_cronjob
    from dockwork_operator.models.queues import Queue, parse_queue

    def read(name: str) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load((EXAMPLE / name).read_text())
        found["metadata"].update(namespace="thumbnails", uid="u", generation=1)
        return found

    queue, cronjob = parse_queue(read("queue.yaml")), parse_cronjob(read("cronjob.yaml"))
    producer = read("producer.yaml")["spec"]["template"]["spec"]["containers"][0]

    assert isinstance(queue, Queue)
    assert isinstance(cronjob, CronJob)
    assert queue.spec.worker.app == "thumbnails.jobs:app"
    assert cronjob.spec.queue_ref is not None
    assert cronjob.spec.queue_ref.name == "thumbnails"
    assert producer["command"] == ["python", "-m", "thumbnails.enqueue", "2000"]


def test_the_cronjob_names_a_job_type_of_the_app(example: ModuleType) -> None:
    job = yaml.safe_load((EXAMPLE / "cronjob.yaml").read_text())["spec"]["job"]

    assert example.app.registry[job["type"]].validate(job["args"]) == job["args"]
