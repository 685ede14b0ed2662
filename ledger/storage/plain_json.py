"""The quick way to read JSON: the standard library's reader, for documents in which nothing needs a closer look.

Nearly every document is one. Whatever is not, valid or not, is left to `strict_json`, which knows every rule and names
every place.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NoReturn

from ledger.records.fields import MAX_INTEGER

__all__ = ["KEY", "MAX_KEY_LENGTH", "RESERVED_KEYS", "NotPlainError", "parse_plain"]

MAX_KEY_LENGTH: Final = 1_024
"""The greatest length of a key in characters."""

KEY: Final = re.compile(rf"[\x20-\x7e]{{1,{MAX_KEY_LENGTH}}}")
RESERVED_KEYS: Final = frozenset({"__proto__", "constructor", "prototype"})

_MAX_BYTES: Final = 256 << 10
_MAX_DEPTH: Final = 32
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class NotPlainError(Exception):
    """A document needs a closer look."""


def parse_plain(data: bytes) -> Any:
    r"""Parse a document of UTF-8 without escapes and `\r`, with plain keys and small numbers.

    Raises:
        NotPlainError: it is another document, or none.
    """
    if len(data) > _MAX_BYTES or b"\\" in data or b"\r" in data or _depth(data) > _MAX_DEPTH:
        raise NotPlainError
    try:
        return _DECODER.decode(data.decode())
    except ValueError as error:
        raise NotPlainError from error


def _depth(data: bytes) -> int:
    """Return how deep brackets stand inside each other, those in texts included."""
    brackets = data.translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    is_short = all(len(key) <= MAX_KEY_LENGTH for key in value)  # what is refused is not remembered
    if len(value) != len(pairs) or not is_short or not all(map(_is_key, value)):
        raise NotPlainError
    return value


@lru_cache(maxsize=4_096)
def _is_key(key: str) -> bool:
    return KEY.fullmatch(key) is not None and key not in RESERVED_KEYS


def _integer(literal: str) -> int:
    if len(literal) > len(str(MAX_INTEGER)) or literal == "-0" or abs(int(literal)) > MAX_INTEGER:
        raise NotPlainError
    return int(literal)


def _float(literal: str) -> float:
    value = float(literal) if len(literal) < 32 else 0.0
    if not 1e-300 < abs(value) < 1e300:  # near its ends a double loses what was written
        raise NotPlainError
    return value


def _constant(_word: str) -> NoReturn:
    raise NotPlainError


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_constant
)
