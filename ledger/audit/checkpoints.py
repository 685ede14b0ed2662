"""LG4: checkpoints on disk against their events."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from typing import ClassVar, Final

import msgspec

from ledger.audit.files import CheckpointFolder, Loaded
from ledger.audit.findings import Findings
from ledger.audit.master_weights import find_master_weights, master_problems
from ledger.audit.replay import describe
from ledger.audit.stream import Captured, Checker, Standing, Stream
from ledger.audit.tensors import digest_problems, moment_problems
from ledger.records.documents import CheckpointManifest, TrainerState
from ledger.records.events import Checkpoint
from ledger.records.layout import CHECKPOINTS, MANIFEST, TRAINER_STATE, parse_checkpoint_name
from ledger.storage.canonical import digest_of
from ledger.storage.filesystem import OS

__all__ = ["CheckpointChecker", "checkpoint_problems", "note_master_weights"]

UNMOVED_PARTS: Final = ("model", "optimizer", "schedule", "rng", "scaler", "guards")
"""What must be the same in two digests of one moment; the cursor is compared as such."""
TRAINED_PARTS: Final = ("model", "optimizer")
"""What nothing but an update moves."""
TRAINER_PARTS: Final = ("schedule", "rng", "scaler", "guards")


class CheckpointChecker(Checker):
    """LG401, LG402, LG403, LG405, LG407: each checkpoint, its files, and what its records say of it."""

    rules: ClassVar[tuple[str, ...]] = ("LG401", "LG402", "LG403", "LG405", "LG407")

    def __init__(self, stream: Stream, *, rehash: bool) -> None:
        super().__init__(stream)
        self._rehash = rehash
        self.verified: set[str] = set()
        """Paths of complete checkpoints with nothing wrong found."""

    def finish(self) -> None:
        """Check every event's checkpoint, then what lies there without an event."""
        if not self._rehash:
            self.findings.skip("LG405", "checkpoint files were not read; use --rehash")
            self.findings.skip(
                "LG402 digests", "checkpoint files were not rehashed, only their sizes; use --rehash"
            )
        for captured in self.stream.captured.values():
            self._check_event(captured)
        for path in self.stream.history.pruned:
            folder_name = path.removeprefix(f"{CHECKPOINTS}/")
            if parse_checkpoint_name(folder_name) is None:
                self.findings.add("LG401", "is called pruned, but is no checkpoint's path", where=path)
        spoken_of = {path for path, _ in self.stream.captured}
        for path, folder in self.stream.files.complete_checkpoints.items():
            if path not in spoken_of:
                self._check_orphan(path, folder)

    def _check_event(self, captured: Captured) -> None:
        event = captured.event
        folder = self.stream.files.checkpoints.get(event.path)
        pruned = self.stream.history.pruned.get(event.path)
        if pruned is not None and pruned.manifest_sha256 != event.manifest_sha256:
            self.findings.add("LG401", "its pruned event names another manifest", where=event.path)
            pruned = None
        elif folder is None and pruned is None and not self.stream.is_live:
            self.findings.add(
                "LG401", "is absent, and no pruned event says that retention removed it", where=event.path
            )
        if folder is None:
            for problem in _unseen_problems(captured):
                self.findings.add("LG403", problem, where=event.path)
            return
        if pruned is not None and self.stream.is_live:
            return  # retention is at work
        if pruned is not None:
            self.findings.add("LG401", "was pruned, but is still there", where=event.path, severity="hint")
        manifest = folder.manifest
        if manifest.document is None and self._is_gone(folder):
            return
        if manifest.document is None:
            self.findings.add("LG401", f"has no readable manifest: {manifest.error}", where=event.path)
            return
        if manifest.sha256 != event.manifest_sha256:
            self.findings.add(
                "LG401",
                f"its manifest is not the one that the checkpoint event names: {self._origin(manifest)}",
                where=f"{event.path}/{MANIFEST}",
                evidence={"event": event.manifest_sha256, "found": manifest.sha256},
            )
            return
        problems = list(_event_problems(captured, manifest.document))
        self._check_folder(folder, manifest.document, problems)

    def _origin(self, manifest: Loaded[CheckpointManifest]) -> str:
        """Say where a manifest comes from that is not the one its event names."""
        of_run = None if manifest.document is None else manifest.document.run_id
        if of_run != self.stream.history.run_id:
            return f"it is of run {of_run}, so the folder was copied from there"
        other = self._event_of(manifest.sha256)
        if other is not None:
            return f"it is that of {other}, which was copied over this one"
        return "it was edited, or the folder was replaced"

    def _check_orphan(self, path: str, folder: CheckpointFolder) -> None:
        if folder.manifest.document is None:
            return
        event = self._event_of(folder.manifest.sha256)
        problems = [] if event is None else [f"it is a copy of {event}"]
        is_pinned = f"{path}/{MANIFEST}" in self.stream.pinned  # otherwise LG105 speaks of it
        is_sound = self._check_folder(folder, folder.manifest.document, problems)
        if not is_sound or not is_pinned or self.stream.is_live:
            return
        track = self.stream.track_of(folder.manifest.document.session)
        # An error or a signal between rename and event ends a session honestly; one that is done wrote its events.
        if track is not None and track.end is not None and track.end.status in {"completed", "closed"}:
            self.findings.add(
                "LG401",
                f"is complete but no event speaks of it, although session {track.number} went on to its end: the "
                "event was taken out of the log",
                where=path,
            )
        else:
            self.findings.add(
                "LG401",
                "is complete but no event speaks of it: the process was killed before it could; it is usable",
                where=path,
                severity="warning",
            )

    def _event_of(self, manifest_sha256: str | None) -> str | None:
        """Return the path of the checkpoint whose event names a manifest."""
        paths = (path for path, sha256 in self.stream.captured if sha256 == manifest_sha256)
        return next(paths, None)

    def _check_folder(
        self, folder: CheckpointFolder, manifest: CheckpointManifest, problems: list[str]
    ) -> bool:
        """Report what is wrong with a complete checkpoint; returns whether nothing is."""
        trainer = self.stream.files.trainer_state(folder)
        note_master_weights(folder, manifest, self.findings, rehash=self._rehash)
        found = [
            *checkpoint_problems(
                folder, manifest, trainer, rehash=self._rehash, progress=self.stream.progress
            ),
            *[("LG403", "", problem) for problem in [*problems, *self._session_problems(manifest)]],
        ]
        if found and self._is_gone(folder):
            return False
        for rule, name, problem in found:
            self.findings.add(rule, problem, where=f"{folder.path}/{name}" if name else folder.path)
        if not found:
            self.verified.add(folder.path)
        return not found

    def _is_gone(self, folder: CheckpointFolder) -> bool:
        """Tell whether a writer's retention removed a folder while it was looked at."""
        return self.stream.is_live and not self.stream.files.is_folder(folder.path)

    def _session_problems(self, manifest: CheckpointManifest) -> Iterator[str]:
        run_id = self.stream.history.run_id
        if run_id is not None and manifest.run_id != run_id:
            yield f"the manifest is of run {manifest.run_id}, not of {run_id}"
            return
        track = self.stream.track_of(manifest.session)
        if track is None:
            return
        for name in ("recipe_sha256", "identity_sha256", "data"):
            found, expected = getattr(manifest, name), getattr(track.start, name)
            if found != expected:
                yield f"the manifest's {name} is {found}, its session's {expected}"


def note_master_weights(
    folder: CheckpointFolder, manifest: CheckpointManifest, findings: Findings, *, rehash: bool
) -> None:
    """Say which master weights are not compared with the model."""
    masters = find_master_weights(manifest)
    if masters.comparable and not rehash:
        findings.skip("LG407 master weights", "they were not compared with the model; use --rehash")
    elif masters.other:
        findings.skip(
            "LG407 master weights",
            f"{folder.path} keeps {masters.other[0]}, but no parameter of that name and shape in a type that it can "
            "be rounded to here",
        )


def checkpoint_problems(
    folder: CheckpointFolder,
    manifest: CheckpointManifest,
    trainer: Loaded[TrainerState],
    *,
    rehash: bool,
    progress: Callable[[int], object] | None = None,
) -> Iterator[tuple[str, str, str]]:
    """Yield (rule, file, problem) for whatever is wrong with a checkpoint by itself, without a log."""
    file_problems = list(_file_problems(folder, manifest))
    if rehash:
        broken = {name for _, name, _ in file_problems}
        whole = {name: entry for name, entry in manifest.files.items() if name not in broken}
        file_problems += digest_problems(folder.folder, whole, progress=progress)
    yield from file_problems
    if not file_problems:
        yield from moment_problems(folder.folder, manifest)
        if rehash:
            yield from master_problems(folder.folder, manifest)
    for problem in _name_problems(folder, manifest):
        yield "LG403", "", problem
    listed = manifest.files.get(TRAINER_STATE)
    if listed is None or any(name == TRAINER_STATE for _, name, _ in file_problems):
        return
    if trainer.sha256 != listed.sha256:
        yield "LG402", TRAINER_STATE, "its bytes are not those that the manifest lists"
    elif trainer.document is None:
        yield "LG403", TRAINER_STATE, str(trainer.error)
    else:
        for problem in _trainer_problems(trainer.document, manifest):
            yield "LG403", "", problem


def _file_problems(folder: CheckpointFolder, manifest: CheckpointManifest) -> Iterator[tuple[str, str, str]]:
    if TRAINER_STATE not in manifest.files:
        yield "LG401", TRAINER_STATE, "is not listed in the manifest: the checkpoint is incomplete"
    for name, entry in sorted(manifest.files.items()):
        path = folder.folder / name
        found = OS.look(path)
        if found is None or not stat.S_ISREG(found.st_mode):
            yield "LG401", name, "is listed in the manifest but is no file here"
            continue
        size = found.st_size
        if size != entry.bytes:
            yield "LG402", name, f"holds {size} bytes, the manifest says {entry.bytes}"


def _event_problems(captured: Captured, manifest: CheckpointManifest) -> Iterator[str]:
    event = captured.event
    if event.at.counters != manifest.counters:
        yield f"the event says {describe(event.at.counters)}, the manifest {describe(manifest.counters)}"
    if (event.session, event.at.seq) != (manifest.session, manifest.log.seq):
        yield (
            f"the event says session {event.session}, seq {event.at.seq}; the manifest session "
            f"{manifest.session}, seq {manifest.log.seq}"
        )
    if event.state != manifest.state:
        yield "event and manifest state different digests of the live state"
    if event.kind != manifest.kind:
        yield f"the event says kind {event.kind!r}, the manifest {manifest.kind!r}"
    listed = sum(entry.bytes for entry in manifest.files.values())
    if event.bytes != listed:
        yield f"the event says {event.bytes} bytes, the manifest's files hold {listed}"
    standing = captured.standing
    if standing is None:
        return
    yield from _standing_problems(event, standing)
    if (standing.cursor, standing.data_chain) != (
        manifest.cursor,
        manifest.data_chain,
    ):
        yield "the manifest's cursor or data_chain is not where the log stood when it was captured"


def _standing_problems(event: Checkpoint, standing: Standing) -> Iterator[str]:
    """Compare the state with that of the train event or start just before, where nothing was processed between."""
    if standing.state is None or standing.microbatches != event.at.microbatches:
        return
    parts = UNMOVED_PARTS if standing.seq == event.at.seq else TRAINED_PARTS
    for part in parts:
        found, expected = getattr(event.state, part), getattr(standing.state, part)
        if found != expected:
            yield f"the event's digest of {part} is {found}, that of seq {standing.seq} {expected}"


def _unseen_problems(captured: Captured) -> Iterator[str]:
    """Compare a checkpoint that is gone with where the log stood; all that is left of it is its event."""
    event, standing = captured.event, captured.standing
    if standing is None or standing.microbatches != event.at.microbatches:
        return
    yield from _standing_problems(event, standing)
    expected = digest_of(msgspec.to_builtins(standing.cursor))
    if event.state.cursor != expected:
        yield f"the event's digest of cursor is {event.state.cursor}, that of seq {standing.seq} {expected}"


def _name_problems(folder: CheckpointFolder, manifest: CheckpointManifest) -> Iterator[str]:
    if (folder.step, folder.session) != (manifest.counters.step, manifest.session):
        yield (
            f"the folder's name says step {folder.step}, session {folder.session}; the manifest step "
            f"{manifest.counters.step}, session {manifest.session}"
        )


def _trainer_problems(trainer: TrainerState, manifest: CheckpointManifest) -> Iterator[str]:
    if trainer.counters != manifest.counters:
        yield f"trainer.json says {describe(trainer.counters)}, the manifest {describe(manifest.counters)}"
    if (trainer.session, trainer.seq) != (manifest.session, manifest.log.seq):
        yield (
            f"trainer.json says session {trainer.session}, seq {trainer.seq}; the manifest session "
            f"{manifest.session}, seq {manifest.log.seq}"
        )
    if (trainer.cursor, trainer.data_chain) != (manifest.cursor, manifest.data_chain):
        yield "trainer.json and the manifest state another cursor or data_chain"
    digests = {part: getattr(trainer, part) for part in TRAINER_PARTS} | {
        "cursor": msgspec.to_builtins(trainer.cursor)
    }
    for part, value in digests.items():
        found = None if value is None else digest_of(value)
        if found != getattr(manifest.state, part):
            yield f"{part} in trainer.json is not what the live state's digest was taken of"
