"""Where the keys of sealed values come from: the environment, code, or a file that is read again when it changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from dockwork.core.sealed import KeyRing, make_ring
from dockwork.errors import EncryptionError, require
from dockwork.settings import OURS, Settings

KEYS = f"{OURS}PAYLOAD_KEYS"
KEY = f"{OURS}PAYLOAD_KEY"
KEYS_FILE = f"{OURS}PAYLOAD_KEYS_FILE"

#: Bytes of a digest key, at least.
SHORTEST_DIGEST_KEY = 16


@dataclass(frozen=True, kw_only=True)
class Encryption:
    """What code says about sealed values. Keys from the environment beat those given here.

    keys              the ring as text: ``id:key`` or ``key`` between commas, spaces or lines; the first seals
    file              a file with such a ring, read again when it changes; with `keys`, these count
    allow_plaintext   older values that are not sealed run, and are sealed at the next write; False: such a job is
                      ``dead``, and its arguments are not kept
    digest_key        at least 16 bytes: lets sealed values count where arguments are compared (idempotency and unique
                      keys), by their HMAC; without it they are left out
    """

    keys: str | None = field(default=None, repr=False)
    file: str | Path | None = None
    allow_plaintext: bool = True
    digest_key: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        size = SHORTEST_DIGEST_KEY if self.digest_key is None else len(self.digest_key)
        expected = f"at least {SHORTEST_DIGEST_KEY} bytes"
        require(size >= SHORTEST_DIGEST_KEY, "encryption.digest_key", expected=expected, got=f"{size} bytes")


class KeySource:
    """The key ring of one app. `ring` is asked for each value, so a changed file counts at once.

    outside    what the environment says, read at the first use
    """

    def __init__(self, said: Encryption, outside: Callable[[], Settings]) -> None:
        self.said = said
        self._outside = outside
        self._ring: KeyRing | None = None
        self._file: Path | None = None
        self._loaded: tuple[tuple[int, int, int], KeyRing] | None = None
        self._found = False

    @property
    def allow_plaintext(self) -> bool:
        return self.said.allow_plaintext

    def ring(self) -> KeyRing:
        """The keys as they are now; from any thread. Raises EncryptionError, which quotes none of them."""
        if not self._found:
            self._find()
        ring = self._ring if self._file is None else self._read(self._file)
        if ring is None:
            raise EncryptionError(
                f"there is no key for encrypted values: set {KEY} to what `openssl rand -hex 32` gives, "
                f"or {KEYS}, or {KEYS_FILE}, or give the app Encryption(keys=...)"
            )
        return ring

    @property
    def is_set(self) -> bool:
        """Whether anybody said where the keys are; they may be bad all the same."""
        outside = self._outside()
        places = (outside.payload_keys, outside.payload_key, outside.payload_keys_file)
        return any(places) or self.said.keys is not None or self.said.file is not None

    def _find(self) -> None:
        outside = self._outside()
        if outside.payload_keys:
            self._ring = make_ring(outside.payload_keys, KEYS)
        elif outside.payload_key:
            self._ring = make_ring(outside.payload_key, KEY)
        elif outside.payload_keys_file:
            self._file = Path(outside.payload_keys_file)
        elif self.said.keys is not None:
            self._ring = make_ring(self.said.keys, "encryption.keys")
        elif self.said.file is not None:
            self._file = Path(self.said.file)
        self._found = True

    def _read(self, file: Path) -> KeyRing:
        """The ring in `file`, read again if that is another file than last time, or a changed one."""
        loaded = self._loaded
        try:
            found = file.stat()
            stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
            if loaded is not None and loaded[0] == stamp:
                return loaded[1]
            text = file.read_text()
        except (OSError, ValueError) as error:
            raise EncryptionError(f"key file {file}: it cannot be read: {type(error).__name__}") from None
        ring = make_ring(text, f"key file {file}")
        self._loaded = stamp, ring
        return ring


def passing_keys(said: Encryption) -> KeySource:
    """Keys of one test run: random, and known to nobody afterwards."""
    ring = f"test:{os.urandom(32).hex()}"
    return KeySource(replace(said, keys=ring, file=None), Settings)
