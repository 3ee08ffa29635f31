"""Receipts of the application's own: what ran, where and when, kept apart from what the queue says of itself.

A hash per run name: job key -> how many times it ran; a list of `version` per run tells which release ran it.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

import redis


def url_of_pod() -> str:
    """The Redis URL that the pod was given."""
    return Path(os.environ["DOCKWORK_REDIS_URL_FILE"]).read_text().strip()


@lru_cache(maxsize=1)
def client() -> redis.Redis:
    return redis.Redis.from_url(url_of_pod(), socket_timeout=10)


def begin(run: str, key: str) -> None:
    """Say that a run of `key` began."""
    client().hincrby(f"e2e:{run}:began", key, 1)


def end(run: str, key: str) -> None:
    """Say that a run of `key` came to its end, and which release did it."""
    pipe = client().pipeline()
    pipe.hincrby(f"e2e:{run}:ended", key, 1)
    pipe.hincrby(f"e2e:{run}:versions", os.environ.get("APP_VERSION", "0"), 1)
    pipe.hincrby(f"e2e:{run}:pods", os.environ.get("DOCKWORK_POD_NAME", "?"), 1)
    pipe.execute()
