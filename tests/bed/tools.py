"""The programs with which one speaks to a bed: kind, kubectl, helm."""

from pathlib import Path

from bed.errors import BedError
from bed.programs import PROGRAMS, built, program_path
from bed.routes import GO_MISSING
from bed.shell import found


def tool(name: str, cache: Path | None = None) -> Path:
    """Where `name` is: in the cache, else built there from its Go module, else on PATH."""
    assert name in PROGRAMS
    cached = program_path(name, cache)
    if cached.exists():
        return cached
    if found("go"):
        return built([name], cache)[name]
    installed = found(name)
    if installed is None:
        raise BedError(f"{name}: not found, and no Go to build it", remedy=GO_MISSING)
    return installed
