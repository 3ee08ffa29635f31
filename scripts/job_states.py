"""Write docs/job-states.md from the table of moves, or with --check say how it differs."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from dockwork.core.states import ENDED, MOVES, ONLY_EVENTS, State

PAGE = Path(__file__).resolve().parent.parent / "docs" / "job-states.md"


def page() -> str:
    """The page: a diagram and a table, in the order of the `State` enum."""
    lines = [
        "<!-- Generated from runtime/dockwork/core/states.py by `make gen`: edit that file. -->",
        "# The states of a job",
        "",
        "A job is in exactly one state; a state's name is also the name of its event.",
        "`paused` is computed: a ready or prioritized job of a paused queue.",
        "Only events, never states: " + ", ".join(f"`{name}`" for name in sorted(ONLY_EVENTS)) + ".",
        "",
        "```mermaid",
        "stateDiagram-v2",
    ]
    lines += [f"    [*] --> {state}" for state in ("ready", "prioritized", "delayed")]
    for state in State:
        lines += [f"    {state} --> {target}" for target in sorted(MOVES[state])]
    lines += [f"    {state} --> [*]" for state in State if state in ENDED]
    lines += ["```", "", "| from | to |", "|---|---|"]
    lines += [f"| `{s}` | {', '.join(f'`{t}`' for t in sorted(MOVES[s])) or 'the end'} |" for s in State]
    return "\n".join(lines) + "\n"


def main() -> int:
    wanted = page()
    if "--check" not in sys.argv:
        PAGE.write_text(wanted)
        return 0
    found = PAGE.read_text() if PAGE.exists() else ""
    sys.stdout.writelines(
        difflib.unified_diff(found.splitlines(True), wanted.splitlines(True), str(PAGE.name), "generated")
    )
    return int(found != wanted)


if __name__ == "__main__":
    sys.exit(main())
