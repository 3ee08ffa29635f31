"""Every Queue and CronJob that the project shows: in examples/, in the guides, in the README."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```ya?ml\n(.*?)^```", re.DOTALL | re.MULTILINE)


def shown_objects() -> list[tuple[str, dict[str, Any]]]:
    """Each object with where it stands: ``docs/guides/queue.md#2 Queue mail``."""
    found = []
    for path, number, text in _texts():
        for made in yaml.safe_load_all(text):
            if isinstance(made, dict) and made.get("apiVersion") == "dockwork.dev/v1alpha1":
                found.append((f"{path}#{number} {made['kind']} {made['metadata']['name']}", made))
    return found


def _texts() -> Iterator[tuple[str, int, str]]:
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        yield str(file.relative_to(ROOT)), 0, file.read_text()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
    for page in pages:
        for number, found in enumerate(_FENCE.finditer(page.read_text()), 1):
            yield str(page.relative_to(ROOT)), number, found[1]
