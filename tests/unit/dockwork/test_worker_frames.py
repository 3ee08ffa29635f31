"""What a worker and its children say to each other, and how an end is told."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dockwork.errors import Discard, DockworkError, Retry, Snooze, TimedOut
from dockwork.worker.children import describe_exit, oom_kills
from dockwork.worker.frames import Frames, encode_frame
from dockwork.worker.told import RemoteError, make_error, tell_error, told_of


class Odd(Exception):
    """It cannot be made of its text."""

    def __init__(self, *, code: int) -> None:
        self.code = code
        super().__init__(f"odd {code}")


@given(
    st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=40), st.integers()), max_size=6),
    st.integers(1, 40),
)
def test_messages_survive_any_cut(messages: list[tuple[str, bytes, int]], size: int) -> None:
    stream = b"".join(encode_frame(do, body, number=number) for do, body, number in messages)
    frames = Frames()
    heard = [frame for at in range(0, len(stream), size) for frame in frames.feed(stream[at : at + size])]
    assert [(frame.do, frame.body, frame.head["number"]) for frame in heard] == messages


@pytest.mark.covers("RT-107")
def test_an_error_crosses_as_words_and_is_its_own_class_again() -> None:
    for error in (
        LookupError("gone"),
        Odd(code=7),
        Retry(after=3, reason="busy"),
        Snooze(5),
        Discard("no"),
        TimedOut("late"),
        SystemExit(3),
    ):
        told = json.loads(json.dumps(tell_error(error)))
        made = make_error(told)
        assert type(made) is type(error)
        assert str(made) == str(error)
        assert getattr(made, "after", None) == getattr(error, "after", None)
        assert told_of(made) == told
    unknown = make_error({**tell_error(LookupError("x")), "module": "never.imported"})
    assert isinstance(unknown, RemoteError)
    assert isinstance(unknown, DockworkError)
    assert told_of(LookupError("of this process")) is None


@pytest.mark.covers("RT-107", "FM-11")
def test_an_end_is_told_by_its_signal_or_its_code(tmp_path: Path) -> None:
    assert describe_exit(0) == "exit code 0"
    assert describe_exit(70) == "exit code 70"
    assert describe_exit(-signal.SIGSEGV) == "signal 11 (SIGSEGV)"
    assert describe_exit(-signal.SIGKILL, out_of_memory=True) == "signal 9 (SIGKILL), out of memory"
    assert describe_exit(-signal.SIGTERM, out_of_memory=True) == "signal 15 (SIGTERM)"
    assert describe_exit(-63) == "signal 63"

    assert oom_kills(tmp_path) == 0
    (tmp_path / "memory.events").write_text("low 0\nhigh 2\nmax 9\noom 3\noom_kill 2\n")
    assert oom_kills(tmp_path) == 2
