"""The main job through its commands: built once, reused ever after, never built over damage; frozen and trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ledger.cli import main
from ledger.locks import read_lock
from ledger.pilot import STAGES, Moment
from ledger.pilot.runner import StageFailedError
from ledger.records.documents import Evaluation
from ledger.records.pilot import PilotRecord, StageRecord
from ledger.report.schemas import schema_of
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import read_document
from tests.e2e.small_pilot import command, ledger, rehearse, write_small_pilot
from tests.support.faults import Snapshot
from trainer.cli import main as train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pilot")
    write_small_pilot(folder)
    done = ledger(*command(folder, "--json")[4:])
    assert done.returncode == 0, done.stderr + done.stdout
    outcome = json.loads(done.stdout)
    assert tuple(stage["stage"] for stage in outcome["stages"]) == STAGES
    assert not any(stage["reused"] for stage in outcome["stages"])
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Iterator[Path]:
    """The finished pilot in place, restored afterwards: its runs hold absolute paths."""
    kept = tmp_path / "kept"
    shutil.copytree(finished, kept, symlinks=True)
    yield finished
    shutil.rmtree(finished)
    shutil.copytree(kept, finished, symlinks=True)


def stage_folder(folder: Path, stage: str) -> Path:
    (found,) = (folder / "out").glob(f"{stage}-*")
    return found


def record_of(folder: Path, stage: str) -> StageRecord:
    return read_document(stage_folder(folder, stage) / "stage.json", StageRecord)


def test_a_second_run_reuses_everything_and_writes_nothing(finished: Path):
    rehearse(finished)  # what another test restored is verified once
    before = Snapshot.of(finished)
    assert all(outcome.reused for outcome in rehearse(finished))
    assert Snapshot.of(finished) == before


def test_a_rehash_reads_everything_and_finds_it_as_it_was(finished: Path):
    said: list[Moment] = []
    assert all(outcome.reused for outcome in rehearse(finished, said=said, is_rehashing=True))
    assert {moment.phase for moment in said} >= {"hashing", "reconciling"}


def test_the_killed_run_was_redone_and_equals_its_control(finished: Path):
    resume = stage_folder(finished, "resume")
    done = ledger("reconcile", resume / "run", "--control", resume / "control")
    assert done.returncode == 0, done.stdout


def test_the_pilot_names_the_long_run_and_its_stages(finished: Path):
    pilot = read_document(finished / "out/pilot.json", PilotRecord)
    assert (pilot.target_step, pilot.tokens_per_update, pilot.planned_tokens) == (400, 64, 25_600)
    assert pilot.config["schedule"]["horizon"] == 25_600
    assert pilot.passed
    assert [stage.folder for stage in pilot.stages] == [stage_folder(finished, name).name for name in STAGES]
    for stage in ("stability", "resume"):
        assert {run.identity_sha256 for run in record_of(finished, stage).runs} == {pilot.identity_sha256}


def test_validate_measured_the_final_checkpoint_of_stability(finished: Path):
    record = record_of(finished, "validate")
    assert record.checkpoint is not None
    manifest = finished / "out" / record.checkpoint.path / "manifest.json"
    assert manifest.is_relative_to(stage_folder(finished, "stability"))
    assert sha256_hex(manifest.read_bytes()) == record.checkpoint.manifest_sha256
    evaluation = read_document(stage_folder(finished, "validate") / "evaluation.json", Evaluation)
    assert evaluation.complete
    assert (evaluation.split, evaluation.step) == ("validation", 30)


def test_each_run_holds_the_verdict_that_its_stage_rests_on(finished: Path):
    for name in ("smoke", "overfit", "acceptance", "stability", "resume"):
        for run in record_of(finished, name).runs:
            verdict = stage_folder(finished, name) / run.path / "verdict.json"
            assert sha256_hex(verdict.read_bytes()) == run.verdict_sha256


def test_another_learning_rate_shares_the_corpus(copy: Path):
    outcomes = rehearse(copy, "optimizer.learning_rate=2e-2", "pilot.stages=[smoke]")
    assert [outcome.stage for outcome in outcomes] == ["prepare", "smoke", "stability", "validate"]
    assert [outcome.reused for outcome in outcomes] == [True, False, False, False]
    assert read_document(copy / "out/pilot.json", PilotRecord).config["optimizer"]["learning_rate"] == 2e-2


def test_another_bound_is_judged_anew_from_the_same_records(copy: Path):
    log = stage_folder(copy, "overfit") / "run/metrics.jsonl"
    before = log.stat().st_mtime_ns
    outcomes = rehearse(copy, "pilot.overfit.gates.loss_left.max=1e-9")
    assert [(outcome.stage, outcome.passed) for outcome in outcomes][-1] == ("overfit", False)
    assert any(note.startswith("LG901 error: overfit: loss left") for note in outcomes[-1].notes)
    assert outcomes[-1].reused
    assert log.stat().st_mtime_ns == before
    assert all(outcome.passed for outcome in rehearse(copy))


def test_a_flipped_byte_in_a_shard_is_found_and_the_folder_named(copy: Path):
    shard = stage_folder(copy, "prepare") / "dataset/train-00000.npy"
    data = bytearray(shard.read_bytes())
    data[-3] ^= 1
    shard.write_bytes(data)
    done = ledger(*command(copy)[4:])
    assert done.returncode == 1
    assert "train-00000.npy" in done.stderr
    assert f"remove {stage_folder(copy, 'prepare')}" in done.stderr
    assert shard.read_bytes() == data


@pytest.mark.parametrize(
    ("stage", "file", "old", "new"),
    [
        ("stability", "run/metrics.jsonl", b'"tokens_seen":640,', b'"tokens_seen":641,'),
        ("smoke", "run/verdict.json", b'"passed"', b'"failed"'),
        ("validate", "evaluation.json", b'"complete":true', b'"complete":false'),
        ("resume", "stage.json", b'"passed":true', b'"passed":null'),
    ],
)
def test_an_edited_record_is_found_and_the_folder_named(
    copy: Path, stage: str, file: str, old: bytes, new: bytes
):
    path = stage_folder(copy, stage) / file
    edited = path.read_bytes().replace(old, new, 1)
    assert edited != path.read_bytes()
    path.write_bytes(edited)
    with pytest.raises(StageFailedError) as refused:
        rehearse(copy)
    assert path.name in str(refused.value)
    assert f"remove {path.parent if file == 'stage.json' else stage_folder(copy, stage)}" in str(
        refused.value
    )
    assert path.read_bytes() == edited


def call_trainer(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        train(["train", *map(str, arguments)])
    assert isinstance(end.value.code, int)
    return end.value.code


def printed(capsys: pytest.CaptureFixture[str], schema: str) -> Any:
    """Return what was printed, which is what its schema says."""
    found = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema_of(schema) or {}).validate(found)
    return found


def test_a_pilot_becomes_a_lock_and_a_run_under_it_is_sealed(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rehearse(finished)  # what another test restored is verified once
    config, pilot = finished / "run.yaml", finished / "out"
    lock, run = tmp_path / "recipe.lock.json", tmp_path / "run"
    capsys.readouterr()
    assert main(["freeze", str(pilot), "-o", str(lock), "--json"]) == 0
    printed(capsys, "output.freeze")
    assert main(["pilot", str(config), "--output", str(pilot), "--explain", "--json"]) == 0
    assert printed(capsys, "output.pilot-explain")["stages"][0]["standing"] == "passed"
    stages = {one.stage for one in read_lock(lock).pilots}
    assert {"smoke", "overfit", "acceptance", "stability", "resume"} <= stages
    data = f"data.path={read_lock(lock).volatile['data.path']}"
    capsys.readouterr()

    check = ["freeze", "--check", "--recipe", str(lock), "--config", str(config), "--set", data, "--json"]
    assert main(check) == 0
    assert printed(capsys, "output.freeze-check")["allowed"]
    assert main([*check, "--set", "run.target_step=410", "--set", "optimizer.learning_rate=2e-2"]) == 1
    found = {
        one["field"]: one["kind"]
        for one in printed(capsys, "output.freeze-check")["differences"]
        if one["held"]
    }
    assert found["run.target_step"] == "target"
    assert found["optimizer.learning_rate"] == "identity"

    assert call_trainer("--recipe", lock, "--run", run, "--set", "optimizer.learning_rate=2e-2") == 1
    assert not (run / "metrics.jsonl").exists()
    assert call_trainer("--recipe", lock, "--run", run) == 0
    capsys.readouterr()
    assert main(["reconcile", str(run), "--json"]) == 0
    assert "LG603" in json.loads(capsys.readouterr().out)["checked"]
    assert main(["summarize", str(run)]) == 0
    assert "against the budget of its lock" in capsys.readouterr().out
    for subject, word in ((run, "Against the budget"), (pilot, "GO: everything that was asked is kept")):
        page = tmp_path / "report.html"
        assert main(["report", str(subject), "-o", str(page)]) == 0
        assert word in page.read_text(encoding="utf-8")
        assert page.stat().st_size < 500_000
    assert main(["seal", str(run)]) == 0


def test_a_missed_bound_fails_with_a_table_and_stops_there(tmp_path: Path):
    write_small_pilot(tmp_path)
    done = ledger(*command(tmp_path, "--set", "pilot.overfit.gates.loss_left.max=1e-9")[4:])
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "not run" in done.stdout
    assert "LG901 error: overfit: loss left" in done.stdout
    assert not list((tmp_path / "out").glob("acceptance-*"))
