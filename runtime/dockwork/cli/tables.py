"""What commands print: JSON for programs, tables that fit the terminal for people."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

#: Where the output goes to no terminal: wide enough that nothing is cut.
FILE_WIDTH = 200
#: A job's id is never cut; a name that is longer may be.
ID_WIDTH = 26
#: Less than this of a text says nothing: rather another column goes.
CUT_LEAST = 20


def output_width() -> int:
    """Columns of the terminal, or of what is written elsewhere."""
    from rich.console import Console

    console = Console()
    return console.width if console.is_terminal else FILE_WIDTH


def facts_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name, as they are."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}


def write_json(value: Any) -> None:
    """Print a value as JSON; instants as ISO 8601."""
    click.echo(json.dumps(value, default=_plain, indent=2, ensure_ascii=False))


def write_table(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str]],
    *,
    spare: Sequence[str] = (),
    cut: str = "",
) -> None:
    """Print rows under headings, each on one line, in the terminal's width.

    columns    (heading, "left" or "right")
    spare      headings of columns that are left out where there is no room, in this order
    cut        heading of the column that is cut with an ellipsis before others are; "" = the last
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH, highlight=False)
    cut = cut or columns[-1][0]
    columns, rows, most = _fit(columns, rows, spare, cut, console.width)
    table = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else None,
        pad_edge=False,
        show_edge=False,
        collapse_padding=console.is_terminal,  # a line between columns is a blank, too
        header_style="bold",
    )
    for heading, side in columns:
        table.add_column(
            heading,
            justify="right" if side == "right" else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=most.get(heading),
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _fit(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str]],
    spare: Sequence[str],
    cut: str,
    width: int,
) -> tuple[Sequence[tuple[str, str]], Sequence[Sequence[str]], Mapping[str, int]]:
    """The columns that fit, the rows with only those, and how wide each may be."""
    from rich.cells import cell_len

    wide = {
        heading: max([cell_len(heading), *(cell_len(row[at]) for row in rows)])
        for at, (heading, _) in enumerate(columns)
    }
    longest = max(width // 3, ID_WIDTH)
    wide = {heading: size if heading == cut else min(size, longest) for heading, size in wide.items()}
    kept = [heading for heading, _ in columns]

    def left() -> int:
        """What the column that is cut has, beside the others and two blanks for each."""
        return width - sum(wide[each] + 2 for each in kept if each != cut)

    for heading in spare:
        if left() >= min(wide[cut], CUT_LEAST):
            break
        kept.remove(heading)
    places = [at for at, (heading, _) in enumerate(columns) if heading in kept]
    wide[cut] = min(wide[cut], max(left(), 1))
    return [columns[at] for at in places], [[row[at] for at in places] for row in rows], wide


def write_facts(facts: Mapping[str, str]) -> None:
    """Print names and values; a value of several lines, or of one that is too long for the terminal, is indented."""
    width = max((len(name) for name in facts), default=0)
    room = max(output_width() - width - 2, 20)
    for name, value in facts.items():
        lines = value.splitlines()
        first, *rest = (textwrap.wrap(value, room) if len(lines) == 1 else lines) or [""]
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
        return facts_of(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
