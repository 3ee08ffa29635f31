"""A handler's signature as a schema: what may be enqueued, as what it is stored, what the handler gets.

Arguments are bound to parameter names and stored as one JSON object. An argument that was not given is not
stored: the handler's own default fills it when it runs.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, NotRequired, get_args, get_origin, get_type_hints

import typing_extensions
from pydantic import (
    ConfigDict,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import CoreConfig, PydanticSerializationError, SchemaSerializer, from_json, to_json

from dockwork.core.codec import Opened, open_envelope
from dockwork.core.jobs import Context
from dockwork.core.sealed import SCHEMA_MARK, KeyRing
from dockwork.core.sealing import OpenedArgs, Sealing, find_sealing
from dockwork.errors import InvalidArgs, InvalidValue, require

#: JSON has neither bytes nor infinities; these come back as they went in.
_READING = ConfigDict(
    extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", ser_json_inf_nan="strings"
)
#: A TypedDict's own configuration reaches its validator, but not the serializer at the top.
_WRITING = CoreConfig(ser_json_bytes="base64", ser_json_inf_nan="strings")

#: Called as a function: the fields are known only when a handler is.
_typed_dict: Any = vars(typing_extensions)["TypedDict"]

_UNBINDABLE: Mapping[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
    inspect.Parameter.POSITIONAL_ONLY: "positional-only ",
}


class Signature:
    """The schema of one job type.

    names               of the parameters that callers give
    context_parameter   the name of the parameter annotated `Context`, which no schema shows; None without one
    schema_hash         16 hex digits of the JSON Schema, titles and descriptions aside
    sealing             which values are sealed; None where none is
    """

    def __init__(self, job_type: str, fn: Callable[..., Any]) -> None:
        self.job_type = job_type
        parameters, hints = _parameters(job_type, fn)
        self.context_parameter = _context_parameter(job_type, parameters, hints)
        self.names = tuple(name for name in parameters if name != self.context_parameter)
        self._positional = tuple(
            n for n in self.names if parameters[n].kind is not inspect.Parameter.KEYWORD_ONLY
        )
        fields: dict[str, Any] = {
            name: _field(hints.get(name, Any), parameters[name].default) for name in self.names
        }
        wanted = [name for name in self.names if parameters[name].default is inspect.Parameter.empty]
        by_name = {name: hints.get(name) for name in self.names}
        self.sealing = find_sealing(job_type, by_name, wanted, hints.get("return"))
        arguments = _typed_dict(f"{fn.__name__}_arguments", fields)
        arguments.__pydantic_config__ = _READING
        self._adapter: TypeAdapter[dict[str, Any]] = _adapter(job_type, arguments)
        # Without the adapter's own wrapper: a producer calls these for each job.
        self._check = self._adapter.validator.validate_python
        self._write = SchemaSerializer(self._adapter.core_schema, _WRITING).to_json
        opener: TypeAdapter[dict[str, Any]] = _adapter(job_type, _envelope_of(arguments))
        # Without the adapter's own wrapper: a worker calls this for each job.
        self._open = opener.validator.validate_json
        #: The same for arguments alone; raises pydantic's own ValidationError.
        self.read_args: Callable[[bytes], dict[str, Any]] = self._adapter.validator.validate_json
        #: A handler that says of itself that it returns nothing, or does not say: then nothing is null and no more.
        self.may_return_nothing = hints.get("return", Any) in (None, type(None), Any)
        self._result = _result_adapter(hints.get("return", Any))
        self._result_dumper = SchemaSerializer(self._result.core_schema, _WRITING)
        shown = _with_defaults(_json_schema(job_type, self._adapter), parameters)
        self.json_schema = _with_stored_names(job_type, shown, self.sealing)
        self.schema_hash = schema_hash(self.json_schema)

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """What parameters are when nobody gives them, as JSON has it; those that JSON cannot carry are left out."""
        properties = self.json_schema.get("properties", {})
        return {name: field["default"] for name, field in properties.items() if "default" in field}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name. Raises InvalidArgs for those that no parameter takes."""
        if not args:
            return dict(kwargs)
        if len(args) > len(self._positional):
            expected = f"at most {len(self._positional)} positional arguments"
            raise InvalidArgs(self.job_type, str(len(args) - 1), expected=expected, got=str(len(args)))
        bound = dict(zip(self._positional, args, strict=False))
        for name, value in kwargs.items():
            if name in bound:
                raise InvalidArgs(self.job_type, name, expected="one value", got="two, by place and by name")
            bound[name] = value
        return bound

    def dump(self, arguments: Mapping[str, Any]) -> bytes:
        """`arguments`, checked, as the JSON object that is stored. Raises InvalidArgs with the path."""
        try:
            args = self._write(self._check(arguments))
            check_readable(args)
            if b'NaN"' in args or b'Infinity"' in args:
                self.read_args(args)  # a field that takes no text for a number would not get it back
            return args
        except ValidationError as error:
            raise self._invalid(error) from None
        except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
            refusal = _unwritable(self.job_type, arguments, error)
            if self.sealing is not None:
                raise InvalidArgs(
                    self.job_type, refusal.path.split(".")[0], expected=refusal.expected, got="another"
                ) from None
            raise refusal from None

    def load(self, arguments: bytes | Mapping[str, Any]) -> dict[str, Any]:
        """What the handler gets for the stored JSON object `arguments`. Raises InvalidArgs with the path."""
        raw = arguments if isinstance(arguments, bytes) else to_json(arguments)
        try:
            return self._adapter.validate_json(raw)
        except ValidationError as error:
            raise self._invalid(error) from None

    def open(self, data: bytes) -> Opened:
        """An envelope with its arguments checked, in one pass over its bytes.

        Raises    Undecodable if this is no envelope; InvalidArgs if the arguments do not fit, with
                  `stored_schema` = the schema hash under which they were enqueued
        """
        try:
            found = self._open(data)
        except ValidationError:
            envelope = open_envelope(data)
            try:
                arguments = self.load(envelope.args)
            except InvalidArgs as error:
                error.stored_schema = envelope.schema
                raise
            return Opened(
                type=envelope.type,
                arguments=arguments,
                headers=envelope.headers,
                schema=envelope.schema,
                options=envelope.options,
            )
        # The fields in their order: a named tuple's own constructor is slow, and this is done for each job.
        said = (found["type"], found["args"], found["headers"], found["schema"], found["opts"])
        return tuple.__new__(Opened, said)

    def open_sealed(self, data: bytes, ring: KeyRing, *, allow_plaintext: bool) -> tuple[Opened, OpenedArgs]:
        """`open`, for a type with sealed values; and its arguments as they were read.

        Raises    DecryptionError too; no error quotes a value
        """
        assert self.sealing is not None
        envelope = open_envelope(data)
        plain = self.sealing.open_args(json.loads(envelope.args), ring, allow_plaintext=allow_plaintext)
        try:
            arguments = self.load(plain.args)
        except InvalidArgs as error:
            error.stored_schema = envelope.schema
            raise
        opened = Opened(
            type=envelope.type,
            arguments=arguments,
            headers=envelope.headers,
            schema=envelope.schema,
            options=envelope.options,
        )
        return opened, plain

    def dump_result(self, value: Any) -> bytes:
        """What the handler returned, as JSON. Raises InvalidValue if JSON cannot carry it."""
        try:
            data = self._result_dumper.to_json(value, warnings=False)
            check_readable(data)
            return data
        except (PydanticSerializationError, ValueError, RecursionError):
            expected = "a value that JSON can carry"
            raise InvalidValue(
                f"result of {self.job_type}", expected=expected, got=type(value).__name__
            ) from None

    def load_result(self, data: bytes) -> Any:
        """A stored result as the handler's return type."""
        return self._result.validate_json(data)

    def _invalid(self, error: ValidationError) -> InvalidArgs:
        found = error.errors(include_url=False, include_context=False)
        # A name that is misspelt is also one that is missing: the first says more.
        unknown = [each for each in found if each["type"] == "extra_forbidden" and len(each["loc"]) == 1]
        first = (unknown or found)[0]
        path = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            return InvalidArgs(self.job_type, path, expected="a value", got="nothing")
        if self.sealing is not None:
            path = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            known = f"one of {', '.join(self.names)}" if self.names else "no arguments"
            expected = known if unknown else "no such name"
            return InvalidArgs(self.job_type, path, expected=expected, got="an unknown name")
        if self.sealing is not None:
            # The text of an error, and the path to it, may quote what was given; its kind does not.
            expected, path = f"a value that fits ({first['type']})", str(first["loc"][0])
            return InvalidArgs(self.job_type, path, expected=expected, got="one that does not")
        expected = first["msg"].removeprefix("Input should be ")
        return InvalidArgs(self.job_type, path, expected=expected, got=type(first["input"]).__name__)


def dump_untyped(job_type: str, arguments: Mapping[str, Any]) -> bytes:
    """`arguments` of a type that is not known here, as JSON. Raises InvalidArgs with the path."""
    if not isinstance(arguments, Mapping):
        raise InvalidArgs(job_type, "", expected="values by name", got=type(arguments).__name__)
    try:
        args = to_json(dict(arguments), inf_nan_mode="strings")
        check_readable(args)
        return args
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise _unwritable(job_type, arguments, error, bytes_mode="utf8") from None


#: What a worker's reader takes: digits of a number, and levels (200, less the envelope's).
MOST_DIGITS = 4300
_SURELY_FLAT = 190


def check_readable(data: bytes) -> None:
    """Raise ValueError for JSON that no worker would read: a number of more than 4,300 digits, more than 200 levels.

    Nearly all is told by its length and its brackets; the rest is read once.
    """
    if len(data) > MOST_DIGITS or data.count(b"[") + data.count(b"{") > _SURELY_FLAT:
        from_json(data)


def _unwritable(
    job_type: str,
    arguments: Mapping[str, Any],
    error: Exception,
    bytes_mode: Literal["utf8", "base64"] = "base64",
) -> InvalidArgs:
    """Where the innermost value stands that JSON cannot carry, without quoting it."""
    path: list[str] = []
    value: Any = arguments
    expected, deepest = "a value that JSON can carry", 20
    if "out of range" in str(error):
        expected = f"numbers of at most {MOST_DIGITS:,} digits"
    elif (
        isinstance(error, RecursionError) or "depth exceeded" in str(error) or "recursion limit" in str(error)
    ):
        expected, deepest = "a value that is not nested so deeply", 1
    elif "Circular" in str(error):
        expected, deepest = "a value that does not hold itself", 1
    while len(path) < deepest:
        for name, part in _parts(value):
            if not _is_writable(part, bytes_mode):
                path.append(str(name).encode("utf-8", "backslashreplace").decode())
                value = part
                break
        else:
            break
    got = type(value).__name__
    if isinstance(value, str | bytes | Mapping) and expected.endswith("carry"):
        expected = "text in UTF-8"
    return InvalidArgs(job_type, ".".join(path), expected=expected, got=got)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value) if isinstance(value, list | tuple) else ()


def _is_writable(value: Any, bytes_mode: Literal["utf8", "base64"]) -> bool:
    try:
        check_readable(to_json([value], bytes_mode=bytes_mode))  # a level deeper, as it stands among others
    except (PydanticSerializationError, ValueError, TypeError, RecursionError):
        return False
    return True


def schema_hash(json_schema: Mapping[str, Any]) -> str:
    """16 hex digits that change when what may be enqueued does."""
    plain = json.dumps(_without_words(json_schema), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def check_bindable(job_type: str, parameters: Mapping[str, inspect.Parameter]) -> None:
    """Refuse parameters that no name binds: ``*args``, ``**kwargs``, positional-only. Raises InvalidValue."""
    for name, parameter in parameters.items():
        kind = _UNBINDABLE.get(parameter.kind)
        expected = "parameters that are bound by name"
        require(kind is None, f"job type {job_type}", expected=expected, got=f"{kind}{name}")


def _parameters(
    job_type: str, fn: Callable[..., Any]
) -> tuple[Mapping[str, inspect.Parameter], Mapping[str, Any]]:
    parameters = inspect.signature(fn).parameters
    check_bindable(job_type, parameters)
    return parameters, get_type_hints(fn, include_extras=True)


def _context_parameter(
    job_type: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> str | None:
    found = [name for name in parameters if _is_context(hints.get(name))]
    require(len(found) < 2, f"job type {job_type}", expected="one parameter annotated Context", got=found)
    return found[0] if found else None


def _is_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is Context or Context in get_args(hint)


def _field(hint: Any, default: Any) -> Any:
    return hint if default is inspect.Parameter.empty else NotRequired[hint]


def _envelope_of(arguments: Any) -> Any:
    fields = {
        "type": str,
        "args": arguments,
        "headers": dict[str, str],
        "schema": str,
        "opts": dict[str, Any],
    }
    return _typed_dict("Envelope", {"v": Literal[1], **fields})


def _adapter(job_type: str, type_: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(type_)
    except (PydanticSchemaGenerationError, PydanticUserError) as error:
        raise _not_json(job_type, error) from error


def _json_schema(job_type: str, adapter: TypeAdapter[Any]) -> dict[str, Any]:
    try:
        return adapter.json_schema()
    except (PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise _not_json(job_type, error) from error


def _not_json(job_type: str, error: Exception) -> InvalidValue:
    reason = str(error).splitlines()[0]
    return InvalidValue(
        f"job type {job_type}", expected="parameters of types that JSON can carry", got=reason
    )


def _result_adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=ConfigDict(val_json_bytes="base64"))
    except PydanticUserError:
        pass  # a model, a TypedDict or a dataclass brings its own configuration
    try:
        return TypeAdapter(hint)
    except (PydanticUserError, PydanticSchemaGenerationError):
        return TypeAdapter(Any)


def _with_defaults(schema: dict[str, Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    for name, field in schema.get("properties", {}).items():
        default = parameters[name].default
        if default is inspect.Parameter.empty or "default" in field or SCHEMA_MARK in field:
            continue
        try:
            field["default"] = json.loads(to_json(default))
        except (PydanticSerializationError, ValueError):
            continue  # a sentinel, say: the schema then only says that the argument may be left out
    return schema


def _with_stored_names(job_type: str, schema: dict[str, Any], sealing: Sealing | None) -> dict[str, Any]:
    """`schema` under the names that are stored. Raises InvalidValue for a mark that stands inside of a type."""
    fields = schema.get("properties", {})
    inside = _marks(schema) - sum(SCHEMA_MARK in field for field in fields.values())
    if inside:
        expected = "Encrypted around the whole type of a parameter or of the result"
        raise InvalidValue(f"job type {job_type}", expected=expected, got="one inside of a type")
    if sealing is None:
        return schema
    named = {sealing.fields.get(name, name): field for name, field in fields.items()}
    shown = {**schema, "properties": named}
    if "required" in schema:
        shown["required"] = [sealing.fields.get(name, name) for name in schema["required"]]
    return shown


def _marks(schema: Any) -> int:
    """How many sealed types a JSON Schema shows."""
    if isinstance(schema, dict):
        return (schema.get(SCHEMA_MARK) is True) + sum(map(_marks, schema.values()))
    return sum(map(_marks, schema)) if isinstance(schema, list) else 0


def _without_words(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: _without_words(value)
            for key, value in schema.items()
            if not (key in {"title", "description"} and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [_without_words(each) for each in schema]
    return schema
