"""Slot threads: reuse, and an interruption that meets its own run only."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from dockwork.errors import TimedOut
from dockwork.worker.threads import Call, Threads
from support.waiting import until


class Collected:
    """Where a call's end is put."""

    def __init__(self) -> None:
        self.ends: list[tuple[Any, BaseException | None]] = []

    def __call__(self, value: Any, error: BaseException | None) -> None:
        self.ends.append((value, error))


@pytest.mark.covers("RT-104")
def test_a_thread_is_reused_and_a_second_is_made_only_for_two_at_once() -> None:
    threads, ended = Threads(), Collected()
    release = threading.Event()
    try:
        names: set[str] = set()

        def name() -> str:
            names.add(threading.current_thread().name)
            return threading.current_thread().name

        for count in range(1, 4):
            threads.start(Call(object(), name, ended))
            until(lambda count=count: len(ended.ends) == count)
        assert names == {"dockwork-slot-1"}

        threads.start(Call(object(), lambda: release.wait(10), ended))
        threads.start(Call(object(), name, ended))
        until(lambda: len(ended.ends) == 4)
        assert names == {"dockwork-slot-1", "dockwork-slot-2"}
    finally:
        release.set()
        threads.close()


@pytest.mark.covers("RT-105")
def test_an_interruption_ends_the_run_that_it_is_meant_for() -> None:
    threads, ended = Threads(), Collected()
    run, begun = object(), threading.Event()

    def spin() -> None:
        begun.set()
        while True:
            pass

    try:
        thread = threads.start(Call(run, spin, ended))
        assert begun.wait(10)
        assert thread.inject(object(), TimedOut) is False
        assert thread.inject(run, TimedOut) is True
        until(lambda: ended.ends)
        value, error = ended.ends[0]
        assert value is None
        assert isinstance(error, TimedOut)

        assert thread.inject(run, TimedOut) is False, "the run is over"
        threads.start(Call(object(), lambda: 7, ended))
        until(lambda: len(ended.ends) == 2)
        assert ended.ends[1] == (7, None)
    finally:
        threads.close()


def test_what_a_handler_raises_ends_its_call_and_not_the_thread() -> None:
    threads, ended = Threads(), Collected()

    def leave() -> None:
        raise SystemExit(3)

    try:
        threads.start(Call(object(), leave, ended))
        until(lambda: ended.ends)
        assert isinstance(ended.ends[0][1], SystemExit)
        threads.start(Call(object(), lambda: 1, ended))
        until(lambda: len(ended.ends) == 2)
        assert ended.ends[1] == (1, None)
    finally:
        threads.close()
