"""One strict JSON reader in front of every document.

The usual readers accept duplicate keys, `NaN`, numbers that overflow, lone surrogates and integers that no other
program keeps. This one refuses them, in bounded time and memory, and names the place: line, column, byte and key.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import rfc8785

from ledger.errors import InvalidDocumentError
from ledger.records.fields import MAX_INTEGER
from ledger.storage.filesystem import StrPath
from ledger.storage.hints import describe_foreign_bytes
from ledger.storage.plain_json import KEY, MAX_KEY_LENGTH, RESERVED_KEYS, NotPlainError, parse_plain

__all__ = ["MAX_DEPTH", "MAX_DOCUMENT_BYTES", "MAX_KEYS", "MAX_STRING_BYTES", "parse_json"]

MAX_DOCUMENT_BYTES: Final = 8 << 20
"""The greatest size of a document in bytes."""

MAX_STRING_BYTES: Final = 256 << 10
"""The greatest length of a text in UTF-8 bytes."""

MAX_KEYS: Final = 65_536
"""The greatest number of keys in one object."""

MAX_DEPTH: Final = 64
"""The greatest number of objects and arrays inside each other."""

_MAX_NUMBER_LENGTH: Final = 400

_SPACE: Final = re.compile(r"[ \t\n]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NONZERO_DIGITS: Final = re.compile(r"-?[0.]*[1-9]")
_PLAIN_TEXT: Final = re.compile(r'[^"\\\x00-\x1f]*')
_HEX4: Final = re.compile(r"[0-9a-fA-F]{4}")
_WORD: Final = re.compile(r"[A-Za-z_]+")
_LITERALS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORD_HINTS: Final = {
    "NaN": 'a non-finite measurement is the text "NaN"',
    "Infinity": 'a non-finite measurement is the text "Infinity"',
    "True": "this looks like a Python repr: JSON says `true`",
    "False": "this looks like a Python repr: JSON says `false`",
    "None": "this looks like a Python repr: JSON says `null`",
}
_PYTHON_REPR: Final = "this looks like a Python repr: JSON has double quotes only"
_CRLF: Final = "the line ends were converted (git's autocrlf, an editor): restore the original"


def parse_json(data: bytes, *, path: StrPath | None = None, max_bytes: int = MAX_DOCUMENT_BYTES) -> Any:
    """Parse one JSON value that every reader understands alike.

    Objects become dicts, arrays lists; a whole number beyond ±(2^53 - 1) is accepted only in the spelling that
    RFC 8785 gives a float, and becomes that float.

    Raises:
        InvalidDocumentError: with the place and, where it is recognised, what the data looks like instead.
    """
    if len(data) > max_bytes:
        raise InvalidDocumentError(
            f"the document holds {len(data):,} bytes", path=path, expected=f"at most {max_bytes:,} bytes"
        )
    if not data.strip(b" \t\r\n"):
        what = "the file is empty" if not data else "the file holds only white space"
        raise InvalidDocumentError(
            what,
            path=path,
            expected="a JSON document",
            advice="a crash or a full disk may have left it: restore it",
        )
    try:
        return parse_plain(data)
    except NotPlainError:
        return _Parser(_decode(data, path), path).parse_document()


def _decode(data: bytes, path: StrPath | None) -> str:
    hint = describe_foreign_bytes(data)
    if hint is not None:
        raise InvalidDocumentError(
            "this is no JSON", path=path, place="line 1, column 1 (byte 0)", advice=hint
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidDocumentError(
            f"byte {data[error.start]:02X} is no UTF-8 here: {error.reason}",
            path=path,
            place=f"line {line} (byte {error.start})",
            expected="UTF-8",
        ) from error


class _Parser:
    """A recursive descent over one text; `_at` is the index of the next character, `_keys` the path to here."""

    def __init__(self, text: str, path: StrPath | None) -> None:
        self._text = text
        self._path = path
        self._at = 0
        self._keys: list[str | int] = []

    def parse_document(self) -> Any:
        self._skip_space()
        value = self._parse_value()
        self._skip_space()
        if self._at < len(self._text):
            raise self._error(
                "more text follows the end of the JSON value", expected="one document and nothing else"
            )
        return value

    def _parse_value(self) -> Any:
        start = self._peek()
        if start == '"':
            return self._parse_text()
        if start == "{":
            return self._parse_object()
        if start == "[":
            return self._parse_array()
        if start == "-" or "0" <= start <= "9":
            return self._parse_number()
        return self._parse_literal(start)

    def _parse_object(self) -> dict[str, Any]:
        self._enter()
        result: dict[str, Any] = {}
        if self._accept("}"):
            return result
        while True:
            key_at = self._at
            key = self._parse_key()
            self._keys.append(key)
            if key in result:
                raise self._error("the key appears twice in one object", at=key_at, expected="each key once")
            if len(result) >= MAX_KEYS:
                raise self._error(
                    "the object holds too many keys", at=key_at, expected=f"at most {MAX_KEYS:,}"
                )
            self._skip_space()
            if not self._accept(":"):
                raise self._unexpected("`:` and a value")
            result[key] = self._parse_value()
            self._keys.pop()
            self._skip_space()
            if self._accept("}"):
                return result
            self._next_item("}")

    def _parse_array(self) -> list[Any]:
        self._enter()
        result: list[Any] = []
        if self._accept("]"):
            return result
        while True:
            self._keys.append(len(result))
            result.append(self._parse_value())
            self._keys.pop()
            self._skip_space()
            if self._accept("]"):
                return result
            self._next_item("]")

    def _parse_key(self) -> str:
        at = self._at
        if self._peek() != '"':
            raise self._unexpected("a key in double quotes")
        key = self._parse_text()
        if not KEY.fullmatch(key) or key in RESERVED_KEYS:
            expected = (
                f"1 to {MAX_KEY_LENGTH:,} printable ASCII characters, and no name with a meaning to programs"
            )
            raise self._error(f"the key {key[:64]!a} is not allowed", at=at, expected=expected)
        return key

    def _parse_text(self) -> str:
        start = self._at
        self._at += 1
        parts: list[str] = []
        while True:
            plain = _PLAIN_TEXT.match(self._text, self._at)
            if plain is not None:
                parts.append(plain.group())
                self._at = plain.end()
            stop = self._text[self._at : self._at + 1]
            if stop == '"':
                break
            if stop == "\\":
                parts.append(self._parse_escape())
            elif not stop:
                raise self._error("the document ends inside a text", expected="a closing double quote")
            else:
                raise self._error(f"the control character {stop!a} stands in a text", expected="its escape")
        self._at += 1
        text = "".join(parts)
        if len(text) > MAX_STRING_BYTES or len(text.encode()) > MAX_STRING_BYTES:
            raise self._error(
                "the text is too long", at=start, expected=f"at most {MAX_STRING_BYTES:,} bytes"
            )
        return text

    def _parse_escape(self) -> str:
        at = self._at
        kind = self._text[at + 1 : at + 2]
        if kind in _ESCAPES:
            self._at += 2
            return _ESCAPES[kind]
        if kind != "u":
            raise self._error(
                "this is no escape of JSON", at=at, expected=r"one of \" \\ \/ \b \f \n \r \t \uXXXX"
            )
        code = self._parse_hex(at)
        if 0xD800 <= code <= 0xDBFF and self._text.startswith("\\u", self._at):
            low = self._parse_hex(self._at)
            if 0xDC00 <= low <= 0xDFFF:
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        if 0xD800 <= code <= 0xDFFF:
            raise self._error("half of a surrogate pair stands alone", at=at, expected="a Unicode character")
        if code == 0:
            raise self._error(r"\u0000 is not allowed: many programs end a text there", at=at)
        return chr(code)

    def _parse_hex(self, at: int) -> int:
        digits = _HEX4.match(self._text, at + 2)
        if digits is None:
            raise self._error("this is no escape of JSON", at=at, expected=r"\u and four hexadecimal digits")
        self._at = digits.end()
        return int(digits.group(), 16)

    def _parse_number(self) -> int | float:
        at = self._at
        match = _NUMBER.match(self._text, at)
        if match is None:
            if self._text.startswith("-Infinity", at):
                raise self._error(
                    "-Infinity is no JSON", advice='a non-finite measurement is the text "-Infinity"'
                )
            raise self._unexpected("a number")
        literal = match.group()
        self._at = match.end()
        if len(literal) > _MAX_NUMBER_LENGTH:
            raise self._error(
                f"the number has {len(literal):,} characters", at=at, expected="one that a double holds"
            )
        if self._text[self._at : self._at + 1].isalnum() or self._text[self._at : self._at + 1] == ".":
            raise self._error(
                "this is no number of JSON", at=at, expected="no leading zeros, digits around the point"
            )
        return self._integer(literal, at) if match.lastindex is None else self._float(literal, at)

    def _integer(self, literal: str, at: int) -> int | float:
        value = int(literal)
        if literal == "-0":
            raise self._error("-0 has a sign that zero does not keep", at=at, expected="0")
        if abs(value) <= MAX_INTEGER:
            return value
        if len(literal) <= 22 and rfc8785.dumps(float(value)).decode() == literal:
            return float(value)
        raise self._error(
            f"the integer {literal[:40]} is out of range", at=at, expected="at most 2^53 - 1 in size"
        )

    def _float(self, literal: str, at: int) -> float:
        value = float(literal)
        if math.isinf(value):
            raise self._error(
                f"the number {literal[:40]} is out of range", at=at, expected="one that a double holds"
            )
        if value == 0 and _NONZERO_DIGITS.match(literal):
            raise self._error(f"{literal[:40]} becomes 0", at=at, expected="a number that a double holds")
        if value == 0 and literal.startswith("-"):
            raise self._error(f"{literal[:40]} has a sign that zero does not keep", at=at, expected="0")
        return value

    def _parse_literal(self, start: str) -> bool | None:
        word = _WORD.match(self._text, self._at)
        if word is None:
            if start == "'":
                raise self._error("a single quote stands where a value belongs", advice=_PYTHON_REPR)
            raise self._unexpected("a value")
        if word.group() not in _LITERALS:
            raise self._error(
                f"{word.group()[:40]} is no value of JSON", advice=_WORD_HINTS.get(word.group())
            )
        self._at = word.end()
        return _LITERALS[word.group()]

    def _enter(self) -> None:
        if len(self._keys) >= MAX_DEPTH:
            raise self._error(
                "objects and arrays are nested too deeply", expected=f"at most {MAX_DEPTH} levels"
            )
        self._at += 1
        self._skip_space()

    def _next_item(self, closing: str) -> None:
        if not self._accept(","):
            raise self._unexpected(f"`,` or `{closing}`")
        comma = self._at - 1
        self._skip_space()
        if self._text.startswith(closing, self._at):
            raise self._error(f"a comma stands before `{closing}`", at=comma, expected="no trailing comma")

    def _accept(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        if character == ":":
            self._skip_space()
        return True

    def _peek(self) -> str:
        character = self._text[self._at : self._at + 1]
        if not character:
            raise self._error(
                "the document ends too early", expected="a value", advice="it was cut off: restore it"
            )
        return character

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        if self._text.startswith("\r", self._at):
            raise self._error(
                "a carriage return stands between values", expected="line ends of `\\n` alone", advice=_CRLF
            )

    def _unexpected(self, expected: str) -> InvalidDocumentError:
        found = self._text[self._at : self._at + 1]
        if not found:
            return self._error(
                "the document ends too early", expected=expected, advice="it was cut off: restore it"
            )
        if found in "/#":
            return self._error("this looks like a comment; JSON has none", expected=expected)
        if found == "'":
            return self._error("a single quote stands here", expected=expected, advice=_PYTHON_REPR)
        return self._error(f"{found!a} stands here", expected=expected)

    def _error(
        self, problem: str, *, at: int | None = None, expected: str | None = None, advice: str | None = None
    ) -> InvalidDocumentError:
        at = self._at if at is None else at
        line = self._text.count("\n", 0, at) + 1
        column = at - self._text.rfind("\n", 0, at)
        place = f"line {line}, column {column} (byte {len(self._text[:at].encode())})"
        if self._keys:
            place += f", at {_show_keys(self._keys)}"
        return InvalidDocumentError(problem, path=self._path, place=place, expected=expected, advice=advice)


def _show_keys(keys: list[str | int]) -> str:
    shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return f"`{shown.removeprefix('.')}`"
