"""HTML, escaped by construction: text becomes markup only through `element`, and only here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from ledger.report.harmless import clipped

__all__ = ["Markup", "element", "joined", "scrolling", "table_of", "text"]

_EMPTY: Final = frozenset({"meta", "br", "path", "line", "rect"})
"""Elements without content."""


class Markup(str):
    """Text that is HTML already; any other text is escaped where it is put into an element."""

    __slots__ = ()


def text(value: str) -> Markup:
    """Return a text as HTML, whatever it holds: nothing in it is markup, steers anything or is endless."""
    return Markup(escape(clipped(value), quote=True))


def joined(parts: Iterable[str]) -> Markup:
    """Return parts one after the other."""
    return Markup("".join(part if isinstance(part, Markup) else text(part) for part in parts))


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element. `class_` stands for `class`, other `_` for `-`; an attribute that is null is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _EMPTY:
        return Markup(f"<{name}{given}/>" if name in {"path", "line", "rect"} else f"<{name}{given}>")
    return Markup(f"<{name}{given}>{joined(children)}</{name}>")


def table_of(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str, heads_of_rows: bool = True
) -> Markup:
    """Return a table that scrolls by itself where a screen is too narrow. The first cell of a row names the row."""
    body = []
    for first, *others in rows:
        named = element("th", first, scope="row") if heads_of_rows else element("td", first)
        body.append(element("tr", named, *(element("td", cell) for cell in others)))
    titles = element("tr", *(element("th", cell, scope="col") for cell in head))
    table = element("table", element("caption", caption), element("thead", titles), element("tbody", *body))
    return scrolling(table, label=caption)


def scrolling(content: Markup, *, label: str) -> Markup:
    """Return content in a region that scrolls sideways, also by keyboard."""
    return element("div", content, class_="wide", role="region", tabindex=0, aria_label=clipped(label))
