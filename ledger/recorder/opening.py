"""Opening a run for writing: what the log says so far, and whether it may be continued.

Reading comes first and writes nothing. Whatever is wrong beyond a torn tail is refused here, before a session
starts: a writer never appends to a log that it could not follow to its end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ledger.checkpoints import CompleteCheckpoint, find_checkpoints, find_incomplete
from ledger.errors import (
    EvidenceMissingError,
    InvalidDocumentError,
    NewerVersionError,
    UsageError,
    VerificationError,
)
from ledger.history import History, KnownCheckpoint
from ledger.records.documents import Recipe, RunDocument
from ledger.records.events import UnknownEvent
from ledger.records.layout import (
    LOCK,
    LOG,
    MANIFEST,
    OWN_NAMES,
    RECIPES,
    RUN,
    parse_checkpoint_name,
)
from ledger.records.parts import LogPosition
from ledger.storage.atomic import is_temporary_name
from ledger.storage.clock import Clock
from ledger.storage.damage import damage_error
from ledger.storage.documents import read_document
from ledger.storage.files import ensure_folders, is_folder
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.lock import RunLock
from ledger.storage.log import LogTail, read_log
from ledger.storage.mounts import is_case_insensitive

__all__ = ["OpenedRun", "acquire_lock", "open_run", "read_recipe", "refuse_foreign_folder"]

_OTHER_WAYS = (
    "restore it from a copy; or go back on purpose: name another checkpoint with --resume PATH, "
    "or type --restart"
)


@dataclass(frozen=True, kw_only=True)
class OpenedRun:
    """What a run folder holds when a writer opens it."""

    folder: Path
    history: History
    head: LogPosition | None
    """The last committed line; None where there is none yet."""
    tail: LogTail | None
    """A torn tail that must go to quarantine before anything is appended."""
    checkpoints: list[CompleteCheckpoint]
    """Complete checkpoints whose pin lies on the log."""
    incomplete: list[str] = field(default_factory=list)
    """Paths of folders with a checkpoint's name that lost their manifest."""

    def latest(self) -> CompleteCheckpoint | None:
        """Return the complete checkpoint furthest along the current branch.

        Raises:
            EvidenceMissingError: one lay further and vanished, though retention did not remove it.
            VerificationError: its manifest is not the one that its event names.
        """
        pruned = self.history.pruned
        complete = {found.path: found for found in self.checkpoints if found.path not in pruned}
        known = {kept.path: kept for kept in self.history.checkpoints() if kept.path not in pruned}
        furthest = self.history.latest((known | {path: complete[path].known for path in complete}).values())
        self._require_manifests(furthest)
        if furthest is None:
            return None
        if furthest.path not in complete:
            raise _vanished(self.folder / furthest.path, "is absent or not complete")
        self.require_recorded(complete[furthest.path])
        return complete[furthest.path]

    def _require_manifests(self, furthest: KnownCheckpoint | None) -> None:
        """Make sure that no folder which lost its manifest lies further, as far as its name tells."""
        ends = {segment.session.number: segment.end.step for segment in self.history.branch()}
        for path in set(self.incomplete) - self.history.pruned.keys():
            step, session = parse_checkpoint_name(path.rpartition("/")[2]) or (0, 0)
            if step <= ends.get(session, -1) and (furthest is None or step > furthest.counters.step):
                raise _vanished(self.folder / path, f"holds no {MANIFEST}")

    def require_recorded(self, checkpoint: CompleteCheckpoint) -> None:
        """Make sure that a checkpoint's manifest is the one that its event names, where it has one.

        Raises:
            VerificationError: it is another.
        """
        for known in self.history.checkpoints():
            if known.path == checkpoint.path and known.manifest_sha256 != checkpoint.manifest_sha256:
                raise VerificationError(
                    "is not the manifest that the checkpoint event names",
                    path=checkpoint.folder / MANIFEST,
                    expected=f"the file with SHA-256 {known.manifest_sha256}",
                    advice=_OTHER_WAYS,
                )

    def is_at_end(self, checkpoint: CompleteCheckpoint) -> bool:
        """Tell whether a checkpoint stands where the current branch ends."""
        end = self.history.branch()[-1].end
        return self.history.is_on_branch(checkpoint.known) and (
            checkpoint.manifest.counters.microbatches == end.microbatches
        )


def _vanished(folder: Path, problem: str) -> EvidenceMissingError:
    """Return the refusal to go around a checkpoint that was committed and is not there as it was."""
    return EvidenceMissingError(
        problem,
        path=folder,
        expected="the latest checkpoint of the run's current branch, which nothing says was removed on purpose",
        advice=_OTHER_WAYS,
    )


def read_recipe(run_dir: Path, sha256: str, *, fs: FileSystem = OS) -> Recipe:
    """Read one recipe of a run and check its digest.

    Raises:
        VerificationError: the file's bytes are not the recipe that the log names.
    """
    return read_document(run_dir / RECIPES / f"{sha256}.json", Recipe, sha256=sha256, fs=fs)


def acquire_lock(run_dir: Path, *, clock: Clock, fs: FileSystem) -> RunLock:
    """Make the run folder if needed and take its writer's lock.

    Raises:
        UsageError: it holds other things than a run; or the run is new, and names that differ only by case are the
            same there. Then nothing is left behind.
        LockedError: another writer holds the run.
        StorageError: the system refused.
    """
    refuse_foreign_folder(run_dir, fs=fs)
    made = ensure_folders(run_dir, fs=fs)
    if not fs.exists(run_dir / LOG) and is_case_insensitive(run_dir, fs=fs):
        for folder in reversed(made):
            fs.rmdir(folder)
        raise UsageError(
            "names that differ only by case are the same here, so that one file could stand for another",
            path=run_dir,
            expected="a folder in which they differ",
            advice="keep runs on a case-sensitive file system",
        )
    is_new = not fs.exists(run_dir / LOCK)
    lock = RunLock(run_dir, clock=clock, fs=fs)
    if is_new:  # by it a power cut among the first writes leaves what an audit knows as a run
        try:
            fs.sync_directory(run_dir)
        except BaseException:
            lock.close()
            raise
    return lock


def open_run(run_dir: Path, *, trusts_run_document: bool = True, fs: FileSystem = OS) -> OpenedRun:
    """Read a run folder to the end of its log; a folder that is empty or new is a run without sessions.

    A repair, which rebuilds run.json, does without what that pins.

    Raises:
        UsageError: the folder holds other things than a run.
        VerificationError: the log, or what is pinned on it, is damaged.
        EvidenceMissingError: run.json knows of sessions that the log does not hold.
        NewerVersionError: the log holds events of a newer version.
    """
    refuse_foreign_folder(run_dir, fs=fs)
    checkpoints = find_checkpoints(run_dir, fs=fs)
    pins = _pins(run_dir, checkpoints, trusts_run_document=trusts_run_document, fs=fs)
    history = History()
    head, tail = None, None
    chains: dict[int, str] = {}
    path = run_dir / LOG
    if fs.exists(path):
        log = read_log(path, fs=fs)
        for line in log:
            if line.problem is not None or line.event is None:
                raise VerificationError(
                    line.problem or "cannot be read",
                    path=path,
                    place=f"line {line.number} (byte {line.offset})",
                    expected="an intact log",
                    advice=f"nothing was changed; look with: ledger reconcile {run_dir}",
                )
            if isinstance(line.event, UnknownEvent):
                raise NewerVersionError(
                    f"holds an event of kind {line.event.event!r}, which this version does not know",
                    path=path,
                    place=f"line {line.number}",
                    advice="continue the run with the version that wrote it",
                )
            if line.event.seq != line.number - 1:
                raise damage_error(line, path)
            head = LogPosition(seq=line.event.seq, chain=line.chain)
            if head.seq in pins:
                chains[head.seq] = head.chain
            history.add(line.event, chain=line.chain)
        tail = log.tail
        _check_tail(path, tail)
    _check_pins(run_dir, pins, chains, head)
    return OpenedRun(
        folder=run_dir,
        history=history,
        head=head,
        tail=tail,
        checkpoints=checkpoints,
        incomplete=find_incomplete(run_dir, fs=fs),
    )


def _check_tail(path: Path, tail: LogTail | None) -> None:
    if tail is not None and tail.problem is not None:
        raise VerificationError(
            tail.problem,
            path=path,
            place=f"byte {tail.offset}",
            expected="at most a line that was cut short",
            advice="nothing was changed; restore the original",
        )


def refuse_foreign_folder(run_dir: Path, *, fs: FileSystem = OS) -> None:
    """Make sure that a folder is a run, is empty, or does not exist, before anything is written into it.

    Raises:
        UsageError: it holds other things than a run.
    """
    if not fs.exists(run_dir):
        return
    if not is_folder(run_dir, fs=fs):
        raise UsageError(
            "is not a directory", path=run_dir, expected="a run folder, or a path that does not exist"
        )
    foreign = [
        name for name in fs.list_directory(run_dir) if name not in OWN_NAMES and not is_temporary_name(name)
    ]
    if foreign and not fs.exists(run_dir / LOG):
        raise UsageError(
            f"holds other files ({', '.join(sorted(foreign)[:3])}) and no run",
            path=run_dir,
            expected="an empty folder, a run, or a path that does not exist",
            advice="choose another folder for the run",
        )


def _pins(
    run_dir: Path, checkpoints: list[CompleteCheckpoint], *, trusts_run_document: bool, fs: FileSystem
) -> dict[int, list[tuple[str, str]]]:
    """Return seq → [(chain, who pins it)]."""
    pins: dict[int, list[tuple[str, str]]] = {}
    for found in checkpoints:
        position = found.manifest.log
        pins.setdefault(position.seq, []).append((position.chain, f"{found.path}/manifest.json"))
    if trusts_run_document and fs.exists(run_dir / RUN):
        document = _run_document(run_dir, fs=fs)
        for session in document.sessions:
            pins.setdefault(session.log.seq, []).append((session.log.chain, RUN))
    return pins


def _run_document(run_dir: Path, *, fs: FileSystem) -> RunDocument:
    try:
        return read_document(run_dir / RUN, RunDocument, fs=fs)
    except InvalidDocumentError as error:
        raise InvalidDocumentError(
            error.problem,
            path=error.path,
            place=error.place,
            expected=error.expected,
            advice=f"it can be written anew from the log: ledger repair {run_dir} --apply",
        ) from error


def _check_pins(
    run_dir: Path, pins: dict[int, list[tuple[str, str]]], chains: dict[int, str], head: LogPosition | None
) -> None:
    for seq, entries in sorted(pins.items()):
        for chain, who in entries:
            if chains.get(seq) == chain:
                continue
            if head is None or seq > head.seq:
                raise EvidenceMissingError(
                    f"ends before event {seq}, which {who} pins: part of the log is lost",
                    path=run_dir / LOG,
                    expected="the log that the run's own records vouch for",
                    advice="restore the log from a copy; nothing was changed",
                )
            raise VerificationError(
                f"event {seq} is not the one that {who} pins",
                path=run_dir / LOG,
                expected=f"chain {chain[:16]}…",
                advice="the log or that file was replaced; nothing was changed",
            )
