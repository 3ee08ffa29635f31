"""What the application keeps in Redis for itself: receipts, pictures, facts.

Nothing of Dockwork is in here. A handler writes one receipt in the moment its work is done, so a job that ran
twice shows a 2, and a job that was lost shows nothing at all.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

RECEIPTS = "thumbnails:receipts"  #: job id -> how often its work was done
VERSIONS = "thumbnails:versions"  #: version of the application -> jobs that it did
PICTURES = "thumbnails:pictures"  #: file name -> bytes
FACTS = "thumbnails:facts"  #: picture -> what it shows, as JSON
ENQUEUED = "thumbnails:enqueued"  #: jobs that the producer was told are stored

VERSION = os.environ.get("THUMBNAILS_VERSION", "dev")


def redis_url() -> str:
    """The URL that the pod was given, as a file or as a variable."""
    file = os.environ.get("DOCKWORK_REDIS_URL_FILE")
    if file:
        return Path(file).read_text().strip()
    return os.environ.get("DOCKWORK_REDIS_URL") or os.environ.get("REDIS_URL") or "redis://localhost:6379/0"


def _certificates() -> dict[str, Any]:
    ca = os.environ.get("DOCKWORK_REDIS_CA_FILE")
    return {"ssl_ca_certs": ca} if ca and redis_url().startswith("rediss://") else {}


@cache
def store() -> redis.Redis:
    """This process' connections, for handlers that run in threads.

    Without retries: redis-py would send a lost command again, and a receipt would count twice.
    """
    return redis.Redis.from_url(redis_url(), retry=Retry(NoBackoff(), 0), socket_timeout=5, **_certificates())


def async_store() -> redis.asyncio.Redis:
    """A connection for the loop that runs, to be closed by who asked for it."""
    retry = AsyncRetry(NoBackoff(), 0)
    return redis.asyncio.Redis.from_url(redis_url(), retry=retry, socket_timeout=5, **_certificates())


def picture(name: str) -> bytes | None:
    """A picture that some job made."""
    content = store().hget(PICTURES, name)
    return content if isinstance(content, bytes) else None


def write_receipt(job_id: str, pictures: dict[str, bytes] | None = None) -> None:
    """Note that the work of a job is done, and keep what it made, in one transaction."""
    with store().pipeline(transaction=True) as pipe:
        for name, content in (pictures or {}).items():
            pipe.hset(PICTURES, name, content)
        pipe.hincrby(RECEIPTS, job_id, 1)
        pipe.hincrby(VERSIONS, VERSION, 1)
        pipe.execute()


async def write_facts(client: redis.asyncio.Redis, job_id: str, picture: str, facts: str) -> None:
    """The same for what a job found out about a picture."""
    async with client.pipeline(transaction=True) as pipe:
        pipe.hset(FACTS, picture, facts)
        pipe.hincrby(RECEIPTS, job_id, 1)
        pipe.hincrby(VERSIONS, VERSION, 1)
        await pipe.execute()
