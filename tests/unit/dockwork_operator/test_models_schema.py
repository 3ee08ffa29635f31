"""The generated schema: what every field of it must have, and that the checked-in files follow from the models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from dockwork_operator import constants
from dockwork_operator.models import durations, generate
from dockwork_operator.models.conditions import StatusCondition
from dockwork_operator.models.crds import KINDS, Kind, crd
from dockwork_operator.models.cronjobs import CronJobSpec
from dockwork_operator.models.fields import ApiModel
from dockwork_operator.models.objects import read_spec
from dockwork_operator.models.queues import QueueSpec
from dockwork_operator.models.schema import fields_of

GOLDEN = Path(__file__).with_name("api_surface.json")

RESERVED = {
    *(
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
    ),
    *("namespace", "null", "package", "return", "true", "var", "void", "while"),
}
FREE = ("worker.podTemplate", "worker.env[]", "worker.envFrom[]", "job.args")


def parts(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below `schema` with its path: ``spec.worker.env[].name``."""
    yield path, schema
    for name, below in (schema.get("properties") or {}).items():
        yield from parts(below, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from parts(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from parts(schema["additionalProperties"], f"{path}{{}}")


def root(kind: Kind) -> dict[str, Any]:
    schema: dict[str, Any] = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def spec_parts(kind: Kind) -> Iterator[tuple[str, dict[str, Any]]]:
    return parts(root(kind)["properties"]["spec"])


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def kind(request: pytest.FixtureRequest) -> Kind:
    made: Kind = request.param
    return made


@pytest.mark.covers("OP-001")
def test_durations_are_bounded_strings_seconds_are_integers_and_there_are_no_floats(kind: Kind) -> None:
    spans = []
    for path, schema in parts(root(kind)):
        assert schema.get("type") != "number", path
        if "duration(self)" in json.dumps(schema.get("x-kubernetes-validations", ())):
            spans.append(path)
            assert schema["maxLength"] == 16
            assert durations.PATTERN in schema["pattern"]
        if path.endswith(("Seconds", "Percent", "Millis")):
            assert schema["type"] == "integer", path
    assert spans
    # Whatever has a duration's pattern has its bound too.
    with_pattern = [
        path for path, schema in parts(root(kind)) if durations.PATTERN in schema.get("pattern", "")
    ]
    assert with_pattern == spans


@pytest.mark.covers("OP-001")
def test_no_duration_of_sixteen_characters_overflows_cel() -> None:
    longest = "999999h" * 2 + "1h"
    assert len(longest) == durations.MAX_LENGTH
    # CEL durations are int64 nanoseconds.
    assert durations.parse_duration(longest).total_seconds() * 1e9 < 2**63


@pytest.mark.covers("OP-002")
def test_every_string_list_and_map_has_its_limit(kind: Kind) -> None:
    for path, schema in parts(root(kind)):
        if schema.get("type") == "string" and not path.startswith("metadata"):
            assert "maxLength" in schema, path
        if schema.get("x-kubernetes-int-or-string"):
            assert "maxLength" in schema, path
        if schema.get("type") == "array":
            assert "maxItems" in schema, path
        if "additionalProperties" in schema:
            assert "maxProperties" in schema, path


@pytest.mark.covers("OP-003")
def test_every_default_object_is_complete(kind: Kind) -> None:
    seen = []
    for path, schema in spec_parts(kind):
        if isinstance(schema.get("default"), dict):
            seen.append(path)
            filled = _filled(schema, {})
            assert schema["default"] == filled or path.endswith("resources"), path
    assert {"Queue": "scaling", "CronJob": "dst"}[kind.kind] in seen


def _filled(schema: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """`value` as the API server fills it in from the defaults of the fields."""
    filled = dict(value)
    for name, below in (schema.get("properties") or {}).items():
        if "default" in below:
            filled.setdefault(name, below["default"])
    return filled


@pytest.mark.covers("OP-003")
@pytest.mark.parametrize("model", [QueueSpec, CronJobSpec], ids=["Queue", "CronJob"])
def test_the_schema_defaults_to_what_the_model_defaults_to(model: type[ApiModel]) -> None:
    kind = next(kind for kind in KINDS if kind.spec is model)
    for path, schema in spec_parts(kind):
        if "default" in schema and schema.get("type") == "object" and "properties" in schema:
            owner = model
            *above, last = path.split(".")
            for step in above:
                owner = _model_of(owner, step)
            of_field = _model_of(owner, last)
            read = read_spec(of_field, schema["default"])
            assert isinstance(read, ApiModel)
            assert read.wire() == schema["default"]


def _model_of(owner: type[ApiModel], name: str) -> type[ApiModel]:
    found = next(field.model for field in fields_of(owner) if field.name == name)
    assert found is not None
    return found


@pytest.mark.covers("OP-004")
def test_no_field_is_named_by_a_reserved_word_of_cel(kind: Kind) -> None:
    names = {path.rpartition(".")[2].strip("[]{}") for path, _ in parts(root(kind))}
    assert not names & RESERVED


@pytest.mark.covers("OP-005")
def test_unknown_fields_survive_only_where_another_api_begins(kind: Kind) -> None:
    for path, schema in parts(root(kind)):
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            assert path.removeprefix("spec.").endswith(FREE), path


def test_every_field_is_described_with_its_range_and_default(kind: Kind) -> None:
    for path, schema in spec_parts(kind):
        inside_free = any(path.startswith(free) for free in FREE)
        if path and not path.endswith(("[]", "{}")) and not inside_free:
            assert schema.get("description", "").endswith((".", ")")), path
            if "minimum" in schema:
                assert f"{schema['minimum']} to {schema['maximum']}" in schema["description"], path
            if "default" in schema and not isinstance(schema["default"], dict):
                assert f"Default: {str(schema['default']).lower()}" in schema["description"].replace(
                    str(schema["default"]), str(schema["default"]).lower()
                ), path


def test_every_enum_lists_its_words_and_every_integer_its_range(kind: Kind) -> None:
    for path, schema in spec_parts(kind):
        if schema.get("type") == "integer":
            assert {"minimum", "maximum", "format"} <= schema.keys(), path


# --- what may not change (OP-006) --------------------------------------------------------------------------


def surface() -> dict[str, list[str]]:
    """Names that others rely on: fields, required fields, labels, annotations, condition types, reasons."""
    found: dict[str, list[str]] = {
        "labels": sorted(
            value for name, value in vars(constants).items() if name.startswith(("LABEL_", "ANNOTATION_"))
        ),
        "conditions": sorted(constants.Condition),
        "reasons": sorted({*constants.Reason, *constants.ScaleReason}),
        "environment": sorted(constants.USER_ENV),
    }
    for each in KINDS:
        found[f"{each.kind} fields"] = sorted(path for path, _ in parts(root(each)) if path)
        found[f"{each.kind} required"] = sorted(
            f"{path}.{name}" for path, schema in parts(root(each)) for name in schema.get("required", ())
        )
        found[f"{each.kind} columns"] = [column.name for column in each.columns]
    return found


@pytest.mark.covers("OP-006")
def test_nothing_that_others_rely_on_went_away_and_nothing_new_is_required() -> None:
    kept: dict[str, list[str]] = json.loads(GOLDEN.read_text())
    now = surface()
    for name, words in kept.items():
        if name.endswith("required"):
            assert set(now[name]) <= set(words), f"{name}: a new required field breaks old objects"
        else:
            assert set(words) <= set(now[name]), f"{name}: a name that others rely on is gone"


# --- generated files ---------------------------------------------------------------------------------------


def test_the_generated_files_are_as_checked_in() -> None:
    assert generate.differences(generate.ROOT) == "", "run: make gen"


def test_check_prints_the_difference_and_exits_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    file = tmp_path / "crds" / "queues.yaml"
    file.write_text(file.read_text().replace("maxLength: 512", "maxLength: 513"))
    capsys.readouterr()
    assert generate.main(["--check"]) == 1
    printed = capsys.readouterr().out
    assert "maxLength: 513" in printed
    assert "crds/queues.yaml (checked in)" in printed
    assert generate.main(["--what"]) == 2


def test_the_first_line_of_each_generated_file_says_what_to_edit() -> None:
    for path, text in generate.generated().items():
        first = text.splitlines()[0]
        assert re.search(r"Generated: edit operator/dockwork_operator/models\S* and run `make gen`", first), (
            path
        )


@pytest.mark.covers("OP-331")
def test_the_chart_and_the_plain_file_hold_the_same_crds() -> None:
    plain = list(yaml.safe_load_all((generate.ROOT / "crds" / "crds.yaml").read_text()))
    assert [each["metadata"]["name"] for each in plain] == [
        "queues.dockwork.dev",
        "queuecronjobs.dockwork.dev",
    ]
    for kind, each in zip(KINDS, plain, strict=True):
        text = generate.generated()[f"charts/dockwork-crds/templates/{kind.plural}.yaml"]
        in_chart = yaml.safe_load(re.sub(r"\{\{.*?\}\}", "x", text))
        assert in_chart["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
        assert in_chart["spec"] == each["spec"]
    assert not (generate.ROOT / "charts" / "dockwork" / "crds").exists()


def test_a_status_cuts_what_is_too_long_and_never_fails() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    made = StatusCondition(
        type="Degraded", status="True", last_transition_time=at, reason="ApplyRejected", message="x" * 5000
    )
    assert len(made.message) == 4096
    assert made.message.endswith("...")
    assert made.wire()["lastTransitionTime"] == "2026-03-01T00:00:00Z"
