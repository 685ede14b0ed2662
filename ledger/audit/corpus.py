"""The data that a run read, as far as it is at hand: what an epoch holds, and what each microbatch was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ledger.audit.subject import is_dataset, require_folder
from ledger.audit.track import Track
from ledger.dataset.manifest import METADATA_NAME, Dataset, Split, open_dataset
from ledger.dataset.mix import mix_sha256
from ledger.dataset.order import Geometry
from ledger.dataset.reader import Reader
from ledger.dataset.source import Microbatch
from ledger.errors import LedgerError, StorageError, UnsafeError, UsageError
from ledger.laws.batches import usable_tokens
from ledger.records.fields import Json
from ledger.storage.filesystem import OS

__all__ = ["TRAIN", "Corpus", "RunReader", "epoch_tokens", "require_dataset"]

TRAIN: Final = "train"
HELD_OUT: Final = "validation"


class Corpus:
    """The datasets at the path given or at those that a recipe states; they may be absent, broken or others.

    Only what the run started with is ever read: another dataset would say nothing about it. Of a mix each source
    lies in a folder of its name in the path given.
    """

    def __init__(self, given: Path | None) -> None:
        self._given = given
        self.datasets: dict[str, Dataset] = {}
        """Source name to its dataset; empty unless all of them are the run's."""
        self.is_mix = False
        self.held_out: Dataset | None = None
        """The dataset whose held-out text a mix is measured on, where it lies where the recipe says."""
        self.path = given
        """Where the data lies, or the first place where something is wrong with it."""
        self.error: LedgerError | None = None
        """Why a dataset that lies there cannot be opened."""
        self.other_sha256: str | None = None
        """The identity of the data that lies there, if it is not the run's."""

    def attend(self, track: Track) -> None:
        """Look for the data of a session, unless it was found already.

        Raises:
            StorageError: the system refused to read what lies there.
        """
        paths = self._paths_of(track)
        if self.datasets or not paths or not all(self._lies_at(path) for path in paths.values()):
            return
        self.error, self.other_sha256 = None, None
        opened = {}
        for source, path in paths.items():
            self.path = path
            try:
                opened[source] = open_dataset(path)
            except StorageError:
                raise
            except LedgerError as error:
                self.error = error
                return
        identities = {source: dataset.metadata_sha256 for source, dataset in opened.items()}
        found = mix_sha256(identities) if _sources_in(track) else next(iter(identities.values()))
        if found == track.start.data.train:
            self.datasets, self.is_mix = opened, bool(_sources_in(track))
            self.held_out = _held_out(track) if self.is_mix else None
        else:
            self.other_sha256 = found

    def _paths_of(self, track: Track) -> dict[str, Path]:
        """Return where each source should lie; empty where nobody says."""
        if sources := _sources_in(track):
            stated = {
                name: source.get("path") for name, source in sources.items() if isinstance(source, Mapping)
            }
            if self._given is not None:
                return {name: self._given / name for name in stated}
            return {name: Path(path) for name, path in stated.items() if isinstance(path, str)}
        data = None if track.sections is None else track.sections.data
        path = self._given or (Path(data.path) if data is not None and data.path else None)
        source = next(iter(track.start.cursor), TRAIN)
        return {} if path is None else {source: path}

    def _lies_at(self, path: Path) -> bool:
        return OS.exists(path / METADATA_NAME) if self._given is not None else _may_be_seen_at(path)

    @property
    def absence(self) -> str | None:
        """Why the bytes of the data cannot be looked at; None if they can."""
        if self.datasets:
            return None
        if self.error is not None:
            return f"the dataset at {self.path} cannot be opened"
        if self.other_sha256 is not None:
            return f"the dataset at {self.path} is another one"
        if self._given is not None:
            return f"there is no dataset at {self._given}"
        return (
            "the dataset does not lie where the recipe says, or not for this user to see; give it with --data"
        )

    def split_of(self, source: str) -> Split | None:
        """Return the split that a source of the cursor reads."""
        dataset = self.datasets.get(source)
        if dataset is None:
            return None
        name = TRAIN if self.is_mix or source not in dataset.manifest.splits else source
        return dataset.split(name) if name in dataset.manifest.splits else None

    def positions_of(self, data_sha256: str, split: str) -> int | None:
        """Return the target positions of a split of a dataset, None where that is not at hand."""
        datasets = [*self.datasets.values()] + ([] if self.held_out is None else [self.held_out])
        for dataset in datasets:
            if dataset.metadata_sha256 == data_sha256 and split in dataset.manifest.splits:
                return dataset.split(split).tokens - 1
        return None


def require_dataset(path: str | os.PathLike[str]) -> Path:
    """Return the folder of a dataset, or of a mix: one that holds the datasets of its sources.

    Raises:
        UsageError: it is neither.
    """
    folder = require_folder(path, what="a dataset")
    if is_dataset(folder) or any(is_dataset(folder / name) for name in OS.list_directory(folder)):
        return folder
    raise UsageError(
        "holds no dataset",
        path=folder,
        expected=f"a folder with {METADATA_NAME}, or of a mix the folder that holds its sources",
        advice="check the path",
    )


def epoch_tokens(track: Track, *, source: str, corpus: Corpus) -> int | None:
    """Return the tokens of one epoch of a source; None where neither recipe nor dataset says."""
    size = track.start.tokens_per_microbatch
    rule = track.reading
    if isinstance(rule, str):
        return None
    if rule.repeat is not None:
        return rule.repeat * size
    split = corpus.split_of(source)
    if split is None or track.sections is None:
        return None
    return usable_tokens(tokens=split.tokens, tokens_per_microbatch=size) or None


class RunReader:
    """Reads again what a run says it read: the microbatches of its branch, from the shards."""

    def __init__(self, reader: Reader, *, first: int) -> None:
        self._reader = reader
        self._first = first
        self._next: int | None = None
        """The microbatch of the branch at which the reader stands."""

    @classmethod
    def of(cls, track: Track, *, corpus: Corpus, scattered: bool) -> RunReader | str:
        """Return a reader for the branch that a session begins, or why there can be none.

        `scattered`: only a few microbatches from anywhere are wanted.
        """
        if corpus.absence is not None:
            return corpus.absence
        rule = track.reading
        if isinstance(rule, str):
            return rule
        splits = {source: split for source in track.start.cursor if (split := corpus.split_of(source))}
        geometry = _geometry_of(track)
        if geometry is None or len(splits) != len(track.start.cursor):
            return "the recipe does not state a micro batch that divides the tokens per microbatch"
        try:
            reader = rule.reader(splits, geometry=geometry, scattered=scattered)
            return cls(reader, first=reader.microbatch_of(track.start.cursor))
        except StorageError:
            raise
        except LedgerError as error:
            return str(error)

    def read(self, index: int) -> Microbatch | LedgerError:
        """Return a microbatch of the branch, or why there is none; in order costs least.

        Raises:
            StorageError: the system refused to read the shards.
        """
        try:
            if index != self._next:
                self._reader.restore(self._reader.cursor_at(self._first + index))
            self._next = None
            batch = self._reader.next()
        except StorageError:
            raise
        except LedgerError as error:
            return error
        self._next = index + 1
        return batch

    def digest_of(self, index: int) -> str | LedgerError:
        """Return the first 16 hexadecimal digits of a microbatch's digest, or why it cannot be read."""
        batch = self.read(index)
        return batch if isinstance(batch, LedgerError) else batch.digest.hex()[:16]

    def close(self) -> None:
        """Let go of memory and threads."""
        self._reader.close()


def identities_in_mix(track: Track) -> dict[str, str | None]:
    """Return the `metadata_sha256` that a recipe states for each source of a mix; empty where there is no mix."""
    found = {}
    for name, source in _sources_in(track).items():
        identity = source.get("metadata_sha256") if isinstance(source, Mapping) else None
        found[name] = identity if isinstance(identity, str) else None
    return found


def _sources_in(track: Track) -> Mapping[str, Json]:
    data = track.config.get("data")
    sources = data.get("sources") if isinstance(data, Mapping) else None
    return sources if isinstance(sources, Mapping) else {}


def _held_out(track: Track) -> Dataset | None:
    data = None if track.sections is None else track.sections.data
    if data is None or data.path is None or not _may_be_seen_at(Path(data.path)):
        return None
    try:
        dataset = open_dataset(data.path)
    except StorageError:
        raise
    except LedgerError:
        return None
    is_the_run_s = dataset.metadata_sha256 == track.start.data.validation
    return dataset if is_the_run_s and HELD_OUT in dataset.manifest.splits else None


def _may_be_seen_at(path: Path) -> bool:
    """Tell whether a dataset lies where a recipe says; on another machine that may be no path, or not ours to see."""
    try:
        return OS.exists(path / METADATA_NAME)
    except UnsafeError:
        return False
    except StorageError as error:
        if isinstance(error.__cause__, PermissionError):
            return False
        raise


def _geometry_of(track: Track) -> Geometry | None:
    batch = track.config.get("batch")
    micro_batch = batch.get("micro_batch") if isinstance(batch, Mapping) else None
    if isinstance(micro_batch, bool) or not isinstance(micro_batch, int) or micro_batch < 1:
        return None
    start = track.start
    sequence, odd = divmod(start.tokens_per_microbatch, micro_batch * start.data_parallel)
    if odd:
        return None
    return Geometry(micro_batch=micro_batch, sequence=sequence, data_parallel=start.data_parallel)
