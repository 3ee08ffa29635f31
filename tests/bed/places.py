"""Where everything of the bed lies: the checkout, the cache, and the folder of each bed."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bed.errors import BedError

ROOT = Path(__file__).resolve().parents[2]
"""The checkout."""

DEFAULT_BED = "dockwork"
BED_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


def cache_root(environ: Mapping[str, str] | None = None) -> Path:
    """`$DOCKWORK_CACHE`, else `$XDG_CACHE_HOME/dockwork`, else `~/.cache/dockwork`."""
    env = os.environ if environ is None else environ
    if chosen := env.get("DOCKWORK_CACHE"):
        return Path(chosen).expanduser().absolute()
    if xdg := env.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser().absolute() / "dockwork"
    return Path(env.get("HOME") or Path.home()) / ".cache" / "dockwork"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bed:
    """One bed. Its name is the cluster's name, and everything else follows from it."""

    name: str
    cache: Path

    @property
    def folder(self) -> Path:
        return self.cache / "beds" / self.name

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def context(self) -> str:
        """The context in the kubeconfig, as kind names it."""
        return f"kind-{self.name}"


def bed_from(environ: Mapping[str, str] | None = None) -> Bed:
    """The bed that `$DOCKWORK_BED` names; `dockwork` by default."""
    env = os.environ if environ is None else environ
    name = env.get("DOCKWORK_BED") or DEFAULT_BED
    if not BED_NAME.fullmatch(name):
        raise BedError(
            f"DOCKWORK_BED: expected 1 to 32 of a-z, 0-9 and '-', a letter first, got {name!r}",
            remedy="export DOCKWORK_BED=some-name",
        )
    return Bed(name=name, cache=cache_root(env))
