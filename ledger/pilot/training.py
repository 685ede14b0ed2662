"""The stages that train: a run of the trainer to its target, and one that is killed in the middle and goes on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from ledger.audit import reconcile
from ledger.errors import EvidenceMissingError, VerificationError
from ledger.history import Session
from ledger.pilot.fingerprint import Fingerprint
from ledger.pilot.gates import GateBound, GateBounds
from ledger.pilot.measure import measure_run
from ledger.pilot.metrics import Evidence
from ledger.pilot.processes import (
    StageProcessError,
    last_logged_step,
    planned_steps,
    run_module,
    run_until_step,
)
from ledger.pilot.stage import Found, Place, Stage
from ledger.records.documents import Verdict
from ledger.records.events import Overflow, SessionEnd, SessionStart
from ledger.records.fields import Json
from ledger.records.layout import LOG
from ledger.records.pilot import StageRun
from ledger.storage.atomic import replace_file
from ledger.storage.canonical import canonical_json
from ledger.storage.documents import document_sha256
from ledger.storage.filesystem import OS
from ledger.storage.lock import lock_state
from ledger.storage.log import read_log

__all__ = ["Branching", "Resume", "Training", "final_checkpoint", "stage_run"]

RUN: Final = "run"
CONTROL: Final = "control"
RECIPE: Final = "recipe.json"

SURVIVOR_SECONDS: Final = 0.2
"""How often it is looked whether a run that nobody watches any more has ended."""

_DAMAGE: Final = ("LG1", "LG402", "LG502", "LG503", "LG601")
"""Beginnings of the rules by which bytes are not what was recorded. All others speak of what the run did."""


@dataclass(frozen=True, kw_only=True)
class Branching:
    """Where a run begins that branches from the checkpoint that `validate` measured."""

    checkpoint: Path
    mode: str


class Training(Stage):
    """A run to its target."""

    built_in: ClassVar[Mapping[str, GateBound]] = {
        "reconciled": GateBound(equal="passed", reason="what cannot be audited is no evidence")
    }

    def __init__(
        self,
        fingerprint: Fingerprint,
        place: Place,
        *,
        asked: GateBounds,
        recipe: Mapping[str, Json],
        data: Path | None,
        branching: Branching | None = None,
    ) -> None:
        """Say what is trained.

        Args:
            fingerprint: what decides the result.
            place: where, and who is told.
            asked: bounds of gates.
            recipe: the complete configuration of the run.
            data: where the dataset lies now; None where the run's own recipe says it.
            branching: where the run begins; None: at nothing.
        """
        super().__init__(fingerprint, place, asked=asked)
        self._recipe = recipe
        self._data = data
        self._branching = branching
        self.run_dir = self.folder / RUN

    def build(self) -> None:
        """Train to the target, from where the records stand."""
        self._write_recipe()
        self._train(self.run_dir)

    def inspect(self) -> Found:
        """Audit every byte of the run."""
        self.say("reconciling")
        verdict = self._audit(self.run_dir)
        run = stage_run(self.run_dir, verdict=verdict)
        evidence = Evidence(run=measure_run(self.run_dir), verdict=verdict)
        return Found(evidence=evidence, runs=[run], verdicts={RUN: verdict})

    def _write_recipe(self) -> None:
        replace_file(self.folder / RECIPE, canonical_json(dict(self._recipe)))

    def _train(self, run_dir: Path) -> None:
        """Train one run; what the recipe itself brought to its end is evidence, not an error."""
        if ended_by_its_recipe(run_dir):
            return
        try:
            run_module(
                "trainer",
                self._arguments(run_dir),
                log=self.output,
                watch=lambda: self._say_how_far(run_dir),
                waiting=lambda note: self.say("waiting", note=note),
            )
        except StageProcessError:
            if not ended_by_its_recipe(run_dir):
                raise

    def _arguments(self, run_dir: Path) -> list[str]:
        start = ["--resume", "auto"]
        if self._branching is not None:
            start += ["--branch", str(self._branching.checkpoint), "--mode", self._branching.mode]
        return ["train", "--config", str(self.folder / RECIPE), "--run", str(run_dir), *start]

    def _say_how_far(self, run_dir: Path) -> None:
        target = planned_steps(run_dir)
        if target is None:
            self.say("loading", run_dir)
        else:
            self.say("training" if last_logged_step(run_dir) < target else "evaluating", run_dir)

    def _audit(self, run_dir: Path, *, control: Path | None = None) -> Verdict:
        verdict = reconcile(run_dir, rehash=True, control=control, data=self._data)
        for finding in verdict.findings:
            if finding.severity == "error" and finding.waiver is None and finding.rule.startswith(_DAMAGE):
                raise VerificationError(
                    f"{finding.rule}: {finding.message}", path=run_dir, place=finding.where
                )
        return verdict


class Resume(Training):
    """A run is killed in mid-training, goes on in a new process, and is compared with one that never stopped."""

    built_in: ClassVar[Mapping[str, GateBound]] = {
        **Training.built_in,
        "control_reconciled": GateBound(equal="passed", reason="what it is compared with is sound"),
    }

    def __init__(
        self,
        fingerprint: Fingerprint,
        place: Place,
        *,
        asked: GateBounds,
        recipe: Mapping[str, Json],
        data: Path | None,
        kill_after_step: int,
    ) -> None:
        super().__init__(fingerprint, place, asked=asked, recipe=recipe, data=data)
        self._kill_after_step = kill_after_step
        self.control_dir = self.folder / CONTROL

    def build(self) -> None:
        """Kill a run in its middle and let it go on; train the control."""
        self._write_recipe()
        self._wait_for_survivor()
        sessions = _sessions(self.run_dir)
        if sessions and all(session.end is not None for session in sessions):
            # A pilot that was killed itself could not kill it. It is just what a control is.
            self._set_aside(self.run_dir)
        if not _sessions(self.run_dir):
            run_until_step(
                "trainer",
                self._arguments(self.run_dir),
                run_dir=self.run_dir,
                step=self._kill_after_step,
                log=self.output,
                watch=lambda: self._say_how_far(self.run_dir),
            )
        self._train(self.run_dir)
        self._train(self.control_dir)

    def inspect(self) -> Found:
        """Audit every byte of both runs and compare them."""
        self.say("reconciling")
        alone = self._audit(self.control_dir)
        compared = self._audit(self.run_dir, control=self.control_dir)
        runs = [
            stage_run(self.run_dir, verdict=compared),
            stage_run(self.control_dir, verdict=alone),
        ]
        evidence = Evidence(
            run=measure_run(self.run_dir), verdict=compared, others={"control_reconciled": alone.verdict}
        )
        return Found(evidence=evidence, runs=runs, verdicts={RUN: compared, CONTROL: alone})

    def _wait_for_survivor(self) -> None:
        """Wait until the run that a killed pilot left training has ended."""
        while OS.exists(self.run_dir) and (found := lock_state(self.run_dir)).state == "held":
            self.say("waiting", note=f"{found.holder or 'another process'} trains in {self.run_dir}")
            time.sleep(SURVIVOR_SECONDS)

    def _set_aside(self, run_dir: Path) -> None:
        number = 1
        target = self.control_dir
        while OS.exists(target):
            target, number = run_dir.with_name(f"spare-{number}"), number + 1
        OS.rename(run_dir, target)
        OS.sync_directory(run_dir.parent)


def final_checkpoint(run_dir: Path) -> Path:
    """Return the folder of the checkpoint at the end of a finished run.

    Raises:
        EvidenceMissingError: the run keeps none.
    """
    history = measure_run(run_dir).history
    kept = [known for known in history.checkpoints() if known.kind == "final" and history.is_on_branch(known)]
    if not kept:
        raise EvidenceMissingError(
            "holds no final checkpoint, which validate measures",
            path=run_dir,
            advice="give pilot.stability.recipe a checkpoint policy other than none",
        )
    return run_dir / max(kept, key=lambda known: known.counters.microbatches).path


def stage_run(run_dir: Path, *, verdict: Verdict) -> StageRun:
    """Return a run as the stage's record names it.

    Raises:
        VerificationError: it holds no session.
    """
    found = measure_run(run_dir)
    sessions = found.history.sessions
    facts = sessions[0].start.run if sessions else None
    if facts is None or found.head is None:
        raise VerificationError("holds no session", path=run_dir / LOG)
    start = sessions[-1].start
    return StageRun(
        path=run_dir.name,
        run_id=start.run_id,
        purpose=facts.purpose,
        log_head=found.head,
        identity_sha256=start.identity_sha256,
        verdict=verdict.verdict,
        verdict_sha256=document_sha256(verdict),
    )


def _sessions(run_dir: Path) -> list[Session]:
    return measure_run(run_dir).history.sessions if OS.exists(run_dir / LOG) else []


def ended_by_its_recipe(run_dir: Path) -> bool:
    """Tell whether a run failed because attempts were skipped until the trainer gave up: no crash, but evidence."""
    skipped_at, failed_at = 0, None
    for line in read_log(run_dir / LOG) if OS.exists(run_dir / LOG) else ():
        if isinstance(line.event, SessionStart):
            failed_at = None
        elif isinstance(line.event, Overflow):
            skipped_at = line.event.attempts
        elif isinstance(line.event, SessionEnd):
            failed_at = line.event.attempts if line.event.status == "failed" else None
    return failed_at is not None and 0 < skipped_at == failed_at
