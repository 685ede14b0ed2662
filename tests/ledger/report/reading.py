"""A strict look at a page: well-formed, self-contained, without script."""

from __future__ import annotations

from html.parser import HTMLParser

EMPTY = {"meta", "br"}
OWN_WORDS = {"rel", "xmlns"}


class Page(HTMLParser):
    """Notes what a page holds and everything that is wrong with it."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.problems += [f"<{tag}> is never closed" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element and judge its attributes."""
        self._note(tag, attrs)
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element without content."""
        self._note(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """Insist that elements are closed in the order in which they were opened."""
        if not self._open or self._open[-1] != tag:
            self.problems.append(f"</{tag}> closes {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        """Note a text and where it stands."""
        if self._open[-1:] == ["style"]:
            self.problems += [f"the style sheet names {word}" for word in ("url(", "@import") if word in data]
        else:
            self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        """There is none in a page of ours."""
        self.problems.append(f"a comment: {data}")

    def _note(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in {"script", "link", "iframe", "object", "embed", "img", "image", "use", "a", "base", "form"}:
            self.problems.append(f"<{tag}>")
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name.startswith("on") or name in {"href", "src", "xlink:href", "srcset", "style", "action"}:
                self.problems.append(f"<{tag} {name}>")
            if "//" in (value or ""):
                self.problems.append(f"{name} leads elsewhere: {value}")

    @property
    def text(self) -> str:
        """All text of the page."""
        return " ".join(self.texts)
