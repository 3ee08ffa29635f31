"""Configuration from TOML and YAML files: the same options as in code, with the file and the key in every refusal.

Settings become ``DOCKWORK_`` variables that the real environment stands above; of several files the later one's word
counts, key by key, but for `redis`: the last file that has it supplies all of it, so that no login of one server
ever goes to another.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from dockwork.core.durations import parse_span
from dockwork.core.jobs import Keep
from dockwork.core.keys import QueueName
from dockwork.core.limits import Rate
from dockwork.core.retry import Backoff
from dockwork.core.slots import SHARED
from dockwork.errors import InvalidValue, require
from dockwork.registry import QueueOptions, Registry
from dockwork.settings import OURS, REDIS_VARIABLES, SETTINGS_VARIABLES

#: Settings that say who a worker is, or are secrets, or are said of each queue: no file's business.
_NOT_HERE = frozenset(
    {"queues", "shared", "pod_uid", "pod_name", "container", "template_hash", "payload_keys", "payload_key"}
)
_SECTIONS = ("redis", "queues", "shared", "schedules")
_SPANS = frozenset({"timeout", "max_timeout", "expires", "lease", "hard_after"})
_ADDRESS = ("REDIS_URL_FILE", "REDIS_URL", "REDIS_HOST", "REDIS_PORT")


@dataclass(frozen=True, kw_only=True, slots=True)
class FileSchedule:
    """A schedule as a file says it. `place` names it in messages."""

    name: str
    place: str
    type: str
    cron: str | None
    every: timedelta | None
    args: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileConfig:
    """What the files say together.

    variables    DOCKWORK_ names to texts
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    redis: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[str, QueueOptions] = field(default_factory=dict)
    schedules: Mapping[str, FileSchedule] = field(default_factory=dict)

    def environ(self, real: Mapping[str, str]) -> dict[str, str]:
        """The variables under those of the `real` environment. An address there leaves none of the files' standing."""
        redis = dict(self.redis)
        if any(real.get(OURS + name) for name in _ADDRESS):
            redis = {name: text for name, text in redis.items() if name.removeprefix(OURS) not in _ADDRESS}
        return {**self.variables, **redis, **{name: text for name, text in real.items() if text}}


def read_files(paths: Sequence[str | Path]) -> FileConfig:
    """Read TOML (``.toml``) and YAML (``.yaml``, ``.yml``) files, the later over the earlier.

    Raises    InvalidValue naming the file and the key; a value of `redis` is never quoted
    """
    variables: dict[str, str] = {}
    redis: Mapping[str, str] = {}
    slots: dict[str, str] = {}
    queues: dict[str, dict[str, Any]] = {}
    schedules: dict[str, FileSchedule] = {}
    for path in map(Path, paths):
        said = _load(path)
        known = [*_SECTIONS, *(name for name in SETTINGS_VARIABLES if name not in _NOT_HERE)]
        _no_others(path, "", said, known)
        for name, value in said.items():
            if name not in _SECTIONS:
                variable, read = SETTINGS_VARIABLES[name]
                variables[OURS + variable] = _text(value, f"{path}: {name}", read)
        if "redis" in said:
            redis = _redis(path, _table(said["redis"], f"{path}: redis"))
        for queue, options in _table(said.get("queues", {}), f"{path}: queues").items():
            place = f"{path}: queues.{queue}"
            found = dict(_table(options, place))
            if "slots" in found:
                slots[_queue(queue, place)] = str(_slots(found.pop("slots"), f"{place}.slots"))
            queues.setdefault(_queue(queue, place), {}).update(_options(found, place))
        if "shared" in said:
            slots[SHARED] = _shared(_table(said["shared"], f"{path}: shared"), f"{path}: shared")
        for name, schedule in _table(said.get("schedules", {}), f"{path}: schedules").items():
            place = f"{path}: schedules.{name}"
            schedules[name] = _schedule(name, dict(_table(schedule, place)), place)
    if slots:
        variables[f"{OURS}QUEUES"] = ",".join(f"{name}={count}" for name, count in slots.items())
    return FileConfig(
        variables=variables,
        redis=redis,
        queues={name: cast(QueueOptions, options) for name, options in queues.items()},
        schedules=schedules,
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "bytes that are not UTF-8"
        raise InvalidValue(str(path), expected="a file that can be read", got=why) from None
    if path.suffix == ".toml":
        try:
            found: Any = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidValue(str(path), expected="TOML", got=str(error)) from None
    elif path.suffix in (".yaml", ".yml"):
        found = _load_yaml(path, text)
    else:
        raise InvalidValue(str(path), expected="a name that ends in .toml, .yaml or .yml", got=path.name)
    return dict(_table({} if found is None else found, str(path)))


def _load_yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        expected = "the package PyYAML: pip install 'dockwork[yaml]'"
        raise InvalidValue(str(path), expected=expected, got="a YAML file without it") from None
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
        raise InvalidValue(str(path), expected="YAML", got=f"{error.problem}{where}") from None
    except yaml.YAMLError as error:
        raise InvalidValue(str(path), expected="YAML", got=type(error).__name__) from None


def _table(value: Any, place: str) -> Mapping[str, Any]:
    fits = isinstance(value, Mapping) and all(isinstance(name, str) for name in value)
    require(fits, place, expected="a table of names", got=type(value).__name__)
    return cast(Mapping[str, Any], value)


def _no_others(path: Path, section: str, said: Mapping[str, Any], known: Sequence[str]) -> None:
    other = sorted(set(said) - set(known))
    if other:
        place = f"{path}: {section}{other[0]}"
        raise InvalidValue(place, expected=f"one of {', '.join(sorted(known))}", got=other[0])


def _text(value: Any, place: str, read: Callable[[str, str], Any], *, secret: bool = False) -> str:
    """A value as the text of a variable, read once so that a bad one is named by its place in the file."""
    plain = isinstance(value, str | int | float) and value is not None
    require(plain, place, expected="a text, a number or true/false", got=type(value).__name__)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        read(text, place)
    except InvalidValue as error:
        raise InvalidValue(place, expected=error.expected, got="another value" if secret else value) from None
    return text


def _redis(path: Path, said: Mapping[str, Any]) -> dict[str, str]:
    _no_others(path, "redis.", said, list(REDIS_VARIABLES))
    found = {}
    for name, value in said.items():
        variable, read = REDIS_VARIABLES[name]
        found[OURS + variable] = _text(value, f"{path}: redis.{name}", read, secret=True)
    return found


def _queue(name: str, place: str) -> str:
    try:
        return QueueName("default", name).queue
    except InvalidValue as error:
        raise InvalidValue(place, expected=error.expected, got=name) from None


def _slots(value: Any, place: str) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000
    require(fits, place, expected="0 to 1000 slots", got=value)
    return cast(int, value)


def _shared(said: Mapping[str, Any], place: str) -> str:
    order = said.get("order", "weighted")
    fits = set(said) <= {"slots", "order"} and "slots" in said and order in ("weighted", "strict")
    require(fits, place, expected="slots, and order: weighted or strict", got=dict(said))
    count = _slots(said["slots"], f"{place}.slots")
    return f"{count}:strict" if order == "strict" else str(count)


def _options(said: dict[str, Any], place: str) -> dict[str, Any]:
    known = list(QueueOptions.__annotations__)
    other = sorted(set(said) - set(known))
    if other:
        expected = f"one of slots, {', '.join(known)}"
        raise InvalidValue(f"{place}.{other[0]}", expected=expected, got=other[0])
    found = {name: _option(name, value, f"{place}.{name}") for name, value in said.items()}
    try:
        Registry().configure("checked", cast(QueueOptions, found))
    except InvalidValue as error:
        raise InvalidValue(f"{place}.{error.field}", expected=error.expected, got=error.got) from None
    return found


def _option(name: str, value: Any, place: str) -> Any:
    try:
        if name in _SPANS:
            return _span(value, place)
        if name == "rate":
            table = _table(value, place)
            require(set(table) <= {"count", "per"}, place, expected="count and per", got=dict(table))
            return Rate(table.get("count", 0), per=_span(table.get("per", 1), f"{place}.per"))
        if name == "backoff":
            return _backoff(_table(value, place), place)
        if name in ("keep", "keep_failed"):
            return _keep(value, place)
    except InvalidValue as error:
        if error.field.startswith(place):
            raise
        raise InvalidValue(place, expected=error.expected, got=error.got) from None
    return value


def _span(value: Any, place: str) -> timedelta:
    if isinstance(value, str):
        return parse_span(value, place)
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
    require(fits, place, expected="seconds, or a text such as 1m30s", got=value)
    return timedelta(seconds=value)


def _backoff(said: Mapping[str, Any], place: str) -> Backoff:
    match said:
        case {"fixed": seconds, **rest} if not rest:
            return Backoff.fixed(_span(seconds, f"{place}.fixed"))
        case {"list": steps, **rest} if not rest and isinstance(steps, list):
            return Backoff.list([_span(step, f"{place}.list") for step in steps])
        case {"custom": str(name), **rest} if not rest:
            return Backoff.custom(name)
    given: dict[str, Any] = {}
    for name, value in said.items():
        require(
            name in ("base", "factor", "max", "jitter"),
            f"{place}.{name}",
            expected="base, factor, max and jitter; or one of fixed, list, custom",
            got=name,
        )
        given[name] = _span(value, f"{place}.{name}") if name in ("base", "max") else value
    return Backoff.exponential(**given)


def _keep(value: Any, place: str) -> Keep:
    if value in ("forever", "none"):
        return Keep.forever if value == "forever" else Keep.none
    said = dict(_table(value, place))
    fits = bool(said) and set(said) <= {"age", "count", "bytes"}
    require(fits, place, expected="forever, none, or a table of age, count, bytes", got=said)
    if "age" in said:
        said["age"] = _span(said["age"], f"{place}.age")
    return Keep(**said)


def _schedule(name: str, said: dict[str, Any], place: str) -> FileSchedule:
    type_, cron = said.pop("type", None), said.pop("cron", None)
    require(isinstance(type_, str), f"{place}.type", expected="the name of a job type", got=type_)
    require(cron is None or isinstance(cron, str), f"{place}.cron", expected="a text", got=cron)
    every = said.pop("every", None)
    args = _table(said.pop("args", {}), f"{place}.args")
    try:
        json.dumps(args)
    except (TypeError, ValueError):
        raise InvalidValue(f"{place}.args", expected="values that JSON has", got="others") from None
    if "starting_deadline" in said:
        said["starting_deadline"] = _span(said["starting_deadline"], f"{place}.starting_deadline")
    return FileSchedule(
        name=name,
        place=place,
        type=cast(str, type_),
        cron=cron,
        every=None if every is None else _span(every, f"{place}.every"),
        args=args,
        options=said,
    )
