"""Text from records made harmless where it is shown: in a terminal, in HTML, in Markdown."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

__all__ = ["SHORT", "clipped", "code_span", "harmless", "one_line"]

LONGEST: Final = 400
"""Characters of one text that a report shows."""
SHORT: Final = 80
"""Characters of a name that stands in many places."""


def harmless(text: str) -> str:
    """Return text with every character escaped that could steer a terminal or turn the reading direction."""
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character == "\n" or unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp"}:
        return character
    return character.encode("unicode_escape").decode("ascii")


def one_line(text: str) -> str:
    """Return harmless text in which a line break is shown as such, so that it stays in its row."""
    return harmless(text).replace("\n", r"\n")


def clipped(text: str, *, longest: int = LONGEST) -> str:
    """Return harmless text of a bounded length; what was cut off leaves a sign."""
    text = harmless(text[: longest + 1])
    return text if len(text) <= longest else text[:longest] + " …"


def code_span(text: str) -> str:
    """Return text as a code span of Markdown, in which nothing is a link, a mention, a reference, markup or a cell.

    The fence is longer than any run of backticks in the text, and a line break is shown as such; so nothing ends it.
    """
    shown = clipped(text).replace("\n", r"\n").replace("|", r"\x7c") or "(empty)"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or shown != shown.strip() else f"{fence}{shown}{fence}"
