"""Sealed values without a store: the annotation, the key ring, what is bound to what, and what a schema shows."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from dockwork import (
    App,
    DecryptionError,
    Encrypted,
    Encryption,
    EncryptionError,
    InvalidArgs,
    InvalidValue,
    Sealed,
)
from dockwork.core.schema import Signature
from dockwork.core.sealed import KeyRing, NotOpened, bound_to, key_of, make_ring, parse_keys
from dockwork.core.sealing import PlaintextRefused, Sealing
from dockwork.keyring import KeySource
from dockwork.settings import Settings
from dockwork.store.memory import MemoryStore

ONE = "11" * 32
TWO = base64.b64encode(b"2" * 32).decode()
BOUND = bound_to("mail", "body")


class Inner(BaseModel):
    body: Encrypted[str]


class Card(BaseModel):
    number: str = Field(examples=["4111111111111111"])
    cvc: int = 123


def signature(fn: Any, name: str = "mail") -> Signature:
    return Signature(name, fn)


# --- the ring


@pytest.mark.covers("RT-172")
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        (f"k1:{ONE}", ["k1"]),
        (ONE, ["default"]),
        (TWO, ["default"]),
        (TWO.rstrip("="), ["default"]),
        (f"k2:{TWO},k1:{ONE}", ["k2", "k1"]),
        (f" k2:{TWO} \n# the old one, until May\n k_1-x:{ONE.upper()}\n", ["k2", "k_1-x"]),
        (f"{'i' * 16}:{base64.urlsafe_b64encode(bytes([251] * 32)).decode()}", ["i" * 16]),
    ],
)
def test_a_ring_is_read_in_each_form_and_its_first_key_seals(text: str, ids: list[str]) -> None:
    ring = make_ring(text, "x")

    assert list(ring.ids) == ids
    assert ring.current == ids[0]
    assert key_of(ring.seal(b"1", BOUND)) == ids[0]


@pytest.mark.covers("RT-172", "RT-176")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected at least one key, got none"),
        ("# only words", "expected at least one key, got none"),
        ("k1:abc", "key 1: expected 32 bytes as 64 hexadecimal digits or in base64, got 3 characters"),
        (f"k1:{ONE},k2:{ONE}0", "key 2: expected 32 bytes"),
        (f"K1:{ONE}", "key 1: expected an id of 1 to 16 characters of a-z 0-9 _ -, got another"),
        (f"{'i' * 17}:{ONE}", "got another"),
        (f"{ONE}:k1", "got another"),
        (f"k1:{ONE},k1:{TWO}", "expected an id that no other key has, got k1 again"),
        (f"{ONE},{TWO}", "got default again"),
    ],
)
def test_a_bad_ring_is_refused_with_its_place_and_no_key_is_quoted(text: str, said: str) -> None:
    with pytest.raises(EncryptionError) as caught:
        parse_keys(text, "DOCKWORK_PAYLOAD_KEYS")

    assert said in str(caught.value)
    assert str(caught.value).startswith("DOCKWORK_PAYLOAD_KEYS: ")
    assert ONE not in str(caught.value)
    assert TWO not in str(caught.value)


@pytest.mark.covers("RT-170", "RT-172")
def test_a_value_carries_its_version_and_key_id_and_a_nonce_of_its_own() -> None:
    ring = KeyRing({"k1": b"1" * 32})

    first, second = ring.seal(b'"hi"', BOUND), ring.seal(b'"hi"', BOUND)

    version, key, data = first.split(":")
    assert (version, key) == ("dwe1", "k1")
    assert len(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4))) == 12 + 4 + 16
    assert first != second
    assert ring.open(first, BOUND) == ring.open(second, BOUND) == b'"hi"'
    assert repr(ring) == "KeyRing(k1)"


@pytest.mark.covers("RT-174")
def test_what_was_moved_altered_or_sealed_by_a_stranger_is_not_opened() -> None:
    ring = make_ring(f"k1:{ONE}", "x")
    text = ring.seal(b'"topsecret"', BOUND)
    last = "A" if text[-1] != "A" else "B"
    altered = [
        text[:-1] + last,
        text[:20] + ("A" if text[20] != "A" else "B") + text[21:],
        text[:30],
        "dwe1:k1:AAAA",
    ]

    for wrong in [*altered, text.replace("dwe1:", "dwe2:"), text + "!"]:
        with pytest.raises(NotOpened) as caught:
            ring.open(wrong, BOUND)
        assert "topsecret" not in str(caught.value)
    for elsewhere in (bound_to("mail", "subject"), bound_to("post", "body"), bound_to("mail", "@result")):
        with pytest.raises(NotOpened, match="belongs to another field or job type"):
            ring.open(text, elsewhere)
    with pytest.raises(NotOpened, match="key k1 is not in the ring"):
        make_ring(f"k2:{ONE}", "x").open(text, BOUND)
    with pytest.raises(NotOpened, match="altered"):
        make_ring(f"k1:{TWO}", "x").open(text, BOUND)


@given(st.binary(max_size=200), st.text(max_size=20), st.text(max_size=20))
def test_any_value_comes_back_under_its_own_names_only(value: bytes, job_type: str, field: str) -> None:
    ring = KeyRing({"k1": b"1" * 32})
    text = ring.seal(value, BOUND)

    assert ring.open(text, BOUND) == value
    other = bound_to(job_type, field)
    if other != BOUND:
        with pytest.raises(NotOpened):
            ring.open(text, other)


@pytest.mark.covers("RT-172")
def test_keys_come_from_the_environment_before_code_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"file:{ONE}")
    said = Encryption(keys=f"code:{ONE}", file=file)

    def current(said: Encryption, **environ: str) -> str:
        settings = Settings.from_environ({f"DOCKWORK_{name}": text for name, text in environ.items()})
        return KeySource(said, lambda: settings).ring().current

    assert current(said) == "code"
    assert current(Encryption(file=file)) == "file"
    assert current(said, PAYLOAD_KEYS_FILE=str(file)) == "file"
    assert current(said, PAYLOAD_KEY=ONE, PAYLOAD_KEYS_FILE=str(file)) == "default"
    assert current(said, PAYLOAD_KEYS=f"ring:{ONE}", PAYLOAD_KEY=TWO) == "ring"


@pytest.mark.covers("RT-172", "RT-176")
def test_a_changed_file_counts_at_once_and_a_bad_one_leaves_no_ring(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    source = KeySource(Encryption(file=file), Settings)
    with pytest.raises(EncryptionError, match=r"key file .*keys: it cannot be read: FileNotFoundError"):
        source.ring()

    file.write_text(f"k1:{ONE}")
    first = source.ring()
    assert source.ring() is first
    file.write_text(f"k2:{TWO}\nk1:{ONE}\n")
    assert source.ring().ids == ("k2", "k1")
    file.write_text("k3:zzz")
    with pytest.raises(EncryptionError, match="key 1: expected 32 bytes"):
        source.ring()
    file.unlink()
    with pytest.raises(EncryptionError, match="FileNotFoundError"):
        source.ring()


@pytest.mark.covers("RT-172", "RT-176")
def test_keys_are_in_no_repr_and_no_settings_text() -> None:
    settings = Settings.from_environ({"DOCKWORK_PAYLOAD_KEYS": f"k1:{ONE}", "DOCKWORK_PAYLOAD_KEY": TWO})
    said = Encryption(keys=ONE, digest_key=b"d" * 16)

    shown = repr(settings) + repr(said) + str(settings) + repr(App("shop", encryption=said).key_source)
    assert ONE not in shown
    assert TWO not in shown
    assert "dddd" not in shown
    with pytest.raises(
        InvalidValue, match=r"encryption\.digest_key: expected at least 16 bytes, got '5 bytes'"
    ):
        Encryption(digest_key=b"short")


# --- the annotation and the schema


@pytest.mark.covers("RT-171", "RT-175")
def test_the_annotation_is_the_plain_type_with_a_mark() -> None:
    assert Encrypted[str] == Annotated[str, Sealed()]
    assert Encrypted[str, "body"] == Annotated[str, Sealed("body")]
    assert Encrypted[str, Literal["body"]] == Annotated[str, Sealed("body")]
    for wrong in ("@body", "a\nb", "x" * 65):
        with pytest.raises(InvalidValue, match="Encrypted: expected a name of at most 64 bytes"):
            Encrypted[str, wrong]
    with pytest.raises(InvalidValue, match="Encrypted: expected a type, and a name"):
        Encrypted[str, "a", "b"]


@pytest.mark.covers("RT-170")
def test_the_schema_shows_the_plain_type_marked_and_never_a_value() -> None:
    def send(
        to: str, body: Encrypted[str] = "defaultsecret", card: Encrypted[Card | None, Literal["pay"]] = None
    ) -> None: ...

    shown = signature(send).json_schema

    assert shown["properties"]["body"] == {"title": "Body", "type": "string", "x-dockwork-sealed": True}
    assert shown["properties"]["pay"]["x-dockwork-sealed"] is True
    assert "x-dockwork-sealed" not in shown["properties"]["to"]
    assert shown["required"] == ["to"]
    assert "defaultsecret" not in json.dumps(shown)

    def plain(to: str, body: str = "defaultsecret", card: Card | None = None) -> None: ...

    assert signature(plain).schema_hash != signature(send).schema_hash


@pytest.mark.covers("RT-170")
def test_a_mark_inside_of_a_type_is_refused() -> None:
    def listed(bodies: list[Encrypted[str]]) -> None: ...
    def optional(body: Encrypted[str] | None) -> None: ...
    def modelled(inner: Inner) -> None: ...
    def returned() -> list[Encrypted[str]]: ...

    for fn in (listed, optional, modelled, returned):
        with pytest.raises(InvalidValue, match="expected Encrypted around the whole type"):
            signature(fn)

    def twice(body: Encrypted[str, Literal["text"]], text: str) -> None: ...

    with pytest.raises(InvalidValue, match="expected a name of its own for each argument"):
        signature(twice)


@pytest.mark.covers("RT-178")
def test_no_error_of_a_type_with_sealed_values_quotes_an_argument() -> None:
    def send(to: str, body: Encrypted[dict[str, int]], note: Literal["a", "b"] = "a") -> None: ...

    sign = signature(send)
    for wrong in (
        {"to": "x", "body": {"4111secret": "4222secret"}},
        {"to": ["4333secret"], "body": {}},
        {"to": "x", "body": {}, "note": "4444secret"},
        {"to": "x", "body": {"4111secret": {"deep": object()}}},
        {"to": "x", "body": object()},
        {},
    ):
        with pytest.raises(InvalidArgs) as caught:
            sign.dump(wrong)
        assert "secret" not in str(caught.value)
        assert caught.value.path in {"to", "body", "note"}
    with pytest.raises(
        InvalidArgs, match="argument boddy: expected one of to, body, note, got an unknown name"
    ):
        sign.dump({"to": "x", "boddy": {}})


# --- arguments


@pytest.mark.covers("RT-170", "RT-175")
def test_arguments_are_sealed_field_by_field_under_their_stored_names() -> None:
    ring = make_ring(f"k1:{ONE}", "x")
    sealing = Sealing("mail", {"text": "body"}, required=["text"])
    plain = '{"to":"ann","text":["é😀\\u0000",9223372036854775808,{},[],null]}'.encode()

    stored = json.loads(sealing.seal_args(plain, ring))

    assert list(stored) == ["to", "body"]
    assert stored["to"] == "ann"
    assert key_of(stored["body"]) == "k1"
    opened = sealing.open_args(stored, ring, allow_plaintext=False)
    assert json.loads(opened.args) == json.loads(plain)
    assert (opened.keys, opened.plain) == ({"k1"}, False)


@pytest.mark.covers("RT-175", "RT-174")
def test_a_pinned_name_outlives_a_rename_and_an_unpinned_one_does_not() -> None:
    ring = make_ring(f"k1:{ONE}", "x")
    stored = json.loads(Sealing("mail", {"body": "body"}).seal_args(b'{"body":"hi"}', ring))

    pinned = Sealing("mail", {"text": "body"}, required=["text"])
    assert pinned.open_args(stored, ring, allow_plaintext=False).args == b'{"text":"hi"}'
    with pytest.raises(DecryptionError, match="mail: body cannot be opened: it was sealed for a field"):
        Sealing("mail", {"text": "text"}, required=["text"]).open_args(stored, ring, allow_plaintext=False)


@pytest.mark.covers("RT-177")
def test_plain_values_are_taken_or_refused_and_never_quoted() -> None:
    ring = make_ring(f"k1:{ONE}", "x")
    sealing = Sealing("mail", {"body": "body"}, required=["body"])

    taken = sealing.open_args({"body": "plain"}, ring, allow_plaintext=True)
    assert (taken.args, taken.plain) == (b'{"body":"plain"}', True)
    with pytest.raises(PlaintextRefused) as caught:
        sealing.open_args({"body": "plainsecret"}, ring, allow_plaintext=False)
    assert str(caught.value) == "mail: body cannot be opened: it is not sealed, and plain values are refused"


@pytest.mark.covers("RT-181")
def test_a_digest_sees_of_sealed_values_nothing_or_their_hmac() -> None:
    sealing = Sealing("mail", {"body": "body"}, required=["body"])
    one, other = b'{"to":"ann","body":{"a":1,"b":2}}', b'{"to":"ann","body":{"b":2,"a":1}}'
    third = b'{"to":"ann","body":{"a":1,"b":3}}'

    assert sealing.digestible(one, None) == sealing.digestible(third, None) == b'{"to":"ann"}'
    key = b"k" * 16
    assert sealing.digestible(one, key) == sealing.digestible(other, key) != sealing.digestible(third, key)
    assert sealing.digestible(one, key) != sealing.digestible(one, b"l" * 16)
    assert b'"a"' not in sealing.digestible(one, key)


async def test_run_here_and_now_needs_no_key() -> None:
    app = App("shop", store=MemoryStore())

    @app.job()
    async def shout(body: Encrypted[str]) -> Encrypted[str]:
        return body.upper()

    assert await shout.run("hi") == "HI"


@pytest.mark.covers("RT-171")
def test_an_app_without_sealed_values_imports_no_cipher_and_nothing_that_seals() -> None:
    script = """
import asyncio, sys
from dockwork import App, Encrypted
from dockwork.store.memory import MemoryStore

app = App("shop", store=MemoryStore())

@app.job(queue="mail")
async def send(to: str, n: int = 0) -> str:
    if n:
        raise ValueError(to)
    return to

async def main():
    worker = app.worker(queues={"mail": 1}, trap_signals=False)
    running = asyncio.create_task(worker.run())
    job = await send.enqueue("ann")
    assert await job.result(timeout=10) == "ann"
    await send.options(retries=0).enqueue("ann", 1)
    await worker.shutdown()
    await running

asyncio.run(main())
paid = ("cryptography.hazmat.primitives.ciphers.aead", "dockwork.worker.guards", "dockwork.core.scrub")
print([name for name in paid if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n", done.stderr


@pytest.mark.covers("RT-171")
def test_without_the_package_the_message_names_the_extra() -> None:
    script = f"""
import sys
sys.modules["cryptography"] = None
from dockwork.core.sealed import make_ring
try:
    make_ring("{ONE}", "x")
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    expected = "EncryptionError sealed values need the package cryptography: install dockwork[encryption]\n"
    assert done.stdout == expected, done.stderr
