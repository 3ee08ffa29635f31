"""Which kubeconfig the tests and the demo may use. Never the current one: that may be somebody's production."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from bed.errors import BedError
from bed.places import bed_from

VARIABLE = "DOCKWORK_TEST_KUBECONFIG"

ALLOWED_CONTEXTS = re.compile(r"kind-[a-z0-9.-]+|k3d-[a-z0-9.-]+|minikube|dockwork-test(-[a-z0-9-]+)?")
"""Contexts of clusters that are made for trials, by the names that their tools give them."""

_CURRENT = re.compile(r"""^\s*["']?current-context["']?\s*:\s*["']?([^"'\s,#]*)""", re.MULTILINE)


def current_context(text: str) -> str | None:
    """The current context of a kubeconfig (YAML or JSON); None when it has none.

    One top-level line is all that is read; a YAML library is not at hand before the venv exists.
    """
    found = _CURRENT.search(text)
    return (found.group(1) or None) if found else None


def kubeconfig_for_tests(environ: Mapping[str, str] | None = None) -> Path:
    """`$DOCKWORK_TEST_KUBECONFIG` if its context is allowed, else the bed's own file.

    Raises BedError when the file is not there, or names a context that is not on the list.
    """
    env = os.environ if environ is None else environ
    chosen = env.get(VARIABLE)
    if not chosen:
        bed = bed_from(env)
        if not bed.kubeconfig.is_file():
            raise BedError(f"the bed {bed.name!r} has no cluster ({bed.kubeconfig})", remedy="make cluster")
        return bed.kubeconfig
    file = Path(chosen).expanduser()
    if not file.is_file():
        raise BedError(f"{VARIABLE}: {file} is not a file", remedy=f"unset {VARIABLE}")
    context = current_context(file.read_text())
    if context is None or not ALLOWED_CONTEXTS.fullmatch(context):
        raise BedError(
            f"{VARIABLE}: expected a current context that matches {ALLOWED_CONTEXTS.pattern}, got {context!r}",
            remedy="choose a context of a cluster made for trials, or rename it to dockwork-test",
        )
    return file
