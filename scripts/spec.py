"""Hold the specification against the tests: which requirement does no test cover?

A requirement is a list item of docs/spec/*.md that begins with its number and its mark:

    - **RT-002** (built) Arguments bind to parameter names ...

Marks: `built` (claimed: a test must cover it), `planned` (first stage, not claimed yet), `second stage`.
A test covers what its `@pytest.mark.covers("RT-002", ...)` names; the tests are read, not run. Prints the uncovered
first-stage requirements by chapter and a last line with the counts. Exits 1 while a built one has no test, or where
a test names a requirement that does not exist.

docs/spec/peers.md lists what the peers have, each line with the requirements that give it here:

    - **K01** A job is in exactly one state: RT-030

`--proofs` writes docs/spec/proofs.md, which says for each of these lines and each requirement which tests prove it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ITEM = re.compile(r"^- \*\*((?:RT|OP)-\d{3}|FM-\d{2})\*\* \((built|planned|second stage)\) (.+)")
LINE = re.compile(r"^- \*\*([KJ]\d{2})\*\* (.+): ((?:(?:RT-\d{3}|FM-\d{2})(?:, )?)+)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Requirement:
    """One numbered sentence of the specification, with its chapter and its mark."""

    number: str
    mark: str
    text: str
    chapter: str


def requirements(folder: Path) -> list[Requirement]:
    """Every requirement of the specification, in its order. Raises SystemExit on a number given twice."""
    found: dict[str, Requirement] = {}
    for page in sorted(folder.glob("*.md")):
        chapter = page.stem
        for line in page.read_text().splitlines():
            if line.startswith("## "):
                chapter = f"{page.stem}: {line[3:].strip()}"
            if match := ITEM.match(line):
                number, mark, text = match.groups()
                if number in found:
                    sys.exit(f"{page}: {number} stands twice")
                found[number] = Requirement(number=number, mark=mark, text=text, chapter=chapter)
    return list(found.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerLine:
    """What a peer has, and the requirements that give it here."""

    number: str
    text: str
    requirements: tuple[str, ...]


def peer_lines(page: Path) -> list[PeerLine]:
    """The lines of the peers' lists, in their order. Raises SystemExit for one that cannot be read."""
    lines = []
    for text in page.read_text().splitlines():
        if text.startswith("- "):
            match = LINE.match(text)
            if not match:
                sys.exit(f"{page}: cannot read {text!r}")
            number, words, names = match.groups()
            lines.append(PeerLine(number=number, text=words, requirements=tuple(names.split(", "))))
    return lines


def proofs(lines: list[PeerLine], wanted: list[Requirement], tests: dict[str, list[str]]) -> str:
    """The page that names the tests: of each requirement, and of each line of the peers' lists."""
    marks = {requirement.number: requirement.mark for requirement in wanted}
    page = [
        "# Proofs",
        "",
        "Written by `make gen` from the specification and from the marks of the tests.",
        "",
        "## What the peers have",
        "",
        "| line | what | requirements | tests |",
        "|---|---|---|---|",
    ]
    for line in lines:
        missing = [name for name in line.requirements if name not in tests]
        count = sum(len(tests.get(name, [])) for name in line.requirements)
        open_ = ", ".join(f"{name}: {marks.get(name, 'second stage')}" for name in missing)
        found = f"{count}" + (f"; none yet for {open_}" if missing else "")
        page.append(f"| {line.number} | {line.text} | {', '.join(line.requirements)} | {found} |")
    page += ["", "## The tests of each requirement", ""]
    for requirement in wanted:
        page.append(f"- **{requirement.number}** ({requirement.mark})")
        page += [f"  - `{test}`" for test in tests.get(requirement.number, [])]
    return "\n".join(page) + "\n"


def _named(decorators: list[ast.expr]) -> list[str]:
    """The numbers in `pytest.mark.covers(...)` among `decorators` (or module-level marks)."""
    return [
        argument.value
        for call in decorators
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "covers"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def covered(folder: Path) -> dict[str, list[str]]:
    """Requirement -> the tests that name it."""
    tests: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                for number in _named(node.decorator_list):
                    tests[number].append(f"{path.relative_to(ROOT)}::{node.name}")
            elif isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets
            ):
                marks = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
                for number in _named(list(marks)):
                    tests[number].append(str(path.relative_to(ROOT)))
    return tests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true", help="only say what is wrong")
    parser.add_argument("--tests", action="store_true", help="list each requirement with its tests")
    parser.add_argument(
        "--proofs", action="store_true", help="write docs/spec/proofs.md, or hold it with --check"
    )
    options = parser.parse_args()
    wanted = [r for r in requirements(ROOT / "docs" / "spec") if r.mark != "second stage"]
    tests = covered(ROOT / "tests")
    known = {r.number for r in requirements(ROOT / "docs" / "spec")}
    strangers = sorted(set(tests) - known)
    open_, broken, chapters = [r for r in wanted if r.number not in tests], [], defaultdict(list)
    for requirement in open_:
        chapters[requirement.chapter].append(requirement)
        if requirement.mark == "built":
            broken.append(requirement)
    lines = peer_lines(ROOT / "docs" / "spec" / "peers.md")
    unknown = sorted({name for line in lines for name in line.requirements} - known)
    proven = sum(all(name in tests for name in line.requirements) for line in lines)
    if options.proofs:
        page, text = ROOT / "docs" / "spec" / "proofs.md", proofs(lines, wanted, tests)
        if not options.check:
            page.write_text(text)
        elif not page.exists() or page.read_text() != text:
            sys.exit(f"{page.relative_to(ROOT)} is not what the tests say: make gen")
    if options.tests:
        for requirement in wanted:
            print(requirement.number, requirement.mark, *tests.get(requirement.number, ["-"]), sep="\n    ")
    elif not options.check:
        for chapter, missing in chapters.items():
            print(f"{chapter}: {len(missing)} without a test")
            for requirement in missing:
                flag = " BUILT, NO TEST" if requirement.mark == "built" else ""
                print(f"  {requirement.number}{flag}  {requirement.text[:110]}")
    for requirement in broken:
        print(f"{requirement.number} is marked as built and no test covers it: {requirement.text[:90]}")
    for number in unknown:
        print(f"{number} is no requirement of the specification, but named in peers.md")
    for number in strangers:
        print(f"{number} is no requirement of the specification, but named by {', '.join(tests[number])}")
    print(f"lines of the peers' lists: {len(lines)}, with every requirement covered {proven}")
    built = sum(r.mark == "built" for r in wanted)
    print(
        f"first-stage requirements: {len(wanted)}, built {built}, "
        f"covered {len(wanted) - len(open_)}, uncovered {len(open_)}"
    )
    return 1 if broken or strangers or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
