"""What must be true of a folder after anything happened to its writer.

Each check returns what is wrong with it, in words; a line that begins with `lost:` names something acknowledged that
is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ledger.audit import read_attestation, reconcile, verify_attestation
from ledger.checkpoints import read_checkpoint, read_trainer_state, verify_checkpoint_files
from ledger.dataset.manifest import METADATA_NAME, NOTES_NAME
from ledger.dataset.verify import verify_dataset
from ledger.errors import EvidenceMissingError, LedgerError
from ledger.recorder.opening import open_run
from ledger.records.documents import Evaluation, Seal, Verdict
from ledger.records.layout import LOCK, LOG, RUN, SEAL, WAIVERS
from ledger.records.pilot import StageRecord
from ledger.records.waivers import Waivers
from ledger.report.page import page
from ledger.storage.atomic import is_temporary_name
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import document_bytes, parse_document
from tests.support.faults import LogWatch, Snapshot

OLDER_REPORT: Final = page("older", tool_version="0")
NEWER_REPORT: Final = page("newer", tool_version="0")
REPLACED: Final = frozenset({LOCK, RUN, LOG, WAIVERS, "verdict.json"})
"""Files that a writer may change; everything else stays as it was written."""


def check_run(run: Path, before: Snapshot, watch: LogWatch, promised: list[Path]) -> list[str]:
    """Check a run folder: the log, every document, what was there before, what was promised, the audit."""
    after = Snapshot.of(run)
    return [
        *check_log(before, after, watch),
        *check_kept(before, after),
        *(f"lost: {path.name}" for path in promised if not path.exists()),
        *check_documents(run, before, after),
        *check_audit(run, after),
    ]


def check_log(before: Snapshot, after: Snapshot, watch: LogWatch) -> Iterator[str]:
    """The log is what was there, then what was acknowledged, then at most a part of one further line."""
    intact, torn = _split_tail(before.log)
    log = after.log
    if not log.startswith(intact):
        yield "lost: lines that were there before"
        return
    rest = log[len(intact) :]
    copies = [data for path, data in after.items() if path.startswith("quarantine/") and data == torn]
    if torn and rest == torn and not watch.acknowledged:
        return
    if watch.is_tail_free:  # what a power cut leaves behind the last newline may be anything
        rest = _split_tail(rest)[0]
    if torn and not copies:
        yield "lost: a torn tail was cut off without a copy"
    if not rest.startswith(watch.acknowledged):
        yield f"lost: {len(watch.acknowledged)} bytes were acknowledged, {len(rest)} others are there"
    elif not watch.attempted.startswith(rest):
        yield f"the log holds bytes that nobody wrote: {rest[len(watch.acknowledged) :][:80]!r}"


def _split_tail(log: bytes) -> tuple[bytes, bytes]:
    end = log.rfind(b"\n") + 1
    return log[:end], log[end:]


def check_kept(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Nothing that was there was deleted or changed, but what the log says goes."""
    pruned = tuple(_pruned(after.log))
    for path, data in before.items():
        if any(is_temporary_name(part) for part in Path(path).parts):
            continue
        if path not in after and f"{path}/".startswith(pruned):
            continue
        if path not in after:
            yield f"lost: {path}"
        elif data is not None and path not in REPLACED and after[path] != data:
            yield f"lost: the content of {path}"


def _pruned(log: bytes) -> Iterator[str]:
    for line in log[: log.rfind(b"\n") + 1].splitlines():
        if line.startswith(b'{"event":"pruned"'):
            yield f"{json.loads(line)['path']}/"


def check_documents(run: Path, before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Every document is old or new, never half, and nothing unknown lies about."""
    for path, data in after.items():
        parts = Path(path).parts
        if any(is_temporary_name(part) for part in parts) or path in (LOCK, LOG):
            continue
        try:
            if data is not None:
                _check_document(run, path, data, before)
            elif len(parts) == 2 and parts[0] == "checkpoints":
                _check_checkpoint(run / path)
        except (LedgerError, AssertionError) as error:
            yield f"{path}: {error}"


def _check_document(run: Path, path: str, data: bytes, before: Snapshot) -> None:
    kind, name = Path(path).parts[0], Path(path).name
    if path == RUN:
        document = open_run(run).history.run_document()
        rebuilt = None if document is None else document_bytes(document)
        assert data in (before.get(RUN), rebuilt), "is neither the old one nor what the log says"
    elif kind in ("recipes", "environments"):
        assert sha256_hex(data) == Path(path).stem, "has another digest than its name"
    elif kind == "evaluations":
        parse_document(data, Evaluation)
    elif path == "verdict.json":
        parse_document(data, Verdict)
    elif path == WAIVERS:
        assert len(parse_document(data, Waivers).waivers) in (1, 2)
    elif path == SEAL:
        parse_document(data, Seal)
    elif kind == "quarantine":
        assert sha256_hex(data).startswith(name.rsplit("-", 1)[1][:16]), "is not the tail that it names"
    else:
        assert kind in ("checkpoints", "exports", "parent"), "is an unknown file"


def _check_checkpoint(folder: Path) -> None:
    checkpoint = read_checkpoint(folder)
    verify_checkpoint_files(checkpoint)
    read_trainer_state(checkpoint)


def check_audit(run: Path, after: Snapshot) -> Iterator[str]:
    """An audit says nothing worse than that something is missing, and changes no byte."""
    if not run.exists():
        return
    try:
        verdict = reconcile(run)
    except EvidenceMissingError as error:
        if set(after) - {name for name in after if is_temporary_name(name)}:
            yield f"the audit refuses what a crash left: {error}"
    else:
        if verdict.verdict == "failed":
            yield f"the audit fails: {_errors(verdict)}"
    if Snapshot.of(run) != after:
        yield "the audit changed the run"


def _errors(verdict: Verdict) -> str:
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    return "; ".join(f"{found.rule} {found.where}: {found.message}" for found in errors)


def check_passed(run: Path, *, rehash: bool = True) -> list[str]:
    """Check a run that reached its target: it passes; with `rehash`, dataset and checkpoints byte for byte."""
    verdict = reconcile(run, rehash=rehash)
    if verdict.verdict == "passed":
        return []
    found = [f"{finding.rule} {finding.where}: {finding.message}" for finding in verdict.findings]
    return [f"recovered, it does not pass ({verdict.verdict}): {found}"]


def check_dataset(work: Path, before: Snapshot, _watch: LogWatch, promised: list[Path]) -> list[str]:
    """Check a folder in which a dataset is prepared: under its name is a whole one or none."""
    del before
    problems = [f"lost: {path.name}" for path in promised if not path.exists()]
    names = (
        [path.name for path in work.iterdir() if not is_temporary_name(path.name)] if work.exists() else []
    )
    problems += [f"{name} lies about" for name in names if name != "data"]
    return problems + (_dataset_problems(work / "data") if "data" in names else [])


def _dataset_problems(dataset: Path) -> list[str]:
    try:
        return [f"the dataset is not whole: {error}" for error in verify_dataset(dataset).errors]
    except LedgerError as error:
        return [f"the dataset is not whole: {error}"]


def check_same_dataset(place: Path, control: Path) -> list[str]:
    """Check a dataset that was prepared again: byte for byte the control, and nothing is left over."""
    found, wanted = (Snapshot.of(folder / "work") for folder in (place, control))
    for snapshot in (found, wanted):
        snapshot.pop(f"data/{NOTES_NAME}")  # what belongs to the clock
    assert f"data/{METADATA_NAME}" in wanted
    return [] if found == wanted else [f"prepared again, it differs: {sorted(set(found) ^ set(wanted))}"]


def check_stage(pilot: Path, before: Snapshot, _watch: LogWatch, promised: list[Path]) -> list[str]:
    """Check a pilot's folder: a stage's record is whole or absent."""
    del before
    problems = [f"lost: {path.name}" for path in promised if not path.exists()]
    for path in pilot.glob("stage-*/stage.json"):
        try:
            parse_document(path.read_bytes(), StageRecord)
        except LedgerError as error:
            problems.append(f"the record is half: {error}")
    return problems


def check_stage_done(place: Path, control: Path) -> list[str]:
    """Check a stage that was recorded at last: it is the control's."""
    found, wanted = (next(folder.glob("pilot/stage-*/stage.json"), None) for folder in (place, control))
    is_same = found is not None and wanted is not None and found.read_bytes() == wanted.read_bytes()
    return [] if is_same else ["another record"]


def check_sealed(place: Path, _control: Path) -> list[str]:
    """Check a run that was sealed at last: the seal is there and holds."""
    verdict = reconcile(place / "run", rehash=True)
    found = [f"{finding.rule} {finding.where}: {finding.message}" for finding in verdict.findings]
    return found if "LG705" in verdict.checked else [*found, "it is not sealed"]


def check_attestation(work: Path, before: Snapshot, _watch: LogWatch, promised: list[Path]) -> list[str]:
    """Check a folder with a sealed run in it: nothing of the run changed, its attestation is whole or absent."""
    others = {name for name in Snapshot.of(work) if not is_temporary_name(name)} - set(before)
    problems = [f"{name} lies about" for name in sorted(others - {"run.attestation.json"})]
    problems += [f"lost: {path.name}" for path in promised if not path.exists()]
    return [
        *problems,
        *(check_attested(work.parent, work) if (work / "run.attestation.json").exists() else []),
    ]


def check_attested(place: Path, _control: Path) -> list[str]:
    """Check a run that was attested at last: the attestation is about it, and the seal holds."""
    work = place / "work"
    verdict = verify_attestation(read_attestation(work / "run.attestation.json"))
    attested = [] if "attested files" not in verdict.not_checked else ["it was compared with nothing"]
    left = reconcile(work / "run", rehash=True)
    return [*attested, *(f"{finding.rule} {finding.where}: {finding.message}" for finding in left.findings)]


def check_weights(out: Path, before: Snapshot, _watch: LogWatch, promised: list[Path]) -> list[str]:
    """Check a folder into which weights are copied: under their name are whole ones or none."""
    del before
    problems = [f"lost: {path.name}" for path in promised if not path.exists()]
    path = out / "model.safetensors"
    whole = out.parent / "run" / "checkpoints" / "step-00000002-s01" / path.name
    if path.exists() and path.read_bytes() != whole.read_bytes():
        problems.append("the weights are half")
    return problems


def check_report(reports: Path, before: Snapshot, _watch: LogWatch, promised: list[Path]) -> list[str]:
    """Check a folder with a report in it: it is the older one or the newer one, whole."""
    found = (reports / "report.html").read_text(encoding="utf-8")
    others = {name for name in Snapshot.of(reports) if not is_temporary_name(name)} - set(before)
    problems = [f"{name} lies about" for name in sorted(others)]
    if promised and found != NEWER_REPORT:
        problems.append("lost: the newer report")
    return problems if found in (OLDER_REPORT, NEWER_REPORT) else [*problems, "the report is half"]


def check_newer_report(place: Path, _control: Path) -> list[str]:
    """Check a report that was written at last."""
    found = (place / "reports" / "report.html").read_text(encoding="utf-8")
    return [] if found == NEWER_REPORT else ["the report is not the newer one"]
