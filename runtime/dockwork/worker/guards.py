"""What stands between a run and the store when its job type seals values: they are opened just before the handler
runs, and whatever the run leaves behind is sealed or scrubbed of them.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from typing import Any

from dockwork.core.codec import Opened, open_envelope, with_args
from dockwork.core.scrub import NOT_SCRUBBABLE, Scrubber
from dockwork.core.sealing import CHECKPOINT, RESULT, PlaintextRefused, Sealing, keys_in
from dockwork.errors import EncryptionError, Undecodable
from dockwork.registry import JobType
from dockwork.store.protocol import Claim, Resealed

#: Parts of a job that are sealed, as a record's `z` names them.
ARGS, SAVED, RETURNED = "a", "c", "r"


class Guard:
    """The sealed side of one run.

    saved     the checkpoint in plain, or None

    Raises    Undecodable, InvalidArgs; EncryptionError without a key ring; DecryptionError for a value that this ring
              does not open
    """

    __slots__ = (
        "_args_keys",
        "_claim",
        "_job_type",
        "_newest",
        "_plain",
        "_saved_key",
        "_scrubber",
        "_sealing",
        "_stale_saved",
        "opened",
        "saved",
    )

    def __init__(self, job_type: JobType[Any, Any], claim: Claim) -> None:
        sealing = job_type.sealing
        assert sealing is not None
        self._job_type = job_type
        self._sealing: Sealing = sealing
        self._claim = claim
        opened, stored = job_type.open_sealed(claim.envelope)
        self.opened: Opened = opened
        self._plain = stored.args
        # "" stands for a field that is still plain: no ring has such a key, so it is sealed at the next write.
        self._args_keys = stored.keys | ({""} if stored.plain else set())
        self.saved: bytes | None = None
        self._newest: bytes | None = None
        self._saved_key = ""
        self._stale_saved = claim.checkpoint is not None
        if claim.checkpoint is not None:
            keys = job_type.key_source
            self.saved, self._saved_key = sealing.open_whole(
                CHECKPOINT, claim.checkpoint, keys.ring(), allow_plaintext=keys.allow_plaintext
            )
        self._scrubber = Scrubber(self._secrets)

    # --- out of the run

    def text(self, text: str) -> str:
        """`text` without the sealed values. Never raises."""
        return self._scrubber.text(text)

    def json(self, data: bytes) -> bytes:
        """A JSON value without the sealed values. Never raises."""
        return self._scrubber.json(data)

    def trace(self, error: BaseException) -> str:
        """The trace of `error` with its causes, without the sealed values. Never raises."""
        try:
            return self.text("".join(traceback.format_exception(error)))
        except Exception:  # an error whose own code fails
            return NOT_SCRUBBABLE

    def seal_checkpoint(self, data: bytes) -> bytes:
        """A checkpoint as it is stored. Raises EncryptionError."""
        sealed = self._sealing.seal_whole(CHECKPOINT, data, self._job_type.key_source.ring())
        self.checkpoint_written()
        self._newest = data
        self._scrubber = Scrubber(self._secrets)
        return sealed

    def checkpoint_written(self) -> None:
        """This run saves a checkpoint of its own: the settle must not write the one before it over it."""
        self._stale_saved = False

    def seal_result(self, data: bytes) -> tuple[bytes, str]:
        """A result as it is stored, and the key that seals it, "" where none does. Raises EncryptionError."""
        if not self._sealing.result:
            return data, ""
        ring = self._job_type.key_source.ring()
        return self._sealing.seal_whole(RESULT, data, ring), ring.current

    def resealed(self, *, result_key: str = "") -> Resealed | None:
        """What a settle that keeps the job has to write anew: what the current key does not seal. None for nothing."""
        try:
            ring = self._job_type.key_source.ring()
        except EncryptionError:  # the keys went meanwhile; what is sealed stays as it is
            return Resealed(keys=f"{RETURNED}{result_key}") if result_key else None
        keys, envelope, checkpoint = [], None, None
        if self._args_keys - {ring.current}:
            envelope = with_args(self._claim.envelope, self._sealing.seal_args(self._plain, ring))
            keys.append(f"{ARGS}{ring.current}")
        if self._stale_saved and self.saved is not None and self._saved_key != ring.current:
            checkpoint = self._sealing.seal_whole(CHECKPOINT, self.saved, ring)
            keys.append(f"{SAVED}{ring.current}")
        if result_key:
            keys.append(f"{RETURNED}{result_key}")
        return Resealed(keys=",".join(keys), envelope=envelope, checkpoint=checkpoint) if keys else None

    def completed(self, result_key: str, *, repeats: bool) -> Resealed | None:
        """What the settle of a run that returned has to say, or to write of a job that runs again."""
        if repeats:
            return self.resealed(result_key=result_key)
        return Resealed(keys=f"{RETURNED}{result_key}") if result_key else None

    def _secrets(self) -> Iterator[Any]:
        """The sealed values: as they are stored, and as the handler got them before it could change them."""
        fields = self._sealing.fields
        stored = json.loads(self._plain)
        yield from (value for name, value in stored.items() if name in fields)
        loaded = self._job_type.validate(self._plain)
        yield from (value for name, value in loaded.items() if name in fields)
        for checkpoint in (self.saved, self._newest):
            if checkpoint is not None:
                # Numbers of a checkpoint are mostly counts, and progress that repeats one is no leak.
                yield from _texts_in(json.loads(checkpoint))


def unreadable(job_type: JobType[Any, Any], claim: Claim, error: Exception) -> Resealed | None:
    """What a job that cannot run keeps in place of values that belong sealed and are not. None: it stays as it is.

    1. Plain values that are refused go, with all arguments.
    2. Arguments that do not fit are sealed as they are.
    """
    sealing = job_type.sealing
    if sealing is None or isinstance(error, Undecodable):
        return None
    try:
        envelope = open_envelope(claim.envelope)
        if isinstance(error, PlaintextRefused):
            if error.field == CHECKPOINT:
                return Resealed(keys=SAVED, checkpoint=b"null")
            return Resealed(keys=ARGS, envelope=with_args(claim.envelope, b"{}"))
        stored = json.loads(envelope.args)
        sealed = sealing.seal_plain(stored, job_type.key_source.ring())
        kept = json.loads(sealed)
    except (Undecodable, EncryptionError):
        return None
    if kept == stored:
        return None
    keys = ",".join(f"{ARGS}{key}" for key in sorted(keys_in(kept)))
    return Resealed(keys=keys, envelope=with_args(claim.envelope, sealed))


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from _texts_in(part)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield name
            yield from _texts_in(part)
