"""The app of `bench/million.py`: a queue in as many partitions as there are primaries, and a handler with receipts."""

from __future__ import annotations

import os

import kit

from dockwork import App

QUEUE = os.environ.get("MILLION_QUEUE", "million")
PARTITIONS = int(os.environ.get("MILLION_PARTITIONS", "1"))

app = App("million")
app.queue(QUEUE, partitions=PARTITIONS, max_depth=5_000_000, max_bytes="16Gi")


@app.job(queue=QUEUE)
async def noop(n: int, body: str) -> None:
    kit.receipt(n)
