"""A run that branched from another one's checkpoint: with its counters and state, or with its weights alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.audit import reconcile
from ledger.maintain import seal_run
from ledger.records.documents import CheckpointManifest, Recipe
from ledger.records.layout import checkpoint_name
from ledger.storage.canonical import sha256_hex
from ledger.storage.documents import document_bytes
from tests.ledger.audit.branching import PARENT_CHECKPOINT, continued, parent_of
from tests.ledger.audit.editing import Events, edit, read_events

ZERO = dict.fromkeys(("step", "attempts", "skipped", "microbatches", "tokens_seen", "loss_tokens"), 0)


def branch(run: Path, *, mode: str, other: dict[str, Any] | None = None, **changes: Any) -> None:
    """Make a run one that branched from another run's checkpoint, whose manifest is changed as asked.

    `other` names leaves of the parent's recipe that differ from the run's.
    """
    start = read_events(run)[0]
    manifest = json.loads(next((run / "checkpoints").glob("step-00000003*/manifest.json")).read_bytes())
    manifest |= {"run_id": "other", "counters": ZERO, "cursor": start["cursor"], "state": start["state"]}
    manifest |= {"data_chain": start["data_chain"]} | changes
    recipe = json.loads((run / "recipes" / f"{start['recipe_sha256']}.json").read_bytes())
    for field, value in (other or {}).items():
        section, _, key = field.partition(".")
        recipe["config"][section][key] = value
    recipe_bytes = document_bytes(Recipe.model_validate(recipe))
    manifest["recipe_sha256"] = sha256_hex(recipe_bytes)
    data = document_bytes(CheckpointManifest.model_validate(manifest))
    (run / "parent").mkdir()
    (run / "parent" / "manifest.json").write_bytes(data)
    (run / "parent" / "recipe.json").write_bytes(recipe_bytes)
    digest = sha256_hex(data)

    def change(events: Events) -> None:
        step = manifest["counters"]["step"]
        name = f"checkpoints/{checkpoint_name(step=step, session=1)}"
        parent = {"run": "other", "session": 1, "step": step, "checkpoint": name}
        events[0] |= {"start": "branch", "parent": parent | {"manifest_sha256": digest}}
        events[0]["run"]["parent"] = {"run": "other", "manifest_sha256": digest, "mode": mode}

    edit(run, change)


@pytest.mark.parametrize("mode", ["continue", "initialise"])
def test_an_honest_branch_run_passes(mode: str, copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    branch(run, mode=mode)
    verdict = reconcile(run)
    assert verdict.findings == []
    assert verdict.verdict == "passed"


def test_weights_alone_are_taken_over_whatever_else_the_parent_held(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    branch(run, mode="initialise", counters=ZERO | {"step": 3, "attempts": 3})
    assert reconcile(run).findings == []


def test_a_continued_run_starts_with_the_parent_s_counters(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    branch(run, mode="continue", counters=ZERO | {"step": 3, "attempts": 3})
    assert {finding.rule for finding in reconcile(run).findings} == {"LG302"}


def test_a_branch_run_with_other_weights_is_found(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    state = read_events(run)[0]["state"] | {"model": "ab" * 32}
    branch(run, mode="initialise", state=state)
    assert {finding.rule for finding in reconcile(run).findings} == {"LG302"}


def test_a_changed_parent_manifest_is_found(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    branch(run, mode="continue")
    path = run / "parent" / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"kind":"interval"', b'"kind":"milestone"'))
    assert {finding.rule for finding in reconcile(run).findings} == {"LG601"}


def test_a_branch_run_that_does_not_name_its_parent_is_found(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    branch(run, mode="continue")
    edit(run, lambda events: events[0].update(parent=None))
    assert {finding.rule for finding in reconcile(run).findings} == {"LG301"}


@pytest.mark.parametrize("damage", ["absent", "changed"])
def test_a_parent_recipe_that_is_not_what_the_manifest_names_is_found(
    damage: str, copy_of: Callable[[str], Path]
):
    run = copy_of("plain")
    branch(run, mode="continue")
    path = run / "parent" / "recipe.json"
    if damage == "absent":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace(b"0.01", b"0.02"))
    assert {finding.rule for finding in reconcile(run).findings} == {"LG601"}


def test_a_continued_run_states_what_it_changed_of_the_schedule(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    branch(run, mode="continue", other={"schedule.warmup_steps": 9})
    (finding,) = reconcile(run).findings
    assert finding.rule == "LG602"
    assert "schedule.warmup_steps" in finding.message


def test_a_continued_run_changes_nothing_else_that_defines_the_experiment(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    branch(run, mode="continue", other={"optimizer.learning_rate": 0.5})
    assert {finding.rule for finding in reconcile(run).findings} == {"LG602"}
    assert any("not of the schedule" in finding.message for finding in reconcile(run).findings)


def test_an_initialised_run_may_be_another_experiment(copy_of: Callable[[str], Path]):
    run = copy_of("plain")
    branch(run, mode="initialise", other={"optimizer.learning_rate": 0.5})
    assert reconcile(run).findings == []


def _cut(parent: Path) -> None:
    log = parent / "metrics.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-4]))


def _edit(parent: Path) -> None:
    log = parent / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"loss":2', b'"loss":1', 1))


def _change_checkpoint(parent: Path) -> None:
    (parent / PARENT_CHECKPOINT / "model.safetensors").write_bytes(b"other weights")


def _add_to_the_sealed(parent: Path) -> None:
    seal_run(parent, reconcile(parent, rehash=True))
    (parent / "exports").mkdir()
    (parent / "exports" / "later.safetensors").write_bytes(b"weights")


def test_a_damaged_parent_leaves_its_branch_as_it_is_and_the_branch_says_that_it_did_not_look(tmp_path: Path):
    parent, run = parent_of(tmp_path / "run"), tmp_path / "run"
    continued(run)
    for damage in (_cut, _edit, _change_checkpoint, _add_to_the_sealed):
        whole = tmp_path / damage.__name__
        shutil.copytree(parent, whole)
        damage(parent)
        assert reconcile(parent, rehash=True).verdict == "failed"
        verdict = reconcile(run, rehash=True)
        assert (verdict.verdict, verdict.findings) == ("passed", [])
        shutil.rmtree(parent)
        whole.rename(parent)
    shutil.rmtree(parent)
    verdict = reconcile(run, rehash=True)
    assert (verdict.verdict, verdict.findings) == ("passed", [])
    assert "LG302" in verdict.checked
    said = verdict.not_checked["the parent run"]
    assert read_events(run)[0]["parent"]["run"] in said
    assert "nothing was looked at but the manifest and the recipe" in said


def test_without_its_parent_s_manifest_a_branch_says_what_it_cannot_judge(tmp_path: Path):
    continued(tmp_path / "run")
    (tmp_path / "run" / "parent" / "manifest.json").unlink()
    verdict = reconcile(tmp_path / "run")
    assert verdict.not_checked["LG302"] == "the manifest that the run branched from is not at hand"
    assert "LG302" not in verdict.checked
    assert "LG602" in verdict.not_checked
