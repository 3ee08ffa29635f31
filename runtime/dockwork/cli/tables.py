"""What commands print: JSON for programs, tables that fit the terminal for people."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

#: Where the output goes to no terminal: wide enough that nothing is cut.
FILE_WIDTH = 200


def write_json(value: Any) -> None:
    """Print a value as JSON; instants as ISO 8601."""
    click.echo(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def write_table(columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under headings; what does not fit is cut with an ellipsis, never wrapped.

    columns    (heading, "left" or "right")
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH, highlight=False)
    table = Table(box=box.SIMPLE_HEAD if console.is_terminal else None, pad_edge=False, header_style="bold")
    for heading, side in columns:
        table.add_column(
            heading, justify="right" if side == "right" else "left", no_wrap=True, overflow="ellipsis"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def write_facts(facts: Mapping[str, str]) -> None:
    """Print names and values, one a line; values of several lines are indented."""
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        first, *rest = value.splitlines() or [""]
        click.echo(f"{name.ljust(width)}  {first}")
        for line in rest:
            click.echo(f"{'':{width}}  {line}")


def age(span: timedelta) -> str:
    """A span in its two largest units: ``2d3h``, ``5m7s``, ``340ms``."""
    ms = max(span // timedelta(milliseconds=1), 0)
    if ms < 1000:
        return f"{ms}ms"
    left = ms // 1000
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}")
    return "".join(part for part in parts[:2] if not part.startswith("0"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
