from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InvalidDocumentError
from ledger.storage.canonical import canonical_json
from ledger.storage.plain_json import NotPlainError, _is_key, parse_plain
from ledger.storage.strict_json import _Parser, parse_json

RESERVED = {"__proto__", "constructor", "prototype"}
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
KEYS = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=8).filter(
    lambda key: key not in RESERVED
)
NUMBERS = st.integers(1 - 2**53, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_reading_the_canonical_form_gives_the_value_back(value: object):
    assert parse_json(canonical_json(value)) == value


@given(VALUES)
def test_the_canonical_form_is_a_fixed_point(value: object):
    once = canonical_json(value)
    assert canonical_json(parse_json(once)) == once


@given(st.dictionaries(KEYS, VALUES, min_size=2, max_size=5))
def test_the_canonical_form_does_not_depend_on_the_order_of_keys(value: dict[str, object]):
    assert canonical_json(dict(reversed(value.items()))) == canonical_json(value)


@given(VALUES, st.data())
def test_a_canonical_object_cut_anywhere_is_refused(value: object, data: st.DataObject):
    whole = canonical_json({"a": value})
    length = data.draw(st.integers(0, len(whole) - 1))
    try:
        parse_json(whole[:length])
    except InvalidDocumentError:
        return
    raise AssertionError(whole[:length])


@given(st.binary(max_size=60) | st.text('{}[]",:0123456789.eE+-truefalsn\\u \n', max_size=60).map(str.encode))
def test_whatever_is_accepted_means_the_same_to_the_standard_library(data: bytes):
    try:
        value = parse_json(data)
    except InvalidDocumentError:
        return
    assert json.loads(data) == value


ODD = st.sampled_from(
    [
        "-0",
        "0.0",
        "1e400",
        "1e-400",
        "1e-320",
        "1e21",
        "9007199254740993",
        "NaN",
        '"\\u0041"',
        '{"a":1,"a":2}',
        '{"prototype":1}',
        '{"é":1}',
        "[" * 40 + "]" * 40,
        '"a\x01"',
        "\r1",
        "01",
        "1.",
        "-",
        '"[["',
        "9" * 5000,
    ]
)


@given(VALUES, ODD, st.integers(0, 3))
def test_the_quick_way_and_the_strict_one_agree_on_everything(value: object, odd: str, indent: int):
    text = json.dumps({"a": value, "b": "odd"}, ensure_ascii=False, indent=indent or None)
    for data in (text.encode(), text.replace('"odd"', odd).encode()):
        try:
            quick = parse_plain(data)
        except NotPlainError:
            continue
        strict = _Parser(data.decode(), None).parse_document()
        assert quick == strict
        assert repr(quick) == repr(strict)


def test_a_usual_document_goes_the_quick_way():
    data = canonical_json(
        {"name": "naïve — 名前", "tokens": 2**53 - 1, "loss": [0.125, -1e-9], "is": {"of": None}}
    )
    assert parse_plain(data) == parse_json(data)


def test_a_key_that_is_too_long_is_not_remembered():
    before = _is_key.cache_info().currsize
    for number in range(5):
        with pytest.raises(InvalidDocumentError, match="is not allowed"):
            parse_json(b'{"%s":1}' % (str(number) * 2_000).encode())
    assert _is_key.cache_info().currsize == before
