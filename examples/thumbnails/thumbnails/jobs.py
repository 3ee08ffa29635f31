"""The job types: a thumbnail (in a thread), facts about a picture (async), a contact sheet (on a schedule)."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import redis.asyncio
from PIL import Image, ImageDraw, ImageOps

from dockwork import App, Backoff, Context, Unrecoverable
from thumbnails import receipts

app = App("thumbnails")

FOLDER = Path(__file__).parent / "pictures"
WIDTHS = (96, 128, 160, 192, 224, 256, 288, 320)

clients: dict[str, redis.asyncio.Redis] = {}


@app.lifespan
@asynccontextmanager
async def connections(_: App) -> AsyncIterator[None]:
    """One Redis client for all async runs of a worker process."""
    async with receipts.async_store() as client:
        clients["redis"] = client
        yield


def picture_names() -> list[str]:
    """The pictures that come with the application."""
    return sorted(path.stem for path in FOLDER.glob("*.jpg"))


def open_picture(name: str) -> Image.Image:
    """A picture by its name. No retry can find one that is not there."""
    if name not in picture_names():
        raise Unrecoverable(f"no picture {name!r}")
    return Image.open(FOLDER / f"{name}.jpg")


def as_jpeg(image: Image.Image) -> bytes:
    """The image's file content."""
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=82)
    return buffer.getvalue()


@app.job(queue="thumbnails", timeout=30, retries=3, backoff=Backoff.exponential(1, max=30))
def thumbnail(ctx: Context, picture: str, width: int) -> dict[str, int]:
    """Scale one picture down. Plain code: it runs in a thread, and several at once, as Pillow frees the GIL."""
    with open_picture(picture) as image:
        small = ImageOps.fit(image, (width, width * 2 // 3), Image.Resampling.LANCZOS)
    content = as_jpeg(small)
    receipts.write_receipt(ctx.job.id, {f"{picture}-{width}.jpg": content})
    return {"width": width, "height": small.height, "bytes": len(content)}


@app.job(queue="thumbnails", timeout=30)
async def describe(ctx: Context, picture: str) -> dict[str, object]:
    """Find out what a picture's file says of it, and its main colours."""
    facts = await asyncio.to_thread(read_facts, picture)
    await receipts.write_facts(clients["redis"], ctx.job.id, picture, json.dumps(facts))
    return facts


@app.job(queue="thumbnails", timeout=60)
def contact_sheet(ctx: Context, columns: int = 4) -> int:
    """Put the thumbnails that are there on one sheet; on a schedule, see cronjob.yaml. Returns how many."""
    found = [
        (name, content)
        for name in picture_names()
        if (content := receipts.picture(f"{name}-160.jpg")) is not None
    ]
    rows = max(-(-len(found) // columns), 1)
    sheet = Image.new("RGB", (columns * 176 + 16, rows * 138 + 16), (250, 250, 248))
    draw = ImageDraw.Draw(sheet)
    for place, (name, content) in enumerate(found):
        x, y = 16 + place % columns * 176, 16 + place // columns * 138
        with Image.open(io.BytesIO(content)) as image:
            sheet.paste(image, (x, y))
        draw.text((x, y + 108), name, fill=(60, 60, 60))
        ctx.sync.progress({"placed": place + 1, "of": len(found)})
    receipts.write_receipt(ctx.job.id, {"contact-sheet.jpg": as_jpeg(sheet)})
    return len(found)


def read_facts(picture: str) -> dict[str, object]:
    """Size, what the EXIF data say, and the four colours that cover most."""
    with open_picture(picture) as image:
        exif = image.getexif()
        reduced = image.resize((90, 60)).quantize(8).convert("RGB")
        counted: list[tuple[int, Any]] = reduced.getcolors(90 * 60) or []
        return {
            "width": image.width,
            "height": image.height,
            "description": str(exif.get(0x010E, "")),
            "drawn": str(exif.get(0x0132, "")),
            "colours": [
                "#{:02x}{:02x}{:02x}".format(*colour) for _, colour in sorted(counted, reverse=True)[:4]
            ],
        }
