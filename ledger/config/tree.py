"""The tree a configuration is read into: plain values, each with the place it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Node", "Place", "PlainValue", "Scalar", "deepest", "places", "plain", "tree_of"]

Scalar: TypeAlias = str | int | float | bool | None
PlainValue: TypeAlias = "Scalar | list[PlainValue] | dict[str, PlainValue]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something was written: a file with line and column (from 1), or an override."""

    file: str | None = None
    override: str | None = None
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        if self.override is None:
            return f"line {self.line}, column {self.column}"
        shown = self.override if self.override.isprintable() else repr(self.override)
        return f"--set {shown}"


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it was written; for a value in a mapping that is the place of its key."""

    value: Scalar | list[Node] | dict[str, Node]
    place: Place


def plain(node: Node) -> PlainValue:
    """Return the value without its places."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def tree_of(value: Any, place: Place) -> Node:
    """Return the tree of plain values that all come from one place."""
    if isinstance(value, Mapping):
        return Node({key: tree_of(child, place) for key, child in value.items()}, place)
    if isinstance(value, list):
        return Node([tree_of(child, place) for child in value], place)
    return Node(value, place)


def deepest(node: Node, path: Sequence[str | int]) -> Node:
    """Return the node at `path`, or the last one on the way to it that exists."""
    for part in path:
        child = _child(node, part)
        if child is None:
            return node
        node = child
    return node


def places(node: Node) -> Iterator[Place]:
    """Yield the place of this node and of everything below it."""
    yield node.place
    for child in _children(node):
        yield from places(child)


def _children(node: Node) -> Iterable[Node]:
    if isinstance(node.value, dict):
        return node.value.values()
    return node.value if isinstance(node.value, list) else ()


def _child(node: Node, part: str | int) -> Node | None:
    if isinstance(node.value, dict) and isinstance(part, str):
        return node.value.get(part)
    if isinstance(node.value, list) and isinstance(part, int) and part < len(node.value):
        return node.value[part]
    return None
