"""Freezing: only from a passed pilot of which everything still holds, and never over another lock."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.cli import main
from ledger.errors import (
    EvidenceMissingError,
    LedgerError,
    RefusedError,
    UnsafeError,
    UsageError,
    VerificationError,
)
from ledger.locks import content_sha256, read_lock
from ledger.pilot.freeze import freeze_pilot, replaced_lock, write_lock
from ledger.recipes import identity_sha256
from ledger.records.locks import RecipeLock
from ledger.records.pilot import PilotRecord, StageRecord
from ledger.storage.documents import document_bytes, read_document
from tests.trainer.rehearsed import (
    STAGE,
    TARGET,
    frozen,
    long_config,
    one_stage_is_a_pilot,
    rehearse,
    resolved,
)
from trainer.recipe import recipe_of


@pytest.fixture(scope="module")
def rehearsed(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rehearse(tmp_path_factory.mktemp("pilot") / "damaged-not", dataset)


@pytest.fixture(autouse=True)
def _one_stage_is_a_pilot() -> Iterator[None]:
    with one_stage_is_a_pilot():
        yield


@pytest.fixture
def pilot(rehearsed: Path, tmp_path: Path) -> Path:
    """A copy that may be damaged; no audit looks at it afterwards."""
    shutil.copytree(rehearsed, tmp_path / "pilot")
    moved = tmp_path / "pilot" / STAGE / "damaged"
    (tmp_path / "pilot" / STAGE / "run").rename(moved)
    amend(tmp_path / "pilot", lambda record: record["runs"][0].update(path="damaged"))
    return tmp_path / "pilot"


def amend(
    root: Path, change: Callable[[dict[str, Any]], object], *, name: str = f"{STAGE}/stage.json"
) -> None:
    model: Any = PilotRecord if name == "pilot.json" else StageRecord
    value = json.loads((root / name).read_bytes())
    change(value)
    (root / name).write_bytes(document_bytes(model.model_validate(value)))


def test_a_lock_holds_the_whole_recipe_and_what_it_rests_on(rehearsed: Path, dataset: Path):
    lock = frozen(rehearsed)
    config = resolved(long_config(dataset))
    assert lock.identity_sha256 == identity_sha256(recipe_of(config))
    assert lock.identity["optimizer.learning_rate"] == 3e-3
    assert lock.identity["schedule.horizon"] == TARGET * 32
    assert {"run.seed", "precision.name", "batch.micro_batch", "model.width"} <= lock.identity.keys()
    assert (lock.target_step, lock.planned_tokens) == (TARGET, TARGET * 32)
    assert lock.checkpoint is not None
    assert lock.checkpoint["interval"] == 3
    assert "run.target_step" not in lock.operational
    assert sum(group.parameters for group in lock.optimizer) == sum(lock.model.values()) > 0
    assert lock.datasets["train"].tokens == {"train": 331, "validation": 150}
    assert lock.parts["decoder"] >= 1
    assert lock.packages["torch"]
    assert lock.environment.keys() == {"python", "platform", "hardware", "settings"}
    assert [(pilot.stage, pilot.verdict) for pilot in lock.pilots] == [("stability", "passed")]
    assert lock.content_sha256 == content_sha256(lock)
    assert lock.budget is not None
    assert (lock.budget.updates, lock.budget.checkpoints, lock.budget.evaluations) == (TARGET, 2, 1)


def test_it_is_honest_about_what_it_cannot_hold(rehearsed: Path):
    said = "\n".join(frozen(rehearsed).unpinned)
    assert "drivers and firmware" in said
    assert "not by the digest of their files" in said
    assert "origin of train in dataset train (random)" in said
    assert "not asked of stability: ended, loss_drop" in said


def flip_weights(root: Path) -> None:
    weights = next((root / STAGE / "damaged" / "checkpoints").rglob("model.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)


def cut_log(root: Path) -> None:
    log = root / STAGE / "damaged" / "metrics.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))


DAMAGE: list[tuple[str, Callable[[Path], object], type[LedgerError], str]] = [
    ("no pilot", lambda root: (root / "pilot.json").unlink(), EvidenceMissingError, "no record of a pilot"),
    ("no stage", lambda root: (root / STAGE / "stage.json").unlink(), EvidenceMissingError, "no record"),
    ("flipped weights", flip_weights, RefusedError, "does not pass the audit"),
    ("cut log", cut_log, VerificationError, "not as far as"),
    (
        "failed",
        lambda root: amend(root, lambda value: value["stages"][0].update(passed=False), name="pilot.json"),
        RefusedError,
        "failed in stability",
    ),
    (
        "not finished",
        lambda root: amend(root, lambda value: value["stages"][0].update(passed=None), name="pilot.json"),
        EvidenceMissingError,
        "not finished: stability",
    ),
    (
        "another identity",
        lambda root: amend(root, lambda value: value["runs"][0].update(identity_sha256="1" * 64)),
        VerificationError,
        "expected the one on record, 1111",
    ),
    (
        "another recipe",
        lambda root: amend(root, lambda value: value["config"]["optimizer"].update(beta1=0.5), name="pilot.json"),
        RefusedError,
        "was edited",
    ),
    (
        "another measurement",
        lambda root: amend(root, lambda value: value["gates"][-1].update(measured=0.1)),
        VerificationError,
        "final_loss is",
    ),
    (
        "a gate that is missed",
        lambda root: amend(root, lambda value: value["gates"][-1].update(max=0.1)),
        RefusedError,
        "the gate final_loss",
    ),
    (
        "no gates",
        lambda root: amend(root, lambda value: value.update(gates=[])),
        VerificationError,
        "lists no gate of checkpoint_share",
    ),
    (
        "no run",
        lambda root: amend(root, lambda value: value.update(runs=[])),
        VerificationError,
        "names no run",
    ),
    (
        "another fingerprint",
        lambda root: amend(root, lambda value: value.update(fingerprint="2" * 64)),
        RefusedError,
        "is not the passed stage",
    ),
    (
        "a file of another content",
        lambda root: amend(root, lambda value: value["files"].append({"path": "stage.json", "sha256": "3" * 64})),
        VerificationError,
        "has SHA-256",
    ),
    (
        "a path outside",
        lambda root: amend(root, lambda value: value["runs"][0].update(path="../../elsewhere")),
        UnsafeError,
        "leaves its folder",
    ),
    (
        "a secret",
        lambda root: amend(root, lambda value: value["config"]["run"].update(name="s3://me:key@x"), name="pilot.json"),
        UnsafeError,
        "holds credentials",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("do", "error", "problem"), [row[1:] for row in DAMAGE], ids=[row[0] for row in DAMAGE]
)
def test_a_pilot_of_which_not_everything_holds_gives_no_lock(
    pilot: Path, do: Callable[[Path], object], error: type[LedgerError], problem: str
):
    do(pilot)
    with pytest.raises(error, match=problem):
        freeze_pilot(pilot, per_day=1.0)


def test_a_lock_is_never_overwritten_without_naming_it_and_a_reason(rehearsed: Path, tmp_path: Path):
    path, lock = tmp_path / "recipe.lock.json", frozen(rehearsed)
    sha256 = write_lock(lock, path)
    before = path.read_bytes()
    with pytest.raises(RefusedError, match="never overwritten"):
        write_lock(frozen(rehearsed), path)
    with pytest.raises(UsageError, match="without a reason"):
        replaced_lock(path, reason=" ")
    (tmp_path / "other").write_bytes(b"{}")
    named = replaced_lock(path, reason="a longer warm-up")
    newer = freeze_pilot(rehearsed, per_day=1.0, replaces=named)
    with pytest.raises(RefusedError, match="never overwritten"):
        write_lock(newer, tmp_path / "other", over=path)
    assert path.read_bytes() == before
    write_lock(newer, path, over=path)
    assert read_lock(path).replaces == named
    assert named.sha256 == sha256


def test_the_command_line_freezes_checks_and_says_what_differs(
    rehearsed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "recipe.lock.json"
    assert main(["freeze", str(rehearsed), "-o", str(path), "--preemptions", "2"]) == 0
    said = capsys.readouterr().out
    assert "what the lock cannot hold still" in said
    assert "interruptions, 2 a day" in said
    assert main(["freeze", str(rehearsed), "-o", str(path)]) == 1
    assert "--replaces OLD --reason TEXT" in capsys.readouterr().err
    assert main(["freeze", str(rehearsed), "-o", str(path), "--replaces", str(path)]) == 2
    assert (
        main(["freeze", str(rehearsed), "-o", str(path), "--replaces", str(path), "--reason", "tried"]) == 0
    )
    assert read_document(path, RecipeLock).replaces is not None
    assert main(["freeze"]) == 2
    assert main(["freeze", "--check", "--recipe", str(path)]) == 2
