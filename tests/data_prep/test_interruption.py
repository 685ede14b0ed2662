"""Killed preparations: under the final name there is a whole dataset or none, and the next one cleans up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from data_prep.pipeline import prepare
from data_prep.workspace import open_workspace
from ledger.errors import LockedError, RefusedError, StorageError
from ledger.storage.filesystem import FileSystem
from tests.data_prep.corpus import configure, overrides, texts, write_jsonl

SLOW = {"shard_tokens": 150, "tokenizer__vocabulary": 270}
"""A hundred shards, each synced: long enough to be killed in the middle."""


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "corpus.jsonl", texts(250))


def start(source: Path, output: Path) -> subprocess.Popen[bytes]:
    sets = [part for text in overrides(source, **SLOW) for part in ("--set", text)]
    config = output.parent / "empty.yaml"
    config.write_text("shard_tokens: 150\n")
    command = [sys.executable, "-P", "-m", "data_prep", "prepare", "--config", str(config), *sets]
    return subprocess.Popen([*command, "--output", str(output)], stderr=subprocess.PIPE)


def temporaries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if ".tmp-" in path.name]


def wait_for_shards(process: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        if any(len(list(path.glob("train-*.npy"))) >= count for path in temporaries(folder)):
            return
        time.sleep(0.002)
    pytest.fail(f"the preparation did not get that far: {process.stderr.read() if process.stderr else ''!r}")


def end(process: subprocess.Popen[bytes], number: int) -> int:
    process.send_signal(number)
    process.communicate(timeout=30)
    return process.returncode


@pytest.mark.parametrize("shards", [1, 12])
def test_a_killed_preparation_leaves_no_dataset_and_the_next_one_makes_the_same(shards, source, tmp_path):
    (tmp_path / "work").mkdir()
    output = tmp_path / "work" / "data"
    process = start(source, output)
    wait_for_shards(process, output.parent, shards)
    assert end(process, signal.SIGKILL) == -signal.SIGKILL
    assert not output.exists()
    assert len(temporaries(output.parent)) == 1
    prepared = prepare(configure(source, **SLOW), output=output)
    assert temporaries(output.parent) == []
    control = prepare(configure(source, **SLOW), output=tmp_path / "control")
    assert prepared.metadata_sha256 == control.metadata_sha256
    assert prepare(configure(source, **SLOW), output=output).outcome == "reused"


def test_sigterm_ends_with_its_code_and_leaves_nothing(source, tmp_path):
    (tmp_path / "work").mkdir()
    output = tmp_path / "work" / "data"
    process = start(source, output)
    wait_for_shards(process, output.parent, 3)
    assert end(process, signal.SIGTERM) == 143
    assert [path.name for path in output.parent.iterdir()] == ["empty.yaml"]


def test_a_second_preparation_of_the_same_dataset_is_refused_while_the_first_runs(source, tmp_path):
    (tmp_path / "work").mkdir()
    output = tmp_path / "work" / "data"
    process = start(source, output)
    wait_for_shards(process, output.parent, 1)
    process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(LockedError, match="another process"):
            prepare(configure(source, **SLOW), output=output)
        assert len(temporaries(output.parent)) == 1
    finally:
        process.send_signal(signal.SIGCONT)
        end(process, signal.SIGKILL)


def test_only_our_own_leftovers_are_removed(source, tmp_path):
    keep = [tmp_path / ".other.tmp-0123456789abcdef", tmp_path / ".data.tmp-notours", tmp_path / "data.tmp"]
    for path in keep:
        path.mkdir()
        (path / "file").write_text("kept")
    gone = tmp_path / ".data.tmp-0123456789abcdef"
    gone.mkdir()
    (gone / "train-00000.npy").write_text("half")
    prepare(configure(source), output=tmp_path / "data")
    assert not gone.exists()
    assert all((path / "file").read_text() == "kept" for path in keep)


def test_a_leftover_that_holds_a_folder_is_not_ours(source, tmp_path):
    odd = tmp_path / ".data.tmp-0123456789abcdef" / "folder"
    odd.mkdir(parents=True)
    (odd / "file").write_text("kept")
    with pytest.raises(StorageError, match="not removed"):
        prepare(configure(source), output=tmp_path / "data")
    assert (odd / "file").read_text() == "kept"


def test_a_link_with_the_name_of_a_leftover_is_not_followed(source, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    (tmp_path / ".data.tmp-0123456789abcdef").symlink_to(tmp_path / "precious")
    with pytest.raises(RefusedError):
        prepare(configure(source), output=tmp_path / "data")
    assert (tmp_path / "precious" / "file").read_text() == "kept"


class FullDisk(FileSystem):
    """Refuses the n-th operation of one kind."""

    def __init__(self, operation: str, countdown: int) -> None:
        self._operation = operation
        self._countdown = countdown

    def perform(self, operation, path, function, *arguments, **options):
        if operation == self._operation and str(path) != os.devnull:
            self._countdown -= 1
            if self._countdown == 0:
                raise OSError(28, "No space left on device")
        return super().perform(operation, path, function, *arguments, **options)


@pytest.mark.parametrize(
    ("operation", "count"),
    [("write", 1), ("write", 4), ("fsync", 2), ("rename", 1), ("mkdir", 1), ("open", 6)],
)
def test_a_refusal_of_the_system_is_clear_and_leaves_nothing(operation, count, source, tmp_path):
    with pytest.raises(StorageError, match="No space left"):
        prepare(configure(source), output=tmp_path / "data", fs=FullDisk(operation, count))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl"]


def test_a_dataset_that_appears_meanwhile_is_not_replaced(tmp_path):
    target = tmp_path / "data"

    def prepare_late() -> None:
        with open_workspace(target) as workspace:
            target.mkdir()
            (target / "metadata.json").write_text("theirs")
            workspace.publish()

    with pytest.raises(RefusedError):
        prepare_late()
    assert (target / "metadata.json").read_text() == "theirs"
    assert temporaries(tmp_path) == []
