"""The disks that a power cut may leave behind a number of steps; see `faults_power` for the model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.faults import Snapshot
from tests.support.faults_power import Step

ROOT: Final = 0
MOST_ENTRIES: Final = 6
"""Of so many unsynced entries of a folder every subset is tried; of more, a sample."""


@dataclass
class File:
    """A file's content: what is synced, and what happened to it since."""

    synced: bytes = b""
    since: list[Step] = field(default_factory=list)

    def versions(self) -> list[bytes]:
        """Return what may be found: any beginning of what happened, also cut inside a write, or NULs in its place."""
        found, content = [self.synced], self.synced
        for step in self.since:
            if step.kind == "write":
                lengths = (1, len(step.data) // 2, len(step.data) - 1)
                found += [_written(content, step, length) for length in lengths]
                found.append(_written(content, step, len(step.data), is_lost=True))
            content = _after(content, step)
            found.append(content)
        if len(content) > len(self.synced) and content.startswith(self.synced):
            found.append(self.synced + bytes(len(content) - len(self.synced)))
        return list(dict.fromkeys(found))

    def sync(self) -> None:
        """Bring everything onto the disk."""
        for step in self.since:
            self.synced = _after(self.synced, step)
        self.since = []


@dataclass
class Folder:
    """A folder's entries: those that are synced, and what happened to them since."""

    synced: dict[str, int] = field(default_factory=dict)
    since: list[Step] = field(default_factory=list)
    now: dict[str, int] = field(default_factory=dict)

    def sync(self) -> None:
        """Bring everything onto the disk."""
        self.synced, self.since = dict(self.now), []


class Disk:
    """What the disk holds for certain and what it may hold, step by step."""

    def __init__(self, root: Path) -> None:
        self._nodes: dict[int, File | Folder] = {}
        self._by_inode: dict[int, int] = {}
        self._steps: dict[int, list[tuple[Step, int]]] = {}
        self._take_over(root)

    def _take_over(self, path: Path) -> int:
        """Take what stands at a path for synced."""
        number = self._new(path.stat().st_ino, is_folder=path.is_dir())
        node = self._nodes[number]
        if isinstance(node, File):
            node.synced = path.read_bytes()
        else:
            node.now = {child.name: self._take_over(child) for child in sorted(path.iterdir())}
            node.sync()
        return number

    def _new(self, inode: int, *, is_folder: bool) -> int:
        number = len(self._nodes)
        self._nodes[number] = Folder() if is_folder else File()
        self._by_inode[inode] = number
        return number

    def take(self, step: Step) -> None:
        """Let one more step happen."""
        if step.kind in ("write", "truncate", "sync"):
            file = self._nodes[self._by_inode[step.inode]]
            assert isinstance(file, File)
            if step.kind == "sync":
                file.sync()
            else:
                file.since.append(step)
        elif step.kind == "sync folder":
            self._nodes[self._by_inode[step.inode]].sync()
        elif step.kind in ("enter", "remove", "move"):
            self._take_entry(step)

    def _take_entry(self, step: Step) -> None:
        if step.is_new:
            self._new(step.inode, is_folder=step.is_folder)
        folder = self._folder_of(step.path)
        node = -1 if step.kind == "remove" else self._by_inode[step.inode]
        change = Step(step.kind, Path(step.path).name, node, source=Path(step.source).name)
        assert step.kind != "move" or Path(step.source).parent == Path(step.path).parent
        folder.since.append(change)
        _change(folder.now, change)

    def _folder_of(self, path: str) -> Folder:
        number = ROOT
        for part in Path(path).parent.parts:
            folder = self._nodes[number]
            assert isinstance(folder, Folder)
            number = folder.now[part]
        found = self._nodes[number]
        assert isinstance(found, Folder)
        return found

    def states(self, *, most: int, chance: random.Random) -> Iterator[Snapshot]:
        """Yield what a power cut may leave now: everything where that is at most `most`, else a sample of so many."""
        choices = {number: _choices(node, chance) for number, node in self._nodes.items()}
        open_numbers = [number for number, found in choices.items() if len(found) > 1]
        total = 1
        for number in open_numbers:
            total *= len(choices[number])
        if total <= most:
            for combination in itertools.product(*(range(len(choices[number])) for number in open_numbers)):
                yield self._state(choices, dict(zip(open_numbers, combination, strict=True)))
            return
        yield self._state(choices, dict.fromkeys(open_numbers, 0))
        yield self._state(choices, {number: len(choices[number]) - 1 for number in open_numbers})
        for _ in range(most - 2):
            yield self._state(
                choices, {number: chance.randrange(len(choices[number])) for number in open_numbers}
            )

    def _state(self, choices: dict[int, list[bytes | dict[str, int]]], chosen: dict[int, int]) -> Snapshot:
        found = Snapshot()

        def walk(number: int, path: str) -> None:
            content = choices[number][chosen.get(number, 0)]
            if isinstance(content, bytes):
                found[path] = content
                return
            if path:
                found[path] = None
            for name in sorted(content):
                walk(content[name], f"{path}/{name}" if path else name)

        walk(ROOT, "")
        return found


def _choices(node: File | Folder, chance: random.Random) -> list[bytes | dict[str, int]]:
    if isinstance(node, File):
        return [*node.versions()]
    count = len(node.since)
    subsets: Iterator[Sequence[bool]] = itertools.product((False, True), repeat=count)
    if count > MOST_ENTRIES:
        some = [tuple(chance.random() < 0.5 for _ in range(count)) for _ in range(2**MOST_ENTRIES)]
        subsets = iter([(False,) * count, *some, (True,) * count])
    found: list[bytes | dict[str, int]] = []
    for subset in subsets:
        entries = dict(node.synced)
        for change, is_there in zip(node.since, subset, strict=True):
            if is_there:
                _change(entries, change)
        if entries not in found:
            found.append(entries)
    return found


def _change(entries: dict[str, int], change: Step) -> None:
    if change.kind == "move":
        entries.pop(change.source, None)
    if change.kind == "remove":
        entries.pop(change.path, None)
    else:
        entries[change.path] = change.inode


def _after(content: bytes, step: Step) -> bytes:
    if step.kind == "truncate":
        return content[: step.offset].ljust(step.offset, b"\0")
    return _written(content, step, len(step.data))


def _written(content: bytes, step: Step, length: int, *, is_lost: bool = False) -> bytes:
    data = bytes(length) if is_lost else step.data[:length]
    return content[: step.offset].ljust(step.offset, b"\0") + data + content[step.offset + length :]


def materialise(state: Snapshot, root: Path) -> None:
    """Write a state into an empty folder."""
    root.mkdir()
    for path, data in state.items():
        if data is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(data)
