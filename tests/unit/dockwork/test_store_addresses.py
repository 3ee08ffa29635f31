"""Redis URLs, names and the pace of reconnecting."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork.core.keys import QueueKeys, QueueName, is_job_id
from dockwork.errors import InvalidUrl, InvalidValue, StoreUnavailable
from dockwork.settings import RedisSettings
from dockwork.store.addresses import Address, parse_url, parse_urls
from dockwork.store.connections import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_AWAY_S,
    LONGEST_PAUSE_S,
    next_pause,
)
from dockwork.store.connectors import Connector
from dockwork.store.redis import RedisStore


@pytest.mark.covers("RT-190", "RT-191", "RT-192")
@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://h", Address(host="h")),
        ("redis://h/", Address(host="h")),
        ("redis://h:6380/3", Address(host="h", port=6380, db=3)),
        ("rediss://h", Address(host="h", tls=True)),
        ("redis://h.example.org.:7000", Address(host="h.example.org.", port=7000)),
        ("redis://[::1]:7000/1", Address(host="::1", port=7000, db=1)),
        ("redis://[fe80::1]", Address(host="fe80::1")),
        ("redis://:pw@h", Address(host="h", password="pw")),
        ("redis://shop:pw@h", Address(host="h", username="shop", password="pw")),
        ("redis://sh%40p:p%2Fw%3F%23+%25@h", Address(host="h", username="sh@p", password="p/w?#+%")),
        ("redis://u:p%C3%BC@h", Address(host="h", username="u", password="pü")),
        ("unix:///run/redis.sock", Address(path="/run/redis.sock")),
        ("unix:///run/redis.sock?db=2", Address(path="/run/redis.sock", db=2)),
        ("unix://:pw@/run/redis.sock", Address(path="/run/redis.sock", password="pw")),
        (
            "unix://u:pw@/run/redis.sock?db=1",
            Address(path="/run/redis.sock", db=1, username="u", password="pw"),
        ),
    ],
)
def test_a_url_says_where_redis_is_and_who_logs_in(url: str, address: Address) -> None:
    assert parse_url(url) == address


@pytest.mark.covers("RT-190", "RT-192")
@pytest.mark.parametrize(
    ("url", "mode", "addresses"),
    [
        ("redis://h", "cluster", [Address(host="h")]),
        ("redis://a,b:7001", "cluster", [Address(host="a"), Address(host="b", port=7001)]),
        ("redis://h", "sentinel", [Address(host="h", port=26379)]),
        (
            "rediss://u:p%2C@a:1,[::1],c/2",
            "sentinel",
            [
                Address(host=host, port=port, db=2, username="u", password="p,", tls=True)
                for host, port in (("a", 1), ("::1", 26379), ("c", 26379))
            ],
        ),
    ],
)
def test_a_url_names_several_sentinels_or_nodes(url: str, mode: str, addresses: list[Address]) -> None:
    assert parse_urls(url, mode) == addresses


@pytest.mark.covers("RT-190", "RT-193")
@pytest.mark.parametrize(
    ("url", "mode", "words"),
    [
        ("redis://a,b", "standalone", "expected one server, as REDIS_MODE is standalone"),
        ("redis://a,,b", "cluster", "no host"),
        ("redis://a,b:x", "sentinel", "host or port cannot be read"),
        ("redis://a/1", "cluster", "expected no database but 0, as REDIS_MODE is cluster"),
        ("unix:///run/redis.sock", "cluster", "expected redis:// or rediss://, as REDIS_MODE is cluster"),
        ("unix:///run/redis.sock", "sentinel", "expected redis:// or rediss://, as REDIS_MODE is sentinel"),
    ],
)
def test_a_url_that_its_mode_cannot_use_stops_the_start(url: str, mode: str, words: str) -> None:
    master = "jobs" if mode == "sentinel" else None

    with pytest.raises(InvalidUrl, match=words):
        RedisStore(RedisSettings(url=url, mode=mode, sentinel_master=master))  # type: ignore[arg-type]


BAD_URLS = [
    "", "h:6379", "http://h", "redis:", "redis://", "redis:///0", "redis://:secret@", "redis://h:port",
    "redis://h:70000", "redis://h:0", "redis://h:-1", "redis://h/secret", "redis://h/-1", "redis://h/1/2",
    "redis://h?db=1", "redis://h/0?password=secret", "redis://h/0#secret", "redis://u:se?cret@h",
    "redis://u:se#cret@h", "redis://u:%ff%fe@h", "redis://[::1", "redis://[secret]", "rediss://:secret@h:x",
    "unix://", "unix://host/path", "unix:relative", "unix:///p#f", "unix:///p?db=x", "unix:///p?db=1&x=2",
    "unix:///p?password=secret", "redis+sentinel://h",
]  # fmt: skip


@pytest.mark.covers("RT-192", "RT-193", "RT-194")
@pytest.mark.parametrize("url", BAD_URLS)
def test_an_unusable_url_stops_the_start_and_is_not_quoted(url: str) -> None:
    with pytest.raises(InvalidUrl) as refused:
        RedisStore(url)

    assert str(refused.value).startswith("Redis URL: ")
    assert "secret" not in str(refused.value)
    assert "cret" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.covers("RT-193", "RT-194")
@pytest.mark.parametrize("variable", ["DOCKWORK_REDIS_URL", "REDIS_URL"])
def test_an_unusable_url_is_told_by_its_variable(variable: str) -> None:
    settings = RedisSettings.from_environ({variable: "http://:secret@h"})

    with pytest.raises(InvalidUrl) as refused:
        RedisStore(settings)

    assert str(refused.value) == f"{variable}: expected redis://, rediss:// or unix://"


def test_an_unusable_url_in_a_file_is_told_by_its_variable(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("http://:secret@h")
    connector = Connector(RedisSettings.from_environ({"DOCKWORK_REDIS_URL_FILE": str(path)}))

    with pytest.raises(
        InvalidUrl, match=r"^DOCKWORK_REDIS_URL_FILE: expected redis://, rediss:// or unix://$"
    ):
        connector.address()


def test_a_failed_attempt_says_when_only_the_default_address_was_tried() -> None:
    unset = Connector(RedisSettings.from_environ({}))
    given_host = Connector(RedisSettings.from_environ({"REDIS_HOST": "other"}))
    given_url = Connector(RedisSettings.from_environ({"DOCKWORK_REDIS_URL": "redis://localhost:6379/0"}))

    assert unset.where() == "redis://localhost:6379/0 (DOCKWORK_REDIS_URL is not set)"
    assert given_host.where() == "redis://other:6379/0"
    assert given_url.where() == "redis://localhost:6379/0 (by DOCKWORK_REDIS_URL)"


@pytest.mark.covers("RT-192")
@given(user=st.text(min_size=1, max_size=20), password=st.text(min_size=1, max_size=40))
def test_any_login_survives_being_encoded(user: str, password: str) -> None:
    from urllib.parse import quote

    address = parse_url(f"redis://{quote(user, safe='')}:{quote(password, safe='')}@h")

    assert (address.username, address.password) == (user, password)


@pytest.mark.covers("RT-194")
def test_no_repr_shows_the_password() -> None:
    url = "redis://shop:hunter2@h:6380/1"
    settings = RedisSettings(url=url)
    connector = Connector.of(settings, ca_file=None, client_name="dockwork")

    for shown in (
        settings,
        connector,
        connector.address(),
        RedisStore(url),
        parse_url(url),
        connector.asynchronous(),
    ):
        assert "hunter2" not in repr(shown)
        assert "hunter2" not in str(shown)


@pytest.mark.covers("RT-195")
def test_tls_checks_chain_and_host_and_takes_no_old_version() -> None:
    import ssl

    connector = Connector.of("rediss://h", ca_file=None, client_name="dockwork")
    context = connector.asynchronous().ssl_context.get()

    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_url_file_is_read_at_each_connect(tmp_path: pytest.TempPathFactory) -> None:
    path = tmp_path / "url"  # type: ignore[operator]
    connector = Connector(RedisSettings(url_file=str(path)))
    with pytest.raises(StoreUnavailable, match="the Redis URL file cannot be read: FileNotFoundError"):
        connector.address()
    path.write_text("redis://one\n")
    assert connector.address().host == "one"
    path.write_text("redis://two")
    assert connector.address().host == "two"


@pytest.mark.covers("RT-126")
@given(failures=st.integers(1, 10_000), spread=st.floats(0, 1, exclude_max=True))
def test_the_pause_before_the_next_attempt_stays_between_50_ms_and_5_s(failures: int, spread: float) -> None:
    pause = next_pause(failures, LONGEST_PAUSE_S, spread)

    assert FIRST_PAUSE_S <= pause <= LONGEST_PAUSE_S
    assert next_pause(failures, LONGEST_PAUSE_S, 0) == FIRST_PAUSE_S
    assert next_pause(failures, LONGEST_PAUSE_AWAY_S, spread) <= LONGEST_PAUSE_AWAY_S


@pytest.mark.covers("RT-126")
def test_the_ceiling_of_the_pause_doubles() -> None:
    ceilings = [next_pause(failures, 5.0, 0.999999999) for failures in range(1, 9)]

    assert ceilings == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0], abs=1e-6)


@pytest.mark.parametrize("name", ["", "a/b", "{a}", "a b", "ä", "a" * 64, "a\n"])
def test_a_queue_name_that_could_be_two_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="queue: expected 1 to 63 characters"):
        QueueName("shop", name)
    with pytest.raises(InvalidValue, match="namespace: expected 1 to 63 characters"):
        QueueName(name, "mail")


@pytest.mark.covers("RT-047")
def test_every_key_of_a_queue_carries_its_hash_tag() -> None:
    keys = QueueKeys(QueueName("shop", "mail"))
    names = [value for value in vars(keys).values() if isinstance(value, str)]

    assert len(names) > 30
    assert all(name.startswith("dw:{shop/mail}:") for name in names)
    assert len(set(names)) == len(names)
    assert QueueKeys(QueueName("shop", "mail", 3)).meta == "dw:{shop/mail/3}:meta"
    assert keys.wake_channel == "dw:wake:{shop/mail}"


def test_a_tag_is_the_queue_again() -> None:
    for queue in (QueueName("shop", "mail"), QueueName("shop", "mail", 12)):
        assert QueueName.from_tag(queue.tag) == queue
        assert QueueName.from_tag("{" + queue.tag + "}") == queue
    for bad in ("shop", "a/b/c", "a/b/1/2", "a/b/64", "/b"):
        with pytest.raises(InvalidValue):
            QueueName.from_tag(bad)


@pytest.mark.covers("RT-007")
@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("a", True),
        ("A-z_0.9:x", True),
        ("a" * 64, True),
        ("a" * 65, False),
        ("", False),
        ("a b", False),
        ("a\n", False),
    ],
)
def test_what_may_be_a_job_id(text: str, fits: bool) -> None:
    assert is_job_id(text) is fits
