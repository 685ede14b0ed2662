"""The stages of a pilot in their order: what each runs, and what its records must show."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ledger.audit import reconcile
from ledger.dataset.manifest import METADATA_NAME, open_dataset
from ledger.dataset.verify import verify_dataset
from ledger.errors import VerificationError
from ledger.pilot.config import (
    AcceptanceStage,
    OverfitStage,
    PilotConfig,
    PrepareStage,
    ResumeStage,
    StabilityStage,
    TrainingStage,
)
from ledger.pilot.measure import RunMeasurements, measure_run
from ledger.pilot.processes import run_module, run_until_step
from ledger.pilot.stage import Evidence, Stage, StageSettings, gate_at_least, gate_at_most, gate_equal
from ledger.records.documents import Verdict
from ledger.records.fields import is_finite
from ledger.records.layout import LOG
from ledger.records.pilot import Gate, StageFile, StageRun
from ledger.storage.digests import hash_file
from ledger.storage.documents import document_sha256
from ledger.storage.filesystem import OS

__all__ = ["make_stages"]


def make_stages(config: PilotConfig, settings: StageSettings) -> list[Stage]:
    """Return the pilot's stages in the order in which they run."""
    return [
        Prepare(settings, config.prepare),
        Overfit(settings, config.overfit),
        Acceptance(settings, config.acceptance),
        Stability(settings, config.stability),
        Resume(settings, config.resume),
    ]


EQUIVALENCE: Final = {
    "LG801": "same_start",
    "LG802": "same_data",
    "LG803": "same_loss",
    "LG804": "same_parameters",
}
"""Rule that compares a resumed run with its control → the gate that shows what it found."""


class Prepare(Stage):
    """Prepare the corpus, or verify every byte of the one that is there."""

    def __init__(self, settings: StageSettings, config: PrepareStage) -> None:
        super().__init__("prepare", settings)
        self._config = config

    @property
    def configs(self) -> Sequence[str]:
        return self._config.configs

    def build(self) -> None:
        arguments = ["prepare", *self.config_arguments(), "--output", str(self.settings.dataset)]
        run_module(
            "data_prep", arguments, log=self.output, watch=lambda: self.settings.report(self.name, None)
        )

    def inspect(self) -> Evidence:
        dataset = open_dataset(self.settings.dataset)
        for problem in verify_dataset(self.settings.dataset).errors:
            raise problem.error
        gates = [
            gate_at_least(f"{name}_tokens", dataset.split(name).tokens, least=1)
            for name in ("train", "validation")
        ]
        digest = hash_file(self.settings.dataset / METADATA_NAME).sha256
        return Evidence(
            gates=gates, files=[StageFile(path=f"dataset/{METADATA_NAME}", sha256=digest)], runs=[]
        )


class Training(Stage):
    """What every stage that trains does: train to the target, reconcile, measure."""

    def __init__(self, name: str, settings: StageSettings, config: TrainingStage) -> None:
        super().__init__(name, settings)
        self._training = config
        self.run_dir = self.folder / "run"

    @property
    def configs(self) -> Sequence[str]:
        return self._training.configs

    def build(self) -> None:
        self.train(self.run_dir)

    def train_arguments(self, run_dir: Path) -> list[str]:
        """Return the trainer's command line for one run folder."""
        data = f"data.path={self.settings.dataset.absolute()}"
        return ["train", *self.config_arguments(), "--set", data, "--run", str(run_dir), "--resume", "auto"]

    def train(self, run_dir: Path) -> None:
        """Train a run to its target, from where its records stand."""
        run_module(
            "trainer",
            self.train_arguments(run_dir),
            log=self.output,
            watch=lambda: self.settings.report(self.name, run_dir),
        )

    def inspect(self) -> Evidence:
        verdict = reconcile(self.run_dir, rehash=True)
        found = measure_run(self.run_dir)
        gates = [_reconciled(verdict), *self.gates(found)]
        return Evidence(gates=gates, files=[], runs=[_stage_run(self.run_dir, found, verdict)])

    @abstractmethod
    def gates(self, found: RunMeasurements) -> list[Gate]:
        """Return the stage's own gates."""


class Overfit(Training):
    """A small repeated source must be learned almost by heart."""

    def __init__(self, settings: StageSettings, config: OverfitStage) -> None:
        super().__init__("overfit", settings, config)
        self._config = config

    def gates(self, found: RunMeasurements) -> list[Gate]:
        return [gate_at_most("final_loss", found.final_loss, most=self._config.max_final_loss)]


class Acceptance(Training):
    """The full geometry on a repeated batch, with evaluation and checkpoint."""

    def __init__(self, settings: StageSettings, config: AcceptanceStage) -> None:
        super().__init__("acceptance", settings, config)
        self._config = config

    def gates(self, found: RunMeasurements) -> list[Gate]:
        loss = found.complete_loss
        return [
            gate_at_least("checkpoints", found.checkpoints_on_branch(), least=self._config.min_checkpoints),
            gate_at_least("evaluations", found.evaluations, least=self._config.min_evaluations),
            Gate(metric="validation_loss", asked="finite", measured=loss, passed=is_finite(loss)),
        ]


class Stability(Training):
    """Successive batches: the loss falls and attempts succeed."""

    def __init__(self, settings: StageSettings, config: StabilityStage) -> None:
        super().__init__("stability", settings, config)
        self._config = config

    def gates(self, found: RunMeasurements) -> list[Gate]:
        spent = found.history.spent()
        share = spent.skipped / spent.attempts if spent.attempts else None
        return [
            gate_at_least("loss_drop", found.loss_drop(), least=self._config.min_loss_drop),
            gate_at_most("skipped_share", share, most=self._config.max_skipped_share),
        ]


class Resume(Training):
    """A run is killed in mid-training, resumed in a new process, and compared with one that never stopped."""

    def __init__(self, settings: StageSettings, config: ResumeStage) -> None:
        super().__init__("resume", settings, config)
        self._config = config
        self.control_dir = self.folder / "control"

    def build(self) -> None:
        if not _was_started(self.run_dir):
            run_until_step(
                "trainer",
                self.train_arguments(self.run_dir),
                run_dir=self.run_dir,
                step=self._config.kill_after_step,
                log=self.output,
                watch=lambda: self.settings.report(self.name, self.run_dir),
            )
        self.train(self.run_dir)
        self.train(self.control_dir)

    def inspect(self) -> Evidence:
        found, control = measure_run(self.run_dir), measure_run(self.control_dir)
        alone = reconcile(self.control_dir, rehash=True)
        compared = reconcile(self.run_dir, rehash=True, control=self.control_dir)
        gates = [
            _reconciled(alone, metric="control_reconciled"),
            _reconciled(compared),
            *equivalence_gates(compared),
            *self.gates(found),
        ]
        runs = [_stage_run(self.run_dir, found, compared), _stage_run(self.control_dir, control, alone)]
        return Evidence(gates=gates, files=[], runs=runs)

    def gates(self, found: RunMeasurements) -> list[Gate]:
        return [
            gate_at_least("interruptions", len(found.interruptions()), least=1),
            gate_at_least("updates_redone", _updates_redone(found), least=1),
        ]


def equivalence_gates(verdict: Verdict) -> list[Gate]:
    """Return what the comparison of a resumed run with its control found, item by item: each must agree bit for bit."""
    found = verdict.account.get("equivalence")
    measured = found if isinstance(found, dict) else {}
    return [
        gate_equal(metric, str(measured.get(rule, "not compared")), asked="bitwise")
        for rule, metric in EQUIVALENCE.items()
    ]


def _was_started(run_dir: Path) -> bool:
    return OS.exists(run_dir / LOG) and bool(measure_run(run_dir).history.sessions)


def _updates_redone(found: RunMeasurements) -> int:
    return sum(session.start.superseded.updates for session in found.history.sessions)


def _reconciled(verdict: Verdict, *, metric: str = "reconciled") -> Gate:
    if verdict.verdict != "passed":
        finding = next((one for one in verdict.findings if one.severity in ("error", "missing")), None)
        if finding is not None:
            raise VerificationError(f"{finding.rule}: {finding.message}", place=finding.where)
    return gate_equal(metric, verdict.verdict, asked="passed")


def _stage_run(run_dir: Path, found: RunMeasurements, verdict: Verdict) -> StageRun:
    history = found.history
    facts = history.sessions[0].start.run if history.sessions else None
    if facts is None or found.head is None:
        raise VerificationError("holds no session", path=run_dir / LOG)
    start = history.sessions[-1].start
    return StageRun(
        path=run_dir.name,
        run_id=start.run_id,
        purpose=facts.purpose,
        log_head=found.head,
        identity_sha256=start.identity_sha256,
        verdict=verdict.verdict,
        verdict_sha256=document_sha256(verdict),
    )
