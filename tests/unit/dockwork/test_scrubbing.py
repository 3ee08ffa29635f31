"""Scrubbing: what a run may say of a sealed value is nothing, in whatever form it says it."""

from __future__ import annotations

import json
import traceback
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr, TypeAdapter, ValidationError

from dockwork.core.scrub import NOT_SCRUBBABLE, REDACTED, Scrubber

SECRET = "5up3r-s3cret"


def scrub(text: str, *values: Any) -> str:
    return Scrubber(lambda: values).text(text)


class Card(BaseModel):
    number: str
    owner: str
    code: SecretStr = SecretStr("code-9876")


@dataclass
class Login:
    user: str
    password: str


class Level(Enum):
    TOP = "top-level-word"


@pytest.mark.covers("RT-179", "FM-62")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        (SECRET, f"no such user {SECRET}!"),
        (SECRET, repr(KeyError(SECRET))),
        ('with "quotes" and\nlines', repr('with "quotes" and\nlines')),
        ('with "quotes" and\nlines', json.dumps({"x": 'with "quotes" and\nlines'})),
        ("grüße an 😀 alle", json.dumps("grüße an 😀 alle")),
        ("grüße an 😀 alle", ascii("grüße an 😀 alle")),
        ("a b/c d&e", "https://x/?q=a%20b/c%20d%26e and q=a+b%2Fc+d%26e"),
        (
            SECRET.encode(),
            f"{SECRET.encode()!r} {SECRET.encode().hex()} {b64encode(SECRET.encode()).decode()}",
        ),
        (4111111111111111, "card 4111111111111111 refused"),
        (123456.75, "amount 123456.75"),
        (["abcdef", {"key-name": "value-text"}], "abcdef key-name value-text"),
        ([1, 2, "wxyz"], 'got [1, 2, \'wxyz\'] and [1,2,"wxyz"] and [1, 2, "wxyz"]'),
        (Card(number="4000111122223333", owner="Ann Miller"), "4000111122223333 of Ann Miller, code-9876"),
        (
            Card(number="4000111122223333", owner="Ann Miller"),
            str(Card(number="4000111122223333", owner="Ann Miller")),
        ),
        (Login("annmiller", "hunter2-hunter2"), repr(Login("annmiller", "hunter2-hunter2"))),
        (datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC), "2031-02-03T04:05:06Z 2031-02-03 04:05:06+00:00"),
        (UUID("12345678123456781234567812345678"), "12345678-1234-5678-1234-567812345678"),
        (Decimal("98765.4321"), "98765.4321 Decimal('98765.4321')"),
        (Level.TOP, "top-level-word"),
        ({"abcd", "efgh"}, "abcd efgh"),
        ("first line of it\nsecond line of it", "  | first line of it\n  | second line of it"),
    ],
)
def test_a_value_its_forms_and_its_parts_are_taken_out(value: Any, said: str) -> None:
    clean = scrub(f"before {said} after", value)

    assert clean.startswith("before ")
    assert clean.endswith(" after")
    assert REDACTED in clean
    for part in ("5up3r", "quotes", "grüße", "gr\\u00fc", "b/c", "4111", "123456", "abcdef", "value-text", "wxyz",
                 "4000111", "Ann Miller", "code-9876", "hunter2", "2031-02-03", "12345678-1234", "98765.4321",
                 "top-level", "efgh", "first line", "second line"):  # fmt: skip
        assert part not in clean.replace("no such user", "")


@pytest.mark.covers("RT-179")
@pytest.mark.parametrize(
    "value", ["abc", "", 12345, -99999, 1.25, True, False, None, [], {}, [1, 2], b"abc", ["ab", 7]]
)
def test_what_is_too_short_to_be_a_secret_stays(value: Any) -> None:
    said = f"abc 12345 -99999 1.25 True False None [] {{}} [1, 2] {value!r}"

    assert scrub(said, value) == said


@pytest.mark.covers("RT-179")
def test_causes_contexts_notes_and_groups_are_scrubbed_with_the_trace() -> None:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            error.add_note(f"while sending {SECRET}")
            raise ExceptionGroup("some", [ValueError(f"bad {SECRET}"), TypeError(SECRET)]) from error
    except ExceptionGroup as error:
        trace = "".join(traceback.format_exception(error))
    assert trace.count(SECRET) >= 4

    clean = scrub(trace, SECRET)

    assert SECRET not in clean
    assert "ValueError: bad [REDACTED]" in clean
    assert "test_scrubbing.py" in clean


@pytest.mark.covers("RT-179")
def test_the_half_of_a_value_that_pydantic_quotes_goes_too() -> None:
    long = "x".join(f"{n:03}" for n in range(100))
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python(long)
    assert long[:20] in str(caught.value)

    clean = scrub(str(caught.value), long)

    assert long[:20] not in clean
    assert long[-20:] not in clean
    assert "input_value=[REDACTED], input_type=str" in clean


@pytest.mark.covers("RT-179")
def test_json_stays_json_and_keeps_what_is_no_secret() -> None:
    scrubber = Scrubber(lambda: [SECRET, 4111111111111111])
    value = {"done": 0.5, "n": 7, "last": f"to {SECRET}", SECRET: [4111111111111111, True, None, "ok"]}

    clean = json.loads(scrubber.json(json.dumps(value).encode()))

    assert clean == {"done": 0.5, "n": 7, "last": f"to {REDACTED}", REDACTED: [REDACTED, True, None, "ok"]}
    assert json.loads(scrubber.json(b"{broken")) == NOT_SCRUBBABLE


@pytest.mark.covers("RT-179")
def test_scrubbing_never_raises_and_then_shows_nothing() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    def failing() -> Any:
        raise RuntimeError(SECRET)

    nested: Any = []
    for _ in range(200):
        nested = [nested]

    assert scrub(SECRET, Broken()) == NOT_SCRUBBABLE
    assert scrub(SECRET, nested) == NOT_SCRUBBABLE
    assert scrub(SECRET, [f"part-{n}" for n in range(6_000)]) == NOT_SCRUBBABLE
    assert Scrubber(failing).text(SECRET) == NOT_SCRUBBABLE
    assert Scrubber(failing).json(b'"x"') == json.dumps(NOT_SCRUBBABLE).encode()


@pytest.mark.covers("RT-179")
def test_a_long_text_is_cut_in_its_middle_before_it_is_scrubbed() -> None:
    text = f"{SECRET} " + "x" * 300_000 + f" {SECRET}"

    clean = scrub(text, SECRET)

    assert SECRET not in clean
    assert "... [cut]" in clean
    assert len(clean) < 140_000


@pytest.mark.covers("RT-179")
@given(st.text(alphabet=st.characters(categories=["Lu", "Ll", "Nd", "Po", "Zs"]), min_size=6, max_size=30))
def test_no_form_of_a_value_comes_out_of_a_text(value: str) -> None:
    # Between signs that no value here has, so that only the value itself can spell it.
    said = "\x02".join((value, repr(value), json.dumps(value), ascii(value)))

    clean = scrub(said, value).replace(REDACTED, "")

    assert value not in clean
    assert set(clean) <= set("\x02'\"")
