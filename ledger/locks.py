"""Recipe locks: reading one strictly, and what it contradicts in itself.

A lock is an argument of a command: one that is malformed is a usage error, damage and contradictions are failures,
what could do harm is refused as unsafe.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ledger.dataset.rule import parse_reading_rule
from ledger.errors import (
    ConfigError,
    EvidenceMissingError,
    InvalidDocumentError,
    LedgerError,
    RefusedError,
    StorageError,
    UnsafeError,
    VerificationError,
)
from ledger.recipes import TARGET_FIELD
from ledger.records.documents import Recipe
from ledger.records.fields import Json
from ledger.records.layout import RECIPE_LOCK
from ledger.records.locks import Budget, RecipeLock
from ledger.storage.canonical import digest_of
from ledger.storage.documents import document_bytes, parse_document, read_document
from ledger.storage.files import read_regular_file
from ledger.storage.filesystem import OS, FileSystem
from ledger.storage.strict_json import MAX_DOCUMENT_BYTES

__all__ = [
    "LockProblem",
    "budget_of_run",
    "content_sha256",
    "has_credentials",
    "is_mutable_revision",
    "lock_problems",
    "read_lock",
    "recipe_of_lock",
    "signed",
]

SAME_RECIPE_STAGES: Final = frozenset({"stability", "resume"})
"""Stages that run the long run's own recipe, so that their identity is the lock's."""

_MUTABLE: Final = frozenset({"main", "master", "head", "latest", "trunk", "dev", "develop", "default"})
_CREDENTIALS: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s@]*:[^/\s@]*@|[?&](token|key|password|secret)=", re.IGNORECASE
)


@dataclass(frozen=True)
class LockProblem:
    """What is wrong with a lock that has its form."""

    kind: Literal["malformed", "unsafe", "damaged", "refused"]
    text: str


_ERRORS: Final[dict[str, type[LedgerError]]] = {
    "unsafe": UnsafeError,
    "malformed": ConfigError,
    "damaged": VerificationError,
    "refused": RefusedError,
}
"""Kind of a problem to the error that it is; the first that applies decides."""


def read_lock(path: str | os.PathLike[str], *, fs: FileSystem = OS) -> RecipeLock:
    """Read a lock that a run may be started under.

    Raises:
        EvidenceMissingError: there is none.
        ConfigError: it is malformed: no such document, not byte for byte the form in which locks are written, entries
            twice, a revision that moves, weights that are none.
        NewerVersionError: a newer version of the ledger wrote it.
        UnsafeError: it is no regular file, holds credentials, or a path that climbs.
        VerificationError: it was changed after it was written.
        RefusedError: it does not rest on passed pilots of its recipe.
        StorageError: the system refused.
    """
    if not fs.exists(path):
        raise EvidenceMissingError(
            "there is no lock", path=path, expected="what `ledger freeze PILOT -o FILE` wrote"
        )
    data = read_regular_file(path, max_bytes=MAX_DOCUMENT_BYTES, fs=fs)
    try:
        lock = parse_document(data, RecipeLock, path=path)
    except InvalidDocumentError as error:
        raise ConfigError(
            error.problem, path=error.path, place=error.place, expected=error.expected, advice=error.advice
        ) from error
    if data != document_bytes(lock):
        raise ConfigError(
            "is not byte for byte as locks are written (sorted keys, no spaces, no line ends)",
            path=path,
            expected="the file as `ledger freeze` wrote it",
            advice="restore it: the digest of these bytes is what a run records",
        )
    problems = lock_problems(lock)
    for kind, error_class in _ERRORS.items():
        texts = [problem.text for problem in problems if problem.kind == kind]
        if texts:
            raise error_class(
                "; ".join(texts),
                path=path,
                advice="freeze a passed pilot again: ledger freeze PILOT -o FILE",
            )
    return lock


def budget_of_run(run_dir: Path, *, fs: FileSystem = OS) -> Budget | None:
    """Return the budget of the lock that a run was started under; None without one, or where it cannot be read.

    Raises:
        StorageError: the system refused.
    """
    if not fs.exists(run_dir / RECIPE_LOCK):
        return None
    try:
        return read_document(run_dir / RECIPE_LOCK, RecipeLock, fs=fs).budget
    except StorageError:
        raise
    except LedgerError:
        return None  # LG603 says why


def signed(lock: RecipeLock) -> RecipeLock:
    """Return a lock with the digest of its content."""
    return lock.model_copy(update={"content_sha256": content_sha256(lock)})


def content_sha256(lock: RecipeLock) -> str:
    """Return SHA-256 of the RFC 8785 form of everything but the digest itself."""
    return digest_of(lock.model_dump(by_alias=True, exclude={"content_sha256"}))


def lock_problems(lock: RecipeLock) -> list[LockProblem]:
    """Return what a lock contradicts in itself."""
    return [*_unsafe(lock), *_malformed(lock), *_damaged(lock), *_unfounded(lock)]


def _unsafe(lock: RecipeLock) -> Iterator[LockProblem]:
    for place, text in _texts(lock.model_dump(by_alias=True)):
        if has_credentials(text):
            yield LockProblem("unsafe", f"{place} holds credentials")
    for pilot in lock.pilots:
        if ".." in Path(pilot.path).parts or "\0" in pilot.path:
            yield LockProblem("unsafe", f"the path of the pilot {pilot.stage} climbs: {pilot.path!a}")


def _malformed(lock: RecipeLock) -> Iterator[LockProblem]:
    entries = [(pilot.stage, pilot.run_id) for pilot in lock.pilots]
    for stage, run_id in sorted({entry for entry in entries if entries.count(entry) > 1}):
        yield LockProblem("malformed", f"the pilot {stage} of run {run_id} stands in it twice")
    for name, dataset in lock.datasets.items():
        for source in dataset.sources:
            if source.revision is not None and is_mutable_revision(source.revision):
                yield LockProblem(
                    "malformed",
                    f"the revision {source.revision!r} of {source.role} in dataset {name} moves: it pins nothing",
                )
    try:
        parse_reading_rule(_nested(lock.identity).get("data") or {})
    except (ValueError, AttributeError) as error:
        yield LockProblem("malformed", str(error))


def _damaged(lock: RecipeLock) -> Iterator[LockProblem]:
    if lock.content_sha256 is not None and content_sha256(lock) != lock.content_sha256:
        yield LockProblem("damaged", "its content does not have the digest that it states: it was edited")
    if digest_of(lock.identity) != lock.identity_sha256:
        yield LockProblem(
            "damaged", "its identity leaves do not have the digest that it states: it was edited"
        )
    if lock.planned_tokens != lock.target_step * lock.tokens_per_update:
        yield LockProblem(
            "damaged",
            f"it plans {lock.planned_tokens} tokens, but {lock.target_step} updates of {lock.tokens_per_update} are "
            f"{lock.target_step * lock.tokens_per_update}",
        )


def _unfounded(lock: RecipeLock) -> Iterator[LockProblem]:
    if not lock.pilots:
        yield LockProblem("refused", "it rests on no pilot")
    for pilot in lock.pilots:
        if pilot.verdict != "passed":
            yield LockProblem(
                "refused",
                f"the pilot {pilot.stage} is {pilot.verdict}, and a lock rests on passed pilots alone",
            )
        if pilot.stage in SAME_RECIPE_STAGES and pilot.identity_sha256 != lock.identity_sha256:
            yield LockProblem(
                "refused", f"the pilot {pilot.stage} ran another recipe than the one that is locked"
            )


def is_mutable_revision(revision: str) -> bool:
    """Tell whether a revision names something that moves, such as a branch."""
    name = revision.strip().lower()
    return name in _MUTABLE or name.startswith("refs/heads/")


def has_credentials(text: str) -> bool:
    """Tell whether a text holds an address with a password or a token in it."""
    return _CREDENTIALS.search(text) is not None


def recipe_of_lock(lock: RecipeLock) -> Recipe:
    """Return the whole recipe that was rehearsed, as far as the lock holds it."""
    leaves = {**lock.volatile, **lock.operational, **lock.identity, TARGET_FIELD: lock.target_step}
    config = _nested(leaves)
    if lock.checkpoint is not None:
        config["checkpoint"] = dict(lock.checkpoint)
    classes: dict[str, Literal["identity", "operational", "volatile"]] = {
        **dict.fromkeys(lock.volatile, "volatile"),
        **dict.fromkeys(lock.operational, "operational"),
        **dict.fromkeys(lock.identity, "identity"),
        **{f"checkpoint.{key}": "operational" for key in lock.checkpoint or {}},
        TARGET_FIELD: "operational",
    }
    return Recipe(config=config, classes=classes)


def _nested(leaves: Mapping[str, Json]) -> dict[str, Any]:
    """Return leaves by their dotted paths as sections."""
    nested: dict[str, Any] = {}
    for path, value in leaves.items():
        *sections, key = path.split(".")
        here = nested
        for section in sections:
            found = here.setdefault(section, {})
            if not isinstance(found, dict):  # a section that is null beside a leaf of it
                found = here[section] = {}
            here = found
        here[key] = value
    return nested


def _texts(value: Json, place: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{place}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{place}.{index}")
