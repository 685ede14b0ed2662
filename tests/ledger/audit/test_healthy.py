from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit import reconcile, summarize
from ledger.errors import UsageError
from tests.ledger.audit.editing import Events, change_nothing, edit, of_kind
from tests.ledger.audit.healthy import HEALTHY, INCOMPLETE, WARNED


@pytest.mark.parametrize("name", HEALTHY)
def test_an_honest_run_is_never_called_broken(name: str, healthy_run: Callable[[str], Path]):
    verdict = reconcile(healthy_run(name), rehash=True)
    found = {finding.rule for finding in verdict.findings if finding.severity != "hint"}
    assert found == INCOMPLETE.get(name, set()) | WARNED.get(name, set()), verdict.findings
    assert verdict.verdict == ("incomplete" if name in INCOMPLETE else "passed")
    assert verdict.finding_counts["error"] == 0


@pytest.mark.parametrize("name", HEALTHY)
def test_the_summary_of_an_honest_run_has_no_findings(name: str, healthy_run: Callable[[str], Path]):
    assert summarize(healthy_run(name)).findings == []


def test_a_rate_divides_a_session_s_own_tokens_by_its_own_seconds(healthy_run: Callable[[str], Path]):
    summary = summarize(healthy_run("resumed"))
    latest = summary.latest
    assert latest is not None
    assert latest.tokens == 6 * 8 < latest.last.tokens_seen
    assert latest.wall_clock_tokens_per_second == latest.tokens / latest.elapsed_seconds
    assert latest.training_tokens_per_second == latest.tokens / latest.training_seconds


def test_the_editor_itself_changes_nothing_that_a_rule_sees(copy_of: Callable[[str], Path]):
    run = copy_of("resumed")
    edit(run, change_nothing)
    verdict = reconcile(run, rehash=True)
    assert verdict.findings == []
    assert verdict.verdict == "passed"


def test_a_recurrence_that_duplicate_text_explains_is_a_hint(healthy_run: Callable[[str], Path]):
    verdict = reconcile(healthy_run("on_duplicates"))
    assert {(finding.rule, finding.severity) for finding in verdict.findings} == {("LG211", "hint")}
    assert verdict.verdict == "passed"


def test_without_the_dataset_the_same_recurrence_cannot_pass(tmp_path: Path):
    HEALTHY["on_duplicates"](tmp_path / "run")
    (tmp_path / "run-data").rename(tmp_path / "elsewhere")
    assert reconcile(tmp_path / "run").verdict != "passed"


def test_another_dataset_in_the_place_of_the_run_s_makes_the_verdict_incomplete(
    copy_of: Callable[[str], Path], healthy_run: Callable[[str], Path]
):
    other = healthy_run("on_duplicates").with_name("on_duplicates-data")
    verdict = reconcile(copy_of("on_dataset"), data=other)
    assert {finding.rule for finding in verdict.findings} == {"LG501"}
    assert verdict.verdict == "incomplete"


def test_a_recipe_that_says_nothing_is_masked_is_held_to_it(copy_of: Callable[[str], Path]):
    run = copy_of("on_dataset")

    def lose_a_token(events: Events) -> None:
        train = of_kind(events, "train")[-1]
        train["window"]["loss_tokens"] -= 1
        for event in events:
            if event["seq"] >= train["seq"]:
                event["loss_tokens"] -= 1
                if event["event"] == "checkpoint":
                    event["at"]["loss_tokens"] -= 1

    edit(run, lose_a_token)
    assert {finding.rule for finding in reconcile(run).findings} == {"LG215"}


@pytest.mark.parametrize("name", ["nowhere", "run", "file"])
def test_a_path_without_a_dataset_is_refused(name: str, copy_of: Callable[[str], Path], tmp_path: Path):
    run = copy_of("on_dataset")
    (tmp_path / "run").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError):
        reconcile(run, data=tmp_path / name)


def test_waivers_that_cannot_be_read_are_named(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    (run / "waivers.json").write_text("{}")
    verdict = reconcile(run)
    assert "waivers.json" in verdict.not_checked
    (finding,) = verdict.findings
    assert (finding.rule, finding.severity, finding.where) == ("LG406", "error", "waivers.json")


def test_a_copy_of_a_checkpoint_is_not_called_usable(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    shutil.copytree(run / "checkpoints/step-00000003-s01", run / "checkpoints/step-00000004-s01")
    assert not any("usable" in finding.message for finding in reconcile(run).findings)
