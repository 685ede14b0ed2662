"""A pilot that is killed at any moment goes on, and two of one configuration build each stage once."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from ledger.audit import reconcile
from ledger.records.pilot import StageRecord
from ledger.storage.documents import read_document
from tests.e2e.small_pilot import command, rehearse, write_small_pilot

pytestmark = pytest.mark.slow

KILLS = 3
PATIENCE_SECONDS = 400
CHOICE = ("--set", "pilot.stages=[resume]")


def start(folder: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(command(folder, *CHOICE), stdout=output, stderr=output)


def test_two_pilots_of_which_one_is_killed_again_and_again(tmp_path: Path):
    write_small_pilot(tmp_path)
    choose = random.Random(20)
    log, other_log = tmp_path / "killed.log", tmp_path / "other.log"
    other = None
    for _ in range(KILLS):
        victim = start(tmp_path, log)
        other = other or start(tmp_path, other_log)
        time.sleep(choose.uniform(2, 12))  # the moment of the kill is what is random here
        victim.kill()
        victim.wait()
    assert other is not None
    last = start(tmp_path, log)
    codes = [process.wait(PATIENCE_SECONDS) for process in (other, last)]
    said = log.read_text() + other_log.read_text()
    assert codes == [3, 3], said  # all of it passed, and it is a part of a pilot
    assert "builds it" in said
    folders = sorted((tmp_path / "out").glob("*-*/"))
    assert [folder.name.split("-")[0] for folder in folders] == ["prepare", "resume", "stability", "validate"]
    for folder in folders:
        record = read_document(folder / "stage.json", StageRecord)
        assert record.passed
        for run in record.runs:
            assert reconcile(folder / run.path, rehash=True).verdict == "passed"
    assert all(outcome.reused for outcome in rehearse(tmp_path, CHOICE[1]))
