"""Killed preparations: under the final name there is a whole dataset or none, and the next one goes on behind them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_prep.journal import JOURNAL_NAME
from data_prep.pipeline import prepare
from data_prep.progress import Quiet
from data_prep.workspace import open_workspace
from ledger.errors import LockedError, RefusedError, StorageError
from ledger.storage.filesystem import FileSystem
from tests.data_prep.corpus import configure, overrides, texts, write_jsonl

SLOW = {"shard_tokens": 150, "tokenizer__vocabulary": 270}
"""A hundred shards, each synced: long enough to be killed in the middle."""


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "corpus.jsonl", texts(250))


def start(source: Path, output: Path, **settings: object) -> subprocess.Popen[bytes]:
    sets = [part for text in overrides(source, **SLOW, **settings) for part in ("--set", text)]
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


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "preparation.json"}


def resumed_shards(directory: Path) -> int:
    return json.loads((directory / "preparation.json").read_bytes())["resumed_shards"]


def journaled(folder: Path) -> int:
    """Return how many shards killed preparations of the folder noted."""
    journals = [path / JOURNAL_NAME for path in temporaries(folder)]
    return sum(journal.read_bytes().count(b"\n") - 1 for journal in journals if journal.exists())


def test_a_killed_preparation_leaves_no_dataset_and_the_next_one_goes_on(source, tmp_path):
    (tmp_path / "work").mkdir()
    output = tmp_path / "work" / "data"
    process = start(source, output)
    wait_for_shards(process, output.parent, 12)
    assert end(process, signal.SIGKILL) == -signal.SIGKILL
    assert not output.exists()
    found = journaled(output.parent)
    assert found >= 5
    prepared = prepare(configure(source, **SLOW), output=output)
    assert resumed_shards(output) == found
    assert temporaries(output.parent) == []
    control = prepare(configure(source, **SLOW), output=tmp_path / "control")
    assert prepared.metadata_sha256 == control.metadata_sha256
    assert files(output) == files(tmp_path / "control")
    assert prepare(configure(source, **SLOW), output=output).outcome == "reused"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_kills_at_random_end_with_the_same_bytes(seed, workers, source, tmp_path):
    """Real processes, killed again and again at random moments until one gets through."""
    prepare(configure(source, **SLOW), output=tmp_path / "control")
    (tmp_path / "work").mkdir()
    output, draw = tmp_path / "work" / "data", random.Random(seed)
    for _ in range(12):
        process = start(source, output, workers=workers)
        try:
            process.communicate(timeout=draw.uniform(0.5, 6))
        except subprocess.TimeoutExpired:
            end(process, signal.SIGKILL)
        assert process.returncode in {0, -signal.SIGKILL}
        if process.returncode == 0:
            break
        if output.exists():  # killed between its end and its exit: what stands under the name is whole
            assert files(output) == files(tmp_path / "control")
            break
    prepare(configure(source, **SLOW), output=output)
    assert files(output) == files(tmp_path / "control")
    assert temporaries(output.parent) == []


class Killed(BaseException):
    """The process is gone."""


class Killer(FileSystem):
    """Kills the process at its n-th file operation: from then on nothing is done, as far as any file can tell."""

    def __init__(self, countdown: int) -> None:
        self._countdown = countdown

    def perform(self, operation, path, function, *arguments, **options):
        self._countdown -= 1
        if self._countdown > 0:
            return super().perform(operation, path, function, *arguments, **options)
        if operation == "close":  # the system does that for a process that is gone
            function(*arguments, **options)
        raise Killed


MANY = {"shard_tokens": 60, "tokenizer__vocabulary": 270, "deduplicate": True, "limits__max_tokens": 60}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Return a source and what an undisturbed preparation makes of it."""
    folder = tmp_path_factory.mktemp("small")
    source = write_jsonl(folder / "corpus.jsonl", texts(25) + texts(10))
    config = configure(source, **MANY, limits__overflow="skip")
    prepare(config, output=folder / "control")
    return config, files(folder / "control")


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(countdowns=st.lists(st.integers(1, 420), min_size=1, max_size=3))
def test_after_kills_at_any_file_operation_the_bytes_are_the_same(countdowns, small, tmp_path_factory):
    config, control = small
    output = tmp_path_factory.mktemp("killed") / "data"
    for countdown in countdowns:
        try:
            prepare(config, output=output, fs=Killer(countdown))
        except Killed:
            assert not output.exists() or files(output) == control
    prepare(config, output=output)
    assert files(output) == control
    assert [path.name for path in output.parent.iterdir()] == ["data"]


def kill(config, output: Path, *, shards: int) -> Path:
    """Kill a preparation once it has noted so many shards, and return the folder that it leaves."""
    for countdown in range(40, 2_000, 10):
        with pytest.raises(Killed):
            prepare(config, output=output, fs=Killer(countdown))
        if journaled(output.parent) >= shards:
            return temporaries(output.parent)[0]
    pytest.fail("it never gets that far")


def test_what_is_complete_is_not_tokenized_again(small, tmp_path, monkeypatch):
    config, control = small
    kill(config, tmp_path / "data", shards=8)
    found, encoded = journaled(tmp_path), []
    monkeypatch.setattr(
        "data_prep.encoding.Encoder._check", lambda _self, wide, **_: encoded.append(wide.size)
    )
    prepare(config, output=tmp_path / "data")
    assert resumed_shards(tmp_path / "data") == found
    assert files(tmp_path / "data") == control
    assert sum(encoded) < sum(len(data) for name, data in control.items() if name.endswith("0.npy")) * 10


@pytest.mark.parametrize("damage", ["a flipped byte", "a file that is gone", "ends that are gone"])
def test_only_what_is_verified_is_taken_over(damage, small, tmp_path):
    config, control = small
    folder = kill(config, tmp_path / "data", shards=6)
    before = journaled(tmp_path)
    path = folder / ("train-00001.ends.npy" if damage == "ends that are gone" else "train-00001.npy")
    data = path.read_bytes()
    path.unlink()
    if damage == "a flipped byte":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    prepare(config, output=tmp_path / "data")
    assert resumed_shards(tmp_path / "data") < before - 2
    assert files(tmp_path / "data") == control


def test_a_torn_journal_counts_up_to_the_tear(small, tmp_path):
    config, control = small
    folder = kill(config, tmp_path / "data", shards=6)
    before = journaled(tmp_path)
    journal = folder / JOURNAL_NAME
    journal.write_bytes(journal.read_bytes()[:-40])
    prepare(config, output=tmp_path / "data")
    assert resumed_shards(tmp_path / "data") == before - 1
    assert files(tmp_path / "data") == control


@pytest.mark.parametrize("stage", ["verify what", "compare the", "tokenize", "check that"])
def test_an_interruption_at_any_stage_keeps_complete_shards(stage, small, tmp_path):
    config, control = small
    kill(config, tmp_path / "data", shards=6)
    before = journaled(tmp_path)

    class Interrupting(Quiet):
        def stage(self, name: str, **_: object) -> None:
            if name.startswith(stage):
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(config, output=tmp_path / "data", progress=Interrupting())
    assert journaled(tmp_path) >= before
    prepare(config, output=tmp_path / "data")
    assert resumed_shards(tmp_path / "data") >= before
    assert files(tmp_path / "data") == control


def test_nothing_of_another_plan_is_taken_over(small, tmp_path):
    config, _ = small
    kill(config, tmp_path / "data", shards=6)
    other = config.model_copy(update={"shard_tokens": 61})
    prepare(other, output=tmp_path / "data")
    assert resumed_shards(tmp_path / "data") == 0
    assert temporaries(tmp_path) == []


def test_sigterm_ends_with_its_code_and_keeps_what_is_complete(source, tmp_path):
    (tmp_path / "work").mkdir()
    output = tmp_path / "work" / "data"
    process = start(source, output)
    wait_for_shards(process, output.parent, 3)
    assert end(process, signal.SIGTERM) == 143
    assert not output.exists()
    found = journaled(output.parent)
    assert found >= 1
    prepare(configure(source, **SLOW), output=output)
    assert resumed_shards(output) == found


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


def test_a_full_disk_keeps_complete_shards_for_when_there_is_room(small, tmp_path):
    config, control = small
    with pytest.raises(StorageError, match="No space left"):
        prepare(config, output=tmp_path / "data", fs=FullDisk("write", 30))
    found = journaled(tmp_path)
    assert found > 3
    prepare(config, output=tmp_path / "data")
    assert resumed_shards(tmp_path / "data") == found
    assert files(tmp_path / "data") == control


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
