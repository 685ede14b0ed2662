"""Fetches pinned files with `huggingface_hub`; no other module loads it.

A revision is resolved to a commit before anything is fetched. What is in the library's cache is used without a
network; what is not there and cannot be fetched is an error that says so. Large files have a digest in the listing of
their commit, so they are known before they are fetched; the listing is remembered in the cache, beside the files.
"""

from __future__ import annotations

import glob
import importlib
import json
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ledger.errors import ConfigError, EvidenceMissingError
from ledger.storage.files import files_below, is_folder

__all__ = ["ListedFile", "PinnedRepository", "RepositoryKind", "fetch", "fetch_file", "find", "pin"]

RepositoryKind = Literal["dataset", "model"]

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class PinnedRepository:
    """A repository at one commit."""

    kind: RepositoryKind
    id: str
    requested_revision: str
    commit: str


@dataclass(frozen=True)
class ListedFile:
    """A file of a commit, and what the hub says of its content."""

    name: str
    bytes: int | None = None
    sha256: str | None = None
    """Null where only fetching it can tell."""


def pin(kind: RepositoryKind, identifier: str, *, revision: str) -> PinnedRepository:
    """Resolve a revision to its commit: with the network, or from the cache without it.

    Raises:
        ConfigError: there is no such repository or revision, or it is not open to this user.
        EvidenceMissingError: there is neither a network nor a commit of that name in the cache.
    """
    if _COMMIT.fullmatch(revision):
        return PinnedRepository(kind, identifier, revision, revision)
    library = _require_library()
    try:
        info = library.HfApi().repo_info(identifier, revision=revision, repo_type=kind)
    except (library.errors.RepositoryNotFoundError, library.errors.RevisionNotFoundError) as error:
        problem = (
            f"there is no {kind} {identifier!r} with the revision {revision!r}, or it is not open to you"
        )
        raise ConfigError(problem, advice="check the id and the revision, and HF_TOKEN") from error
    except library.errors.HFValidationError as error:
        raise ConfigError(f"{identifier!r} cannot be the id of a {kind}: {error}") from error
    except Exception as error:  # no network shows in many ways
        commit = _cached_commit(library, kind, identifier, revision=revision)
        if commit is None:
            raise _unreachable(kind, identifier, error) from error
        _LOG.warning("%s: no network; %r is the commit %s of the cache", identifier, revision, commit)
        return PinnedRepository(kind, identifier, revision, commit)
    return PinnedRepository(kind, identifier, revision, str(info.sha))


def find(repository: PinnedRepository, *, patterns: Sequence[str]) -> list[ListedFile]:
    """Return every file that a pattern matches, in the order of the names, without fetching it where that is possible.

    Raises:
        ConfigError: no file matches, or there is no such commit.
        EvidenceMissingError: there is no listing in the cache and no network, nor are the files themselves in it.
    """
    library = _require_library()
    files = _remembered(library, repository)
    if files is None:
        files = _listing(library, repository)
    if files is None:  # without a network the library answers from the snapshot that it holds
        return [ListedFile(name) for name, _ in fetch(repository, patterns=patterns)]
    chosen = set(_matching(library, repository, [file.name for file in files], patterns=patterns))
    _remember(library, repository)
    return sorted((file for file in files if file.name in chosen), key=lambda file: file.name)


def fetch(repository: PinnedRepository, *, patterns: Sequence[str]) -> list[tuple[str, Path]]:
    """Return every file that a pattern matches, by its name in the repository, fetching what the cache lacks.

    Raises:
        ConfigError: no file matches, or there is no such commit.
        EvidenceMissingError: files are not in the cache and cannot be fetched.
    """
    library = _require_library()
    try:
        folder = _snapshot(library, repository, patterns=patterns)
    except library.errors.RepositoryNotFoundError as error:
        problem = f"there is no {repository.kind} {repository.id!r} at {repository.commit}"
        raise ConfigError(problem, advice="check the id, the revision, and HF_TOKEN") from error
    except Exception as error:  # as in `pin`
        raise _unreachable(repository.kind, repository.id, error) from error
    found = files_below(folder) if is_folder(folder) else []
    names = _matching(library, repository, found, patterns=patterns)
    _remember(library, repository)
    return [(name, folder / name) for name in names]


def fetch_file(repository: PinnedRepository, *, name: str) -> Path:
    """Return where one file lies, fetching it if the cache lacks it; raises what `fetch` raises."""
    ((_, path),) = fetch(repository, patterns=[glob.escape(name)])
    return path


def _matching(
    library: Any, repository: PinnedRepository, names: Sequence[str], *, patterns: Sequence[str]
) -> list[str]:
    matching = list(library.utils.filter_repo_objects(names, allow_patterns=list(patterns)))
    if not matching:
        problem = f"no file of {repository.id!r} at {repository.commit} matches {', '.join(patterns)}"
        raise ConfigError(problem, advice="check source.files")
    return matching


def _listing(library: Any, repository: PinnedRepository) -> list[ListedFile] | None:
    """Ask the hub for the files of a commit and remember the answer; null where there is none to be had."""
    try:
        entries = library.HfApi().list_repo_tree(
            repository.id, recursive=True, revision=repository.commit, repo_type=repository.kind
        )
        files = [_listed(entry) for entry in entries if hasattr(entry, "size")]
    except Exception:  # noqa: BLE001 - no network shows in many ways; what is wrong else, fetching will tell
        return None
    path = _note(library, repository)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([[file.name, file.bytes, file.sha256] for file in files]))
    return files


def _listed(entry: Any) -> ListedFile:
    stored = getattr(entry, "lfs", None)
    return ListedFile(entry.path) if stored is None else ListedFile(entry.path, stored.size, stored.sha256)


def _remembered(library: Any, repository: PinnedRepository) -> list[ListedFile] | None:
    try:
        return [ListedFile(*fields) for fields in json.loads(_note(library, repository).read_bytes())]
    except (OSError, ValueError, TypeError):
        return None


def _note(library: Any, repository: PinnedRepository) -> Path:
    """Return where the listing of a commit is remembered."""
    return _folder(library, repository.kind, repository.id) / "ledger" / f"{repository.commit}.json"


def _snapshot(library: Any, repository: PinnedRepository, *, patterns: Sequence[str]) -> Path:
    """Return the folder of the commit; without a network the library checks that what matches is all there."""
    options = {
        "repo_type": repository.kind,
        "revision": repository.commit,
        "allow_patterns": list(patterns),
        "tqdm_class": _silent(),
    }
    return Path(library.snapshot_download(repository.id, **options))


def _remember(library: Any, repository: PinnedRepository) -> None:
    """Note in the cache, as the library does, which commit a branch or tag stood for."""
    if repository.requested_revision == repository.commit:
        return
    path = _reference(library, repository.kind, repository.id, revision=repository.requested_revision)
    with suppress(OSError):  # a cache that cannot be written serves as well while there is a network
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(repository.commit, encoding="ascii")


def _reference(library: Any, kind: RepositoryKind, identifier: str, *, revision: str) -> Path:
    return _folder(library, kind, identifier) / "refs" / revision


def _folder(library: Any, kind: RepositoryKind, identifier: str) -> Path:
    return Path(library.constants.HF_HUB_CACHE) / f"{kind}s--{identifier.replace('/', '--')}"


def _cached_commit(library: Any, kind: RepositoryKind, identifier: str, *, revision: str) -> str | None:
    """Return the commit that the cache remembers for a branch or tag."""
    try:
        commit = _reference(library, kind, identifier, revision=revision).read_text(encoding="ascii").strip()
    except (OSError, UnicodeError):
        return None
    return commit if _COMMIT.fullmatch(commit) else None


def _unreachable(kind: str, identifier: str, error: Exception) -> EvidenceMissingError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    problem = f"the {kind} {identifier!r} is not (completely) in the cache and could not be fetched: {reason}"
    advice = "check the network and HF_HUB_OFFLINE, or fetch it where there is one and copy the cache"
    return EvidenceMissingError(problem, advice=advice)


def _silent() -> Any:
    """Return a progress bar that shows nothing: the preparation shows its own."""
    bars = importlib.import_module("tqdm")
    return type("SilentBar", (bars.tqdm,), {"__init__": _init_silent})


def _init_silent(bar: Any, *arguments: Any, **options: Any) -> None:
    options.pop("name", None)
    super(type(bar), bar).__init__(*arguments, **(options | {"disable": True}))


def _require_library() -> Any:
    """Load the optional library; this is the one place that does."""
    try:
        library = importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        problem = "reading from the hub takes the library `huggingface_hub`, which is not installed"
        raise EvidenceMissingError(problem, advice="pip install 'pilot-ledger[data]'") from error
    for name in ("constants", "errors", "utils"):
        importlib.import_module(f"huggingface_hub.{name}")
    return library
