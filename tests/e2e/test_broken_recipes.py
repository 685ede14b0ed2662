"""Recipes that are broken on purpose: each trips a gate, and what is printed says why. A sound one trips none."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from data_prep.pipeline import prepare
from ledger.audit import reconcile
from ledger.cli import main
from ledger.dataset.leakage import leaked_share
from ledger.dataset.manifest import open_dataset
from ledger.errors import LedgerError, VerificationError
from ledger.pilot.gates import gate_notes, judge
from ledger.pilot.measure import measure_run
from ledger.pilot.metrics import Evidence
from tests.data_prep.corpus import configure
from tests.e2e.small_pilot import write_small_pilot
from tests.trainer.tiny import StopAfter
from trainer import session
from trainer.config import TrainerConfig
from trainer.loop import Training, fit
from trainer.session import Request, run_session
from trainer.signals import StopRequest

pytestmark = pytest.mark.slow

WORDS = "the run was kept in a ledger and every step that counted had been made by one model again".split()
RECIPE: dict[str, dict[str, Any]] = {
    "run": {"name": "long", "purpose": "stability", "target_step": 100, "seed": 3},
    "batch": {"micro_batch": 8, "sequence": 32, "accumulation": 1},
    "model": {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "hidden": 64},
    "optimizer": {"learning_rate": 5e-3},
    "schedule": {"name": "constant", "warmup_steps": 8},
    "logging": {"interval": 1},
    "evaluation": {"interval": None, "batches": 4, "micro_batch": 8},
    "checkpoint": {"policy": "final"},
    "machine": {"device": "cpu", "threads": 1},
}
UNSTEADY = {"throughput_ratio": None, "checkpoint_share": None, "data_wait_share": None}
"""What a machine under load decides, not the recipe."""


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def texts(count: int) -> list[str]:
    """A little language in which a word follows from the one before."""
    choose = random.Random(0)
    follows = {
        word: [WORDS[(7 * at + 5 * other) % len(WORDS)] for other in range(3)]
        for at, word in enumerate(WORDS)
    }
    found = []
    for _ in range(count):
        words = [choose.choice(WORDS)]
        for _ in range(choose.randint(10, 60)):
            words += choose.choices(follows[words[-1]], [6, 3, 1])
        found.append(" ".join(words))
    return found


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    written = [json.dumps({"text": text}) + "\n" for text in texts(2_000)]
    (folder / "corpus.jsonl").write_text("".join(written), encoding="utf-8")
    (folder / "leak.jsonl").write_text("".join(written[::20]), encoding="utf-8")
    plain = configure(folder / "corpus.jsonl", tokenizer__vocabulary=300, split__validation_fraction=0.05)
    prepare(plain, output=folder / "data")
    leaking = {"kind": "jsonl", "files": [str(folder / "leak.jsonl")]}
    prepare(
        plain.model_copy(update={"validation_source": type(plain.source).model_validate(leaking)}),
        output=folder / "leaking",
    )
    return folder


def config_of(data: Path, **changes: dict[str, Any]) -> TrainerConfig:
    values = {name: {**section} for name, section in RECIPE.items()} | {"data": {"path": str(data)}}
    for name, section in changes.items():
        is_another_kind = "name" in section and name != "run"
        values[name] = section if is_another_kind else values.get(name, {}) | section
    return TrainerConfig.model_validate(values)


def train(
    config: TrainerConfig, run: Path, *, resume: str | None = None, stop: StopRequest | None = None
) -> None:
    """Train one session; what the recipe brings to an end is evidence."""
    request = Request(config=config, run_dir=run, resume=resume, argv=("test",))
    try:
        run_session(request, console=Console(quiet=True, stderr=True), stop=stop or StopRequest())
    except VerificationError:
        raise
    except LedgerError:
        pass


def judged(run: Path) -> tuple[set[str], str]:
    """Return the metrics of the gates that a stability run misses, and what is printed."""
    evidence = Evidence(run=measure_run(run), verdict=reconcile(run))
    gates = judge("stability", UNSTEADY, evidence)
    return {gate.metric for gate in gates if not gate.passed}, "\n".join(gate_notes("stability", gates))


def test_a_sound_recipe_trips_nothing(corpus: Path, tmp_path: Path):
    train(config_of(corpus / "data"), tmp_path / "run")
    missed, said = judged(tmp_path / "run")
    assert missed == set(), said


def test_a_learning_rate_thirty_times_too_high(corpus: Path, tmp_path: Path):
    train(config_of(corpus / "data", optimizer={"learning_rate": 0.15}), tmp_path / "run")
    missed, said = judged(tmp_path / "run")
    assert "spike_share" in missed, said
    assert "spikes that repeat are the recipe, not an odd batch: a learning rate that is too high" in said


def test_a_weight_decay_that_only_a_long_run_would_show(corpus: Path, tmp_path: Path):
    changes = {"optimizer": RECIPE["optimizer"] | {"weight_decay": 10.0}, "run": {"target_step": 4}}
    train(config_of(corpus / "data", **changes), tmp_path / "run")
    missed, said = judged(tmp_path / "run")
    assert "decay_per_update" in missed, said
    assert not missed & {"moment_ratio", "warmup_share"}, said
    assert "lower optimizer.weight_decay" in said


def test_fp16_without_warm_up_and_with_a_huge_loss_scale(corpus: Path, tmp_path: Path):
    schedule = {"name": "constant", "warmup_steps": 0}
    precision = {"name": "fp16", "initial_scale": 2.0**40}
    train(config_of(corpus / "data", precision=precision, schedule=schedule), tmp_path / "run")
    missed, said = judged(tmp_path / "run")
    assert {"ended", "skipped_share"} <= missed
    assert "8 attempts in a row were skipped, the last one for overflow" in said
    assert "an initial loss scale that is too large" in said


def test_a_whole_pilot_of_a_broken_recipe_ends_with_no_go(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = write_small_pilot(tmp_path)
    broken = ("precision={name: fp16, initial_scale: 1099511627776}", "schedule.warmup_steps=0")
    asked = [part for text in broken for part in ("--set", text)]
    assert main(["pilot", str(config), "--output", str(tmp_path / "out"), *asked]) == 1
    said = capsys.readouterr().out
    assert (
        "LG901 error: smoke: ended is failed: TrainingFailedError: after step 0: 8 attempts in a row" in said
    )
    assert "the last lines of output.log say more" in said
    assert " error: smoke/run: " in said or " missing: smoke/run: " in said
    assert "NO-GO" in said
    assert "overfit" in said  # as one that was not run
    assert f"what failed stays as evidence in {tmp_path / 'out'}/smoke-" in said
    assert main(["freeze", str(tmp_path / "out"), "-o", str(tmp_path / "lock.json")]) == 1
    assert "the pilot failed in smoke" in capsys.readouterr().err
    assert not (tmp_path / "lock.json").exists()


def test_an_evaluation_that_leaks_training_text(corpus: Path):
    shares = {}
    for name in ("data", "leaking"):
        dataset = open_dataset(corpus / name)
        shares[name] = leaked_share(dataset.split("validation"), [dataset.split("train")])
    found = {}
    for name, share in shares.items():
        measured = {"validation_loss": 1.0, "validation_gap": 0.0, "held_out_updates": 2.0}
        evidence = Evidence(others={**measured, "leaked_share": share})
        found[name] = judge("validate", None, evidence)
    assert all(gate.passed for gate in found["data"]), shares
    (missed,) = [gate for gate in found["leaking"] if not gate.passed]
    assert missed.metric == "leaked_share"
    assert float(missed.measured or 0) > 0.5  # blocks at the border of two documents are not found
    (said,) = gate_notes("validate", found["leaking"])
    assert "held-out text is trained on: prepare the dataset again" in said


RESUMED: dict[str, dict[str, Any]] = {
    "precision": {"name": "fp16", "initial_scale": 1024.0, "growth_interval": 3},
    "logging": {"interval": 1, "evidence": True},
    "run": {"target_step": 10, "purpose": "resume"},
}


def forget_scaler(training: Training) -> Any:
    """Train as usual, but for a loss scale that begins anew when a run goes on."""
    if training.recorder.session > 1:
        training.state.scaler.restore({"scale": 1024.0, "growth_tracker": 0})
    return fit(training)


def test_a_resume_that_forgets_the_scaler(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    config = config_of(corpus / "data", **RESUMED)
    train(config, tmp_path / "control")
    monkeypatch.setattr(session, "fit", forget_scaler)
    train(config, tmp_path / "run", stop=StopAfter(attempts=5))
    train(config, tmp_path / "run", resume="auto")
    verdict = reconcile(tmp_path / "run", control=tmp_path / "control")
    gates = judge("resume", None, Evidence(run=measure_run(tmp_path / "run"), verdict=verdict))
    assert "same_loss" in {gate.metric for gate in gates if not gate.passed}
    said = "\n".join(gate_notes("resume", gates))
    assert "the schedule or the loss scale were not restored" in said
    assert any(found.rule == "LG209" for found in verdict.findings)
