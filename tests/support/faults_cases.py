"""One case of the fault product: a scenario, broken once, judged, recovered under the same fault and in peace."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from ledger.errors import LedgerError
from ledger.records.layout import LOG
from ledger.storage.filesystem import OS, FileSystem
from tests.support.faults import MODE, MODES, Fault, FaultFileSystem, LogWatch, Operation, Snapshot
from tests.support.faults_scenarios import SCENARIO, Scenario
from tests.support.toy import Killed

ENDINGS: Final = (LedgerError, Killed, MemoryError, KeyboardInterrupt)
"""How a command may end that was broken."""


class CaseFileSystem(FaultFileSystem):
    """A faulty file system that hears what a command acknowledges, and watches below one folder only."""

    def __init__(self, fault: Fault | None = None, *, root: Path, is_watched: bool = False) -> None:
        super().__init__(fault, is_watched=is_watched)
        self.promised: list[Path] = []
        self._inside = f"{root}{os.sep}"

    def watches(self, path: str) -> bool:
        """Leave out what lies above: how much is asked there depends on how deep the folder lies."""
        return super().watches(path) and path.startswith(self._inside)

    def promise(self, path: Path) -> None:
        """Hear that what stands at this path was acknowledged."""
        self.promised.append(path)


@dataclass(frozen=True)
class Stage:
    """Where cases of one scenario are tried: a folder to copy from and an undisturbed control."""

    scenario: str
    template: Path
    control: Path
    operations: Sequence[Operation]


def set_stage(scenario: Scenario, root: Path) -> Stage:
    """Make the template and the control, and list the operations of an undisturbed command."""
    template, control = root / "template", root / "control"
    scenario.set_up(template)
    shutil.copytree(template, control)
    fs = CaseFileSystem(root=control)
    scenario.act(control, fs)
    scenario.recover(control, CaseFileSystem(root=control))
    return Stage(scenario.name, template, control, fs.operations)


def faults(operations: Sequence[Operation], *, lengths: Callable[[int], Sequence[int]]) -> Iterator[Fault]:
    """Yield every mode at every operation that it applies to, with every length that a write may leave."""
    for number, operation in enumerate(operations):
        for mode in MODES:
            if not mode.applies(operation):
                continue
            if mode.is_partial and operation.name == "write":
                yield from (Fault(mode.name, number, length) for length in lengths(operation.size))
            else:
                yield Fault(mode.name, number)


def crossed(operations: Sequence[Operation]) -> list[Fault]:
    """Return a death before each operation and inside each write, and of the other modes two in turn at each.

    Each kind of operation meets its modes that way one after the other, and a mode that had no turn its first one.
    """
    chosen: list[Fault] = []
    turns: Counter[str] = Counter()
    every = list(faults(operations, lengths=few_lengths))
    for number, found in groupby(every, key=lambda fault: fault.number):
        deaths: list[Fault] = []
        others: list[Fault] = []
        for fault in found:
            (deaths if fault.mode in ("killed before", "torn") else others).append(fault)
        name = operations[number].name
        turned = others[turns[name] % len(others) :] + others[: turns[name] % len(others)]
        turns[name] += 2
        chosen += [*deaths, *turned[:2]]
    first = {fault.mode: fault for fault in reversed(every)}
    met = {fault.mode for fault in chosen}
    return chosen + [fault for mode, fault in first.items() if mode not in met]


def few_lengths(size: int) -> Sequence[int]:
    """Half of a write."""
    return [max(size // 2, 1)]


def many_lengths(size: int) -> Sequence[int]:
    """Every length of a short write; of a long one its ends, its middle and where a line's digest begins."""
    if size <= 64:
        return range(1, size)
    return sorted({1, 2, 63, size // 4, size // 2, size - 77, size - 2, size - 1} & set(range(1, size)))


def run_case(stage: Stage, fault: Fault, place: Path) -> list[str]:
    """Try one fault and return what is wrong afterwards; `place` is made and removed."""
    scenario = SCENARIO[stage.scenario]
    shutil.copytree(stage.template, place)
    try:
        fs = CaseFileSystem(fault, root=place)
        problems = _disturbed(scenario, place, fs, lambda: scenario.act(place, fs))
        if not fs.has_struck:
            return [*problems, f"{fault} never struck"]
        again = CaseFileSystem(fault, root=place, is_watched=True)
        problems += [
            f"during the recovery: {problem}"
            for problem in _disturbed(scenario, place, again, lambda: scenario.recover(place, again))
        ]
        return problems + _recovered(scenario, place, stage.control, OS)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _disturbed(scenario: Scenario, place: Path, fs: CaseFileSystem, command: Callable[[], None]) -> list[str]:
    before = Snapshot.of(place / scenario.folder)
    ended: BaseException | None = None
    watch = LogWatch()
    kept: list[int] = []
    fs.on_strike = lambda: kept.append(len(watch.acknowledged))
    with watch.listening():
        try:
            command()
        except ENDINGS as error:
            ended = error
    problems = [] if scenario.reports else _ending_problems(fs, ended)
    if fs.struck is not None and _fails_log(fs.struck, fs) and len(watch.acknowledged) > kept[0]:
        problems.append("an event was acknowledged although its write or sync failed")
    return problems + list(scenario.check(place / scenario.folder, before, watch, fs.promised))


def _fails_log(struck: Operation, fs: CaseFileSystem) -> bool:
    """Tell whether a write or sync of the log failed."""
    is_error = fs._fault is not None and MODE[fs._fault.mode].kind in ("error", "raise")
    return is_error and Path(struck.path).name == LOG and struck.name in ("write", "fsync", "fdatasync")


def _ending_problems(fs: CaseFileSystem, ended: BaseException | None) -> list[str]:
    """Say whether a command ended as its fault asks: no error is swallowed, no hitch is an error."""
    mode = None if fs._fault is None else MODE[fs._fault.mode]
    if not fs.has_struck or mode is None:
        return [] if ended is None else [f"failed without a fault: {ended!r}"]
    if mode.kind == "complete":
        return [] if ended is None else [f"a hitch became an error: {ended!r}"]
    if ended is None:
        return [f"an error was swallowed: {mode.name} at {fs.operations[-1] if fs.operations else None}"]
    return []


def _recovered(scenario: Scenario, place: Path, control: Path, fs: FileSystem) -> list[str]:
    try:
        scenario.recover(place, fs)
    except LedgerError as error:
        return [f"cannot be recovered: {error}"]
    return scenario.finished(place, control)


def try_cases(stage: Stage, tried: Sequence[Fault], place: Path) -> list[list[str]]:
    """Try many faults one after the other; for a process of its own."""
    return [run_case(stage, fault, place) for fault in tried]
