"""Packages whose own code runs only when something of it is asked for, so that a part can be had without the rest.

redis-py's connections need 30 modules; its package imports 130, clients, commands and cluster included: 5 MB that no
worker uses (measured); and OpenTelemetry with its SDK where that is installed, 4 MB more, for metrics of its own that
somebody has to turn on: who wants them imports ``opentelemetry`` before ``dockwork``. Whoever else imports anything of
redis-py, or says ``redis.Redis``, gets it as ever: the packages' code runs at that moment, the outer one first.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

_loading = threading.RLock()
_ours = threading.local()


class LightPackage(ModuleType):
    """A package that was found and not run yet. Python asks for its ``__path__`` to import a module of it."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if spec is None or spec.loader is None or (name.startswith("__") and name != "__path__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name == "__path__" and getattr(_ours, "importing", False):
            return spec.submodule_search_locations
        _run(self)
        return getattr(self, name)


def import_lightly(packages: tuple[str, ...], modules: tuple[str, ...], without: str = "") -> None:
    """Import `modules` without the code of `packages` around them, outer ones first.

    A package that is imported already stays as it is.
    without     a package that `modules` use where it is installed: they go without, unless it is imported already
    """
    hides = bool(without) and without not in sys.modules
    with _loading:
        if hides:
            sys.modules[without] = None  # type: ignore[assignment]
        for name in packages:
            if name in sys.modules or not _put(name):
                break
        _ours.importing = True
        try:
            for name in modules:
                importlib.import_module(name)
        finally:
            _ours.importing = False
            if hides:
                del sys.modules[without]


def _put(name: str) -> bool:
    _ours.importing = True
    try:
        spec = importlib.util.find_spec(name)
    finally:
        _ours.importing = False
    if spec is None:
        return False
    package = importlib.util.module_from_spec(spec)
    vars(package).pop("__path__", None)
    package.__class__ = LightPackage
    sys.modules[name] = package
    outer, _, inner = name.rpartition(".")
    if outer:
        setattr(sys.modules[outer], inner, package)
    return True


def _run(package: ModuleType) -> None:
    """The package's own code, once, after that of the packages around it."""
    with _loading:
        outer = sys.modules.get(package.__name__.rpartition(".")[0])
        if isinstance(outer, LightPackage):
            _run(outer)
        if not isinstance(package, LightPackage):
            return
        spec = package.__spec__
        assert spec is not None
        assert spec.loader is not None
        package.__class__ = ModuleType  # type: ignore[assignment]
        package.__path__ = list(spec.submodule_search_locations or ())
        spec.loader.exec_module(package)
