from __future__ import annotations

import hashlib
from typing import Any

import pytest

from ledger.errors import InvalidDocumentError
from ledger.storage.canonical import canonical_json, digest_of, sha256_hex


def test_the_example_of_the_standard():
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000f\u000aA'\u0042\u0022\u005c\\\"/",
        "literals": [None, True, False],
    }
    expected = (
        b'{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        b'"string":"\xe2\x82\xac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )
    assert canonical_json(value) == expected


def test_keys_are_sorted_by_utf_16():
    assert canonical_json({"\ufb33": 1, "\U0001f600": 2}) == '{"\U0001f600":2,"\ufb33":1}'.encode()


def test_zero_has_no_sign_and_whole_floats_no_point():
    assert canonical_json([-0.0, 1.0, 1e20]) == b"[0,1,100000000000000000000]"


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), 2**53, {1: 2}, {"\ud800": 1}, "\ud800", {1, 2}, b"bytes"], ids=repr
)
def test_what_json_cannot_hold_is_refused(value: Any):
    with pytest.raises(InvalidDocumentError, match="cannot be written as JSON"):
        canonical_json(value)


def test_endless_nesting_is_refused():
    value: list[Any] = []
    value.append(value)
    with pytest.raises(InvalidDocumentError, match="nested too deeply"):
        canonical_json(value)


def test_digests_are_of_the_canonical_form():
    assert digest_of({"b": 1, "a": 2}) == hashlib.sha256(b'{"a":2,"b":1}').hexdigest()
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
