"""What a worker and its child processes say to each other: JSON with a body of bytes, over a socket pair.

Never pickle: a child reads what its handler wrote into memory, and must not be able to run code in the worker.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

_PREFIX = struct.Struct(">II")


class Frame(NamedTuple):
    """One message: `head` says what is to be done under ``do``; `body` goes along untouched."""

    head: Mapping[str, Any]
    body: bytes = b""

    @property
    def do(self) -> str:
        return str(self.head["do"])


def encode_frame(do: str, body: bytes = b"", /, **more: Any) -> bytes:
    """A message as it goes over the socket."""
    head = json.dumps({"do": do, **more}, separators=(",", ":")).encode()
    return _PREFIX.pack(len(head), len(body)) + head + body


class Frames:
    """Cuts a stream of bytes into messages."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The messages that `data` completes."""
        held = self._held
        held += data
        while len(held) >= _PREFIX.size:
            heads, bodies = _PREFIX.unpack_from(held)
            end = _PREFIX.size + heads + bodies
            if len(held) < end:
                return
            body_at = _PREFIX.size + heads
            frame = Frame(json.loads(held[_PREFIX.size : body_at]), bytes(held[body_at:end]))
            del held[:end]
            yield frame


def read_frames(receive: Callable[[int], bytes]) -> Iterator[Frame]:
    """The messages that blocking reads bring, until the other side is gone."""
    frames = Frames()
    while data := receive(1 << 16):
        yield from frames.feed(data)
