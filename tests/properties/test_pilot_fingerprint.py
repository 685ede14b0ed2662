"""A stage's fingerprint changes if and only if something changes that decides its result."""

from __future__ import annotations

import copy
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.config import load_config
from ledger.pilot import STAGES, Plan
from ledger.pilot.fingerprint import Fingerprint, changed
from ledger.pilot.plan import Resolution, Resolved
from trainer.config import TrainerConfig
from trainer.recipe import fix_end, parts_of, recipe_of

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
TRAINED = [stage for stage in STAGES if stage not in ("prepare", "validate")]
CONFIG = fix_end(load_config([CONFIGS / "tiny.yaml"], model=TrainerConfig))
RECORDED = recipe_of(CONFIG).config
CLASSES = recipe_of(CONFIG).classes
PARTS = parts_of(CONFIG)
PREPARED = Fingerprint(stage="prepare", inputs={"seed": 1}, parts={"algorithm": 2})
VALUES = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8)


def resolved(config: dict[str, Any], parts: dict[str, int]) -> Resolved:
    return Resolved(
        config=config,
        classes=CLASSES,
        identity_sha256="0" * 64,
        parts=parts,
        tokens_per_update=1024,
        train_sha256="1" * 64,
        validation_sha256="1" * 64,
    )


@lru_cache
def load_plan(root: str, *overrides: str) -> Plan:
    return Plan([CONFIGS / "pilots" / "tiny.yaml"], overrides, root=Path(root))


def fingerprints(
    *,
    root: str = "/pilots",
    name: str = "python-docs",
    prepared: Fingerprint = PREPARED,
    stages: dict[str, tuple[dict[str, Any], dict[str, int]]] | None = None,
    overrides: tuple[str, ...] = (),
) -> dict[str, str]:
    """Return what decides each stage where some of them have another configuration or other parts."""
    plan = load_plan(root, f"pilot.name={name}", *overrides)
    usual = (RECORDED, PARTS)
    of_stages = {stage: resolved(*(stages or {}).get(stage, usual)) for stage in plan.trained}
    long_run = resolved(*(stages or {}).get("long run", usual))
    plan.__dict__["resolution"] = Resolution(long_run=long_run, stages=of_stages)
    plan.__dict__["prepare_fingerprint"] = prepared
    return {stage: found.sha256 for stage, found in plan.fingerprints().items()}


USUAL = fingerprints()


def with_leaf(path: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(dict(RECORDED))
    *sections, leaf = path.split(".")
    section = config
    for key in sections:
        section = section[key]
    section[leaf] = value
    return config


def value_at(path: str) -> Any:
    found: Any = RECORDED
    for key in path.split("."):
        found = found[key]
    return found


def is_same(a: Any, b: Any) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


@given(path=st.sampled_from(sorted(CLASSES)), value=VALUES, stage=st.sampled_from(TRAINED))
def test_a_leaf_of_one_stage_decides_it_and_what_reads_it(path: str, value: Any, stage: str):
    found = fingerprints(stages={stage: (with_leaf(path, value), PARTS)})
    decides = not is_same(value, value_at(path)) and (
        CLASSES[path] != "volatile" or path in ("machine.device", "machine.threads")
    )
    readers = {"validate"} if stage == "stability" else set()
    assert set(changed(USUAL, found)) == ({stage, *readers} if decides else set())


@given(part=st.sampled_from(sorted(PARTS)), stage=st.sampled_from(TRAINED))
def test_a_new_version_of_a_part_rebuilds_what_uses_it_and_nothing_else(part: str, stage: str):
    found = fingerprints(stages={stage: (RECORDED, {**PARTS, part: PARTS[part] + 1})})
    assert set(changed(USUAL, found)) == {stage, *(["validate"] if stage == "stability" else [])}


@settings(max_examples=10)
@given(root=st.text("abc/", max_size=8), name=st.from_regex(r"\A[a-z]{1,8}\Z"))
def test_where_it_lies_and_what_it_is_called_decide_nothing(root: str, name: str):
    assert fingerprints(root=f"/{root}", name=name) == USUAL


@pytest.mark.parametrize(
    "override",
    [
        "pilot.stability.gates.loss_drop.min=0.7",
        "pilot.validate.gates.leaked_share=null",
        "pilot.stages=[validate]",
    ],
)
def test_bounds_and_the_choice_of_stages_decide_nothing(override: str):
    found = fingerprints(overrides=(override,))
    assert found.items() <= USUAL.items()


def test_another_corpus_decides_every_stage():
    other = Fingerprint(stage="prepare", inputs={"seed": 2}, parts={"algorithm": 2})
    assert set(changed(USUAL, fingerprints(prepared=other))) == set(STAGES)


def test_when_the_run_is_killed_decides_the_stage_that_kills_it():
    found = fingerprints(overrides=("pilot.resume.kill_after_step=13",))
    assert set(changed(USUAL, found)) == {"resume"}


def test_a_stage_of_ones_own_is_decided_by_where_it_begins():
    fresh = fingerprints(overrides=("pilot.extra={anneal: {gates: {}}}",))
    branch = fingerprints(overrides=("pilot.extra={anneal: {start: initialise}}",))
    assert set(changed(fresh, branch)) == {"anneal"}
    deeper = {"stability": (with_leaf("run.target_step", 61), PARTS)}
    after = fingerprints(overrides=("pilot.extra={anneal: {start: initialise}}",), stages=deeper)
    assert set(changed(branch, after)) == {"stability", "validate", "anneal"}
    apart = fingerprints(overrides=("pilot.extra={anneal: {gates: {}}}",), stages=deeper)
    assert set(changed(fresh, apart)) == {"stability", "validate"}
