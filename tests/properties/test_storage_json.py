from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import InvalidDocumentError
from ledger.storage.canonical import canonical_json
from ledger.storage.strict_json import parse_json

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
