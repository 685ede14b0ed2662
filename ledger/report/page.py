"""One self-contained HTML page: no script, nothing from elsewhere, the same bytes for the same content."""

from __future__ import annotations

from typing import Final

from ledger.report.markup import Markup, element, joined
from ledger.report.style import CSS

__all__ = ["BEGINNING", "facts_list", "page", "verdict_word"]

BEGINNING: Final = (
    '<!DOCTYPE html>\n<html lang="en">\n'
    '<head><meta charset="utf-8"><meta name="generator" content="ledger report">'
)
"""How every report begins; a file that begins otherwise is none of ours."""
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""Even if something slipped through: the browser runs no script and loads nothing."""


def page(title: str, *parts: Markup, tool_version: str) -> str:
    """Return a page with a title and its parts."""
    head = joined(
        [
            element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="referrer", content="no-referrer"),
            element("title", title),
            Markup(f"<style>{CSS}</style>"),
        ]
    )
    said = (
        f"Made from records alone by ledger {tool_version}. Curves keep the extremes of what they pass over."
    )
    foot = element("footer", element("p", said), class_="soft")
    body = element("body", element("main", *parts), foot)
    return f"{BEGINNING}\n{head}</head>\n{body}\n</html>\n"


def facts_list(facts: list[tuple[str, str]]) -> Markup:
    """Return names and what stands for them."""
    return element(
        "dl",
        *(part for name, value in facts for part in (element("dt", name), element("dd", value))),
        class_="facts",
    )


def verdict_word(verdict: str) -> Markup:
    """Return a verdict as a word that also differs in its frame."""
    return element("span", verdict.upper(), class_=f"verdict {verdict}")
