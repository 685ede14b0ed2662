"""`evaluate`: the answer that the training gives, from a checkpoint, without a session. And `export`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from ledger.audit import reconcile
from ledger.errors import EvidenceMissingError, RefusedError, UsageError, VerificationError
from ledger.records.documents import Evaluation
from ledger.storage.documents import read_document
from tests.trainer.records import evaluations, final_evaluation
from tests.trainer.tiny import StopAfter, tiny_config, train, write_dataset
from trainer.cli import main
from trainer.measuring import MeasureRequest, measure_checkpoint

CHECKPOINTS: dict[str, Any] = {"policy": "interval", "interval": 2}


@pytest.fixture
def run(dataset, tmp_path) -> Path:
    evaluation = {"interval": 2, "batches": 2}
    config = tiny_config(dataset, run={"target_step": 5}, evaluation=evaluation, checkpoint=CHECKPOINTS)
    train(config, tmp_path / "run")
    return tmp_path / "run"


def measure(subject: Path, **how: Any) -> Evaluation:
    return measure_checkpoint(MeasureRequest(subject=subject, **({"split": "validation"} | how))).evaluation


def type_in(*arguments: object) -> int:
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in arguments])
    return int(caught.value.code or 0)


def test_the_answers_are_those_of_the_training(run):
    log = (run / "metrics.jsonl").read_bytes()
    trained = final_evaluation(run)
    full = measure(run, is_full=True)
    assert (full.loss, full.metrics, full.tokens) == (trained.loss, trained.metrics, trained.tokens)
    assert (full.complete, full.manifest_sha256) == (True, trained.manifest_sha256)
    subset = measure(run / "checkpoints" / "step-00000002-s01")
    assert (2, subset.loss, False) in evaluations(run)
    assert (subset.complete, subset.step) == (False, 2)
    assert (run / "metrics.jsonl").read_bytes() == log
    assert reconcile(run).verdict == "passed"


def test_the_same_measurement_is_the_same_file(run):
    request = MeasureRequest(subject=run, split="validation")
    first, second = measure_checkpoint(request), measure_checkpoint(request)
    assert first.path == second.path
    assert first.path.parent == run / "evaluations"
    assert read_document(first.path, Evaluation) == first.evaluation
    assert (run / "environments" / f"{first.evaluation.environment_sha256}.json").exists()


def test_a_named_file_is_never_overwritten(run, tmp_path):
    measure(run, output=tmp_path / "found.json")
    content = (tmp_path / "found.json").read_bytes()
    with pytest.raises(RefusedError, match="not overwritten"):
        measure(run, is_full=True, output=tmp_path / "found.json")
    assert (tmp_path / "found.json").read_bytes() == content


def test_a_sealed_run_is_measured_beside_it(run):
    run = run.rename(run.with_name("damaged"))  # its seal is none
    (run / "seal.json").write_text("{}")
    before = sorted(path for path in run.rglob("*"))
    found = measure_checkpoint(MeasureRequest(subject=run, split="validation"))
    assert found.path.parent == run.with_name("damaged.evaluations")
    assert sorted(path for path in run.rglob("*")) == before
    (run / "seal.json").unlink()  # it was none


def test_a_full_measurement_stands_for_the_final_evaluation(dataset, tmp_path):
    checkpoint = {"policy": "interval", "interval": 2}
    config = tiny_config(dataset, run={"target_step": 4}, checkpoint=checkpoint)
    train(config, tmp_path / "control")
    train(config, tmp_path / "run")
    (own,) = (tmp_path / "run" / "evaluations").iterdir()
    lines = (tmp_path / "run" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "run" / "metrics.jsonl").write_bytes(b"".join(lines[:-2]))  # killed before it was measured
    own.unlink()
    assert "LG703" in {finding.rule for finding in reconcile(tmp_path / "run").findings}
    measure(tmp_path / "run")
    assert "LG703" in {finding.rule for finding in reconcile(tmp_path / "run").findings}
    measure(tmp_path / "run", is_full=True)
    assert "LG703" not in {finding.rule for finding in reconcile(tmp_path / "run").findings}


def test_the_data_and_the_model_are_the_checkpoint_s(run, tmp_path):
    other = write_dataset(tmp_path / "other", seed=3)
    with pytest.raises(RefusedError, match="metadata_sha256"):
        measure(run, overrides=(f"data.path={other}",))
    with pytest.raises(RefusedError, match=r"model\.width"):
        measure(run, overrides=("model.width=64",))
    with pytest.raises(EvidenceMissingError, match="'test'"):
        measure(run, split="test")


def test_what_is_not_there_is_named(dataset, tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        measure(tmp_path / "nothing")
    train(tiny_config(dataset, run={"target_step": 2}, checkpoint={"policy": "none"}), tmp_path / "run")
    with pytest.raises(EvidenceMissingError, match="no checkpoint"):
        measure(tmp_path / "run")


def test_damaged_weights_are_not_measured(dataset, tmp_path):
    train(tiny_config(dataset, run={"target_step": 2}), tmp_path / "damaged")
    path = tmp_path / "damaged" / "checkpoints" / "step-00000002-s01" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(VerificationError, match=r"model\.safetensors"):
        measure(tmp_path / "damaged")
    assert type_in("export", path.parent, "-o", tmp_path / "out.safetensors") == 1
    assert not (tmp_path / "out.safetensors").exists()


def test_a_run_under_way_is_measured_at_its_latest_checkpoint(dataset, tmp_path):
    config = tiny_config(dataset, run={"target_step": 9}, checkpoint=CHECKPOINTS)
    train(config, tmp_path / "run", stop=StopAfter(attempts=5))
    assert measure(tmp_path / "run").step == 5


def test_the_command_says_what_it_measured_and_where_it_is(run, capsys):
    assert type_in("evaluate", run, "--full") == 0
    printed = capsys.readouterr()
    assert "(complete)" in printed.out
    assert "bits_per_byte" in printed.out
    assert str(run / "evaluations") in printed.err
    assert type_in("evaluate", run, "--json") == 0
    assert json.loads(capsys.readouterr().out)["complete"] is False


def test_exported_weights_are_the_checkpoint_s_and_never_overwrite(run, tmp_path, capsys):
    folder, output = run / "checkpoints" / "step-00000004-s01", tmp_path / "weights.safetensors"
    assert type_in("export", folder, "-o", output) == 0
    assert output.read_bytes() == (folder / "model.safetensors").read_bytes()
    with safe_open(output, framework="pt") as file:
        assert len(list(file.keys())) > 0
    assert type_in("export", run / "checkpoints" / "step-00000002-s01", "-o", output) == 1
    assert "not overwritten" in capsys.readouterr().err
    assert output.read_bytes() == (folder / "model.safetensors").read_bytes()
