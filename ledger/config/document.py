"""Strict reading of one YAML document into a tree with places.

ruamel.yaml scans and parses; the tree is built here from its events, because a configuration needs less and
stricter YAML than its loaders accept: no aliases, merge keys or tags, no duplicate or non-string keys, bounded
size and depth. Nothing is ever expanded: `${HOME}` and `~/x` are text.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from ledger.config.scalars import ScalarError, resolve_plain
from ledger.config.tree import Node, Place
from ledger.errors import ConfigError, StorageError, UnsafeError
from ledger.storage.filesystem import OS, error_number

__all__ = ["MAX_BYTES", "MAX_DEPTH", "read_file", "read_override"]

MAX_BYTES = 2**20
MAX_DEPTH = 32

# Also U+0085, U+2028 and U+2029, which some YAML readers take for line breaks, and the byte order mark.
_CONTROL = re.compile("[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]|\r(?!\n)")
_CONTROL_IN_VALUE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_WINDOWS_PATH = re.compile("[A-Za-z]:[\x00-\x1f\x85]")
_WINDOWS_ADVICE = "in double quotes a backslash starts an escape: use single quotes for a Windows path"


def read_file(path: Path) -> Node:
    """Return the mapping that the file holds.

    Raises `ConfigError` for anything but one strict YAML mapping of at most `MAX_BYTES`, and `StorageError` if
    the system refuses to read it.
    """
    text = _decode(_read_bytes(path), str(path))
    where = Place(file=str(path))
    _refuse_foreign(text, where)
    tree = _Builder(text, where).document()
    if tree is None:
        raise _error("the file holds no settings", where, expected="a mapping such as `seed: 1`")
    if not isinstance(tree.value, dict):
        raise _error(
            f"the file holds {_kind(tree)} at its top", tree.place, expected="a mapping such as `seed: 1`"
        )
    return tree


def read_override(text: str) -> Node:
    """Return the tree that `dotted.key=value` stands for; the value is a YAML scalar or flow collection.

    Raises `ConfigError` if it is not of that form.
    """
    where = Place(override=text)
    dotted, equals, value = text.partition("=")
    keys = [key.strip() for key in dotted.split(".")]
    if not equals or not all(keys) or len(keys) > MAX_DEPTH:
        raise _error("not an override", where, expected="--set dotted.key=value")
    node = _override_value(value, where)
    for key in reversed(keys):
        node = Node({key: node}, where)
    return node


def _override_value(value: str, where: Place) -> Node:
    if not value.strip():
        raise _error("the override has no value", where, advice="write null, or '' for an empty text")
    _refuse_control(value, where)
    node = _Builder(value, where).document()
    if node is None:
        raise _error("the override's value is only a comment", where, advice="quote it if text is meant")
    if isinstance(node.value, dict | list) and not value.lstrip().startswith(("{", "[")):
        raise _error(
            "the override's value is a block of YAML", where, advice="write {key: value} or [item, item]"
        )
    return node


def _read_bytes(path: Path) -> bytes:
    """Read a file, links followed; a pipe does not make this wait."""
    try:
        with OS.opened(path, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
            mode = OS.fstat(descriptor, path=path).st_mode
            if not stat.S_ISREG(mode):
                kind = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
                raise ConfigError(f"the configuration is {kind}", path=path, expected="a YAML file")
            content = b""
            while len(content) <= MAX_BYTES and (part := OS.read(descriptor, MAX_BYTES + 1, path=path)):
                content += part
    except UnsafeError as error:
        raise ConfigError("not a usable path", path=repr(path), advice="check the path") from error
    except StorageError as error:
        if error_number(error) in {errno.ENOENT, errno.ENOTDIR}:
            raise ConfigError("no such configuration file", path=path, advice="check the path") from error
        if error_number(error) == errno.ENXIO:  # a socket
            raise ConfigError(
                "the configuration is not a regular file", path=path, expected="a YAML file"
            ) from error
        raise
    if len(content) > MAX_BYTES:
        raise ConfigError("the configuration is too large", path=path, expected="at most 1 MiB")
    return content


def _decode(content: bytes, file: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"byte {content[error.start]:#04x} at offset {error.start} is not UTF-8",
            path=file,
            place=f"line {line}",
            advice="save the file as UTF-8 without a byte order mark",
        ) from error


def _refuse_foreign(text: str, where: Place) -> None:
    if re.search(r"^(<{7} |={7}$|>{7} )", text, re.MULTILINE):
        raise _error("the file holds merge-conflict markers", where, advice="resolve the conflict first")
    _refuse_control(text, where)


def _refuse_control(text: str, where: Place) -> None:
    found = _CONTROL.search(text)
    if found is None:
        return
    before = text[: found.start()]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    raise _error(
        f"control character U+{ord(found.group()):04X}",
        _moved(where, line, column),
        advice="remove it, or write it as an escape in double quotes",
    )


class _Builder:
    """Builds the tree of one document from the parser's events."""

    def __init__(self, text: str, where: Place) -> None:
        self._where = where
        self._events = self._checked(YAML(typ="safe", pure=True).parse(text))

    def document(self) -> Node | None:
        """Return the only document's tree, or None if there is none; raises `ConfigError`."""
        root: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                self._check_start(event, is_first=root is None)
            elif not isinstance(event, StreamStartEvent | StreamEndEvent | DocumentEndEvent):
                # To the parser, a document without content is one empty scalar.
                is_empty = isinstance(event, ScalarEvent) and event.style is None and not event.value
                root = None if is_empty else self._node(event, depth=1)
        return root

    def _check_start(self, event: DocumentStartEvent, *, is_first: bool) -> None:
        if not is_first:
            raise self._wrong("a second document starts here", event, advice="keep one document in a file")
        if event.version or event.tags:
            raise self._wrong("a % directive", event, advice="remove it: files are read as YAML 1.2")

    def _checked(self, events: Iterator[Any]) -> Iterator[Any]:
        try:
            for event in events:
                self._refuse_indirect(event)
                yield event
        except MarkedYAMLError as error:
            raise self._malformed(error) from error
        except (YAMLError, ValueError, RecursionError) as error:
            raise _error(f"not valid YAML: {_first_line(error)}", self._where) from error

    def _refuse_indirect(self, event: Any) -> None:
        if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._wrong(
                "anchors (&) and aliases (*) are not allowed", event, advice="write the value out"
            )
        if getattr(event, "tag", None) is not None and getattr(event, "ctag", None) is not None:
            tag = str(event.tag).replace("tag:yaml.org,2002:", "!!")
            raise self._wrong(
                f"the tag {tag} is not allowed", event, advice="quote the value or write it plainly"
            )

    def _node(self, event: Any, *, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self._wrong(f"nested more than {MAX_DEPTH} levels deep", event, advice="flatten the file")
        if isinstance(event, MappingStartEvent):
            return Node(self._mapping(depth), self._place(event))
        if isinstance(event, SequenceStartEvent):
            return Node(self._sequence(depth), self._place(event))
        return self._scalar(event)

    def _sequence(self, depth: int) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            items.append(self._node(event, depth=depth + 1))
        return items

    def _mapping(self, depth: int) -> dict[str, Node]:
        children: dict[str, Node] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event)
            if key in children:
                first = children[key].place
                raise self._wrong(
                    f"duplicate key {key!r}; the first is at {first}", event, advice="keep one of them"
                )
            child = self._node(next(self._events), depth=depth + 1)
            children[key] = Node(child.value, self._place(event))
        return children

    def _key(self, event: Any) -> str:
        if not isinstance(event, ScalarEvent):
            raise self._wrong("a list or mapping is used as a key", event, expected="a plain text key")
        if event.value == "<<" and event.style is None:
            raise self._wrong("merge keys (<<) are not allowed", event, advice="write the keys out")
        key = self._scalar(event).value
        if not isinstance(key, str):
            raise self._wrong(
                f"the key {event.value!r} is not text", event, advice="quote it if text is meant"
            )
        return key

    def _scalar(self, event: ScalarEvent) -> Node:
        place = self._place(event)
        if event.style is None:
            try:
                return Node(resolve_plain(event.value), place)
            except ScalarError as error:
                raise _error(error.problem, place, advice=error.advice) from error
        self._check_quoted(event.value, event)
        return Node(event.value, place)

    def _check_quoted(self, value: str, event: ScalarEvent) -> None:
        if event.style == '"' and _WINDOWS_PATH.match(value):
            raise self._wrong("an escape turned this path into something else", event, advice=_WINDOWS_ADVICE)
        found = _CONTROL_IN_VALUE.search(value)
        if found is not None:
            raise self._wrong(f"the text holds control character U+{ord(found.group()):04X}", event)
        if not value.isascii() and re.search("[\ud800-\udfff]", value):
            raise self._wrong(
                "the text holds half a surrogate pair", event, advice="write the character itself"
            )

    def _malformed(self, error: MarkedYAMLError) -> ConfigError:
        mark = error.problem_mark or error.context_mark
        place = self._where if mark is None else _moved(self._where, mark.line + 1, mark.column + 1)
        problem = " ".join(str(part) for part in (error.problem, error.context) if part)
        return _error(f"not valid YAML: {problem}", place, advice=_advice(problem))

    def _wrong(
        self, problem: str, event: Any, *, expected: str | None = None, advice: str | None = None
    ) -> ConfigError:
        return _error(problem, self._place(event), expected=expected, advice=advice)

    def _place(self, event: Any) -> Place:
        return _moved(self._where, event.start_mark.line + 1, event.start_mark.column + 1)


def _moved(where: Place, line: int, column: int) -> Place:
    return Place(file=where.file, override=where.override, line=line, column=column)


def _error(
    problem: str, place: Place, *, expected: str | None = None, advice: str | None = None
) -> ConfigError:
    return ConfigError(problem, path=place.file, place=str(place), expected=expected, advice=advice)


def _advice(problem: str) -> str | None:
    if "escape" in problem:
        return _WINDOWS_ADVICE
    if "\\t" in problem:
        return "indent with spaces, not tabs"
    if "mapping values are not allowed" in problem:
        return "quote a value that holds a colon followed by a space"
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _kind(node: Node) -> str:
    return "a list" if isinstance(node.value, list) else "a single value"
