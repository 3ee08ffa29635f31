"""Enqueue work as a web application would: ``python -m thumbnails.enqueue 2000``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

from dockwork import Item
from thumbnails import receipts
from thumbnails.jobs import WIDTHS, app, describe, picture_names, thumbnail

#: Each tenth job only looks at a picture, the others make a thumbnail.
DESCRIBE_EACH = 10
CHUNK = 200


def items(count: int) -> Iterator[Item[Any]]:
    """`count` jobs: every picture in every width, over and over."""
    names = picture_names()
    for number in range(count):
        name, width = names[number % len(names)], WIDTHS[number // len(names) % len(WIDTHS)]
        if number % DESCRIBE_EACH == DESCRIBE_EACH - 1:
            yield describe.item(picture=name)
        else:
            yield thumbnail.item(picture=name, width=width)


async def enqueue(count: int) -> int:
    """Store the jobs, and count those that Redis said it has. Returns that count."""
    stored, wanted = 0, list(items(count))
    async with app, receipts.async_store() as client:
        for start in range(0, count, CHUNK):
            done = await app.enqueue_many(wanted[start : start + CHUNK], returning="counts")
            stored += done.accepted
            await client.incrby(receipts.ENQUEUED, done.accepted)
    return stored


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    stored = asyncio.run(enqueue(count))
    print(f"{stored} of {count} jobs enqueued")
    return 0 if stored == count else 1


if __name__ == "__main__":
    sys.exit(main())
