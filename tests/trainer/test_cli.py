"""Through real processes and real signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.config import dump_config
from ledger.records.events import SessionEnd
from tests.trainer.records import assert_same_training, events, sessions
from tests.trainer.tiny import tiny_config, train
from trainer import loop, session
from trainer.cli import main
from trainer.config import TrainerConfig
from trainer.state import TrainingState, build_state

PATIENCE_SECONDS = 300


def _written(config: TrainerConfig, run: Path) -> Path:
    path = run.parent / f"{run.name}.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    return path


def _start(config: TrainerConfig, run: Path, *arguments: str) -> subprocess.Popen[str]:
    path = run.parent / f"{run.name}.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    command = [
        sys.executable,
        "-P",
        "-m",
        "trainer",
        "train",
        "--config",
        str(path),
        "--run",
        str(run),
        *arguments,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, diagnostics = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, output, diagnostics


def _wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if process.poll() is not None:
            assert condition(), process.communicate()
            return
        if time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"waited in vain: {process.communicate()}")
        time.sleep(0.002)


def _has_reached(run: Path, step: int) -> bool:
    log = run / "metrics.jsonl"
    return log.exists() and f'"step":{step},'.encode() in log.read_bytes()


def _type(config: TrainerConfig, run: Path, *arguments: str) -> int:
    """Run the command line in this process and return its exit code."""
    with pytest.raises(SystemExit) as caught:
        main(["train", "--config", str(_written(config, run)), "--run", str(run), *arguments])
    return int(caught.value.code or 0)


@pytest.fixture
def long_config(dataset) -> TrainerConfig:
    checkpoint = {"policy": "interval", "interval": 20}
    return tiny_config(dataset, run={"target_step": 60}, checkpoint=checkpoint)


@pytest.mark.slow
def test_killed_and_resumed_in_new_processes_is_never_stopped(long_config, tmp_path):
    killed = _start(long_config, tmp_path / "run")
    train(long_config, tmp_path / "control")
    _wait_until(lambda: _has_reached(tmp_path / "run", 30), killed)
    killed.kill()
    assert _finish(killed)[0] in (-signal.SIGKILL, 0)
    assert _finish(_start(long_config, tmp_path / "run", "--resume", "auto"))[0] == 0
    assert_same_training(tmp_path / "control", tmp_path / "run")


def test_sigterm_ends_the_session_after_its_window(long_config, tmp_path):
    long_config = long_config.model_copy(
        update={"run": long_config.run.model_copy(update={"target_step": 200})}
    )
    process = _start(long_config, tmp_path / "run")
    _wait_until(lambda: _has_reached(tmp_path / "run", 10), process)
    process.send_signal(signal.SIGTERM)
    assert _finish(process)[0] == 143
    end = events(tmp_path / "run")[-1]
    assert sessions(tmp_path / "run") == [("fresh", "interrupted")]
    assert (tmp_path / "run" / "checkpoints" / f"step-{end.step:08d}-s01").is_dir()
    assert train(long_config, tmp_path / "run", resume="auto") == "completed"


@pytest.mark.slow
def test_a_stop_without_time_for_a_checkpoint_is_gone_on_from_without_a_configuration(dataset, tmp_path):
    config = tiny_config(
        dataset,
        run={"target_step": 100},
        checkpoint={"policy": "interval", "interval": 20},
        limits={"grace_seconds": 0.0},
    )
    run = tmp_path / "run"
    process = _start(config, run)
    train(config, tmp_path / "control")
    _wait_until(lambda: _has_reached(run, 30), process)
    process.send_signal(signal.SIGTERM)
    assert _finish(process)[0] == 143
    end = events(run)[-1]
    assert isinstance(end, SessionEnd)
    assert end.reason.startswith("SIGTERM; no checkpoint: ")
    assert end.step % 20
    resumed = subprocess.run(
        [sys.executable, "-P", "-m", "trainer", "train", "--run", str(run), "--resume", "auto"],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert_same_training(tmp_path / "control", run)


def test_sigint_is_honoured_after_the_window_it_fell_into(long_config, tmp_path, monkeypatch):
    _interrupt_at(monkeypatch, {4})
    assert _type(long_config, tmp_path / "run") == 130
    end = events(tmp_path / "run")[-1]
    assert isinstance(end, SessionEnd)
    assert (end.status, end.reason, end.step) == ("interrupted", "SIGINT", 5)


def test_a_second_signal_ends_at_once(dataset, tmp_path, monkeypatch):
    config = tiny_config(dataset, batch={"accumulation": 4})
    _interrupt_at(monkeypatch, {5, 6})
    assert _type(config, tmp_path / "run") == 130
    end = events(tmp_path / "run")[-1]
    assert isinstance(end, SessionEnd)
    assert (end.status, end.step, end.microbatches) == ("interrupted", 1, 6)
    assert train(config, tmp_path / "run", resume="auto") == "completed"


def test_a_signal_before_anything_began_leaves_no_session(long_config, tmp_path, monkeypatch):
    def interrupted(config: TrainerConfig) -> TrainingState:
        os.kill(os.getpid(), signal.SIGTERM)
        return build_state(config)

    monkeypatch.setattr(session, "build_state", interrupted)
    assert _type(long_config, tmp_path / "run") == 143
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_refusal_is_one_sentence_and_an_exit_code(dataset, tmp_path, capsys):
    config = tiny_config(dataset, run={"target_step": 2})
    train(config, tmp_path / "run")
    assert _type(config, tmp_path / "run") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "--resume auto" in printed.err
    changes = ("--set", "run.seed=3", "--set", "batch.sequence=8")
    assert _type(config, tmp_path / "run", "--resume", "auto", *changes) == 1
    message = capsys.readouterr().err
    assert "run.seed" in message
    assert "batch.sequence" in message


def test_a_completed_run_started_again_says_so(dataset, tmp_path, capsys):
    config = tiny_config(dataset, run={"target_step": 2})
    train(config, tmp_path / "run")
    assert _type(config, tmp_path / "run", "--resume", "auto") == 0
    assert "complete at step 2" in capsys.readouterr().err


def test_the_arithmetic_is_printed_at_the_start(dataset, tmp_path, capsys):
    config = tiny_config(dataset, run={"target_step": 20}, batch={"accumulation": 3})
    assert _type(config, tmp_path / "run") == 0
    printed = capsys.readouterr().err
    for line in (
        "tokens per microbatch 32 = 2 sequences x 16",
        "tokens per update 96",
        "planned 1,920 tokens = 20 updates from step 0 to 20",
        "6.00 epochs",
        "deterministic: the same bits again",
        "1 thread;",
    ):
        assert line in printed


def test_a_run_needs_a_folder(dataset, tmp_path, capsys):
    path = _written(tiny_config(dataset), tmp_path / "run")
    with pytest.raises(SystemExit) as caught:
        main(["train", "--config", str(path)])
    assert caught.value.code == 2
    assert "--run" in capsys.readouterr().err


def _interrupt_at(monkeypatch, microbatches: set[int]) -> None:
    """Send this process SIGINT while it processes the microbatches with these numbers, counted from 0."""
    forward, numbers = loop.forward, iter(range(10**6))

    def interrupted(*given):
        if next(numbers) in microbatches:
            os.kill(os.getpid(), signal.SIGINT)
        return forward(*given)

    monkeypatch.setattr(loop, "forward", interrupted)
