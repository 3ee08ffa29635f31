"""What Redis says, as a condition has it: reasons, versions, and never a credential."""

from __future__ import annotations

import pytest

from dockwork.errors import (
    AccessDenied,
    DockworkError,
    OutcomeUnknown,
    SchemaMismatch,
    ScriptFailed,
    StoreUnavailable,
)
from dockwork_operator.decide.seen import RedisFailure
from dockwork_operator.observe.links import address, failure_of, server_seen, skew_ms
from dockwork_operator.observe.secrets import RedisTarget


@pytest.mark.covers("OP-102")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreUnavailable("refused"), RedisFailure.CONNECT_FAILED),
        (StoreUnavailable("handshake", "tls"), RedisFailure.TLS_FAILED),
        (StoreUnavailable("slow", "timeout"), RedisFailure.TIMEOUT),
        (StoreUnavailable("loading", "loading"), RedisFailure.LOADING),
        (StoreUnavailable("replica", "read_only"), RedisFailure.READ_ONLY),
        (AccessDenied("redis:6379 refused the login: AuthenticationError"), RedisFailure.AUTH_FAILED),
        (AccessDenied("sample: the login may not do this: NOPERM evalsha"), RedisFailure.SCRIPTS_REFUSED),
        (OutcomeUnknown("no reply"), RedisFailure.TIMEOUT),
        (TimeoutError(), RedisFailure.TIMEOUT),
        (ScriptFailed("sample", "ERR"), RedisFailure.SCRIPTS_REFUSED),
        (SchemaMismatch(found=9, readable=1), RedisFailure.SCRIPTS_REFUSED),
    ],
)
def test_each_failure_has_its_reason(error: DockworkError | TimeoutError, reason: RedisFailure) -> None:
    seen = failure_of(error, "redis:6379")
    assert seen.failure is reason
    assert seen.message.startswith("redis:6379: ")
    assert seen.sample is None


@pytest.mark.covers("OP-304")
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:s3cret@redis.shop:6380/3", "redis.shop:6380"),
        ("rediss://:s3cret@redis", "redis:6379"),
        ("unix://:s3cret@/run/redis", "unix:/run/redis"),
        ("redis://:s3cret@host:port", "redis"),
        ("s3cret", "redis"),
    ],
)
def test_an_address_shows_no_credential(url: str, shown: str) -> None:
    assert address(url) == shown
    assert "s3cret" not in repr(RedisTarget(url))


@pytest.mark.covers("OP-023")
@pytest.mark.parametrize(
    ("facts", "too_old"),
    [
        ({"version": "6.2.14"}, ""),
        ({"version": "7.2.5"}, ""),
        ({"version": "10.0.0"}, ""),
        ({"version": "6.0.16"}, "Redis 6.0.16 is too old: 6.2 or newer is needed"),
        ({"version": "7.2.4", "valkey_version": "8.1.0"}, ""),
        ({"version": "7.2.4", "valkey_version": "7.1.9"}, "Valkey 7.1.9 is too old: 7.2 or newer is needed"),
    ],
)
def test_a_version_is_old_or_not(facts: dict[str, object], too_old: str) -> None:
    assert server_seen({**facts, "policy": "noeviction", "run_id": "r"}).too_old == too_old


def test_memory_is_a_share_of_the_maximum_if_there_is_one() -> None:
    assert server_seen({"version": "7.2.5", "used_memory": 81, "maxmemory": 100}).memory_percent == 81
    assert server_seen({"version": "7.2.5", "used_memory": 81, "maxmemory": 0}).memory_percent == 0


@pytest.mark.covers("OP-255")
@pytest.mark.parametrize(
    ("time_ms", "skew"), [(1000, 0), (1400, 0), (2000, 0), (2001, 1), (9000, 7000), (400, -600)]
)
def test_a_slow_look_is_no_skew(time_ms: int, skew: int) -> None:
    assert skew_ms(time_ms, 1000, 2000) == skew
