from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.cli import main
from ledger.storage.lock import RunLock
from tests.ledger.audit.editing import edit, of_kind

Run = Callable[[str], Path]


def test_summarize_says_what_happened(healthy_run: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["summarize", str(healthy_run("plain"))]) == 0
    shown = capsys.readouterr()
    assert "step           0 to 6, target 6" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize(
    ("run", "step", "code"),
    [("plain", "6", 0), ("plain", "5", 1), ("interrupted", "6", 3), ("interrupted", "4", 3)],
)
def test_a_required_end_is_there_or_elsewhere_or_missing(run: str, step: str, code: int, healthy_run: Run):
    assert main(["summarize", str(healthy_run(run)), "--require-end", step]) == code


@pytest.mark.parametrize(("run", "code"), [("resumed", 0), ("sparse", 0), ("interrupted", 3)])
def test_a_latest_session_without_an_end_cannot_be_judged(run: str, code: int, healthy_run: Run):
    assert main(["summarize", str(healthy_run(run))]) == code


def test_json_goes_to_standard_output_alone(healthy_run: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["reconcile", str(healthy_run("plain")), "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["verdict"] == "passed"
    assert shown.err == ""


@pytest.mark.parametrize(("run", "code"), [("plain", 0), ("orphaned", 0), ("interrupted", 3)])
def test_reconcile_exits_as_its_verdict_says(run: str, code: int, healthy_run: Run):
    assert main(["reconcile", str(healthy_run(run))]) == code


def test_reconcile_of_a_broken_run_fails_and_says_where(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    edit(run, lambda events: of_kind(events, "train")[1].update(clipped=1))
    assert main(["reconcile", str(run)]) == 1
    shown = capsys.readouterr().out
    assert "error LG215 metrics.jsonl line" in shown
    assert "ledger explain LG215" in shown


def test_reconcile_writes_nothing_unless_asked(copy_of: Run):
    run = copy_of("plain")
    before = sorted(path for path in run.rglob("*"))
    main(["reconcile", str(run), "--rehash"])
    main(["summarize", str(run)])
    assert sorted(path for path in run.rglob("*")) == before


def test_a_written_verdict_is_a_document_that_the_next_reconcile_accepts(copy_of: Run):
    run = copy_of("plain")
    assert main(["reconcile", str(run), "--write"]) == 0
    assert json.loads((run / "verdict.json").read_bytes())["verdict"] == "passed"
    assert main(["reconcile", str(run), "--write"]) == 0


def test_no_verdict_is_written_into_a_sealed_run(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    (run / "seal.json").write_text("{}")
    assert main(["reconcile", str(run), "--write"]) == 1
    assert "sealed" in capsys.readouterr().err
    assert not (run / "verdict.json").exists()


def test_a_run_is_sealed_and_its_head_can_be_quoted(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    assert main(["seal", str(run)]) == 0
    lines = capsys.readouterr().out
    assert [line.split()[0] for line in lines.splitlines()] == ["run", "head", "seal"]
    assert main(["verify", str(run), "--expect-head", lines]) == 0
    assert main(["reconcile", str(run), "--expect-head", lines]) == 0
    assert lines.splitlines()[-1] in capsys.readouterr().out
    (run / "verdict.json").write_text("{}")
    assert main(["reconcile", str(run), "--expect-head", lines]) == 1
    assert "error LG705 verdict.json" in capsys.readouterr().out
    assert main(["seal", str(run)]) == 1
    assert "sealed already" in capsys.readouterr().err


def test_a_run_that_does_not_pass_is_not_sealed(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("interrupted")
    assert main(["seal", str(run)]) == 3
    output = capsys.readouterr()
    assert "INCOMPLETE" in output.out
    assert "not sealed" in output.err
    assert not (run / "seal.json").exists()


def test_the_seal_as_json(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["seal", str(copy_of("plain")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {"files", "bytes", "head", "attestation"}


def test_a_control_is_compared_with(healthy_run: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["reconcile", str(healthy_run("resumed")), "--control", str(healthy_run("plain"))]) == 0
    assert "control: start bitwise, data bitwise" in capsys.readouterr().out


def test_a_control_without_evidence_is_not_testable(healthy_run: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["reconcile", str(healthy_run("resumed")), "--control", str(healthy_run("skipping"))]) == 3
    assert "not testable" in capsys.readouterr().out


def test_a_live_run_is_running_and_cannot_be_judged_yet(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("interrupted")
    with (run / "metrics.jsonl").open("ab") as log:
        log.write(b'{"event":"tra')
    with RunLock(run):
        assert main(["reconcile", str(run)]) == 3
    shown = capsys.readouterr().out
    assert "status: running" in shown
    assert "LG104" not in shown
    assert "LG304" not in shown


def test_verify_takes_a_run_a_dataset_and_a_checkpoint(copy_of: Run):
    run = copy_of("on_dataset")
    data = run.with_name("on_dataset-data")
    checkpoint = next((run / "checkpoints").iterdir())
    for path in (run, data, checkpoint):
        assert main(["verify", str(path)]) == 0
    shard = data / "train-00000.npy"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    assert main(["verify", str(data)]) == 1
    assert main(["verify", str(run), "--data", str(data)]) == 1
    (checkpoint / "model.safetensors").write_bytes(b"")
    assert main(["verify", str(checkpoint)]) == 1


def test_diff_shows_identity_differences_first(healthy_run: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["diff", str(healthy_run("plain")), str(healthy_run("sparse"))]) == 0
    shown = capsys.readouterr().out
    assert (
        shown.index("different experiments")
        < shown.index("recipe, identity")
        < shown.index("recipe, operational")
    )
    assert "batch.accumulation" in shown
    assert main(["diff", str(healthy_run("plain")), str(healthy_run("moved")), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["is_same_identity"] is True


def test_explain_prints_a_page_and_lists_all(capsys: pytest.CaptureFixture[str]):
    assert main(["explain", "lg306"]) == 0
    assert capsys.readouterr().out.startswith("# LG306: redone work agrees\n")
    assert main(["explain"]) == 0
    assert capsys.readouterr().out.count("LG") > 40


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["explain", "LG99"], "did you mean"),
        (["schema", "event.trian"], "did you mean event.train"),
        (["schema", "nothing at all"], "lists them"),
        (["summarise", "x"], "did you mean summarize"),
        (["summarize", ""], "the path is empty"),
        (["reconcile", "no such folder"], "does not exist"),
        (["verify", "no such folder"], "does not exist"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert shown.out == ""


@pytest.mark.parametrize("number", ["-1", "abc", "0x10", "1_000", "１２", "1.5", ""])
def test_a_step_is_written_in_plain_digits(number: str, healthy_run: Run):
    assert main(["summarize", str(healthy_run("plain")), "--require-end", number]) == 2


def test_a_folder_without_any_file_of_a_run_is_not_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["reconcile", str(tmp_path)]) == 1
    assert "is not a run" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["summarize", "reconcile", "verify", "diff", "repair"])
@pytest.mark.parametrize("left", ["nothing", "a temporary", "a lock"])
def test_what_a_crash_leaves_before_a_run_begins_cannot_be_judged(
    command: str, left: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if left != "nothing":
        (tmp_path / ("run.lock" if left == "a lock" else ".Case.tmp-0123456789abcdef")).touch()
    code = main([command, *[str(tmp_path)] * (2 if command == "diff" else 1)])
    if (command, left) == ("repair", "a lock"):
        assert code == 0  # there is nothing to put right
        return
    assert code == 3
    assert capsys.readouterr().err.count("\n") <= 1


def test_a_file_is_no_folder(tmp_path: Path):
    (tmp_path / "x").write_text("")
    assert main(["reconcile", str(tmp_path / "x")]) == 2


def test_a_folder_of_runs_lists_them(healthy_run: Run, capsys: pytest.CaptureFixture[str]):
    assert main(["summarize", str(healthy_run("plain").parent)]) == 2
    assert "plain" in capsys.readouterr().err


def test_a_link_to_a_run_is_followed_with_a_warning(
    healthy_run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "link").symlink_to(healthy_run("plain"))
    assert main(["summarize", str(tmp_path / "link")]) == 0
    assert capsys.readouterr().err.startswith("warning: ")


def test_a_pipe_in_the_log_s_place_is_refused_at_once(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    (run / "metrics.jsonl").unlink()
    os.mkfifo(run / "metrics.jsonl")
    assert main(["reconcile", str(run)]) == 7
    assert "pipe" in capsys.readouterr().err


def test_a_run_of_a_newer_version_is_refused_as_such(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"log_version":1', b'"log_version":2', 1))
    assert main(["reconcile", str(run)]) == 6
    assert "newer" in capsys.readouterr().err


def test_names_that_would_steer_a_terminal_are_escaped(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    hostile = "\x1b[31mred\u202e\x9b2J"
    edit(run, lambda events: events[0]["run"].update(name=hostile))
    for arguments in (["summarize", str(run)], ["summarize", str(run), "--json"]):
        assert main(arguments) == 0
        shown = capsys.readouterr().out
        assert "red" in shown
        assert not set("\x1b\u202e\x9b") & set(shown)


def test_a_run_that_was_never_started_has_nothing_on_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    run = tmp_path / "run"
    run.mkdir()
    with RunLock(run):
        pass
    assert main(["reconcile", str(run)]) == 3
    assert "LG104" in capsys.readouterr().out
    assert main(["summarize", str(run)]) == 3


def test_a_log_that_is_gone_is_named_and_what_pins_it_too(copy_of: Run, capsys: pytest.CaptureFixture[str]):
    run = copy_of("plain")
    (run / "metrics.jsonl").unlink()
    assert main(["reconcile", str(run)]) == 1
    shown = capsys.readouterr().out
    assert "LG104" in shown
    assert "LG105" in shown


def test_a_run_with_a_strange_name_works(copy_of: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    strange = os.fsdecode(b"caf\xe9 \x1b")
    shutil.move(copy_of("interrupted"), tmp_path / strange)
    assert main(["reconcile", str(tmp_path / strange)]) == 3
    assert "\x1b" not in capsys.readouterr().out
