"""The command line: results on stdout, one sentence on stderr, an exit code for each kind of error."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from data_prep.cli import main
from data_prep.config import PreparationConfig
from ledger.config import load_config
from tests.data_prep.corpus import overrides, texts, write_jsonl

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "data" / "python-docs.yaml"


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "corpus.jsonl", texts(60))


class Run(Protocol):
    """Runs the command line and returns how it ended."""

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]: ...


def run_process(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "data_prep", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.fixture
def run(monkeypatch, capsys) -> Iterator[Run]:
    """Run the command line in this process: starting one takes longer than what is tested."""
    handler = signal.getsignal(signal.SIGTERM)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["data_prep", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        found = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), found.out, found.err)

    yield call
    signal.signal(signal.SIGTERM, handler)


def settings(source: Path, **changed) -> list[str]:
    given = [part for text in overrides(source, **changed) for part in ("--set", text)]
    return ["--config", str(CONFIG), "--set", "source.kind=jsonl", *given]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configs" / "data").glob("*.yaml")), ids=lambda path: path.name
)
def test_every_shipped_configuration_loads(path):
    load_config([path], [], model=PreparationConfig)


def test_prepare_then_reuse_then_refuse(source, tmp_path, run):
    output = str(tmp_path / "data")
    first = run("prepare", *settings(source), "--output", output, "--json")
    assert (first.returncode, first.stderr) == (0, "")
    assert json.loads(first.stdout)["outcome"] == "prepared"
    again = run("prepare", *settings(source), "--output", output)
    assert (again.returncode, again.stderr) == (0, "")
    assert "verified and reused" in again.stdout
    other = run("prepare", *settings(source, shuffle__seed=9), "--output", output)
    assert other.returncode == 1
    assert other.stdout == ""
    assert other.stderr.startswith("error: ")
    assert "preparation.shuffle.seed (there 0, asked for 9)" in other.stderr


def test_damage_names_the_file_and_the_folder_to_remove(source, tmp_path, run):
    output = tmp_path / "data"
    run("prepare", *settings(source), "--output", str(output))
    path = output / "validation-00000.npy"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    found = run("prepare", *settings(source), "--output", str(output))
    assert found.returncode == 1
    assert str(path) in found.stderr
    assert f"remove {output}" in found.stderr
    assert "Traceback" not in found.stderr


def test_resolve_prints_everything_that_decides_the_dataset(source, run):
    found = run("resolve", *settings(source), "--json")
    assert found.returncode == 0
    value = json.loads(found.stdout)
    assert value["config"]["shuffle"] == {"seed": 0, "buffer": 20, "buffer_bytes": 2**28}
    assert value["classes"]["shuffle.seed"] == "identity"
    assert value["inputs"]["files"][0]["name"] == "corpus.jsonl"
    assert value["parts"] == {"algorithm": 2}


def test_a_resolved_configuration_loads_on_its_own(source, tmp_path, run):
    (tmp_path / "resolved.yaml").write_text(run("resolve", *settings(source)).stdout)
    again = run("resolve", "--config", str(tmp_path / "resolved.yaml"))
    assert again.stdout == (tmp_path / "resolved.yaml").read_text()


ERRORS = {
    "an unknown key": (["--set", "shufle.seed=1"], 2, "shuffle"),
    "an absent file": (["--set", 'source.files=["absent.jsonl"]'], 3, "absent.jsonl"),
    "an unknown column": (["--set", "source.column=body"], 1, "'body'"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_is_one_sentence_and_a_code(name, source, tmp_path, run):
    arguments, code, message = ERRORS[name]
    found = run("prepare", *settings(source), *arguments, "--output", str(tmp_path / "data"))
    assert found.returncode == code
    assert message in found.stderr
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_an_error_of_a_whole_process_is_one_sentence_and_a_code(source, tmp_path):
    found = run_process(
        "prepare", *settings(source, source__column="body"), "--output", str(tmp_path / "data")
    )
    assert (found.returncode, found.stdout, found.stderr.count("\n")) == (1, "", 1)


@pytest.mark.parametrize("arguments", [["unknown"], ["prepare", "--no-such-flag"]])
def test_misuse_is_code_2(arguments, run):
    assert run(*arguments).returncode == 2


def test_help_answers():
    found = run_process("prepare", "--help")
    assert found.returncode == 0
    assert "--output" in found.stdout


def test_resolving_names_the_files_that_are_read_without_reading_them(source, tmp_path, run):
    tokenizer = tmp_path / "tokenizer.json"
    given = [f"source.files=[{source}]", "tokenizer.kind=file", f"tokenizer.path={tokenizer}"]
    arguments = ["--config", str(CONFIG), "--set", "source.kind=jsonl"]
    arguments += [part for text in given for part in ("--set", text)]
    source.write_bytes(b"\xff")  # no text at all
    done = run("resolve", *arguments, "--json", "--list-files")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"] == {
        "source": [[source.name, str(source)]],
        "tokenizer": [["tokenizer.json", str(tokenizer)]],
    }
