from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from ledger.errors import InvalidDocumentError
from ledger.storage.strict_json import MAX_DEPTH, MAX_DOCUMENT_BYTES, MAX_KEYS, MAX_STRING_BYTES, parse_json

REFUSED = {
    "J01 nothing": (b"", "empty"),
    "J02 white space": (b" \n \n", "only white space"),
    "J04 cut inside a text": (b'{"a":"bc', "(byte 8), at `a`: the document ends inside a text"),
    "J05 cut after a value": (b'{"a":1', "(byte 6): the document ends too early"),
    "J06 comma at an object's end": (b'{"a":1,}', "(byte 6): a comma stands before `}`"),
    "J06 comma at an array's end": (b"[1,]", "(byte 2): a comma stands before `]`"),
    "J08 two documents": (b"{}{}", "(byte 2): more text follows"),
    "J09 block comment": (b"/* a */{}", "looks like a comment"),
    "J09 line comment": (b'{"a":1} // b', "more text follows"),
    "J09 comment between": (b'{"a": // b\n1}', "looks like a comment"),
    "J09 hash comment": (b"# a\n{}", "looks like a comment"),
    "J10 single quotes": (b"{'a': 1}", "Python repr"),
    "J10 single-quoted value": (b"{\"a\": 'b'}", "Python repr"),
    "J10 True": (b'{"a": True}', "Python repr"),
    "J12 NaN": (b'{"a":NaN}', 'the text "NaN"'),
    "J13 Infinity": (b"[Infinity]", 'the text "Infinity"'),
    "J13 -Infinity": (b"[-Infinity]", 'the text "-Infinity"'),
    "J14 overflow": (b'{"a":1e400}', "1e400 is out of range"),
    "J14 underflow": (b'{"a":1e-400}', "1e-400 becomes 0"),
    "J14 negative underflow": (b"[-0.001e-400]", "-0.001e-400 becomes 0"),
    "J16 a long integer": (b'{"a":' + b"9" * 5000 + b"}", "5,000 characters"),
    "J17 beyond 2^53": (
        b'{"a":[0,9007199254740993]}',
        "at `a[1]`: the integer 9007199254740993 is out of range",
    ),
    "J17 below -2^53": (b"-9007199254740993", "out of range"),
    "J18 -0": (b"[-0]", "-0 has a sign"),
    "J18 -0.0": (b"[-0.0]", "-0.0 has a sign"),
    "J18 -0e5": (b"[-0e5]", "-0e5 has a sign"),
    "J20 a key twice": (b'{"a":{"b":1,"b":2}}', "(byte 12), at `a.b`: the key appears twice"),
    "J21 a key twice in two spellings": (b'{"a":1,"\\u0061":2}', "at `a`: the key appears twice"),
    "J22 key in NFC": ('{"é":1}'.encode(), "the key '\\xe9' is not allowed"),
    "J22 key in NFD": ('{"e\u0301":1}'.encode(), "is not allowed"),
    "J24 BOM": (b"\xef\xbb\xbf{}", "byte order mark"),
    "J24 UTF-16LE with BOM": ("{}".encode("utf-16"), "UTF-16"),
    "J24 UTF-16LE": ('{"a":1}'.encode("utf-16-le"), "UTF-16"),
    "J24 UTF-16BE": ('{"a":1}'.encode("utf-16-be"), "UTF-16"),
    "J24 UTF-32": ('{"a":1}'.encode("utf-32"), "UTF-32"),
    "J25 byte FF": (b'{"a":"\xff"}', "line 1 (byte 6): byte FF is no UTF-8"),
    "J26 overlong": (b'{"a":"\xc0\xaf"}', "(byte 6): byte C0 is no UTF-8"),
    "J28 half a pair": (b'{"a":"\\ud800"}', "half of a surrogate pair"),
    "J28 the other half": (b'{"a":"\\udc00"}', "half of a surrogate pair"),
    "J28 two first halves": (b'{"a":"\\ud800\\ud800"}', "half of a surrogate pair"),
    "J28 raw": (b'{"a":"\xed\xa0\x80"}', "is no UTF-8"),
    "J29 control character": (b'{"a":"b\x01"}', "control character '\\x01'"),
    "J29 newline in a text": (b'{"a":"b\n"}', "control character '\\n'"),
    "J30 NUL": (b'{"a":"\\u0000"}', "\\u0000 is not allowed"),
    "J32 too large": (b'"' + b"a" * MAX_DOCUMENT_BYTES, "8,388,609 bytes; expected at most 8,388,608"),
    "J33 keys": (
        json.dumps({str(i): i for i in range(100_000)}).encode(),
        f"too many keys; expected at most {MAX_KEYS:,}",
    ),
    "J33 depth": (b"[" * 100_000, f"at most {MAX_DEPTH} levels"),
    "J42 CRLF": (b'{"a":1,\r\n"b":2}\r\n', "autocrlf"),
    "J46 __proto__": (b'{"__proto__":1}', "the key '__proto__' is not allowed"),
    "J46 constructor": (b'{"a":{"constructor":1}}', "the key 'constructor' is not allowed"),
    "J46 empty key": (b'{"":1}', "the key '' is not allowed"),
    "J50 gzip": (gzip.compress(b"{}"), "gzip"),
    "J50 zip": (b"PK\x03\x04....", "zip"),
    "J50 HTML": (b"<!DOCTYPE html><html>", "HTML"),
    "J50 LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab", "git lfs pull"),
    "J50 conflict at the start": (b"<<<<<<< HEAD\n{}", "merge-conflict"),
    "J50 conflict inside": (b'{"a":1,\n<<<<<<< HEAD\n"b":2}', "merge-conflict"),
    "J52 long text": (
        b'"' + b"a" * (MAX_STRING_BYTES + 1) + b'"',
        "the text is too long; expected at most 262,144",
    ),
    "J52 long text in bytes": (
        b'"' + "é".encode() * (MAX_STRING_BYTES // 2 + 1) + b'"',
        "the text is too long",
    ),
    "a leading zero": (b"[01]", "no number of JSON"),
    "a bare point": (b"[1.]", "no number of JSON"),
    "a plus sign": (b"[+1]", "'+' stands here; expected a value"),
    "full-width digits": ("[１]".encode(), "stands here; expected a value"),
    "an underscore in a number": (b"[1_000]", "'_' stands here"),
    "an unknown escape": (b'"\\x41"', "no escape of JSON"),
    "a broken escape": (b'"\\u00g0"', "no escape of JSON"),
    "a missing colon": (b'{"a" 1}', "expected `:` and a value"),
    "a missing comma": (b'{"a":1 "b":2}', "expected `,` or `}`"),
    "a key without quotes": (b"{a:1}", "'a' stands here; expected a key in double quotes"),
    "a form feed": (b"[1,\x0c2]", "stands here; expected a value"),
    "a pickle": (b"\x80\x04\x95", "pickle"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_with_place_and_reason(name: str):
    data, fragment = REFUSED[name]
    with pytest.raises(InvalidDocumentError) as caught:
        parse_json(data, path=Path("run.json"))
    assert str(caught.value).startswith("run.json: ")
    assert fragment in str(caught.value)
    assert caught.value.exit_code == 1


ACCEPTED = {
    "J44 line separators": ('{"a":"b\u2028c\u0085d"}'.encode(), {"a": "b\u2028c\u0085d"}),
    "J45 escaped controls": (b'{"a":"\\u001b[31m\\u202e\\u0085"}', {"a": "\x1b[31m\u202e\x85"}),
    "a pair of surrogates": (b'"\\ud83d\\ude00"', "\U0001f600"),
    "every escape": (rb'"\"\\\/\b\f\n\r\t\u00e9"', '"\\/\b\f\n\r\t\u00e9'),
    "spaces": (b' {\n\t"a" : [ 1 , 2.5 ] }\n', {"a": [1, 2.5]}),
    "empty containers": (b'{"a":{},"b":[]}', {"a": {}, "b": []}),
    "the greatest integer": (b"[9007199254740991,-9007199254740991]", [2**53 - 1, 1 - 2**53]),
    "a large float as RFC 8785 writes it": (b"[100000000000000000000]", [1e20]),
    "literals": (b"[true,false,null]", [True, False, None]),
    "zero in other spellings": (b"[0.0,0e5]", [0.0, 0.0]),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepts(name: str):
    data, value = ACCEPTED[name]
    assert parse_json(data) == value


def test_a_whole_number_beyond_the_range_becomes_the_float_it_was():
    assert type(parse_json(b"100000000000000000000")) is float


def test_the_place_counts_lines_columns_and_bytes():
    with pytest.raises(InvalidDocumentError) as caught:
        parse_json('{"a":"é",\n "b": x}'.encode())
    assert caught.value.place == "line 2, column 7 (byte 17), at `b`"
