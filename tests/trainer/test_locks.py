"""Rows L01 to L20 of bad input: locks that no run starts under, each with its exit code and words, nothing written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.config import dump_config
from ledger.locks import content_sha256, read_lock
from ledger.pilot.freeze import write_lock
from ledger.recipes import identity_sha256
from ledger.records.events import SessionStart
from ledger.records.locks import RecipeLock
from ledger.storage.canonical import canonical_json, digest_of
from ledger.storage.documents import document_sha256
from tests.trainer.records import events
from tests.trainer.rehearsed import TARGET, frozen, long_config, rehearse, resolved
from tests.trainer.tiny import write_dataset
from trainer.cli import main
from trainer.recipe import recipe_of

Value = dict[str, Any]


@pytest.fixture(scope="module")
def lock(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> RecipeLock:
    return frozen(rehearse(tmp_path_factory.mktemp("pilot"), dataset))


@pytest.fixture
def path(lock: RecipeLock, tmp_path: Path) -> Path:
    write_lock(lock, tmp_path / "recipe.lock.json")
    return tmp_path / "recipe.lock.json"


def call(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        main(["train", *map(str, arguments)])
    assert isinstance(end.value.code, int)
    return end.value.code


def rewrite(path: Path, change: Callable[[Value], object], *, sign: bool = True) -> None:
    """Change a lock, and sign what came out of it."""
    value = json.loads(path.read_bytes())
    change(value)
    if sign:
        value["content_sha256"] = digest_of(
            {key: one for key, one in value.items() if key != "content_sha256"}
        )
    path.write_bytes(canonical_json(value))


def replace(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def change(*keys: str | int, to: Any) -> Callable[[Path], None]:
    """Set one value of a lock."""

    def do(path: Path) -> None:
        def at(value: Any) -> None:
            for key in keys[:-1]:
                value = value[key]
            value[keys[-1]] = to

        rewrite(path, at)

    return do


def weights(**sources: Any) -> Callable[[Path], None]:
    """Turn the recipe into a mix."""

    def do(path: Path) -> None:
        def mix(value: Value) -> None:
            del value["identity"]["data.sources"]
            value["identity"] |= {f"data.sources.{name}.weight": weight for name, weight in sources.items()}
            if not sources:
                value["identity"]["data.sources"] = {}
            value["identity_sha256"] = digest_of(value["identity"])
            value["pilots"][0]["identity_sha256"] = value["identity_sha256"]

        rewrite(path, mix)

    return do


ROWS: list[tuple[str, Callable[[Path], Any], int, str]] = [
    ("L01 no lock", lambda path: path.unlink(), 3, "there is no lock"),
    ("L04 a revision that moves", change("datasets", "train", "sources", 0, "revision", to="main"), 2, "moves"),
    ("L04 latest", change("datasets", "train", "sources", 1, "revision", to="latest"), 2, "moves"),
    ("L05 a digest that is a number", change("identity_sha256", to=1234), 2, "identity_sha256"),
    ("L06 an unknown algorithm", change("data", "train", to="blake3:" + "0" * 64), 2, "data"),
    ("L06 sha1", change("data", "train", to="0" * 40), 2, "data"),
    ("L07 a newer version", change("version", to=2), 6, "newest known here is 1"),
    ("L08 a key twice", lambda path: replace(path, b'{"budget"', b'{"budget":null,"budget"'), 2, "appears twice"),
    ("L08 a pilot twice", lambda path: rewrite(path, lambda value: value["pilots"].extend(value["pilots"])), 2, "ice"),
    ("L10 a negative weight", weights(a=-1.0, b=2.0), 2, "not a positive number"),
    ("L10 a weight of text", weights(a="NaN"), 2, "not a positive number"),
    ("L10 no source", weights(), 2, "not a map of names"),
    ("L12 merge conflict", lambda path: path.write_bytes(b"<<<<<<< ours\n" + path.read_bytes()), 2, "merge"),
    ("L13 edited", lambda path: rewrite(path, lambda value: value.update(target_step=9), sign=False), 1, "was edited"),
    ("L13 edited identity", change("identity", "optimizer.learning_rate", to=0.5), 1, "was edited"),
    ("L13 edited plan", change("planned_tokens", to=1), 1, "plans 1 tokens"),
    ("L14 a path that climbs", change("pilots", 0, "path", to="/tmp/../etc"), 7, "climbs"),
    ("L15 pilots of another recipe", change("pilots", 0, "identity_sha256", to="1" * 64), 1, "ran another recipe"),
    ("L16 pretty-printed", lambda path: path.write_text(json.dumps(json.loads(path.read_bytes()), indent=1)), 2, "by"),
    ("L16 line ends", lambda path: path.write_bytes(path.read_bytes() + b"\r\n"), 2, "line ends were converted"),
    ("L18 not sorted", lambda path: path.write_text(
        json.dumps(dict(reversed(json.loads(path.read_bytes()).items())), separators=(",", ":"))), 2, "sorted"),
    ("L19 credentials", change("datasets", "train", "sources", 0, "id", to="https://me:x@host/"), 7, "credentials"),
    ("a failed pilot", change("pilots", 0, "verdict", to="failed"), 1, "passed pilots alone"),
    ("no pilot", change("pilots", to=[]), 1, "rests on no pilot"),
    ("no lock but another document", change("schema", to="ledger.run"), 2, "ledger.recipe-lock"),
    ("empty", lambda path: path.write_bytes(b""), 2, "empty"),
]  # fmt: skip


@pytest.mark.parametrize(("do", "code", "words"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_bad_lock_is_refused_before_anything_is_written(
    do: Callable[[Path], Any],
    code: int,
    words: str,
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    do(path)
    assert call("--recipe", path, "--run", tmp_path / "run") == code
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


DIFFERENCES: list[tuple[str, list[str], list[str]]] = [
    ("L02 L09 settings", ["optimizer.learning_rate=1e-2", "optimizer.clip_norm=null"],
     ["optimizer.learning_rate: 0.003 -> 0.01", "optimizer.clip_norm: 1 -> absent"]),
    ("L09 a section that the lock has not", ["optimizer.muon={momentum: 0.9}"], ["optimizer.muon"]),
    ("target", ["run.target_step=7", "schedule.horizon=192"], [f"run.target_step: {TARGET} -> 7"]),
    ("checkpoints", ["checkpoint.interval=2", "checkpoint.keep_last=1"],
     ["checkpoint.interval: 3 -> 2", "checkpoint.keep_last: absent -> 1"]),
    ("number format", ["precision={name: bf16}"], ["precision.name: fp32 -> bf16", "version of bf16"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "words"), [row[1:] for row in DIFFERENCES], ids=[row[0] for row in DIFFERENCES]
)
def test_every_difference_stands_in_one_refusal(
    overrides: list[str], words: list[str], path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    given = [part for text in overrides for part in ("--set", text)]
    assert call("--recipe", path, "--run", tmp_path / "run", *given) == 1
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert not (tmp_path / "run").exists()


def test_l03_the_locked_dataset_is_not_there(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    away = f"data.path={tmp_path / 'away'}"
    assert call("--recipe", path, "--run", tmp_path / "run", "--set", away) == 3
    assert "away" in capsys.readouterr().err


def test_l17_other_data_is_refused_by_its_identity(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = write_dataset(tmp_path / "other", seed=9)
    config = tmp_path / "long.yaml"
    config.write_text(dump_config(long_config(other)), encoding="utf-8")
    assert call("--recipe", path, "--config", config, "--run", tmp_path / "run") == 1
    said = capsys.readouterr().err
    assert "data.metadata_sha256" in said
    assert "identity of dataset train" in said


@pytest.mark.parametrize(
    ("keys", "to", "word"),
    [
        (("tokens", "train"), 332, "tokens of dataset train"),
        (("tokenizer_sha256",), "4" * 64, "tokenizer of dataset train"),
        (("vocabulary",), 65, "vocabulary of dataset train"),
    ],
    ids=["L20 totals", "L17 tokenizer", "L17 vocabulary"],
)
def test_what_the_lock_says_of_the_dataset_must_be_so(
    keys: tuple[str, ...], to: Any, word: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    change("datasets", "train", *keys, to=to)(path)
    assert call("--recipe", path, "--run", tmp_path / "run") == 1
    assert word in capsys.readouterr().err


def damaged_copy(dataset: Path, target: Path, *, name: str) -> None:
    """Copy a dataset and flip a bit of one of its files."""
    shutil.copytree(dataset, target)
    damaged = bytearray((target / name).read_bytes())
    damaged[-1] ^= 1
    (target / name).write_bytes(damaged)


@pytest.mark.parametrize("left", [b"", b'{"event":"session_start","seq":'])
def test_what_a_kill_before_the_first_session_left_spares_no_byte_of_the_data(
    left: bytes, path: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    damaged_copy(dataset, tmp_path / "data", name="train-00000.npy")
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").write_bytes(left)
    assert call("--recipe", path, "--run", run, "--set", f"data.path={tmp_path / 'data'}") == 1
    assert "train-00000.npy" in capsys.readouterr().err
    assert (run / "metrics.jsonl").read_bytes() == left


@pytest.mark.parametrize("name", ["train-00000.npy", "tokenizer.json"])
def test_data_of_which_a_byte_changed_is_refused_before_a_step(
    name: str, path: Path, dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    damaged_copy(dataset, tmp_path / "data", name=name)
    run = tmp_path / "run"
    assert call("--recipe", path, "--run", run, "--set", f"data.path={tmp_path / 'data'}") == 1
    assert name in capsys.readouterr().err
    assert not run.exists()


def test_l11_packages_without_digests_are_named_as_not_held(lock: RecipeLock):
    assert any("not by the digest of their files" in text for text in lock.unpinned)


def test_a_run_under_a_lock_is_the_recipe_of_the_lock_and_reconciles(
    lock: RecipeLock, path: Path, tmp_path: Path, dataset: Path
):
    run = tmp_path / "run"
    assert call("--recipe", path, "--run", run, "--set", "run.name=another") == 0
    verdict = reconcile(run)
    assert (verdict.verdict, verdict.status) == ("passed", "complete")
    assert "LG603" in verdict.checked
    assert read_lock(run / "recipe.lock.json") == lock
    (start,) = [event for event in events(run) if isinstance(event, SessionStart)]
    assert start.run is not None
    assert start.run.recipe_lock_sha256 == document_sha256(lock)
    assert (
        start.identity_sha256
        == lock.identity_sha256
        == identity_sha256(recipe_of(resolved(long_config(dataset))))
    )
    assert call("--recipe", path, "--run", run, "--resume", "auto") == 0
    assert len([event for event in events(run) if isinstance(event, SessionStart)]) == 1


def test_a_run_that_was_not_started_under_a_lock_does_not_go_on_under_one(
    path: Path, tmp_path: Path, dataset: Path, capsys: pytest.CaptureFixture[str]
):
    config, run = tmp_path / "long.yaml", tmp_path / "run"
    config.write_text(dump_config(long_config(dataset)), encoding="utf-8")
    assert call("--config", config, "--run", run) == 0
    assert call("--recipe", path, "--run", run, "--restart") == 1
    assert "not started under this lock" in capsys.readouterr().err


def test_a_machine_unlike_the_pilots_is_told_not_refused(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    change("packages", "torch", to="1.0")(path)
    change("environment", "python", to="CPython 3.5")(path)
    assert call("--recipe", path, "--run", tmp_path / "run") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "not what the pilots ran on: package torch: 1.0 ->" in said
    assert "python: CPython 3.5 ->" in said


def test_the_digest_of_the_content_covers_everything_else(lock: RecipeLock):
    assert content_sha256(lock) != content_sha256(
        lock.model_copy(update={"created": "2026-01-01T00:00:00.000001Z"})
    )
