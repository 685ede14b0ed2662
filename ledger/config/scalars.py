"""What an unquoted YAML scalar means: YAML 1.2's core schema, less everything that readers disagree about.

`no` is a string and `1e-3` a number. What looks like a number to one reader and like text, or another number, to
the next (`017`, `0o17`, `1_000`, `1234e5678`, `.inf`) is refused with a word on how to write it.
Source: YAML 1.2.2, section 10.3.2.
"""

from __future__ import annotations

import math
import re

from ledger.config.tree import Scalar

__all__ = ["ScalarError", "resolve_plain"]

MAX_INTEGER = 2**53 - 1
_WORDS: dict[str, Scalar] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?")
_OTHER_BASE = re.compile(r"[-+]?0[xXoObB][0-9a-fA-F_]+")
_UNDERSCORES = re.compile(r"[-+]?[0-9][0-9_]*_[0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


class ScalarError(ValueError):
    """An unquoted scalar that is not accepted; `problem` says why and `advice` what to write."""

    def __init__(self, problem: str, advice: str) -> None:
        self.problem = problem
        self.advice = advice
        super().__init__(f"{problem} ({advice})")


def resolve_plain(text: str) -> Scalar:
    """Return the value of an unquoted scalar.

    Raises `ScalarError` for a number outside of ±(2^53−1), one that is not finite or becomes zero, and for the
    spellings listed above.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    _refuse_ambiguous(text)
    return text


def _integer(text: str) -> int:
    # Length first: Python refuses to convert integers of more than 4,300 digits.
    if len(text) > 17 or abs(int(text)) > MAX_INTEGER:
        raise ScalarError(
            f"the integer {_short(text)} is out of range ±(2^53−1)", "quote it if text is meant"
        )
    return int(text)


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ScalarError(f"the number {_short(text)} is too large", "quote it if text is meant")
    if number == 0.0 and re.search(r"[1-9]", re.split("[eE]", text)[0]):
        raise ScalarError(f"the number {_short(text)} is too small", "quote it if text is meant")
    return number


def _refuse_ambiguous(text: str) -> None:
    if _LEADING_ZERO.fullmatch(text):
        raise ScalarError(
            f"{_short(text)} has a leading zero", "write the number without it, or quote it if text is meant"
        )
    if _OTHER_BASE.fullmatch(text):
        raise ScalarError(
            f"{_short(text)} is not decimal", "write a decimal number, or quote it if text is meant"
        )
    if _UNDERSCORES.fullmatch(text):
        raise ScalarError(
            f"{_short(text)} holds underscores", "write the digits alone, or quote it if text is meant"
        )
    if _NOT_FINITE.fullmatch(text):
        raise ScalarError(
            f"{text} is not a finite number", "write a finite number, or quote it if text is meant"
        )
    if text == "=":
        raise ScalarError("a lone = has a special meaning to some readers", "quote it if text is meant")


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:20]}… ({len(text)} characters)"
