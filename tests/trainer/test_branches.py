"""Runs that begin at another run's checkpoint, and runs that go on without a configuration."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.checkpoints import find_checkpoints
from ledger.errors import EvidenceMissingError, LedgerError, RefusedError, UsageError
from ledger.records.documents import RunDocument
from ledger.records.events import Amendment, SessionStart, Train
from ledger.storage.documents import read_document
from tests.trainer.kinds import EACH_KIND
from tests.trainer.records import events, final_evaluation, final_tensors, sessions, updates
from tests.trainer.tiny import StopAfter, tiny_config, train
from trainer.cli import main
from trainer.config import TrainerConfig
from trainer.session import Branch

EVERY_THREE: dict[str, Any] = {"policy": "interval", "interval": 3}


def config_of(dataset: Path, *, target: int = 12, **sections: dict[str, Any]) -> TrainerConfig:
    return tiny_config(dataset, **({"run": {"target_step": target}, "checkpoint": EVERY_THREE} | sections))


def checkpoint(run: Path, step: int = 6) -> Path:
    return run / "checkpoints" / f"step-{step:08d}-s01"


def amendments(run: Path) -> dict[str, tuple[Any, Any]]:
    return {event.field: (event.from_, event.to) for event in events(run) if isinstance(event, Amendment)}


@pytest.mark.parametrize("kind", EACH_KIND)
def test_a_continued_branch_is_bit_for_bit_its_parent_going_on(kind, dataset, tmp_path):
    config = config_of(dataset, **kind, batch={"accumulation": 3})
    train(config, tmp_path / "parent")
    branch = Branch(folder=checkpoint(tmp_path / "parent"), mode="continue")
    assert train(config, tmp_path / "run", branch=branch) == "completed"
    control = {step: found for step, found in updates(tmp_path / "parent").items() if step > 6}
    assert updates(tmp_path / "run") == control
    assert len(control) == 6
    assert final_tensors(tmp_path / "run") == final_tensors(tmp_path / "parent")
    assert final_evaluation(tmp_path / "run").loss == final_evaluation(tmp_path / "parent").loss
    assert sessions(tmp_path / "run") == [("branch", "completed")]
    assert amendments(tmp_path / "run") == {}
    document = read_document(tmp_path / "run" / "run.json", RunDocument)
    assert document.parent is not None
    assert document.parent.mode == "continue"


@pytest.mark.parametrize(
    ("attempts", "is_killed"), [(2, True), pytest.param(4, False, marks=pytest.mark.slow)]
)
def test_a_branch_that_was_stopped_or_killed_is_never_stopped(dataset, tmp_path, attempts, is_killed):
    config = config_of(dataset, checkpoint={"policy": "interval", "interval": 3})
    train(config, tmp_path / "parent")
    branch = Branch(folder=checkpoint(tmp_path / "parent"), mode="continue")
    train(config, tmp_path / "run", branch=branch, stop=StopAfter(attempts=attempts))
    if is_killed:  # as if it had been killed before its first checkpoint
        shutil.rmtree(tmp_path / "run" / "checkpoints")
        log = tmp_path / "run" / "metrics.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        later = (b'{"event":"checkpoint"', b'{"event":"session_end"')
        log.write_bytes(b"".join(line for line in lines if not line.startswith(later)))
        with pytest.raises(EvidenceMissingError, match="--branch DIR --mode continue"):
            train(config, tmp_path / "run", resume="auto")
    assert train(config, tmp_path / "run", resume="auto", branch=branch) == "completed"
    assert final_tensors(tmp_path / "run") == final_tensors(tmp_path / "parent")


def test_an_initialised_branch_takes_weights_alone(dataset, tmp_path):
    train(config_of(dataset), tmp_path / "parent")
    other = config_of(
        dataset, target=4, optimizer={"learning_rate": 1e-3}, run={"target_step": 4, "seed": 99}
    )
    branch = Branch(folder=checkpoint(tmp_path / "parent"), mode="initialise")
    assert train(other, tmp_path / "run", branch=branch) == "completed"
    start = events(tmp_path / "run")[0]
    assert isinstance(start, SessionStart)
    assert (start.step, start.tokens_seen, start.cursor["train"].offset) == (0, 0, 0)
    parent = next(found for found in find_checkpoints(tmp_path / "parent") if found.folder == branch.folder)
    assert start.state.model == parent.manifest.state.model
    assert updates(tmp_path / "run").keys() == {1, 2, 3, 4}
    assert train(other, tmp_path / "run", restart=True, branch=branch) == "completed"
    with pytest.raises(EvidenceMissingError, match="--branch DIR --mode initialise"):
        train(other, tmp_path / "run", restart=True)


def test_a_branch_may_bend_its_schedule_and_says_so(dataset, tmp_path):
    train(config_of(dataset), tmp_path / "parent")
    decaying = config_of(
        dataset,
        target=9,
        schedule={"name": "wsd", "warmup_steps": 3, "decay_fraction": 0.5, "horizon": 9 * 32},
    )
    branch = Branch(folder=checkpoint(tmp_path / "parent"), mode="continue")
    assert train(decaying, tmp_path / "run", branch=branch) == "completed"
    stated = amendments(tmp_path / "run")
    assert stated["schedule.name"] == ("cosine", "wsd")
    assert stated["run.target_step"] == (12, 9)
    last = [event for event in events(tmp_path / "run") if isinstance(event, Train)][-1]
    assert last.lr is not None
    assert max(last.lr.values()) == 0.0


@pytest.mark.slow
def test_a_horizon_that_is_left_open_is_the_parent_s(dataset, tmp_path):
    train(config_of(dataset), tmp_path / "parent")
    branch = Branch(folder=checkpoint(tmp_path / "parent"), mode="continue")
    assert train(config_of(dataset, target=15), tmp_path / "run", branch=branch) == "completed"
    assert amendments(tmp_path / "run") == {"run.target_step": (12, 15)}


def test_what_defines_the_experiment_is_refused_in_one_message(dataset, tmp_path):
    train(config_of(dataset), tmp_path / "parent")
    changed = config_of(dataset, optimizer={"learning_rate": 1.0, "clip_norm": 0.5})
    branch = Branch(folder=checkpoint(tmp_path / "parent"), mode="continue")
    with pytest.raises(RefusedError) as caught:
        train(changed, tmp_path / "run", branch=branch)
    for name in ("optimizer.learning_rate", "optimizer.clip_norm", "--mode initialise"):
        assert name in str(caught.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json", "trainer.json"])
def test_a_damaged_parent_is_named(dataset, tmp_path, name):
    train(config_of(dataset), tmp_path / "damaged")
    path = checkpoint(tmp_path / "damaged") / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    branch = Branch(folder=path.parent, mode="continue")
    with pytest.raises(LedgerError, match=name):
        train(config_of(dataset), tmp_path / "run", branch=branch)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.slow
def test_a_run_of_its_own_is_no_branch(dataset, tmp_path):
    train(config_of(dataset), tmp_path / "parent")
    train(config_of(dataset), tmp_path / "run", stop=StopAfter(attempts=2))
    branch = Branch(folder=checkpoint(tmp_path / "parent"), mode="continue")
    with pytest.raises(UsageError, match="no branch"):
        train(config_of(dataset), tmp_path / "run", resume="auto", branch=branch)


@pytest.mark.slow
def test_a_branch_that_is_typed_again_must_be_the_same(dataset, tmp_path):
    train(config_of(dataset), tmp_path / "parent")
    branch = Branch(folder=checkpoint(tmp_path / "parent"), mode="continue")
    train(config_of(dataset), tmp_path / "run", branch=branch, stop=StopAfter(attempts=2))
    other = Branch(folder=branch.folder, mode="initialise")
    with pytest.raises(RefusedError, match="--mode continue"):
        train(config_of(dataset), tmp_path / "run", resume="auto", branch=other)
    other = Branch(folder=checkpoint(tmp_path / "parent", 3), mode="continue")
    with pytest.raises(RefusedError, match="not the checkpoint that the run began with"):
        train(config_of(dataset), tmp_path / "run", resume="auto", branch=other)


# Without a configuration.


def type_in(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(["train", *arguments])
    return int(caught.value.code or 0)


def test_a_run_goes_on_without_a_configuration(dataset, tmp_path):
    config = config_of(dataset)
    train(config, tmp_path / "control")
    train(config, tmp_path / "run", stop=StopAfter(attempts=4))
    assert type_in("--run", str(tmp_path / "run"), "--resume", "auto", "--set", "logging.interval=1") == 0
    assert sessions(tmp_path / "run") == [("fresh", "interrupted"), ("auto", "completed")]
    assert amendments(tmp_path / "run") == {}
    assert final_tensors(tmp_path / "run") == final_tensors(tmp_path / "control")


def test_the_target_is_raised_without_a_configuration(dataset, tmp_path):
    train(config_of(dataset, target=3), tmp_path / "run")
    typed = ("--run", str(tmp_path / "run"), "--resume", "auto", "--set", "run.target_step=5")
    assert type_in(*typed) == 0
    assert amendments(tmp_path / "run") == {"run.target_step": (3, 5)}
    assert type_in(*typed) == 0
    assert len(sessions(tmp_path / "run")) == 2


def test_what_is_set_may_not_be_another_experiment(dataset, tmp_path, capsys):
    train(config_of(dataset), tmp_path / "run", stop=StopAfter(attempts=2))
    changes = ("--set", "run.seed=3", "--set", "optimizer.clip_norm=null")
    assert type_in("--run", str(tmp_path / "run"), "--resume", "latest", *changes) == 1
    message = capsys.readouterr().err
    assert "run.seed" in message
    assert "optimizer.clip_norm" in message


def test_without_a_configuration_there_must_be_a_run(tmp_path, capsys):
    assert type_in("--run", str(tmp_path / "run"), "--resume", "auto") == 2
    assert "--config FILE" in capsys.readouterr().err
    assert type_in("--run", str(tmp_path / "run")) == 2
    assert "no configuration" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_branch_begins_under_its_parent_s_recipe(dataset, tmp_path):
    train(
        config_of(dataset, run={"target_step": 12, "directory": str(tmp_path / "parent")}),
        tmp_path / "parent",
    )
    folder = str(checkpoint(tmp_path / "parent"))
    typed = ("--branch", folder, "--mode", "continue", "--resume", "auto", "--run", str(tmp_path / "run"))
    assert type_in("--branch", folder, "--mode", "continue") == 2
    assert type_in(*typed) == 0
    assert type_in(*typed) == 0
    assert sessions(tmp_path / "run") == [("branch", "completed")]
    assert final_tensors(tmp_path / "run") == final_tensors(tmp_path / "parent")
    errors = [found for found in reconcile(tmp_path / "run").findings if found.severity != "warning"]
    assert errors == []


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--mode", "continue"], "belongs to --branch"),
        (["--branch", "x"], "without --mode"),
        (["--branch", "x", "--mode", "both"], "both is unknown"),
    ],
)
def test_branch_and_mode_belong_together(dataset, tmp_path, capsys, arguments, word):
    train(config_of(dataset, target=2), tmp_path / "run")
    assert type_in("--run", str(tmp_path / "run"), "--resume", "auto", *arguments) == 2
    assert word in capsys.readouterr().err
