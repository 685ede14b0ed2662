"""`diff`: two runs side by side, identity differences first."""

from __future__ import annotations

import os
from typing import ClassVar, Literal

import msgspec
from pydantic import Field

from ledger import __version__
from ledger.audit.control import branch_rows
from ledger.audit.passing import audit_stream, form_checkers, open_stream
from ledger.audit.recipe import environment_differences
from ledger.audit.stream import Stream
from ledger.audit.subject import find_run
from ledger.audit.summary import SessionSummary, TallyChecker
from ledger.errors import EvidenceMissingError
from ledger.recipes import recipe_differences
from ledger.records.base import Document, Record
from ledger.records.documents import LeafClass
from ledger.records.events import SessionStart
from ledger.records.fields import Json

__all__ = ["Comparison", "RecipeDifference", "ResultPair", "compare_runs"]


class RecipeDifference(Record):
    """A leaf on which the two recipes differ."""

    field: str
    leaf_class: LeafClass
    first: Json
    second: Json


class ResultPair(Record):
    """One number of both runs."""

    name: str
    first: Json
    second: Json


class Comparison(Document):
    """What `ledger diff --json` prints."""

    SCHEMA: ClassVar[str] = "ledger.comparison"

    schema_name: Literal["ledger.comparison"] = Field("ledger.comparison", alias="schema")
    version: Literal[1] = 1
    tool_version: str
    runs: list[str] = Field(description="The ids of the two runs.")
    is_same_identity: bool = Field(description="Whether the identity leaves of both recipes agree.")
    recipe: list[RecipeDifference] = Field(description="Identity first, then operational, then volatile.")
    environment: list[str] = Field(description="What differs between the environments of the last sessions.")
    data: list[ResultPair] = Field(description="Data identities that differ.")
    facts: list[ResultPair] = Field(
        description="What else defines the runs and differs: name, purpose, parent, lock, geometry."
    )
    courses: dict[str, str] = Field(
        description="How far both took the same course: `batches` and `measures` to the first difference, or none."
    )
    results: list[ResultPair] = Field(description="Totals and measurements of both, equal or not.")
    not_compared: dict[str, str]


def compare_runs(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> Comparison:
    """Compare the recipes, environments, data and results of the last sessions of two runs.

    Raises:
        EvidenceMissingError: one of them has no session to compare.
        UsageError, InvalidDocumentError, NewerVersionError, UnsafeError, StorageError: as `reconcile`.
    """
    sides = [_read(path) for path in (first, second)]
    (one, one_sessions), (two, two_sessions) = sides
    not_compared = _damage(one, two)
    recipe = _recipes(one, two, not_compared)
    return Comparison(
        tool_version=__version__,
        runs=[stream.history.run_id or "" for stream in (one, two)],
        is_same_identity=_start(one).identity_sha256 == _start(two).identity_sha256,
        recipe=recipe,
        environment=_environments(one, two, not_compared),
        data=_data(one, two),
        facts=_facts(one, two),
        courses=_courses(one, two, not_compared),
        results=_results(one, two, one_sessions, two_sessions),
        not_compared=not_compared,
    )


def _read(path: str | os.PathLike[str]) -> tuple[Stream, list[SessionSummary]]:
    stream, _ = open_stream(find_run(path))
    tally = TallyChecker(stream)
    audit_stream(stream, [*form_checkers(stream), tally])
    if not tally.entries:
        raise EvidenceMissingError(
            "the log tells of no session", path=path, expected="a run that was started"
        )
    return stream, tally.summaries()


def _damage(one: Stream, two: Stream) -> dict[str, str]:
    """Say which log cannot be trusted: what is compared is what could be read of it."""
    problems = {}
    for which, stream in (("first", one), ("second", two)):
        found = next((found for found in stream.findings.kept if found.severity == "error"), None)
        if found is not None:
            problems[f"the whole log of the {which}"] = f"{found.rule} {found.where}: {found.message}"
    return problems


def _start(stream: Stream) -> SessionStart:
    """Return the start of the last session."""
    return stream.history.sessions[-1].start


def _recipes(one: Stream, two: Stream, not_compared: dict[str, str]) -> list[RecipeDifference]:
    before = one.files.recipe(_start(one).recipe_sha256).document
    after = two.files.recipe(_start(two).recipe_sha256).document
    if before is None or after is None:
        not_compared["recipe"] = "one of the recipes cannot be read"
        return []
    order = ("identity", "operational", "volatile")
    found = sorted(
        recipe_differences(before, after), key=lambda leaf: (order.index(leaf.leaf_class), leaf.field)
    )
    return [
        RecipeDifference(field=leaf.field, leaf_class=leaf.leaf_class, first=leaf.before, second=leaf.after)
        for leaf in found
    ]


def _environments(one: Stream, two: Stream, not_compared: dict[str, str]) -> list[str]:
    before = one.files.environment(_start(one).environment_sha256).document
    after = two.files.environment(_start(two).environment_sha256).document
    if before is None or after is None:
        not_compared["environment"] = "one of the environments cannot be read"
        return []
    code = [
        f"code {name}: {before.code.get(name)!r} -> {after.code.get(name)!r}"
        for name in sorted(before.code.keys() | after.code.keys())
        if before.code.get(name) != after.code.get(name)
    ]
    return [*environment_differences(before, after), *code]


def _data(one: Stream, two: Stream) -> list[ResultPair]:
    first, second = _start(one).data, _start(two).data
    return [
        ResultPair(name=name, first=getattr(first, name), second=getattr(second, name))
        for name in ("train", "validation")
        if getattr(first, name) != getattr(second, name)
    ]


def _facts(one: Stream, two: Stream) -> list[ResultPair]:
    first, second = _start(one), _start(two)
    pairs: list[tuple[str, Json, Json]] = [
        (name, _plain(getattr(one.history.facts, name, None)), _plain(getattr(two.history.facts, name, None)))
        for name in ("name", "purpose", "parent", "recipe_lock_sha256", "model", "optimizer")
    ]
    pairs += [
        (name, getattr(first, name), getattr(second, name))
        for name in ("tokens_per_microbatch", "accumulation", "data_parallel")
    ]
    return [ResultPair(name=name, first=left, second=right) for name, left, right in pairs if left != right]


def _plain(value: object) -> Json:
    return msgspec.to_builtins(value)


def _courses(one: Stream, two: Stream, not_compared: dict[str, str]) -> dict[str, str]:
    """Say up to where both read the same batches and measured the same, at the places that both logged."""
    ours, theirs = branch_rows(one), branch_rows(two)
    places = sorted(ours.keys() & theirs.keys())
    if not places:
        not_compared["batches and measures"] = "the two logged no common place"
        return {}
    alike = f"alike at all {len(places)} places that both logged, up to step {ours[places[-1]].step}"
    courses = {}
    for name, column in (("batches", "chain"), ("measures", "measured")):
        other = next((at for at in places if ours[at].column(column) != theirs[at].column(column)), None)
        courses[name] = (
            alike if other is None else f"differ first at step {ours[other].step}, after {other} microbatches"
        )
    return courses


def _results(
    one: Stream, two: Stream, ours: list[SessionSummary], theirs: list[SessionSummary]
) -> list[ResultPair]:
    """Return the numbers of both: of their branches, and the seconds and tokens that were spent in all."""
    left, right = _result(one, ours), _result(two, theirs)
    names = [*left, *(name for name in right if name not in left)]
    return [ResultPair(name=name, first=left.get(name), second=right.get(name)) for name in names]


def _result(stream: Stream, sessions: list[SessionSummary]) -> dict[str, Json]:
    history, last = stream.history, sessions[-1]
    on_branch = [found for found in sessions if found.on_branch_up_to_step is not None]
    trained = [found for found in on_branch if found.loss_last is not None]
    spent = history.spent()
    best = history.best()
    latest = history.latest(
        found for found in history.checkpoints() if found.path in stream.files.complete_checkpoints
    )
    manifest = None if latest is None else stream.files.complete_checkpoints[latest.path].manifest.document
    evaluations = {found.split: found.loss for found in history.evaluations()}
    return {
        "target step": history.target_step(),
        "sessions": len(sessions),
        "last session": last.status,
        "step": last.last.step,
        "attempts": last.last.attempts,
        "skipped": last.last.skipped,
        "tokens_seen": last.last.tokens_seen,
        "spent tokens": spent.tokens_seen,
        "elapsed seconds": sum(found.elapsed_seconds for found in sessions),
        "training tokens/s": last.training_tokens_per_second,
        "last loss": trained[-1].loss_last if trained else None,
        "last grad norm": trained[-1].grad_norm_last if trained else None,
        **{f"{split} loss": loss for split, loss in sorted(evaluations.items())},
        "best loss": None if best is None else best.evaluation.loss,
        "latest checkpoint at step": None if latest is None else latest.counters.step,
        "its model": None if manifest is None else manifest.state.model,
        "its optimizer": None if manifest is None else manifest.state.optimizer,
    }
