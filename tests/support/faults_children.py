"""What must be true of a run after a real process that wrote it ended anyhow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ledger.errors import LedgerError
from ledger.records.layout import LOG
from ledger.storage.log import read_log
from tests.support.faults import Snapshot
from tests.support.faults_checks import check_audit, check_documents, check_passed
from tests.support.faults_scenarios import finish_run


def check_child(place: Path, told: Sequence[Sequence[str]], *, is_power_cut: bool = False) -> list[str]:
    """Check the run in `place` against what its writer told, then resume it to its end.

    After a power cut only what was told to be synced must be there.
    """
    run = place / "run"
    problems = check_told(run, told, is_power_cut=is_power_cut)
    after = Snapshot.of(run)
    problems += [*check_documents(run, Snapshot(), after), *(check_audit(run, after) if run.exists() else [])]
    try:
        finish_run(place)
    except LedgerError as error:
        return [*problems, f"cannot be recovered: {error}"]
    return problems + check_passed(run)


def check_told(run: Path, told: Sequence[Sequence[str]], *, is_power_cut: bool = False) -> list[str]:
    """Check that acknowledged ≤ recovered ≤ attempted."""
    done = [(int(words[1]), words[2]) for words in told if words[0] == "done"]
    tried = [int(words[1]) for words in told if words[0] == "try"]
    kept = max((int(words[1]) for words in told if words[0] == "synced"), default=-1)
    lines = list(read_log(run / LOG)) if (run / LOG).exists() else []
    found = [(line.position.seq, line.chain) for line in lines if line.position]
    problems = [f"line {line.number}: {line.problem}" for line in lines if line.problem]
    needed = [entry for entry in done if entry[0] <= kept] if is_power_cut else done
    if found[: len(needed)] != needed:
        problems.append(f"lost: {len(needed)} events were acknowledged, {len(found)} are there")
    if told and len(found) > len(tried):
        problems.append(f"{len(found)} events are there, {len(tried)} were tried")
    return problems
