"""TOML and YAML set what code sets; each refusal names the file and the key, and no secret."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dockwork import App, Backoff, InvalidValue, Keep, Rate
from dockwork.config_files import read_files

pytestmark = pytest.mark.covers("RT-023")

TOML = """
namespace = "shop"
concurrency = 12
drain_timeout = "30s"
log_format = "json"

[redis]
host = "redis.example"
port = 6380
password = "hunter2-secret"

[shared]
slots = 2
order = "strict"

[queues.mail]
slots = 8
rate = {count = 100, per = 60}
concurrency = 50
max_depth = 5000
timeout = "90s"
backoff = {base = 2, max = "10m"}
keep = {age = "2h", count = 10}

[queues.bulk]
slots = 2
keep = "none"
backoff = {list = [1, 5, "1m"]}

[schedules.nightly]
type = "report"
cron = "0 3 * * *"
tz = "Europe/Zurich"
args = {day = "today"}
"""

YAML = """
namespace: shop
concurrency: 12
drain_timeout: 30s
log_format: json
redis: {host: redis.example, port: 6380, password: hunter2-secret}
shared: {slots: 2, order: strict}
queues:
  mail:
    slots: 8
    rate: {count: 100, per: 60}
    concurrency: 50
    max_depth: 5000
    timeout: 90s
    backoff: {base: 2, max: 10m}
    keep: {age: 2h, count: 10}
  bulk:
    slots: 2
    keep: none
    backoff: {list: [1, 5, 1m]}
schedules:
  nightly:
    type: report
    cron: 0 3 * * *
    tz: Europe/Zurich
    args: {day: today}
"""


def a_file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def an_app(*config: Path) -> App:
    app = App("shop", config=config, redis="redis://code.example")

    @app.job(queue="reports")
    async def report(day: str) -> None: ...

    return app


def test_toml_and_yaml_say_the_same(tmp_path: Path) -> None:
    toml = read_files([a_file(tmp_path, "a.toml", TOML)])
    yaml = read_files([a_file(tmp_path, "a.yaml", YAML)])

    assert toml.variables == yaml.variables
    assert toml.redis == yaml.redis
    assert toml.queues == yaml.queues
    assert toml.queues["mail"] == {
        "rate": Rate(100, per=timedelta(seconds=60)),
        "concurrency": 50,
        "max_depth": 5000,
        "timeout": timedelta(seconds=90),
        "backoff": Backoff.exponential(timedelta(seconds=2), max=timedelta(minutes=10)),
        "keep": Keep(age=timedelta(hours=2), count=10),
    }
    assert toml.queues["bulk"]["keep"] is Keep.none


def test_a_file_sets_what_code_sets_over_the_code_and_under_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = an_app(a_file(tmp_path, "a.toml", TOML))
    app.queue("mail", max_depth=7, max_bytes="1Mi")
    monkeypatch.setenv("DOCKWORK_DRAIN_TIMEOUT", "45")

    settings = app.settings
    assert (settings.namespace, settings.concurrency, settings.log_format) == ("shop", 12, "json")
    assert settings.drain_timeout == timedelta(seconds=45)
    assert (settings.redis.host, settings.redis.port, settings.redis.url) == ("redis.example", 6380, None)
    assert settings.queues == {"mail": 8, "bulk": 2}
    assert (settings.shared.slots, settings.shared.order) == (2, "strict")
    config = app.registry.config_of("mail")
    assert config is not None
    assert (config.max_depth, config.max_bytes, config.concurrency) == (5000, 1 << 20, 50)

    app.queue("mail", max_depth=9)  # said later, and still under the file
    later = app.registry.config_of("mail")
    assert later is not None
    assert later.max_depth == 5000


def test_a_schedule_of_a_file_is_the_codes_own(tmp_path: Path) -> None:
    app = an_app(a_file(tmp_path, "a.yml", YAML))
    app.worker()
    declared = app.registry.schedules["reports", "nightly"]
    assert (declared.calendar.schedule.text, declared.calendar.zone) == ("0 3 * * *", "Europe/Zurich")
    assert b'"today"' in declared.entry(suspended=False).job.envelope


def test_of_several_files_the_later_counts_and_the_last_redis_section_supplies_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = a_file(tmp_path, "a.toml", TOML)
    second = a_file(
        tmp_path, "b.yaml", "concurrency: 20\nredis: {host: other.example}\nqueues: {mail: {max_depth: 9}}"
    )
    monkeypatch.setenv("DOCKWORK_CONFIG", f"{first}:{second}")
    app = an_app()

    assert (app.settings.concurrency, app.settings.namespace) == (20, "shop")
    assert (app.settings.redis.host, app.settings.redis.port, app.settings.redis.password) == (
        "other.example", 6379, None,
    )  # fmt: skip
    config = app.registry.config_of("mail")
    assert config is not None
    assert (config.max_depth, config.concurrency) == (9, 50)


def test_an_address_of_the_environment_leaves_none_of_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKWORK_REDIS_URL", "redis://pod.example/2")
    app = an_app(a_file(tmp_path, "a.toml", '[redis]\nurl_file = "/nowhere/url"\npool_size = 3\n'))
    assert (app.settings.redis.url, app.settings.redis.url_file) == ("redis://pod.example/2", None)
    assert app.settings.redis.pool_size == 3


def test_an_address_is_told_by_what_gave_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = a_file(tmp_path, "a.toml", '[redis]\nurl = "redis://files.example/99"\n')

    assert an_app(path).settings.redis.source == "redis.url of the configuration file"
    assert an_app().settings.redis.source == "redis.url"
    monkeypatch.setenv("DOCKWORK_REDIS_URL", "redis://pod.example/1")
    assert an_app(path).settings.redis.source == "DOCKWORK_REDIS_URL"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("concurrency = 'many'", "concurrency"),
        ("colour = 'red'", "colour"),
        ("pod_uid = 'x'", "pod_uid"),
        ("[redis]\nport = 'x'", "redis.port"),
        ("[redis]\nurls = 'x'", "redis.urls"),
        ("[queues.mail]\nrate = {count = 0}", "queues.mail.rate"),
        ("[queues.mail]\nrate = 5", "queues.mail.rate"),
        ("[queues.mail]\nslots = 2000", "queues.mail.slots"),
        ("[queues.mail]\ndepth = 1", "queues.mail.depth"),
        ("[queues.mail]\nmax_depth = -1", "queues.mail.max_depth"),
        ("[queues.mail]\nexpires = -1", "queues.mail.expires"),
        ("[queues.mail]\ntimeout = 'soon'", "queues.mail.timeout"),
        ("[queues.mail]\nbackoff = {speed = 1}", "queues.mail.backoff.speed"),
        ("[queues.mail]\nkeep = 'some'", "queues.mail.keep"),
        ("[queues.'a/b']\nslots = 1", "queues.a/b"),
        ("[shared]\norder = 'strict'", "shared"),
        ("[schedules.x]\ncron = '* * * * *'", "schedules.x.type"),
        ("queues = 3", "queues"),
        ("a = [", ""),
    ],
)
def test_what_no_option_takes_is_refused_with_file_and_key(tmp_path: Path, text: str, place: str) -> None:
    path = a_file(tmp_path, "bad.toml", text)
    with pytest.raises(InvalidValue) as refused:
        read_files([path])
    assert refused.value.field.startswith(f"{path}: {place}" if place else str(path))


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("type: unknown\n    cron: '* * * * *'", "schedules.x.type"),
        ("type: report\n    cron: '61 * * * *'\n    args: {day: today}", "schedules.x: schedule: minute"),
        (
            "type: report\n    cron: '* * * * *'\n    args: {day: today}\n    tz: Mars",
            "schedules.x: tz",
        ),
    ],
)
def test_a_schedule_that_cannot_be_stops_the_start_with_its_place(
    tmp_path: Path, said: str, place: str
) -> None:
    path = a_file(tmp_path, "a.yaml", f"schedules:\n  x:\n    {said}\n")
    with pytest.raises(InvalidValue) as refused:
        an_app(path).worker()
    assert refused.value.field.startswith(f"{path}: {place}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ini", ""),
        ("a.yaml", "a: [1"),
        ("a.yaml", "- 1"),
        ("gone.toml", None),
        ("a.yaml", "a: !!python/none x"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, text: str | None) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidValue, match=name):
        read_files([path])


@pytest.mark.parametrize(("key", "value"), [("password", ["hunter2-secret"]), ("port", "hunter2-secret")])
def test_no_value_of_the_redis_section_is_quoted(tmp_path: Path, key: str, value: Any) -> None:
    import json

    path = a_file(tmp_path, "a.yaml", f"redis: {{{key}: {json.dumps(value)}}}")
    with pytest.raises(InvalidValue) as refused:
        read_files([path])
    assert "hunter2" not in str(refused.value)


def test_the_guides_file_is_one(tmp_path: Path) -> None:
    guide = Path(__file__).parents[3] / "docs" / "guides" / "configuration.md"
    text = guide.read_text().split("```toml\n")[1].split("```")[0]
    said = read_files([a_file(tmp_path, "guide.toml", text)])
    assert set(said.queues["mail"]) == {"rate", "concurrency", "max_depth", "timeout", "backoff", "keep"}
    assert said.schedules["nightly"].cron == "0 3 * * *"
