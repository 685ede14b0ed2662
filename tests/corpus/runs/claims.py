"""LG105, LG406: files beside the log that claim something of the run; a person may believe them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ledger.audit import reconcile
from ledger.maintain import write_verdict
from ledger.storage.canonical import canonical_json
from tests.corpus.runs.base import FIRST_CHECKPOINT, OTHER, case
from tests.corpus.runs.forged import another
from tests.ledger.audit.editing import rewrite_tail


def keep_verdict(run: Path, **changes: Any) -> None:
    """Keep an honest verdict in a run, then change what it says."""
    path = write_verdict(run, reconcile(run))
    path.write_bytes(canonical_json(json.loads(path.read_bytes()) | changes))


@case("LG406", "plain", says="cannot be read")
def a_verdict_that_is_no_document(run: Path) -> None:
    (run / "verdict.json").write_text('{"verdict":"passed"}')


@case("LG406", "interrupted", says="says passed, although by the findings that it counts it is incomplete")
def a_verdict_that_says_passed_of_what_it_found_missing(run: Path) -> None:
    keep_verdict(run, verdict="passed")


@case("LG406", "plain", says="states other totals than the log")
def a_verdict_of_more_tokens(run: Path) -> None:
    counters = json.loads(canonical_json(reconcile(run).model_dump(mode="json")["spent"]))
    keep_verdict(run, spent=counters | {"tokens_seen": 10**9})


@case("LG406", "plain", says="is of run")
def a_verdict_of_another_run(run: Path) -> None:
    other = another(run)
    write_verdict(other, reconcile(other))
    (run / "verdict.json").write_bytes((other / "verdict.json").read_bytes())


@case("LG105", "interrupted", says="it was cut or rewritten since")
def a_log_cut_behind_the_verdict(run: Path) -> None:
    keep_verdict(run)
    rewrite_tail(run, lambda bodies: bodies[:-1], keep=1)


@case("LG406", "plain", severity="warning", companions="LG401", says="which is so no more")
def a_checkpoint_removed_after_the_verdict(run: Path) -> None:
    """Its event still speaks of it: LG401."""
    keep_verdict(run)
    for path in (run / FIRST_CHECKPOINT).iterdir():
        path.unlink()
    (run / FIRST_CHECKPOINT).rmdir()


@case("LG406", "plain", says="cannot be read")
def waivers_that_are_no_document(run: Path) -> None:
    (run / "waivers.json").write_text('{"waivers":[{"rule":"LG401"}]}')


@case("LG406", "plain", severity="warning", says="was not started under a recipe lock")
def a_lock_that_nobody_was_held_to(run: Path) -> None:
    (run / "recipe.lock.json").write_text("{}")


@case("LG406", "plain", severity="warning", says="did not branch")
def a_parent_that_nobody_branched_from(run: Path) -> None:
    (run / "parent").mkdir()
    (run / "parent" / "manifest.json").write_bytes((run / FIRST_CHECKPOINT / "manifest.json").read_bytes())


@case("LG406", "plain", says="is of run")
def an_evaluation_of_another_run_that_no_event_names(run: Path) -> None:
    other = next((another(run) / "evaluations").iterdir())
    (run / "evaluations" / "better.json").write_bytes(other.read_bytes())


@case("LG406", "plain", says="says step 99 of a checkpoint of step 6")
def an_evaluation_of_a_checkpoint_at_another_step(run: Path) -> None:
    add_evaluation(run, step=99)


@case("LG406", "plain", severity="warning", says="neither has nor had")
def an_evaluation_of_a_checkpoint_that_never_was(run: Path) -> None:
    add_evaluation(run, manifest_sha256=OTHER)


def add_evaluation(run: Path, **changes: Any) -> None:
    """Put a better measurement than the last one beside it, which no event names."""
    last = max((run / "evaluations").iterdir())
    better = json.loads(last.read_bytes()) | {"loss": 0.5} | changes
    (run / "evaluations" / "better.json").write_bytes(canonical_json(better))


@case("LG406", "interrupted", severity="warning", says="which is so no more")
def a_forged_verdict_that_hides_what_was_missing(run: Path) -> None:
    keep_verdict(run, verdict="passed", findings=[], finding_counts={}, rule_counts={})


@case("LG406", "plain", says="and not which one")
def a_verdict_of_no_log(run: Path) -> None:
    keep_verdict(run, log_head=None)


@case("LG406", "plain", says="is no regular file")
def an_export_that_is_a_link(run: Path) -> None:
    (run / "exports").mkdir()
    (run / "exports" / "model.safetensors").symlink_to(run / FIRST_CHECKPOINT / "model.safetensors")
