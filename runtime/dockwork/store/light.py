"""Packages whose own code runs only when something of it is asked for, so that a part can be had without the rest.

redis-py's connections need 30 modules; its package imports 130, clients, commands and cluster included: 5 MB that no
worker uses (measured). Whoever says ``redis.Redis`` gets it as ever: the package's code runs at that moment.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_loading = threading.RLock()


class LightPackage(ModuleType):
    """A package that was found and not run yet."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        with _loading:
            if type(self) is LightPackage:
                # The outer package's code first, as an import would have it: the inner one's may rely on it.
                outer = sys.modules.get(self.__name__.rpartition(".")[0])
                if type(outer) is LightPackage:
                    _run(outer)
                _run(self)
        return getattr(self, name)


def _run(package: ModuleType) -> None:
    spec = package.__spec__
    if type(package) is LightPackage and spec is not None and spec.loader is not None:
        package.__class__ = ModuleType  # type: ignore[assignment]
        spec.loader.exec_module(package)


def import_lightly(*packages: str) -> None:
    """Let `packages`, outer ones first, be imported without their own code. One that is imported already stays as it is."""
    for name in packages:
        if name in sys.modules:
            return
        spec = importlib.util.find_spec(name)
        if spec is None:
            return
        package = importlib.util.module_from_spec(spec)
        package.__class__ = LightPackage
        sys.modules[name] = package
        outer, _, inner = name.rpartition(".")
        if outer:
            setattr(sys.modules[outer], inner, package)
