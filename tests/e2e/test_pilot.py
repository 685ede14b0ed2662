"""The main job through its one command: built once, verified ever after, never built over damage."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.small_pilot import ledger, write_small_pilot

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pilot")
    config = write_small_pilot(folder)
    done = ledger("pilot", config, "--output", folder / "out", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert [stage["stage"] for stage in outcome["stages"]] == [
        "prepare",
        "overfit",
        "acceptance",
        "stability",
        "resume",
    ]
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


def again(folder: Path):
    return ledger("pilot", folder / "pilot.yaml", "--output", folder / "out")


def test_a_second_run_verifies_and_builds_nothing(finished: Path):
    before = {path: path.stat().st_mtime_ns for path in (finished / "out").rglob("*") if path.is_file()}
    done = ledger("pilot", finished / "pilot.yaml", "--output", finished / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert all(stage["reused"] for stage in json.loads(done.stdout)["stages"])
    after = {path: path.stat().st_mtime_ns for path in (finished / "out").rglob("*") if path.is_file()}
    assert {path.name for path in before if before[path] != after.get(path)} <= {"run.lock"}
    assert after.keys() == before.keys()


def test_the_killed_run_was_redone_and_equals_its_control(finished: Path):
    run, control = finished / "out/resume/run", finished / "out/resume/control"
    done = ledger("reconcile", run, "--control", control)
    assert done.returncode == 0, done.stdout


def test_a_flipped_byte_in_a_shard_is_found_and_the_folder_named(copy: Path):
    shard = copy / "out/prepare/dataset/train-00000.npy"
    data = bytearray(shard.read_bytes())
    data[-3] ^= 1
    shard.write_bytes(data)
    done = again(copy)
    assert done.returncode == 1
    assert "train-00000.npy" in done.stderr
    assert f"remove {copy / 'out/prepare'}" in done.stderr
    assert shard.read_bytes() == data


def test_an_edited_counter_in_a_log_is_found_and_the_folder_named(copy: Path):
    log = copy / "out/stability/run/metrics.jsonl"
    text = log.read_bytes()
    edited = text.replace(b'"tokens_seen":320,', b'"tokens_seen":321,', 1)
    assert edited != text
    log.write_bytes(edited)
    done = again(copy)
    assert done.returncode == 1
    assert "metrics.jsonl" in done.stderr
    assert f"remove {copy / 'out/stability'}" in done.stderr
    assert log.read_bytes() == edited


def test_another_configuration_is_refused_and_named(copy: Path):
    config = copy / "acceptance.yaml"
    config.write_text(config.read_text() + "logging: {interval: 2}\n")
    done = again(copy)
    assert done.returncode == 1
    assert "acceptance.yaml" in done.stderr
    assert f"remove {copy / 'out/acceptance'}" in done.stderr


def test_a_missed_bound_fails_with_a_table_and_stops_there(tmp_path: Path):
    config = write_small_pilot(tmp_path)
    config.write_text(config.read_text().replace("max_final_loss: 4.0", "max_final_loss: 0.000001"))
    done = ledger("pilot", config, "--output", tmp_path / "out")
    assert done.returncode == 1
    assert "FAILED" in done.stdout
    assert "not run" in done.stdout
    assert not (tmp_path / "out/acceptance").exists()
