"""`diff`: two runs side by side, identity differences first."""

from __future__ import annotations

import os
from typing import ClassVar, Literal

from pydantic import Field

from ledger import __version__
from ledger.audit.recipe import environment_differences
from ledger.audit.reconciliation import audit_stream, form_checkers, open_stream
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
    results: list[ResultPair] = Field(description="Totals and measurements of both, equal or not.")
    not_compared: dict[str, str]


def compare_runs(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> Comparison:
    """Compare the recipes, environments, data and results of the last sessions of two runs.

    Raises:
        EvidenceMissingError: one of them has no session to compare.
        UsageError, InvalidDocumentError, NewerVersionError, UnsafeError, StorageError: as `reconcile`.
    """
    sides = [_read(path) for path in (first, second)]
    (one, one_tally), (two, two_tally) = sides
    not_compared: dict[str, str] = {}
    recipe = _recipes(one, two, not_compared)
    return Comparison(
        tool_version=__version__,
        runs=[stream.history.run_id or "" for stream in (one, two)],
        is_same_identity=_start(one).identity_sha256 == _start(two).identity_sha256,
        recipe=recipe,
        environment=_environments(one, two, not_compared),
        data=_data(one, two),
        results=_results(one, two, one_tally, two_tally),
        not_compared=not_compared,
    )


def _read(path: str | os.PathLike[str]) -> tuple[Stream, SessionSummary]:
    stream, _ = open_stream(find_run(path))
    tally = TallyChecker(stream)
    audit_stream(stream, [*form_checkers(stream), tally])
    if not tally.entries:
        raise EvidenceMissingError(
            "the log tells of no session", path=path, expected="a run that was started"
        )
    return stream, tally.summaries()[-1]


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


def _results(one: Stream, two: Stream, first: SessionSummary, second: SessionSummary) -> list[ResultPair]:
    pairs: list[tuple[str, Json, Json]] = [
        ("target step", one.history.target_step(), two.history.target_step()),
        ("sessions", len(one.history.sessions), len(two.history.sessions)),
        ("step", first.last.step, second.last.step),
        ("attempts", first.last.attempts, second.last.attempts),
        ("skipped", first.last.skipped, second.last.skipped),
        ("tokens_seen", first.last.tokens_seen, second.last.tokens_seen),
        ("spent tokens", one.history.spent().tokens_seen, two.history.spent().tokens_seen),
        ("status", first.status, second.status),
        ("loss_last", first.loss_last, second.loss_last),
        ("grad_norm_last", first.grad_norm_last, second.grad_norm_last),
        ("training tokens/s", first.training_tokens_per_second, second.training_tokens_per_second),
    ]
    ours = {str(entry["split"]): entry for entry in first.evaluations}
    theirs = {str(entry["split"]): entry for entry in second.evaluations}
    pairs += [
        (f"{split} loss", ours.get(split, {}).get("loss"), theirs.get(split, {}).get("loss"))
        for split in sorted(ours.keys() | theirs.keys())
    ]
    return [ResultPair(name=name, first=left, second=right) for name, left, right in pairs]
