"""A forked child must not write into, or keep locked, what its parent has open."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

__all__ = ["Abandonable", "abandon_in_children"]


class Abandonable(Protocol):
    """What can let go of its open files without writing, syncing or unlocking anything."""

    def abandon(self) -> None:
        """Close the descriptors in this process only and refuse all further use."""
        ...


_open_things: WeakSet[Abandonable] = WeakSet()


def abandon_in_children(thing: Abandonable) -> None:
    """Let every process forked from this one abandon `thing` at once."""
    _open_things.add(thing)


def _abandon_all() -> None:
    for thing in list(_open_things):
        thing.abandon()
    _open_things.clear()


os.register_at_fork(after_in_child=_abandon_all)
