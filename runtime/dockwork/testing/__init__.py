"""Tests of an application without Redis: what ``App.testing`` gives. Importing it changes nothing."""

from dockwork.store.memory import MemoryStore
from dockwork.testing.bench import Bench, Enqueued

__all__ = ["Bench", "Enqueued", "MemoryStore"]
