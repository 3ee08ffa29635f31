"""Finding an app by ``module:object``, and an app for commands that need none of its code."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from types import TracebackType

import click

from dockwork.app import App
from dockwork.cli.exits import AppFailed
from dockwork.errors import DockworkError


def load_app(target: str) -> App:
    """The `App` that ``module:object`` names, with the current folder importable as for ``python -m``.

    Raises    click.UsageError saying what is missing; AppFailed with what the module itself raises,
              our own errors aside
    """
    module_name, colon, attribute = target.partition(":")
    if not (colon and module_name and attribute):
        raise click.UsageError(f"APP: expected module:object, such as shop.jobs:app; got {target!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise AppFailed(target, _from_own_file(error)) from None
        raise click.UsageError(f"APP: no module {error.name!r} here or on PYTHONPATH") from None
    except DockworkError:
        raise  # a line says it all, and a trace would quote the code, maybe a URL
    except Exception as error:  # the user's code: whatever it raises
        raise AppFailed(target, _from_own_file(error)) from None
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        found = "nothing" if app is None else type(app).__name__
        apps = sorted(
            f"{module_name}:{name}" for name, value in vars(module).items() if isinstance(value, App)
        )
        known = f"{module_name} has {', '.join(apps)}" if apps else f"there is no App in {module_name}"
        raise click.UsageError(f"APP: expected an App at {target}; got {found}; {known}")
    app.origin = module_name
    return app


def _from_own_file(error: Exception) -> Exception:
    """`error` with a trace that begins where the user's code does."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and _is_machinery(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return error.with_traceback(trace)


def _is_machinery(path: str) -> bool:
    return path in (__file__, importlib.__file__) or path.startswith("<frozen importlib")


def plain_app(namespace: str | None = None) -> App:
    """An app without job types, for commands that only speak to Redis; `namespace` beats the environment."""
    return in_namespace(App("dockwork-cli"), namespace)


def in_namespace(app: App, namespace: str | None) -> App:
    """`app` itself, in `namespace` if one is given."""
    if namespace is not None:
        app.settings = replace(app.settings, namespace=namespace)
    return app
