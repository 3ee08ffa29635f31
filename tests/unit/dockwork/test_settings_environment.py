"""What the environment says, and what beats what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dockwork import App, InvalidValue, RedisSettings, Settings, settings
from dockwork.settings import granted_cpus, parse_queues, share_slots

SECRET = "hunter2-very-secret"


def read(environ: Mapping[str, str], **code: Any) -> Settings:
    return Settings.from_environ(environ, **code)


REDIS_CASES = [
    ("REDIS_URL", "redis://a:1/2", "url", "redis://a:1/2"),
    ("REDIS_URL_FILE", "/etc/url", "url_file", "/etc/url"),
    ("REDIS_HOST", "redis.example", "host", "redis.example"),
    ("REDIS_PORT", "7000", "port", 7000),
    ("REDIS_PASS", SECRET, "password", SECRET),
    ("REDIS_POOL_SIZE", "4", "pool_size", 4),
    ("REDIS_POOL_TIMEOUT", "2.5", "pool_timeout", timedelta(seconds=2.5)),
    ("REDIS_CONNECT_TIMEOUT", "1500ms", "connect_timeout", timedelta(seconds=1.5)),
    ("REDIS_COMMAND_TIMEOUT", "9", "command_timeout", timedelta(seconds=9)),
    ("REDIS_CA_FILE", "/etc/ca", "ca_file", "/etc/ca"),
    ("REDIS_TLS_VERIFY", "off", "tls_verify", False),
    ("REDIS_MODE", "cluster", "mode", "cluster"),
    ("REDIS_SENTINEL_USER", "guard", "sentinel_user", "guard"),
    ("REDIS_SENTINEL_PASS", SECRET, "sentinel_password", SECRET),
]


@pytest.mark.covers("RT-189")
@pytest.mark.parametrize(("variable", "text", "field", "value"), REDIS_CASES)
@pytest.mark.parametrize("prefix", ["", "DOCKWORK_"])
def test_each_redis_variable_is_read_with_and_without_our_prefix(
    prefix: str, variable: str, text: str, field: str, value: object
) -> None:
    assert getattr(read({prefix + variable: text}).redis, field) == value


@pytest.mark.covers("RT-189", "RT-194")
@pytest.mark.parametrize("prefix", ["", "DOCKWORK_"])
def test_the_sentinels_are_told_by_three_variables_and_no_secret_is_shown(prefix: str) -> None:
    found = read(
        {
            f"{prefix}REDIS_MODE": "sentinel",
            f"{prefix}REDIS_SENTINEL_MASTER": "jobs",
            f"{prefix}REDIS_SENTINEL_PASS": SECRET,
        }
    ).redis

    assert (found.mode, found.sentinel_master) == ("sentinel", "jobs")
    assert SECRET not in repr(found)


@pytest.mark.covers("RT-189")
def test_the_defaults_are_those_of_the_table() -> None:
    found = read({})

    assert found.redis == RedisSettings(
        host="localhost",
        port=6379,
        pool_size=16,
        pool_timeout=timedelta(seconds=5),
        connect_timeout=timedelta(seconds=5),
        command_timeout=timedelta(seconds=5),
        tls_verify=True,
    )
    assert (found.drain_timeout, found.drain_requeue, found.trap_signals) == (
        timedelta(seconds=15),
        "front",
        True,
    )


@pytest.mark.covers("RT-189")
@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("NAMESPACE", "shop", "namespace", "shop"),
        ("QUEUES", "mail=8,default", "queues", {"mail": 8, "default": None}),
        ("CONCURRENCY", "12", "concurrency", 12),
        ("LEASE", "30s", "lease", timedelta(seconds=30)),
        ("DRAIN_TIMEOUT", "2m", "drain_timeout", timedelta(minutes=2)),
        ("DRAIN_REQUEUE", "back", "drain_requeue", "back"),
        ("TRAP_SIGNALS", "no", "trap_signals", False),
        ("POD_UID", "u-1", "pod_uid", "u-1"),
        ("POD_NAME", "mail-worker-x", "pod_name", "mail-worker-x"),
        ("CONTAINER", "worker", "container", "worker"),
        ("TEMPLATE_HASH", "5b8c", "template_hash", "5b8c"),
        ("PROBE_ADDR", "0.0.0.0:8080", "probe_addr", "0.0.0.0:8080"),
        ("LOG_LEVEL", "debug", "log_level", "DEBUG"),
        ("LOG_FORMAT", "json", "log_format", "json"),
    ],
)
def test_each_variable_of_ours_is_read_only_under_our_prefix(
    variable: str, text: str, field: str, value: object
) -> None:
    assert getattr(read({f"DOCKWORK_{variable}": text}), field) == value
    assert getattr(read({variable: text}), field) == getattr(read({}), field)


@pytest.mark.covers("RT-189")
def test_ours_beats_code_and_code_beats_the_bare_variable() -> None:
    bare, ours = {"REDIS_URL": "redis://bare"}, {"DOCKWORK_REDIS_URL": "redis://ours"}

    assert read(bare).redis.url == "redis://bare"
    assert read(bare, redis="redis://code").redis.url == "redis://code"
    assert read({**bare, **ours}, redis="redis://code").redis.url == "redis://ours"
    assert read({"DOCKWORK_NAMESPACE": "ours"}, namespace="code").namespace == "ours"
    assert read({"REDIS_POOL_SIZE": "3"}, redis=RedisSettings(pool_size=5)).redis.pool_size == 5
    assert read({"DOCKWORK_REDIS_POOL_SIZE": "3"}, redis=RedisSettings(pool_size=5)).redis.pool_size == 3


@pytest.mark.covers("RT-189")
@pytest.mark.parametrize(
    ("environ", "code", "address"),
    [
        ({"REDIS_URL_FILE": "/f", "REDIS_URL": "u", "REDIS_HOST": "h"}, None, ("/f", None)),
        ({"REDIS_URL": "u", "REDIS_HOST": "h", "REDIS_PASS": "p"}, None, (None, "u")),
        # The prefix counts before the kind: a pod's own address beats an app's file.
        ({"DOCKWORK_REDIS_URL": "u", "REDIS_URL_FILE": "/f"}, None, (None, "u")),
        ({"DOCKWORK_REDIS_URL_FILE": "/f"}, "redis://code", ("/f", None)),
        ({"REDIS_URL_FILE": "/f"}, "redis://code", (None, "redis://code")),
        ({"DOCKWORK_REDIS_HOST": "h", "REDIS_URL": "u"}, None, (None, None)),
    ],
)
def test_of_several_addresses_one_counts(
    environ: dict[str, str], code: str | None, address: tuple[str | None, str | None]
) -> None:
    found = read(environ, redis=code).redis

    assert (found.url_file, found.url) == address


@pytest.mark.covers("RT-189")
def test_redis_timeout_sets_both_and_gives_way_to_each() -> None:
    both = read({"REDIS_TIMEOUT": "2"}).redis
    one = read({"REDIS_TIMEOUT": "2", "REDIS_CONNECT_TIMEOUT": "1"}).redis

    assert (both.connect_timeout, both.command_timeout) == (timedelta(seconds=2),) * 2
    assert (one.connect_timeout, one.command_timeout) == (timedelta(seconds=1), timedelta(seconds=2))


@pytest.mark.covers("RT-189", "RT-195")
@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"REDIS_PORT": "many"}, "REDIS_PORT: expected a whole number, 0 or more, got 'many'"),
        ({"REDIS_PORT": "70000"}, "REDIS_PORT: expected 1 to 65535, got 70000"),
        ({"REDIS_POOL_SIZE": "0"}, "REDIS_POOL_SIZE: expected 1 to 1000, got 0"),
        ({"REDIS_CONNECT_TIMEOUT": "0"}, "REDIS_CONNECT_TIMEOUT: expected more than 0 s"),
        ({"REDIS_COMMAND_TIMEOUT": "-1"}, "REDIS_COMMAND_TIMEOUT: expected seconds, or a span"),
        ({"REDIS_TLS_VERIFY": "maybe"}, "REDIS_TLS_VERIFY: expected true/false, 1/0, yes/no or on/off"),
        ({"DOCKWORK_REDIS_TLS_VERIFY": ""}, None),
        ({"REDIS_MODE": "many"}, "REDIS_MODE: expected standalone or sentinel or cluster, got 'many'"),
        (
            {"DOCKWORK_REDIS_MODE": "sentinel"},
            "REDIS_SENTINEL_MASTER: expected the name of the primary that the sentinels watch",
        ),
        ({"REDIS_SENTINEL_MASTER": "jobs"}, "REDIS_SENTINEL_MASTER: expected none, as REDIS_MODE is not"),
        ({"DOCKWORK_NAMESPACE": "a/b"}, "DOCKWORK_NAMESPACE: expected 1 to 63 characters"),
        ({"DOCKWORK_QUEUES": "mail=x"}, "DOCKWORK_QUEUES: expected queues such as"),
        ({"DOCKWORK_QUEUES": "mail=0"}, "DOCKWORK_QUEUES: expected 1 to 1000 slots"),
        ({"DOCKWORK_LEASE": "4s"}, "DOCKWORK_LEASE: expected 5 s to 3600 s, got 4.0"),
        ({"DOCKWORK_CONCURRENCY": "1001"}, "DOCKWORK_CONCURRENCY: expected 1 to 1000"),
        (
            {"DOCKWORK_DRAIN_REQUEUE": "middle"},
            "DOCKWORK_DRAIN_REQUEUE: expected front or back, got 'middle'",
        ),
        ({"DOCKWORK_PROBE_ADDR": "8080"}, "DOCKWORK_PROBE_ADDR: expected host:port"),
        ({"DOCKWORK_LOG_LEVEL": "loud"}, "DOCKWORK_LOG_LEVEL: expected DEBUG or INFO"),
    ],
)
def test_a_value_that_no_variable_takes_is_refused_by_name(
    environ: dict[str, str], words: str | None
) -> None:
    if words is None:
        assert read(environ) == read({})
        return
    with pytest.raises(InvalidValue, match=re.escape(words)):
        read(environ)


@pytest.mark.covers("RT-195")
@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("1", True), ("YES", True), ("on", True), ("False", False), ("0", False), ("no", False)],
)
def test_tls_verify_takes_these_words(text: str, value: bool) -> None:
    assert read({"REDIS_TLS_VERIFY": text}).redis.tls_verify is value


@pytest.mark.covers("RT-194")
def test_no_secret_is_in_a_repr() -> None:
    found = read({"REDIS_URL": f"redis://user:{SECRET}@host", "REDIS_PASS": SECRET})
    app = App("shop", redis=f"redis://user:{SECRET}@host")

    assert SECRET not in repr(found) + repr(found.redis) + repr(app) + str(app) + repr(app.settings)


@pytest.mark.covers("RT-189")
def test_the_namespace_is_the_pods_own_without_a_word(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "namespace"
    told.write_text("shop\n")
    monkeypatch.setattr(settings, "NAMESPACE_FILE", told)

    assert read({}).namespace == "shop"
    assert read({}, namespace="code").namespace == "code"

    told.unlink()
    assert read({}).namespace == "default"


@pytest.mark.covers("RT-090")
@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_granted_cpus_are_the_cgroups_quota_or_the_machines(
    files: dict[str, str], cpus: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings.os, "sched_getaffinity", lambda _: set(range(8)))
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    assert granted_cpus(tmp_path) == (cpus or 8)


def test_slots_without_a_number_share_what_the_numbers_leave() -> None:
    assert share_slots(parse_queues("mail=3,a,b"), 8) == {"mail": 3, "a": 3, "b": 2}
    assert share_slots({"mail": 2}, 2) == {"mail": 2}

    with pytest.raises(
        InvalidValue, match="concurrency: expected at least 5, for the queues mail, a, b, got 4"
    ):
        share_slots({"mail": 3, "a": None, "b": None}, 4)
