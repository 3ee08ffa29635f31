"""Writes what follows from the models: CRDs, the CRD chart's templates, the chart's RBAC rules, reference pages.

python -m dockwork_operator.models.generate            writes the files
python -m dockwork_operator.models.generate --check    prints the difference and exits 1 if there is one
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dockwork_operator.models.crds import CRONJOB, KINDS, QUEUE, SCHEMA_REVISION, Kind, crd
from dockwork_operator.models.fields import ApiModel
from dockwork_operator.models.rbac import NAMES, OWN, WATCHED, Grant
from dockwork_operator.models.schema import Field, fields_of, says_range, shown

ROOT = Path(__file__).resolve().parents[3]
SOURCE = "operator/dockwork_operator/models"
COMMAND = "make gen"


def generated() -> Mapping[str, str]:
    """Every generated file: its path below the repository's root, and its text."""
    files = {
        "crds/crds.yaml": _yaml_file(f"{SOURCE}", [crd(kind) for kind in KINDS]),
        "charts/dockwork/templates/_rules.tpl": rules_template(),
        "docs/reference/queue.md": reference(QUEUE),
        "docs/reference/cronjob.md": reference(CRONJOB),
    }
    for kind in KINDS:
        source = f"{SOURCE}/{'queues' if kind is QUEUE else 'cronjobs'}.py"
        files[f"crds/{kind.plural}.yaml"] = _yaml_file(source, [crd(kind)])
        files[f"charts/dockwork-crds/templates/{kind.plural}.yaml"] = _chart_crd(source, kind)
    return files


# --- CRDs --------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Block style throughout, texts on one line, no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _dump(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)


def _header(source: str) -> str:
    return f"# Generated: edit {source} and run `{COMMAND}`.\n"


def _yaml_file(source: str, objects: Sequence[Any]) -> str:
    return _header(source) + "---\n".join(_dump(each) for each in objects)


def _chart_crd(source: str, kind: Kind) -> str:
    """The CRD as the chart installs it: kept when the release goes, for with it would go every Queue."""
    made = crd(kind)
    made["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep"
    made["metadata"] |= {
        "labels": {
            "app.kubernetes.io/part-of": "dockwork",
            "app.kubernetes.io/managed-by": "{{ .Release.Service }}",
            "helm.sh/chart": "{{ .Chart.Name }}-{{ .Chart.Version }}",
        },
    }
    return _header(source) + _dump(made)


# --- RBAC --------------------------------------------------------------------------------------------------


def rules_template() -> str:
    """The named templates of the chart with the operator's rules."""
    return (
        f"{{{{- /* Generated: edit {SOURCE}/rbac.py and run `{COMMAND}`. */ -}}}}\n"
        + _define("dockwork.rules.watched", WATCHED)
        + _define("dockwork.rules.own", OWN)
        + f'{{{{- define "dockwork.schemaRevision" -}}}}{SCHEMA_REVISION}{{{{- end }}}}\n'
    )


def _define(name: str, grants: Iterable[Grant]) -> str:
    lines = "".join(_rule(grant) for grant in grants)
    return f'{{{{- define "{name}" -}}}}\n{lines}{{{{- end }}}}\n'


def _rule(grant: Grant) -> str:
    lines = [
        f"- apiGroups: {_flow([grant.group])}",
        f"  resources: {_flow(grant.resources)}",
        f"  verbs: {_flow(grant.verbs)}",
    ]
    if grant.named:
        lines.append(f"  resourceNames: {NAMES[grant.named]}")
    return "".join(f"{line}\n" for line in lines)


def _flow(words: Iterable[str]) -> str:
    return "[" + ", ".join(f'"{word}"' for word in words) + "]"


# --- reference pages ---------------------------------------------------------------------------------------


def reference(kind: Kind) -> str:
    """A page with every field of `kind`."""
    return (
        f"<!-- Generated: edit {SOURCE} and run `{COMMAND}`. -->\n"
        f"# {kind.kind}\n\n{kind.text}\n\n"
        f"`apiVersion: dockwork.dev/v1alpha1`, `kind: {kind.kind}`; `kubectl get {kind.short}`.\n\n"
        "## spec\n\n| field | takes | default | |\n|---|---|---|---|\n"
        + "".join(_rows(kind.spec, ""))
        + "\n## status\n\nWritten by the operator.\n\n| field | |\n|---|---|\n"
        + "".join(_status_rows(kind.status, ""))
    )


def _rows(model: type[ApiModel], above: str) -> Iterable[str]:
    for field in fields_of(model):
        name = f"{above}{field.name}"
        default = "**required**" if field.is_required else _shown_default(field)
        yield f"| `{name}` | {_cell(_takes(field))} | {default} | {_cell(field.text)} |\n"
        if field.model is not None:
            yield from _rows(field.model, f"{name}{'[]' if field.many else ''}.")


def _status_rows(model: type[ApiModel], above: str) -> Iterable[str]:
    for field in fields_of(model):
        name = f"{above}{field.name}"
        yield f"| `{name}` | {_cell(field.text)} |\n"
        if field.model is not None:
            yield from _status_rows(field.model, f"{name}{'[]' if field.many else ''}.")


def _shown_default(field: Field) -> str:
    if field.default in (None, [], {}) or isinstance(field.default, dict):
        return ""
    return f"`{shown(field.default)}`"


def _takes(field: Field) -> str:
    """The range in words, else the words of an enum, else the type."""
    schema = field.marker.schema() if field.marker is not None and field.many is None else {}
    if "enum" in schema:
        return " or ".join(schema["enum"])
    return says_range(field) or {"boolean": "true or false", "": "an object"}.get(
        schema.get("type", ""), "an object"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# --- the command -------------------------------------------------------------------------------------------


def differences(root: Path) -> str:
    """What would change below `root`, as a unified diff; "" if nothing would."""
    parts: list[str] = []
    for path, text in generated().items():
        file = root / path
        old = file.read_text() if file.exists() else ""
        parts += difflib.unified_diff(
            old.splitlines(keepends=True),
            text.splitlines(keepends=True),
            f"{path} (checked in)",
            f"{path} (models)",
        )
    return "".join(parts)


def write(root: Path) -> list[str]:
    """Write every generated file that differs below `root`: their paths."""
    changed = []
    for path, text in generated().items():
        file = root / path
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            changed.append(path)
    return changed


def main(arguments: Sequence[str] = ()) -> int:
    """Exit code: 0, or 1 where ``--check`` found a difference, or 2 for an unknown argument."""
    if list(arguments) == ["--check"]:
        difference = differences(ROOT)
        sys.stdout.write(difference)
        return 1 if difference else 0
    if arguments:
        sys.stderr.write("usage: python -m dockwork_operator.models.generate [--check]\n")
        return 2
    for path in write(ROOT):
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
