"""Print the longest functions and files: a report to look at, not a gate."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def functions(path: Path) -> list[tuple[int, str]]:
    """(lines without docstring, name) of each function in `path`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                lines -= (first.end_lineno or first.lineno) - first.lineno + 1
            found.append((lines, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"))
    return found


def main() -> None:
    for package in ("runtime", "operator"):
        paths = sorted((ROOT / package).rglob("*.py"))
        sizes = sorted((f for p in paths for f in functions(p)), reverse=True)
        if len(sizes) < 10:
            continue
        cuts = statistics.quantiles([s for s, _ in sizes], n=10)
        longest = f"{sizes[0][0]} ({sizes[0][1]})"
        print(f"{package}: {len(sizes)} functions, p50 {cuts[4]:.0f}, p90 {cuts[8]:.0f}, longest {longest}")


if __name__ == "__main__":
    main()
