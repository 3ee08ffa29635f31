"""Celery on Redis."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import kit
from celery import Celery

app = Celery("celery_peer", broker=kit.URL)
app.conf.update(
    task_ignore_result=True, broker_connection_retry_on_startup=True, worker_send_task_events=False
)


@app.task(name="noop")
def noop(n: int, body: str) -> None:
    kit.receipt(n)


@app.task(name="hold")
def hold(n: int) -> None:
    kit.receipt(n)
    time.sleep(kit.HOLD_S)


def put_at(n: int, at: float) -> None:
    noop.apply_async((n, kit.BODY), eta=datetime.fromtimestamp(at, UTC))


if __name__ == "__main__":
    kit.main_sync(lambda n: noop.delay(n, kit.BODY), put_at, lambda: hold.delay(kit.HELD))
