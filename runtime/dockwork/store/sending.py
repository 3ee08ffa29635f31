"""Calls that are sent without a task, where a store can do that."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from dockwork.store.protocol import Admission


class NotRun(Exception):
    """The server did not know the script: the call changed nothing, and has to be sent again."""


class Begun(Protocol):
    """An enqueue that is under way.

    future    is done when it has been answered, however
    """

    future: asyncio.Future[Any]

    def admissions(self) -> list[Admission]:
        """What `Store.enqueue` answers, or raises; NotRun where that has to be asked."""
        ...
