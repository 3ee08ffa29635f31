"""Names of objects, and what a bad object becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from dockwork_operator.models.fields import ApiModel


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class ObjectRef:
    """Which object: its namespace and its name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A spec that cannot be carried out, as a value: what ``Accepted=False`` says.

    field      the path, such as ``spec.drain.requeue``
    got        what came, cut to 80 characters; "" where it could be a secret
    reason     of the condition
    rule       the broken rule across fields, as a sentence; "" where one value is wrong by itself
    """

    field: str
    expected: str
    got: str
    reason: str = "InvalidField"
    rule: str = ""

    @property
    def message(self) -> str:
        """One sentence that names the field, what was expected and what came, or the rule that was broken."""
        if self.rule:
            return f"{self.field}: {self.rule}"
        came = f", got {self.got}" if self.got else ""
        return f"{self.field}: expected {self.expected}{came}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Controller:
    """The owner of an object that manages it (``controller: true``)."""

    kind: str
    name: str
    uid: str


def ref_of(raw: Mapping[str, Any]) -> ObjectRef:
    """The name of the object `raw`."""
    metadata = raw.get("metadata") or {}
    return ObjectRef(namespace=str(metadata.get("namespace") or ""), name=str(metadata.get("name") or ""))


def controller_of(raw: Mapping[str, Any]) -> Controller | None:
    """Who manages the object `raw`, or None."""
    for owner in (raw.get("metadata") or {}).get("ownerReferences") or ():
        if owner.get("controller"):
            return Controller(kind=str(owner["kind"]), name=str(owner["name"]), uid=str(owner["uid"]))
    return None


def show(value: object) -> str:
    """`value` for a message: its repr, at most 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


M = TypeVar("M", bound=ApiModel)

_EXPECTED = {
    "missing": "a value",
    "extra_forbidden": "no field of this name",
    "model_type": "an object",
}
_SECRET = frozenset({"env", "args"})
"""Below these names a value could be a credential: it is not repeated."""


def read_spec(model: type[M], raw: Any, path: str = "spec") -> M | Refused:
    """`raw` as `model`, or the first field that does not fit. Never raises for what a user wrote."""
    try:
        return model.model_validate(raw, by_alias=True, by_name=False)
    except ValidationError as refused:
        return _first(refused, path)


def _first(refused: ValidationError, path: str) -> Refused:
    error = refused.errors(include_url=False)[0]
    context = error.get("ctx") or {}
    below = context.get("field", "")
    field = path_of(path, error["loc"]) + (f".{below}" if below else "")
    is_hidden = bool(below) or error["type"] == "missing" or not _SECRET.isdisjoint(error["loc"])
    return Refused(
        field=field,
        expected=context.get("expected") or _EXPECTED.get(error["type"]) or error["msg"],
        got="" if is_hidden else show(error["input"]),
        rule=context["expected"] if error["type"] == "rule" else "",
    )


def path_of(root: str, loc: Sequence[int | str]) -> str:
    """`loc` below `root` as people write it: ``spec.worker.env[2].name``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in loc)
    return root + "".join(steps)
