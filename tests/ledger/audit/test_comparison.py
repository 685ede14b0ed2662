from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from ledger.audit import compare_runs
from ledger.report.comparison import comparison_lines
from tests.ledger.audit.editing import Events, edit, of_kind
from tests.ledger.audit.healthy import SMALL
from tests.support.toy import run_toy


def test_a_run_resumed_alike_took_the_same_course(healthy_run: Callable[[str], Path]):
    comparison = compare_runs(healthy_run("plain"), healthy_run("resumed"))
    assert comparison.is_same_identity
    assert (comparison.recipe, comparison.data, comparison.facts, comparison.not_compared) == ([], [], [], {})
    assert comparison.courses == dict.fromkeys(
        ("batches", "measures"), "alike at all 6 places that both logged, up to step 6"
    )
    results = {pair.name: (pair.first, pair.second) for pair in comparison.results}
    assert results["spent tokens"] == (96, 128)
    assert results["its model"][0] == results["its model"][1] is not None


def test_what_defines_the_experiment_comes_first(healthy_run: Callable[[str], Path], tmp_path: Path):
    run_toy(tmp_path / "other", dataclasses.replace(SMALL, target_step=4, accumulation=1))
    comparison = compare_runs(healthy_run("plain"), tmp_path / "other")
    assert not comparison.is_same_identity
    classes = [leaf.leaf_class for leaf in comparison.recipe]
    assert classes == sorted(classes)
    assert "identity" in classes
    assert [pair.name for pair in comparison.facts] == ["accumulation"]
    lines = [line.text for line in comparison_lines(comparison)]
    titles = ("identity: different", "recipe, identity", "recipe, operational", "runs", "course", "results")
    places = [next(number for number, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert places == sorted(places)


def test_the_first_difference_of_the_course_is_named(
    copy_of: Callable[[str], Path], healthy_run: Callable[[str], Path]
):
    run = copy_of("plain")

    def change(events: Events) -> None:
        of_kind(events, "train")[2]["loss"] = 7.0

    edit(run, change)
    comparison = compare_runs(healthy_run("plain"), run)
    assert comparison.courses["measures"] == "differ first at step 3, after 6 microbatches"
    assert comparison.courses["batches"].startswith("alike")


def test_a_damaged_log_is_compared_as_far_as_it_can_be_read(
    copy_of: Callable[[str], Path], healthy_run: Callable[[str], Path]
):
    run = copy_of("plain")
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"loss":', b'"lost":', 1))
    comparison = compare_runs(healthy_run("plain"), run)
    assert comparison.not_compared["the whole log of the second"].startswith("LG101")
