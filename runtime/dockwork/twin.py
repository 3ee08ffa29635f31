"""What the groups of an app's calls share, and their blocking twins: one client, one portal."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from dockwork.client import Client
    from dockwork.registry import Registry
    from dockwork.sync import Portal

T = TypeVar("T")
B = TypeVar("B", bound="Bound")


class AppCalls(ABC):
    """A group of an app's calls: on the client of the running loop."""

    registry: Registry

    @property
    @abstractmethod
    def client(self) -> Client: ...


class Bound(AppCalls):
    """The same calls on one client: `class _Bound(Bound, AppActions)`."""

    def __init__(self, client: Client, registry: Registry) -> None:
        self._client = client
        self.registry = registry

    @property
    def client(self) -> Client:
        return self._client


class Twin(ABC):
    """A group of blocking twins."""

    _portal: Portal
    _registry: Registry

    @abstractmethod
    def _at_client(self) -> Client:
        """The client of the twin's own loop."""

    def _on(self, bound: type[B], call: Callable[[B], Awaitable[T]]) -> T:
        async def on_its_loop() -> T:
            return await call(bound(self._at_client(), self._registry))

        return self._portal.run(on_its_loop)
