"""A handler's signature as a schema: binding, checks, what is stored, what comes back."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from dockwork.core.codec import Envelope, open_envelope, seal
from dockwork.core.jobs import Context
from dockwork.core.schema import Signature, dump_untyped
from dockwork.errors import InvalidArgs, InvalidValue, Undecodable


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"


class Order(BaseModel):
    id: int
    lines: list[Decimal]


def mail(to: list[str], body: str, copies: int = 1, *, urgent: bool = False) -> int:
    return len(to) * copies


def signature(fn: Any, name: str = "mail.send") -> Signature:
    return Signature(name, fn)


@pytest.mark.covers("RT-002")
def test_arguments_are_stored_as_an_object_by_parameter_name() -> None:
    mails = signature(mail)

    stored = mails.dump(mails.bind((["a@b.c"],), {"body": "hi"}))

    assert json.loads(stored) == {"to": ["a@b.c"], "body": "hi"}
    assert mails.load(stored) == {"to": ["a@b.c"], "body": "hi"}


@pytest.mark.covers("RT-002")
@pytest.mark.parametrize(
    ("args", "kwargs", "path", "words"),
    [
        ((), {"body": "hi"}, "to", "expected a value, got nothing"),
        ((["a", 7],), {"body": "hi"}, "to.1", "expected a valid string, got int"),
        ((["a"], "hi"), {"copies": "many"}, "copies", "expected a valid integer"),
        ((["a"], "hi", 1, True), {}, "3", "expected at most 3 positional arguments, got 4"),
        ((["a"], "hi"), {"body": "again"}, "body", "expected one value, got two"),
        ((), {"too": ["a"]}, "too", "expected one of to, body, copies, urgent, got an unknown name"),
        ((["a"], "hi"), {"cc": "x"}, "cc", "expected one of to, body, copies, urgent, got an unknown name"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_their_path(
    args: tuple[Any, ...], kwargs: dict[str, Any], path: str, words: str
) -> None:
    mails = signature(mail)

    with pytest.raises(InvalidArgs) as refused:
        mails.dump(mails.bind(args, kwargs))

    assert refused.value.path == path
    assert f"mail.send: argument {path}: " in str(refused.value)
    assert words in str(refused.value)


@pytest.mark.covers("RT-002")
def test_stored_arguments_are_checked_again_before_a_run() -> None:
    with pytest.raises(InvalidArgs, match="argument to: expected a valid array, got str"):
        signature(mail).load(b'{"to":"a@b.c","body":"hi"}')


def test_no_value_appears_in_a_refusal() -> None:
    mails = signature(mail)

    with pytest.raises(InvalidArgs) as refused:
        mails.dump({"to": ["fine"], "body": ["the secret words"]})

    assert "secret" not in str(refused.value)


@pytest.mark.covers("RT-003")
def test_a_context_parameter_may_stand_anywhere_and_no_schema_shows_it() -> None:
    def first(ctx: Context, x: int) -> None: ...
    def last(x: int, ctx: Context) -> None: ...
    def by_name(x: int, *, work: Context) -> None: ...
    def maybe(x: int, ctx: Context | None = None) -> None: ...
    def without(x: int) -> None: ...

    def plain(fn: Any) -> tuple[str | None, dict[str, Any], str]:
        found = signature(fn)
        schema = {k: v for k, v in found.json_schema.items() if k != "title"}
        return found.context_parameter, schema, found.schema_hash

    schemas = {fn.__name__: plain(fn) for fn in (first, last, by_name, maybe, without)}

    assert {name: found[0] for name, found in schemas.items()} == {
        "first": "ctx",
        "last": "ctx",
        "by_name": "work",
        "maybe": "ctx",
        "without": None,
    }
    assert {str(found[1:]) for found in schemas.values()} == {str(schemas["without"][1:])}


def test_two_context_parameters_are_refused() -> None:
    def twice(a: Context, b: Context) -> None: ...

    with pytest.raises(InvalidValue, match="expected one parameter annotated Context"):
        signature(twice)


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (lambda *each: None, r"got '\*each'"),
        (lambda **named: None, r"got '\*\*named'"),
        (lambda x, /: None, "got 'positional-only x'"),
    ],
)
def test_parameters_that_have_no_name_to_bind_by_are_refused(fn: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        signature(fn)


def test_a_type_that_json_cannot_carry_is_refused_at_declaration() -> None:
    def handles(lock: memoryview) -> None: ...

    with pytest.raises(InvalidValue, match=r"job type mail\.send: expected parameters of types that JSON"):
        signature(handles)


def rich(
    order: Order,
    when: datetime,
    day: date,
    key: UUID,
    size: Size,
    mode: Literal["a", "b"],
    blob: bytes,
    ratio: float,
    few: Annotated[list[int], Field(max_length=3)],
    pair: tuple[int, str],
    anything: Any,
) -> Order:
    return order


def test_rich_types_come_back_as_they_went_in() -> None:
    given_values: dict[str, Any] = {
        "order": Order(id=2**63, lines=[Decimal("1.10"), Decimal("2")]),
        "when": datetime(2027, 1, 1, 9, 30, tzinfo=UTC),
        "day": date(2027, 1, 1),
        "key": UUID(int=7),
        "size": Size.LARGE,
        "mode": "b",
        "blob": b"\x00\xff\xfe",
        "ratio": math.inf,
        "few": [1, 2, 3],
        "pair": (1, "one"),
        "anything": {"deep": [None, True, "🙂\x00"]},
    }
    found = signature(rich)

    assert found.load(found.dump(given_values)) == given_values


def test_a_result_comes_back_as_the_return_type() -> None:
    found = signature(rich)
    order = Order(id=1, lines=[Decimal("3.5")])

    assert found.load_result(found.dump_result(order)) == order


def test_a_result_that_json_cannot_carry_is_named_by_type() -> None:
    def opaque(x: int) -> Any: ...

    with pytest.raises(
        InvalidValue, match=r"result of mail\.send: expected a value that JSON can carry, got 'object'"
    ):
        signature(opaque).dump_result(object())


def test_the_schema_shows_defaults_and_its_hash_changes_only_with_what_is_accepted() -> None:
    def before(x: int, y: str = "no") -> None:
        """One text."""

    def reworded(x: int, y: str = "no") -> str:
        """Another text, another return type."""
        return y

    def widened(x: int | None, y: str = "no") -> None: ...

    assert signature(before).json_schema["properties"]["y"]["default"] == "no"
    assert signature(before).schema_hash == signature(reworded).schema_hash
    assert signature(before).schema_hash != signature(widened).schema_hash
    assert len(signature(before).schema_hash) == 16


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=json_values)
def test_any_json_value_survives_the_envelope(value: Any) -> None:
    def handler(value: Any) -> None: ...

    found = signature(handler, "any")
    data = seal(Envelope(type="any", args=found.dump({"value": value}), schema=found.schema_hash))

    opened = found.open(data)

    assert opened.arguments == {"value": value}
    assert (opened.type, opened.schema, dict(opened.headers)) == ("any", found.schema_hash, {})


def test_the_envelope_is_compact_json_of_the_published_form() -> None:
    data = seal(
        Envelope(
            type="mail.send", args=b'{"to":[]}', headers={"trace": "é"}, schema="ab12", options={"retries": 0}
        )
    )

    assert data == (
        b'{"v":1,"type":"mail.send","args":{"to":[]},"headers":{"trace":"\\u00e9"},'
        b'"schema":"ab12","opts":{"retries":0}}'
    )
    assert open_envelope(data) == Envelope(
        type="mail.send", args=b'{"to":[]}', headers={"trace": "é"}, schema="ab12", options={"retries": 0}
    )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\x00", "not JSON in UTF-8"),
        (b"[]", "expected an object, got list"),
        (b'{"v":2}', "expected version 1, got 2"),
        (b'{"v":1,"type":"t","args":[],"headers":{},"schema":"","opts":{}}', "args: expected dict, got list"),
        (
            b'{"v":1,"type":"t","args":{},"headers":{"a":1},"schema":"","opts":{}}',
            "headers: expected strings",
        ),
        (b"[" * 100_000, "not JSON in UTF-8"),
    ],
)
def test_what_is_no_envelope_is_undecodable_and_not_quoted(data: bytes, words: str) -> None:
    with pytest.raises(Undecodable, match=words):
        signature(mail).open(data)


def test_arguments_of_another_schema_say_under_which_one_they_were_stored() -> None:
    data = seal(Envelope(type="mail.send", args=b'{"to":7}', schema="0123456789abcdef"))

    with pytest.raises(InvalidArgs) as refused:
        signature(mail).open(data)

    assert refused.value.stored_schema == "0123456789abcdef"


@pytest.mark.covers("RT-002")
def test_numbers_that_json_does_not_know_are_text_whether_the_type_is_known_or_not() -> None:
    def measure(value: float) -> None: ...

    arguments = {"value": math.inf}
    unknown = dump_untyped("measure", arguments)

    assert unknown == b'{"value":"Infinity"}'
    assert json.loads(unknown, parse_constant=pytest.fail) == {"value": "Infinity"}
    assert Signature("measure", measure).load(unknown) == arguments


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


UNREADABLE = [
    (10**4300, "numbers of at most 4,300 digits", "int"),
    (-(10**4300), "numbers of at most 4,300 digits", "int"),
    ({"deep": [10**4300]}, "numbers of at most 4,300 digits", "int"),
    (nested(200), "not nested so deeply", "list"),
    (nested(300), "not nested so deeply", "list"),
    ({"text": "\ud800"}, "text in UTF-8", "str"),
    ({"\ud800": 1}, "text in UTF-8", "dict"),
]


@pytest.mark.covers("RT-002", "RT-016")
@pytest.mark.parametrize(("value", "expected", "got"), UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_no_worker_could_read_is_refused_where_it_is_sent(value: Any, expected: str, got: str) -> None:
    def take(first: int, value: Any = None) -> None: ...

    typed = signature(take, "t")
    for send in (typed.dump, lambda arguments: dump_untyped("t", arguments)):
        with pytest.raises(InvalidArgs, match=expected) as refused:
            send({"first": 1, "value": value})
        assert refused.value.path.split(".")[0] == "value"
        assert got in str(refused.value)
        assert len(str(refused.value)) < 300


READABLE = [10**4300 - 1, 1 - 10**4300, nested(197), "[" * 500, "9" * 9000, "NaN", math.inf]


@pytest.mark.covers("RT-002")
@pytest.mark.parametrize("value", READABLE, ids=range(len(READABLE)))
def test_what_a_worker_can_just_read_is_sent(value: Any) -> None:
    def take(value: Any) -> None: ...

    typed = signature(take, "t")
    envelope = seal(Envelope(type="t", args=typed.dump({"value": value})))

    assert typed.open(envelope).arguments == {"value": "Infinity" if value == math.inf else value}
    dump_untyped("t", {"value": value})


@pytest.mark.covers("RT-002")
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_field_that_takes_no_text_is_sent_no_number_that_only_text_can_say(value: float) -> None:
    def take(share: Annotated[float, Field(strict=True)], note: str = "") -> None: ...

    with pytest.raises(InvalidArgs, match="share: expected a valid number"):
        signature(take).dump({"share": value})
    assert signature(take).dump({"share": 0.5, "note": "NaN"}) == b'{"share":0.5,"note":"NaN"}'


def test_a_result_that_nobody_could_read_is_refused() -> None:
    def count() -> Any: ...

    for value in (10**4300, nested(201)):
        with pytest.raises(InvalidValue, match="a value that JSON can carry"):
            signature(count).dump_result(value)
