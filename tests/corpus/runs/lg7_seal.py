"""LG705: sealed runs that something was done to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ledger.storage.canonical import canonical_json
from tests.corpus.runs.base import OTHER, case


def reseal(run: Path, **changes: Any) -> None:
    """Change what the seal says."""
    seal = json.loads((run / "seal.json").read_bytes())
    (run / "seal.json").write_bytes(canonical_json(seal | changes))


@case("LG705", "sealed")
def an_export_was_added(run: Path) -> None:
    (run / "exports" / "model-bf16.safetensors").write_bytes(b"more")


@case("LG705", "sealed")
def the_verdict_was_edited(run: Path) -> None:
    path = run / "verdict.json"
    path.write_bytes(path.read_bytes().replace(b'"completed', b'"completeD'))


@case("LG705", "sealed")
def the_verdict_was_removed(run: Path) -> None:
    (run / "verdict.json").unlink()


@case("LG705", "sealed")
def an_export_grew(run: Path) -> None:
    (run / "exports" / "model.safetensors").write_bytes(b"weights and more")


@case("LG705", "sealed", rehash=True)
def an_export_was_changed(run: Path) -> None:
    (run / "exports" / "model.safetensors").write_bytes(b"wEights")


@case("LG705", "sealed", companions="LG406")
def an_export_became_a_link(run: Path) -> None:
    """No link is a file of a run: LG406."""
    path = run / "exports" / "model.safetensors"
    path.rename(run.parent / "model.safetensors")
    path.symlink_to(run.parent / "model.safetensors")


@case("LG705", "sealed")
def the_seal_is_no_document(run: Path) -> None:
    (run / "seal.json").write_text("{}")


@case("LG705", "sealed")
def a_failed_verdict_was_sealed(run: Path) -> None:
    seal = json.loads((run / "seal.json").read_bytes())
    reseal(run, verdict=seal["verdict"] | {"verdict": "failed"})


@case("LG705", "sealed")
def a_verdict_of_another_head_was_sealed(run: Path) -> None:
    seal = json.loads((run / "seal.json").read_bytes())
    reseal(run, verdict=seal["verdict"] | {"log_head": {"seq": 1, "chain": OTHER}})


@case("LG105", "sealed")
def the_seal_is_of_another_log(run: Path) -> None:
    seal = json.loads((run / "seal.json").read_bytes())
    log = seal["log"] | {"chain": OTHER}
    reseal(run, log=log, verdict=seal["verdict"] | {"log_head": log})
