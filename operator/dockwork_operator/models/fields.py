"""The kinds of field a CRD of ours has: one marker says how a value is read and what its schema is.

A marker stands in ``Annotated[type, Marker(...)]``. pydantic asks it how to read a raw value; `schema` asks it for
the structural schema. So the API server and the model cannot disagree about a range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from dockwork_operator.models import durations, quantities

Schema = dict[str, Any]
"""A JSON value: a structural OpenAPI v3 schema or a part of one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule of a value or across the fields of an object, in CEL and in Python.

    cel         what the API server evaluates; `self` is the object
    holds       the same in Python, over the model; None where only the API server can know (immutability)
    field       the wire name of the field that a refusal names, below the object
    """

    cel: str
    message: str
    field: str = ""
    holds: Callable[[Any], bool] | None = None

    def schema(self) -> Schema:
        """The entry of ``x-kubernetes-validations``."""
        named = {"fieldPath": f".{self.field}"} if self.field else {}
        return {"rule": self.cel, "message": self.message, **named}


def wire_name(name: str) -> str:
    """`name` as the API spells it: ``job_id`` is ``jobID``."""
    camel = to_camel(name)
    return f"{camel[:-2]}ID" if name.endswith("_id") else camel


class ApiModel(BaseModel):
    """An object of the API: frozen, camelCase on the wire, unknown fields refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
        hide_input_in_errors=True,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, raw: Any) -> Any:
        # As the API server does: a null field is an absent one, and takes its default.
        return (
            {key: value for key, value in raw.items() if value is not None}
            if isinstance(raw, Mapping)
            else raw
        )

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(self):
                raise PydanticCustomError(
                    "rule", "{expected}", {"expected": rule.message, "field": rule.field}
                )
        return self

    def wire(self) -> dict[str, Any]:
        """The object as the API server stores it: wire names, no absent fields."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


@runtime_checkable
class Marker(Protocol):
    """What every marker of this module can do."""

    def schema(self) -> Schema:
        """The structural schema of one value."""
        ...

    def says(self) -> str:
        """The range in words, for the description; "" if the schema shows it."""
        ...


def _refuse(expected: str) -> PydanticCustomError:
    return PydanticCustomError("expected", "{expected}", {"expected": expected})


def _reader(read: Callable[[Any], Any], write: Callable[[Any], Any] | None = None) -> CoreSchema:
    serialization = (
        core_schema.plain_serializer_function_ser_schema(write, when_used="json")
        if write is not None
        else None
    )
    return core_schema.no_info_plain_validator_function(read, serialization=serialization)


class _Reads:
    """The pydantic side of a marker: `read` is called with the raw value and raises ValueError to refuse."""

    def read(self, value: Any) -> Any:
        raise ValueError(value)

    def write(self, value: Any) -> Any:
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        def read(value: Any) -> Any:
            try:
                return self.read(value)
            except ValueError as refused:
                raise _refuse(str(refused)) from None

        return _reader(read, self.write)


@dataclass(frozen=True, slots=True)
class Text(_Reads):
    """A string of `least` to `most` characters that matches `pattern`; `rule` refuses with a message of its own."""

    least: int = 1
    most: int = 253
    pattern: str = ""
    expected: str = ""
    rule: Rule | None = None

    def read(self, value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError("a string")
        if not self.least <= len(value) <= self.most:
            raise ValueError(self.expected or f"{self.least} to {self.most} characters")
        if self.pattern and not re.search(self.pattern, value):
            raise ValueError(self.expected or f"a string that matches {self.pattern}")
        if self.rule is not None and self.rule.holds is not None and not self.rule.holds(value):
            raise ValueError(self.rule.message)
        return value

    def schema(self) -> Schema:
        made: Schema = {"type": "string", "maxLength": self.most}
        if self.least:
            made["minLength"] = self.least
        if self.pattern:
            made["pattern"] = self.pattern
        if self.rule is not None:
            made["x-kubernetes-validations"] = [self.rule.schema()]
        return made

    def says(self) -> str:
        return self.expected or f"{self.least} to {self.most} characters"


@dataclass(frozen=True, slots=True)
class Cut(Text):
    """A text that we write ourselves: a longer one is cut, for a status must not fail because a server is wordy."""

    least: int = 0

    def read(self, value: Any) -> str:
        text = str(value)
        return text if len(text) <= self.most else f"{text[: self.most - 3]}..."


LABEL = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"


def dns_label() -> Text:
    """A name of at most 63 lower-case letters, digits and inner dashes."""
    return Text(1, 63, LABEL, "a DNS label of 1 to 63 characters")


def object_name() -> Text:
    """A DNS subdomain: the name of a Secret or ConfigMap."""
    return Text(
        1, 253, r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$", "an object's name"
    )


@dataclass(frozen=True, slots=True)
class Whole(_Reads):
    """An integer from `least` to `most`, both allowed."""

    least: int
    most: int
    wide: bool = False

    def read(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise ValueError(f"a whole number from {self.least} to {self.most}")
        return value

    def schema(self) -> Schema:
        size = "int64" if self.wide else "int32"
        return {"type": "integer", "format": size, "minimum": self.least, "maximum": self.most}

    def says(self) -> str:
        return f"{self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Span(_Reads):
    """A duration from `least` to `most`, both allowed, read as timedelta."""

    least: str
    most: str

    def read(self, value: Any) -> Any:
        if isinstance(value, timedelta):
            return value
        if not isinstance(value, str):
            raise ValueError(f"{durations.EXPECTED}, from {self.least} to {self.most}")
        span = durations.parse_duration(value)
        if not durations.parse_duration(self.least) <= span <= durations.parse_duration(self.most):
            raise ValueError(f"a duration from {self.least} to {self.most}")
        return span

    def write(self, value: Any) -> str:
        return durations.format_duration(value)

    def schema(self) -> Schema:
        bounds = f"duration(self) >= duration('{self.least}') && duration(self) <= duration('{self.most}')"
        return {
            "type": "string",
            "maxLength": durations.MAX_LENGTH,
            "pattern": durations.PATTERN,
            "x-kubernetes-validations": [
                {"rule": bounds, "message": f"must be a duration from {self.least} to {self.most}"}
            ],
        }

    def says(self) -> str:
        return f"a duration, {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class SpanOr(Span):
    """A duration, or the one `word`, kept as it is."""

    word: str = "Auto"

    def read(self, value: Any) -> Any:
        if value == self.word:
            return self.word
        try:
            return Span.read(self, value)
        except ValueError as refused:
            raise ValueError(f"{self.word} or {refused}") from None

    def write(self, value: Any) -> str:
        return value if isinstance(value, str) else durations.format_duration(value)

    def schema(self) -> Schema:
        bounds = f"duration(self) >= duration('{self.least}') && duration(self) <= duration('{self.most}')"
        return {
            "type": "string",
            "maxLength": durations.MAX_LENGTH,
            "pattern": f"^{self.word}$|{durations.PATTERN}",
            "x-kubernetes-validations": [
                {
                    "rule": f"self == '{self.word}' || ({bounds})",
                    "message": f"must be {self.word} or a duration from {self.least} to {self.most}",
                }
            ],
        }

    def says(self) -> str:
        return f"{self.word} or a duration, {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Bytes(_Reads):
    """A quantity of bytes from `least` to `most`, read as int."""

    least: str = "1"
    most: str = "1Ti"

    def read(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError(quantities.EXPECTED)
        size = quantities.parse_bytes(value)
        if not quantities.parse_bytes(self.least) <= size <= quantities.parse_bytes(self.most):
            raise ValueError(f"a quantity from {self.least} to {self.most}")
        return size

    def write(self, value: int) -> str:
        return quantities.format_bytes(value)

    def schema(self) -> Schema:
        bounds = (
            f"isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('{self.least}')) >= 0"
            f" && quantity(string(self)).compareTo(quantity('{self.most}')) <= 0"
        )
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": quantities.MAX_LENGTH,
            "pattern": quantities.PATTERN,
            "x-kubernetes-validations": [
                {"rule": bounds, "message": f"must be a quantity from {self.least} to {self.most}"}
            ],
        }

    def says(self) -> str:
        return f"a quantity of bytes, {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class NumberOrPercent(_Reads):
    """A whole number or a percentage such as ``25%``, kept as written."""

    most: int = 1000
    least: int = 0

    def read(self, value: Any) -> str | int:
        if isinstance(value, int) and not isinstance(value, bool) and self.least <= value <= self.most:
            return value
        if (
            isinstance(value, str)
            and re.fullmatch("[0-9]{1,3}%", value)
            and self.least <= int(value[:-1]) <= 100
        ):
            return value
        raise ValueError(self.says())

    def schema(self) -> Schema:
        words = (
            f"type(self) == int ? int(self) >= {self.least} && int(self) <= {self.most}"
            " : string(self).matches('^(100|[0-9]{1,2})%$')"
        )
        if self.least:
            words += " && string(self) != '0%'"
        return {
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "maxLength": 4,
            "x-kubernetes-validations": [{"rule": words, "message": f"must be {self.says()}"}],
        }

    def says(self) -> str:
        return f"a number from {self.least} to {self.most}, or a percentage from {self.least}% to 100%"


@dataclass(frozen=True, slots=True)
class OneOf(_Reads):
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, value: Any) -> str:
        if not isinstance(value, str) or value not in self.words:
            raise ValueError(" or ".join(self.words))
        return value

    def schema(self) -> Schema:
        return {"type": "string", "enum": list(self.words), "maxLength": max(map(len, self.words))}

    def says(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Flag(_Reads):
    """true or false."""

    def read(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value

    def schema(self) -> Schema:
        return {"type": "boolean"}

    def says(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Instant(_Reads):
    """An RFC 3339 time in UTC."""

    def read(self, value: Any) -> datetime:
        read = value if isinstance(value, datetime) else _instant(value)
        if read.tzinfo is None:
            raise ValueError("a time with its zone")
        return read

    def write(self, value: datetime) -> str:
        return value.isoformat(timespec="seconds").replace("+00:00", "Z")

    def schema(self) -> Schema:
        return {"type": "string", "format": "date-time", "maxLength": 40}

    def says(self) -> str:
        return ""


def _instant(value: Any) -> datetime:
    if not isinstance(value, str):
        raise ValueError("an RFC 3339 time")
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("an RFC 3339 time") from None


@dataclass(frozen=True, slots=True, eq=False)
class Free(_Reads):
    """An object of another API, kept as it came; `properties` are the ones we look at ourselves."""

    what: str = "an object"
    properties: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    def read(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise ValueError(self.what)
        for name in self.required:
            if not isinstance(value.get(name), str) or not value[name]:
                raise ValueError(f"{self.what} with a {name}")
        return dict(value)

    def schema(self) -> Schema:
        made: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        if self.properties:
            made["properties"] = {name: dict(value) for name, value in self.properties.items()}
        if self.required:
            made["required"] = list(self.required)
        return made

    def says(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Amounts(_Reads):
    """A map from resource name to quantity, as in core/v1 ``resources``."""

    most: int = 16

    def read(self, value: Any) -> Mapping[str, Any]:
        if not isinstance(value, Mapping) or len(value) > self.most:
            raise ValueError(f"a map of at most {self.most} resource quantities")
        for name, amount in value.items():
            if isinstance(amount, bool) or not isinstance(amount, str | int):
                raise ValueError(f"a quantity for {name}")
            if not re.fullmatch(AMOUNT.strip("^$"), str(amount)):
                raise ValueError(f"a quantity for {name}, such as 100m or 128Mi")
        return dict(value)

    def schema(self) -> Schema:
        return {
            "type": "object",
            "maxProperties": self.most,
            "additionalProperties": {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
                "minimum": 0,
                "maxLength": 32,
                "pattern": AMOUNT,
            },
        }

    def says(self) -> str:
        return ""


AMOUNT = r"^[0-9]{1,15}(\.[0-9]{1,9})?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi|E|Ei)?$"


@dataclass(frozen=True, slots=True)
class Many:
    """A list of at most `most` items.

    key     the field that names an item: the list is a map (``x-kubernetes-list-map-keys``)
    item    the marker of one item, where it is no `ApiModel`
    rules   over the whole list
    """

    most: int
    least: int = 0
    key: str = ""
    item: Marker | None = None
    rules: tuple[Rule, ...] = ()

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        inner = (
            core_schema.tuple_variable_schema(self.item.__get_pydantic_core_schema__(source, handler))
            if isinstance(self.item, _Reads)
            else handler(source)
        )
        return core_schema.no_info_after_validator_function(
            self._check, core_schema.no_info_before_validator_function(self._shape, inner)
        )

    def _shape(self, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise _refuse("a list")
        if not self.least <= len(value) <= self.most:
            raise _refuse(f"{self.least} to {self.most} items")
        return tuple(value)

    def _check(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.key:
            names = [_key_of(item, self.key) for item in items]
            twice = sorted({str(name) for name in names if names.count(name) > 1})
            if twice:
                raise _refuse(f"each {self.key} once, but {twice[0]} is there twice")
        for rule in self.rules:
            if rule.holds is not None and not rule.holds(items):
                raise _refuse(rule.message)
        return items

    def says(self) -> str:
        return f"at most {self.most} items" if not self.least else f"{self.least} to {self.most} items"


def _key_of(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, Mapping) else getattr(item, key, None)
