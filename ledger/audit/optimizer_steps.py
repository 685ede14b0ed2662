"""LG404: the optimizer's own count of its updates, read from its file without any training library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import ClassVar, Final, NamedTuple

from ledger.audit.files import CheckpointFolder
from ledger.audit.stream import Checker, Stream
from ledger.errors import LedgerError, StorageError
from ledger.records.documents import CheckpointManifest, TensorEntry
from ledger.records.fields import as_measurement
from ledger.records.layout import OPTIMIZER_FILE
from ledger.storage.safetensors import read_numbers

__all__ = ["OptimizerStepChecker", "StateName", "parse_state_names"]

STEP: Final = "step"
LISTED: Final = 5

LAST_EXACT: Final = {"F16": 2**11, "F32": 2**24, "F64": 2**53}
"""Where a number of this type stays although 1 is added to it."""


class StateName(NamedTuple):
    """What the name of a tensor in the optimizer's file says: whose state it is, and which part."""

    group: str
    parameter: str
    field: str


def parse_state_names(names: Collection[str], *, groups: Collection[str]) -> dict[str, StateName] | str:
    """Return what each name says; the first name that is not `group/parameter/field` where there is one.

    Where `groups` are known, a name must begin with one of them.
    """
    parsed: dict[str, StateName] = {}
    for name in sorted(names):
        group, _, rest = name.partition("/")
        parameter, _, field = rest.rpartition("/")
        if not (group and parameter and field) or (groups and group not in groups):
            return name
        parsed[name] = StateName(group, parameter, field)
    return parsed


class OptimizerStepChecker(Checker):
    """LG404: the greatest step that each group keeps is the checkpoint's."""

    rules: ClassVar[tuple[str, ...]] = ("LG404",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._counted: set[str] = set()
        """Groups that keep a step in some checkpoint."""
        self._uncounted: set[str] = set()
        """Groups that have state but no step in some checkpoint."""
        self._lagging: tuple[str, int, dict[str, float]] | None = None
        """Path and step of the last checkpoint in which parameters lag, and the step of each."""

    def finish(self) -> None:
        """Look into the optimizer's file of every complete checkpoint, then say what did not apply."""
        looked_at = 0
        for folder in self.stream.files.complete_checkpoints.values():
            if (manifest := folder.manifest.document) is not None:
                self._check(folder, manifest)
                looked_at += 1
        if self._lagging is not None:
            self._hint(*self._lagging)
        if looked_at and not self._counted and "LG404" not in self.findings.not_checked:
            self.findings.exempt("LG404", "the optimizer keeps no step of its own")
            return
        for group in sorted(self._uncounted - self._counted):
            self.findings.exempt(f"LG404 group {group}", "its optimizer keeps no step of its own")

    def _check(self, folder: CheckpointFolder, manifest: CheckpointManifest) -> None:
        entry = manifest.files.get(OPTIMIZER_FILE)
        if entry is None or entry.tensors is None:
            if manifest.state.optimizer is not None:
                self.findings.skip("LG404", f"{folder.path} has no {OPTIMIZER_FILE}")
            return
        names = parse_state_names(entry.tensors, groups=self.stream.optimizer_groups)
        if isinstance(names, str):
            self.findings.skip(
                "LG404",
                f"{folder.path}/{OPTIMIZER_FILE} does not name its tensors group/parameter/field, such as {names}",
            )
            return
        wanted = [name for name, said in names.items() if said.field == STEP]
        self._uncounted |= {said.group for said in names.values()}
        try:
            numbers = read_numbers(folder.folder / OPTIMIZER_FILE, wanted)
        except StorageError:
            raise
        except LedgerError:
            return  # LG401 or LG402 says what is wrong with the file
        if any(number is None for number in numbers.values()):
            self.findings.skip(
                "LG404", f"{folder.path}/{OPTIMIZER_FILE} keeps steps that are no single number"
            )
            return
        steps: defaultdict[str, dict[str, float]] = defaultdict(dict)
        for name, number in numbers.items():
            if number is not None:
                steps[names[name].group][name] = number
        self._compare(folder.path, manifest.counters.step, steps, entry.tensors)

    def _compare(
        self,
        path: str,
        step: int,
        steps: Mapping[str, Mapping[str, float]],
        entries: Mapping[str, TensorEntry],
    ) -> None:
        lagging: dict[str, float] = {}
        for group, of_group in steps.items():
            self._counted.add(group)
            greatest, name = max((number, name) for name, number in of_group.items())
            expected = min(step, LAST_EXACT.get(entries[name].dtype, step))
            if greatest != expected or not all(number >= 0 for number in of_group.values()):
                self.findings.add(
                    "LG404",
                    f"the optimizer's group {group} counts {greatest:g} updates, the checkpoint {step}",
                    where=f"{path}/{OPTIMIZER_FILE}",
                    evidence={"found": as_measurement(greatest), "expected": expected, "tensor": name},
                )
            lagging |= {name: number for name, number in of_group.items() if number < greatest}
        if lagging:
            self._lagging = (path, step, lagging)

    def _hint(self, path: str, step: int, lagging: Mapping[str, float]) -> None:
        listed = ", ".join(f"{name} at {lagging[name]:g}" for name in sorted(lagging)[:LISTED])
        more = f" and {len(lagging) - LISTED} more" if len(lagging) > LISTED else ""
        self.findings.add(
            "LG404",
            f"no gradient reached some parameters in every update up to step {step}: {listed}{more}",
            where=f"{path}/{OPTIMIZER_FILE}",
            severity="hint",
        )
