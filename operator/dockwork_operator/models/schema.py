"""A model as the structural schema of a CRD: ranges, complete defaults, rules in CEL, docstrings as descriptions.

`kubectl explain` shows neither ranges nor defaults, so both stand in the description too.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from dockwork_operator.models.fields import ApiModel, Many, Marker, Schema


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field of a model, taken apart.

    model       the model of the value, or of one item of a list
    default     as the API server fills it in; None = none
    """

    name: str
    text: str
    is_required: bool
    default: Any
    marker: Marker | None = None
    many: Many | None = None
    model: type[ApiModel] | None = None


def fields_of(model: type[ApiModel]) -> Iterator[Field]:
    """The fields of `model` in the order in which they are written."""
    for name, info in model.model_fields.items():
        kind, markers = _kind(info)
        yield Field(
            name=info.alias or name,
            text=" ".join((info.description or "").split()),
            is_required=info.is_required(),
            default=_default(model, name, info),
            many=next((marker for marker in markers if isinstance(marker, Many)), None),
            marker=next((marker for marker in markers if isinstance(marker, Marker)), None),
            model=_model(kind),
        )


def structural(model: type[ApiModel], *, with_defaults: bool = True) -> Schema:
    """The schema of `model`. `with_defaults`: false for a status, which nobody fills in but its writer."""
    made: Schema = {"type": "object", "description": " ".join((model.__doc__ or "").split())}
    fields = list(fields_of(model))
    required = [field.name for field in fields if field.is_required]
    if required:
        made["required"] = required
    made["properties"] = {field.name: field_schema(field, with_defaults=with_defaults) for field in fields}
    if model.rules:
        made["x-kubernetes-validations"] = [rule.schema() for rule in model.rules]
    return made


def field_schema(field: Field, *, with_defaults: bool) -> Schema:
    """The schema of one field, its description first."""
    value = _value_schema(field, with_defaults=with_defaults)
    value.pop("description", None)
    made: Schema = {"description": describe(field, with_defaults=with_defaults), **value}
    if with_defaults and field.default not in (None, [], {}):
        made["default"] = field.default
    return made


def describe(field: Field, *, with_defaults: bool) -> str:
    """The docstring, then the range and the default."""
    parts = [field.text]
    if with_defaults:
        says = says_range(field)
        if says:
            parts.append(f"{says[0].upper()}{says[1:]}.")
        if field.default not in (None, [], {}) and not isinstance(field.default, dict):
            parts.append(f"Default: {shown(field.default)}.")
    return " ".join(part for part in parts if part)


def says_range(field: Field) -> str:
    """What values the field takes, in words; "" where the schema shows it."""
    if field.many is not None:
        return field.many.says()
    return field.marker.says() if field.marker is not None else ""


def shown(default: Any) -> str:
    """A scalar default as one would write it in YAML."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def _value_schema(field: Field, *, with_defaults: bool) -> Schema:
    if field.many is not None:
        return _list_schema(field, field.many, with_defaults=with_defaults)
    if field.model is not None:
        return structural(field.model, with_defaults=with_defaults)
    if field.marker is None:
        raise TypeError(f"field {field.name} has no marker of its kind")
    return field.marker.schema()


def _list_schema(field: Field, many: Many, *, with_defaults: bool) -> Schema:
    if many.item is not None:
        items = many.item.schema()
    elif field.model is not None:
        items = structural(field.model, with_defaults=with_defaults)
    else:
        raise TypeError(f"list {field.name} has neither a model nor a marker of its items")
    made: Schema = {"type": "array", "maxItems": many.most, "items": items}
    if many.least:
        made["minItems"] = many.least
    if many.key:
        made |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [many.key]}
    else:
        made["x-kubernetes-list-type"] = "atomic"
    if many.rules:
        made["x-kubernetes-validations"] = [rule.schema() for rule in many.rules]
    return made


def _kind(info: FieldInfo) -> tuple[Any, list[Any]]:
    """The type of the field without `| None`, and the markers that stand with it."""
    kind: Any = info.annotation
    markers = list(info.metadata)
    if get_origin(kind) in (Union, types.UnionType):
        inner = [part for part in get_args(kind) if part is not type(None)]
        if len(inner) == 1:
            kind = inner[0]
    if hasattr(kind, "__metadata__"):
        markers += kind.__metadata__
        kind = get_args(kind)[0]
    return kind, markers


def _model(kind: Any) -> type[ApiModel] | None:
    if get_origin(kind) is tuple:
        kind = get_args(kind)[0]
    return kind if isinstance(kind, type) and issubclass(kind, ApiModel) else None


def _default(model: type[ApiModel], name: str, info: FieldInfo) -> Any:
    """The default as JSON: what the model itself writes for it."""
    if info.default is PydanticUndefined or info.default is None:
        return None
    if isinstance(info.default, ApiModel):
        return info.default.wire()
    alone = model.model_construct(**{name: info.default})
    return alone.model_dump(mode="json", by_alias=True, include={name})[info.alias or name]
