"""A passed pilot made by hand: one stage, stability, whose run is real. Seconds would be long for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledger import __version__
from ledger.audit import reconcile
from ledger.maintain import write_verdict
from ledger.pilot import recheck
from ledger.pilot.freeze import freeze_pilot
from ledger.pilot.gates import DEFAULT_GATES, GateBound, judge
from ledger.pilot.measure import measure_run
from ledger.pilot.metrics import Evidence
from ledger.recipes import identity_sha256
from ledger.records.locks import RecipeLock
from ledger.records.parts import DataIdentities
from ledger.records.pilot import PilotRecord, PilotStage, StageRecord, StageRun
from ledger.storage.documents import document_sha256, write_document
from tests.trainer.tiny import tiny_config, train
from trainer.config import TrainerConfig
from trainer.recipe import complete_config, fix_end, parts_of, recipe_of
from trainer.sources import open_sources

TARGET = 6
"""Updates of the long run; the pilot's make do with fewer."""
STAGE = "stability-0123456789abcdef"


def long_config(dataset: Path, **sections: dict) -> TrainerConfig:
    """Return the long run's configuration."""
    run = {"target_step": TARGET, "name": "long", "purpose": "full"} | sections.pop("run", {})
    sections = {"checkpoint": {"policy": "interval", "interval": 3}, **sections}
    return tiny_config(dataset, run=run, **sections)


def resolved(config: TrainerConfig) -> TrainerConfig:
    """Return it with what its data decides."""
    sources = open_sources(config.data)
    return fix_end(complete_config(config, sources.main, mix=sources.sources))


def rehearse(root: Path, dataset: Path) -> Path:
    """Train the stage and write the records of a passed pilot."""
    config = resolved(long_config(dataset))
    recipe, run = recipe_of(config), root / STAGE / "run"
    run.parent.mkdir(parents=True)
    shorter = {"run": config.run.model_copy(update={"target_step": 4, "purpose": "stability"})}
    train(config.model_copy(update=shorter), run)
    verdict = reconcile(run, rehash=True)
    assert verdict.verdict == "passed", verdict.findings
    write_verdict(run, verdict)
    assert verdict.run_id is not None
    assert verdict.log_head is not None
    asked = {**dict.fromkeys(DEFAULT_GATES["stability"]), "final_loss": GateBound(max=9.0)}
    gates = judge("stability", asked, Evidence(run=measure_run(run), verdict=verdict))
    assert all(gate.passed for gate in gates), gates
    record = StageRecord(
        stage="stability",
        fingerprint="0" * 64,
        inputs={},
        parts={},
        files=[],
        runs=[
            StageRun(
                path="run",
                run_id=verdict.run_id,
                purpose="stability",
                log_head=verdict.log_head,
                identity_sha256=identity_sha256(recipe),
                verdict=verdict.verdict,
                verdict_sha256=document_sha256(verdict),
            )
        ],
        gates=gates,
        passed=True,
    )
    write_document(root / STAGE / "stage.json", record, replace=False)
    data = open_sources(config.data)
    pilot = PilotRecord(
        tool_version=__version__,
        created="2026-01-01T00:00:00.000000Z",
        name="tiny",
        config=recipe.config,
        classes=recipe.classes,
        identity_sha256=identity_sha256(recipe),
        parts=parts_of(config),
        target_step=TARGET,
        tokens_per_update=config.tokens_per_update,
        planned_tokens=TARGET * config.tokens_per_update,
        data=DataIdentities(train=data.identity, validation=data.main.metadata_sha256),
        stages=[PilotStage(stage="stability", folder=STAGE, fingerprint="0" * 64, passed=True)],
        passed=True,
    )
    write_document(root / "pilot.json", pilot, replace=False)
    return root


def frozen(root: Path) -> RecipeLock:
    """Return the lock of it."""
    with one_stage_is_a_pilot():
        return freeze_pilot(root, per_day=1.0)


@contextmanager
def one_stage_is_a_pilot() -> Iterator[None]:
    """Let a pilot be whole that has the stage stability alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recheck, "STAGES", ("stability",))
        yield
