"""Keys of cached things: a digest of everything that goes into them."""

import hashlib
from collections.abc import Iterable
from pathlib import Path


def key_of(*parts: str | bytes) -> str:
    """12 hexadecimal digits. Each part is framed by its length, so that parts cannot run together."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()[:12]


def files_under(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def key_of_files(root: Path, files: Iterable[Path], *more: str) -> str:
    """A key of the files' names (below `root`), modes and contents."""
    parts: list[str | bytes] = list(more)
    for file in files:
        executable = "x" if file.stat().st_mode & 0o100 else "-"
        parts += [f"{file.relative_to(root)} {executable}", file.read_bytes()]
    return key_of(*parts)
