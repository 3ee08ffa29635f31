"""Finding an app by ``module:object``, and an app for commands that need none of its code."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace

import click

from dockwork.app import App


def load_app(target: str) -> App:
    """The `App` that ``module:object`` names, with the current folder importable as for ``python -m``.

    Raises    click.UsageError saying what is missing; what the module itself raises goes through
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
            raise  # the app's own import failed: its trace says where
        raise click.UsageError(f"APP: no module {error.name!r} here or on PYTHONPATH") from None
    app = getattr(module, attribute, None)
    if not isinstance(app, App):
        found = "nothing" if app is None else type(app).__name__
        raise click.UsageError(f"APP: expected an App at {target}; got {found}")
    return app


def plain_app(namespace: str | None = None) -> App:
    """An app without job types, for commands that only speak to Redis; `namespace` beats the environment."""
    return in_namespace(App("dockwork-cli"), namespace)


def in_namespace(app: App, namespace: str | None) -> App:
    """`app` itself, in `namespace` if one is given."""
    if namespace is not None:
        app.settings = replace(app.settings, namespace=namespace)
    return app
