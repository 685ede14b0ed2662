"""LG213: the model moves if and only if the step does."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from ledger.audit.files import CheckpointFolder
from ledger.audit.lineage import resolve_parent, starts_from_beginning
from ledger.audit.optimizer_steps import parse_state_names
from ledger.audit.stream import Checker, Stream
from ledger.records.documents import CheckpointManifest, TensorEntry
from ledger.records.events import Checkpoint, SessionStart, Train
from ledger.records.fields import Measurement, is_finite
from ledger.records.layout import MODEL_FILE, OPTIMIZER_FILE

__all__ = ["MovementChecker"]

LISTED: Final = 5
SHOWS: Final = 2.0**-27
"""The rate from which an update must show: half the spacing of float32 numbers at 1/8.

A smaller one, as at the very end of a long decay to 0, may move no parameter at all.
"""


@dataclass(frozen=True, kw_only=True)
class _Moment:
    """A digest of the model on record: at a checkpoint, or at the start of a session without a parent here."""

    where: str
    step: int
    model: str
    moves: int
    """Train events with an update at a rate that shows on the way here, from the beginning of its line."""
    manifest: tuple[str, str] | None = None
    """Path and manifest digest of the checkpoint."""


@dataclass(kw_only=True)
class _Line:
    """One session's moments, and the line that it continues."""

    start: _Moment | None
    before: _Line | None = None
    """The line of the parent's session."""
    moved: array[int] = field(default_factory=lambda: array("Q"))
    """seq of each train event with an update at a rate that shows."""
    seen: dict[str, _Moment] = field(default_factory=dict)
    """Digest to the first moment that has it."""
    last: _Moment | None = None

    def first_with(self, model: str, *, moves: int) -> _Moment | None:
        """Return the first moment on the way here whose model is this one."""
        line: _Line | None = self
        found = None
        while line is not None:
            moment = line.seen.get(model)
            if moment is not None and moment.moves <= moves:
                found = moment
            moves = moves if line.start is None else min(moves, line.start.moves)
            line = line.before
        return found


class MovementChecker(Checker):
    """LG213: between two checkpoints of one line trainable parameters change if and only if `step` does."""

    rules: ClassVar[tuple[str, ...]] = ("LG213",)

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream)
        self._line: _Line | None = None
        self._checkpoints: dict[tuple[str, str], tuple[_Line, _Moment]] = {}
        self._pairs: list[tuple[_Moment, _Moment]] = []
        """Neighbours on a line whose digests differ."""

    def on_session_start(self, event: SessionStart) -> None:
        """Go on from the parent checkpoint, or begin a line with the state that is live."""
        parent = event.parent
        if parent is None or starts_from_beginning(self.stream, event):
            self._line = self._begin(event, event.state.model)
            return
        known = self._checkpoints.get((parent.checkpoint, parent.manifest_sha256))
        if known is not None:
            line, moment = known
            self._line = _Line(start=moment, before=line, last=moment)
            return
        resolved = resolve_parent(self.stream, event)
        self._line = self._begin(event, None if resolved is None else resolved.state.model)

    def _begin(self, event: SessionStart, model: str | None) -> _Line:
        if model is None:
            return _Line(start=None)
        start = _Moment(where=self.stream.where, step=event.step, model=model, moves=0)
        return _Line(start=start, seen={model: start}, last=start)

    def on_train(self, event: Train) -> None:
        """Note where the model was moved."""
        rates = (event.lr or {}).values()
        if self._line is not None and event.window.updates and any(_moves(rate) for rate in rates):
            self._line.moved.append(event.seq)

    def on_checkpoint(self, event: Checkpoint) -> None:
        """Compare with what is on the way here."""
        line, model = self._line, event.state.model
        if line is None or model is None:
            return
        base = 0 if line.start is None else line.start.moves
        moment = _Moment(
            where=event.path,
            step=event.at.step,
            model=model,
            moves=base + bisect_right(line.moved, event.at.seq),
            manifest=(event.path, event.manifest_sha256),
        )
        self._check_recurrence(line, moment)
        if line.last is not None and line.last.model != model:
            self._pairs.append((line.last, moment))
        line.seen.setdefault(model, moment)
        line.last = moment
        self._checkpoints[event.path, event.manifest_sha256] = (line, moment)

    def _check_recurrence(self, line: _Line, moment: _Moment) -> None:
        same = line.first_with(moment.model, moves=moment.moves)
        if same is not None and moment.step > same.step and moment.moves > same.moves:
            self.findings.add(
                "LG213",
                f"the model at step {moment.step} is that of step {same.step} ({same.where}), although updates at a "
                "rate that shows lie between",
                where=moment.where,
                evidence={"model": moment.model, "step": moment.step, "same at step": same.step},
            )

    def finish(self) -> None:
        """Look into the tables of tensors of neighbours that differ."""
        still: set[str] | None = None
        for before, after in self._pairs:
            tables = (self._manifest(before), self._manifest(after))
            if after.step == before.step:
                self._check_same_step(before, after, tables)
            elif after.moves > before.moves:
                unmoved = self._check_moved(before, after, tables)
                if unmoved is not None:
                    still = unmoved if still is None else still & unmoved
        if still:
            self.findings.add(
                "LG213",
                f"trainable parameters that no checkpoint shows to move: {_listed(still)}",
                where=self._pairs[-1][1].where,
                severity="hint",
            )

    def _check_same_step(
        self, before: _Moment, after: _Moment, manifests: tuple[CheckpointManifest | None, ...]
    ) -> None:
        """A model that moved without a step: an error unless what moved may be no parameter."""
        one, other = (_tensors(manifest) for manifest in manifests)
        trainable = self._trainable(manifests[1])
        if one and other and trainable is not None:
            moved = _differing(one, other) & trainable
        elif self._are_all_trainable(one or other):
            moved = _differing(one, other) if one and other else {"the model"}
        else:
            self.findings.skip(
                "LG213 same step",
                f"the model moved between {before.where} and {after.where} at step {after.step}, but the records do "
                "not tell parameters from other tensors",
            )
            return
        if moved:
            self.findings.add(
                "LG213",
                f"parameters are not those of {before.where}, although both stand at step {after.step}: "
                f"{_listed(moved)}",
                where=after.where,
                evidence={"before": before.model, "after": after.model},
            )

    def _check_moved(
        self, before: _Moment, after: _Moment, manifests: tuple[CheckpointManifest | None, ...]
    ) -> set[str] | None:
        """Return the trainable parameters that stand still; None where that cannot be told, or none moved."""
        one, other = (_tensors(manifest) for manifest in manifests)
        trainable = self._trainable(manifests[1])
        if not one or not other or not trainable:
            return None
        still = trainable - _differing(one, other)
        if still != trainable:
            return still
        self.findings.add(
            "LG213",
            f"no trainable parameter moved from step {before.step} ({before.where}) to step {after.step}, although "
            "updates at a rate that shows lie between",
            where=after.where,
        )
        return None

    def _manifest(self, moment: _Moment) -> CheckpointManifest | None:
        """Return the manifest of a moment's checkpoint where it is still there as its event names it."""
        if moment.manifest is None:
            return None
        path, sha256 = moment.manifest
        folder: CheckpointFolder | None = self.stream.files.complete_checkpoints.get(path)
        return folder.manifest.document if folder is not None and folder.manifest.sha256 == sha256 else None

    def _trainable(self, manifest: CheckpointManifest | None) -> set[str] | None:
        """Return the tensors of the model that the optimizer's file names; None where it names no such."""
        entry = None if manifest is None else manifest.files.get(OPTIMIZER_FILE)
        if entry is None or not entry.tensors:
            return None
        names = parse_state_names(entry.tensors, groups=())
        if isinstance(names, str):
            return None
        parameters = {said.parameter for said in names.values()}
        return parameters if parameters <= _tensors(manifest).keys() else None

    def _are_all_trainable(self, tensors: Collection[str]) -> bool:
        facts = self.stream.history.facts
        return (
            facts is not None
            and bool(tensors)
            and len(tensors) == sum(group.tensors for group in facts.optimizer)
        )


def _moves(rate: Measurement) -> bool:
    return is_finite(rate) and float(rate) >= SHOWS


def _tensors(manifest: CheckpointManifest | None) -> Mapping[str, TensorEntry]:
    entry = None if manifest is None else manifest.files.get(MODEL_FILE)
    return {} if entry is None else entry.tensors or {}


def _differing(one: Mapping[str, TensorEntry], other: Mapping[str, TensorEntry]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


def _listed(names: Collection[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(sorted(names)[:LISTED]) + more
